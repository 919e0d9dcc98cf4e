"""Definitions that call definitions: read in place, in coordinates that count from 0, scheduled as a whole."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyc
from polyc.diagnostics import PolycError
from polyc.frontends.tc import parse_tc, read_tc
from polyc.ir.interpret import interpret
from polyc.ir.text import format_program
from polyc.ir.text_reader import parse_program
from polyc.ir.verify import verify_program

LIBRARY = """
def linear(float(M, K) X, float(N, K) W, float(N) b) -> (Y) {
  H(m, n) +=! X(m, k) * W(n, k)
  Y(m, n) = H(m, n) + b(n)
}
def scale(float(M, N) X, float s) -> (Y) { Y(m, n) = X(m, n) * s }
def moments(float(M, N) X) -> (mean, var) {
  s(m) +=! X(m, n)
  mean(m) = s(m) / float(N)
  v(m) +=! (X(m, n) - mean(m)) * (X(m, n) - mean(m))
  var(m) = v(m) / float(N)
}
def smooth(float(N) a, float(K) w) -> (s) { s(i) +=! a(i + k) * w(k) }
def shift(float(N) a) -> (s) { s(i) = a(i - 3) }
def share(float(N) a) -> (t) { q +=! a(i)  t(i) = a(i) / q * float(N) }
"""


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def evaluate(text: str, *arrays: np.ndarray) -> list[np.ndarray]:
    """The results of the last definition, by the reference interpreter and by the compiler."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = read_tc(LIBRARY + text)[-1]
        verify_program(program)
        assert parse_program(format_program(program)) == program
        expected = interpret(program, dict(zip(program.parameters, arrays, strict=True)))
        got = polyc.compile(LIBRARY + text, entry=program.name)(*arrays)
    found = list(got) if isinstance(got, tuple) else [got]
    for result, array in zip(program.returns, found, strict=True):
        np.testing.assert_allclose(array, expected[result.name], rtol=1e-4, atol=1e-5)
    return found


def test_a_network_of_calls() -> None:
    text = """
    def net(float(B, K) x, float(H, K) V, float(H) b, float(O, H) W, float(O) c) -> (float(B, O) y, mu) {
      h = linear(x, V, b)
      h(i, j) = fmax(h(i, j), 0.0)
      y = linear(h, W, c)
      (mu, _) = moments(y)
    }"""
    x, v, b, w, c = draw(9, 8), draw(7, 8), draw(7), draw(5, 7), draw(5)
    y, mu = evaluate(text, x, v, b, w, c)
    expected = np.maximum(x @ v.T + b, 0) @ w.T + c
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mu, expected.mean(1), rtol=1e-4, atol=1e-5)
    program = read_tc(LIBRARY + text)[-1]
    assert {"h", "H"} <= {t.base for t in program.tensors}
    assert "var" not in {t.base for t in program.tensors}  # what is not used is not computed


def test_what_is_called_counts_from_zero() -> None:
    text = """
    def f(float(N) a, float(K) w) -> (r, e) {
      T(i) = a(i - 2)        # starts at 2, and so does the result of shift at 3
      u = smooth(T, w)
      r = share(shift(u))
      e(i) = r(i) * float(r.0)
    }"""
    a, w = draw(10), draw(3)
    u = np.correlate(a, w, "valid")
    r, e = evaluate(text, a, w)
    np.testing.assert_allclose(r, u / u.sum() * len(u), rtol=1e-4)
    np.testing.assert_allclose(e, u / u.sum() * len(u) ** 2, rtol=1e-4)


def test_scalars_literals_and_calls_in_calls() -> None:
    text = "def f(float(M, N) X, float t) -> (Y) { s = t + 1.0  Y = scale(scale(X, 2), s / float(N)) }"
    x = draw(4, 5)
    np.testing.assert_allclose(evaluate(text, x, np.float32(2))[0], x * 2 * (3 / 5), rtol=1e-5)


def test_names_do_not_meet() -> None:
    text = """
    def f(float(m, n) k, float(b, n) H, float(b) X) -> (Y, n2) {   # each name is something else in linear
      Y = linear(k, H, X)
      n2(k2) = X(k2)
    }"""
    k, h, x = draw(3, 4), draw(5, 4), draw(5)
    np.testing.assert_allclose(evaluate(text, k, h, x)[0], k @ h.T + x, rtol=1e-4, atol=1e-5)


