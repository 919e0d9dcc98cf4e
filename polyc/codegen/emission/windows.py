"""Strided windows: memory in which the lanes of neighbouring taps interleave is loaded once for all of them.

In ``for s < 2 { vector j { S[j] += X[2*j + s] } }`` the lanes of both taps are elements of the same rows of memory: 16 lanes
of ``X[2*j]`` and of ``X[2*j + 1]`` are 32 consecutive elements.  These are loaded whole, and each tap picks its own.  Only
elements that some tap reads under the same conditions are touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from polyc.code_limits import MAX_ITEMS
from polyc.codegen.emission.context import Context, State, byte_offset
from polyc.codegen.emission.linear import index_names, split_lane
from polyc.codegen.emission.predicates import always_holds
from polyc.codegen.writer.builder import Val
from polyc.ir.expr import Expr, Index, Read, operands_of, reads, walk
from polyc.ir.loops import Loop, Node, Store, Update
from polyc.records import replace


def find_phase(state: State, ctx: Context, read: Read, stride: int) -> int | None:
    """Which of the `stride` elements from one lane to the next `read` is, where all of them are read under its conditions."""
    size = state.by_name[read.tensor].dtype.itemsize
    known = _places(state, ctx, read)
    while known:
        first = min(known)
        row = {first + n * size for n in range(stride)}
        if row <= known:
            if 0 in row:
                return -first // size
            known -= row
        elif first == 0:
            return None
        else:
            known.remove(first)
    return None


def _places(state: State, ctx: Context, read: Read) -> set[int]:
    """Bytes from `read` to what the statement reads in all copies of the loops around, ending with the elements of one lane."""
    buffer = state.by_name[read.tensor]
    own = split_lane(byte_offset(ctx, buffer, read.subscripts), ctx.lane)
    if own is None:
        return set()
    origin = own[0].get((), 0)
    base = {atoms: c for atoms, c in own[0].items() if atoms}
    siblings = [read]
    if read in state.certain:
        siblings += [r for r in sorted(state.certain, key=str) if r.tensor == read.tensor and r != read]
    found: set[int] = set()
    for other in _copies(state, ctx, read):
        for sibling in siblings:
            if any(reads(s) for s in sibling.subscripts):
                continue
            split = split_lane(byte_offset(other, buffer, sibling.subscripts), ctx.lane)
            if split is None or split[1] != own[1]:
                continue
            if {atoms: c for atoms, c in split[0].items() if atoms} == base:
                found.add(split[0].get((), 0) - origin)
    return found


def _copies(state: State, ctx: Context, read: Read) -> Iterator[Context]:
    """The contexts of all copies of this one in unrolled loops around, under whose conditions the same elements are read."""
    taps = {n: ctx.taps[n] for n in ctx.taps if any(n in index_names(s) for s in read.subscripts)}
    tests: list[Expr] = []
    for p in ctx.predicates:
        condition = p.condition if p.source is None else p.source
        if isinstance(condition, Val):
            taps = taps if condition.ref == "true" else {}
        elif index_names(condition) & taps.keys():
            tests += operands_of(condition, "and")
    if any(reads(test) for test in tests):
        taps = {}
    count = 1
    for places in taps.values():
        count *= len(places)
    if not taps or count > MAX_ITEMS or not all(always_holds(state, ctx, test) for test in tests):
        yield ctx
        return
    for values in product(*taps.values()):
        other = replace(ctx, env={**ctx.env, **dict(zip(taps, values, strict=True))})
        if all(always_holds(state, other, test) for test in tests):
            yield other


def has_window(loop: Loop, strides: Callable[[Read, str], int | None], most: int) -> bool:
    """Whether copies of a loop of few iterations read elements between the lanes of each other.

    `strides`: the elements that a read moves by with a variable, if that is known; `most`: elements between lanes."""

    def visit(body: tuple[Node, ...]) -> bool:
        for node in body:
            match node:
                case Loop(kind="vector"):
                    for inner in node.body:
                        if isinstance(inner, (Store, Update)) and any(fits(r, node.var) for r in reads(inner.value)):
                            return True
                case Loop():
                    if visit(node.body):
                        return True
        return False

    def fits(read: Read, lane: str) -> bool:
        if not any(_mentions(s, lane) and _mentions(s, loop.var) for s in read.subscripts):
            return False
        step, tap = strides(read, lane), strides(read, loop.var)
        return step is not None and tap is not None and 2 <= step <= most and 0 < abs(tap) < step

    return visit(loop.body)


def _mentions(expr: Expr, name: str) -> bool:
    return any(isinstance(n, Index) and n.name == name for n in walk(expr))
