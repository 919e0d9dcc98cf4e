"""Operators that choose elements by their values, and caches that are written at positions that data gives."""

from __future__ import annotations

import numpy as np

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, cast, select
from polyc.ir.types import I32, I64

MOST_RANKED = 1024
"""Elements among which each is compared with each; more are sorted on the host."""


@operator("TopK")
def top_k_1(b: Builder, x: Value, *, k: int, axis: int = -1) -> tuple[Value, Value]:
    return choose_greatest(b, x, k, axis, largest=True)


@operator("TopK", since=10)
def top_k_10(b: Builder, x: Value, k: Value, *, axis: int = -1) -> tuple[Value, Value]:
    return choose_greatest(b, x, _single(b, k), axis, largest=True)


@operator("TopK", since=11)
def top_k(b: Builder, x: Value, k: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Value, Value]:
    return choose_greatest(b, x, _single(b, k), axis, largest=bool(largest))


def _single(b: Builder, k: Value) -> int:
    if k.size != 1:
        b.refuse(f"{k.size} numbers of elements")
    return b.integers(k)[0]


def choose_greatest(b: Builder, x: Value, k: int, axis: int, *, largest: bool) -> tuple[Value, Value]:
    """The `k` greatest (or least) elements along an axis, in order, and where they stand; NaN counts as the greatest number.

    An element's rank is the number of those that come before it: of equal ones, the first comes first."""
    axis = b.axis(axis, x.rank)
    n = x.shape[axis]
    if not 0 <= k <= n:
        b.refuse(f"{k} of {n} elements")
    if n > MOST_RANKED:
        b.refuse(f"{n} elements to choose from, which are sorted on the host")

    def at(i: tuple[Term, ...], place: Term) -> Term:
        return x[(*i[:axis], place, *i[axis + 1 :])]

    def exceeds(u: Term, v: Term) -> Term:
        found = u > v if largest else u < v
        if not x.dtype.is_float:
            return found
        first, second = (u, v) if largest else (v, u)
        return found | ((first != first) & (second == second))

    def precedes(*i: Term) -> Term:
        *element, other = i
        u, v = at(tuple(element), other), x[tuple(element)]
        is_before = exceeds(u, v) | (~exceeds(v, u) & (other < element[axis]))
        return select(is_before, cast(other * 0 + 1, I32), 0)

    ranks = b.reduce("add", x.shape, (n,), I32, precedes)
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])

    def place(*i: Term) -> Term:
        *element, other = i
        rank = ranks[(*element[:axis], other, *element[axis + 1 :])]
        return select(cast(rank, I64) == element[axis], other, 0)

    places = b.reduce("add", shape, (n,), I64, place)
    return b.map(shape, x.dtype, lambda *i: at(i, places[i])), places


@operator("TensorScatter")
def tensor_scatter(
    b: Builder, past: Value, update: Value, write_indices: Value | None = None, *, axis: int = -2, mode: str = "linear"
) -> Value:
    """The cache with `update` in place from a position on that is given for each batch; behind the end of a circular one comes
    its beginning."""
    axis = b.axis(axis, past.rank)
    if past.dtype != update.dtype or axis == 0 or past.rank != update.rank:
        b.refuse(f"an update of type {update.dtype.label} and shape {update.shape} along axis {axis}")
    n_new, n = update.shape[axis], past.shape[axis]

    def element(*i: Term) -> Operand:
        start: Operand = 0 if write_indices is None else cast(write_indices[i[0]], I64)
        position = i[axis] - start
        if mode == "circular":
            position = position % n
        is_new = (position >= 0) & (position < n_new)
        return select(is_new, update[(*i[:axis], position, *i[axis + 1 :])], past[i])

    return b.map(past.shape, past.dtype, element)


@operator("OptionalHasElement")
def optional_has_element(b: Builder, x: Value | None = None) -> Value:
    """Whether there is one: a tensor always is."""
    return b.array(np.array(x is not None))


@operator("OptionalGetElement")
def optional_get_element(b: Builder, x: Value) -> Value:
    return x
