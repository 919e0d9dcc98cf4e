"""Rows that are read side by side lie as far apart as their loop goes, so that each stream goes on where it is."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import polyc
from polyc.codegen.nests.far_rows import take_rows_from_afar
from polyc.ir.expr import Call, Const, Expr, Index, Read, int_const
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import Buffer, InitialValue, Loop, LoopNest, Node, Store, Update
from polyc.ir.types import F64
from polyc.machine import X86_64_V4

PRODUCT = "def f(double(N, M) A, double(M) x) -> (y) { y(i) +=! A(i, j) * x(j) }"
SUM = "def f(double(N, M) A, double(N) x) -> (y) { y(j) +=! A(i, j) * x(i) }"
TWO = """def f(double(N, M) A, double(N, M) B, double(M) x) -> (y) {
  p(i) +=! A(i, j) * x(j)
  q(i) +=! B(i, j) * x(j)
  y(i) = 2 * p(i) - q(i)
}"""
BOTH = """def f(double(N, M) A, double(M) x) -> (t, y) {
  t(i) +=! A(i, j) * x(j)
  y(j) +=! A(i, j) * t(i)
}"""
LAYER = """def f(double(B, K) X, double(N, K) W, double(N) b) -> (y) {
  h(m, n) +=! X(m, k) * W(n, k)
  y(m, n) = fmax(h(m, n) + b(n), 0.0)
}"""
EXPECTED = {
    PRODUCT: lambda A, x: A @ x,
    SUM: lambda A, x: x @ A,
    TWO: lambda A, B, x: 2 * (A @ x) - B @ x,
    BOTH: lambda A, x: (A @ x, (A @ x) @ A),
    LAYER: lambda X, W, b: np.maximum(X @ W.T + b, 0),
}


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(np.float64)


def arguments(source: str, n: int, m: int) -> list[np.ndarray]:
    if source == LAYER:
        return [numbers(4, m), numbers(n, m), numbers(n)]
    matrices = [numbers(n, m)] * (2 if source == TWO else 1)
    return [*matrices, numbers(n if source == SUM else m)]


def loops(source: str, n: int, m: int, **options: object) -> str:
    return polyc.compile(source, target="x86-64-v4", **options).lower(*arguments(source, n, m)).as_text("loops")


@pytest.mark.parametrize("source, letter", [(PRODUCT, "A"), (LAYER, "W")], ids=["product", "layer"])
def test_rows_in_registers_lie_a_quarter_of_the_matrix_apart(source: str, letter: str) -> None:
    text = loops(source, 1200, 1300)
    assert re.search(rf"{letter}\[c0 \+ 300 \* c\d, c\d\]", text)
    assert "parallel" in text and " for (c0 = 0; c0 < 300; c0++)" in text


def test_passes_over_two_matrices_are_one_over_half_as_many_rows_of_each() -> None:
    text = loops(TWO, 1200, 1300)
    assert text.count("vector(") == 1
    assert all(f"{letter}[c0 + 600 * c2, c1]" in text for letter in "AB")


def test_rows_of_a_tile_lie_a_part_of_the_tile_apart() -> None:
    text = loops(BOTH, 2000, 2000)
    apart = re.search(r"A\[(\d+) \* c0 \+ c1 \+ (\d+) \* c3, c2\]", text)
    assert apart and int(apart[2]) * 4 == int(apart[1])


def test_rows_that_are_left_run_together() -> None:
    text = loops(PRODUCT, 1203, 1300)
    assert "for (c0 = 1200; c0 < 1203; c0 += 3)" in text
    assert "unroll(at most 3)" in text


def test_rows_of_any_number_lie_apart() -> None:
    text = loops(PRODUCT, 1300, 1300, dynamic=True)
    assert "A[c0 + c2 * (N // 4), c1]" in text
    assert "for (c0 = 4 * (N // 4); c0 < N; c0++)" in text


def test_sums_of_rows_that_lie_apart_by_any_number_stay_in_registers() -> None:
    target = "x86-64-v3"
    op = polyc.compile(PRODUCT, dynamic=True, target=target)
    code = op.lower(*arguments(PRODUCT, 1300, 1300)).as_text("ll")
    blocks = re.findall(r"^\w+:.*?(?=^\w+:|\Z)", code, re.MULTILINE | re.DOTALL)
    steps = [block for block in blocks if block.count("@llvm.fma.v4f64") >= 4]
    assert steps
    assert not any("store double" in step for step in steps)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 7, 8, 11, 1301])
def test_any_number_of_rows_in_a_kernel_for_many(n: int) -> None:
    op = polyc.compile(PRODUCT, dynamic=True)
    op(*arguments(PRODUCT, 1300, 700))
    a, x = arguments(PRODUCT, n, 700)
    np.testing.assert_array_equal(op(a, x), a @ x)


@pytest.mark.parametrize(
    "source, shape",
    [(PRODUCT, (200, 300)), (PRODUCT, (300, 20000)), (SUM, (2000, 2000)), (PRODUCT, (12, 4000))],
    ids=["small matrix", "long rows", "pieces of rows", "few rows"],
)
def test_rows_that_stay_neighbours(source: str, shape: tuple[int, int]) -> None:
    assert re.search(r"A\[c\d \+ c\d, [^]]*\]", loops(source, *shape))


@pytest.mark.pairs
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize("source", list(EXPECTED), ids=["product", "sum", "two", "both", "layer"])
@pytest.mark.parametrize("n, m", [(1601, 701), (4003, 130), (5, 40000), (2000, 513)])
def test_results_of_any_number_of_rows(source: str, n: int, m: int, target: str) -> None:
    args = arguments(source, n, m)
    op = polyc.compile(source) if target == "host" else polyc.compile(source, target=target)
    expected = EXPECTED[source](*args)
    for result, value in zip(*(r if isinstance(r, tuple) else (r,) for r in (op(*args), expected)), strict=True):
        np.testing.assert_array_equal(result, value)


# -- what may move


BLOCK, ROW, COLUMN = Index("i"), Index("r"), Index("j")


def row(distance: int = 0) -> Expr:
    return Call("add", (Call("add", (BLOCK, ROW)), int_const(distance)))


def nest(*body: Node, columns: int = 250, kind: str = "serial", space: str = "register", alias: bool = False) -> LoopNest:
    """A loop over blocks of four rows of `A` and `B`, with results `y`, and `t` and `u` that are private."""
    shapes = {"A": (1000, columns), "B": (1000, columns), "x": (4,), "y": (1000,), "t": (4,), "u": (4,)}
    buffers = tuple(
        Buffer(
            name,
            F64,
            tuple(map(int_const, shape)),
            tuple(int_const(8 * s) for s in ((shape[1], 1) if len(shape) == 2 else (1,))),
            "argument" if name in "ABxy" else space,
            "ABxy".find(name) if name in "ABxy" else None,
            ("y",) if alias and name == "A" else (),
        )
        for name, shape in shapes.items()
    )
    loop = Loop("i", int_const(0), int_const(1000), 4, kind, body)
    return LoopNest("f", (), buffers, (loop,))


def rows(*body: Node) -> Loop:
    return Loop("r", int_const(0), int_const(4), 1, "unroll", body, max_trip=4)


def pass_over(*body: Node, buffer: str = "", columns: int = 250) -> Loop:
    start = (InitialValue(buffer, Const(0.0, F64), (rows(Store(buffer, body[0].subscripts, Const(0.0, F64))),)),)
    held = {"registers": (buffer,), "initial": start} if buffer else {}
    return Loop("j", int_const(0), int_const(columns), 1, "vector", (rows(*body),), lanes=8, **held)


ELEMENT = Read("A", (row(), COLUMN))
SUMS = pass_over(Update("t", (ROW,), "add", ELEMENT), buffer="t")
RESULTS = rows(Store("y", (row(),), Read("t", (ROW,))))
OTHER = Read("B", (row(), COLUMN))
OTHER_SUMS = pass_over(Update("u", (ROW,), "add", OTHER), buffer="u")
LATER_SUMS = pass_over(Update("u", (ROW,), "add", Call("mul", (OTHER, Read("t", (ROW,))))), buffer="u")
SAME_SUMS = pass_over(Update("u", (ROW,), "max", ELEMENT), buffer="u")
BOTH_RESULTS = rows(Store("y", (row(),), Call("add", (Read("t", (ROW,)), Read("u", (ROW,))))))


def moved(made: LoopNest, reassociate: bool = True) -> LoopNest | None:
    body = take_rows_from_afar(made.body, made.buffers, replace(X86_64_V4, l2=1 << 18), reassociate)
    return None if body == made.body else replace(made, body=body)


@pytest.mark.parametrize(
    "made",
    [
        nest(SUMS, RESULTS),
        nest(SUMS, RESULTS, kind="parallel"),
        nest(SUMS, RESULTS, kind="parallel", space="thread"),
        nest(SUMS, OTHER_SUMS, BOTH_RESULTS),
        nest(SUMS, LATER_SUMS, BOTH_RESULTS),
        nest(pass_over(Update("y", (row(),), "add", ELEMENT))),
        nest(pass_over(Update("y", (COLUMN,), "add", ELEMENT))),
    ],
    ids=["serial", "parallel", "private memory", "two passes", "passes in order", "accumulated in place", "sum of rows"],
)
def test_what_moves_means_the_same(made: LoopNest) -> None:
    new = moved(made)
    assert new is not None
    columns = int(made.buffer("A").shape[1].value)
    results = []
    for each in (made, new):
        arrays = [numbers(1000, columns), 2 * numbers(1000, columns), numbers(4), np.zeros(1000)]
        interpret_loops(each, arrays, {})
        results.append(arrays[3])
    np.testing.assert_array_equal(*results)
    assert results[0].any()


@pytest.mark.parametrize(
    "made",
    [
        nest(SUMS, RESULTS, alias=True),
        nest(SUMS, RESULTS, space="thread"),
        nest(SUMS, rows(Store("y", (row(),), Call("mul", (Read("t", (ROW,)), Read("x", (ROW,))))))),
        nest(SUMS, rows(Store("y", (row(),), Call("add", (Read("t", (ROW,)), Read("y", (row(-1),))))))),
        nest(SUMS, rows(Store("y", (ROW,), Read("t", (ROW,))))),
        nest(pass_over(Update("t", (ROW,), "add", ELEMENT)), RESULTS),
        nest(pass_over(Store("y", (COLUMN,), ELEMENT), columns=1000), columns=1000),
        nest(SUMS, rows(Store("y", (Call("mul", (int_const(2), ROW)),), Read("t", (ROW,))))),
    ],
    ids=[
        "one memory",
        "memory that lasts",
        "numbers of places",
        "the row before",
        "the same elements",
        "sums that go on",
        "the last row",
        "places elsewhere",
    ],
)
def test_rows_that_need_their_order_stay(made: LoopNest) -> None:
    assert moved(made) is None


def test_a_sum_over_rows_keeps_its_order_where_the_user_wants_it_kept() -> None:
    over_rows = nest(pass_over(Update("y", (COLUMN,), "add", ELEMENT), columns=1000), columns=1000)
    assert moved(over_rows) is not None
    assert moved(over_rows, reassociate=False) is None
    assert moved(nest(SUMS, RESULTS), reassociate=False) is not None


@pytest.mark.parametrize(
    "second, n_passes",
    [(OTHER_SUMS, 1), (LATER_SUMS, 2), (SAME_SUMS, 2)],
    ids=["another array", "what the first one finds", "the same array"],
)
def test_passes_are_joined_where_both_have_streams_of_their_own(second: Loop, n_passes: int) -> None:
    new = moved(nest(SUMS, second, BOTH_RESULTS))
    assert new is not None
    (loop,) = new.body
    assert isinstance(loop, Loop)
    assert [isinstance(n, Loop) and n.kind for n in loop.body].count("vector") == n_passes
    assert loop.upper == int_const(500 if n_passes == 1 else 250)
