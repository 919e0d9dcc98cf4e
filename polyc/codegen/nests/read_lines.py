"""Begin the strips of transposing copies at the cache lines of what they read.

Before: ``for t < 4096 by 256 { for c < 256 by 16 { vector i < 32 { unroll c' < 16 { Y[t + c + c', i] = … } } } }``, where rows
of X begin 16 bytes behind a line, so that each line of them is read by two strips.
After: ``for t < 4100 by 256 { for n < min(256, 4100 - t) by 16 { for c = max(-t, min(n - 4, 4080 - t)) once { … } } }``, where
the first and the last two strips overlap.

Each load of a strip off its lines takes two of them (5000×4000 on AMD, Zen 4, 16 bytes off a line: 6.9 ms, and 6.1 at its
lines).  Rows that lie powers of two apart meet in few sets of the first-level cache besides: until the next strip comes to a
line again, it is gone (C, 4096×4096: 5.9 ms, and 3.7).  A copy may write an element twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from polyc.codegen.emission.lines import do_meet
from polyc.codegen.nests.copies import keeps_apart
from polyc.codegen.nests.prefetch import read_arrays
from polyc.codegen.nests.streams import offset_of
from polyc.ir.access import stride_of, with_values
from polyc.ir.expr import Const, Expr, Index, Read, int_const, maximum, minimum, reads
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import LINE, Buffer, If, Loop, LoopNest, Node, Prefetch, Store, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, rewrite_nodes
from polyc.records import dataclass, replace

LEAST_STRIPS, MANY_STRIPS = 8, 32
"""Strips of a loop of which one more costs little, where rows meet in few sets of a cache, and where they do not (16 strips of
784×256 to channels first, 16 bytes off a line: 1.28 ms, and 1.39 with one more; 32 strips 3.30 and 3.37)."""


@dataclass(frozen=True, slots=True)
class _Strips:
    """Loops over strips that may begin at lines, the loop over tiles around them if there is one, and the elements of `source`
    from the beginning of a line to the first one."""

    tile: Loop | None
    loops: tuple[Loop, ...]
    source: str
    lead: Expr


def begin_at_lines(nest: LoopNest) -> LoopNest:
    """The nest with strips that read rows of whole lines beginning at these lines."""
    sources = read_arrays(nest)
    buffers = {b.name: b for b in nest.buffers}
    used: dict[str, None] = {}

    def move(node: Node, scope: Scope) -> Node | None:
        if not isinstance(node, Loop):
            return None
        found = _find_tiles(node, sources, buffers) or _find_strips(node, sources, buffers)
        if found is None:
            return None
        used[found.source] = None
        return _overlap_tiles(found.tile, found) if found.tile is not None else _overlap(found.loops[0], None, found.lead)

    body = rewrite_nodes(nest.body, move)
    return replace(nest, body=body, offsets=tuple(dict.fromkeys((*nest.offsets, *used)))) if used else nest


def _overlap(loop: Loop, tile: Loop | None, lead: Expr) -> Loop:
    """The strips, the first one `lead` elements shorter and the others moved back by as many, all of whole length."""
    number = f"{loop.var}_strip"
    first, end, most = loop.lower, loop.upper, simplify(loop.upper + lead)
    if tile is not None:
        end = simplify(tile.upper - Index(tile.var))
        first = simplify(tile.lower - Index(tile.var))
        most = minimum(loop.upper, simplify(end + lead))
    last = simplify(end - loop.step)
    begin = maximum(first, minimum(simplify(Index(number) - lead), last))

    def count(node: Node, scope: Scope) -> Node | None:  # requests go by the number of the strip
        if not isinstance(node, Prefetch):
            return None
        return with_values(node, {loop.var: Index(number)})

    body = rewrite_nodes(loop.body, count)
    once = replace(loop, lower=begin, upper=begin + loop.step, max_trip=None, body=body)
    return Loop(number, loop.lower, most, loop.step, "serial", (once,))


def _overlap_tiles(tile: Loop, strips: _Strips) -> Loop:
    """The tiles with such strips, and one more tile for what they are moved by; other strips in them stay where they are."""

    def move(node: Node, scope: Scope) -> Node | None:
        if isinstance(node, Loop) and node in strips.loops:
            return _overlap(node, tile, strips.lead)
        if isinstance(node, Loop) and _are_strips(node, tile):
            return replace(node, upper=minimum(node.upper, simplify(tile.upper - Index(tile.var))))
        return None

    upper = simplify(tile.upper + strips.lead)
    return replace(tile, upper=upper, max_trip=None, body=rewrite_nodes(tile.body, move))


def _find_tiles(tile: Loop, sources: Mapping[str, Buffer], buffers: Mapping[str, Buffer]) -> _Strips | None:
    """The strips in a loop over tiles that go on with each other from tile to tile."""
    trip = _whole_trip(tile)
    strips = list(_strips_in(tile.body, tile, ())) if trip and tile.step > 1 else []
    if any(loop is None for _, loop in strips):
        return None
    found: list[_Strips] = []
    for between, loop in strips:
        if loop is not None and (of_loop := _find_strips(loop, sources, buffers, tile, between)) is not None:
            found.append(of_loop)
    if not found or any((f.source, f.lead) != (found[0].source, found[0].lead) for f in found):
        return None
    return replace(found[0], loops=tuple(loop for f in found for loop in f.loops))


def _strips_in(body: Body, tile: Loop, between: tuple[Loop, ...]) -> Iterator[tuple[tuple[Loop, ...], Loop | None]]:
    """The loops over the strips of `tile` in `body`, with the loops between; None for anything else that is computed."""
    for node in body:
        match node:
            case Loop() if _are_strips(node, tile):
                yield between, node
            case Loop() if node.kind == "serial" and not node.registers and not node.initial:
                yield from _strips_in(node.body, tile, (*between, node))
            case If():
                yield from _strips_in(node.body + node.orelse, tile, between)
            case _:
                yield between, None


def _are_strips(loop: Loop, tile: Loop) -> bool:
    return loop.lower == int_const(0) and loop.step > 1 and loop.kind == "serial" and _whole_trip(loop) == tile.step


def _find_strips(
    loop: Loop,
    sources: Mapping[str, Buffer],
    buffers: Mapping[str, Buffer],
    tile: Loop | None = None,
    between: tuple[Loop, ...] = (),
) -> _Strips | None:
    """The strips of `loop`, in each of the tiles where `tile` goes on with them; `between`: the loops between these."""
    trip = _whole_trip(loop if tile is None else tile)
    around = (loop,) if tile is None else (tile, *between, loop)
    if loop.step == 1 or loop.kind != "serial" or trip // loop.step < LEAST_STRIPS:
        return None
    found: list[tuple[str, Expr]] = []
    paths = list(_paths(loop.body, around))
    written = {store.buffer for _, store in paths if store is not None}
    for loops, store in paths:
        if store is None or not keeps_apart(list(loops), store):
            return None
        *_, vector, copies = loops
        parts = [n for n in loops[len(around) : -2] if n.upper == int_const(loop.step) and copies.upper == int_const(n.step)]
        width = loop.step if len(parts) != 1 else parts[0].step
        if vector.kind != "vector" or copies.kind != "unroll" or copies.upper != int_const(width):
            return None
        every = [(r.tensor, r.subscripts) for r in reads(store.value)]
        if written & {name for tensor, _ in every for name in (tensor, *buffers[tensor].may_alias)}:
            return None
        if tile is not None and not all(
            _move_together(tile.var, loop.var, s) for _, subscripts in (*every, ("", store.subscripts)) for s in subscripts
        ):
            return None
        rows = tuple(n for n in loops[len(around) :] if n not in parts)
        is_long = trip // loop.step >= MANY_STRIPS
        lead = next((e for r in reads(store.value) if (e := _lead(r, around, rows, parts, sources, is_long)) is not None), None)
        if lead is None:
            return None
        found.append(lead)
    return _Strips(tile, (loop,), *found[0]) if found and all(f == found[0] for f in found) else None


def _whole_trip(loop: Loop) -> int:
    """From the first to the last value of a loop, if its steps divide that; 0 where it is not known."""
    if loop.kind not in ("serial", "parallel") or loop.registers or loop.initial:
        return 0
    if not isinstance(loop.lower, Const) or not isinstance(loop.upper, Const):
        return 0
    trip = int(loop.upper.value) - int(loop.lower.value)
    return 0 if trip % loop.step else trip


def _move_together(tile: str, strip: str, subscript: Expr) -> bool:
    coefficients = index_coefficients(subscript)
    return coefficients is not None and coefficients.get(tile, 0) == coefficients.get(strip, 0)


def _paths(body: Body, around: tuple[Loop, ...]) -> Iterator[tuple[tuple[Loop, ...], Store | None]]:
    """The stores in `body` and the loops around each; None for anything that is no part of a copy."""
    for node in body:
        match node:
            case Store():
                yield around, node
            case Loop() if not node.registers and not node.initial:
                yield from _paths(node.body, (*around, node))
            case If():
                yield from _paths(node.body + node.orelse, around)
            case Prefetch():
                pass
            case _:
                yield around, None


def _lead(
    read: Read,
    around: tuple[Loop, ...],
    inside: tuple[Loop, ...],
    parts: Sequence[Loop],
    sources: Mapping[str, Buffer],
    is_long: bool,
) -> tuple[str, Expr] | None:
    """The array of `read`, and the elements from the beginning of a line to the first one that the strips read.

    `parts`: the loop over parts of a strip, if vectors take less than all of it; `is_long`: whether strips are so many that
    rows need not meet in few sets of a cache."""
    source = sources.get(read.tensor)
    if source is None or around[-1].step * source.dtype.itemsize != LINE:
        return None
    size = source.dtype.itemsize
    motions = {n.var: stride_of(read, source, n.var) for n in (*around, *inside)}
    *rows, copies = inside
    between = around[1:-1]
    across = motions[rows[-1].var]
    if (motions[around[-1].var], motions[copies.var]) != (size, size) or across is None or across <= size:
        return None
    if any((m := motions[n.var]) is None or m % LINE for n in (*between, *rows)):
        return None
    if not is_long and not do_meet(across, _count(rows)):
        return None
    begin: dict[str, Expr] = {n.var: int_const(0) for n in (*between, *inside, *parts)}
    begin |= {n.var: n.lower for n in (around[0], around[-1])}
    first = offset_of(Store(read.tensor, read.subscripts, read), source, begin)
    return read.tensor, simplify(first % LINE // size)


def _count(rows: Sequence[Loop]) -> int:
    """Iterations of those of `rows` that have a known number."""
    return math.prod(-(-length // n.step) for n in rows if (length := known_length(n)) is not None)
