"""What a user reads: help of the command line, and one rendering of every kind of error.

After a change that is meant to change them: ``pytest tests/golden --update-golden``, then read the difference.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import polyc
from polyc.cli import main
from tests.golden.compare import compare_golden

A, B = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
MM = """def mm(float(M, K) A, float(K, N) B) -> (C) {
  C(m, n) +=! A(m, k) * B(k, n)
}
"""
LOOK = "def look(float(V) T, int32(N) I) -> (O) {\n  O(i) = T(I(i))\n}\n"
SEVERAL = """def first(float(N) A) -> (O) {
  O(i) = B(i)
}
def second(float(N) A) -> (O, P) {
  O(i) = A(i, j)
  Q(i) = A(i) ? 1.0 : 2.0
}
"""
WINDOW = "def window(float(N) x, float(K) k) -> (y) {\n  y(i) +=! x(i + j) * k(j)\n}\n"
FUNCTION = """def f(X: "f32[M, N]", b: "flot[N]"):
    Y[i] = X[i, j] + c[i]
    for i in range(3):
        pass
    return Y, W
"""

ERRORS: dict[str, Callable[[], Any]] = {
    "syntax": lambda: polyc.compile(MM.replace("A(m, k) * B", "(A(m, k) * B")),
    "syntax_habit": lambda: polyc.compile(MM.replace("float(M, K)", "float32x(M, K)")),
    "several_definitions": lambda: polyc.compile(SEVERAL),
    "missing_reduction": lambda: polyc.compile(MM.replace("+=!", "=")),
    "range_unsolved": lambda: polyc.compile("def f(float(N) A) -> (O) {\n  O(i) +=! A(i + j)\n}\n")(A[0]),
    "range_negative": lambda: polyc.compile(WINDOW)(A[0, :2], B[0]),
    "range_out_of_bounds": lambda: polyc.compile(WINDOW.replace("k(j)", "k(j + 1) where j in 0:K"))(A[0], B[0, :2]),
    "argument_size": lambda: polyc.compile(MM)(A, A),
    "argument_type": lambda: polyc.compile(MM)(A, B.astype(np.float64)),
    "argument_out": lambda: polyc.compile(MM)(A, B, out=np.empty((5, 3), np.float32)),
    "bounds": lambda: polyc.compile(LOOK)(A[0], np.array([0, 9], np.int32)),
    "function": lambda: polyc.op(FUNCTION),
    "einsum_size": lambda: polyc.einsum("ij,jk->ik", A, A),
    "einsum_subscripts": lambda: polyc.einsum("ij;jk>ik", A, B),
    "long_line": lambda: polyc.compile(MM.replace("A(m, k)", "1.0 * " * 50 + "Q(m, k)" + " + 1.0" * 50)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error_text(name: str, pytestconfig: pytest.Config) -> None:
    with warnings.catch_warnings(), pytest.raises(polyc.PolycError) as caught:
        warnings.simplefilter("ignore", polyc.PolycWarning)
        ERRORS[name]()
    compare_golden(f"errors/{name}.txt", f"{type(caught.value).__name__}\n{caught.value}", pytestconfig)


@pytest.mark.parametrize("verb", ["", "compile", "run", "explain", "bench", "doctor", "calibrate", "cache"])
def test_help(verb: str, pytestconfig: pytest.Config) -> None:
    done = CliRunner().invoke(main, [*verb.split(), "--help"], terminal_width=100, prog_name="polyc")
    assert done.exit_code == 0
    compare_golden(f"help/{verb or 'polyc'}.txt", done.stdout, pytestconfig)
