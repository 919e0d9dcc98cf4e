"""Random programs of triangles, computed left sides, parts, recurrences and padding: kernels against the interpreter.

By hand, for a longer run: ``POLYC_EXAMPLES=5000 pytest tests/property/test_language.py``.
"""

from __future__ import annotations

import os
import random
import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import polyc
from polyc.diagnostics import PolycError
from polyc.ir.interpret import interpret

EXAMPLES = int(os.environ.get("POLYC_EXAMPLES", "30"))


def condition(source: random.Random, indices: list[str]) -> str:
    a, b = source.sample(indices, 2)
    comparisons = (
        "{a} <= {b}",
        "{a} < {b}",
        "{a} + {b} < N",
        "{a} != {b}",
        "{a} == {b}",
        "{a} + 1 < 2 * {b}",
        "{a} + {b} >= N / 2",
    )
    return source.choice(comparisons).format(a=a, b=b)


STEPS = (
    "S(t-1, j) * 0.5 + x(j)",
    "max(S(t-1, j), pad(S(t-1, j-1), clamp))",
    "S(t-1, j) + pad(S(t-1, j+1), 0.0) * 0.3",
    "j == 0 ? S(t-1, j) : S(t, j-1) * 0.5 + S(t-1, j) * 0.5",
)


def make_statements(source: random.Random) -> str:
    """Statements that make O from A, B (N by N) and x (N); some are refused at some sizes."""
    op, two = source.choice(["+=!", "max=!"]), condition(source, ["i", "j"])
    left = source.choice(["2 * i", "i + 1", "N - i", "i / 2"])
    below = source.choice(["j < i", "j < i, i + j < N + 3"])
    part, half = source.choice(["2 * j", "N - 1 - j", "j"]), source.choice(["N / 2", "(N + 1) / 2"])
    padding, window = source.choice(["clamp", "wrap", "reflect", "symmetric", "1.0"]), condition(source, ["i", "k"])
    forms = [
        f"O(i) {op} A(i, j) * x(j) where {two}",
        f"O(i, j) {op} A(i, k) * B(k, j) where {condition(source, ['i', 'j', 'k'])}, {window}",
        f"O(i + j) {op} A(i, j) where {two}",
        f"O({left}, j) {op} A(i, j) where {two}",
        f"O(0) {op} x(i)  O(i + 1) = x(i) * 2.0",
        f"O(i) = x(i) where i in 0:N  O(N + i) {op} A(i, j) where {two}",
        f"S(0, j) = x(j)  S(t, j) = {source.choice(STEPS)} where t in 1:5, j in 0:N  O(j) = S(4, j)",
        f"s(i) +=! A(i, j) * y(j) * 0.1 where {below}  y(i) = x(i) - s(i)  O(i) = y(i)",
        f"H(i) = x(i)  H({part}) += x(j) * x(j) where j in 0:{half}  O(i) {op} H(i) * A(i, j) where {two}",
        f"O(i) +=! pad(x(i + k - 2), {padding}) * A(i, k) where i in 0:N, k in 0:N, {window}",
    ]
    return source.choice(forms)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(st.integers(0, 1 << 30), st.sampled_from([1, 2, 3, 7, 16, 17, 33, 50]))
def test_kernels_and_interpreter_agree(seed: int, n: int) -> None:
    text = f"def f(float(N, N) A, float(N, N) B, float(N) x) -> (O) {{ {make_statements(random.Random(seed))} }}"
    rng = np.random.default_rng(seed)
    inputs = {"A": rng.standard_normal((n, n)), "B": rng.standard_normal((n, n)), "x": rng.standard_normal(n)}
    arrays = {name: a.astype(np.float32) for name, a in inputs.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", polyc.PolycWarning)
        operator = polyc.compile(text)
    try:
        (expected,) = interpret(operator.program, arrays).values()
    except PolycError as error:
        expected, code = None, error.code
    try:
        got = operator(*arrays.values())
    except PolycError as error:
        assert expected is None and error.code == code, text
        return
    assert expected is not None, text
    assert got.shape == expected.shape, text
    np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-3, err_msg=text)
