"""Where cache lines begin: how far an element is from one, tiles that begin at them, and the rows of stencils.

    before  ``for t in 0:256 by 64 { body(t) }``, ``t = 0`` lying `lead` elements behind a line
    after   ``for n in 0:256+lead by 64 { for t = max(0, min(n - lead, 192)) once { body(t) } }``

Tiles that may run twice are moved to lines by `overlap`: the first and the last one overlap their neighbours, and all are of
whole length.  Where arrays begin is known at the call only (``A.offset``).  Vectors of a stencil's rows are moved by one masked
vector in front (alignment peeling):

    before  ``vector for j in 1:N-1 { A[1, i, j] = A[0, i, j-1] + A[0, i, j] + A[0, i, j+1] + … }``
    after   ``vector for j in 1:16 { … } vector for j in 16:N-1 { … }``

Wide reads and writes that straddle two lines take twice as long.  Where several vectors share the lines that they read, some
are in flight at once (`emission.lines`).  Vectors of half a line begin at halves; shorter ones straddle so few lines that where
masks are vectors, the first one costs as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from polyc.code_limits import FEW, MAX_READS
from polyc.codegen.emission.lines import has_aligned_rows
from polyc.ir.access import with_values
from polyc.ir.expr import Const, Expr, Index, Read, Size, evaluate, int_const, maximum, minimum, reads, substitute
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, Loop, LoopNest, Node, Prefetch, Store
from polyc.ir.simplify import difference, simplify
from polyc.ir.walk import Body, Scope, rewrite_nest, rewrite_nodes
from polyc.machine import Level, Machine, Share
from polyc.machine.memory import LINE
from polyc.records import replace

IN_FLIGHT = 4
"""Vectors at once where each shares two lines with its neighbours: 1.5 loads each, instead of 2 for two at once (jacobi-2d,
1300 squared: 254 ms, two at once 280)."""
# -- distances


def is_whole_lines(stride: Expr) -> bool:
    stride = simplify(stride)
    return isinstance(stride, Const) and int(stride.value) % LINE == 0


def has_line_rows(buffer: Buffer) -> bool:
    """Whether elements of a row lie side by side, and rows whole lines apart."""
    return buffer.strides[-1:] == (int_const(buffer.dtype.itemsize),) and all(map(is_whole_lines, buffer.strides[:-1]))


def offset_of(access: Store | Read, buffer: Buffer, values: Mapping[str, Expr]) -> Expr:
    """Bytes from the beginning of a line to the element of an access where loop variables have these `values`."""
    total: Expr = Size(f"{buffer.name}.offset")
    for subscript, stride in zip(access.subscripts, buffer.strides, strict=True):
        place = substitute(subscript, dict(values))
        coefficients = index_coefficients(place)
        if coefficients is not None:
            if is_whole_lines(stride):
                continue
            lines = {v: int_const(0) for v, c in coefficients.items() if is_whole_lines(c * stride)}
            place = substitute(place, lines)
        total = total + place * stride
    return simplify(total)


def past_line(access: Store | Read, buffer: Buffer, values: Mapping[str, Expr]) -> Expr:
    """Elements from the last beginning of a line to the one of the access."""
    return offset_of(access, buffer, values) % LINE // buffer.dtype.itemsize


def to_line(access: Store | Read, buffer: Buffer, values: Mapping[str, Expr]) -> Expr:
    """Elements from the one of the access to the next beginning of a line."""
    return -offset_of(access, buffer, values) % LINE // buffer.dtype.itemsize


# -- tiles that overlap


def overlap(loop: Loop, lead: Expr, tile: Loop | None = None) -> Loop:
    """Tiles of `loop`, the first one `lead` elements shorter and the others moved back by as many, all of whole length.

    `tile`: the loop around whose own tiles they go on over, if any."""
    number = f"{loop.var}_strip"
    first, end, most = loop.lower, loop.upper, simplify(loop.upper + lead)
    if tile is not None:
        first, end = (simplify(e - Index(tile.var)) for e in (tile.lower, tile.upper))
        most = minimum(loop.upper, simplify(end + lead))
    begin = maximum(first, minimum(simplify(Index(number) - lead), simplify(end - loop.step)))

    def count(node: Node, scope: Scope) -> Node | None:  # requests go by the number of the tile
        return with_values(node, {loop.var: Index(number)}) if isinstance(node, Prefetch) else None

    body = rewrite_nodes(loop.body, count)
    once = Loop(loop.var, begin, begin + loop.step, loop.step, "serial", body)
    return replace(loop, var=number, upper=most, max_trip=None, body=(once,))


def within_lines(loop: Loop, first: Expr, last: Expr) -> Loop:
    """Tiles of `loop` between the lines that begin `first` elements behind its start and `last` in front of its end.

    All begin at lines; the last one overlaps its neighbour."""
    number = f"{loop.var}_strip"
    begin = minimum(simplify(Index(number) + first), simplify(loop.upper - loop.step - last))
    return replace(
        loop, var=number, max_trip=None, body=(Loop(loop.var, begin, begin + loop.step, loop.step, "serial", loop.body),)
    )


# -- rows of stencils


def align_rows(nest: LoopNest, target: Machine) -> LoopNest:
    """The nest with the vector loops split whose target and reads lie in aligned rows of the workspace."""
    rows = {b.name: b for b in nest.buffers if has_aligned_rows(b)}

    def align(node: Node, scope: Scope) -> Body | None:
        return _split_at_line(node, rows, target) if isinstance(node, Loop) else None

    return rewrite_nest(nest, align) if rows else nest


def _split_at_line(loop: Loop, rows: Mapping[str, Buffer], target: Machine) -> Body | None:
    if loop.kind != "vector" or loop.max_trip is not None or loop.registers or loop.initial:
        return None
    stores = tuple(n for n in loop.body if isinstance(n, Store) and n.buffer in rows)
    if not stores or len(stores) < len(loop.body):
        return None
    column, itemsize = stores[0].subscripts[-1], rows[stores[0].buffer].dtype.itemsize
    if any(s.subscripts[-1] != column or rows[s.buffer].dtype.itemsize != itemsize for s in stores):
        return None
    lanes = loop.lanes
    n_bytes = lanes * itemsize
    if n_bytes > LINE or (2 * n_bytes < LINE and not target.has_masks) or (index_coefficients(column) or {}).get(loop.var) != 1:
        return None
    trip = simplify(loop.upper - loop.lower)
    if isinstance(trip, Const) and int(trip.value) < FEW * lanes:
        return None
    apart = [distance for s in stores for distance in _distances(s, rows)]
    n_gaining = sum(distance % lanes == 0 for distance in apart)
    if 2 * n_bytes >= LINE and _bytes_of_rows(stores, rows, trip) <= target.room(Level.L2, Share.MOST):
        n_gaining += sum(0 < abs(distance) < lanes for distance in apart)
    if n_gaining < 2:
        return None
    start = simplify(substitute(column, {loop.var: loop.lower}))
    to_line = simplify((0 - start) % lanes)
    if to_line == int_const(0):
        return None
    most = int(to_line.value) if isinstance(to_line, Const) else lanes - 1
    is_known = isinstance(to_line, Const) and isinstance(trip, Const)
    head = to_line if is_known else maximum(0, minimum(to_line, trip))
    front = tuple(with_values(s, {loop.var: Index(loop.var) + loop.lower}) for s in stores)
    first = replace(loop, lower=int_const(0), upper=head, body=front, max_trip=most, interleave=1)
    in_flight = max(loop.interleave, IN_FLIGHT) if _overlap(stores, lanes) else loop.interleave
    return first, replace(loop, lower=simplify(loop.lower + head), interleave=in_flight)


def _distances(store: Store, rows: Mapping[str, Buffer]) -> list[int]:
    """How many elements behind the store's each read of the rows is, where that is known."""
    found = (read for read in dict.fromkeys(reads(store.value)) if read.tensor in rows)
    apart = (difference(read.subscripts[-1], store.subscripts[-1]) for read in found)
    return [distance for distance in apart if distance is not None]