def test_results_are_continued() -> None:
    text = """
    def f(float(M, N) A, int32(K) key) -> (Y, S) {
      Y = scale(A, 2.0)
      Y(m, n) += A(m, k) * A(m, n)
      S = share(key2)
      S(key(i)) += 1.0
    }""".replace("share(key2)", "first(A)")
    first = "def first(float(M, N) A) -> (B) { B(m) = A(m, 0) }"
    a, key = draw(4, 4), np.array([0, 3, 3, 1, 0], np.int32)
    y, s = evaluate(first + text, a, key)
    np.testing.assert_allclose(y, a * 2 + a * a.sum(1)[:, None], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(s, a[:, 0] + np.bincount(key, minlength=4), rtol=1e-5)


def test_a_tensor_of_a_definition_hides_an_operator_of_its_name() -> None:
    text = "def f(float(N) scale) -> (s) { s +=! scale(i) }"
    np.testing.assert_allclose(evaluate(text, draw(5))[0], draw(5).sum(), rtol=1e-5)


def test_sizes_that_a_call_unifies_are_checked() -> None:
    text = LIBRARY + "def f(float(B, K) x, float(H, L) V, float(H) b) -> (Y) { Y = linear(x, V, b) }"
    operator = polyc.compile(text, entry="f")
    x, v, b = draw(3, 4), draw(5, 4), draw(5)
    np.testing.assert_allclose(operator(x, v, b), x @ v.T + b, rtol=1e-4, atol=1e-5)
    with pytest.raises(PolycError, match="dimension 1 of W of linear has extent 4, and what is given for it has 7 there"):
        operator(x, draw(5, 7), b)


def test_parentheses_that_open_a_statement() -> None:
    """Statements have no separator: ``(a, b) =`` are targets, and not subscripts of the name before."""
    text = """
    def f(float(N) A, float s) -> (O, T, a, b) {
      O(i) = A(i) * s  # a comment (x, y) = between
      (a,  # and one inside
       b) = g(A)
      T(i) = -s (c) = g2(A) (d) = g2(a) T(i) = c(i) + d(i) where i < N }"""
    f = parse_tc(text)[0]
    assert [[t.name for t in s.targets] for s in f.statements] == [["O"], ["a", "b"], ["T"], ["c"], ["d"], ["T"]]
    assert [s.is_call for s in f.statements] == [False, True, False, True, True, False]


def test_unused_results_are_warned_of() -> None:
    text = LIBRARY + "def f(float(M, N) x) -> (a) { (a, b) = moments(x) }"
    with pytest.warns(polyc.PolycWarning, match="b, a result of moments, is not used"):
        polyc.compile(text, entry="f")


# the body of `f`, the code, words of the message, what the caret marks
WRONG = [
    ("Y = g(a)", "semantic-call", "g takes 2 arguments, and 1 is given", "g(a)"),
    ("Y = g(X, s)", "semantic-rank", "A of g has 1 dimension, and X has 2 dimensions", "X"),
    ("Y = g(I, s)", "type-call", "A of g is float32, and I is int32", "I"),
    ("Y = g(a, i)", "semantic-undefined", "undefined variable i", "i"),
    ("Y = g(a, X)", "semantic-rank", "s of g has 0 dimensions, and X has 2", "X"),
    ("Y = g(a, double(1))", "type-call", "s of g is float32, and the argument is float64", "double(1)"),
    ("Y = g(a + a, s)", "semantic-call", "A of g must be the name of a tensor", "a + a"),
    ("Y = g(Z, s)", "semantic-undefined", "undefined variable Z", "Z"),
    ("Y = g(Y, s)", "semantic-undefined", "undefined variable Y", "Y"),
    ("Y = g(two(a), s)", "semantic-call", "two returns 2 tensors, and an argument is one", "two(a)"),
    ("Y = two(a)", "semantic-call", "two returns 2 tensors, and 1 are assigned", "Y = two(a)"),
    ("(Y, Y) = two(a)", "semantic-already-defined", "Y is assigned twice", "Y"),
    ("a = g(a, s) Y(i) = a(i)", "semantic-immutable-input", "a is a parameter", "a"),
    ("N = g(a, s) Y(i) = a(i)", "semantic-already-defined", "N is already defined as a size", "N"),
    ("Y = gg(a, s)", "semantic-undefined", "undefined variable gg", "gg"),
    ("(Y) = gg(a, s)", "semantic-undefined", "there is no definition gg", "gg"),
    ("(Y) = a", "semantic-call", "only a call of another definition", "a"),
    ("(Y) = a(i)", "semantic-call", "a is a tensor here", "a"),
    ("Y = g(a, s) where i in 0:3", "semantic-call", "has no where clause", "i in 0:3"),
    ("Y(i) = g(a, s)", "semantic-undefined", "undefined variable g", "g"),
    ("Y = more(a)", "semantic-call", "more adds to what its result B holds before", "more(a)"),
    ("Y = five(four)", "semantic-call", "dimension 0 of four has extent 4, and A of five has 5 there", "four"),
    ("Y = g(a, s) Y(0) = s", "semantic-call-part", "Y is the result of a call", "Y"),
    ("T(0) = s Y = g(T, s) T(i + 1) = a(i)", "semantic-call-part", "T is given to a call above", "T"),
    ("Y = f(a, X, I, four, s)", "semantic-recursion", "f calls itself", "f"),
    ("T(i, j) = a(i) Y = g(T, s)", "semantic-rank", "T has 2 dimensions", "T"),
    ("T(i) = a(i) where j in 0:3 Y = g(T, s)", "semantic-undefined", "undefined variable j", "j"),
]


@pytest.mark.parametrize(("body", "code", "words", "marked"), WRONG)
def test_calls_that_do_not_fit(body: str, code: str, words: str, marked: str) -> None:
    text = """
    def g(float(N) A, float s) -> (B) { B(i) = A(i) * s }
    def two(float(N) A) -> (B, C) { B(i) = A(i) C(i) = A(i) }
    def more(float(N) A) -> (B) { B(i) += A(i) }
    def five(float(5) A) -> (B) { B(i) = A(i) }
    def f(float(N) a, float(M, N) X, int32(N) I, float(4) four, float s) -> (Y) { %s }"""
    with pytest.raises(PolycError) as caught:
        read_tc(text % body)
    found = [d for d in caught.value.diagnostics if d.code == code and words in d.message]
    assert found, caught.value
    span = found[0].span
    assert span is not None and span.source.text[span.start : span.end] == marked
    assert found[0].help


def test_recursion_shows_the_chain_once() -> None:
    text = "def f(float(N) A) -> (B) { B = g(A) } def g(float(N) A) -> (B) { B = h(A) } def h(float(N) A) -> (B) { B = f(A) }"
    with pytest.raises(PolycError) as caught:
        read_tc(text)
    assert [d.message for d in caught.value.diagnostics] == ["f calls itself: f → g → h → f"]


def test_ranges_that_cannot_be_inferred_are_reported_where_they_stand() -> None:
    text = LIBRARY + "def f(float(M, N) A) -> (Y) { T(i, j) = A(i, i)  Y = scale(T, 1.0) }"
    with pytest.raises(PolycError, match=r"the range of index j of T was not solved(.|\n)*T\(i, j\) = A"):
        read_tc(text)


def test_calls_that_double_are_refused() -> None:
    text = "def f0(float(N) A) -> (B) { B(i) = exp(A(i)) }"
    text += "".join(f"def f{n}(float(N) A) -> (C) {{ B = f{n - 1}(A) C = f{n - 1}(B) }}\n" for n in range(1, 20))
    with pytest.raises(PolycError) as caught:
        read_tc(text)
    assert caught.value.code == "budget-calls"


def test_deep_calls_are_refused() -> None:
    text = "".join(f"def f{n}(float(N) A) -> (B) {{ B = f{n + 1}(A) }}\n" for n in range(100))
    with pytest.raises(PolycError) as caught:
        read_tc(text + "def f100(float(N) A) -> (B) { B(i) = A(i) }")
    assert caught.value.code == "budget-calls"


STEPS = {
    "smooth": (lambda a: np.correlate(a, WINDOW, "valid"), "smooth(T, w)"),
    "share": (lambda a: a / a.sum() * len(a), "share(T)"),
    "shift": (lambda a: a, "shift(T)"),
    "odd": (lambda a: a[1::2], "odd(T)"),
    "reversed": (lambda a: a[::-1], "reversed(T)"),
    "join": (lambda a: np.concatenate([a, a]), "join(T, T)"),
}
WINDOW = np.array([0.5, 1.0, 0.25], np.float32)
MORE = """
def odd(float(N) a) -> (o) { o(i) = a(2 * i + 1) }
def reversed(float(N) a) -> (r) { r(i) = a(N - 1 - i) }
def join(float(M) a, float(N) b) -> (j) { j(i) = a(i) where i in 0:M  j(M + i) = b(i) }
"""


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4), st.integers(30, 40))
def test_chains_of_calls_agree_with_numpy(steps: list[str], n: int) -> None:
    body = "T(i) = a(i - 5) + 2.0\n" + "".join(f"U = {STEPS[s][1]}\nT(i) = U(i)\n" for s in steps)
    a = np.random.default_rng(n).random(n).astype(np.float32)
    expected = a + 2
    for s in steps:
        expected = STEPS[s][0](expected)
    text = f"{LIBRARY}{MORE}def f(float(N) a, float(K) w) -> (T) {{ {body} }}"
    program = read_tc(text)[-1]
    got = interpret(program, {"a": a, "w": WINDOW})["T"]
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    np.testing.assert_allclose(polyc.compile(text, entry="f")(a, WINDOW), expected, rtol=1e-4)


def test_an_error_of_several_calls_is_told_once_and_names_the_first_that_has_it() -> None:
    text = """def shrink(float(N) a) -> (b) { b(i) = a(i) + a(i + 3) }
    def f(float(N) x) -> (y) {
      u = shrink(x)
      v = shrink(u)
      w = shrink(v)
      y = shrink(w)
    }"""
    op = polyc.compile(text, entry="f")
    assert op(draw(12)).shape == (0,)
    with pytest.raises(PolycError) as caught:
        op(draw(7))
    assert [d.code for d in caught.value.diagnostics].count("range-negative") == 1
    assert "(with shrink called in line 5" in str(caught.value)
