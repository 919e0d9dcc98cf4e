"""Rows that are read in several passes: the last pass asks for rows to come."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyc

MOMENTS = """def f(float(N, D) X) -> (M, V) {
  M(n) +=! X(n, d)
  V(n) +=! (X(n, d) - M(n)) * (X(n, d) - M(n))
}"""
SOFTMAX = """def f(float(N, D) X) -> (Y) {
  M(n) max=! X(n, d)  E(n, d) = exp(X(n, d) - M(n))  S(n) +=! E(n, d)  Y(n, d) = E(n, d) / S(n)
}"""
NORM = """def f(float(N, D) X) -> (Y) {
  M(n) +=! X(n, d)  V(n) +=! (X(n, d) - M(n)) * (X(n, d) - M(n))  Y(n, d) = (X(n, d) - M(n)) / sqrt(V(n))
}"""
ROOT_MEAN_SQUARES = """def f(float(N, D) X) -> (Y) { V(n) +=! X(n, d) * X(n, d)  Y(n, d) = X(n, d) / sqrt(V(n)) }"""
IMAGES = MOMENTS.replace("N, D", "N, H, W").replace("(n, d)", "(n, h, w)")
SUMS = "def f(float(N, D) X) -> (S) { S(n) +=! X(n, d) }"
COPIES = "def f(float(N, D) X) -> (A, B) { A(n, d) = X(n, d)  S(n) max=! A(n, d)  B(n, d) = X(n, d) - S(n) }"

TWICE = ["prefetch X[c0 + 8, c1], 4 bytes to L2;", "prefetch X[c0 + 1, c1], 4 bytes;"]


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)


def lowered(source: str, *shape: int, target: str = "x86-64-v4"):
    return polyc.compile(source, target=target, disable="single-pass-moments").lower(array(*shape))


def prefetches(source: str, *shape: int) -> list[str]:
    return re.findall(r"prefetch .*;", lowered(source, *shape).as_text("loops"))


def test_the_last_pass_asks_for_rows_to_come() -> None:
    assert prefetches(MOMENTS, 4096, 300) == ["prefetch X[c0 + 1, c1], 4 bytes;"]
    assert prefetches(MOMENTS, 4096, 1000) == ["prefetch X[c0 + 8, c1], 4 bytes to L2;"]
    assert prefetches(MOMENTS, 2048, 1500) == ["prefetch X[c0 + 5, c1], 4 bytes to L2;"]
    assert prefetches(MOMENTS, 1024, 4096) == ["prefetch X[c0 + 2, c1], 4 bytes to L2;"]
    assert prefetches(SOFTMAX, 128, 32000) == ["prefetch X[c0 + 1, c1], 4 bytes to L2;"]
    assert prefetches(SOFTMAX, 40000, 1024) == TWICE
    assert prefetches(NORM, 4096, 1024) == TWICE  # where the result is streamed
    (line,) = prefetches(SOFTMAX, 4096, 300)
    _, behind = lowered(SOFTMAX, 4096, 300).as_text("loops").split(line)
    assert "exp" in behind.splitlines()[1]
    assert len(prefetches(IMAGES, 64, 56, 96)) == 1


def test_the_only_later_pass_asks_where_it_streams() -> None:
    assert prefetches(ROOT_MEAN_SQUARES, 4096, 1024) == TWICE
    assert not prefetches(ROOT_MEAN_SQUARES, 1024, 512)  # a result that stays in the cache keeps memory busy when it is written
    text = lowered(ROOT_MEAN_SQUARES, 4096, 1024).as_text("loops")
    assert "stream" in text.split("prefetch")[-1].splitlines()[1]


@pytest.mark.parametrize("n_columns, request_of", [(512, "prefetcht0"), (1024, "prefetcht1")])
def test_each_line_is_asked_for_once(n_columns: int, request_of: str) -> None:
    text = lowered(MOMENTS, 4096, n_columns, target="x86-64-v3").as_text("s")
    loops = re.split(r"^\.LBB", text, flags=re.M)
    (loop,) = [part for part in loops if request_of in part]
    assert loop.count(request_of) * 64 == loop.count("vfmadd231ps") * 32


@pytest.mark.parametrize(
    "source, shape",
    [
        (SUMS, (4096, 300)),
        (MOMENTS, (64, 300)),
        (MOMENTS, (40000, 50)),
        (MOMENTS, (8, 300000)),
        (COPIES, (4096, 300)),
        (MOMENTS, (5000, 1024)),
        (MOMENTS, (512, 8192)),
    ],
    ids=["one pass", "small array", "short rows", "long rows", "passes that write", "from memory", "beyond the first cache"],
)
def test_what_asks_for_nothing(source: str, shape: tuple[int, int]) -> None:
    assert not prefetches(source, *shape)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize("width", [129, 256, 301])
def test_rows_are_right_to_the_last_one(width: int, target: str) -> None:
    x = array(2600, width)
    for given in (x, x[:, ::-1], x[::3], x[:0], np.asfortranarray(x)):
        m, v = polyc.compile(MOMENTS, target=target, disable="single-pass-moments")(given)
        np.testing.assert_array_equal(m, given.sum(1))
        np.testing.assert_allclose(v, ((given - m[:, None]).astype(float) ** 2).sum(1), rtol=1e-5)


@pytest.mark.parametrize("source", [MOMENTS, SOFTMAX], ids=["little is computed", "much is computed"])
def test_rows_of_known_length_in_any_number(source: str) -> None:
    operator = polyc.compile(source.replace("D)", "1024)"), dynamic=("N",), target="x86-64-v4", disable="single-pass-moments")
    asked = re.findall(r"prefetch .*;", operator.lower(array(4096, 1024)).as_text("loops"))
    assert any("to L2" in a for a in asked) and any("to L2" not in a for a in asked)


def test_rows_of_any_length() -> None:
    operator = polyc.compile(SOFTMAX, dynamic=True)
    for shape in ((700, 900), (3, 5), (1, 1), (0, 4)):
        x = array(*shape)
        e = np.exp(x.astype(float) - x.max(1, keepdims=True, initial=-99))
        np.testing.assert_allclose(operator(x), e / e.sum(1, keepdims=True), rtol=1e-5)


def test_short_passes_over_rows_of_any_length_ask_by_the_sizes_of_a_call() -> None:
    operator = polyc.compile(MOMENTS, dynamic=True, target="x86-64-v3", disable="single-pass-moments")
    x = array(900, 301)
    text = operator.lower(x).as_text("loops")
    near, far = re.findall(r"if \((.*)\) \{\n.*\n *(prefetch .*;)", text)
    assert near[1] == "prefetch X[c0 + 1, c1], 4 bytes;"
    assert far[1].endswith("to L2;") and "N" not in far[1]
    assert all("N" in condition for condition, _ in (near, far))
    operator = polyc.compile(MOMENTS, dynamic=True, disable="single-pass-moments")
    for given in (x, x[:0], x[:, :0], x[:2]):
        m, v = operator(given)
        np.testing.assert_array_equal(m, given.sum(1))
        np.testing.assert_allclose(v, ((given - m[:, None]).astype(float) ** 2).sum(1), rtol=1e-5)
