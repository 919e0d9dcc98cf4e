"""Operands that register tiles read in place: rows of the steps to come are asked for."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.expr import evaluate
from polyc.ir.loops import If, Loop, Prefetch
from polyc.ir.walk import walk_nodes

NN = "def f(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }"
NT = "def f(float(M, K) A, float(N, K) B) -> (C) { C(m, n) +=! A(m, k) * B(n, k) }"


@pytest.mark.each
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize("shape", [(1, 1031, 517), (3, 1024, 1024), (7, 700, 1009), (17, 1025, 640)])
def test_results_are_right_where_rows_beyond_the_end_are_asked_for(target: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (m, k)).astype(np.float32), rng.integers(-9, 9, (k, n)).astype(np.float32)
    options = {} if target == "host" else {"target": target}
    assert np.array_equal(polyc.compile(NN, **options)(a, b), a @ b)


@pytest.mark.parametrize(
    ("sizes", "asks"),
    [((2, 64, 300, 300, 16), True), ((1, 3, 600, 600, 64), False), ((1, 128, 7, 7, 16), False)],
    ids=["many channels", "few channels", "a small image"],
)
def test_the_sizes_of_a_call_say_whether_planes_of_images_of_any_size_are_asked_for(
    sizes: tuple[int, int, int, int, int], asks: bool
) -> None:
    text = "def f(float(N, C, H, W) I, float(K, C) F) -> (O) { O(n, k, h, w) +=! I(n, c, h, w) * F(k, c) }"
    lowered = polyc.compile(text, target="x86-64-v4", dynamic=True).lower(("f32", (1, 64, 300, 300)), ("f32", (64, 64)))
    sums = [n for n in walk_nodes(lowered.nest.body) if isinstance(n, Loop) and n.registers]
    found = [n for loop in sums for n in loop.body if isinstance(n, If)]
    assert found and all(isinstance(n, Prefetch) and n.buffer == "I" for test in found for n in test.body)
    assert not any(isinstance(n, Prefetch) for loop in sums for n in loop.body)
    for test in found:
        assert bool(evaluate(test.condition, dict(zip("NCHWK", sizes, strict=True)))) == asks
