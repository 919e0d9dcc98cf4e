"""What follows from tests of indices, against every point of small domains."""

from __future__ import annotations

from itertools import product

import pytest

from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    Select,
    Size,
    evaluate,
    ge,
    int_const,
    le,
    lt,
    maximum,
    minimum,
    substitute,
    walk,
)
from polyc.ir.facts import assume, certain_span, cut, fold, hardest, hold, interior, pieces, span_of, tile_tests
from polyc.ir.intervals import range_of, ranges_in
from polyc.ir.loops import Guard, If, Loop, Node, Store
from polyc.ir.types import BOOL, F32
from polyc.ir.walk import Scope

I, J, N = Index("i"), Index("j"), Size("N")


def store(value: Expr) -> Store:
    return Store("A", (I,), value)


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2, -3])
@pytest.mark.parametrize("comparison", ["ge", "gt", "le", "lt"])
def test_a_comparison_at_any_step_bounds_its_variable(comparison: str, step: int) -> None:
    test = Call(comparison, (step * Index("v") + 4, Size("W")))
    span = span_of(test, "v")
    assert span is not None
    for width, v in product(range(-9, 10), range(-15, 16)):
        sizes = {"W": width}
        inside = span.lower is None or v >= evaluate(span.lower, sizes)
        inside = inside and (span.upper is None or v < evaluate(span.upper, sizes))
        assert inside == bool(evaluate(substitute(test, {"v": int_const(v)}), sizes))


