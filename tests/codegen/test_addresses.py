"""Addresses: what the elements of a tile share is added up once."""

from __future__ import annotations

import re

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
