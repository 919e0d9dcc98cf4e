"""Symmetric results: which are computed for one half, that the other half is their mirror image, and that values stay."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import polyc
from polyc.machine import X86_64_V3, X86_64_V4, Machine
from polyc.runtime.threads import limited_to
from polyc.scheduler import symmetric_results
from tests.oracle.programs import agree, draw
from tests.scheduler.support import check_nest, infer, lower, read, run_pass, statements

COVARIANCE = """def f(double(K,N) X) -> (C) {
  P(i,j) +=! X(k,i) * X(k,j)
  C(i,j) = P(i,j) / (K - 1.0)
}"""

HALVED = {
    "columns": "def f(double(K,N) X) -> (C) { C(i,j) +=! X(k,i) * X(k,j) }",
    "rows": "def f(float(N,K) X) -> (C) { C(i,j) +=! X(i,k) * X(j,k) }",
    "covariance": COVARIANCE,
    "correlation": """def f(double(K,N) X, double(N) s) -> (C) {
      P(i,j) +=! X(k,i) * X(k,j)
      C(i,j) = i == j ? 1.0 : P(i,j) / (s(i) * s(j))
    }""",
    "weights": "def f(float(N,K) X, float(K) w) -> (C) { C(i,j) +=! w(k) * X(i,k) * X(j,k) }",
    "batches": "def f(float(B,N,K) X) -> (C) { C(b,i,j) +=! X(b,i,k) * X(b,j,k) }",
    "distances": """def f(float(N,K) X) -> (G) {
      D(i,j) +=! (X(i,k) - X(j,k)) * (X(i,k) - X(j,k))
      G(i,j) = exp(-D(i,j))
    }""",
    "largest differences": "def f(float(N,K) X) -> (C) { C(i,j) max=! fabs(X(i,k) - X(j,k)) }",
    "two products": "def f(float(N,K) X, float(N,K) Y) -> (C) { C(i,j) +=! X(i,k) * Y(j,k) + Y(i,k) * X(j,k) }",
    "a square of a symmetric matrix": """def f(float(N,K) X) -> (S) {
      C(i,j) +=! X(i,k) * X(j,k)
      S(i,j) +=! C(i,k) * C(k,j)
    }""",
    "also read in rows": """def f(float(N,K) X, float(N) v) -> (y) {
      C(i,j) +=! X(i,k) * X(j,k)
      y(i) +=! C(i,j) * v(j)
    }""",
    "the element across": """def f(float(N,K) X) -> (T) {
      C(i,j) +=! X(i,k) * X(j,k)
      T(i,j) = C(j,i) * 2.0
    }""",
    "from one on": "def f(float(N,K) X) -> (C) { C(i,j) +=! X(i,k) * X(j,k) where i in 1:N, j in 1:N }",
    "in whole numbers": "def f(int32(N,K) X) -> (C) { C(i,j) +=! X(i,k) * X(j,k) }",
}
SIZES = {"N": 40, "K": 9, "B": 2}

OTHERS = {
    "two operands": "def f(double(K,N) X, double(K,N) Y) -> (C) { C(i,j) +=! X(k,i) * Y(k,j) }",
    "a result of other extents": "def f(double(K,N) X) -> (C) { C(i,j) +=! X(k,i) * X(k,j) where j in 0:N-1 }",
    "a triangle already": "def f(double(K,N) X) -> (C) { C(i,j) +=! X(k,i) * X(k,j) where j <= i }",
    "a start that is not symmetric": "def f(double(K,N) X) -> (C) { C(i,j) += X(k,i) * X(k,j) }",
    "a step of a recurrence": """def f(double(N,N) A) -> (S) {
      S(0,i,j) = A(i,j)
      P(t,i,j) +=! S(t,i,k) * S(t,j,k) where t in 0:3
      S(t+1,i,j) = P(t,i,j) where t in 0:3
    }""",
    "rows that data names": "def f(double(M,K) X, int32(N) p) -> (C) { C(i,j) +=! X(p(i),k) * X(p(j),k) }",
}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sums are halved whatever that saves."""
    monkeypatch.setattr(symmetric_results, "CLEARLY", 1e9)
    yield


def halve(text: str, **sizes: int):
    return run_pass("symmetric-results", *infer(read(text), **{n: sizes.get(n, SIZES.get(n, 3)) for n in read(text).sizes}))


@pytest.mark.usefixtures("always")
def test_what_is_made_of_a_half_is_made_for_the_half_and_mirrored():
    program, _, (remark,) = halve(COVARIANCE)
    assert remark.message.startswith("P is symmetric in i and j: about ")
    assert [line.split(":")[0] for line in statements(program)] == ["S0(i, j, k)", "S1(i, j)", "S1_mirror(i, j)"]
    assert statements(program)[2].endswith("C[i, j] = C[j, i]")


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", HALVED)
def test_what_is_halved(name: str):
    assert halve(HALVED[name])[2]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", OTHERS)
def test_what_stays(name: str):
    assert halve(OTHERS[name])[2] == []


def test_results_of_few_tiles_and_of_short_sums_stay():
    assert halve(HALVED["columns"], N=200, K=200)[2] != []
    assert halve(HALVED["columns"], N=20, K=200)[2] == halve(HALVED["columns"], N=200, K=8)[2] == []


@pytest.mark.usefixtures("always")
@pytest.mark.each
@pytest.mark.parametrize("name", HALVED)
@pytest.mark.parametrize("target", [X86_64_V3, X86_64_V4], ids=lambda t: t.name)
@pytest.mark.parametrize("n", [37, 64])
def test_every_form(name: str, target: Machine, n: int):
    sizes = SIZES | {"N": n}
    lowered = lower(HALVED[name], sizes, target=target)
    assert any(r.pass_name == "symmetric-results" for r in lowered.remarks)
    check_nest(lowered, sizes)


@pytest.mark.usefixtures("always")
@pytest.mark.each
@pytest.mark.parametrize("name", HALVED)
@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled(name: str, is_dynamic: bool, threads: int):
    op = polyc.compile(HALVED[name], dynamic=is_dynamic)
    with limited_to(threads):
        for n in (73, 1, 48) if "1:N" in HALVED[name] else (73, 0, 1, 48):
            sizes = {size: n if size == "N" else SIZES[size] for size in op.program.sizes}
            got = agree(op, draw(op, sizes), sizes)
            (result,) = got.values()
            if result.ndim > 1:
                np.testing.assert_array_equal(result, np.swapaxes(result, -1, -2))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "value", ["X(k,i) * X(k,j)", "X(k,i) * X(k,j) where i + j < 40", "X(k,i) * X(k,j) where k < i + j - 9"]
)
def test_elements_without_a_term_have_their_start_in_both_halves(value: str):
    op = polyc.compile(f"def f(double(K,N) X) -> (C) {{ C(i,j) +=! {value} }}")
    for depth in (0, 5):
        sizes = {"N": 37, "K": depth}
        agree(op, draw(op, sizes), sizes)
        assert any(r.pass_name == "symmetric-results" for r in op.lower(*draw(op, sizes)).remarks)


@pytest.mark.usefixtures("always")
def test_infinities_and_nan_reach_both_halves():
    x = np.random.default_rng(0).standard_normal((40, 90))
    x[3, 5], x[4, 80] = np.nan, np.inf
    with np.errstate(all="ignore"):
        expected = x.T @ x / 39.0
    got = polyc.compile(COVARIANCE)(x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_allclose(got, expected, rtol=1e-12)
