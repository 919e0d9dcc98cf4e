"""Operands that register tiles read in place: rows of the steps to come are asked for."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.expr import evaluate, int_const, substitute
from polyc.ir.loops import If, Loop, Prefetch
from polyc.ir.walk import walk_nodes

NN = "def f(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }"
NT = "def f(float(M, K) A, float(N, K) B) -> (C) { C(m, n) +=! A(m, k) * B(n, k) }"


def requests(text: str, a: tuple[int, int], b: tuple[int, int]) -> list[tuple[Loop, Prefetch]]:
    """Requests for B, and the sum whose steps make each."""
    lowered = polyc.compile(text, target="x86-64-v4").lower(np.zeros(a, "f"), np.zeros(b, "f"))
    sums = [n for n in walk_nodes(lowered.nest.body) if isinstance(n, Loop) and n.registers]
    return [(loop, n) for loop in sums for n in loop.body if isinstance(n, Prefetch) and n.buffer == "B"]


def test_few_rows_read_a_large_matrix_in_place_and_ask_for_its_rows() -> None:
    found = requests(NN, (4, 1024), (1024, 1024))
    assert found
    for loop, request in found:
        here, later = (
            [evaluate(substitute(s, {v: int_const(n) for v, n in values.items()}), {}) for s in request.subscripts]
            for values in ({"c0": 0, "c1": 0, "c2": 0, "c3": 0, loop.var: k} for k in (0, 1))
        )
        assert here[0] > 0 and [b - a for a, b in zip(here, later, strict=True)] == [1, 0]
        assert request.size == 256 and request.level == 2


@pytest.mark.parametrize(
    ("text", "a", "b"),
    [(NN, (4, 256), (256, 256)), (NN, (4, 32), (32, 16384)), (NT, (4, 1024), (1024, 1024)), (NN, (512, 1024), (1024, 1024))],
    ids=["what the cache holds", "short sums", "rows along the sum", "rows enough for a copy"],
)
def test_what_asks_for_no_steps(text: str, a: tuple[int, int], b: tuple[int, int]) -> None:
    assert not requests(text, a, b)


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
