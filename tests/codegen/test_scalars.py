"""Scalar replacement: which loops hold which buffers, and when accumulators start from the initial values before them."""

from __future__ import annotations

import numpy as np
import pytest

from polyc.code_limits import MAX_ACCUMULATORS
from polyc.codegen.nests.scalars import hold_accumulators
from polyc.ir.expr import Call, Const, Expr, Index, Read, int_const
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import Guard, If, Loop, Node, Store, Update
from polyc.ir.types import BOOL, F32
from tests.ir.nests import argument, loop, nest_of

I, J, K = Index("i"), Index("j"), Index("k")
ZERO = Const(0.0, F32)
EXTENTS = {"O": (4, 3), "P": (4, 3), "X": (4, 5), "b": (3,)}


def n(value: int) -> Expr:
    return int_const(value)


def add(buffer: str = "O", value: Expr | None = None, *subscripts: Expr) -> Update:
    return Update(buffer, subscripts or (I, J), "add", value or Read("X", (I, K)), "S0")


def init(value: Expr = ZERO, buffer: str = "O") -> Loop:
    return loop("j", n(3), Store(buffer, (I, J), value, "init_S0"), kind="unroll", max_trip=3)


def rows(*body: Node) -> tuple[Node, ...]:
    return (loop("i", n(4), *body),)


def points(*body: Node, var: str = "j") -> Loop:
    return loop(var, n(3), *body, kind="unroll", max_trip=3)


def reduced(*body: Node, **options: object) -> Loop:
    return loop("k", n(5), *body, **options)


