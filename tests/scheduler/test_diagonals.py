"""Recurrences along rows and columns of a table: which run by diagonals, and what comes of it."""

from __future__ import annotations

import numpy as np
import pytest

import polyc

SIZES = ((33, 40), (40, 33))
RNG = np.random.default_rng(7)

EDGES = """
  D(0, j) = j where j in 0:M+1
  D(i, 0) = i where i in 1:N+1
"""
DISTANCE = (
    EDGES
    + """
  D(i, j) = min(min(D(i-1, j) + 1, D(i, j-1) + 1), D(i-1, j-1) + (a(i-1) == b(j-1) ? 0 : 1)) where i in 1:N+1, j in 1:M+1
"""
)
WARPING = """def warp(float(N) a, float(M) b) -> (L) {
  D(0, 0) = fabs(a(0) - b(0))
  D(0, j) = fabs(a(0) - b(j)) + D(0, j-1) where j in 1:M
  D(i, 0) = fabs(a(i) - b(0)) + D(i-1, 0) where i in 1:N
  D(i, j) = fabs(a(i) - b(j)) + fmin(fmin(D(i-1, j), D(i, j-1)), D(i-1, j-1)) where i in 1:N, j in 1:M
  L = D(N-1, M-1)
}"""
LOCAL = """def local(uint8(N) a, uint8(M) b, int32(4, 4) S) -> (L) {
  D(0, j) = 0 where j in 0:M+1
  D(i, 0) = 0 where i in 1:N+1
  D(i, j) = max(max(0, D(i-1, j-1) + S(a(i-1), b(j-1))), max(D(i-1, j), D(i, j-1)) - 1) where i in 1:N+1, j in 1:M+1
  L max=! D(i, j)
}"""
AFFINE_GAPS = """def gaps(uint8(N) a, uint8(M) b) -> (L) {
  X(0, j) = -1000 where j in 0:M+1
  X(i, 0) = -1000 where i in 1:N+1
  Y(0, j) = -1000 where j in 0:M+1
  Y(i, 0) = -1000 where i in 1:N+1
  H(0, j) = 0 where j in 0:M+1
  H(i, 0) = 0 where i in 1:N+1
  X(i, j) = max(H(i-1, j) - 3, X(i-1, j) - 1) where i in 1:N+1, j in 1:M+1
  Y(i, j) = max(H(i, j-1) - 3, Y(i, j-1) - 1) where i in 1:N+1, j in 1:M+1
  H(i, j) = max(max(X(i, j), Y(i, j)), H(i-1, j-1) + (a(i-1) == b(j-1) ? 2 : -1)) where i in 1:N+1, j in 1:M+1
  L = H(N, M)
}"""


def letters(n: int) -> np.ndarray:
    return RNG.integers(0, 4, n).astype(np.uint8)


def by_diagonals(op: polyc.Operator, *arrays: np.ndarray) -> bool:
    return any(r.pass_name == "skew-diagonals" for r in op.lower(*arrays).remarks)


def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    d = np.zeros((len(a) + 1, len(b) + 1), np.int64)
    d[0], d[:, 0] = range(len(b) + 1), range(len(a) + 1)
    for i in range(len(a)):
        for j in range(len(b)):
            d[i + 1, j + 1] = min(d[i, j + 1] + 1, d[i + 1, j] + 1, d[i, j] + (a[i] != b[j]))
    return d


@pytest.mark.parametrize("size", SIZES)
def test_edit_distance(size):
    op = polyc.compile(f"def edit(uint8(N) a, uint8(M) b) -> (L, last) {{ {DISTANCE} L = D(N, M) last(j) = D(N, j) }}")
    a, b = map(letters, size)
    assert by_diagonals(op, a, b)
    result, last = op(a, b)
    expected = distances(a, b)
    assert result == expected[-1, -1] and np.array_equal(last, expected[-1])


def test_edit_distances_of_a_batch():
    text = DISTANCE.replace("D(", "D(k, ").replace("a(i", "a(k, i").replace("b(j", "b(k, j").replace("where", "where k in 0:B,")
    op = polyc.compile(f"def edit(uint8(B, N) a, uint8(B, M) b) -> (L) {{ {text} L(k) = D(k, N, M) }}")
    a, b = letters(99).reshape(3, 33), letters(120).reshape(3, 40)
    assert by_diagonals(op, a, b)
    assert op(a, b).tolist() == [distances(x, y)[-1, -1] for x, y in zip(a, b, strict=True)]


def test_edges_may_be_recurrences_of_their_own():
    op = polyc.compile(WARPING)
    a, b = RNG.standard_normal(40).astype("f4"), RNG.standard_normal(50).astype("f4")
    assert by_diagonals(op, a, b)
    cost = np.abs(a[:, None] - b)
    d = np.full((41, 51), np.inf, np.float32)
    d[0, 0] = 0
    for i, j in np.ndindex(40, 50):
        d[i + 1, j + 1] = cost[i, j] + min(d[i, j + 1], d[i + 1, j], d[i, j])
    assert op(a, b) == d[-1, -1]  # the same operations in the same order


