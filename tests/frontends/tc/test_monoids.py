"""Reductions that a text defines: ``monoid name(…) -> (c = identity) { … }`` and ``y(i) name=! A(i, j)``."""

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from polyc.ir.tolerance import check_results, expect_results

PRODUCT = "monoid product(float a, float b, float x, float y) -> (p = 1.0, q = 0.0) { p = a * x - b * y  q = a * y + b * x }\n"
LOGADDEXP = """
monoid logaddexp(float a, float b) -> (c = -inf) {
  top = max(a, b)
  c = top == -inf ? top : top + log1p(exp(-fabs(a - b)))
}
"""


def run(text, **arrays):
    operator = polyc.compile(text)
    results = operator(**arrays)
    results = results if isinstance(results, tuple) else (results,)
    names = [r.name for r in operator.program.returns]
    assert check_results(dict(zip(names, results, strict=True)), expect_results(operator.program, arrays)) is None
    return results


@pytest.mark.parametrize("n", [0, 1, 5, 100])
def test_one_component(n):
    x = np.random.default_rng(n).normal(size=(3, n)).astype("f4")
    (total,) = run(LOGADDEXP + "def f(float(M, N) X) -> (t) { t(i) logaddexp=! X(i, j) }", X=x)
    assert np.allclose(total, np.logaddexp.reduce(x, axis=1), rtol=1e-5)


def test_two_components_of_every_column_and_of_all():
    rng = np.random.default_rng(0)
    z = np.exp(1j * rng.uniform(-1, 1, (6, 7)))
    text = (
        PRODUCT
        + """def f(float(M, N) A, float(M, N) B) -> (re, im, r, s) {
      (re(j), im(j)) product=! (A(i, j), B(i, j))
      (r, s) product=! (A(i, j), B(i, j))
    }"""
    )
    re, im, r, s = run(text, A=z.real.astype("f4"), B=z.imag.astype("f4"))
    assert np.allclose(re + 1j * im, z.prod(axis=0), atol=1e-5)
    assert np.allclose(r + 1j * s, z.prod(), atol=1e-5)


def test_where_a_condition_leaves_nothing_stands_the_identity():
    text = PRODUCT + "def f(float(N, N) A) -> (p, q) { (p(i), q(i)) product=! (A(i, j), 0.5) where j < i }"
    p, q = run(text, A=np.ones((4, 4), "f4"))
    assert (p[0], q[0]) == (1.0, 0.0)


def test_components_of_several_types_and_a_declared_result():
    text = """
    monoid best(float v, int32 n, float w, int32 m) -> (value = -inf, count = 0) {
      value = max(v, w)
      count = (v >= w ? n : 0) + (w >= v ? m : 0)
    }
    def f(float(M, N) X) -> (float64(M) top, int64(M) times) { (top(i), times(i)) best=! (X(i, j), 1) }
    """
    x = np.random.default_rng(1).integers(0, 3, (5, 40)).astype("f4")
    top, times = run(text, X=x)
    assert top.dtype == np.float64
    assert times.dtype == np.int64
    assert np.array_equal(top, x.max(axis=1))
    assert np.array_equal(times, (x == x.max(axis=1, keepdims=True)).sum(axis=1))


def test_a_definition_that_uses_one_can_be_called():
    text = (
        LOGADDEXP
        + """
    def inner(float(M, N) X) -> (t) { t(i) logaddexp=! X(i, j) }
    def f(float(M, N) X) -> (y) { t = inner(X)  y(i) = t(i) * 2.0 }
    """
    )
    x = np.ones((2, 3), "f4")
    operator = polyc.compile(text, "f")
    assert np.allclose(operator(x), 2 * np.logaddexp.reduce(x, axis=1))


def test_the_word_is_a_name_elsewhere():
    (y,) = run("def f(float(N) monoid) -> (y) { y(i) = monoid(i) }", monoid=np.ones(3, "f4"))
    assert np.array_equal(y, np.ones(3))


def test_a_name_before_not_is_no_reduction():
    (y,) = run("def f(bool flag) -> (y) { y=!flag }", flag=np.array(True))
    assert not y


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (
            PRODUCT.replace(", float y)", ")") + "def f(float(N) A) -> (p, q) { (p, q) product=! (A(i), A(i)) }",
            "semantic-monoid",
            "4",
        ),
        (PRODUCT.replace("float x", "double x") + "def f(float(N) A) -> (y) { y(i) = A(i) }", "type-monoid", "double"),
        (PRODUCT.replace("float x", "float(N) x") + "def f(float(N) A) -> (y) { y(i) = A(i) }", "semantic-monoid", "number"),
        (PRODUCT.replace("q = a * y", "r = a * y") + "def f(float(N) A) -> (y) { y(i) = A(i) }", "semantic-monoid", "never"),
        (PRODUCT.replace("* y", "* k") + "def f(float(N) A) -> (y) { y(i) = A(i) }", "semantic-monoid", "k has no value"),
        (PRODUCT.replace("1.0", "z") + "def f(float(N) A) -> (y) { y(i) = A(i) }", "semantic-monoid", "literal"),
        (PRODUCT + "def f(float(N) A) -> (p) { p product=! A(i) }", "semantic-monoid", "2 components"),
        (PRODUCT + "def f(float(N) A) -> (p, q) { (p, q) product=! A(i) }", "semantic-monoid", "1 value"),
        (PRODUCT + "def f(float(N) A) -> (p, q) { (p(i), q) product=! (A(i), A(i)) }", "semantic-monoid", "same plain"),
        (PRODUCT + "def f(double(N) A) -> (p, q) { (p, q) product=! (A(i), A(i)) }", "type-narrowing", "double"),
        (PRODUCT + PRODUCT + "def f(float(N) A) -> (y) { y(i) = A(i) }", "semantic-already-defined", "product"),
        ("def f(float(N) A) -> (y) { y join=! A(i) }", "syntax-unexpected", "monoid join("),
        (
            "monoid m(int32 a, int32 b) -> (c = 0.5) { c = a + b } def f(int32(N) A) -> (y) { y m=! A(i) }",
            "type-monoid",
            "int32",
        ),
        (PRODUCT, "syntax-unexpected", "def"),
        (
            "monoid max(float a, float b) -> (c = 0.0) { c = a } def f(float(N) A) -> (y) { y(i) = A(i) }",
            "syntax-unexpected",
            "max",
        ),
    ],
)
def test_mistakes_are_named(text, code, words):
    with pytest.raises(PolycError) as caught:
        polyc.compile(text)
    assert caught.value.code == code
    assert words in str(caught.value)
    assert "help:" in str(caught.value)
    assert "^" in str(caught.value)
