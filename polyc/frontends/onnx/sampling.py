"""Reads of a tensor between its elements, at places that are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from polyc.frontends.onnx.terms import Operand, Term, call, cast, clamp, select
from polyc.ir.types import I64

Reader = Callable[..., Term]
"""The element at subscripts, which are inside."""


def sample_linear(read: Reader, places: Sequence[Term], extents: Sequence[int]) -> Term:
    """The multilinear interpolation at `places`; elements outside of `extents` are 0."""
    low = [call("floor", p) for p in places]
    parts = [p - f for p, f in zip(places, low, strict=True)]
    first = [cast(f, I64) for f in low]
    total: Term | None = None
    for corner in product((0, 1), repeat=len(places)):
        weight: Operand = 1
        for part, up in zip(parts, corner, strict=True):
            weight = (part if up else 1 - part) * weight
        value = read_or_zero(read, [f + up for f, up in zip(first, corner, strict=True)], extents) * weight
        total = value if total is None else total + value
    assert total is not None
    return total


def read_or_zero(read: Reader, subscripts: Sequence[Term], extents: Sequence[int]) -> Term:
    """The element at computed `subscripts`; 0 where they are outside of `extents`."""
    if 0 in extents:
        raise ValueError("an empty tensor is not sampled")
    inside: Term | None = None
    for s, n in zip(subscripts, extents, strict=True):
        held = (s >= 0) & (s < n)
        inside = held if inside is None else inside & held
    value = read(*(clamp(s, 0, n - 1) for s, n in zip(subscripts, extents, strict=True)))
    return value if inside is None else select(inside, value, 0)
