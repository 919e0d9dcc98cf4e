"""Coalesce loops of copies that walk through memory without a gap on both sides.

Before: ``for c { for r < 3 { for s < 3 { vector j { P[c, r, s, j] = W[j, c, r, s] } } } }``.
After: ``for m { vector j { P[m, j] = W[j, m] } }``, m running over ``9*c + 3*r + s``.

Dimensions of the buffers are merged for it, in every access of the nest: ``P[c, r, s, j]`` becomes ``P[9*c + 3*r + s, j]``.
That is exact where the byte strides are constants, one the other times the extent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from polyc.codegen.nests.copies import copy_nest, rebuild
from polyc.ir.access import expressions_in
from polyc.ir.expr import Const, Expr, Index, Pad, Read, int_const, mentions, reads, rewrite, substitute, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, Loop, Store, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, map_nodes, nodes_in, replace_nodes, walk_nodes
from polyc.records import replace

Dimension = tuple[str, int]
"""A buffer and the first of two of its dimensions that are to be one."""

_Access = Callable[[str, tuple[Expr, ...]], tuple[Expr, ...]]
"""From a buffer and old subscripts to new ones."""


def coalesce_copies(body: Body, buffers: tuple[Buffer, ...]) -> tuple[Body, tuple[Buffer, ...]]:
    """Run neighbouring loops of copies as one where that leaves single strides; dimensions of `buffers` are merged for it."""
    while True:
        padded = {e.read.tensor for root in expressions_in(body) for e in walk(root) if isinstance(e, Pad)}
        mergeable = {b.name: b for b in buffers if b.name not in padded and b.space != "register"}
        everything = {b.name: b for b in buffers}
        found = next(_find(body, everything, mergeable), None)
        if found is None:
            return body, buffers
        nest, position, dimensions = found
        access = _merge_subscripts(everything, dimensions)
        (merged,) = _map_accesses((nest,), access)
        assert isinstance(merged, Loop)
        buffers = tuple(_merge_dimension(b, dimensions) for b in buffers)
        joined = _join(merged, position, {b.name: b for b in buffers})
        body = _map_accesses(body, access)
        body = replace_nodes(body, {id(node): joined for node in walk_nodes(body) if node == merged})


# -- finding


def _find(
    body: Body, buffers: Mapping[str, Buffer], mergeable: Mapping[str, Buffer]
) -> Iterator[tuple[Loop, int, frozenset[Dimension]]]:
    """Copies in which two neighbouring loops can run as one: the nest, the position of the outer one, what is merged."""
    for node, _ in nodes_in(body):
        nest = copy_nest(node, buffers)
        if nest is None or not isinstance(nest[1].value, Read) or not isinstance(node, Loop):
            continue  # with arithmetic in it, rows are long enough
        loops, store = nest
        for position in range(len(loops) - 1):
            if (found := _joint_dimensions(loops, position, store, mergeable)) is not None:
                yield node, position, found


def _joint_dimensions(
    loops: list[Loop], position: int, store: Store, buffers: Mapping[str, Buffer]
) -> frozenset[Dimension] | None:
    """Dimensions to be merged so that loops `position` and ``position + 1`` are one; None where they cannot be."""
    outer, inner = loops[position], loops[position + 1]
    if outer.kind not in ("serial", "parallel") or inner.kind != "serial" or outer.step != 1 or inner.step != 1:
        return None
    if inner.lower != int_const(0) or not isinstance(inner.upper, Const) or int(inner.upper.value) < 1:
        return None
    bounds = [e for loop in loops[position + 2 :] for e in (loop.lower, loop.upper)]
    if any(mentions(e, loop.var) for e in bounds for loop in (outer, inner)):
        return None
    extent = int(inner.upper.value)
    found: set[Dimension] = set()
    accesses = [Read(store.buffer, store.subscripts), *reads(store.value)]
    for access in accesses:
        own = _joint_dimension(access, outer.var, inner.var, extent, buffers)
        if own is None:
            return None
        found |= own
    if len({name for name, _ in found}) < len(found):
        return None
    return frozenset(found)


def _joint_dimension(access: Read, outer: str, inner: str, extent: int, buffers: Mapping[str, Buffer]) -> set[Dimension] | None:
    """The dimensions of one access that must be merged (none, or one pair) for ``outer * extent + inner`` to be in it."""
    found: list[tuple[int, int, int]] = []
    for d, subscript in enumerate(access.subscripts):
        coefficients = index_coefficients(subscript)
        if coefficients is None:
            if mentions(subscript, outer) or mentions(subscript, inner):
                return None
            continue
        if outer in coefficients or inner in coefficients:
            found.append((d, coefficients.get(outer, 0), coefficients.get(inner, 0)))
    if not found or (len(found) == 1 and found[0][1] == extent * found[0][2]):
        return set()
    if (
        len(found) != 2
        or found[1][0] != found[0][0] + 1
        or found[0][1:] != (1, 0)
        or access.subscripts[found[1][0]] != Index(inner)
    ):
        return None
    first, buffer = found[0][0], buffers.get(access.tensor)
    if buffer is None:
        return None
    wide, narrow, shape = buffer.strides[first], buffer.strides[first + 1], buffer.shape[first + 1]
    if shape != int_const(extent) or not isinstance(wide, Const) or not isinstance(narrow, Const):
        return None
    return {(access.tensor, first)} if wide.value == narrow.value * extent else None


# -- rewriting


def merge_dimensions(body: Body, buffers: tuple[Buffer, ...], name: str, first: int) -> tuple[Body, tuple[Buffer, ...]]:
    """The nest with the dimensions of buffer `name` from `first` on as one; they lie close together."""
    by_name = {b.name: b for b in buffers}
    for d in reversed(range(first, len(by_name[name].shape) - 1)):
        dimensions = frozenset({(name, d)})
        access = _merge_subscripts(by_name, dimensions)
        body = _map_accesses(body, access)
        by_name[name] = _merge_dimension(by_name[name], dimensions)
    return body, tuple(by_name[b.name] for b in buffers)


def _join(nest: Loop, position: int, buffers: Mapping[str, Buffer]) -> Loop:
    """The copy with loops `position` and ``position + 1`` as one; every subscript has both of them or neither."""
    found = copy_nest(nest, buffers)
    assert found is not None
    loops, store = found
    outer, inner = loops[position], loops[position + 1]
    names: dict[str, Expr] = {outer.var: int_const(0), inner.var: Index(outer.var)}
    lower, upper = (simplify(bound * inner.upper) for bound in (outer.lower, outer.upper))
    joint = replace(outer, lower=lower, upper=upper, least_part=outer.least_part * (known_length(inner) or 1))

    def at(subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(simplify(substitute(s, names)) for s in subscripts)

    assert isinstance(store.value, Read)
    store = replace(store, subscripts=at(store.subscripts), value=replace(store.value, subscripts=at(store.value.subscripts)))
    return rebuild([*loops[:position], joint, *loops[position + 2 :]], store)


def _map_accesses(body: Body, access: _Access) -> Body:
    """`body` with other subscripts in all accesses."""

    def rule(e: Expr) -> Expr | None:
        return replace(e, subscripts=access(e.tensor, e.subscripts)) if isinstance(e, Read) else None

    return map_nodes(body, lambda e: rewrite(e, rule), access)


def _merge_subscripts(buffers: Mapping[str, Buffer], dimensions: frozenset[Dimension]) -> _Access:
    def merge(name: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        for d in (d for buffer, d in dimensions if buffer == name):
            long = subscripts[d] * buffers[name].shape[d + 1] + subscripts[d + 1]
            return (*subscripts[:d], simplify(long), *subscripts[d + 2 :])
        return subscripts

    return merge


def _merge_dimension(buffer: Buffer, dimensions: frozenset[Dimension]) -> Buffer:
    for name, d in dimensions:
        if name == buffer.name:
            long = simplify(buffer.shape[d] * buffer.shape[d + 1])
            shape = (*buffer.shape[:d], long, *buffer.shape[d + 2 :])
            return replace(buffer, shape=shape, strides=(*buffer.strides[:d], *buffer.strides[d + 1 :]))
    return buffer
