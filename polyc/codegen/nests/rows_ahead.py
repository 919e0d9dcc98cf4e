"""Prefetch the rows to come in the last pass over this one.

Before: ``for n { vector d: M max= X[n, d] ; vector d { E[d] = exp(X[n, d] - M); S += E[d] } ; vector d: Y[n, d] = E[d] / S }``.
After: ``for n { vector d: M max= X[n, d] ; vector d { prefetch X[n + 1, d]; E[d] = …; S += E[d] } ; … }``.

The first pass over a row waits for memory, while those after it find the row in the cache and leave memory idle: the time is
the sum of both.  A processor's own prefetcher follows one pass to its end, not into the row of the next iteration.  Each vector
asks for as much as it reads: a row asked for at once keeps requests waiting for each other (mean and variance of rows of 4 KiB
in the third-level cache, AMD Zen 5, in C: 0.25 ms; 0.22 with a request for each line, 0.24 with all of them at once).  The last
pass that writes no array is taken: what a pass writes keeps memory busy.  Where it is the first one, a pass that streams its
result is taken (Zen 4, root mean squares of 16 MB: rows of 2 KiB 0.83 of the time, of 4 KiB 0.86, of 8 and 16 KiB 0.89, those
that begin with a cache line 0.83 to 1.01; exponentials under their maximum, 16 MB 0.94, 64 and 128 MB 0.77 to 0.95).
Prefetching an address never faults.

Rows come to the second-level cache: the first one waits for a few lines at a time, and what the pass reads has to wait with
them.  Short ones are asked for several ahead, so that they are there in time (one thread of AMD Zen 4, parts of the time
without, by way of the first-level cache and now: passes with exponentials over 16 MB in rows of 16 KiB 0.78 and 0.74, of 32 KiB
1.13 and 0.78, of 128 KB 1.29 and 0.82; mean and variance in rows of 4 KiB 1.13 and 0.83, of 16 KiB 0.96 and 0.77).  Short rows
of arrays of which the last-level cache has plenty of room come to the first one at once (mean and variance of 4 MB 0.88, else
0.94).

A pass of little arithmetic is soon over.  While it lasts, requests bring less than the prefetcher does in the first pass, which
is all that counts where rows come from memory (mean and variance of 128 MB: 1.02 to 1.49 of the time without).  It asks for
short rows of arrays that the last-level cache holds.

From the second-level cache the next row comes as fast as the processor asks for it, while a first pass of few operations waits
for each line.  Rows that leave most of the first-level cache free are asked for once more, one row ahead, where the pass takes
long or results are streamed (AMD, Zen 4, over 16 MB: layer normalisation of rows of 2 KiB 0.80 of the time, of 4 KiB 0.79, of
8 KiB 1.00, of 24 KiB 1.13; softmax 0.98, 0.97, 0.97, 1.01; mean and variance of 4 KiB, which write nothing, 1.04 to 1.2 where
rows come from memory, and 0.98).

Where sizes are known at the call only, such a pass is there once for each way of asking, and once without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from polyc.codegen.nests.epilogues import FUNCTION_COSTS
from polyc.codegen.nests.prefetch import bytes_of, large_arrays, step_ahead
from polyc.ir.access import moves, stride_of, with_values
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    all_hold,
    ge,
    index_names,
    int_const,
    le,
    maximum,
    minimum,
    reads,
    substitute,
    walk,
)
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Prefetch, Store, Update
from polyc.ir.simplify import simplify
from polyc.ir.walk import Scope, node_expressions, nodes_in, replace_nodes, rewrite_nest, rewrite_nodes, walk_nodes
from polyc.records import dataclass, replace
from polyc.target import Target

LEAST_BYTES = 512
"""Bytes of a row below which the processor's own prefetcher is beyond its end before it is read."""

PART_OF_L2 = 4
"""Part of the second-level cache that a row may take: the next one waits beside it."""

SHARE_OF_L1 = 0.75
"""Share of the first-level cache that a row may take which a pass of little arithmetic asks for."""

PART_OF_L3 = 2
"""Part of the last-level cache that an array may take of which such a pass asks for rows."""

NEAR_PART_OF_L3 = 4
"""Part of it that is near enough for short rows to come to the first-level cache in time."""

