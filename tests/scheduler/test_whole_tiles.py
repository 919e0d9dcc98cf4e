"""Sums into parts of temporaries: which are computed for whole register tiles, and that results stay."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyc
from polyc.machine import X86_64_V2, X86_64_V3, X86_64_V4, Machine
from polyc.poly.extraction import extract_scop
from polyc.runtime.threads import limited_to
from polyc.scheduler.rewriting.needed_instances import complete_tiles
from tests.oracle.programs import agree, draw
from tests.scheduler.support import check_nest, infer, lower, read, statements

HEAD = "def f(float(N,K) A, float(N,K) B) -> (e) { "
SCORES = """def f(float(S,D) Q, float(S,D) K, float(S,D) V) -> (O) {{
  P(i, j) +=! Q(i, d) * K(j, d) where {0}
  M(i) max=! P(i, j) where {0}
  Z(i) +=! exp(P(i, j) - M(i)) where {0}
  A(i, e) +=! exp(P(i, j) - M(i)) * V(j, e) where {0}
  O(i, e) = A(i, e) / Z(i)
}}"""

WHOLE = {
    "causal": SCORES.format("j <= i"),
    "band": SCORES.format("j <= i + 9, j >= i - 5"),
    "band below": SCORES.format("j <= i, j >= i - 7"),
    "pairs": HEAD + "G(i,j) +=! A(i,k) * A(j,k) where j < i  e(i) +=! G(i,j) * G(i,j) where j < i }",
    "above": HEAD + "G(i,j) +=! A(i,k) * B(j,k) where j > i  e(i) max=! G(i,j) where j > i }",
    "doubles": (HEAD + "G(i,j) +=! A(i,k) * B(j,k) where i >= j  e(j) max=! G(i,j) where i >= j }").replace("float", "double"),
    "from one on": HEAD
    + "G(i,j) +=! A(i,k) * B(j,k) where j <= i, i in 2:N-1, j in 1:N  e(i) +=! G(i,j) where j <= i, j in 1:N, i in 2:N-1 }",
}

OTHERS = {
    "a result": HEAD.replace("(e)", "(G)") + "G(i,j) +=! A(i,k) * B(j,k) where j <= i }",
    "the rest is read": HEAD + "G(i,j) +=! A(i,k) * B(j,k) where j <= i  e(i) +=! G(i,j) }",
    "a longer sum in each row": HEAD + "G(i,j) +=! A(i,k) * B(j,k) where k <= i  e(i) max=! G(i,j) }",
    "an operand has no value there": """def f(float(N,K) A, float(N,N) B) -> (e) {
      T(i,k) = A(i,k) + 1.0 where k <= i, k in 0:K, i in 0:N
      G(i,j) +=! T(i,0) * B(j,i) where j <= i
      H(i,j) +=! T(i + 0*j,0) * B(j,k) where j <= i, k <= i
      e(i) max=! G(i,j) + H(i,j) where j <= i
    }""",
    "it goes into an operand": """def f(float(N,K) A, float(N,K) B) -> (x) {
      G(i,j) +=! x(j,k) * B(i,k) where j < i, j in 0:N
      s(i) +=! G(i,j) where j < i
      x(i,k) = A(i,k) - s(i)
    }""",
    "a diagonal": HEAD + "G(i,j) +=! A(i,k) * B(j,k) where i <= j, i >= j  e(i) max=! G(i,i) }",
}


def complete(text: str, target: Machine = X86_64_V4, **sizes: int):
    return complete_tiles(extract_scop(*infer(read(text), **sizes)), target)


def test_a_triangle_ends_with_its_tiles():
    program, _, remarks = complete(WHOLE["causal"], S=200, D=32)
    assert statements(program)[0].startswith("S0(i, j, d): P[i, j] += Q[i, d] * K[j, d]")
    clause = re.fullmatch(r"where .*\(i // (\d+)\).*\(j // (\d+)\)", statements(program)[1])
    assert clause is not None
    (remark,) = remarks
    assert remark.message.startswith(f"computed for whole tiles of i {clause[1]} x j {clause[2]}: 1.")


def test_a_triangle_that_one_tile_covers_has_no_condition():
    program, _, (remark,) = complete(WHOLE["causal"], S=40, D=32)
    assert program.statements[0].where == ()
    assert remark.message.endswith("2 products for each that is read")


@pytest.mark.pairs
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("target", [X86_64_V2, X86_64_V3, X86_64_V4], ids=lambda t: t.name)
@pytest.mark.parametrize("n", [30, 75])
def test_every_form(name: str, target: Machine, n: int):
    sizes = {"S": n, "D": 8, "N": n, "K": 8}
    lowered = lower(WHOLE[name], sizes, target=target)
    assert any(r.pass_name == "whole-tiles" for r in lowered.remarks)
    check_nest(lowered, sizes)


@pytest.mark.parametrize("name", OTHERS)
def test_what_stays(name: str):
    assert complete(OTHERS[name], N=100, K=40)[2] == []


def test_sums_of_unknown_extent_stay():
    lowered = polyc.compile(WHOLE["causal"], dynamic=True).lower(*[("f32", (60, 32))] * 3)
    assert not any(r.pass_name == "whole-tiles" for r in lowered.remarks)


def test_tiles_along_a_narrow_band_stay():
    assert complete(SCORES.format("j <= i, j >= i - 1"), S=400, D=64)[2] == []


@pytest.mark.parametrize("name", WHOLE)
def test_compiled(name: str):
    op = polyc.compile(WHOLE[name])
    for n in (5, 64, 129):
        known = {"S": n, "D": 5, "N": n, "K": 5}
        sizes = {size: known[size] for size in op.program.sizes}
        for threads in (1, 2):
            with limited_to(threads):
                agree(op, draw(op, sizes), sizes)


@pytest.mark.parametrize("n", [20, 70])
def test_what_stands_beside_a_triangle_is_in_no_result(n: int):
    """Products of later rows are computed and may be NaN: earlier results are made without them."""
    rng = np.random.default_rng(n)
    Q, K, V = (rng.standard_normal((n, 8), dtype=np.float32) for _ in range(3))
    op = polyc.compile(WHOLE["causal"])
    expected = op(Q, K, V)
    K[n // 2 :], V[n // 2 :] = np.nan, np.inf
    got = op(Q, K, V)
    np.testing.assert_array_equal(got[: n // 2], expected[: n // 2])
    assert np.isnan(got[n // 2 :]).all()
