"""Recurrences over intervals in tiles: against loops in NumPy, at sizes around whole tiles, and which recurrences stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import polyc
from polyc.scheduler.rewriting.rules.recurrences import block_recurrences
from tests.scheduler.support import infer, read, statements

FEWEST = 256
"""Ends of intervals from which they are in tiles."""

PAIRS = """def pairs(int32(N) base) -> (T) {
  M(i, j) max=! T(i, k) + T(k+1, j) where i < k, k < j, i in 0:N, j in 0:N, k in 0:N
  T(i, j) = j <= i ? 0 : max(max(T(i, j-1), T(i+1, j)), max(M(i, j),
      T(i+1, j-1) + (i < j-1 && base(i) + base(j) == 3 ? 1 : 0))) where i in 0:N, j in 0:N }"""


def most_pairs(base: np.ndarray) -> np.ndarray:
    """Interval lengths one after the other; ``t[i, i+d]`` is ``behind[i, d]``, and ``t[j-d, j]`` is ``before[j, d]``."""
    n = len(base)
    t, behind, before = np.zeros((3, n, n), np.int32)
    for d in range(1, n):
        i = np.arange(n - d)
        j = i + d
        best = t[i + 1, j - 1] + ((d > 1) & (base[i] + base[j] == 3))
        best = np.maximum(best, np.maximum(behind[i, d - 1], before[j, d - 1]))
        if d > 1:
            best = np.maximum(best, (behind[: n - d, 1:d] + before[d:, : d - 1][:, ::-1]).max(axis=1))
        t[i, j] = behind[i, d] = before[j, d] = best
    return t


def cheapest(n: int, cost: Callable[[int, int], np.ndarray | float]) -> np.ndarray:
    """Of all ways to part intervals of n ends, where parting ``i .. j`` costs so much, at each k or anywhere."""
    m = np.zeros((n, n))
    for j in range(1, n):
        for i in range(j - 1, -1, -1):
            m[i, j] = (m[i, i:j] + m[i + 1 : j + 1, j] + cost(i, j)).min()
    return m


def chain(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return cheapest(len(p), lambda i, j: p[i] * q[i:j] * q[j])


def searches(w: np.ndarray) -> np.ndarray:
    """The cost of the best search tree over the keys ``i .. j - 1``."""
    total = np.concatenate([[0], np.cumsum(w)])
    n = len(total)
    e = np.zeros((n, n))
    for j in range(1, n):
        for i in range(j - 1, -1, -1):
            e[i, j] = (e[i, i:j] + e[i + 1 : j + 1, j]).min() + total[j] - total[i]
    return e


def weights(base: np.ndarray) -> np.ndarray:
    """The sum over all structures, with what pairs the first and last base of each interval apart."""
    n = len(base)
    q, b = np.ones((n, n)), np.zeros((n, n))
    for j in range(n):
        for i in range(j - 1, -1, -1):
            b[i, j] = 0.01 * q[i + 1, j - 1] if j > i + 2 and base[i] + base[j] == 3 else 0
            q[i, j] = 1 + b[i, j] + 0.01 * (q[i, i:j] @ b[i + 1 : j + 1, j])
    return q


def bases(n: int) -> tuple[np.ndarray]:
    return (np.random.default_rng(n).integers(0, 4, n, dtype=np.int32),)


def sides(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    return rng.random(n) + 0.5, rng.random(n) + 0.5


@dataclass(frozen=True)
class Case:
    source: str
    arguments: Callable[[int], tuple[np.ndarray, ...]]
    expected: Callable[..., np.ndarray]


CASES = {
    "most pairs": Case(PAIRS, bases, most_pairs),
    "ends before beginnings in memory": Case(
        """def pairs(int32(N) base) -> (T) {
          M(j, i) max=! T(k, i) + T(j, k+1) where i < k, k < j, i in 0:N, j in 0:N, k in 0:N
          T(j, i) = j <= i ? 0 : max(max(T(j-1, i), T(j, i+1)), max(M(j, i),
              T(j-1, i+1) + (i < j-1 && base(i) + base(j) == 3 ? 1 : 0))) where i in 0:N, j in 0:N }""",
        bases,
        lambda base: most_pairs(base).T,
    ),
    "counted from the other end": Case(
        """def pairs(int32(N) base) -> (T) {
          M(i, j) max=! T(i, k) + T(k-1, j) where j < k, k < i, i in 0:N, j in 0:N, k in 0:N
          T(i, j) = j >= i ? 0 : max(max(T(i, j+1), T(i-1, j)), max(M(i, j),
              T(i-1, j+1) + (i > j+1 && base(i) + base(j) == 3 ? 1 : 0))) where i in 0:N, j in 0:N }""",
        bases,
        lambda base: most_pairs(base[::-1])[::-1, ::-1],
    ),
    "a batch": Case(
        """def pairs(int32(B, N) base) -> (T) {
          M(b, i, j) max=! T(b, i, k) + T(b, k+1, j) where i < k, k < j, b in 0:B, i in 0:N, j in 0:N, k in 0:N
          T(b, i, j) = j <= i ? 0 : max(max(T(b, i, j-1), T(b, i+1, j)), max(M(b, i, j),
              T(b, i+1, j-1) + (i < j-1 && base(b, i) + base(b, j) == 3 ? 1 : 0))) where b in 0:B, i in 0:N, j in 0:N }""",
        lambda n: (np.stack([bases(n)[0], bases(n)[0][::-1]]),),
        lambda base: np.stack([most_pairs(b) for b in base]),
    ),
    "matrix chain": Case(
        """def chain(double(N) p, double(N) q) -> (m) {
          S(i, j) min=! m(i, k) + m(k+1, j) + p(i) * q(k) * q(j) where i <= k, k < j, i in 0:N, j in 0:N, k in 0:N
          m(i, j) = i >= j ? double(0.0) : S(i, j) where i in 0:N, j in 0:N }""",
        sides,
        chain,
    ),
    "matrix chain with a diagonal of its own": Case(
        """def chain(double(N) p, double(N) q) -> (double(N, N) m) {
          S(i, j) min=! m(i, k) + m(k+1, j) + p(i) * q(k) * q(j) where i <= k, k < j, i in 0:N, j in 0:N, k in 0:N
          m(i, i) = 0.0 where i in 0:N
          m(i, j) = S(i, j) where i < j, i in 0:N, j in 0:N
          m(i, j) = 0.0 where i > j, i in 0:N, j in 0:N }""",
        sides,
        chain,
    ),
    "search trees": Case(
        """def searches(double(N) w) -> (e) {
          C(0) = double(0.0)
          C(i+1) = C(i) + w(i) where i in 0:N
          S(i, j) min=! e(i, r) + e(r+1, j) where i <= r, r < j, i in 0:N+1, j in 0:N+1, r in 0:N
          e(i, j) = i >= j ? double(0.0) : S(i, j) + C(j) - C(i) where i in 0:N+1, j in 0:N+1 }""",
        lambda n: (sides(n)[0],),
        searches,
    ),
    "sums of products of two tables": Case(
        """def weights(int32(N) base) -> (Q) {
          S(i, j) +=! Q(i, k) * B(k+1, j) where i <= k, k < j, i in 0:N, j in 0:N, k in 0:N
          B(i, j) = j > i+2 && base(i) + base(j) == 3 ? 0.01 * Q(i+1, j-1) : 0.0 where i in 0:N, j in 0:N
          Q(i, j) = j <= i ? 1.0 : 1.0 + B(i, j) + 0.01 * S(i, j) where i in 0:N, j in 0:N }""",
        bases,
        weights,
    ),
}


def is_tiled(source: str, n: int, **sizes: int) -> bool:
    return bool(block_recurrences(*infer(read(source), N=n, **sizes))[2])


def check(case: Case, n: int, **options: object) -> None:
    arguments = case.arguments(n)
    np.testing.assert_allclose(polyc.compile(case.source, **options)(*arguments), case.expected(*arguments), rtol=2e-6)


NARROW: dict[str, dict[str, object]] = {
    "ends before beginnings in memory": {"target": "x86-64-v2", "parallel": False},
    "counted from the other end": {"target": "x86-64-v3"},
}
"""Compiled for narrow vectors, and for one thread: the same recurrence as "most pairs", mirrored."""


@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name: str):
    assert is_tiled(CASES[name].source, 293, **({"B": 2} if name == "a batch" else {}))
    check(CASES[name], 293, **NARROW.get(name, {}))


@pytest.mark.parametrize("n", [0, 1, 3, 255, 256])
def test_sizes_around_whole_tiles(n: int):
    assert is_tiled(PAIRS, n) == (n >= FEWEST)
    if n != FEWEST - 1:  # compiled as 3 is
        check(CASES["most pairs"], n)


def test_narrow_vectors():
    check(CASES["sums of products of two tables"], 270, target="x86-64-v3")


def test_symbolic_sizes():
    op = polyc.compile(PAIRS, dynamic=True)
    for n in (300, 257, 70, 2, 1, 0):
        (base,) = bases(n)
        np.testing.assert_array_equal(op(base), most_pairs(base))


def test_tables_that_data_looks_up_are_guarded_still():
    op = polyc.compile("""def fold(int32(N) base, float(4, 4) E) -> (T) {
      M(i, j) min=! T(i, k) + T(k+1, j) where i <= k, k < j, i in 0:N, j in 0:N, k in 0:N
      T(i, j) = j <= i ? 0.0 : fmin(M(i, j), T(i+1, j-1) + E(base(i), base(j))) where i in 0:N, j in 0:N }""")
    (base,), energies = bases(270), np.random.default_rng(1).random((4, 4), dtype=np.float32) - 0.7
    expected = np.zeros((270, 270), np.float32)
    for j in range(1, 270):
        for i in range(j - 1, -1, -1):
            best = (expected[i, i:j] + expected[i + 1 : j + 1, j]).min()
            expected[i, j] = min(best, expected[i + 1, j - 1] + energies[base[i], base[j]])
    np.testing.assert_allclose(op(base, energies), expected, rtol=1e-5)
    base[100] = 4
    with pytest.raises(IndexError):
        op(base, energies)


def test_terms_are_parted_by_the_tiles_they_need():
    program, ranges = infer(read(CASES["matrix chain"].source), N=400)
    new, _, remarks = block_recurrences(program, ranges)
    heads = {text.split(":")[0] for text in statements(new)}
    assert {h for h in heads if "far" in h} == {"S0_far_apart(tile.apart, tile.place, i.in, j.in, k)"}
    assert {h.split("(")[0] for h in heads if "near" in h} == {"S0_near_own", "S0_near0_apart", "S0_near1_apart"}
    assert [r.pass_name for r in remarks] == ["block-recurrences"]


STAY = {
    "intervals that reach further": """def f(int32(N) base) -> (T) {
      M(i, j) max=! T(i, k) + T(k+1, j) where i < k, k < j, i in 0:N, j in 0:N, k in 0:N
      T(i, j) = j <= i ? 0 : i == 0 ? M(i, j) : max(M(i, j), T(i-1, j-1)) + base(i) where i in 0:N, j in 0:N }""",
    "sums that are returned": """def f(int32(N) base) -> (T, M) {
      M(i, j) max=! T(i, k) + T(k+1, j) where i < k, k < j, i in 0:N, j in 0:N, k in 0:N
      T(i, j) = j <= i ? base(i) : M(i, j) + 1 where i in 0:N, j in 0:N }""",
    "sums of other intervals": """def f(int32(N) base) -> (T) {
      M(i, j) max=! T(i, k) + T(k+1, j) where i < k, k < j, i in 0:N, j in 0:N, k in 0:N
      T(i, j) = j <= i + 1 ? base(i) : M(i+1, j) + M(i, j) where i in 0:N, j in 0:N }""",
    "no recurrence": """def f(int32(N, N) T) -> (M) {
      M(i, j) max=! T(i, k) + T(k+1, j) where i < k, k < j, i in 0:N, j in 0:N, k in 0:N }""",
}


@pytest.mark.parametrize("name", STAY)
def test_what_stays(name: str):
    assert not is_tiled(STAY[name], 300)


def test_switches():
    for options in ({"disable": "block-intervals"}, {"reassociate": False}, {"tile": False}):
        lowered = polyc.compile(PAIRS, **options).lower(*bases(300))
        assert all(r.pass_name != "block-recurrences" for r in lowered.remarks)
