"""Prefetch, some iterations ahead, the accesses of a loop that hardware prefetchers do not follow.

    before  ``for l < 50 { vector d < 64: O[b, d] += T[I[b, l], d] }``
    after   ``for l < 50 { prefetch T[I[b, l + 32], 0], 256 bytes ; vector d < 64: … }``

These are rows whose numbers are data, windows that are read under masks or in steps of several elements, new rows of stencils
over arrays in memory, and rows that the steps of a sum read far apart.  Each iteration requests what a later one is the first
to read (docs/decisions/0820).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from polyc.code_limits import MAX_ITEMS, MAX_STRIDE
from polyc.codegen.nests.prefetch import Ahead, Arrays, arrays_of, far_tests, new_reads, read_sites, request, run_bytes
from polyc.ir.access import stride_of, with_values
from polyc.ir.expr import Const, Expr, Read, Select, ge, gt, index_names, int_const, mentions, reads, substitute, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Store, Update, known_length
from polyc.ir.simplify import constant_of, simplify
from polyc.ir.walk import Scope, rewrite_nest, rewrite_nodes
from polyc.machine import Level, Machine, Share
from polyc.records import replace

FEWEST_ROWS = 3
"""Rows of an array that a stencil reads: of two one is new."""


def prefetch_accesses(nest: LoopNest, target: Machine) -> LoopNest:
    """The nest with requests in front of the bodies of such loops, for arrays beyond the second-level cache."""
    arrays = arrays_of(nest, target)
    size = simplify(sum((b.n_bytes for b in nest.buffers), int_const(0)))
    is_far = simplify(gt(size, target.room(Level.L3, Share.ALL)))

    def rule(node: Node, scope: Scope) -> Node | None:
        if not isinstance(node, Loop) or node.kind not in ("serial", "parallel", "vector"):
            return node if isinstance(node, Loop) else None
        if node.kind == "vector":
            return _with_stencil_rows(node, scope, arrays, is_far)
        inside = scope.inside(node)
        found = [*_indirect_rows(node, inside, arrays), *_windows(node, inside, arrays), *_far_steps(node, arrays)]
        if not found:
            return None
        requests = (request(ahead, arrays) for ahead in dict.fromkeys(found))
        return replace(node, body=(*requests, *rewrite_nodes(node.body, rule, inside)))

    return rewrite_nest(nest, rule) if arrays.large else nest


# -- rows whose numbers are read


def _indirect_rows(loop: Loop, scope: Scope, arrays: Arrays) -> Iterator[Ahead]:
    """The rows whose numbers `loop` reads: these are known long before the rows are needed.

    Single elements of segments are left out where a cache has them: their addresses take more instructions than their sums.
    Rows of segments are requested half as far ahead as others (docs/decisions/0657)."""
    pieces: dict[Read, int] = {}
    for read, _, inside in read_sites(loop.body):
        buffer = arrays.large.get(read.tensor)
        inner, copies = ([n for n in inside.loops if (n.kind == "unroll") == is_copied] for is_copied in (False, True))
        if buffer is None or not _is_named_by(read, loop.var, {n.var for n in inner}, arrays):
            continue
        size = run_bytes(buffer, read, tuple(inner))
        if size is None or any(n.kind == "parallel" for n in inner):
            continue
        if not inner and reads(loop.upper) and (constant_of(buffer.n_bytes) or 0) <= arrays.target.room(Level.L3, Share.ALL):
            continue
        for numbers in product(*(range(n.max_trip or 1) for n in copies)):
            row = with_values(read, {n.var: int_const(k) for n, k in zip(copies, numbers, strict=True)})
            for node in reversed(inner):
                row = with_values(row, {node.var: node.lower})
            pieces[row] = max(pieces.get(row, 0), min(size, arrays.target.prefetchers.lines * arrays.target.cache_line))
    room = arrays.target.room(Level.L1, Share.EIGHTH if reads(loop.upper) else Share.QUARTER)
    distance = max(1, min(MAX_ITEMS, room // max(1, sum(pieces.values()))))
    for row, size in pieces.items():
        tests = far_tests(arrays.buffers[row.tensor], arrays.target)
        yield Ahead(row, scope.loops_in_order, distance, size, when=tests)


def _is_named_by(read: Read, variable: str, inner: set[str], arrays: Arrays) -> bool:
    """Whether subscripts of `read` are numbers that are read from inputs, other ones for each iteration of `variable`."""
    numbers = [r for s in read.subscripts for r in reads(s)]
    names = index_names(*(s for r in numbers for s in r.subscripts))
    return (
        variable in names
        and names.isdisjoint(inner)
        and all(r.tensor in arrays.read_only and all(index_coefficients(s) is not None for s in r.subscripts) for r in numbers)
    )


# -- windows under masks, or in steps


def _windows(loop: Loop, scope: Scope, arrays: Arrays) -> Iterator[Ahead]:
    """What short sums in registers read under masks, or in steps of a few elements: of each array the rows that an iteration is
    the first to read.

    Addresses are counted on along memory, beyond the end of a row into the next one."""
    known, found = arrays.target.prefetchers, dict[tuple[str, int], list[tuple[int, Read]]]()
    for read, node, inside in read_sites(() if loop.registers else loop.body):
        buffer, inner = arrays.large.get(read.tensor), inside.loops
        if buffer is None or not inner or not inner[0].registers or inner[-1].kind != "vector":
            continue
        vector, sums = inner[-1], inner[:-1]
        coefficients = [index_coefficients(s) for s in read.subscripts]
        if not coefficients or any(c is None for c in coefficients):
            continue
        step = abs((coefficients[-1] or {}).get(vector.var, 0))
        chosen = (e for e in walk(node.value) if isinstance(e, Select) and mentions(e.condition, vector.var))
        is_masked = any(read in reads(e.then) for e in chosen)
        is_stepping = 2 <= step <= MAX_STRIDE and not arrays.target.follows_windows
        trips = [n.max_trip or known_length(n) or MAX_ITEMS + 1 for n in sums]
        size, stride = run_bytes(buffer, read, (vector,)), constant_of(buffer.strides[-1])
        if not (is_masked or is_stepping) or math.prod(trips) > MAX_ITEMS or size is None or not stride:
            continue
        skip, n_lines = (known.far_distance, known.window_lines) if is_stepping else (known.distance, known.lines)
        # All terms along rows, of those in a row the last one.
        along = [any(mentions(s, n.var) for s in read.subscripts[:-1]) for n in sums]
        backs = product(*(range(t if a else 1, 0, -1) for t, a in zip(trips, along, strict=True)))
        window = found.setdefault((read.tensor, skip // stride), [])
        for back in backs:
            there = {n.var: simplify(n.upper - b * n.step) for n, b in zip(sums, back, strict=True)}
            row = with_values(read, {vector.var: vector.lower, **there})
            if index_names(*row.subscripts).isdisjoint(n.var for n in inner):
                window.append((min(size, n_lines * arrays.target.cache_line), row))
    for (_, skip), window in found.items():
        new, size = new_reads((row for _, row in window), scope.loops), max((size for size, _ in window), default=0)
        if len(new) <= known.pieces:
            yield from (Ahead(read, (), 0, size, beyond=skip) for read in new)


# -- rows of stencils


def _with_stencil_rows(vector: Loop, scope: Scope, arrays: Arrays, is_far: Expr) -> Loop | If:
    """`vector` with requests where all arrays of the nest lie in memory, of which the call may say the sizes (`is_far`)."""
    if isinstance(is_far, Const) and not is_far.value:
        return vector
    requests = tuple(request(ahead, arrays) for ahead in _stencil_rows(vector, scope, arrays))
    asking = replace(vector, body=(*requests, *vector.body))
    return vector if not requests else asking if isinstance(is_far, Const) else If(is_far, (asking,), (vector,))


def _stencil_rows(vector: Loop, scope: Scope, arrays: Arrays) -> Iterator[Ahead]:
    """What a vector loop reads of arrays for the first time, where it reads some rows of one of them: loads of rows that are
    near, and the arithmetic, are more than a core looks ahead over meanwhile.

    They come to the second-level cache: the first one holds the rows that are near."""
    known = arrays.target.prefetchers
    found: dict[str, dict[Read, list[int]]] = {}
    for read, node, inside in read_sites(vector.body):
        buffer, copies = arrays.large.get(read.tensor), inside.loops
        trips = [known_length(n) if n.kind == "unroll" and n.lower == int_const(0) else None for n in copies]
        if buffer is None or len(copies) < len(inside.path) or None in trips or isinstance(node, Store) == bool(copies):
            continue
        for taps in product(*(range(trip or 0) for trip in trips)):  # terms of a sum that are written out
            tap = with_values(read, {n.var: int_const(k) for n, k in zip(copies, taps, strict=True)})
            starts = [constant_of(simplify(substitute(s, dict.fromkeys(index_names(s), int_const(0))))) for s in tap.subscripts]
            if None not in starts and stride_of(tap, buffer, vector.var) == buffer.dtype.itemsize:
                *outer, column = tap.subscripts
                row = with_values(replace(tap, subscripts=(*outer, column - (starts[-1] or 0))), {})
                found.setdefault(read.tensor, {})[row] = [n or 0 for n in starts[:-2]]
    if all(len(rows) < FEWEST_ROWS or len(new_reads(rows, scope.loops)) == len(rows) for rows in found.values()):
        return
    for name, rows in found.items():
        buffer, itemsize = arrays.buffers[name], arrays.buffers[name].dtype.itemsize
        if (constant_of(buffer.shape[-1]) or known.least_row) * itemsize >= known.least_row:
            # Loops over planes have read those of all planes but the last one.
            new, skip = new_reads(rows, scope.loops), known.distance // itemsize
            last = max(rows[row] for row in new)
            yield from (Ahead(row, (), 0, itemsize, 2, beyond=skip) for row in new if rows[row] == last)


# -- rows that the steps of a sum read


def _far_steps(loop: Loop, arrays: Arrays) -> Iterator[Ahead]:
    """The rows of large arrays that register tiles read in place, one in each step of their sum, too far apart to be followed.

    They come to the second-level cache: rows whole pages apart meet in one set of the first one."""
    known, line, length = arrays.target.prefetchers, arrays.target.cache_line, known_length(loop)
    steps = known.strided_steps * loop.step
    if not loop.registers or loop.kind != "serial" or (length is not None and length < steps):
        return
    tests = (ge(loop.upper - loop.lower, steps),) if length is None else ()
    for read, node, scope in read_sites(loop.body):
        buffer, inner = arrays.large.get(read.tensor), scope.loops
        is_tile = len(inner) == len(scope.path) and all(n.is_expanded for n in inner) and inner and inner[-1].kind == "vector"
        size = run_bytes(buffer, read, inner) if buffer is not None and is_tile and isinstance(node, Update) else None
        if buffer is None or size is None or not line <= size <= known.strided_lines * line:
            continue
        if _moves_far(read, buffer, loop, size):
            first, when = with_values(read, {n.var: n.lower for n in inner}), (*tests, *far_tests(buffer, arrays.target))
            yield Ahead(first, (loop,), known.strided_distance, size, 2, when)


def _moves_far(read: Read, buffer: Buffer, loop: Loop, size: int) -> bool:
    """Whether `read` moves by more than `size` bytes in a step, or to another row of an array of any size."""
    motion = stride_of(read, buffer, loop.var)
    if motion is not None:
        return abs(motion) * loop.step > size
    coefficients = [index_coefficients(s) for s in read.subscripts]
    moved = [stride for c, stride in zip(coefficients, buffer.strides, strict=True) if c is None or c.get(loop.var)]
    return None not in coefficients and not any(isinstance(stride, Const) for stride in moved)