def held(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Hold, and check that both nests do the same."""
    new = hold_accumulators(body)
    buffers = tuple(argument(name, tuple(map(n, shape)), p) for p, (name, shape) in enumerate(EXTENTS.items()))
    results = []
    for version in (body, new):
        rng = np.random.default_rng(3)
        data = [rng.standard_normal(shape).astype(np.float32) for shape in EXTENTS.values()]
        assert interpret_loops(nest_of(version, buffers), data, {}) == []
        results.append([d.tobytes() for d in data])
    assert results[0] == results[1]
    return new


def registers(body: tuple[Node, ...]) -> dict[str, tuple[str, ...]]:
    """Buffers held, by loop variable."""
    found: dict[str, tuple[str, ...]] = {}
    for node in body:
        if isinstance(node, If):
            found |= registers(node.body) | registers(node.orelse)
        elif isinstance(node, Loop):
            found |= {node.var: node.registers} if node.registers else {}
            found |= registers(node.body)
    return found


def test_the_reduction_outside_of_unrolled_points_holds():
    assert registers(held(rows(reduced(points(add()))))) == {"k": ("O",)}


def test_the_outermost_of_two_reduction_loops_holds():
    inner = loop("l", n(2), points(add()))
    assert registers(held(rows(reduced(inner)))) == {"k": ("O",)}


def test_a_loop_that_moves_the_target_does_not_hold():
    assert registers(held((loop("j", n(3), *rows(reduced(add()))),))) == {"k": ("O",)}
    assert registers(held(rows(reduced(loop("j", n(3), add()))))) == {}


@pytest.mark.parametrize("kind", ["parallel", "unroll"])
def test_loops_that_cannot_hold(kind):
    assert registers(held(rows(reduced(add("O", None, I, n(0)), kind=kind, max_trip=5)))) == {}


def test_too_many_accumulators():
    wide = MAX_ACCUMULATORS + 1
    body = (reduced(loop("j", n(wide), Update("acc", (J,), "add", ZERO), kind="unroll", max_trip=wide)),)
    assert registers(hold_accumulators(body)) == {}
    lanes = loop("j", n(wide), Update("acc", (J,), "add", ZERO), kind="vector", max_trip=wide, lanes=16)
    assert registers(hold_accumulators((reduced(lanes),))) == {"k": ("acc",)}


@pytest.mark.parametrize(
    "other",
    [
        Store("O", (I, n(0)), ZERO),
        Store("P", (I, n(0)), Read("O", (I, n(0)))),
        add("P", Read("O", (I, n(1))), I, n(0)),
        add("O", None, I, n(2)),
        Guard(0, Call("add", (I, n(0))), n(4), Call("lt", (Read("O", (I, n(0))), Const(float("inf"), F32)))),
        If(Call("ge", (Read("O", (I, n(0))), Const(float("-inf"), F32))), (Store("P", (I, n(0)), ZERO),)),
        If(Const(True, BOOL), (add(),)),
    ],
    ids=["store", "read", "read by an update", "second update", "guard", "condition", "update under a condition"],
)
def test_any_other_access_forbids(other):
    uses_j = isinstance(other, If) and isinstance(other.body[0], Update)
    body = rows(reduced(points(add()), points(other) if uses_j else other))
    assert all("O" not in names for names in registers(held(body)).values())


def only_start(body: tuple[Node, ...]) -> Loop:
    (outer,) = body
    assert isinstance(outer, Loop)
    (inner,) = outer.body
    assert isinstance(inner, Loop)
    return inner


def test_accumulators_start_from_the_stored_initial_value():
    inner = only_start(held(rows(init(), reduced(points(add())))))
    (start,) = inner.initial
    assert (start.buffer, start.value) == ("O", ZERO)


def test_the_initial_value_speaks_of_the_variables_of_the_loop():
    nest = loop("q", n(3), Store("O", (I, Index("q")), Read("b", (Index("q"),)), "init_S0"), kind="unroll", max_trip=3)
    (start,) = only_start(held(rows(nest, reduced(points(add()))))).initial
    assert start.value == Read("b", (J,))


def test_variables_that_change_places():
    # The initial nest runs j before i, the update i before j, and both use the same names for other loops.
    def square(*body: Node, names: tuple[str, str]) -> Loop:
        return loop(names[0], n(3), loop(names[1], n(3), *body, kind="unroll", max_trip=3), kind="unroll", max_trip=3)

    value = Call("mul", (Read("b", (Index("c0"),)), Read("b", (Index("c0"),))))
    start = square(Store("O", (Index("c1"), Index("c0")), value, "init_S0"), names=("c0", "c1"))
    update = square(add("O", Read("X", (Index("c1"), Index("c0"))), Index("c1"), Index("c2")), names=("c1", "c2"))
    body = (start, loop("c0", n(5), update))
    (inner,) = held(body)
    assert isinstance(inner, Loop)
    names = {e.subscripts[0] for e in (inner.initial[0].value.args)}  # type: ignore[union-attr]
    assert names == {Index("c2")}


def test_an_initial_value_of_another_range_stays():
    short = loop("j", n(2), Store("O", (I, J), ZERO, "init_S0"), kind="unroll", max_trip=2)
    (outer,) = held(rows(short, reduced(points(add()))))
    assert isinstance(outer, Loop) and len(outer.body) == 2


def test_a_plain_store_is_no_initial_value():
    plain = loop("j", n(3), Store("O", (I, J), ZERO, "S9"), kind="unroll", max_trip=3)
    (outer,) = held(rows(plain, reduced(points(add()))))
    assert isinstance(outer, Loop) and len(outer.body) == 2


@pytest.mark.parametrize(
    "between",
    [Store("P", (I, n(0)), Read("O", (I, n(0)))), Store("O", (I, n(0)), Const(5.0, F32)), Store("b", (n(0),), Const(5.0, F32))],
    ids=["reads the element", "writes the element", "writes what it reads"],
)
def test_what_stands_between_keeps_the_initial_value_in_memory(between):
    (outer,) = held(rows(init(Read("b", (J,))), between, reduced(points(add()))))
    assert isinstance(outer, Loop) and len(outer.body) == 3


def test_an_initial_value_that_reads_what_the_loop_writes_stays():
    second = points(add("P", None, I, J))
    (outer,) = held(rows(init(Read("P", (I, J))), reduced(points(add()), second)))
    assert isinstance(outer, Loop) and isinstance(outer.body[0], Loop) and outer.body[0].var == "j"


def test_an_initial_value_that_reads_its_own_buffer_stays():
    (outer,) = held(rows(init(Read("O", (I, Call("sub", (n(2), J))))), reduced(points(add()))))
    assert isinstance(outer, Loop) and len(outer.body) == 2


def test_two_reductions_of_one_loop_start_together():
    other = init(Read("b", (J,)), "P")
    inner = only_start(held(rows(init(), other, reduced(points(add(), add("P", None, I, J))))))
    assert [s.buffer for s in inner.initial] == ["O", "P"]


def test_a_parallel_initial_nest_stays():
    start = loop("i", n(4), Store("O", (I, n(0)), ZERO, "init_S0"), kind="parallel")
    assert len(held((start, *rows(reduced(add("O", None, I, n(0))))))) == 2


def test_an_initial_value_of_aliased_memory_stays_where_it_is():
    body = rows(init(), reduced(points(add())))
    merged, kept = hold_accumulators(body), hold_accumulators(body, frozenset({"O"}))
    assert isinstance(merged[0], Loop) and isinstance(kept[0], Loop)
    assert len(merged[0].body) == 1 and len(kept[0].body) == 2
