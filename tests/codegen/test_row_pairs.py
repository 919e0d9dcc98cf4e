"""Rows that share what they read are computed two at a time; results stay, and rows that need each other stay apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.codegen.nests.row_pairs import pair_rows
from polyc.codegen.objects.host import host_target
from polyc.config import default_options
from polyc.ir.expr import Call, Expr, Index, Read, Size, int_const
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Store
from polyc.ir.types import F64
from polyc.ir.walk import walk_nodes
from polyc.machine import select_model
from tests.codegen.support import LEVELS

HEIGHT, WIDTH = 40, 48
ANY = Size("N")


def window(name: str, strides: tuple[int, ...]) -> Buffer:
    shape = (2, HEIGHT, WIDTH)[-len(strides) :]
    return Buffer(name, F64, tuple(map(int_const, shape)), tuple(map(int_const, strides)), "shared")


def argument(name: str, position: int) -> Buffer:
    shape = (int_const(2), int_const(HEIGHT), int_const(WIDTH))
    strides = tuple(map(int_const, (HEIGHT * WIDTH * 8, WIDTH * 8, 8)))
    return Buffer(name, F64, shape, strides, "argument", position)


X, Y = argument("X", 0), argument("Y", 1)
A = window("A", (HEIGHT * WIDTH * 8, WIDTH * 8, 8))


def step(n: int) -> Expr:
    """The place of a step in the window of two."""
    return Call("mod", (Call("add", (Index("t"), int_const(n))), int_const(2)))


def place(rows: int, columns: int) -> tuple[Expr, Expr]:
    return Call("add", (Index("i"), int_const(rows))), Call("add", (Index("j"), int_const(columns)))


def stencil(*points: tuple[int, int], at: int = 0) -> Expr:
    value: Expr = Read("A", (step(at), *place(*points[0])))
    for point in points[1:]:
        value = Call("add", (value, Read("A", (step(at), *place(*point)))))
    return value


CROSS = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))


def vectors(value: Expr, buffer: str = "A") -> Loop:
    store = Store(buffer, (step(1), *place(0, 0)), value)
    return Loop("j", int_const(1), int_const(WIDTH - 1), 1, "vector", (store,), lanes=4, interleave=2)


def all_of(source: str, target: str, t: int = 0) -> tuple[Node, ...]:
    """A copy of a plane."""
    subscripts = (int_const(t), Index("p"), Index("q"))
    store = Store(target, subscripts, Read(source, subscripts))
    inner = Loop("q", int_const(0), int_const(WIDTH), 1, "serial", (store,))
    return (Loop("p", int_const(0), int_const(HEIGHT), 1, "serial", (inner,)),)


def steps(rows: Loop) -> LoopNest:
    """Five steps over `rows`, from X to Y."""
    time = Loop("t", int_const(0), int_const(5), 1, "serial", (rows,))
    body = (*all_of("X", "A"), *all_of("X", "A", 1), time, *all_of("A", "Y"), *all_of("A", "Y", 1))
    return LoopNest("f", ("N",), (X, Y, A), body)


def rows(*body: Node, upper: Expr = ANY) -> Loop:
    return Loop("i", int_const(1), upper, 1, "serial", body)


def run(nest: LoopNest, n: int) -> np.ndarray:
    data = [np.random.default_rng(1).random((2, HEIGHT, WIDTH)), np.zeros((2, HEIGHT, WIDTH))]
    assert not interpret_loops(nest, data, {"N": n})
    return data[1]


def has_pairs(nest: LoopNest) -> bool:
    """Whether rows are paired; what is computed is the same either way."""
    paired = pair_rows(nest)
    for n in (0, 1, 2, 3, 4, 20, 21, HEIGHT - 1):
        np.testing.assert_array_equal(run(paired, n), run(nest, n))
    return any(isinstance(node, Loop) and node.step == 2 for node in walk_nodes(paired.body))


def test_rows_of_a_step_are_paired() -> None:
    assert has_pairs(steps(rows(vectors(stencil(*CROSS)))))


def test_rows_beside_other_stores_are_paired() -> None:
    first = Store("A", (step(1), Index("i"), int_const(0)), Read("A", (step(0), Index("i"), int_const(0))))
    assert has_pairs(
        steps(rows(first, vectors(stencil(*CROSS)), replace(first, subscripts=(step(1), Index("i"), int_const(47)))))
    )


@pytest.mark.parametrize("border", [0, 1, 2, 7, 19, 38])
def test_rows_of_the_border_stay_alone(border: int) -> None:
    test = Call("eq", (Index("i"), int_const(border)))
    body = If(test, (vectors(stencil((0, 0))),), (vectors(stencil(*CROSS)),))
    assert has_pairs(steps(rows(body)))


@pytest.mark.parametrize("length", [1, 2, 37, 38])
def test_known_numbers_of_rows_are_paired(length: int) -> None:
    assert has_pairs(steps(rows(vectors(stencil(*CROSS)), upper=int_const(1 + length))))


def test_rows_that_read_the_row_before_in_the_same_step_stay_alone() -> None:
    value = Call("add", (stencil(*CROSS), stencil((-1, 0), at=1)))
    assert not has_pairs(steps(rows(vectors(value))))


def test_rows_that_are_stored_off_their_place_stay_alone() -> None:
    moved = Store("A", (step(1), Call("sub", (int_const(HEIGHT), Index("i"))), Index("j")), stencil(*CROSS))
    own = Store("A", (step(1), *place(0, 0)), stencil(*CROSS))
    assert not has_pairs(steps(rows(replace(vectors(stencil(*CROSS)), body=(own, moved)))))


def test_rows_that_share_nothing_stay_alone() -> None:
    assert not has_pairs(steps(rows(vectors(stencil((0, 0), (0, -1), (0, 1))))))


def test_rows_that_share_a_factor_alone_stay_alone() -> None:
    value = Call("add", (stencil((0, 0)), Read("A", (step(0), int_const(0), Index("j")))))
    assert not has_pairs(steps(rows(vectors(value))))


def test_long_functions_stay_alone() -> None:
    assert not has_pairs(steps(rows(vectors(Call("exp", (stencil(*CROSS),))))))


def test_whole_lines_stay_alone() -> None:
    assert not has_pairs(steps(rows(replace(vectors(stencil(*CROSS)), lanes=8))))


def test_rows_of_results_stay_alone() -> None:
    assert not has_pairs(steps(rows(vectors(stencil(*CROSS), "Y"))))


PLANES = """def f({t}(N, M) x, {t}(T) steps) -> (B) {{
  A(0, i, j) = x(i, j)
  A(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? A(t-1, i, j)
    : {half} * (A(t-1, i-1, j) + A(t-1, i+1, j) + A(t-1, i, j-1)) - A(t-1, i, j) where t in 1:T+1, i in 0:N, j in 0:M
  B(i, j) = A(T, i, j)
}}"""


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "x86-64-v4"])
@pytest.mark.parametrize("kind", ["float64", "float32", "int32"])
@pytest.mark.parametrize(("n", "m"), [(70, 260), (71, 263)])
def test_tiles_of_time_compute_rows_in_pairs(n: int, m: int, kind: str, level: str) -> None:
    text = PLANES.format(
        t={"float64": "double", "float32": "float", "int32": "int32"}[kind], half=2 if kind == "int32" else 0.5
    )
    target = replace(select_model(host_target(), level), l1=8 << 10, l2=64 << 10)
    x = np.random.default_rng(n).integers(-9, 9, (n, m)).astype(kind)
    lowered = driver.lower(
        polyc.compile(text).program, sizes={"M": m, "T": 9, "N": n}, options=default_options(), target=target
    )
    assert "_row = " in lowered.as_text("loops")
    a = x
    for _ in range(9):
        old, a = a, a.copy()
        near = old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2]
        a[1:-1, 1:-1] = near * np.array(2 if kind == "int32" else 0.5, kind) - old[1:-1, 1:-1]
    np.testing.assert_allclose(lowered.compile()(x, np.zeros(9, kind)), a, rtol=1e-4 if kind == "float32" else 1e-12, atol=1e-3)
