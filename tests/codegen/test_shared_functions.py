"""Parallel loops that do the same to other arrays are one function."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyc

SIZES = {"M": 96, "N": 160, "K": 224}


def products(factor: str = ""):
    """Two products of one matrix, the second one times a factor."""
    return polyc.compile(f"""
    def products(float(M, K) X, float(N, K) A, float(N, K) B) -> (Y, Z) {{
      Y(m, n) +=! X(m, k) * A(n, k)
      Z(m, n) +=! X(m, k) * B(n, k){factor}
    }}""")


def outlined_products(text: str) -> int:
    """How many outlined functions multiply and add."""
    parts = re.split(r"\n(?=define )", text)
    return sum(".body" in part.split("(")[0] and "@llvm.fma" in part for part in parts)


@pytest.mark.parametrize(("sizes", "forms"), [({}, 2), (SIZES, 1)])
def test_products_of_one_shape_share_their_code(sizes, forms):
    """With symbolic strides there is a form for any of them and one for rows without gaps."""
    assert outlined_products(products().lower(**sizes).as_text("ll")) == forms
    assert outlined_products(products(" * 2.0").lower(**sizes).as_text("ll")) == 2 * forms


@pytest.mark.parametrize("factor", ["", " * 2.0"])
def test_shared_code_writes_the_results_of_each_product(factor):
    rng = np.random.default_rng(0)
    x, a, b = (rng.standard_normal(s).astype(np.float32) for s in ((96, 224), (160, 224), (160, 224)))
    y, z = products(factor)(x, a, b)
    np.testing.assert_allclose(y, x @ a.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(z, (x @ b.T) * (2 if factor else 1), rtol=1e-4, atol=2e-4)
