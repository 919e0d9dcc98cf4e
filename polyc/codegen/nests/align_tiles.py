"""Let tiles begin at cache lines: those of long results that are streamed, and strips of copies that read rows of whole lines.

    before  ``for t in 0:4096 by 64 { … vector c < 64 { Y[i, t + c] = … } }``
    after   tiles that begin where lines of ``Y`` do, wherever the array begins

Tiles of copies, tiles in which a row is computed from others (marked by `scheduler.row_tiles`) and strips of transposing copies
may run twice, and overlap (`alignment.overlap`).  Each load of a strip off its lines takes two of them, and where rows lie
powers of two apart, a line that two strips share is gone from the first-level cache before the second one.  Figures:
docs/decisions/0420.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from polyc.code_limits import LONG_ROW, MINIMUM_ITERATIONS
from polyc.codegen.nests.alignment import has_line_rows, overlap, past_line, to_line, within_lines
from polyc.codegen.nests.copies import are_read, copy_nest, keeps_apart, strides_of
from polyc.codegen.nests.prefetch import Arrays, arrays_of
from polyc.codegen.nests.streams import find_long
from polyc.ir.access import expressions_in, reads_in, writes_in, written_in
from polyc.ir.expr import (
    Const,
    Expr,
    Index,
    Read,
    index_names,
    int_const,
    lt,
    mentions,
    minimum,
    operands_of,
    reads,
    substitute,
)
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Prefetch, Store, Update, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Rule, Scope, map_places, nodes_in, replace_nodes, rewrite_nodes
from polyc.machine import Machine
from polyc.machine.memory import LINE
from polyc.records import replace


def align_tiles(nest: LoopNest, target: Machine) -> LoopNest:
    """The nest with tiles that begin at the lines of the long results that they write."""
    buffers = {b.name: b for b in nest.buffers}
    long = {n: w for n, w in find_long(nest, target).items() if not w.tests}
    once = [n for n, w in long.items() if w.is_written_once]
    used: list[str] = []

    def move(node: Node, scope: Scope) -> Node | Body | None:
        copy = copy_nest(node, buffers)
        if copy is not None:
            loops, store = copy
            moved: Node | Body | None = _overlap_tiles(loops, store, buffers[store.buffer]) if store.buffer in long else None
        elif isinstance(node, Loop) and node.is_apart and (row := _row_store(node, once, buffers)) is not None:
            store, moved = row, _overlap_counted(node, row, buffers[row.buffer])
        else:
            return None
        used.extend([] if moved is None else [store.buffer])
        return moved or (None if copy is None else node)

    return _moved(nest, move, used) if long else nest


def align_strips(nest: LoopNest, target: Machine) -> LoopNest:
    """The nest with strips that read rows of whole lines beginning at these lines."""
    arrays, used = arrays_of(nest, target), list[str]()

    def move(node: Node, scope: Scope) -> Node | None:
        found = _find_strips(node, arrays) if isinstance(node, Loop) else None
        if found is None or not isinstance(node, Loop):
            return None
        strips, source, lead = found
        used.append(source)
        return _overlap_strips(node, strips, lead)

    return _moved(nest, move, used)


def _moved(nest: LoopNest, rule: Rule, used: list[str]) -> LoopNest:
    """The nest by a rule that notes the arrays of which it uses the offsets."""
    body = rewrite_nodes(nest.body, rule)
    return replace(nest, body=body, offsets=tuple(dict.fromkeys((*nest.offsets, *used)))) if used else nest


# -- tiles of results


def _overlap_tiles(loops: list[Loop], store: Store, buffer: Buffer) -> Body | None:
    """The copy with tiles that begin at lines; None where rows do not lie whole lines apart, or nothing is in tiles."""
    moving = index_coefficients(store.subscripts[-1]) if store.subscripts else None
    inside = [n for n in loops if moving and n.var in moving]
    if not moving or set(moving.values()) != {1} or not has_line_rows(buffer) or not len(inside) == len(moving) == 2:
        return None
    tile, point = inside
    step, length = tile.step, known_length(tile) if isinstance(tile.upper, Const) else None
    is_whole = point.lower == int_const(0) and point.step == 1 and (point.max_trip or step) == step
    ends, left = operands_of(point.upper, "min"), simplify(tile.upper - Index(tile.var))
    if (
        not is_whole
        or "unroll" in (tile.kind, point.kind)
        or int_const(step) not in ends
        or not {*ends} <= {int_const(step), left}
    ):
        return None
    if length is None or length < step or step == 1 or step * buffer.dtype.itemsize % LINE:
        return None
    begin = {tile.var: tile.lower, point.var: int_const(0)}
    per_line = LINE // buffer.dtype.itemsize
    whole = replace(tile, body=replace_nodes(tile.body, {id(point): replace(point, upper=int_const(step))}))
    if point.max_trip is None or length < step + 2 * per_line:  # longer loops begin at a line by themselves
        return replace_nodes((loops[0],), {id(tile): overlap(whole, past_line(store, buffer, begin))})
    first, last = to_line(store, buffer, begin), past_line(store, buffer, begin | {tile.var: tile.upper})
    at_end = replace(point, upper=int_const(per_line), max_trip=per_line)
    at_ends = replace(tile, step=length - per_line, body=replace_nodes(tile.body, {id(point): at_end}), max_trip=None)
    edges = If(lt(0, first + last), replace_nodes((loops[0],), {id(tile): at_ends}))
    return *replace_nodes((loops[0],), {id(tile): within_lines(whole, first, last)}), edges


def _row_store(loop: Loop, wanted: list[str], buffers: Mapping[str, Buffer]) -> Store | None:
    """The store of a long result inside of a loop of whole tiles; None where tiles that overlap would change what is written,
    or rows do not lie whole lines apart."""
    written = {name for name in written_in(loop.body) if buffers[name].space == "argument"}
    writes = [n for n in writes_in(loop.body) if n.buffer in written]
    if any(isinstance(n, Update) for n in writes) or are_read(written, reads_in(loop.body), buffers):
        return None
    for node in writes:
        if isinstance(node, Store) and node.buffer in wanted:
            buffer = buffers[node.buffer]
            step = (index_coefficients(node.subscripts[-1]) or {}).get(loop.var, 0) * buffer.dtype.itemsize
            if step > 0 and step % LINE == 0:
                return node if has_line_rows(buffer) else None
    return None


def _overlap_counted(loop: Loop, store: Store, buffer: Buffer) -> Loop | None:
    """The loop with tiles that begin at lines; None where something else than places in arrays depends on the tile."""
    if loop.kind != "serial" or loop.step != 1 or loop.lower != int_const(0) or not isinstance(loop.upper, Const):
        return None
    moving = index_coefficients(store.subscripts[-1]) or {}
    step, base = moving[loop.var], f"{loop.var}.base"
    body = _replace_tile(loop.body, loop.var, step, base)
    if int(loop.upper.value) < 2 or body is None:
        return None
    tiles = replace(loop, var=base, upper=int_const(int(loop.upper.value) * step), step=step, body=body, is_apart=False)
    return overlap(tiles, past_line(store, buffer, dict.fromkeys(moving, int_const(0))))


def _replace_tile(body: Body, var: str, step: int, base: str) -> Body | None:
    """`body` with `base` for `step` times `var`; None where that is not how `var` is used."""

    def move(subscript: Expr) -> Expr:
        coefficients = index_coefficients(subscript)
        times = (coefficients or {}).get(var, 0)
        if not times or times % step:
            return subscript
        rest = substitute(subscript, {var: int_const(0)})
        return simplify(rest + times // step * Index(base))

    moved = map_places(body, lambda _, subscripts: tuple(map(move, subscripts)))
    return None if any(mentions(e, var) for e in expressions_in(moved)) else moved


# -- strips of what is read


_Leaf = tuple[Store, tuple[Loop, ...]]
"""A store, and the loops around it inside of a strip."""


def _overlap_strips(outer: Loop, strips: list[Loop], lead: Expr) -> Loop:
    """The strips at lines, and one more tile for what they are moved by; other strips in them stay where they are."""
    if strips[0] is outer:
        return overlap(outer, lead)

    def move(node: Node, scope: Scope) -> Node | None:
        if any(node is strip for strip in strips) and isinstance(node, Loop):
            return overlap(node, lead, outer)
        if isinstance(node, Loop) and _are_strips(node, outer):
            return replace(node, upper=minimum(node.upper, simplify(outer.upper - Index(outer.var))))
        return None

    return replace(outer, upper=simplify(outer.upper + lead), max_trip=None, body=rewrite_nodes(outer.body, move))


def _find_strips(outer: Loop, arrays: Arrays) -> tuple[list[Loop], str, Expr] | None:
    """The strips in a loop over tiles that go on with each other from tile to tile, or `outer` as the loop over strips; the
    array, and the elements from the beginning of its line to the first one that they read."""
    leaves: list[_Leaf] = []
    for node, scope in nodes_in(outer.body):
        if isinstance(node, (Loop, If, Prefetch)):
            continue
        if not isinstance(node, Store) or any(n.registers or n.initial for n in scope.loops):
            return None
        leaves.append((node, scope.loops))
    if not leaves or not _whole_trip(outer) or outer.step == 1:
        return None
    found: dict[tuple[str, Expr], list[Loop]] = {}
    for around, inside in _by_strips(outer, leaves):
        lead = _lead_of_strips(around, inside, arrays)
        if lead is not None:
            found.setdefault(lead, []).append(around[-1])
    if not found and (lead := _lead_of_strips((outer,), leaves, arrays)) is not None:
        found[lead] = [outer]
    return next((strips, *lead) for lead, strips in found.items()) if len(found) == 1 else None


def _by_strips(tile: Loop, leaves: list[_Leaf]) -> list[tuple[tuple[Loop, ...], list[_Leaf]]]:
    """The loops from `tile` to one over strips of it, serial ones between, and what is in each; empty where anything is in
    none."""
    found: dict[int, tuple[tuple[Loop, ...], list[_Leaf]]] = {}
    for store, loops in leaves:
        n = next((n for n, loop in enumerate(loops) if loop.kind != "serial" or _are_strips(loop, tile)), len(loops))
        if n == len(loops) or not _are_strips(loops[n], tile):
            return []
        found.setdefault(id(loops[n]), ((tile, *loops[: n + 1]), []))[1].append((store, loops[n + 1 :]))
    return list(found.values())


def _are_strips(loop: Loop, tile: Loop) -> bool:
    if loop.lower != int_const(0) or loop.step == 1 or loop.kind != "serial" or _whole_trip(loop) != tile.step:
        return False
    return any(loop.var in index_names(*w.subscripts) for w in writes_in(loop.body))  # or else it numbers tiles that overlap


def _whole_trip(loop: Loop) -> int:
    """From the first to the last value of a loop, if its steps divide that; 0 where it is not known."""
    trip = known_length(loop) if isinstance(loop.lower, Const) and not loop.registers and not loop.initial else None
    return trip if trip and loop.kind in ("serial", "parallel") and trip % loop.step == 0 else 0


def _lead_of_strips(around: tuple[Loop, ...], leaves: list[_Leaf], arrays: Arrays) -> tuple[str, Expr] | None:
    """The array, and the elements from the beginning of its line to the first one that the innermost loop `around`, over strips
    of the outermost, reads; None where its strips do not all copy, or may not run twice."""
    tile, loop = around[0], around[-1]
    n_strips = _whole_trip(tile) // loop.step
    if loop.kind != "serial" or n_strips < MINIMUM_ITERATIONS:
        return None
    found: set[tuple[str, Expr]] = set()
    written = {store.buffer for store, _ in leaves}
    numbers = {name for n in around if known_length(n) == n.step for name in index_names(n.lower)}  # of tiles that overlap
    for store, inside in leaves:
        *_, vector, copies = (*around, *inside)
        parts = [n for n in inside[:-2] if n.upper == int_const(loop.step) and copies.upper == int_const(n.step)]
        width = loop.step if len(parts) != 1 else parts[0].step
        if vector.kind != "vector" or copies.kind != "unroll" or copies.upper != int_const(width):
            return None
        if are_read(written, reads(store.value), arrays.buffers):
            return None
        places = (store.subscripts, *(r.subscripts for r in reads(store.value)))
        moved = [index_coefficients(s) for place in places for s in place]
        if tile is not loop and any(c is None or c.get(tile.var, 0) != c.get(loop.var, 0) for c in moved):
            return None
        rows = tuple(n for n in inside if n not in parts)
        leads = (_lead(r, around, rows, parts, arrays, n_strips >= LONG_ROW) for r in reads(store.value))
        lead = next((e for e in leads if e is not None), None)
        if lead is None or not keeps_apart([n for n in (*around, *inside) if n.var not in numbers], store):
            return None
        found.add(lead)
    return found.pop() if len(found) == 1 else None


def _lead(
    read: Read, around: tuple[Loop, ...], inside: tuple[Loop, ...], parts: Sequence[Loop], arrays: Arrays, is_long: bool
) -> tuple[str, Expr] | None:
    """The array of `read`, and the elements from the beginning of a line to the first one that the strips read.

    `parts`: the loop over parts of a strip, if vectors take less than all of it; `is_long`: whether strips are so many that
    rows need not meet in few sets of a cache."""
    source = arrays.read_only.get(read.tensor)
    if source is None or around[-1].step * source.dtype.itemsize != LINE:
        return None
    size, (*rows, copies), between = source.dtype.itemsize, inside, around[1:-1]
    motions = strides_of(read, source, (*around, *inside))
    across = motions[rows[-1].var]
    if (motions[around[-1].var], motions[copies.var]) != (size, size) or across is None or across <= size:
        return None
    if any((m := motions[n.var]) is None or m % LINE for n in (*between, *rows)):
        return None
    trips = (-(-length // n.step) for n in rows if (length := known_length(n)) is not None)
    if not is_long and not arrays.target.conflicts(math.prod(trips), across):
        return None
    begin: dict[str, Expr] = {n.var: int_const(0) for n in (*between, *inside, *parts)}
    begin |= {n.var: n.lower for n in (around[0], around[-1])}
    return read.tensor, simplify(past_line(read, source, begin))