PART_OF_L1 = 8
"""Part of the first-level cache that a row may take which is asked for there as well."""

BYTES_AHEAD = 32 << 10
"""Bytes of whole rows that are asked for ahead, one row at least."""


_Way = tuple[Expr | None, tuple[Prefetch, ...]]
"""What is asked for where a condition on sizes holds."""

_Ask = tuple[int | Expr, Literal[1, 2]]
"""How many rows before they are read they are asked for, and the cache that they come to."""


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

    def ask(node: Node, scope: Scope) -> Node | None:
        if not isinstance(node, Loop) or node.kind not in ("serial", "parallel") or node.registers:
            return node if isinstance(node, Loop) else None
        inside, body = scope.inside(node), list(node.body)
        asked = _asked(node, inside.loops_in_order, arrays).values()
        for last, ways in asked:
            body[last.child] = _insert(body[last.child], last.vector, ways)
        return replace(node, body=rewrite_nodes(tuple(body), ask, inside)) if asked else None

    return rewrite_nest(nest, ask) if large else nest


def _asked(loop: Loop, around: tuple[Loop, ...], arrays: _Arrays) -> dict[tuple[int, int], tuple[_Pass, list[_Way]]]:
    """Passes in `loop`, each by the node and the vector loop that it is, and what it asks for."""
    found_ways: dict[tuple[int, int], tuple[_Pass, list[_Way]]] = {}
    passes: dict[str, list[_Pass]] = {}
    for child, node in enumerate(loop.body):
        for found in _passes(child, node, arrays):
            passes.setdefault(found.read.tensor, []).append(found)
    for mine in passes.values():
        pair = _whole_and_last(loop, mine, arrays)
        if pair is None:
            continue
        whole, last = pair
        is_streaming = any(isinstance(n, Store) and n.streamed for n in walk_nodes(loop.body))
        ways = [
            (condition, tuple(_prefetch(last, around, arrays, n_rows, level) for n_rows, level in asked))
            for condition, asked in _rows_ahead(whole, last, arrays, is_streaming)
        ]
        if ways:
            found_ways[last.child, id(last.vector)] = last, ways
    return found_ways


def _prefetch(last: _Pass, around: tuple[Loop, ...], arrays: _Arrays, n_rows: int | Expr, level: Literal[1, 2]) -> Prefetch:
    later, loop = step_ahead(around, n_rows if isinstance(n_rows, int) else 1), around[-1]
    if not isinstance(n_rows, int) and len(around) == 1:
        later = {loop.var: Index(loop.var) + n_rows * loop.step}
    place = with_values(last.read, later).subscripts
    return Prefetch(last.read.tensor, place, arrays.large[last.read.tensor].dtype.itemsize, level)


def _passes(child: int, node: Node, arrays: _Arrays) -> Iterator[_Pass]:
    for n, scope in nodes_in((node,)):
        inner = scope.loops
        is_plain = len(inner) == len(scope.path) and {loop.kind for loop in inner} <= {"serial", "vector"}
        if isinstance(n, (Store, Update)) and is_plain and inner and inner[-1].kind == "vector":
            for read in dict.fromkeys(reads(n.value)):
                buffer = arrays.large.get(read.tensor)
                if buffer is not None and stride_of(read, buffer, inner[-1].var) == buffer.dtype.itemsize:
                    yield _Pass(child, inner, read)


def _whole_and_last(loop: Loop, passes: list[_Pass], arrays: _Arrays) -> tuple[_Pass, _Pass] | None:
    """Of several passes over one row, which goes on with `loop`: the first that writes no array, and the one that asks for rows
    to come, the last that writes none or, where no later one is such, the last that streams; None where there is none.

    A pass that streams is taken apart at cache lines; one that writes nothing tells how long the row is."""
    row = _row_of(passes[0])
    if any(_row_of(p) != row for p in passes) or loop.var not in index_names(*passes[0].read.subscripts):
        return None
    idle = [p for p in passes if not any(_writes(n, p.vector, arrays) for n in p.vector.body)]
    streaming = [p for p in passes if any(isinstance(n, Store) and n.streamed for n in p.vector.body)]
    later = [p for p in idle if p.child != passes[0].child] or [p for p in streaming if p.child != passes[0].child]
    if not idle or not later:
        return None
    whole, last = idle[0], later[-1]
    size = _row_bytes(whole, arrays)
    if size is None:
        return whole, last  # for any size: rows that are too short lose little by it, and few are too long
    step = stride_of(last.read, arrays.large[last.read.tensor], loop.var)
    is_next = step is None or abs(step * loop.step) >= size
    return (whole, last) if is_next and LEAST_BYTES <= size <= arrays.target.l2 // PART_OF_L2 else None


