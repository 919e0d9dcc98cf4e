"""Addresses: what the elements of a tile share is added up once."""

from __future__ import annotations

import re

import numpy as np

import polyc

TRANSPOSE = "def transpose(float(A, B, C, D) X) -> (Y) { Y(d, a, b, c) = X(a, b, c, d) }"


def test_rows_of_a_block_share_the_address_of_its_place():
    """For any sizes: each of 8 rows read, and of 8 written, adds its own stride and the innermost variable to the sum of the
    variables around, in full blocks and in partial ones."""
    text = polyc.compile(TRANSPOSE, target="x86-64-v3").lower().as_text("ll")
    bodies = [part for part in re.split(r"\n(?=define )", text) if "unit.body" in part and "shufflevector" in part]
    assert bodies
    for body in bodies:
        assert body.count("getelementptr") <= 5 * 16


PLANES = """
def planes(float(P, M, N) X) -> (Y) {{ Y(i, j) = {} }}"""


def rows_computed_anew(planes: int, **options) -> int:
    """Rows of loops whose variable LLVM knows nothing of."""
    terms = " + ".join(f"X({p}, i, j)" for p in range(planes))
    text = polyc.compile(PLANES.format(terms), target="x86-64-v3", **options).lower().as_text("ll")
    return text.count('asm "", "=r,0"(i64')


def test_many_rows_as_far_apart_as_the_call_says_are_not_stepped_on_one_by_one():
    """LLVM stepped an address for each of 16 planes of products on with every row, in memory: 62 additions for a row of a
    filtered convolution, a twentieth of its time."""
    assert rows_computed_anew(4) == 0
    assert rows_computed_anew(16) > 0


def test_rows_of_known_distances_are_one_address():
    sizes = {"P": 16, "M": 40, "N": 50}
    assert rows_computed_anew(16, sizes=sizes) == 0


def test_rows_that_are_computed_anew_are_the_same_rows():
    terms = " + ".join(f"X({p}, i, j)" for p in range(16))
    operator = polyc.compile(PLANES.format(terms), target="x86-64-v3", dynamic=True)
    for shape in ((16, 5, 7), (17, 1, 33), (16, 0, 3), (16, 3, 64)):
        x = np.random.default_rng(1).random(shape, np.float32)
        np.testing.assert_allclose(operator(x), x[:16].sum(0), rtol=1e-5)
        np.testing.assert_allclose(operator(x[:, :, ::-1]), x[:16, :, ::-1].sum(0), rtol=1e-5)
