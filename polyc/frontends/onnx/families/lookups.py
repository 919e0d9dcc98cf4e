"""Elements at positions that other tensors hold: looked up, and scattered."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.families.elementwise import require_one_type
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, cast, constant, maximum, select, wrap_index
from polyc.ir.types import I64

# --- Look-ups ---


@operator("Gather")
def gather(b: Builder, x: Value, positions: Value, *, axis: int = 0) -> Value:
    b.require_integer(positions)
    d = b.axis(axis, x.rank)
    end = d + positions.rank

    def body(*i: Term) -> Operand:
        return x[(*i[:d], wrap_index(positions[i[d:end]], x.shape[d]), *i[end:])]

    return b.map((*x.shape[:d], *positions.shape, *x.shape[d + 1 :]), x.dtype, body)


@operator("GatherElements")
def gather_elements(b: Builder, x: Value, positions: Value, *, axis: int = 0) -> Value:
    b.require_integer(positions)
    d = b.axis(axis, x.rank)
    if positions.rank != x.rank or any(m > n for e, (m, n) in enumerate(zip(positions.shape, x.shape, strict=True)) if e != d):
        b.refuse(f"positions of shape {positions.shape} for a tensor of shape {x.shape}")
    return b.map(positions.shape, x.dtype, lambda *i: x[(*i[:d], wrap_index(positions[i], x.shape[d]), *i[d + 1 :])])


@operator("GatherND")
def gather_nd(b: Builder, x: Value, positions: Value, *, batch_dims: int = 0) -> Value:
    width = positions.shape[-1] if positions.rank else 0
    if not positions.rank or batch_dims + width > x.rank or positions.shape[:batch_dims] != x.shape[:batch_dims]:
        b.refuse(f"positions of shape {positions.shape} for a tensor of shape {x.shape}")
    outer = positions.rank - 1
    shape = (*positions.shape[:-1], *x.shape[batch_dims + width :])

    def body(*i: Term) -> Operand:
        at = [wrap_index(positions[(*i[:outer], k)], x.shape[batch_dims + k]) for k in range(width)]
        return x[(*i[:batch_dims], *at, *i[outer:])]

    return b.map(shape, x.dtype, body)


@operator("OneHot", since=9)
def one_hot(b: Builder, positions: Value, depth: Value, values: Value, *, axis: int = -1) -> Value:
    """A position outside of the depth is nowhere."""
    n, rank = int(b.value(depth).reshape(-1)[0]), positions.rank + 1
    d = b.axis(axis, rank)
    shape = (*positions.shape[:d], n, *positions.shape[d:])

    def body(*i: Term) -> Operand:
        position = cast(positions[(*i[:d], *i[d + 1 :])], I64)
        return select((position == i[d]) | (position + n == i[d]), values[1], values[0])

    return b.map(shape, values.dtype, body)


# --- Scatters ---

_REDUCTIONS = {"add": "add", "mul": "mul", "max": "max", "min": "min"}


@operator("ScatterElements", "Scatter", since=9)
def scatter_elements(
    b: Builder, x: Value, positions: Value, updates: Value, *, axis: int = 0, reduction: str = "none"
) -> Value:
    require_one_type(b, x, updates)
    d = b.axis(axis, x.rank)
    if positions.rank != x.rank or positions.shape != updates.shape:
        b.refuse(f"positions of shape {positions.shape} and updates of shape {updates.shape}")

    def place(*r: Term) -> Sequence[Operand]:
        return (*r[:d], wrap_index(positions[r], x.shape[d]), *r[d + 1 :])

    if reduction != "none":
        return b.accumulate(_operation(b, reduction, x), x, updates.shape, place, lambda *r: updates[r])
    nobody = b.map(x.shape, I64, lambda *i: constant(-1, I64))
    winner = b.accumulate("max", nobody, updates.shape, place, lambda *r: r[d])
    # Where a position is written twice the last update stays.

    def body(*i: Term) -> Operand:
        last = winner[i]
        inside = _all(b, [e < m for k, (e, m) in enumerate(zip(i, updates.shape, strict=True)) if k != d and m < x.shape[k]])
        update = updates[(*i[:d], maximum(last, 0), *i[d + 1 :])]
        hit = last >= 0 if inside is None else inside & (last >= 0)
        return select(hit, update, x[i])

    return b.map(x.shape, x.dtype, body) if updates.size else x


@operator("ScatterND", since=11)
def scatter_nd(b: Builder, x: Value, positions: Value, updates: Value, *, reduction: str = "none") -> Value:
    require_one_type(b, x, updates)
    width = positions.shape[-1] if positions.rank else 0
    if not 0 < width <= x.rank or updates.shape != (*positions.shape[:-1], *x.shape[width:]):
        b.refuse(f"positions of shape {positions.shape} and updates of shape {updates.shape}")
    outer = positions.rank - 1

    def place(*r: Term) -> list[Operand]:
        return [wrap_index(positions[(*r[:outer], k)], x.shape[k]) for k in range(width)]

    if reduction != "none":
        op = _operation(b, reduction, x)
        return b.accumulate(op, x, updates.shape, lambda *r: (*place(*r), *r[outer:]), lambda *r: updates[r])
    count = prod(positions.shape[:-1])
    if not count:
        return x
    rows = b.view(positions, (count, width))
    news = b.view(updates, (count, *x.shape[width:]))
    nobody = b.map(x.shape[:width], I64, lambda *i: constant(-1, I64))
    winner = b.accumulate(
        "max", nobody, (count,), lambda r: [wrap_index(rows[r, k], x.shape[k]) for k in range(width)], lambda r: r
    )

    def body(*i: Term) -> Operand:
        last = winner[i[:width]]
        return select(last >= 0, news[(maximum(last, 0), *i[width:])], x[i])

    return b.map(x.shape, x.dtype, body)


def _operation(b: Builder, reduction: str, x: Value) -> str:
    if reduction not in _REDUCTIONS:
        b.refuse(f"reduction {reduction} of {x.dtype.label}")
    return _REDUCTIONS[reduction]


def _all(b: Builder, conditions: list[Term]) -> Term | None:
    result: Term | None = None
    for c in conditions:
        result = c if result is None else result & c
    return result
