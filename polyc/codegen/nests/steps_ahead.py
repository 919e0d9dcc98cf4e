"""Prefetch what the steps of a sum read far apart, some steps ahead.

Before: ``(registers C) for k { unroll i < 4 { vector j < 64 { C[i, j] += A[i, k] * B[k, j] } } }``.
After: ``(registers C) for k { prefetch B[k + 16, 0], 256 bytes; unroll i < 4 { vector j < 64 { … } } }``.

Each step reads a few lines, and the next one as many of another row of memory.  No prefetcher follows far enough, and a tile of
few rows waits for most of them.  They come to the second-level cache: rows that lie whole pages apart meet in one set of the
first one, which holds eight of them (AMD, Zen 4, 4x1024x1024 from the third-level cache, B copied panel by panel: 184 us; in
place 88; with requests for the row 8 steps on, to the first-level cache, 110, to the second one 82; 8x1000x3000: 707, 872, 660
and 524, and 16 steps on 458).  Prefetching an address never faults.

Steps of a sum of any length over an array of any size ask where the sizes of a call leave neither short (1x1 of 64 channels of
349×349, 16 results, any sizes: 12.6 ms without requests, 8.8 with).  The test in each step costs nothing that shows, while
requests for what is near take 5 to 10 % of steps of few products (1x1 of 64 channels of 56×56, AVX2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import mul

from polyc.codegen.nests.prefetch import bytes_of, large_arrays, row_bytes
from polyc.ir.access import stride_of, with_values
from polyc.ir.expr import Const, Expr, Index, Read, all_hold, ge, gt, reads
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Prefetch, Update, known_length
from polyc.ir.walk import Body, Scope, nodes_in, rewrite_nest
from polyc.records import replace
from polyc.target import Target

AHEAD = 16
"""Steps ahead: as many cycles as the third-level cache takes, in tiles of few products."""

LEAST_STEPS = 64
"""Steps of a sum below which most of what is asked for is never read."""

MOST_LINES = 6
"""Cache lines of a row, one more instruction for each in a step."""


def prefetch_steps(nest: LoopNest, target: Target) -> LoopNest:
    """Ask early for the rows of large arrays that register tiles read in place, a row in each step of their sum."""
    kept = large_arrays(nest, target)

    def ask(node: Node, scope: Scope) -> Node | None:
        if isinstance(node, Loop) and node.registers and node.kind == "serial":
            return replace(node, body=(*_requests(node, kept, target), *node.body))
        return None

    return rewrite_nest(nest, ask) if kept else nest


def _requests(loop: Loop, kept: Mapping[str, Buffer], target: Target) -> Iterator[Prefetch | If]:
    """The row that each large array's vectors read some steps of the sum `loop` later."""
    length = known_length(loop)
    if length is not None and length < LEAST_STEPS * loop.step:
        return
    asked: set[Read] = set()
    for read, inner in _vectors(loop.body):
        buffer = kept.get(read.tensor)
        size = None if buffer is None else row_bytes(buffer, read, inner)
        if buffer is None or size is None or not target.cache_line <= size <= MOST_LINES * target.cache_line:
            continue
        first = with_values(read, {n.var: n.lower for n in inner})
        if first in asked or not _moves_far(read, buffer, loop, size):
            continue
        asked.add(first)
        later = with_values(first, {loop.var: Index(loop.var) + AHEAD * loop.step})
        request = Prefetch(read.tensor, later.subscripts, size, 2)
        tests = _tests(loop, buffer, target)
        yield If(all_hold(tests), (request,)) if tests else request


def _moves_far(read: Read, buffer: Buffer, loop: Loop, size: int) -> bool:
    """Whether `read` moves by more than `size` bytes in a step, or to another row of an array of any size."""
    motion = stride_of(read, buffer, loop.var)
    if motion is not None:
        return abs(motion) * loop.step > size
    coefficients = [index_coefficients(s) for s in read.subscripts]
    if any(c is None for c in coefficients):
        return False
    moved = [stride for c, stride in zip(coefficients, buffer.strides, strict=True) if c and c.get(loop.var)]
    return not any(isinstance(stride, Const) for stride in moved)


def _tests(loop: Loop, buffer: Buffer, target: Target) -> list[Expr]:
    """What the sizes of a call have to say for requests: that the sum is long, and that the array is not near."""
    tests: list[Expr] = []
    if known_length(loop) is None:
        tests.append(ge(loop.upper - loop.lower, LEAST_STEPS * loop.step))
    if bytes_of(buffer) is None:
        elements = reduce(mul, buffer.shape)
        tests.append(gt(elements, target.l2 // buffer.dtype.itemsize))
    return tests


def _vectors(body: Body) -> Iterator[tuple[Read, tuple[Loop, ...]]]:
    """Reads of sums in expanded loops, the last of them a vector, with the loops that move each."""
    for node, scope in nodes_in(body):
        loops = scope.loops
        is_tile = len(loops) == len(scope.path) and all(n.is_expanded for n in loops)
        if isinstance(node, Update) and is_tile and loops and loops[-1].kind == "vector":
            yield from ((r, loops) for r in dict.fromkeys(reads(node.value)))
