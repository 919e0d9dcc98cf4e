"""Loop nests rewritten, with what is around each node."""

from __future__ import annotations

from polyc.ir.access import accesses_in, touched_in, with_values, written_in
from polyc.ir.expr import Const, Index, Read, ge, int_const
from polyc.ir.loops import If, InitialValue, Loop, Node, Store, Update
from polyc.ir.walk import Scope, nodes_in, replace_nodes, rewrite_nodes

I, K = Index("i"), Index("k")
INIT = Store("S", (I,), Read("Z", (I,)), "init_S")
SUM = Update("S", (I,), "add", Read("X", (I, K)))
COPY = Store("Y", (I,), Read("S", (I,)))
TEST = ge(I, 2)


def loop(var: str, *body: Node, kind: str = "serial", initial: tuple[InitialValue, ...] = ()) -> Loop:
    return Loop(var, int_const(0), int_const(4), 1, kind, body, initial=initial)  # type: ignore[arg-type]


NEST = (loop("i", loop("k", SUM, initial=(InitialValue("S", Read("Z", (I,)), (INIT,)),)), If(TEST, (COPY,)), kind="parallel"),)


def test_a_body_in_which_nothing_changes_is_the_same_object() -> None:
    assert rewrite_nodes(NEST, lambda node, scope: None) is NEST
    assert rewrite_nodes(NEST, lambda node, scope: node) is NEST


def test_a_rule_sees_loops_and_tests_around_a_node() -> None:
    seen: dict[Node, Scope] = {}
    rewrite_nodes(NEST, lambda node, scope: seen.setdefault(node, scope) and None)
    assert [n.var for n in seen[SUM].loops] == ["i", "k"]
    assert seen[COPY].holds(TEST)
    assert not seen[SUM].holds(TEST)
    assert seen == dict(nodes_in(NEST))


def test_only_serial_loops_say_which_iteration_is_next() -> None:
    inner = loop("k", loop("j", COPY))
    scopes = dict(nodes_in((loop("a", loop("p", inner, kind="parallel")),)))
    assert [n.var for n in scopes[COPY].loops_in_order] == ["p", "k", "j"]


def test_loops_and_branches_that_lose_everything_are_dropped() -> None:
    without = rewrite_nodes(NEST, lambda node, scope: () if node == COPY else None)
    assert without == (loop("i", *NEST[0].body[:1], kind="parallel"),)
    assert rewrite_nodes(NEST, lambda node, scope: () if isinstance(node, (Store, Update)) else None) == ()


def test_replaced_nodes_are_told_apart_though_they_are_equal() -> None:
    first, second = loop("i", COPY), loop("i", COPY)
    assert first == second
    assert replace_nodes((first, second), {id(second): (SUM, SUM)}) == (first, SUM, SUM)


def test_accesses_and_buffers_of_a_nest() -> None:
    found = [(a.buffer, a.kind, [n.var for n in a.scope.loops]) for a in accesses_in(NEST)]
    assert found == [
        ("S", "write", ["i"]),
        ("Z", "read", ["i"]),
        ("S", "update", ["i", "k"]),
        ("X", "read", ["i", "k"]),
        ("Y", "write", ["i"]),
        ("S", "read", ["i"]),
    ]
    assert written_in(NEST) == {"S", "Y"}
    assert touched_in(NEST) == {"S", "X", "Y", "Z"}


def test_values_are_put_where_an_element_is_and_into_what_is_written() -> None:
    moved = with_values(Store("Y", (I + 1,), I * Read("S", (I,))), {"i": I + 2})
    assert moved == Store("Y", (I + 3,), (I + 2) * Read("S", (I + 2,)))
    assert with_values(Read("S", (I, K)), {"k": Const(1)}) == Read("S", (I, Const(1)))
