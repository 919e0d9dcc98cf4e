"""Loops in order that are independent of each other run at the same time; others never do."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyc
from polyc.ir.interpret import interpret
from polyc.runtime.threads import limited_to


def cell(name: str, start: str, extra: str = "") -> str:
    """A recurrence over steps: a product with a matrix, and something that keeps numbers small."""
    return f"""
  {name}(0, i) = {start}
  {name}_sum(t, i) +=! {name}(t, k) * W(i, k) where t in 0:T, i in 0:N
  {name}(t, i) = tanh({name}_sum(t - 1, i) + x(t - 1, i){extra}) where t in 1:T+1, i in 0:N"""


def operator(*parts: str, returned: str, **options) -> polyc.Operator:
    body = "".join(parts)
    return polyc.compile(f"def f(float(T, N) x, float(N, N) W) -> ({returned}) {{{body}\n}}", target="x86-64-v3", **options)


SECTIONS = "parallel for (c0 = 0; c0 < 2; c0++) {\n    if (c0 == 0) {"
"""A loop over two sections: the machine model has two cores."""

TOGETHER = {
    "two": operator(cell("a", "x(0, i)"), cell("b", "-x(0, i)"), "\n  y(i) = a(T, i)\n  z(i) = b(T, i)", returned="y, z"),
    "three": operator(
        cell("a", "x(0, i)"),
        cell("b", "-x(0, i)"),
        cell("c", "x(1, i)"),
        "\n  y(i) = a(T, i) + b(T, i) * c(T, i)",
        returned="y",
    ),
    "reads the same": operator(
        "\n  u(t, i) = x(t, i) * 2.0", cell("a", "u(0, i)"), cell("b", "u(1, i)"), "\n  y(i) = a(T, i) - b(T, i)", returned="y"
    ),
}
APART = {
    "needs the last step": operator(cell("a", "x(0, i)"), cell("b", "a(T, i)"), "\n  y(i) = b(T, i)", returned="y"),
    "needs it through another": operator(
        cell("a", "x(0, i)"), "\n  u(i) = a(T, i) * 2.0", cell("b", "u(i)"), "\n  y(i) = b(T, i)", returned="y"
    ),
    "alone": operator(cell("a", "x(0, i)"), "\n  y(i) = a(T, i)", returned="y"),
}


def check(f: polyc.Operator, steps: int = 20, size: int = 96) -> str:
    """The text of the loops; results are compared with the interpreter's, for one thread and several."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((steps, size)).astype(np.float32)
    W = (rng.standard_normal((size, size)) / size).astype(np.float32)
    expected = list(interpret(f.program, {"x": x, "W": W}).values())
    lowered, found = f.lower(x, W), []
    kernel = lowered.compile()
    for threads in (1, 2, 3):
        with limited_to(threads):
            results = kernel(x, W)
        found.append(results if isinstance(results, tuple) else (results,))
        for y, e in zip(found[-1], expected, strict=True):
            np.testing.assert_allclose(y, e, rtol=2e-4, atol=2e-5)
    for other in found[1:]:
        for y, z in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(y, z)
    return lowered.as_text("loops")


@pytest.mark.parametrize("name", TOGETHER)
def test_independent_recurrences_run_at_the_same_time(name):
    text = check(TOGETHER[name])
    assert text.index(SECTIONS) < text.index("tanh")


@pytest.mark.parametrize("name", APART)
def test_what_depends_on_the_other_does_not(name):
    assert SECTIONS not in check(APART[name])


def test_states_of_a_few_examples_at_a_time():
    """Their steps lie in a loop of one tile that holds all examples."""
    text = "".join((cell("a", "x(0, i)"), cell("c", "-x(0, i)"), "\n  y(i) = a(T, i)\n  z(i) = c(T, i)"))
    batched = re.sub(r"\((t|T|0|t - 1|t - 1), (i|k)\)", r"(\1, b, \2)", text).replace("i in 0:N", "b in 0:B, i in 0:N")
    batched = batched.replace("y(i)", "y(b, i)").replace("z(i)", "z(b, i)")
    f = polyc.compile(f"def f(float(T, B, N) x, float(N, N) W) -> (y, z) {{{batched}\n}}", target="x86-64-v3")
    rng = np.random.default_rng(2)
    x = rng.standard_normal((40, 3, 96)).astype(np.float32)
    W = (rng.standard_normal((96, 96)) / 96).astype(np.float32)
    assert SECTIONS in f.lower(x, W).as_text("loops")
    for got, want in zip(f(x, W), interpret(f.program, {"x": x, "W": W}).values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)


def test_short_loops_are_not_worth_it():
    assert SECTIONS not in check(TOGETHER["two"], 4, 32)


def test_checks_stay_in_order():
    text = """def f(float(T, N) x, float(N, N) W, int32(N) at) -> (y, z) {
      a(0, i) = x(0, i)
      a_sum(t, i) +=! a(t, k) * W(i, at(k)) where t in 0:T, i in 0:N
      a(t, i) = tanh(a_sum(t - 1, i)) where t in 1:T+1, i in 0:N
      b(0, i) = x(1, i)
      b_sum(t, i) +=! b(t, k) * W(at(i), k) where t in 0:T, i in 0:N
      b(t, i) = tanh(b_sum(t - 1, i)) where t in 1:T+1, i in 0:N
      y(i) = a(T, i)
      z(i) = b(T, i)
    }"""
    f = polyc.compile(text, target="x86-64-v3")
    rng = np.random.default_rng(1)
    x, W = rng.standard_normal((20, 96)).astype(np.float32), rng.standard_normal((96, 96)).astype(np.float32) / 96
    at = np.arange(96, dtype=np.int32)
    for y, e in zip(f(x, W, at), interpret(f.program, {"x": x, "W": W, "at": at}).values(), strict=True):
        np.testing.assert_allclose(y, e, rtol=2e-4, atol=2e-5)
    at[70] = 96
    with pytest.raises(polyc.BoundsError):
        f(x, W, at)


def test_recurrences_of_which_one_overwrites_what_the_other_reads_run_in_order() -> None:
    f = polyc.compile("""def f(double(T,K) X) -> (G,H) {
  G(t,k) = t > 0 ? 0.25 * G(t-1,K-1-k) + X(T-1-t,k) : X(T-1,k) where t in 0:T, k in 0:K
  H(t,k) = t > 0 ? 0.5 * H(t-1,K-1-k) + X(t,k) : X(t,k) where t in 0:T, k in 0:K
}""")
    x = np.random.default_rng(0).standard_normal((3000, 300))
    with limited_to(2):
        g, h = f(x)
        place = x.copy()
        np.testing.assert_array_equal(f(place, out=(np.empty_like(x), place))[0], g)
    np.testing.assert_array_equal(place, h)
