"""Vectors of sums over rows begin at cache lines, by one masked vector in front (`polyc.codegen.emission.peeling`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc

from .support import LEVELS
from .test_shuffles import Fenced
from .test_streams import at_offset

PRODUCT = "def f({t}(N, M) A, {t}(M) x) -> (y) {{ y(i) +=! A(i, j) * x(j) }}"
INSIDE = "def f({t}(N, M) A, {t}(M) x) -> (y) {{ y(i) +=! A(i, j) * x(j) where j in 3:M-2 }}"
SCALED = "def f({t}(N, M) A, {t}(M) x) -> (y) {{ z(j) = 2 * x(j)  y(i) +=! A(i, j) * z(j) }}"
OFFSETS = (0, 8, 16, 40, 56)
V4 = pytest.mark.skipif("x86-64-v4" not in LEVELS, reason="runs on processors with AVX-512")


def is_aligned(rows: int, columns: int, dtype: str = "float64", **options: Any) -> bool:
    """Whether the code of a matrix-vector product asks where the matrix begins."""
    source = PRODUCT.format(t={"float64": "double", "float32": "float"}[dtype])
    given = np.zeros((rows, columns), dtype), np.zeros(columns, dtype)
    lowered = polyc.compile(source, **{"target": "x86-64-v4", **options}).lower(*given)
    return "ptrtoint" in lowered.llvm_ir


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "options", "aligned"),
    [
        (200, 200, "float64", {}, True),
        (200, 208, "float32", {}, True),
        (200, 200, "float64", {"dynamic": True}, True),
        (200, 200, "float32", {}, False),  # every other row begins at the middle of a line
        (200, 24, "float64", {}, False),  # short rows
        (1024, 1024, "float64", {}, False),  # beyond the second-level cache
        (200, 200, "float64", {"target": "x86-64-v3"}, False),  # a mask is no vector
        (200, 200, "float64", {"reassociate": False}, False),
    ],
)
def test_rows_in_near_caches_begin_at_lines(rows, columns, dtype, options, aligned):
    assert is_aligned(rows, columns, dtype, **options) is aligned


@V4
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("source", [PRODUCT, INSIDE, SCALED], ids=["product", "inside", "scaled"])
@pytest.mark.parametrize(("dtype", "name"), [("float32", "float"), ("float64", "double"), ("int32", "int32")])
def test_sums_have_the_same_bits_wherever_arrays_begin(source, dtype, name, dynamic):
    operator, rng = polyc.compile(source.format(t=name), target="x86-64-v4", dynamic=dynamic), np.random.default_rng(0)
    for columns in (128, 200, 208, 240) if dynamic else (208,):
        A, x = ((100 * rng.standard_normal(shape)).astype(dtype) for shape in ((9, columns), (columns,)))
        results = []
        for offset in OFFSETS:
            moved = at_offset(A.shape, offset, dtype)
            moved[...] = A
            results.append(operator(moved, x))
        inside = slice(3, columns - 2) if source is INSIDE else slice(None)
        terms = (2 if source is SCALED else 1) * A[:, inside].astype("f8") * x[inside].astype("f8")
        np.testing.assert_allclose(results[0], terms.sum(axis=1), rtol=0, atol=1e-6 * np.abs(terms).sum(axis=1).max())
        assert len({r.tobytes() for r in results}) == 1


@V4
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("columns", [128, 136, 200])
@pytest.mark.parametrize("at_end", [False, True])
def test_vectors_in_front_of_rows_read_nothing_outside(columns, dynamic, at_end):
    operator = polyc.compile(PRODUCT.format(t="double"), target="x86-64-v4", dynamic=dynamic)
    rng = np.random.default_rng(columns)
    A, x = at_offset((5, columns), 16, "float64"), Fenced().place(rng.standard_normal(columns), at_end)
    A[...] = rng.standard_normal(A.shape)
    np.testing.assert_allclose(operator(A, x), A @ x, rtol=1e-12, atol=1e-12)


@V4
@pytest.mark.parametrize("shape", [(0, 0), (0, 64), (4, 0), (4, 1), (5, 31), (4, 64)])
def test_the_kernel_for_any_sizes_has_short_rows(shape):
    A, x = (np.random.default_rng(0).standard_normal(s) for s in (shape, shape[1:]))
    operator = polyc.compile(PRODUCT.format(t="double"), target="x86-64-v4", dynamic=True)
    np.testing.assert_allclose(operator(A, x), A @ x, rtol=1e-12, atol=1e-12)


@V4
@pytest.mark.parametrize("columns", [97, 200, 204, 207, 248])
def test_kernels_for_known_and_for_any_sizes_have_the_same_bits(columns):
    """Only one of them asks where rows begin that do not lie whole lines apart."""
    A, x = (np.random.default_rng(0).standard_normal(s) for s in ((5, columns), (columns,)))
    known, anyhow = (polyc.compile(PRODUCT.format(t="double"), target="x86-64-v4", dynamic=d)(A, x) for d in (False, True))
    np.testing.assert_array_equal(known, anyhow)
