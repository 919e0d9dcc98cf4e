"""Sums of exponentials in the pass of their maximum, and of products of deviations in that of their mean, over chunked axes."""

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


DEVIATIONS: dict[str, tuple[str, list[str]]] = {  # and what is combined in each pass
    "covariance": (
        """def f(float(N, M) x) -> (c) {
  m(j) +=! x(i, j) / float(N)  c(j, k) +=! (x(i, j) - m(j)) * (x(i, k) - m(k)) / float(N - 1)
}""",
        ["add, add, add"],
    ),
    "stored-deviations": (
        """def f(float(N, M) x) -> (c) {
  s(a) +=! x(b, a)  m(j) = s(j) / float(N)  d(i, j) = x(i, j) - s(j) / float(N)  c(p, q) +=! d(n, p) * d(n, q)
}""",
        ["add, add, add"],
    ),
    "other-names": (
        "def f(float(N, M) x) -> (c) { m(k) +=! x(j, k) / float(N)  c(j, k) +=! (x(i, k) - m(k)) * (x(i, j) - m(j)) }",
        ["add, add, add"],
    ),
    "variance-and-mean": (
        """def f(float(N, M) x) -> (m, v) {
  m(j) +=! x(i, j) / float(N)  v(j) +=! 0.5 * pow(2.0 * m(j) - 2.0 * x(i, j), 2.0)
}""",
        ["add, add, add"],
    ),
    "of-all": (
        "def f(float(N, M) x) -> (v) { s() +=! x(i, j)  d(i, j) = float(N * M) * x(i, j) - s()  v() +=! d(i, j) * d(i, j) }",
        ["add, add, add"],
    ),
    "normalised": (
        """def f(float(N, M) x) -> (y) {
  m(j) +=! x(i, j) / float(N)  v(j) +=! (x(i, j) - m(j)) * (x(i, j) - m(j))  y(i, j) = (x(i, j) - m(j)) / sqrt(v(j) + 1e-5)
}""",
        ["add, add, add"],
    ),
    "not-the-mean": (
        "def f(float(N, M) x) -> (v) { m(j) +=! x(i, j) / float(M)  v(j) +=! (x(i, j) - m(j)) * (x(i, j) - m(j)) }",
        ["add", "add"],
    ),
    "third-powers": (
        """def f(float(N, M) x) -> (v) {
  m(j) +=! x(i, j) / float(N)  v(j) +=! (x(i, j) - m(j)) * (x(i, j) - m(j)) * (x(i, j) - m(j))
}""",
        ["add", "add"],
    ),
    "of-other-points": (
        """def f(float(N, M) x) -> (v) {
  m(j) +=! x(i, j) / float(N)  v(j) +=! (x(i, j) - m(j)) * (x(i, j) - m(j)) where i in 0:N - 1
}""",
        ["add", "add"],
    ),
}


@pytest.mark.parametrize("kind", DEVIATIONS)
def test_deviations_are_from_the_means_of_blocks_where_that_is_the_same(kind: str) -> None:
    text, combined = DEVIATIONS[kind]
    operator, x = polyc.compile(text), np.random.default_rng(1).standard_normal((13, 5)).astype(np.float32)
    x[:, 1] += 1000.0  # squares of the values would drown what deviates
    expected = tuple(interpret(operator.program, {"x": x}).values())
    rows = da.from_array(x, chunks=((4, 1, 8), 5))
    assert [s.combines for s in operator.blocks(rows, dry_run=True).stages if s.combines] == combined
    for chunks in (((4, 1, 8), 5), (1, 5), ((6, 7), (2, 3))):  # more parts than one task combines, and chunks of columns
        with interpreted():
            results = operator(da.from_array(x, chunks=chunks))
        compare(results, expected if len(expected) > 1 else expected[0], 1e-4, 1e-4)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_covariance_of_chunked_rows_reads_them_once(target: str) -> None:
    operator = polyc.compile(DEVIATIONS["covariance"][0], target=target)
    x = np.random.default_rng(1).random((37, 6), np.float32)
    chunked = da.from_array(x, chunks=(8, 6))
    assert operator.blocks(chunked, dry_run=True).stages[0].read == x.nbytes
    try:
        expected = operator(x)
    except polyc.UnsupportedError:
        pytest.skip("this machine lacks these instructions")
    compare(operator(chunked), expected, 1e-5, 1e-6)


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
