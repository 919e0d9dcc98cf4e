"""Long rows of stencils are taken in blocks of columns; what is computed stays, and so does an order that matters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.codegen.nests.column_blocks import block_columns
from polyc.codegen.objects.host import host_target
from polyc.config import default_options
from polyc.ir.expr import Call, Cast, Expr, Index, Read, int_const
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Store
from polyc.ir.types import F64, I64
from polyc.target import X86_64_V4, Target, select_model
from tests.codegen.support import LEVELS

FIVE = """def f({t}(N, M) x, {t}(T) steps) -> (B) {{
  A(0, i, j) = x(i, j)
  A(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? A(t-1, i, j)
    : 0.25 * (A(t-1, i-1, j) + A(t-1, i+1, j) + A(t-1, i, j-1)) + 0.125 * A(t-1, i, j+1) where t in 1:T+1, i in 0:N, j in 0:M
  B(i, j) = A(T, i, j)
}}"""
TWO = """def f(double(N, M) x, double(T) steps) -> (C, D) {
  U(0, i, j) = x(i, j)
  V(0, i, j) = 0.5 * x(i, j)
  U(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? U(t-1, i, j)
    : 0.25 * (U(t-1, i-1, j) + U(t-1, i+1, j)) - 0.5 * V(t-1, i, j+1) where t in 1:T+1, i in 0:N, j in 0:M
  V(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? V(t-1, i, j)
    : 0.25 * (V(t-1, i-1, j) + V(t-1, i+1, j)) + 0.5 * U(t-1, i, j-1) where t in 1:T+1, i in 0:N, j in 0:M
  C(i, j) = U(T, i, j)
  D(i, j) = V(T, i, j)
}"""
SMALL = {"l1": 8 << 10, "l2": 128 << 10}
"""Caches that rows of a few hundred columns leave."""


def five_points(a: np.ndarray) -> tuple[np.ndarray, ...]:
    """What `FIVE` computes in nine steps."""
    for _ in range(9):
        old, a = a, a.copy()
        near = old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2]
        a[1:-1, 1:-1] = 0.25 * near + 0.125 * old[1:-1, 2:]
    return (a,)


def two_fields(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """What `TWO` computes in nine steps."""
    u, v = x, 0.5 * x
    for _ in range(9):
        old, u = u, u.copy()
        u[1:-1, 1:-1] = 0.25 * (old[:-2, 1:-1] + old[2:, 1:-1]) - 0.5 * v[1:-1, 2:]
        below, v = v, v.copy()
        v[1:-1, 1:-1] = 0.25 * (below[:-2, 1:-1] + below[2:, 1:-1]) + 0.5 * old[1:-1, :-2]
    return u, v


def loops_and_results(text: str, n: int, m: int, kind: str, **changes: Any) -> str:
    """The loops; the kernel's results are NumPy's."""
    x, steps = np.random.default_rng(n + m).uniform(-1, 1, (n, m)).astype(kind), np.zeros(9, kind)
    program = polyc.compile(text).program
    target = replace(changes.pop("target", host_target()), **SMALL, **changes)
    options = default_options().replace(disable="recurrence-ends")  # one loop for all steps
    lowered = driver.lower(program, sizes={"M": m, "T": 9, "N": n}, options=options, target=target)
    found = lowered.compile()(x, steps)
    expected = two_fields(x) if text == TWO else five_points(x)
    for a, b in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5 if kind == "float32" else 1e-13, atol=1e-6)
    return lowered.as_text("loops")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("m", [383, 384, 390, 512, 700])
def test_rows_that_leave_the_first_cache_are_cut(m: int, level: str) -> None:
    loops = loops_and_results(FIVE.format(t="double"), 24, m, "float64", target=select_model(host_target(), level))
    assert "b += " in loops


@pytest.mark.parametrize("n", [2, 3, 5, 23, 61])
@pytest.mark.parametrize("m", [511, 767, 1031])
def test_any_number_of_rows_is_cut_into_the_same_elements(n: int, m: int) -> None:
    loops_and_results(FIVE.format(t="float"), n, m, "float32")


@pytest.mark.parametrize("m", [383, 512, 700])
def test_statements_that_share_a_step_keep_their_results(m: int) -> None:
    loops_and_results(TWO, 24, m, "float64")


def test_rows_that_stay_in_the_first_cache_are_whole() -> None:
    assert "b += " not in loops_and_results(FIVE.format(t="double"), 200, 100, "float64")


@pytest.mark.parametrize(("l1", "is_cut"), [(32, True), (48, False), (64, False)])
def test_the_first_cache_decides_whether_rows_are_cut(l1: int, is_cut: bool) -> None:
    program, target = polyc.compile(FIVE.format(t="double")).program, replace(X86_64_V4, l1=l1 << 10)
    lowered = driver.lower(program, sizes={"M": 1100, "T": 50, "N": 1100}, options=default_options(), target=target)
    assert ("b += " in lowered.as_text("loops")) == is_cut


# -- the order

WIDTH = 600


def plane(name: str, position: int) -> Buffer:
    shape = (int_const(40), int_const(WIDTH))
    return Buffer(name, F64, shape, (int_const(WIDTH * 8), int_const(8)), "argument", position)


def at(name: str, row: Expr | int, column: int) -> Read:
    """The element of `name` in a row, as many columns behind ``j``; rows are numbers of rows behind ``i``."""
    return Read(name, (Call("add", (Index("i"), int_const(row))), Call("add", (Index("j"), int_const(column)))))


def vectors(first: int, end: int, *stores: Store) -> Loop:
    return Loop("j", int_const(first), int_const(end), 1, "vector", stores, lanes=8)


def rows(*body: Node) -> LoopNest:
    loop = Loop("i", int_const(4), int_const(36), 1, "serial", body)
    return LoopNest("f", (), (plane("X", 0), plane("Y", 1)), (loop,))


def run(nest: LoopNest) -> list[np.ndarray]:
    data = [np.random.default_rng(n).random((40, WIDTH)) for n in range(2)]
    assert not interpret_loops(nest, data, {})
    return data


TARGET = replace(X86_64_V4, l1=16 << 10)


def has_blocks(nest: LoopNest, target: Target = TARGET) -> bool:
    """Whether a nest is cut into blocks; what it computes is the same either way."""
    cut = block_columns(nest, target)
    for a, b in zip(run(nest), run(cut), strict=True):
        np.testing.assert_array_equal(a, b)
    return cut != nest


@pytest.mark.parametrize("columns", [-2, 0, 1])
@pytest.mark.parametrize("row", [-2, -1, 0, 1])
def test_what_rows_before_wrote_at_columns_to_come_keeps_them_whole(row: int, columns: int) -> None:
    value = Call("add", (at("X", row, columns), at("Y", 1, 0)))
    first = Store("X", at("X", 0, 0).subscripts, Call("mul", (at("Y", 0, 0), at("Y", -1, 0))))
    second = Store("Y", at("Y", -3, 0).subscripts, value)
    # X of the rows before is read: at the same column or one before, which its block has made.  X of the rows to come is read
    # before it is written: at the same column or one behind, which no block has written yet.
    wanted = columns <= 0 if row <= 0 else columns >= 0
    assert has_blocks(rows(vectors(2, WIDTH - 2, first), vectors(2, WIDTH - 2, second))) == wanted


def test_a_row_that_all_rows_write_is_cut_where_columns_stay() -> None:
    here, there = ((int_const(0), Call("add", (Index("j"), int_const(n)))) for n in (0, 1))
    total = Call("add", (Call("add", (at("Y", 0, 0), at("Y", 1, 0))), at("X", 1, 0)))
    assert has_blocks(rows(vectors(2, WIDTH - 2, Store("X", here, Call("add", (Read("X", here), total))))))
    assert not has_blocks(rows(vectors(2, WIDTH - 2, Store("X", here, Call("mul", (Read("X", there), total))))))


def test_borders_go_with_the_first_and_the_last_block() -> None:
    def border(column: int) -> Store:
        return Store("X", (Index("i"), int_const(column)), Read("Y", (Index("i"), int_const(column))))

    value = Call("add", (Call("add", (at("Y", -1, 0), at("Y", 1, 0))), at("X", 0, 0)))
    inside = vectors(3, WIDTH - 1, Store("X", at("X", 0, 0).subscripts, value))
    copy = vectors(0, WIDTH, Store("X", at("X", 0, 0).subscripts, at("Y", 0, 0)))
    is_outside = Call("eq", (Call("mod", (Index("i"), int_const(5))), int_const(0)))
    arms = If(is_outside, (copy,), (border(0), border(1), border(2), inside, border(WIDTH - 1)))
    small = replace(TARGET, l1=8 << 10)
    assert has_blocks(rows(arms), small)
    assert has_blocks(rows(inside, border(150)), small)
    assert not has_blocks(rows(inside, border(300)), small)  # neither in the first of three blocks nor in the last


def test_memory_of_two_names_is_left_alone() -> None:
    value = Call("add", (Call("add", (at("Y", -1, 0), at("Y", 1, 0))), at("X", 0, 0)))
    nest = rows(vectors(2, WIDTH - 2, Store("X", at("X", 0, 0).subscripts, value)))
    assert has_blocks(nest)
    x, y = nest.buffers
    assert (
        block_columns(replace(nest, buffers=(replace(x, may_alias=("Y",)), replace(y, may_alias=("X",)))), TARGET).body
        == nest.body
    )


def test_rows_with_a_number_beside_them_are_cut() -> None:
    value = Call("mul", (Read("Z", ()), Call("add", (Call("add", (at("Y", -1, 0), at("Y", 1, 0))), at("X", 0, 0)))))
    nest = rows(vectors(2, WIDTH - 2, Store("X", at("X", 0, 0).subscripts, value)))
    number = Buffer("Z", F64, (), (), "argument", 2)
    nest = replace(nest, buffers=(*nest.buffers, number))
    assert block_columns(nest, TARGET) != nest


@pytest.mark.parametrize("name", ["X", "Y"])
def test_rows_of_results_that_are_named_by_data_keep_them_whole(name: str) -> None:
    named = Read(name, (Cast(at("Y", 0, 0), I64), Index("j")))
    value = Call("add", (Call("add", (at("Y", -1, 0), at("Y", 1, 0))), Call("add", (at("X", 0, 0), named))))
    assert has_blocks(rows(vectors(2, WIDTH - 2, Store("X", at("X", 0, 0).subscripts, value)))) == (name == "Y")
