"""Operands of short sums: which lie along the index of vectors then, and that the results stay."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.loops import Loop, known_length
from polyc.ir.walk import walk_nodes
from polyc.machine import X86_64_V4
from polyc.scheduler.rewriting.rules.turned_operands import turn_operands
from tests.scheduler.support import check, infer, read, statements

HEAD = "def f(float(H,W) X, float(N,K) V) -> (Y) { "
SIZES = {"H": 20, "W": 80, "N": 37, "K": 6}
GIVEN = HEAD + "Y(i,j) +=! V(j,k) * X(i,2*j+k) }"
MADE = "def f(float(H,W) X) -> (Y) { V(j,k) = cos(j * k) where j in 0:37, k in 0:6  Y(i,j) +=! V(j,k) * X(i,2*j+k) }"

OTHERS = {
    "a product of matrices": "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }",
    "long sums": GIVEN,
    "along vectors": HEAD + "Y(i,k) +=! V(j,k) * X(i,2*k+j) }",
    "read once": "def f(float(N,K) V, float(W) X) -> (Y) { Y(j) +=! V(j,k) * X(2*j+k) }",
    "no other index": "def f(float(N,K) V) -> (Y) { Y +=! V(j,k) }",
}


def test_an_input_is_copied_where_it_is_read_often() -> None:
    new, _, remarks = turn_operands(*infer(read(GIVEN), **SIZES), X86_64_V4)
    assert statements(new) == [
        "S0_V_turned(k, j): V.turned[k, j] = V[j, k]",
        "S0(i, j, k): Y[i, j] += V.turned[k, j] * X[i, 2 * j + k] init 0.0",
    ]
    assert [r.pass_name for r in remarks] == ["turn-operands"]


def test_a_temporary_has_another_layout_wherever_it_is_read() -> None:
    new, ranges, _ = turn_operands(*infer(read(MADE), H=20, W=80), X86_64_V4)
    lines = [line for line in statements(new) if line.startswith("S")]
    assert [line.split(": ")[1][:7] for line in lines] == ["V[k, j]", "Y[i, j]"]
    assert [i.extent.value for i in ranges.tensors["V"]] == [6, 37]


@pytest.mark.parametrize("name", OTHERS)
def test_what_stays(name: str) -> None:
    sizes = {**SIZES, "K": 100 if name == "long sums" else 6, "W": 200, "M": 30}
    program, ranges = infer(read(OTHERS[name]), **sizes)
    assert turn_operands(program, ranges, X86_64_V4) == (program, ranges, [])


def test_a_short_sum_is_no_vector_where_columns_are_many() -> None:
    """Weights of resizing by columns: the pass had vectors along the taps, and added up their lanes for each pixel."""
    lowered = check(MADE, {"H": 20, "W": 80}, target=X86_64_V4)
    vectors = [n for n in walk_nodes(lowered.nest.body) if isinstance(n, Loop) and n.kind == "vector"]
    assert vectors and not any(known_length(n) == 6 for n in vectors)


@pytest.mark.parametrize("k", [1, 2, 5, 17])
@pytest.mark.parametrize("target", ["host", "x86-64-v2"])
def test_results_at_any_size(target: str, k: int) -> None:
    rng = np.random.default_rng(k)
    f = polyc.compile("def f(float(C,H,W) X, float(N,K) V) -> (Y) { Y(c,i,j) +=! V(j,k) * X(c,i,j/2+k) }", target=target)
    for n in (0, 1, 7, 16, 33):
        x, v = rng.random((2, 9, n // 2 + k + 1), np.float32), rng.random((n, k), np.float32)
        places = np.arange(n)[:, None] // 2 + np.arange(k)
        np.testing.assert_allclose(f(x, v), (x[:, :, places] * v).sum(-1), rtol=1e-5)
