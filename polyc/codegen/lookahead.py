"""Prefetch what windows read under masks.

Before: ``for c by 64 { for r < 3 { vector w < 64: S[w] += 0 <= c + w + r - 1 < W ? X[h + r - 1, c + w + r - 1] : 0 } }``.
After: ``for c by 64 { prefetch X[h + 1, c + 1 + ahead]; for r < 3 { … } }``.

Where the load that comes to a cache line first is masked, the processor's own prefetcher does not follow (AMD, Zen 5), and
every line is waited for: a 3×3 mean of images of 112×112 took 9.6 ms, and takes 1.7.  Addresses are counted on along memory,
beyond the end of a row into the next one; prefetching an address never faults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from polyc.codegen.prefetch import MAX_LINES, is_large, row_bytes, written_buffers
from polyc.ir.expr import Call, Const, Expr, Index, Read, Select, int_const, reads, substitute, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Prefetch, Store, Update
from polyc.ir.simplify import simplify
from polyc.target import Target

AHEAD_BYTES = 1536
"""How far ahead: some hundred cycles of a sum of few terms."""

MAX_TERMS = 64
"""Terms of a sum for each element, above which arithmetic hides the latency."""


def prefetch_windows(nest: LoopNest, target: Target) -> LoopNest:
    """Ask early for what short sums read under masks of arrays beyond the second-level cache."""
    written = written_buffers(nest)
    kept = {b.name: b for b in nest.buffers if b.space == "argument" and b.name not in written and is_large(b, target)}
    body = tuple(_visit(node, kept, target) for node in nest.body) if kept else nest.body
    return nest if body == nest.body else replace(nest, body=body)


def _visit(node: Node, kept: dict[str, Buffer], target: Target) -> Node:
    match node:
        case If():
            body, orelse = (tuple(_visit(n, kept, target) for n in arm) for arm in (node.body, node.orelse))
            return replace(node, body=body, orelse=orelse)
        case Loop() if node.kind in ("serial", "parallel") and not node.registers:
            ahead = _find_ahead(node, kept, target)
            return replace(node, body=(*ahead, *(_visit(n, kept, target) for n in node.body)))
    return node


def _find_ahead(loop: Loop, kept: dict[str, Buffer], target: Target) -> tuple[Node, ...]:
    """The prefetches of one iteration of a loop whose body sums in registers: one for each array, of the last row it reads."""
    furthest: dict[str, tuple[int, Prefetch]] = {}
    for read, inner in _masked_reads(loop.body, ()):
        buffer = kept.get(read.tensor)
        if buffer is None or not any(n.registers for n in inner) or any(n.kind == "parallel" for n in inner):
            continue
        vector, sums = inner[-1], inner[:-1]
        trips = [n.max_trip or _constant(simplify(Call("sub", (n.upper, n.lower)))) for n in sums]
        if any(t is None for t in trips) or math.prod(t for t in trips if t) > MAX_TERMS:
            continue
        size = row_bytes(buffer, read, (vector,))
        if size is None or not buffer.strides or not isinstance(buffer.strides[-1], Const) or not buffer.strides[-1].value:
            continue
        last: dict[str, Expr] = {n.var: simplify(Call("sub", (n.upper, int_const(n.step)))) for n in sums}
        last[vector.var] = vector.lower
        place = [simplify(substitute(s, last)) for s in read.subscripts]
        weight = _fixed_part(read, last)
        place[-1] = simplify(Call("add", (place[-1], int_const(AHEAD_BYTES // int(buffer.strides[-1].value)))))
        names = {n.name for s in place for n in walk(s) if isinstance(n, Index)}
        if names & {n.var for n in inner}:
            continue
        prefetch = Prefetch(read.tensor, tuple(place), min(size, MAX_LINES * target.cache_line))
        if read.tensor not in furthest or weight > furthest[read.tensor][0]:
            furthest[read.tensor] = weight, prefetch
    return tuple(prefetch for _, prefetch in furthest.values())


def _masked_reads(body: tuple[Node, ...], inner: tuple[Loop, ...]) -> Iterator[tuple[Read, tuple[Loop, ...]]]:
    """Reads inside of vector loops that only some lanes do, and the loops around them, outermost first."""
    for node in body:
        match node:
            case Store() | Update() if inner and inner[-1].kind == "vector":
                lane = inner[-1].var
                for select in walk(node.value):
                    if isinstance(select, Select) and any(
                        isinstance(n, Index) and n.name == lane for n in walk(select.condition)
                    ):
                        for read in reads(select.then):
                            if all(index_coefficients(s) is not None for s in read.subscripts):
                                yield read, inner
            case If():
                yield from _masked_reads(node.body + node.orelse, inner)
            case Loop() if node.registers or inner:
                yield from _masked_reads(node.body, (*inner, node))


def _constant(expr: Expr) -> int | None:
    return int(expr.value) if isinstance(expr, Const) else None


def _fixed_part(read: Read, last: dict[str, Expr]) -> int:
    """The constants of the subscripts at the last terms, rows first: which of several reads of an array is furthest on."""
    total = 0
    for s in read.subscripts:
        form = simplify(
            substitute(s, {**last, **{n.name: int_const(0) for n in walk(s) if isinstance(n, Index) and n.name not in last}})
        )
        total = total * 1024 + (int(form.value) if isinstance(form, Const) else 0)
    return total
