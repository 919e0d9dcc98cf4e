"""Coalesce loops of copies that walk through memory without a gap on both sides.

Before: ``for c { for r < 3 { for s < 3 { vector j { P[c, r, s, j] = W[j, c, r, s] } } } }``.
After: ``for m { vector j { P[m, j] = W[j, m] } }``, m running over ``9*c + 3*r + s``.

Dimensions of the buffers are merged for it, in every access of the nest: ``P[c, r, s, j]`` becomes ``P[9*c + 3*r + s, j]``.
That is exact where the byte strides are constants, one the other times the extent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from polyc.codegen.nests.copies import copy_nest, trip_count
from polyc.ir.access import expressions_in, with_values
from polyc.ir.expr import Expr, Index, Pad, Read, int_const, mentions, reads, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, Loop, LoopNest, Store, do_bounds_depend, known_length
from polyc.ir.simplify import constant_of, simplify
from polyc.ir.walk import Body, make_nest, map_places, nodes_in, replace_nodes
from polyc.records import replace

Dimension = tuple[str, int]
"""A buffer and the first of two of its dimensions that are to be one."""


def coalesce_copies(nest: LoopNest) -> LoopNest:
    """Run neighbouring loops of copies as one where that leaves single strides; dimensions of buffers are merged for it."""
    while (found := next(_find(nest), None)) is not None:
        copy, position, dimensions = found
        for name, first in dimensions:
            nest = _merge(nest, name, first)
        if not dimensions:
            nest = replace(nest, body=replace_nodes(nest.body, {id(copy[0][0]): _join(*copy, position)}))
    return nest


def merge_dimensions(nest: LoopNest, name: str, first: int) -> LoopNest:
    """The nest with the dimensions of buffer `name` from `first` on as one; they lie close together."""
    for d in reversed(range(first, len(nest.buffer(name).shape) - 1)):
        nest = _merge(nest, name, d)
    return nest


# -- finding


def _find(nest: LoopNest) -> Iterator[tuple[tuple[list[Loop], Store], int, set[Dimension]]]:
    """Copies in which two neighbouring loops can run as one: the position of the outer one, and what is to be merged first."""
    by_name = {b.name: b for b in nest.buffers}
    padded = {e.read.tensor for root in expressions_in(nest.body) for e in walk(root) if isinstance(e, Pad)}
    mergeable = {n: b for n, b in by_name.items() if n not in padded and b.space != "register"}
    for node, _ in nodes_in(nest.body):
        copy = copy_nest(node, by_name)
        if copy is None or not isinstance(copy[1].value, Read):
            continue  # with arithmetic in it, rows are long enough
        for position in range(len(copy[0]) - 1):
            if (found := _joint_dimensions(*copy, position, mergeable)) is not None:
                yield copy, position, found


def _joint_dimensions(loops: list[Loop], store: Store, position: int, buffers: Mapping[str, Buffer]) -> set[Dimension] | None:
    """Dimensions to be merged so that loops `position` and ``position + 1`` can be one; None where they cannot be."""
    outer, inner = loops[position], loops[position + 1]
    if outer.kind not in ("serial", "parallel") or inner.kind != "serial" or outer.step != 1 or inner.step != 1:
        return None
    if not trip_count(inner) or do_bounds_depend(loops[position + 2 :], outer.var, inner.var):
        return None
    found: set[Dimension] = set()
    for access in (Read(store.buffer, store.subscripts), *reads(store.value)):
        own = _joint_dimension(access, outer.var, inner.var, trip_count(inner), buffers)
        if own is None:
            return None
        found |= own
    return None if len({name for name, _ in found}) < len(found) else found


def _joint_dimension(access: Read, outer: str, inner: str, extent: int, buffers: Mapping[str, Buffer]) -> set[Dimension] | None:
    """The dimensions of one access that must be merged (none, or one pair) for ``outer * extent + inner`` to be in it."""
    found = [(d, index_coefficients(s)) for d, s in enumerate(access.subscripts) if mentions(s, outer, inner)]
    moves = [(c.get(outer, 0), c.get(inner, 0)) for _, c in found if c is not None]
    if len(moves) < len(found):
        return None
    if not moves or (len(moves) == 1 and moves[0][0] == extent * moves[0][1]):
        return set()
    first, buffer = found[0][0], buffers.get(access.tensor)
    if moves != [(1, 0), (0, 1)] or access.subscripts[first + 1] != Index(inner) or buffer is None:
        return None
    return {(access.tensor, first)} if buffer.shape[first + 1] == int_const(extent) and is_dense(buffer, first) else None


def is_dense(buffer: Buffer, d: int) -> bool:
    """Whether dimension `d` surely goes on where the next one ends."""
    wide, narrow, extent = (constant_of(e) for e in (buffer.strides[d], buffer.strides[d + 1], buffer.shape[d + 1]))
    return wide is not None and narrow is not None and extent is not None and wide == narrow * extent


# -- rewriting


def _join(loops: list[Loop], store: Store, position: int) -> Body:
    """The copy with loops `position` and ``position + 1`` as one; every subscript has both of them or neither."""
    outer, inner = loops[position], loops[position + 1]
    lower, upper = (simplify(bound * inner.upper) for bound in (outer.lower, outer.upper))
    joint = replace(outer, lower=lower, upper=upper, least_part=outer.least_part * (known_length(inner) or 1))
    names: dict[str, Expr] = {outer.var: int_const(0), inner.var: Index(outer.var)}
    assert isinstance(store.value, Read)
    store = replace(with_values(store, names), value=with_values(store.value, names))
    return make_nest([*loops[:position], joint, *loops[position + 2 :]], (store,))


def _merge(nest: LoopNest, name: str, d: int) -> LoopNest:
    """The nest with dimensions `d` and ``d + 1`` of a buffer as one, in all accesses."""
    merged = nest.buffer(name)
    extent = merged.shape[d + 1]

    def place(buffer: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        if buffer != name:
            return subscripts
        return (*subscripts[:d], simplify(subscripts[d] * extent + subscripts[d + 1]), *subscripts[d + 2 :])

    shape = (*merged.shape[:d], simplify(merged.shape[d] * extent), *merged.shape[d + 2 :])
    merged = replace(merged, shape=shape, strides=(*merged.strides[:d], *merged.strides[d + 1 :]))
    buffers = tuple(merged if b.name == name else b for b in nest.buffers)
    return replace(nest, body=map_places(nest.body, place), buffers=buffers)
