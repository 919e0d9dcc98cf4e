"""Sums of exponentials in the pass of their maximum, over chunked axes."""

from __future__ import annotations

import random

import numpy as np
import pytest

import polyc
from polyc.ir.interpret import interpret
from tests.blocks.differential import chunk, compare, interpreted

da = pytest.importorskip("dask.array")

KINDS: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "softmax": (
        """def f(float(N, M) x) -> (y) {
  m(i) max=! x(i, j)  s(i) +=! exp(x(i, j) - m(i))  y(i, j) = exp(x(i, j) - m(i)) / s(i)
}""",
        {"x": (7, 11)},
    ),
    "log-sum-exp": (
        "def f(float(N, M) x) -> (y) { m(i) max=! x(i, j)  s(i) +=! exp(0.5 * (x(i, j) - m(i)))  y(i) = m(i) + log(s(i)) }",
        {"x": (7, 11)},
    ),
    "attention": (
        """def f(float(N, D) q, float(M, D) k, float(M, E) v) -> (y) {
  t(i, j) +=! q(i, d) * k(j, d)  m(i) max=! t(i, j)  p(i, j) = exp(t(i, j) - m(i))  s(i) +=! p(i, j)
  o(i, e) +=! p(i, j) * v(j, e)  y(i, e) = o(i, e) / s(i)
}""",
        {"q": (5, 3), "k": (11, 3), "v": (11, 4)},
    ),
    "weights-of-a-whole-sum": (
        """def f(float(N, M) x, float(M, E) v) -> (o) {
  m(i) max=! x(i, j)  s(i) +=! exp(x(i, j) - m(i))  p(i, j) = exp(x(i, j) - m(i)) / s(i)  o(i, e) +=! p(i, j) * v(j, e)
}""",
        {"x": (7, 11), "v": (11, 2)},
    ),
    "causal-attention": (
        """def f(float(N, D) q, float(N, D) k, float(N, E) v) -> (y) {
  t(i, j) +=! q(i, d) * k(j, d)  m(i) max=! t(i, j) where j <= i  s(i) +=! exp(t(i, j) - m(i)) where j <= i
  o(i, e) +=! exp(t(i, j) - m(i)) * v(j, e) where j <= i  y(i, e) = o(i, e) / s(i)
}""",
        {"q": (9, 3), "k": (9, 3), "v": (9, 4)},
    ),
}


def make_arrays(kind: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in KINDS[kind][1].items()}
    if "x" in arrays:  # parts of a row, and a row, of nothing but -inf; +inf; NaN
        arrays["x"][2, :6] = arrays["x"][3] = -np.inf
        arrays["x"][4, 3], arrays["x"][5, 3] = np.inf, np.nan
    return arrays


@pytest.mark.parametrize("kind", KINDS)
def test_any_chunks_give_what_whole_arrays_give(kind: str) -> None:
    operator, arrays = polyc.compile(KINDS[kind][0]), make_arrays(kind)
    (expected,) = interpret(operator.program, arrays).values()
    for seed in range(1, 4):
        with interpreted():
            result = operator(**chunk(random.Random(seed), arrays))
        compare(result, expected, 1e-5, 1e-6)


def test_more_parts_than_one_task_combines() -> None:
    operator = polyc.compile(KINDS["log-sum-exp"][0])
    x = np.full((3, 40), -np.inf, np.float32)
    x[0, 35], x[1] = 2.0, np.arange(40)  # the first parts of a tree are nothing but -inf
    (expected,) = interpret(operator.program, {"x": x}).values()
    with interpreted():
        compare(operator(da.from_array(x, chunks=(3, 2))), expected, 1e-6)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_attention_over_chunked_keys_reads_them_once(target: str) -> None:
    operator, arrays = polyc.compile(KINDS["attention"][0], target=target), make_arrays("attention")
    chunked = {name: da.from_array(a, chunks=(4, -1)) for name, a in arrays.items()}
    stages = operator.blocks(**chunked, dry_run=True).stages
    assert [s.combines for s in stages] == ["max, add, add", None]
    assert stages[0].read == 4 * (3 * 5 * 3 + 2 * 11 * 3 + 2 * 11 * 4)
    try:
        expected = operator(**arrays)
    except polyc.UnsupportedError:
        pytest.skip("this machine lacks these instructions")
    compare(operator(**chunked), expected, 1e-5, 1e-6)
