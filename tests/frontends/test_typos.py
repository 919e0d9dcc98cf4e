"""Warnings for indices that are probably mistyped."""

import pytest

from polyc.frontends.python import read_function
from polyc.frontends.tc.read import read_tc_with_warnings


def warnings_of(statement: str) -> list[str]:
    text = f"def f(float(M, K) A, float(K, N) B, float(K) v, float(N, N) S) -> (O) {{ {statement} }}"
    return [w.help or "" for w in read_tc_with_warnings(text).warnings if w.code == "semantic-lonely-index"]


@pytest.mark.parametrize(
    ("statement", "help"),
    [
        ("O(m, n) +=! A(m, k) * B(l, n)", "did you mean k, which also runs over K?"),
        ("O(m) +=! A(m, k) * v(kk)", "did you mean k?"),
        ("O(m, row) +=! A(m, k) * B(k, rwo) * S(row, row)", "did you mean row?"),
    ],
)
def test_mistyped(statement: str, help: str) -> None:
    assert any(help in found for found in warnings_of(statement))


@pytest.mark.parametrize(
    "statement",
    [
        "O(m, n) +=! A(m, k) * B(k, n)",
        "O(m) +=! A(m, k)",
        "O +=! S(i, j)",
        "O(n) +=! S(n, n0)",
        "O(m) +=! A(m, k) * v(l) where l in 0:K",
        "O(m) +=! A(m, k) * v(l) where l <= k",
    ],
)
def test_meant(statement: str) -> None:
    assert not warnings_of(statement)


def test_functions() -> None:
    source = "def f(a: 'f32[M, K]', b: 'f32[K, N]'):\n    c[m, n] += a[m, k] * b[kk, n]\n    return c"
    (warning,) = read_function(source).warnings
    assert warning.code == "semantic-lonely-index" and "did you mean k" in (warning.help or "")
