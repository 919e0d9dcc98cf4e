"""Independent statements over the same data share a pass."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

import polyc

PRODUCTS = "def f(float(M, K) X, float(K) a, float(K) b) -> (U, V) { U(m) +=! X(m, k) * a(k)  V(m) +=! X(m, k) * b(k) }"
TURNED = "def f(float(M, K) X, float(M) a, float(M) b) -> (U, V) { U(k) +=! X(m, k) * a(m)  V(k) +=! X(m, k) * b(m) }"
COLUMNS = "def f(float(M, K) X) -> (U, V, W) { U(k) +=! X(m, k)  V(k) max=! X(m, k)  W(k) +=! X(m, k) * X(m, k) }"
RINGS = """def f(float(N) x, float(N) d, float(R) e) -> (count, total) {
  count(r) +=! e(r) <= x(i) && x(i) < e(r + 1) ? 1.0 : 0.0 where r in 0:R-1
  total(r) +=! e(r) <= x(i) && x(i) < e(r + 1) ? d(i) : 0.0 where r in 0:R-1
}"""
OUTER = "def f(float(M) a, float(K) b) -> (U, V) { U(m, k) = a(m) * b(k)  V(m, k) = a(m) - b(k) }"
PIVOTS = """def f(int64(R) p, float(R, R) A, float(R, M) Y) -> (X) {
  W(0, i, m) = Y(i, m)
  w(k, m) = W(k, p(k), m) / A(k, p(k)) where k in 0:R, m in 0:M
  W(k + 1, i, m) = i == p(k) ? w(k, m) : W(k, i, m) - A(k, i) * w(k, m) where k in 0:R, i in 0:R, m in 0:M
  X(k, m) = W(R, p(k), m) where k in 0:R, m in 0:M
}"""
"""What is left of an elimination once its pivots and multipliers are known: A(k) has the column of step k."""
SIZES = [(1, 1), (3, 5), (4, 16), (5, 17), (8, 700), (9, 701), (130, 333), (67, 1025)]


def matrix(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, columns), np.float32)


def loops(source: str, *arrays: np.ndarray, **options: str) -> str:
    text: str = polyc.compile(source, **options).lower(*arrays).as_text("loops")
    return text


def test_sums_along_rows_share_rows_of_a_tile() -> None:
    x = matrix(512, 2048)
    text = loops(PRODUCTS, x, x[0], x[1], target="x86-64-v3")
    assert re.search(r"unroll\(at most \d\) .*\n\s+U\[.*\n\s+V\[", text)
    assert text.count("registers U from 0.0 V from 0.0") == 1


def test_sums_that_would_choose_other_vectors_alone_share_rows_of_a_tile() -> None:
    """The first one reads less along x than along e, the second one as much."""
    text = loops(RINGS, np.zeros(400_000, "f"), np.zeros(400_000, "f"), np.zeros(1025, "f"), target="x86-64-v4")
    assert re.search(r"vector\(.*\n\s+unroll\(at most 4\) .*\n\s+count\[.*\n\s+total\[", text)


@pytest.mark.parametrize("level", ["host", "x86-64-v2"])
def test_sums_over_rings_leave_out_what_is_not_a_number_elsewhere(level: str) -> None:
    x, d = np.linspace(0, 1, 203, dtype="f"), matrix(1, 203)[0]
    d[x >= 0.75] = np.nan
    d[x < 0.25] = -0.0
    edges = np.linspace(0, 1, 5, dtype="f")
    count, total = polyc.compile(RINGS, target=level)(x, d, edges)
    inside = [(low <= x) & (x < high) for low, high in pairwise(edges)]
    np.testing.assert_array_equal(count, [k.sum() for k in inside])
    np.testing.assert_allclose(total, [d[k].sum() for k in inside], rtol=1e-5)
    assert not np.signbit(total[0])


def test_outer_products_of_the_same_vectors_share_a_pass() -> None:
    text = loops(OUTER, np.zeros(300, "f"), np.zeros(500, "f"), target="x86-64-v3")
    assert re.search(r"vector\(.*\n\s+U\[.*\n\s+V\[", text)
    a, b = matrix(2, 33)
    u, v = polyc.compile(OUTER)(a, b)
    np.testing.assert_array_equal(u, np.outer(a, b))
    np.testing.assert_array_equal(v, np.subtract.outer(a, b))


def test_columns_that_each_step_eliminates_in_go_through_all_steps_together() -> None:
    """The row of the pivot is told from the others once for all columns, not in each vector."""
    text = loops(PIVOTS, np.zeros(50, "i8"), np.zeros((50, 50), "f"), np.zeros((50, 160), "f"), target="x86-64-v4")
    assert re.search(r"if \(.* == p\[\w+\]\) \{\n\s+vector.*\n.*= w\[.*\n\s+\}\n\s+\} else \{\n\s+vector.*\n.*= W\[", text)


@pytest.mark.each
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rows, columns", [(1, 1), (5, 3), (21, 70), (4, 0)])
def test_elimination_with_known_pivots(rows: int, columns: int, dynamic: bool) -> None:
    a, y = matrix(rows, rows) + 4 * np.eye(rows, dtype="f"), matrix(rows, columns)
    p = np.random.default_rng(1).permutation(rows)
    expected = y.copy()
    for k in range(rows):
        w = expected[p[k]] / a[k, p[k]]
        expected = expected - a[k][:, None] * w
        expected[p[k]] = w
    x = polyc.compile(PIVOTS, dynamic=dynamic)(p, a, y)
    np.testing.assert_allclose(x, expected[p], rtol=1e-3, atol=1e-3)


def test_sums_down_columns_add_several_rows_at_once() -> None:
    x = matrix(512, 4096)
    for source, arrays in ((TURNED, (x, x[:, 0].copy(), x[:, 1].copy())), (COLUMNS, (x,))):
        assert re.search(r"vector\(.*\n\s+unroll\(at most 8\) .*\n\s+U\[.*\n\s+V\[", loops(source, *arrays, target="x86-64-v3"))


def test_sums_that_share_a_pass_may_call_their_indices_otherwise() -> None:
    """They ran down columns, an element of each line at a time."""
    x = matrix(512, 4096)
    arrays, renamed = (x, x[:, 0].copy(), x[:, 1].copy()), TURNED.replace("V(k) +=! X(m, k) * b(m)", "V(m) +=! X(k, m) * b(k)")
    assert loops(renamed, *arrays, target="x86-64-v3") == loops(TURNED, *arrays, target="x86-64-v3")
    for found, given in zip(polyc.compile(renamed)(*arrays), arrays[1:], strict=True):
        np.testing.assert_allclose(found, given @ x, rtol=1e-4, atol=1e-3)


def test_sums_down_columns_share_a_pass_beside_one_along_rows() -> None:
    """Only neighbours in the text were asked whether they share what they read."""
    text = TURNED.replace("(U, V)", "(U, W, V)").replace("  V", "  W(m) +=! X(m, k) * U(k)  V")
    lowered = polyc.compile(text, target="x86-64-v4").lower(X=("float32", (60, 70)), a=("float32", (60,)), b=("float32", (60,)))
    assert "S0, S2 share a pass over X" in [r.message for r in lowered.remarks]
    x = matrix(60, 70)
    u, w, v = polyc.compile(text)(x, x[:, 0].copy(), x[:, 1].copy())
    np.testing.assert_allclose(u, x[:, 0] @ x, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(w, x @ u, rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(v, x[:, 1] @ x, rtol=1e-4, atol=1e-3)


@pytest.mark.each
@pytest.mark.parametrize("rows, columns", SIZES)
@pytest.mark.parametrize("level", ["host", "x86-64-v2"])
def test_sums_that_share_a_pass(rows: int, columns: int, level: str) -> None:
    x = matrix(rows, columns)
    a, b = matrix(2, columns)
    u, v = polyc.compile(PRODUCTS, target=level)(x, a, b)
    np.testing.assert_allclose(u, x @ a, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(v, x @ b, rtol=1e-4, atol=1e-3)
    a, b = matrix(2, rows)
    u, v = polyc.compile(TURNED, target=level)(x, a, b)
    np.testing.assert_allclose(u, a @ x, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(v, b @ x, rtol=1e-4, atol=1e-3)
    u, v, w = polyc.compile(COLUMNS, target=level)(x)
    np.testing.assert_allclose(u, x.sum(0), rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(v, x.max(0))
    np.testing.assert_allclose(w, (x * x).sum(0), rtol=1e-4, atol=1e-3)


DEPTHWISE_FIRST = """def f(float(C, H, W) X, float(C, 3, 3) A, float(K, C) B) -> (Y) {
  T(c, h, w) +=! pad(X(c, h + r - 1, w + s - 1), 0.0) * A(c, r, s) where h in 0:H, w in 0:W
  R(c, h, w) = fmax(T(c, h, w), 0.0)
  Y(k, h, w) +=! B(k, c) * R(c, h, w)
}"""
DEPTHWISE_LAST = """def f(float(C, H, W) X, float(K, C) A, float(K, 3, 3) B) -> (Y) {
  T(k, h, w) +=! A(k, c) * X(c, h, w)
  R(k, h, w) = fmax(T(k, h, w), 0.0)
  Y(k, h, w) +=! pad(R(k, h + r - 1, w + s - 1), 0.0) * B(k, r, s) where h in 0:H, w in 0:W
}"""
TURN_AND_COPY = "def f(float(M, K) X) -> (U, V) { U(m, k) = fmax(X(m, k), 0.0)  V(k, m) = X(m, k) }"


def depthwise(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    rows, columns = x.shape[1:]
    terms = (padded[:, r : r + rows, s : s + columns] * weights[:, r, s, None, None] for r in range(3) for s in range(3))
    return np.sum(list(terms), axis=0)


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def test_loops_are_not_shared_where_that_narrows_the_tiles_of_a_contraction() -> None:
    x, a, b = image(192, 28, 28), image(192, 3, 3), image(64, 192)
    lowered = polyc.compile(DEPTHWISE_FIRST, target="x86-64-v4").lower(x, a, b)
    producer, consumer = lowered.as_text("loops").rsplit("// S1", 1)
    assert "// S2" not in producer
    assert "parallel" in consumer  # a nest of its own, over other loops


def test_rows_of_a_foreign_tile_go_outside_of_a_contraction_and_its_copy() -> None:
    x, a, b = image(16, 56, 56), image(96, 16), image(96, 3, 3)
    text = loops(DEPTHWISE_LAST, x, a, b, target="x86-64-v4")
    assert "registers Y from 0.0" in text
    assert not re.search(r"Y\[.*\] = 0.0", text)


@pytest.mark.parametrize("channels, rows, columns, filters", [(1, 1, 1, 1), (3, 5, 7, 4), (17, 28, 28, 13), (16, 9, 57, 40)])
def test_filters_of_each_channel_beside_those_over_all(channels: int, rows: int, columns: int, filters: int) -> None:
    x, a, b = image(channels, rows, columns), image(channels, 3, 3), image(filters, channels)
    wanted = np.einsum("kc,chw->khw", b, np.maximum(depthwise(x, a), 0))
    np.testing.assert_allclose(polyc.compile(DEPTHWISE_FIRST)(x, a, b), wanted, rtol=1e-3, atol=1e-3)
    c = image(filters, 3, 3)
    wanted = depthwise(np.maximum(np.einsum("kc,chw->khw", b, x), 0), c)
    np.testing.assert_allclose(polyc.compile(DEPTHWISE_LAST)(x, b, c), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("rows, columns", SIZES)
def test_a_transpose_beside_a_copy(rows: int, columns: int) -> None:
    x = matrix(rows, columns)
    u, v = polyc.compile(TURN_AND_COPY)(x)
    np.testing.assert_array_equal(u, np.maximum(x, 0))
    np.testing.assert_array_equal(v, x.T)


def test_a_transpose_stands_apart_from_a_copy() -> None:
    text = loops(TURN_AND_COPY, matrix(512, 512), target="x86-64-v3")
    nests = text.split("parallel for")[1:]
    assert len(nests) == 2
    assert "U[" in nests[0] and "V[" in nests[1]


def test_explain_says_what_shares_a_pass() -> None:
    x = matrix(64, 64)
    remarks = [
        r for r in polyc.compile(PRODUCTS).lower(x, x[0], x[1]).remarks if r.kind == "passed" and "share a pass" in r.message
    ]
    assert [r.message for r in remarks] == ["S0, S1 share a pass over X"]
    apart = polyc.compile(TURN_AND_COPY).lower(x).remarks
    assert not any("share a pass" in r.message for r in apart)


WINDOWS = """def f(float(H, W) X) -> (Y) {
  S(y, x) +=! X(y + r, x + s) * X(y + r, x + s) where r in 0:3, s in 0:3
  T(y, x) +=! X(y + r, x + s) where r in 0:3, s in 0:3
  M(y, x) max=! X(y + r, x + s) where r in 0:3, s in 0:3
  Y(y, x) = S(y, x) - T(y, x) * M(y, x)
}"""


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "host"])
def test_sums_over_the_same_windows_share_their_loads_and_stay_in_registers(level: str) -> None:
    x = matrix(13, 131)
    lowered = polyc.compile(WINDOWS, target=level).lower(x)
    assert "S0, S1, S2 share a pass over X" in [r.message for r in lowered.remarks]
    text = lowered.as_text("loops")
    assert re.search(r"registers S\S* from \S+ T\S* from \S+ M\S* from", text)
    assert not re.search(r"thread [STM]\b", text)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3))
    wanted = (windows**2).sum((2, 3)) - windows.sum((2, 3)) * windows.max((2, 3))
    np.testing.assert_allclose(polyc.compile(WINDOWS, target=level)(x), wanted, rtol=1e-4, atol=1e-4)


BINS = {
    "bounds in arrays": """def f(double(N) x, double(N) w, double(B) lo, double(B) hi) -> (total, n) {
      total(b) +=! lo(b) <= x(i) && x(i) < hi(b) ? w(i) : 0.0
      n(b) +=! lo(b) <= x(i) && x(i) < hi(b) ? 1 : 0
    }""",
    "bounds of numbers": """def f(double(N) x, double(N) w, double(B) lo, double(B) hi) -> (total, n) {
      total(b) +=! lo(0) + 0.5 * b <= x(i) && x(i) < lo(0) + 0.5 * (b + 1) ? w(i) : 0.0 where b in 0:B
      n(b) +=! lo(0) + 0.5 * b <= x(i) && x(i) < lo(0) + 0.5 * (b + 1) ? 1 : 0 where b in 0:B
    }""",
}


@pytest.mark.parametrize("name", BINS)
@pytest.mark.parametrize("level", ["x86-64-v3", "host"])
def test_sums_under_one_condition_share_a_pass(name: str, level: str) -> None:
    rng = np.random.default_rng(0)
    for n_points, n_bins in ((1000, 18), (37, 3)):
        x, w, lo = rng.uniform(0, 8, n_points), rng.standard_normal(n_points), 0.5 * np.arange(n_bins)
        inside = (lo[:, None] <= x) & (x < lo[:, None] + 0.5)
        operator = polyc.compile(BINS[name], target=level)
        lowered = operator.lower(x, w, lo, lo + 0.5)
        assert any("S0, S1 share a pass over" in r.message for r in lowered.remarks)
        if n_bins > 16:
            assert re.search(r"\n\s+total\[.*\n\s+n\[", lowered.as_text("loops"))
        total, n = operator(x, w, lo, lo + 0.5)
        np.testing.assert_allclose(total, inside @ w, rtol=1e-10, atol=1e-10)
        np.testing.assert_array_equal(n, inside.sum(1))


APART = [
    """def f(float(M, K) X, float(N, K) A, float(N, K) B) -> (Q, R) {
      Q(m, n) +=! X(m, k) * A(n, k)
      R(m, n) +=! X(m, k) * B(n, k)
    }""",
    "def f(float(M, K) X, float(M, K) Y, float(K) a) -> (U, V) { U(m) +=! X(m, k) * a(k)  V(m) +=! Y(m, k) * a(k) }",
]


@pytest.mark.parametrize("text", APART)
def test_sums_with_operands_of_their_own_stay_apart(text: str) -> None:
    x, a = matrix(64, 64), matrix(64, 64)
    arrays = (x, a, a) if "Q(" in text else (x, a, a[0].copy())
    assert not any("share a pass" in r.message for r in polyc.compile(text).lower(*arrays).remarks)
