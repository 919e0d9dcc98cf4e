"""Sums over the elements of segments start where they are made; what lies in no segment is neither written nor read."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import polyc
from polyc.runtime.threads import limited_to

BOTH = "where i in ptr(b):ptr(b+1), j in ptr(b):ptr(b+1)"
PROGRAMS = {
    "attention": f"""def f(float(T,D) X, int32(P) ptr) -> (Y) {{
        S(i,j) +=! X(i,d) * X(j,d) {BOTH}
        M(i) max=! S(i,j) {BOTH}
        L(i) +=! exp(S(i,j) - M(i)) {BOTH}
        Y(i,d) +=! exp(S(i,j) - M(i)) / L(i) * X(j,d) {BOTH} }}""",
    "pairs that other loops read whole": f"""def f(float(T,D) X, int32(P) ptr) -> (Y) {{
        S(i,j) +=! X(i,d) * X(j,d) {BOTH}
        R(i) max=! S(i,j)
        Y(i,d) = R(i) + X(i,d) }}""",
    "largest of others": f"""def f(float(T,D) X, int32(P) ptr) -> (Y) {{
        S(i,j) +=! X(i,d) * X(j,d) {BOTH}
        M(i) max=! S(i,j) {BOTH}
        Y(i,d) = (M(i) > -1e30 ? M(i) : 0.0) + X(i,d) }}""",
}


def loops(name: str, X: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    T = len(X)
    S, Y = np.zeros((T, T)), np.zeros(X.shape)
    M = np.full(T, -np.inf)
    for b, e in pairwise(ptr):
        for i in range(b, e):
            S[i, b:e] = X[b:e] @ X[i]
            M[i] = S[i, b:e].max()
            w = np.exp(S[i, b:e] - M[i])
            Y[i] = w / w.sum() @ X[b:e]
    if name == "attention":
        return Y
    if name == "largest of others":
        return np.where(M > -1e30, M, 0.0)[:, None] + X
    return S.max(axis=1, initial=-np.inf)[:, None] + X


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_segments_of_every_length(name: str, dynamic: bool):
    f, rng = polyc.compile(PROGRAMS[name], dynamic=dynamic), np.random.default_rng(7)
    for ptr in ([0, 5, 5, 19, 23], [3, 3, 4, 17, 20], [0, 0, 23, 23, 23], [11, 11, 11, 11, 11]):
        X = rng.standard_normal((23, 3)).astype(np.float32)
        for threads in (1, 2):
            with limited_to(threads):
                result = f(X, np.array(ptr, np.int32))
            np.testing.assert_allclose(result, loops(name, X, np.array(ptr)), rtol=1e-4, atol=1e-4)


def test_no_tokens_at_all():
    f = polyc.compile(PROGRAMS["attention"])
    assert f(np.empty((0, 3), np.float32), np.zeros(3, np.int32)).shape == (0, 3)


def initial_values(name: str) -> list[str]:
    """The statements that give elements their initial values, without those in registers."""
    operator = polyc.compile(PROGRAMS[name], target="x86-64-v4", disable="one-segment")
    lowered = operator.lower(np.empty((992, 64), np.float32), np.zeros(6, np.int32))
    return [line.strip() for line in lowered.as_text("loops").splitlines() if "// init_" in line]


def test_only_what_is_read_starts():
    assert initial_values("attention") == ["Y[c1, c2] = 0.0;  // init_S3"]  # the result
    assert initial_values("pairs that other loops read whole") == ["S[c0, c1] = 0.0;  // init_S0"]
    assert initial_values("largest of others") == ["M[c0] = -inf;  // init_S1"]