@pytest.mark.parametrize("size", SIZES)
def test_greatest_element_is_found_by_diagonals_and_scores_are_looked_up(size):
    op, scores = polyc.compile(LOCAL), RNG.integers(-2, 3, (4, 4)).astype(np.int32)
    a, b = map(letters, size)
    assert by_diagonals(op, a, b, scores)
    d = np.zeros((len(a) + 1, len(b) + 1), np.int64)
    for i, j in np.ndindex(len(a), len(b)):
        d[i + 1, j + 1] = max(0, d[i, j] + scores[a[i], b[j]], d[i, j + 1] - 1, d[i + 1, j] - 1)
    assert op(a, b, scores) == d.max()


def test_tables_that_need_each_other_run_by_diagonals_in_vectors():
    op, a, b = polyc.compile(AFFINE_GAPS), letters(40), letters(34)
    assert by_diagonals(op, a, b)
    assert any("vector" in line and "min(" in line for line in op.lower(a, b).as_text("loops").splitlines())
    x, y, h = (np.full((41, 35), v, np.int64) for v in (-1000, -1000, 0))
    for i, j in np.ndindex(40, 34):
        x[i + 1, j + 1] = max(h[i, j + 1] - 3, x[i, j + 1] - 1)
        y[i + 1, j + 1] = max(h[i + 1, j] - 3, y[i + 1, j] - 1)
        h[i + 1, j + 1] = max(x[i + 1, j + 1], y[i + 1, j + 1], h[i, j] + (2 if a[i] == b[j] else -1))
    assert op(a, b) == h[-1, -1]


@pytest.mark.each
@pytest.mark.parametrize("target", ["x86-64-v3", "host"])
@pytest.mark.parametrize("size", [*SIZES, (70, 300)])
def test_tables_that_are_results_are_put_in_rows(size, target):
    text = f"def edit(uint8(N) a, uint8(M) b) -> (D, least) {{ {DISTANCE} least min=! D(i, j) where i in 1:N+1, j in 1:M+1 }}"
    op = polyc.compile(text, target=target)
    a, b = map(letters, size)
    if target != "host":
        assert by_diagonals(op, a, b)
    result, least = op(a, b)
    expected = distances(a, b)
    assert np.array_equal(result, expected) and least == expected[1:, 1:].min()


def test_results_of_narrow_vectors_stay_in_rows():
    op = polyc.compile(f"def edit(uint8(N) a, uint8(M) b) -> (D) {{ {DISTANCE} }}", target="x86-64-v2")
    assert not by_diagonals(op, letters(40), letters(50))


STAYS = {
    "result that leaves the caches": (f"def f(uint8(N) a, uint8(M) b) -> (D) {{ {DISTANCE} }}", "uint8", 40),
    "short": (f"def f(uint8(N) a, uint8(M) b) -> (L) {{ {DISTANCE} L = D(N, M) }}", "uint8", 1),
    "next to the corner": (
        f"def f(uint8(N) a, uint8(M) b) -> (L) {{ {DISTANCE} L = D(N, M) }}".replace(
            "D(i-1, j-1) +", "(j < M ? D(i-1, j+1) : 0) +"
        ),
        "uint8",
        2,
    ),
    "scan": (
        """def f(float(N) a, float(M) b) -> (L) {
          D(0, j) = b(j)
          D(i, 0) = a(i) where i in 1:N
          D(i, j) = D(i, j-1) + 0.5 * D(i-1, j) where i in 1:N, j in 1:M
          L = D(N-1, M-1) }""",
        "float32",
        2,
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_table_stays_in_rows(name):
    text, dtype, n = STAYS[name]
    op = polyc.compile(text, target="x86-64-v3")
    a, b = (RNG.integers(0, 4, 20 * n).astype(dtype) for _ in range(2))
    assert not by_diagonals(op, a, b)


def test_matrix_beside_the_recurrence_keeps_rows():
    op = polyc.compile("""def f(int32(N, M) c) -> (L) {
      D(0, j) = c(0, j)
      D(i, 0) = c(i, 0) where i in 1:N
      D(i, j) = min(D(i-1, j), D(i, j-1)) + c(i, j) where i in 1:N, j in 1:M
      L = D(N-1, M-1) }""")
    c = RNG.integers(0, 9, (40, 40)).astype(np.int32)
    assert not by_diagonals(op, c)


@pytest.mark.parametrize("before", ["j-1", "j-2+1"])
def test_every_table_of_a_program_runs_by_diagonals(before):
    table = """
  {0}(0, j) = j where j in 0:M+1
  {0}(i, 0) = i where i in 1:N+1
  {0}(i, j) = min(min({0}(i-1, j) + 1, {0}(i, {1}) + 1), {0}(i-1, j-1) + (a(i-1) == b(j-1) ? 0 : {2}))
    where i in 1:N+1, j in 1:M+1
"""
    text = f"def f(int8(N) a, int8(M) b) -> (Y, Z) {{ {table.format('Y', before, 1)} {table.format('Z', before, 2)} }}"
    a, b = (RNG.integers(0, 4, n, dtype=np.int8) for n in (300, 303))
    f = polyc.compile(text)
    remarks = [r for r in f.lower(a, b).remarks if r.pass_name == "skew-diagonals" and r.kind == "passed"]
    assert len(remarks) == 2
    for got, want in zip(f(a, b), polyc.compile(text, disable=("skew-diagonals",))(a, b), strict=True):
        np.testing.assert_array_equal(got, want)
