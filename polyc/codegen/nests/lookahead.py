"""Prefetch what windows read under masks, or in steps.

Before: ``for c by 64 { for r < 3 { vector w < 64: S[w] += 0 <= c + w + r - 1 < W ? X[h + r - 1, c + w + r - 1] : 0 } }``.
After: ``for c by 64 { prefetch X[h + 1, c + 1 + ahead]; for r < 3 { … } }``.

Where the load that comes to a cache line first is masked, the processor's own prefetcher does not follow (AMD, Zen 5), and
every line is waited for: a 3×3 mean of images of 112×112 took 9.6 ms, and takes 1.7.  Windows that step on by 2 to 4 elements
read so many bytes for each result that it does not follow far enough: 2×2 means of 25 MB went from 0.75 to 0.5 ms where what
is 9 to 18 KiB on was asked for (AMD, Zen 5; not so on Zen 4: `LEAST_L1`).  Every row that an iteration is the first to read is.
Addresses are counted on along memory, beyond the end of a row into the next one; prefetching an address never faults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from polyc.codegen.nests.prefetch import MAX_LINES, large_arrays, row_bytes
from polyc.ir.expr import Const, Expr, Index, Read, Select, index_names, int_const, mentions, reads, substitute, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, Loop, LoopNest, Node, Prefetch, Store, Update, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, nodes_in, rewrite_nest, rewrite_nodes
from polyc.records import replace
from polyc.target import Target

AHEAD_BYTES = 1536
"""How far ahead: some hundred cycles of a sum of few terms."""

AHEAD_IN_STEPS = 12288
"""The same for windows that step on by several elements."""

LEAST_L1 = 48 << 10
"""The first-level cache of cores whose vectors of whole lines outrun their prefetcher in such windows.  One of 32 KiB (Zen 4)
waits for few lines, and its prefetcher keeps up: 2×2 maxima of 25 MB took 1.45 ms with requests 4 to 24 KiB ahead, to either
cache, 1.05 without; 3×3 by steps of 2 1.6 and 1.3.  With vectors of half a line, whose shuffles take longer than memory, the
requests pay there as well (3×3 by steps of 2: 1.85 ms, and 2.3 without)."""

MAX_STEP = 4
"""Elements from lane to lane up to which all elements in between are loaded."""

MAX_PIECES, MAX_PIECE_LINES = 8, 32
"""Pieces of rows that are asked for in one iteration, and the cache lines of each."""

MAX_TERMS = 64
"""Terms of a sum for each element, above which arithmetic hides the latency."""


def prefetch_windows(nest: LoopNest, target: Target) -> LoopNest:
    """Ask early for what short sums read, under masks or in steps, of arrays beyond the second-level cache."""
    kept = large_arrays(nest, target)

    def ask(node: Node, scope: Scope) -> Node | None:
        if not isinstance(node, Loop) or node.kind not in ("serial", "parallel") or node.registers:
            return node if isinstance(node, Loop) else None
        inside = scope.inside(node)
        ahead = _find_ahead(inside.loops, kept, target)
        return replace(node, body=(*ahead, *rewrite_nodes(node.body, ask, inside))) if ahead else None

    return rewrite_nest(nest, ask) if kept else nest


def _find_ahead(around: tuple[Loop, ...], kept: dict[str, Buffer], target: Target) -> Body:
    """The prefetches of one iteration of the innermost of these loops, whose body sums in registers: for each array, of the
    rows that it is the first to read."""
    furthest: dict[str, tuple[int, tuple[Prefetch, ...]]] = {}
    for read, inner, is_masked in _windows(around[-1].body):
        buffer = kept.get(read.tensor)
        if buffer is None or not any(n.registers for n in inner) or any(n.kind == "parallel" for n in inner):
            continue
        vector, sums = inner[-1], inner[:-1]
        step = abs((index_coefficients(read.subscripts[-1]) or {}).get(vector.var, 0)) if read.subscripts else 0
        is_stepping = 2 <= step <= MAX_STEP and not _keeps_up(target)
        if not is_masked and not is_stepping:
            continue
        trips = [n.max_trip or known_length(n) for n in sums]
        if any(t is None for t in trips) or math.prod(t for t in trips if t) > MAX_TERMS:
            continue
        size = row_bytes(buffer, read, (vector,))
        if size is None or not buffer.strides or not isinstance(buffer.strides[-1], Const) or not buffer.strides[-1].value:
            continue
        ahead, lines = (AHEAD_IN_STEPS, MAX_PIECE_LINES) if is_stepping else (AHEAD_BYTES, MAX_LINES)
        last: dict[str, Expr] = {n.var: simplify(n.upper - n.step) for n in sums}
        last[vector.var] = vector.lower
        found: list[Prefetch] = []
        for back in product(*(range(_first_reads(around, n, read)) for n in sums)):
            there = {n.var: simplify(last[n.var] - b * n.step) for n, b in zip(sums, back, strict=True)}
            place = [simplify(substitute(s, {**last, **there})) for s in read.subscripts]
            place[-1] = simplify(place[-1] + ahead // int(buffer.strides[-1].value))
            found.append(Prefetch(read.tensor, tuple(place), min(size, lines * target.cache_line)))
        names = index_names(*(s for p in found for s in p.subscripts))
        if names & {n.var for n in inner} or len(found) > MAX_PIECES:
            continue
        weight = _fixed_part(read, last)
        if read.tensor not in furthest or weight > furthest[read.tensor][0]:
            furthest[read.tensor] = weight, tuple(reversed(found))
    return tuple(prefetch for _, group in furthest.values() for prefetch in group)


def _keeps_up(target: Target) -> bool:
    """Whether the processor's own prefetcher follows windows in steps as fast as they are computed."""
    return target.vector_bits // 8 >= target.cache_line and target.l1 < LEAST_L1


def _first_reads(around: tuple[Loop, ...], term: Loop, read: Read) -> int:
    """How many of the last iterations of `term` read rows that are read for the first time in an order of `around`."""
    trip = term.max_trip or known_length(term) or 1
    for subscript in read.subscripts[:-1]:
        coefficients = index_coefficients(subscript) or {}
        if coefficients.get(term.var):
            moved = [abs(coefficients[n.var]) * n.step for n in around if coefficients.get(n.var)]
            return min(trip, -(-min(moved) // abs(coefficients[term.var] * term.step))) if moved else trip
    return 1


def _windows(body: Body) -> Iterator[tuple[Read, tuple[Loop, ...], bool]]:
    """Reads inside of vector loops, the loops around them, outermost first, and whether only some lanes read."""
    for node, scope in nodes_in(body):
        inner = scope.loops
        if not isinstance(node, (Store, Update)) or not inner or not inner[0].registers or inner[-1].kind != "vector":
            continue
        chosen = (e for e in walk(node.value) if isinstance(e, Select) and mentions(e.condition, inner[-1].var))
        masked = {read for e in chosen for read in reads(e.then)}
        for read in dict.fromkeys(reads(node.value)):
            if all(index_coefficients(s) is not None for s in read.subscripts):
                yield read, inner, read in masked


def _fixed_part(read: Read, last: dict[str, Expr]) -> int:
    """The constants of the subscripts at the last terms, rows first: which of several reads of an array is furthest on."""
    total = 0
    for s in read.subscripts:
        form = simplify(
            substitute(s, {**last, **{n.name: int_const(0) for n in walk(s) if isinstance(n, Index) and n.name not in last}})
        )
        total = total * 1024 + (int(form.value) if isinstance(form, Const) else 0)
    return total
