"""Rows that are read in several passes, the last of which asks for rows to come: code and values.  Which ones it asks for
stands in ``tests/loopnest/prefetch-next.loops``."""

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


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)


def lowered(source: str, *shape: int, target: str = "x86-64-v4"):
    return polyc.compile(source, target=target, disable="single-pass-moments").lower(array(*shape))


@pytest.mark.parametrize("n_columns, request_of", [(512, "prefetcht0"), (1024, "prefetcht1")])
def test_each_line_is_asked_for_once(n_columns: int, request_of: str) -> None:
    text = lowered(MOMENTS, 4096, n_columns, target="x86-64-v3").as_text("s")
    loops = re.split(r"^\.LBB", text, flags=re.M)
    (loop,) = [part for part in loops if request_of in part]
    assert loop.count(request_of) * 64 == loop.count("vfmadd231ps") * 32


@pytest.mark.parametrize(
    ("width", "target"), [(129, "x86-64-v2"), (129, "host"), (256, "x86-64-v3"), (301, "x86-64-v2"), (301, "x86-64-v3")]
)
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
