"""Stores side by side whose lanes lie far apart: rows of a block, put together in registers."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyc

TARGETS = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
SIZES = [0, 1, 2, 7, 15, 16, 17, 33, 100]
FACTORS = {
    "nine": range(9),
    "six": range(6),
    "with a gap": (0, 1, 2, 3, 5, 6, 7),
    "backwards": range(8, -1, -1),
    "many": range(21),
}


def source(places, dtype: str) -> str:
    stores = "\n".join(f"y(i,{p}) = a(i) * {dtype}({p + 1}) + b(i,{p % 3})" for p in places)
    zeros = [p for p in range(max(places) + 1) if p not in places]
    return f"def f({dtype}(N) a, {dtype}(N,3) b) -> (y) {{ {stores} " + " ".join(f"y(i,{p}) = -a(i)" for p in zeros) + " }"


def whole_numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 4, shape).astype(dtype)


@pytest.mark.each
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FACTORS)
def test_all_components_at_every_length(name: str, target: str) -> None:
    places = FACTORS[name]
    op = polyc.compile(source(places, "float"), target=target)
    for n in SIZES:
        a, b = whole_numbers((n,), "f4"), whole_numbers((n, 3), "f4")
        wanted = np.stack([a * (p + 1) + b[:, p % 3] if p in places else -a for p in range(max(places) + 1)], -1)
        np.testing.assert_array_equal(op(a, b), wanted)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int16", "int64"])
def test_other_types(dtype: str, target: str) -> None:
    op = polyc.compile(source(range(7), dtype), target=target)
    for n in (1, 16, 45):
        a, b = whole_numbers((n,), dtype), whole_numbers((n, 3), dtype)
        np.testing.assert_array_equal(op(a, b), np.stack([a * (p + 1) + b[:, p % 3] for p in range(7)], -1))


def test_components_that_need_each_other() -> None:
    text = """def f(float(N) a) -> (y) {
      y(i,0) = a(i)
      y(i,1) = y(i,0) + 1.0 where i in 0:N
      y(i,2) = y(i,1) * y(i,0) where i in 0:N
      y(i,3) = 2.0 * y(i,2) where i in 0:N
      y(i,4) = a(i) - 1.0
      y(i,5) = a(i) * a(i) }"""
    a = whole_numbers((77,), "f4")
    product = (a + 1) * a
    np.testing.assert_array_equal(polyc.compile(text)(a), np.stack([a, a + 1, product, 2 * product, a - 1, a * a], -1))


def test_parts_of_pixels_of_two_rows() -> None:
    text = "def f(float(H,W) x) -> (y) {" + "\n".join(
        f"y(2*i+{p},2*j+{q},{c}) = x(i,j) * {1 + p + 2 * q + 4 * c}.0" for c in range(3) for p in range(2) for q in range(2)
    )
    op = polyc.compile(text + "}")
    for h, w in ((1, 1), (3, 16), (4, 37)):
        x = whole_numbers((h, w), "f4")
        factors = np.array([[[1 + p + 2 * q + 4 * c for c in range(3)] for q in range(2)] for p in range(2)], "f4")
        np.testing.assert_array_equal(op(x), np.kron(x[:, :, None], factors))


def test_nothing_is_stored_beside_an_array() -> None:
    op = polyc.compile(source(range(9), "float"))
    for n in SIZES:
        a, b = whole_numbers((n,), "f4"), whole_numbers((n, 3), "f4")
        memory = np.full(9 * n + 64, 77, "f4")
        op(a, b, out=memory[32 : 32 + 9 * n].reshape(n, 9))
        assert (memory[:32] == 77).all() and (memory[32 + 9 * n :] == 77).all()


def test_no_store_goes_lane_by_lane() -> None:
    a, b = np.zeros(512, "f4"), np.zeros((512, 3), "f4")
    text = polyc.compile(source(range(8), "float"), target="x86-64-v3").lower(a, b).as_text("s")
    assert not re.search("vextractps|vpextrd", text) and "vunpcklps" in text
    assert "vscatter" not in polyc.compile(source(range(9), "float"), target="x86-64-v4").lower(a, b).as_text("s")


def test_what_fills_rows_of_one_result_runs_in_one_loop() -> None:
    text = """def f(float(N) a) -> (y) {
      y(i,0) = 0.5 where i in 0:N
      y(i,1) = a(i)
      y(i,2) = a(i) * a(i)
      y(i,3) = -a(i)
      y(i,4) = 2.0 * a(i) }"""
    loops = polyc.compile(text).lower(np.zeros(512, "f4")).as_text("loops")
    assert loops.count("for (") - loops.count("parallel for") == 1


def test_parts_that_follow_each_other_have_loops_of_their_own() -> None:
    text = "def f(float(N) a, float(N) b) -> (y) { y(i) = a(i) y(i + N) = b(i) where i in 0:N }"
    loops = polyc.compile(text).lower(np.zeros(512, "f4"), np.zeros(512, "f4")).as_text("loops")
    assert loops.count("vector(") == 2


def test_vectors_at_the_end_of_a_row_are_stored_without_a_mask_where_they_are_whole() -> None:
    """Masked stores of AVX2 took as long as the sums of 27 products before them."""
    text = "def f(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }"
    for target, lanes in (("x86-64-v3", 8), ("x86-64-v2", 4)):
        operator = polyc.compile(text, target=target, dynamic=True)
        code = operator.lower(M=50, K=30, N=500).as_text("ll")
        assert re.search(rf"icmp sge i64 %\S+, {lanes}\n", code)
        for n in (5, 8, 16, 17, 23, 31):
            a, b = whole_numbers((13, 9), "f4"), whole_numbers((9, n), "f4")
            np.testing.assert_array_equal(operator(a, b), a @ b)
