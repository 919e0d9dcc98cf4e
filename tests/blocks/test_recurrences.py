"""Recurrences on arrays in chunks: stages of a few steps with deep halos, and chains along chunks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest

import polyc
from polyc.api import block_steps
from polyc.blocks import plan
from polyc.diagnostics import UnsupportedError
from polyc.ir.interpret import interpret
from tests.blocks.differential import chunk, compare, interpreted

da = pytest.importorskip("dask.array")

KINDS: dict[str, tuple[str, dict[str, tuple[int, ...]], dict[str, int]]] = {
    "heat-clamp": (
        """def f(float(H, W) X, int64 T) -> (Y) {
  S(0, y, x) = X(y, x)  S(t, y, x) = 0.5 * S(t - 1, y, x) + 0.125 * (pad(S(t - 1, y - 1, x), clamp)
      + pad(S(t - 1, y + 1, x), clamp) + pad(S(t - 1, y, x - 1), clamp) + pad(S(t - 1, y, x + 2), clamp))
      where t in 1:T + 1, y in 0:H, x in 0:W  Y(y, x) = S(T, y, x)
}""",
        {"X": (13, 11)},
        {"T": 7},
    ),
    "heat-wrap": (
        """def f(float(H, W) X, int64 T) -> (Y) {
  S(0, y, x) = X(y, x)  S(t, y, x) = 0.5 * S(t - 1, y, x) + 0.125 * (pad(S(t - 1, y - 1, x), wrap) + pad(S(t - 1, y
      + 1, x), wrap) + pad(S(t - 1, y, x - 1), wrap) + pad(S(t - 1, y, x + 2), wrap)) where t in 1:T
      + 1, y in 0:H, x in 0:W  Y(y, x) = S(T, y, x)
}""",
        {"X": (13, 11)},
        {"T": 7},
    ),
    "wave": (
        """def f(float(N) U, float(N) V) -> (Y, Z) { S(0, x) = U(x)  S(1, x) = V(x) + 0.1 * U(x)
  S(t, x) = 2.0 * S(t - 1, x) - S(t - 2, x) + 0.1 * (pad(S(t - 1, x - 1), 0.0) + pad(S(t - 1, x + 1), 0.0) - 2.0 *
      S(t - 1, x)) where t in 2:9, x in 0:N
  Y(x) = S(8, x)  Z(x) = S(7, x) * 2.0
}""",
        {"U": (17,), "V": (17,)},
        {},
    ),
    "snapshot": (
        """def f(float(N) U) -> (Y, Z) { S(0, x) = U(x)
  S(t, x) = S(t - 1, x) + 0.1 * pad(S(t - 1, x - 1), 0.0) where t in 1:9, x in 0:N
  Y(x) = S(8, x) + S(3, x) Z(x) = S(0, x) + S(5, N - 1 - x) where x in 0:N
}""",
        {"U": (17,)},
        {},
    ),
    "far-last-step": (
        """def f(float(N) U) -> (Y) {
  P(0, x) = U(x)  P(t, x) = P(t - 1, x) + 0.1 * pad(P(t - 1, x + 1), wrap) where t in 1:5, x in 0:N
  P(5, x) = 0.5 * P(2, x) + P(4, x)  Y(x) = P(5, x)
}""",
        {"U": (11,)},
        {},
    ),
    "history": (
        """def f(float(N) U) -> (S, Y) {
  S(0, x) = U(x)  S(t, x) = S(t - 1, x) + 0.1 * pad(S(t - 1, x - 1), 0.0) where t in 1:6, x in 0:N
  P(t, x) = 2.0 * pad(S(t, x + 1), 0.0) where t in 1:5, x in 0:N  Y(x) +=! P(t, x) * S(4, x)
}""",
        {"U": (17,)},
        {},
    ),
    "rows": (
        """def f(float(N, M) U) -> (Y) { S(0, y, x) = U(y, x)
  S(t, 0, x) = S(t - 1, 0, x) where t in 1:6, x in 0:M
  S(t, N - 1, x) = 1.0 where t in 1:6, x in 0:M
  S(t, y, x) = 0.5 * (S(t - 1, y - 1, x) + S(t - 1, y + 1, x)) where t in 1:6, y in 1:N - 1, x in 0:M
  Y(y, x) = S(5, y, x)
}""",
        {"U": (14, 5)},
        {},
    ),
    "forced": (
        """def f(float(N) U, float(T, N) F) -> (Y) { S(0, x) = U(x)
  S(t, x) = S(t - 1, x) + 0.1 * pad(S(t - 1, x - 1), 0.0) + F(t - 1, x) * float(t) where t in 1:T + 1, x in 0:N
  Y(x) = S(T, x)
}""",
        {"U": (17,), "F": (7, 17)},
        {},
    ),
    "coefficients": (
        """def f(float(N) U, float(N) K) -> (Y) { c(x) = exp(K(x) * 0.1) m() max=! K(x) S(0, x) = U(x) / m()
  S(t, x) = S(t - 1, x) + c(x) * 0.1 * pad(S(t - 1, x - 1), 0.0) / m() where t in 1:6, x in 0:N
  Y(x) = S(5, x) * c(x) + m()
}""",
        {"U": (17,), "K": (17,)},
        {},
    ),
    "power": (
        """def f(float(N, N) A, float(N) U) -> (Y) { S(0, x) = U(x)
  P(t, x) +=! A(x, k) * S(t - 1, k) where t in 1:5
  m(t) max=! P(t, x) where t in 1:5
  S(t, x) = P(t, x) / m(t) where t in 1:5
  Y(x) = S(4, x)
}""",
        {"U": (9,), "A": (9, 9)},
        {},
    ),
    "fdtd": (
        """def f(float(N, M) E, float(N, M) F, float(N, M) H) -> (X, Y, Z) { ex(0, i, j) = E(i, j)  ey(0, i, j) = F(i, j)
      hz(0, i, j) = H(i, j)
  ey(t, 0, j) = float(t) where t in 1:6, j in 0:M
  ey(t, i, j) = ey(t - 1, i, j) - 0.5 * (hz(t - 1, i, j) - hz(t - 1, i - 1, j)) where t in 1:6, i in 1:N, j in 0:M
  ex(t, i, 0) = ex(t - 1, i, 0) where t in 1:6, i in 0:N
  ex(t, i, j) = ex(t - 1, i, j) - 0.5 * (hz(t - 1, i, j) - hz(t - 1, i, j - 1)) where t in 1:6, i in 0:N, j in 1:M
  hz(t, i, j) = hz(t - 1, i, j) - 0.7 * (pad(ex(t, i, j + 1), 0.0) - ex(t, i, j) + pad(ey(t, i
      + 1, j), 0.0) - ey(t, i, j)) where t in 1:6, i in 0:N, j in 0:M
  X(i, j) = ex(5, i, j)  Y(i, j) = ey(5, i, j)  Z(i, j) = hz(5, i, j)
}""",
        {"E": (9, 7), "F": (9, 7), "H": (9, 7)},
        {},
    ),
    "inner": (
        """def f(float(N) U) -> (Y) { S(0, x) = U(x) where x in 2:N - 1
  S(t, 2) = 1.0 where t in 1:6
  S(t, x) = S(t - 1, x) + 0.1 * S(t - 1, x - 1) where t in 1:6, x in 3:N - 1
  Y(x) = S(5, x)
}""",
        {"U": (17,)},
        {},
    ),
    "gauss-seidel": (
        """def f(float(N, M) U) -> (Y) { S(0, y, x) = U(y, x)
  S(t, y, x) = 0.5 * S(t - 1, y, x) + 0.1 * pad(S(t, y - 1, x), 0.0) + 0.2 * pad(S(t - 1, y, x + 1), clamp)
      where t in 1:6, y in 0:N, x in 0:M
  Y(y, x) = S(5, y, x)
}""",
        {"U": (9, 11)},
        {},
    ),
    "scan": (
        """def f(float(N, M) x) -> (y) {
  y(0, j) = x(0, j)  y(i, j) = y(i - 1, j) * 0.5 + x(i, j) where i in 1:N
}""",
        {"x": (23, 5)},
        {},
    ),
    "prefix": (
        """def f(float(M, N) X) -> (S) {
  S(m, 0) = X(m, 0) where m in 0:M S(m, n) = S(m, n - 1) + X(m, n) where n in 1:N
}""",
        {"X": (5, 23)},
        {},
    ),
    "second": (
        """def f(float(N) X) -> (Y) {
  S(0) = X(0) S(1) = X(1) S(n) = S(n - 1) * 0.3 + S(n - 2) * 0.5 + X(n) where n in 2:N Y(n) = S(n) * 2.0 + S(N - 1)
}""",
        {"X": (23,)},
        {},
    ),
    "last": (
        """def f(float(N) X) -> (y) {
  S(0) = X(0) S(n) = S(n - 1) * 0.3 + X(n) where n in 1:N y = S(N - 1)
}""",
        {"X": (23,)},
        {},
    ),
    "two": (
        """def f(float(N) X) -> (S, Q) {
  S(0) = X(0) Q(0) = 1.0 S(n) = S(n - 1) * 0.3 + X(n) * Q(n - 1) where n in 1:N Q(n) = 0.5 * Q(n - 1) + S(n)
      where n in 1:N
}""",
        {"X": (23,)},
        {},
    ),
    "edit": (
        """def f(float(N) a, float(M) b) -> (D) {
  D(0, j) = float(j) where j in 0:M + 1 D(i, 0) = float(i) where i in 1:N + 1 D(i, j) = min(min(D(i - 1, j),
      D(i, j - 1)) + 1.0, D(i - 1, j - 1) + fabs(a(i - 1) - b(j - 1))) where i in 1:N + 1, j in 1:M + 1
}""",
        {"a": (9,), "b": (7,)},
        {},
    ),
}


@contextmanager
def steps_at_once(count: int) -> Iterator[None]:
    """Stages of time loops with neighbours have at most so many steps."""
    chosen = block_steps.choose_count
    with patch.object(block_steps, "choose_count", lambda *given: count and chosen(*given) and count):
        yield


@pytest.mark.parametrize("kind", KINDS)
def test_stages_have_the_bits_of_the_whole_recurrence(kind: str) -> None:
    text, shapes, numbers = KINDS[kind]
    operator = polyc.compile(text)
    rng = np.random.default_rng(3)
    arrays = {name: rng.random(shape).astype(np.float32) for name, shape in shapes.items()}
    made = interpret(operator.program, arrays | {name: np.array(n) for name, n in numbers.items()})
    expected = tuple(made[r.name] for r in operator.program.returns)
    with interpreted(), steps_at_once(3):
        results = operator(**chunk(random.Random(4), arrays), **numbers)
    compare(results, expected if len(expected) > 1 else expected[0], 1e-6 if kind in ("power", "history") else 0.0)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_compiled_stages_for_each_instruction_set(target: str) -> None:
    operator = polyc.compile(KINDS["wave"][0], target=target)
    u, v = np.random.default_rng(0).random((2, 61), np.float32)
    try:
        expected = operator(u, v)
    except UnsupportedError:
        pytest.skip("this machine lacks these instructions")
    with steps_at_once(4):
        compare(operator(da.from_array(u, chunks=20), da.from_array(v, chunks=20)), expected)


def test_a_stage_is_planned_once_and_reported_with_how_often_it_runs() -> None:
    operator = polyc.compile(KINDS["scan"][0])
    x = da.zeros((40, 8), chunks=(4, 8), dtype=np.float32)
    with patch.object(plan, "plan_blocks", wraps=plan.plan_blocks) as planned:
        report = operator.blocks(x, dry_run=True)
    assert planned.call_count == 4  # whether a stage can be, the first row, the rows of the first chunk, those of another one
    assert [(s.n_tasks, s.repeats) for s in report.stages] == [(1, 1), (1, 1), (1, 9)]
    assert "y, 9 times: 1 tasks, 1 kernels" in str(report)


def test_time_loops_keep_the_chunks_of_their_states() -> None:
    text, _, numbers = KINDS["heat-clamp"]
    x = da.zeros((20, 12), chunks=((8, 8, 4), (5, 7)), dtype=np.float32)
    with interpreted():
        assert polyc.compile(text)(x, **numbers).chunks == x.chunks


def test_halos_are_deeper_where_stages_cost_more_than_what_is_computed_again() -> None:
    text = """def f(float(N) X, int64 T) -> (Y) {
  S(0, x) = X(x)  S(t, x) = S(t - 1, x) + pad(S(t - 1, x - 1), 0.0) where t in 1:T + 1, x in 0:N  Y(x) = S(T, x)
}"""
    operator = polyc.compile(text, target="x86-64-v4")
    counts = {}
    for n, steps in ((64, 4), (1 << 30, 50), (1 << 30, 3)):
        x = da.zeros(n, chunks=n // 4, dtype=np.float32)
        with patch.object(block_steps, "split_steps", return_value=[]) as split, pytest.raises(KeyError):
            operator.blocks(x, steps, dry_run=True)
        counts[n, steps] = split.call_args.args[1]
    assert counts[64, 4] == 1  # compiling more would take longer than running them
    assert counts[1 << 30, 50] > 3
    assert counts[1 << 30, 3] <= 3


def test_halos_are_as_deep_as_memory_allows() -> None:
    text, _, _ = KINDS["heat-clamp"]
    operator = polyc.compile(text, target="x86-64-v4")
    x = da.zeros((1 << 12, 1 << 12), chunks=1 << 10, dtype=np.float32)
    counts = {}
    for memory in (None, "1 GiB", "2 KiB"):
        with patch.object(block_steps, "split_steps", return_value=[]) as split, pytest.raises(KeyError):
            operator.blocks(x, 50, memory=memory, dry_run=True)
        counts[memory] = split.call_args.args[1]
    assert counts[None] == counts["1 GiB"] > 4
    assert (
        1 < counts["2 KiB"] < 4
    )  # with a halo of 4 a block of 8 squared would take more, and smaller ones are four times as many