def _rows_ahead(whole: _Pass, last: _Pass, arrays: _Arrays, is_streaming: bool) -> list[tuple[Expr | None, list[_Ask]]]:
    """What the last pass asks for where a condition on sizes holds and none before it does.  Empty where it does not ask."""
    buffer, target = arrays.large[last.read.tensor], arrays.target
    row, size = _row_bytes(whole, arrays), bytes_of(buffer)
    calls = {e.op for n in last.vector.body for own in node_expressions(n) for e in walk(own) if isinstance(e, Call)}
    is_long = not calls.isdisjoint(FUNCTION_COSTS)
    near: _Ask = (1, 1)
    if row is not None and (size is not None or is_long):
        is_short = row <= target.l1 * SHARE_OF_L1
        if not is_long and not (size is not None and is_short and size <= target.l3 // PART_OF_L3):
            return []
        if size is not None and is_short and size <= target.l3 // NEAR_PART_OF_L3:
            return [(None, [near])]
        far: _Ask = (max(1, BYTES_AHEAD // row), 2)
        is_near = (is_long or is_streaming) and row <= target.l1 // PART_OF_L1
        return [(None, [far, near] if is_near else [far])]
    length, total = _product(_trips(whole), buffer.dtype.itemsize), _product(buffer.shape, buffer.dtype.itemsize)
    if index_names(length):
        return [(None, [(1, 2)])] if is_long else []
    most = minimum(length, BYTES_AHEAD)
    n_rows = BYTES_AHEAD // maximum(most, 1)
    far = (n_rows, 2)
    if is_long:
        return [(le(length, target.l1 // PART_OF_L1), [far, near]), (None, [(1, 2)])]
    is_row = [ge(length, LEAST_BYTES), le(length, int(target.l1 * SHARE_OF_L1)), ge(total, target.l2 + 1)]
    parts: list[tuple[int, list[_Ask]]] = [(NEAR_PART_OF_L3, [near]), (PART_OF_L3, [far, near] if is_streaming else [far])]
    return [(all_hold([*is_row, le(total, target.l3 // part)]), asked) for part, asked in parts]


def _product(extents: Iterable[Expr], size: int) -> Expr:
    total: Expr = int_const(size)
    for extent in extents:
        total = total * extent
    return simplify(total)


def _trips(found: _Pass) -> list[Expr]:
    return [simplify(n.upper - n.lower) for n in found.inner]


def _row_bytes(found: _Pass, arrays: _Arrays) -> int | None:
    """Bytes of the row that a pass reads, where that is known."""
    length = _product(_trips(found), arrays.large[found.read.tensor].dtype.itemsize)
    return int(length.value) if isinstance(length, Const) else None


def _row_of(found: _Pass) -> Read:
    """What is read, with the loops of the row called by their numbers."""
    names = {n.var: Index(f"·{k}") for k, n in enumerate(found.inner)}
    return replace(found.read, subscripts=tuple(substitute(s, names) for s in found.read.subscripts))


def _writes(node: Node, vector: Loop, arrays: _Arrays) -> bool:
    """Whether `node` writes a row of an array."""
    return isinstance(node, (Store, Update)) and node.buffer in arrays.arguments and moves(node, vector.var)


def _insert(node: Node, vector: Loop, ways: list[_Way]) -> Node:
    """`node` with the first way whose condition holds in `vector`, which runs as it is where none does."""
    if not isinstance(node, Loop) or all(n is not vector for n in walk_nodes((node,))):
        return node
    found: Node = node
    for condition, asked in reversed(ways):
        (asking,) = replace_nodes((node,), {id(vector): replace(vector, body=(*asked, *vector.body))})
        found = asking if condition is None else If(condition, (asking,), (found,))
    return found
