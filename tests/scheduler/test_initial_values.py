"""Elements of a result that no term of a sum reaches have its initial value, whatever the sum is rewritten as."""

from __future__ import annotations

import pytest

from tests.scheduler.support import check

PARTLY_REACHED = {
    "factors": "def f(float(N,K) A, float(N,K) B, float(N) c) -> (float(60) Y) { Y(n) +=! A(n,k) * B(n,k) * c(n) }",
    "phases": "def f(float(N,K) A, float(2,4) B) -> (Y) { Y(2*n,2*k+q) +=! A(n,k+b) * B(q,b) }",
    "phases in front": "def f(float(K) A, float(2,4) B) -> (float(200) Y) { Y(2*k+q) +=! A(k+b) * B(q,b) }",
    "transposed windows": "def f(float(N,K) A, float(N,3) B) -> (float(200) Y) { Y(2*k+q) +=! A(n,k) * B(n,q) }",
    "components": "def f(float(N,3) A) -> (Y) { Y(2*n) +=! A(n,(k+1)%3) where k in 0:3 }",
    "components in front": "def f(float(N,3) A) -> (float(60) Y) { Y(n) max=! A(n,(k+1)%3) where k in 0:3 }",
    "components between": """def f(float(N,3) A) -> (Y) {
        T(n,2*k) max=! A(n,(k+1)%3) * A(n,k) where k in 0:2, n in 0:N
        Y(n) max=! T(n,l) }""",
    "positions": "def f(float(N,K) A) -> (int64(60) Y) { Y(n) argmax=! A(n,k) }",
    "moments": """def f(float(N,K) A) -> (float(60) v) {
        m(n) +=! A(n,k) / 64.0
        v(n) +=! (A(n,k) - m(n)) * (A(n,k) - m(n)) }""",
    "monoids": """monoid largest(float a, float b) -> (c = -inf) { c = a > b ? a : b }
        def f(float(N,K) A) -> (float(60) Y) { Y(n) largest=! (A(n,k)) }""",
    "windows": "def f(float(N,K) A) -> (float(60,70) Y) { Y(n,k) max=! A(n+r,k+s) where r in 0:7, s in 0:7 }",
}


@pytest.mark.parametrize("name", PARTLY_REACHED)
def test_what_no_term_reaches_has_the_initial_value(name: str):
    check(PARTLY_REACHED[name], {n: s for n, s in {"N": 40, "K": 64}.items() if n in PARTLY_REACHED[name].rpartition("->")[0]})
