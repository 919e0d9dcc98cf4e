"""Distances between accesses, against all pairs of iterations of small loops."""

from __future__ import annotations

import random
from itertools import product

import pytest

from polyc.ir.access import accesses_in
from polyc.ir.dependence import carries_dependence, iterations_apart
from polyc.ir.expr import Call, Expr, Index, Read, Size, evaluate, int_const, minimum, substitute
from polyc.ir.loops import Buffer, Loop, Store
from polyc.ir.simplify import simplify
from polyc.ir.types import F32


def loop(var: str, upper: Expr | int, step: int = 1, lower: Expr | int = 0) -> Loop:
    low, up = (int_const(e) if isinstance(e, int) else e for e in (lower, upper))
    return Loop(var, low, up, step, "serial", ())


def values(expr: Expr, loops: tuple[Loop, ...], names: dict[str, int]) -> set[int]:
    """What an expression is in all iterations of loops, outermost first."""
    if not loops:
        fixed = {name: int_const(value) for name, value in names.items()}
        return {evaluate(substitute(expr, fixed), {})}
    first, *rest = loops
    low, up = (evaluate(substitute(e, {n: int_const(v) for n, v in names.items()}), {}) for e in (first.lower, first.upper))
    return {v for n in range(low, up, first.step) for v in values(expr, tuple(rest), {**names, first.var: n})}


def random_case(rng: random.Random) -> tuple[Expr, tuple[Loop, ...]]:
    """A subscript, and loops inside of which the inner one may depend on the outer one."""
    i, u, w = map(Index, "iuw")
    tile, step = rng.randint(1, 6), rng.randint(1, 3)
    inner: Expr = minimum(tile, rng.randint(1, 9) - u) if rng.random() < 0.5 else int_const(tile)
    loops = (loop("u", rng.randint(1, 8), step), loop("w", inner, 1, rng.choice([0, 0, 1])))
    terms = rng.randint(-3, 3) * i + rng.randint(-2, 2) * u + rng.randint(-2, 2) * w + rng.randint(-4, 4)
    return simplify(terms), loops[: rng.randint(0, 2)]


@pytest.mark.parametrize("seed", range(8))
def test_no_pair_that_meets_is_further_apart_than_said(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        (x, x_loops), (y, y_loops) = random_case(rng), random_case(rng)
        if rng.random() < 0.6:  # the same loop variables move both alike
            y, y_loops = simplify(x + rng.randint(-6, 6)), x_loops
        names = {n: 0 for n in "uw"}
        found = iterations_apart([x], [y], "i", x_loops, y_loops)
        for a, b in product(range(7), repeat=2):
            if values(x, x_loops, {**names, "i": a}) & values(y, y_loops, {**names, "i": b}):
                assert found is not None, (x, y, a, b)
                low, high = found
                assert (low is None or low <= b - a) and (high is None or b - a <= high), (x, y, a, b, found)


def test_distances_are_exact_where_one_variable_moves() -> None:
    i, j = Index("i"), Index("j")
    assert iterations_apart([i, j], [i - 1, j + 1], "i") is None  # of one j
    assert iterations_apart([i, j], [i - 1, j + 1], "i", [loop("j", 9)], [loop("j", 9)]) == (1, 1)
    assert iterations_apart([2 * i], [2 * i + 1], "i") is None
    assert iterations_apart([i + Size("N")], [i], "i") == (None, None)
    assert iterations_apart([i + j], [i + j], "i", [loop("j", 4)], [loop("j", 4)]) == (-3, 3)
    window = [Call("mod", (Index("t") + n, int_const(2))) for n in (0, 1)]
    assert iterations_apart([window[0], i], [window[1], i - 1], "i") is None
    assert iterations_apart([window[0], i], [window[0], i - 1], "i") == (1, 1)


@pytest.mark.parametrize(("width", "is_carried"), [(15, False), (16, False), (17, True)])
def test_tiles_that_do_not_overlap_are_independent(width: int, is_carried: bool) -> None:
    buffers = {n: Buffer(n, F32, (int_const(99),), (int_const(4),), "argument") for n in "AB"}
    place = (Index("t") + Index("u"),)
    store = Store("A", place, Read("A", place))
    tiles = Loop(
        "t", int_const(0), int_const(64), 16, "serial", (Loop("u", int_const(0), int_const(width), 1, "serial", (store,)),)
    )
    assert carries_dependence(tiles, list(accesses_in(tiles.body)), buffers) == is_carried


def test_memory_of_two_names_is_one() -> None:
    a, b = (Buffer(n, F32, (int_const(9),), (int_const(4),), "argument", may_alias=(m,)) for n, m in ("AB", "BA"))
    i = Index("i")
    body = (Store("A", (i,), Read("B", (i,))),)
    assert carries_dependence(loop("i", 9), list(accesses_in(body)), {"A": a, "B": b})