def _bytes_of_rows(stores: tuple[Store, ...], rows: Mapping[str, Buffer], trip: Expr) -> int:
    """Bytes of the rows that a loop of `trip` iterations reads and writes; of whole rows where `trip` is not known, and 0 where
    they are not either."""
    touched = {(read.tensor, read.subscripts[:-1]) for s in stores for read in reads(s.value) if read.tensor in rows}
    total = 0
    for name, _ in {*touched, *((s.buffer, s.subscripts[:-1]) for s in stores)}:
        *_, row, element = rows[name].strides
        if isinstance(trip, Const):
            total += int(trip.value) * evaluate(element, {})
        elif isinstance(row, Const):
            total += int(row.value)
    return total


def _overlap(stores: tuple[Store, ...], lanes: int) -> bool:
    """Whether vectors that stores read overlap along memory, as those of neighbouring elements do."""
    found = list(dict.fromkeys(read for store in stores for read in reads(store.value)))
    rows = ((a, b) for a, b in combinations(found, 2) if a.tensor == b.tensor and a.subscripts[:-1] == b.subscripts[:-1])
    apart = (difference(b.subscripts[-1], a.subscripts[-1]) or 0 for a, b in rows)
    return len(found) <= MAX_READS and any(0 < abs(distance) < lanes for distance in apart)