@pytest.mark.parametrize("test", [Call("eq", (2 * I, N)), ge(J, 0), ge(I * I, 4), ge(I // 2, 1), Const(True, BOOL), ge(I, I)])
def test_what_is_no_linear_inequality_bounds_nothing(test: Expr) -> None:
    assert span_of(test, "i") is None


A, B, C = lt(I, 3), ge(J, 1), le(I + J, N)
NOT_A = Call("not", (A,))
CONDITIONS = [
    A,
    NOT_A,
    Call("and", (A, B)),
    Call("or", (A, Call("and", (B, C)))),
    Call("and", (Call("or", (NOT_A, C)), Call("not", (Call("and", (A, B)),)))),
]


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize(("test", "outcome"), [*product((A, B, C), (True, False))])
def test_a_folded_condition_holds_where_the_condition_does(condition: Expr, test: Expr, outcome: bool) -> None:
    folded = fold(condition, hold([test], outcome))
    for i, j in product(range(6), range(3)):
        values = {"i": i, "j": j, "N": 4}
        if bool(evaluate(test, values)) == outcome:
            assert bool(evaluate(folded, values)) == bool(evaluate(condition, values))


def test_a_condition_of_which_nothing_is_known_is_the_same_object() -> None:
    condition = CONDITIONS[4]
    assert fold(condition, hold([ge(N, 7)])) is condition


def test_a_body_keeps_what_is_not_decided() -> None:
    chosen = Select(Call("and", (A, B)), Read("X", (I,)), Const(0))
    inner = Loop("j", int_const(0), N, 1, "serial", (If(A, (store(chosen),), (store(Const(1)),)),))
    guard = Guard(0, I, N, Call("and", (A, C)))
    node, checked = assume((inner, guard), hold([A]))
    assert node == Loop("j", int_const(0), N, 1, "serial", (store(Select(B, Read("X", (I,)), Const(0))),))
    assert checked == Guard(0, I, N, C)
    assert assume((inner, guard), hold([A], False)) == (Loop("j", int_const(0), N, 1, "serial", (store(Const(1)),)),)


def replace_body(loop: Loop, *body: Node) -> Loop:
    return Loop(loop.var, loop.lower, loop.upper, loop.step, loop.kind, body)


def test_a_store_of_what_is_there_is_dropped_with_its_branch() -> None:
    keeps = Select(A, Read("A", (I,)), Const(2))
    assert assume((If(B, (store(keeps),)),), hold([A])) == ()


@pytest.mark.parametrize("n", [0, 1, 2, 5, 9])
def test_pieces_are_the_loop_and_all_tests_hold_in_its_interior(n: int) -> None:
    tests = [ge(I - 2, 0), lt(I, N - 1), ge(2 * I, 3)]
    loop = Loop("i", int_const(0), N, 1, "serial", ())
    spans = [span for test in tests if (span := span_of(test, "i")) is not None]
    begin, end = interior(loop, spans)
    edge, inside = (store(Const(0)),), (store(Const(1)),)
    parts = pieces(loop, (loop.lower, begin, edge), (begin, end, inside), (end, loop.upper, edge))
    found = [
        (i, part.body is inside) for part in parts for i in range(*(evaluate(e, {"N": n}) for e in (part.lower, part.upper)))
    ]
    assert found == [(i, all(evaluate(test, {"i": i, "N": n}) for test in tests)) for i in range(n)]


TESTS = {
    "both ends": [ge(I, 1), lt(I, N - 1), Call("eq", (I, int_const(0)))],
    "only the last": [Call("ne", (I, N - 1))],
    "more places than cuts": [ge(I, 1), ge(I, 2), ge(I, 3), lt(I, N - 2)],
    "a diagonal": [lt(I, J), Call("eq", (I, J)), lt(I, J + 2)],
    "two that nobody orders": [lt(I, J), ge(2 * I, N), ge(I, 1)],
    "beside the loop": [ge(I, -1), lt(I, N + 3), ge(J, 2)],
}


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("lower", [int_const(0), int_const(1), J])
def test_a_cut_loop_runs_each_iteration_once_and_decides_tests_rightly(name: str, lower: Expr) -> None:
    chosen: Expr = Const(0)
    for test in TESTS[name]:
        chosen = Select(test, Call("add", (chosen, int_const(1))), Call("mul", (chosen, int_const(2))))
    loop = Loop("i", lower, N, 1, "serial", (store(chosen),))
    parts = cut(loop, TESTS[name])
    assert len(parts) <= 8
    for n, j in product((0, 1, 2, 3, 4, 9, 30), (0, 1, 3, 8)):
        found = []
        for part in parts:
            (node,) = part.loop.body
            assert isinstance(node, Store)
            places = range(*(evaluate(e, {"N": n, "j": j}) for e in (part.loop.lower, part.loop.upper)))
            assert part.most is None or len(places) <= part.most
            assert not places or part.most is None or places[-1] < evaluate(part.first, {"N": n, "j": j}) + part.most
            found += [(i, evaluate(node.value, {"i": i, "j": j, "N": n})) for i in places]
        start = evaluate(lower, {"j": j})
        assert found == [(i, evaluate(chosen, {"i": i, "j": j, "N": n})) for i in range(start, n)]


def test_ranges_hold_every_value_of_a_nest() -> None:
    outer = Loop("i", int_const(1), int_const(6), 1, "serial", ())
    inner = Loop("j", I - 1, 2 * I, 1, "serial", ())
    scope = Scope().inside(outer).under(lt(I, 4), True).inside(inner).under(Call("eq", (J, int_const(2))), False)
    ranges = ranges_in(scope)
    assert ranges == {"i": (1, 3), "j": (0, 5)}
    points = [(i, j) for i in range(1, 4) for j in range(i - 1, 2 * i) if j != 2]
    for expr in (J * I - 2 * J, minimum(I, J) - maximum(I, 4), -J % 3 + 2 * I, N - I, maximum(N, J), 7 * N + 1, -2 * N):
        low, high = range_of(expr, ranges)
        found = [evaluate(expr, {"i": i, "j": j, "N": n}) for i, j in points for n in (0, 3)]
        assert low is None or low <= min(found)
        assert high is None or high >= max(found)
    assert [range_of(e, ranges) for e in (2 * I - J, N - I, -N, I // N)] == [(-3, 6), (-3, None), (None, 0), (None, None)]


def test_bounds_of_full_tiles_are_constant() -> None:
    """Of a tile of eight that a diagonal and the end of a row cut, in each place: either test is known alone, or both are."""
    loop = Loop("j", maximum(N - I, 0), minimum(Size("M") - I, 8), 1, "serial", (store(J),), tile=8)
    begins, ends = tile_tests(loop)
    for known in ([begins], [ends], [begins, ends]):
        (full,) = assume((loop,), hold(known))
        assert isinstance(full, Loop)
        assert (full.lower == int_const(0)) == (begins in known) and (full.upper == int_const(8)) == (ends in known)
        for i, n, m in product(range(9), range(9), range(-2, 20)):
            sizes = {"i": i, "N": n, "M": m}
            if all(evaluate(t, sizes) for t in known):
                assert [evaluate(e, sizes) for e in (full.lower, full.upper)] == [
                    evaluate(e, sizes) for e in (loop.lower, loop.upper)
                ]


def test_a_test_holds_everywhere_where_it_holds_at_its_hardest() -> None:
    ranges: dict[str, tuple[Expr, Expr]] = {"i": (int_const(0), int_const(3)), "j": (I, I + 2)}
    for test in (le(I + 2 * J, N), ge(J - I, N), lt(N, 3 * I - J)):
        at_worst = hardest(test, ranges)
        assert at_worst is not None
        for n in range(-9, 20):
            points = [{"N": n, "i": i, "j": j} for i in range(4) for j in range(i, i + 3)]
            assert bool(evaluate(at_worst, {"N": n})) <= all(evaluate(test, p) for p in points)
    assert hardest(le(I * J, N), ranges) is None and hardest(le(N, 3), ranges) is None


def test_byte_strides_may_be_negative() -> None:
    """They were taken for sizes: a loop up to ``-A.stride0`` had no iteration, and a piece of it was left out."""
    stride = Size("A.stride0")
    assert range_of(stride) == range_of(-stride) == (None, None)
    loop = Loop("i", int_const(0), N, 1, "serial", ())
    assert [piece.upper for piece in pieces(loop, (int_const(0), -stride, ()))] == [-stride]


@pytest.mark.parametrize("comparison", ["ge", "gt", "le", "lt"])
@pytest.mark.parametrize(
    "e",
    [
        Index("j") // 2 + 2 * (Index("j") % 2) - 1,
        3 * (Index("j") // 4) - Index("j") // 3 - Index("j") % 5,
        -2 * (Index("j") // 3) + 7 * (Index("j") % 3) + Index("j"),
        Index("n") // 2 - (Index("j") + 1) // 2 + Index("n") % 3,
    ],
)
def test_quotients_and_remainders_surely_hold_in_their_span(comparison: str, e: Expr) -> None:
    test, found = Call(comparison, (e, int_const(4))), 0
    span = certain_span(test, "j")
    assert span is not None
    for n, j in product(range(-3, 9), range(-40, 41)):
        at = {"n": n, "j": j}
        above = span.lower is None or evaluate(span.lower, at) <= j
        inside = above and (span.upper is None or j < evaluate(span.upper, at))
        found += inside
        assert not inside or evaluate(test, at)
    assert found


def test_a_quotient_of_a_quotient_and_an_equation_hold_nowhere_for_sure() -> None:
    nested = Index("j") // 2 // 3 * Index("j")
    assert certain_span(ge(nested, 4), "j") is None
    assert certain_span(Call("eq", (Index("j") // 2, int_const(4))), "j") is None


def test_bounds_of_quotients_by_large_numbers_are_not_multiplied_out() -> None:
    j = Index("j")
    assert certain_span(ge(j // 1000003 + j // 1000033 + j // 1000037, N), "j") is None
    assert certain_span(ge(j // 1000003, N), "j") is not None


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 37, 64, 100])
def test_a_loop_is_cut_at_whole_vectors_where_quotients_surely_hold(n: int) -> None:
    j = Index("j")
    place = j // 2 + 2 * (j % 2) - 1
    tests = [ge(place, 0), lt(place, (n + 1) // 2)]
    value = Select(Call("and", tuple(tests)), Read("X", (place,)), Const(0.0, F32))
    loop = Loop("j", int_const(0), int_const(n), 1, "vector", (Store("Y", (j,), value),), lanes=8)
    parts = cut(loop, tests)
    ran = [k for part in parts for k in range(evaluate(part.loop.lower, {}), evaluate(part.loop.upper, {}))]
    assert ran == list(range(n))
    for part in parts:
        (store,) = part.loop.body
        known = [test for test in tests if test not in list(walk(store.value))]
        for k in range(evaluate(part.loop.lower, {}), evaluate(part.loop.upper, {})):
            assert all(evaluate(test, {"j": k}) for test in known)
    assert n < 37 or any(not isinstance(part.loop.body[0].value, Select) for part in parts)
