"""Adjoints of products of a matrix with itself, and of triangles and bands of such products: one product each."""

from __future__ import annotations

import numpy as np
import pytest

from polyc.frontends.tc import read_tc_with_warnings
from polyc.gradients import vjp
from polyc.ir.program import Program
from tests.gradients.helpers import RIGHT, Case, check_exactly, check_kernel

RANK_K = "def rank_k(double(N, M) A) -> (P) {{ P(i, j) +=! A(i, k) * A(j, k) where {} }}"

UNITED = {
    "whole": "def gram(double(N, M) A) -> (P) { P(i, j) +=! A(i, k) * A(j, k) }",
    "columns": "def gram(double(M, N) A) -> (P) { P(i, j) +=! A(k, i) * A(k, j) }",
    "lower triangle": RANK_K.format("j <= i"),
    "upper triangle": RANK_K.format("j >= i"),
    "band": RANK_K.format("j <= i + 1, i <= j + 1"),
    "band beside the diagonal": RANK_K.format("j >= i - 1, j <= i + 2"),
    "rank 2k": """
def rank_2k(double(N, M) A, double(N, M) B) -> (P) { P(i, j) +=! A(j, k) * B(i, k) + B(j, k) * A(i, k) where j <= i }
""",
    "batch": "def gram(double(B, N, M) A) -> (P) { P(b, i, j) +=! A(b, i, k) * A(b, j, k) where j <= i }",
    "two sums": "def gram(double(N, M, K) A) -> (P) { P(i, j) +=! A(i, k, l) * A(j, k, l) where j <= i }",
    "square": "def square(double(N, N) A) -> (P) { P(i, j) +=! A(i, k) * A(k, j) }",
}

APART = {
    "triangle without its diagonal": RANK_K.format("j < i"),
    "conditions of the other factor": RANK_K.format("j <= k, i <= j"),
    "rows that begin elsewhere": "def lagged(double(N, M) A) -> (P) { P(i, j) +=! A(i, k) * A(j + 1, k) where j in 0:N-1 }",
    "windows": "def windows(double(N) x) -> (P) { P(i, j) +=! x(i + k) * x(j + k) where k in 0:2 }",
    "data": "def some(double(N, M) A, int64(N) n) -> (P) { P(i, j) +=! n(i) > 0 ? A(i, k) * A(j, k) : 0.0 }",
    "vectors": "def form(double(N, N) A, double(N) x) -> (P) { P +=! x(i) * A(i, j) * x(j) }",
}

LEAST = {"windows": 2, "rows that begin elsewhere": 1}


def program_of(name: str) -> Program:
    return read_tc_with_warnings((UNITED | APART)[name]).programs[0]


def case_of(name: str, n: int) -> Case:
    rng, program, arrays = np.random.default_rng(n), program_of(name), {}
    sizes = {"N": n, "M": 3, "K": 2, "B": 2}
    for p in program.parameters:
        t = program.tensor(p)
        shape = tuple(sizes[getattr(e, "name", "")] for e in t.shape or ())
        arrays[p] = rng.standard_normal(shape) if t.dtype.is_float else rng.integers(0, 2, shape)
    return Case(program, {s: sizes[s] for s in program.sizes}, arrays, {})


@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize("name", UNITED | APART)
def test_adjoints_of_products_with_a_common_factor_are_exact(name: str, n: int) -> None:
    assert check_exactly(case_of(name, max(n, LEAST.get(name, 0)))).reverse == RIGHT


@pytest.mark.parametrize("name", ["lower triangle", "band", "square"])
def test_kernels_of_such_adjoints_compute_what_the_interpreter_does(name: str) -> None:
    assert check_kernel(case_of(name, 37)) == RIGHT


@pytest.mark.parametrize("name", UNITED)
def test_a_matrix_that_is_both_operands_has_one_product_in_its_adjoint(name: str) -> None:
    program = program_of(name)
    made = vjp(program, ("A",))
    sums = [s for s in made.statements if s.reduction_indices and s.target.startswith("d_A")]
    assert len(sums) == (2 if name == "square" else 1), str(made)
