"""Panels of a contraction: while one is multiplied, the rows that the next one is copied from are asked for."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.expr import evaluate, int_const, substitute
from polyc.ir.loops import Loop, Node, Prefetch

NT = "def f(float(M, K) A, float(N, K) B) -> (C) { C(m, n) +=! A(m, k) * B(n, k) }"


def arrays(M: int, N: int, K: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(-9, 9, (M, K)).astype(np.float32), rng.integers(-9, 9, (N, K)).astype(np.float32)


def find(body: tuple[Node, ...], around: tuple[Loop, ...] = ()) -> list[tuple[Prefetch, tuple[Loop, ...]]]:
    """Requests for B, and the loops around each."""
    found = []
    for node in body:
        match node:
            case Prefetch() if node.buffer == "B":
                found.append((node, around))
            case Loop():
                found += find(node.body, (*around, node))
    return found


def requests(M: int, N: int, K: int) -> list[tuple[Prefetch, tuple[Loop, ...]]]:
    return find(polyc.compile(NT, target="x86-64-v4").lower(*arrays(M, N, K)).nest.body)


def test_all_rows_of_the_next_panel_are_asked_for() -> None:
    M, N, K = 512, 768, 768
    found = requests(M, N, K)
    panels, tiles, steps = found[0][1]
    assert steps.registers == ("C",) and panels.kind == "parallel"
    asked = set()
    for request, loops in found:
        assert loops == found[0][1]
        for tile in range(0, M, tiles.step):
            for step in range(0, K, 16):
                values = {panels.var: panels.step, tiles.var: tile, steps.var: step}
                place = (substitute(s, {v: int_const(n) for v, n in values.items()}) for s in request.subscripts)
                asked.add(tuple(evaluate(e, {}) for e in place))
    wanted = range(2 * panels.step, 3 * panels.step)
    assert asked == {(n, k) for n in wanted for k in range(0, K, 16)}


@pytest.mark.each
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize("shape", [(512, 701, 601), (263, 601, 797), (301, 769, 512)])
def test_results_are_the_same(shape: tuple[int, int, int], target: str) -> None:
    A, B = arrays(*shape)
    C = polyc.compile(NT, target=target)(A, B)
    assert np.array_equal(C, A.astype(np.float64) @ B.T)
