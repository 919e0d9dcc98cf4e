"""Prefetch the next row in the last pass over this one.

Before: ``for n { vector d: M max= X[n, d] ; vector d { E[d] = exp(X[n, d] - M); S += E[d] } ; vector d: Y[n, d] = E[d] / S }``.
After: ``for n { vector d: M max= X[n, d] ; vector d { prefetch X[n + 1, d]; E[d] = …; S += E[d] } ; … }``.

The first pass over a row waits for memory, while those after it find the row in the cache and leave memory idle: the time is
the sum of both.  A processor's own prefetcher follows one pass to its end, not into the row of the next iteration.  Each vector
asks for as much as it reads: a row asked for at once keeps requests waiting for each other (mean and variance of rows of 4 KiB
in the third-level cache, AMD Zen 5, in C: 0.25 ms; 0.22 with a request for each line, 0.24 with all of them at once).  The last
pass that writes no array is taken: what a pass writes keeps memory busy.  Prefetching an address never faults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from polyc.codegen.nests.copies import motion_of
from polyc.codegen.nests.prefetch import large_arrays, step_ahead
from polyc.ir.expr import Call, Const, Expr, Index, Read, reads, substitute, walk
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Prefetch, Store, Update
from polyc.ir.simplify import simplify
from polyc.target import Target

LEAST_BYTES = 512
"""Bytes of a row below which the processor's own prefetcher is beyond its end before it is read."""

PART_OF_L2 = 4
"""Part of the second-level cache that a row may take: the next one waits beside it."""


@dataclass(frozen=True, slots=True)
class _Arrays:
    """What may be asked for, and everything that is memory outside the nest."""

    large: dict[str, Buffer]
    arguments: frozenset[str]
    target: Target


@dataclass(frozen=True, slots=True)
class _Pass:
    """A read in a vector loop that goes along memory."""

    child: int
    inner: tuple[Loop, ...]
    read: Read

    @property
    def vector(self) -> Loop:
        return self.inner[-1]


def prefetch_next_rows(nest: LoopNest, target: Target) -> LoopNest:
    """Ask early for rows that are read in several passes, of arrays beyond the second-level cache."""
    large = large_arrays(nest, target)
    arrays = _Arrays(large, frozenset(b.name for b in nest.buffers if b.space == "argument"), target)
    body = tuple(_visit(node, (), arrays) for node in nest.body) if large else nest.body
    return nest if body == nest.body else replace(nest, body=body)


def _visit(node: Node, around: tuple[Loop, ...], arrays: _Arrays) -> Node:
    """`around`: the loops around whose order of iterations is known, outermost first."""
    match node:
        case If():
            body, orelse = (tuple(_visit(n, around, arrays) for n in arm) for arm in (node.body, node.orelse))
            return replace(node, body=body, orelse=orelse)
        case Loop() if node.kind in ("serial", "parallel") and not node.registers:
            # A thread begins with its own iterations.
            around = (*around, node) if node.kind == "serial" else (node,)
            asked = {id(vector): prefetch for vector, prefetch in _asked(node, around, arrays)}
            body = tuple(_insert(n, asked) for n in node.body) if asked else node.body
            return replace(node, body=tuple(_visit(n, around, arrays) for n in body))
    return node


def _asked(loop: Loop, around: tuple[Loop, ...], arrays: _Arrays) -> Iterator[tuple[Loop, Prefetch]]:
    """Vector loops in `loop`, and what each of them asks for."""
    passes: dict[str, list[_Pass]] = {}
    for child, node in enumerate(loop.body):
        for found in _passes(child, node, (), arrays):
            passes.setdefault(found.read.tensor, []).append(found)
    for name, mine in passes.items():
        last = _last_pass(loop, mine, arrays)
        if last is not None:
            later = step_ahead(around, 1)
            place = tuple(simplify(substitute(s, later)) for s in last.read.subscripts)
            yield last.vector, Prefetch(name, place, arrays.large[name].dtype.itemsize)


def _passes(child: int, node: Node, inner: tuple[Loop, ...], arrays: _Arrays) -> Iterator[_Pass]:
    match node:
        case Store() | Update():
            if inner and inner[-1].kind == "vector":
                for read in dict.fromkeys(reads(node.value)):
                    buffer = arrays.large.get(read.tensor)
                    if buffer is not None and motion_of(read, buffer, inner[-1].var) == buffer.dtype.itemsize:
                        yield _Pass(child, inner, read)
        case Loop() if node.kind in ("serial", "vector"):
            for n in node.body:
                yield from _passes(child, n, (*inner, node), arrays)


def _last_pass(loop: Loop, passes: list[_Pass], arrays: _Arrays) -> _Pass | None:
    """The last of several passes over one row, which goes on with `loop`, that writes no array; None where there is none."""
    row = _row_of(passes[0])
    if any(_row_of(p) != row for p in passes) or not _moves(passes[0].read.subscripts, loop):
        return None
    idle = [p for p in passes if not any(_writes(n, p.vector, arrays) for n in p.vector.body)]
    if not idle or idle[-1].child == passes[0].child:
        return None
    last = idle[-1]
    trips = [simplify(Call("sub", (n.upper, n.lower))) for n in last.inner]
    if not all(isinstance(t, Const) for t in trips):
        return last  # for any size: rows that are too short lose little by it, and few are too long
    buffer = arrays.large[last.read.tensor]
    size = math.prod(int(t.value) for t in trips if isinstance(t, Const)) * buffer.dtype.itemsize
    step = motion_of(last.read, buffer, loop.var)
    is_next = step is None or abs(step * loop.step) >= size
    return last if is_next and LEAST_BYTES <= size <= arrays.target.l2 // PART_OF_L2 else None


def _row_of(found: _Pass) -> Read:
    """What is read, with the loops of the row called by their numbers."""
    names = {n.var: Index(f"·{k}") for k, n in enumerate(found.inner)}
    return replace(found.read, subscripts=tuple(substitute(s, names) for s in found.read.subscripts))


def _writes(node: Node, vector: Loop, arrays: _Arrays) -> bool:
    """Whether `node` writes a row of an array."""
    return isinstance(node, Store | Update) and node.buffer in arrays.arguments and _moves(node.subscripts, vector)


def _moves(subscripts: tuple[Expr, ...], loop: Loop) -> bool:
    return any(n == Index(loop.var) for s in subscripts for n in walk(s))


def _insert(node: Node, asked: dict[int, Prefetch]) -> Node:
    if not isinstance(node, Loop):
        return node
    if id(node) in asked:
        return replace(node, body=(asked[id(node)], *node.body))
    return replace(node, body=tuple(_insert(n, asked) for n in node.body))
