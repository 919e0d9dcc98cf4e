"""The model of memory traffic behind all estimates: where bytes that are used again are found, and what it costs to move them.

Everything follows from a *footprint*: the bytes that are touched between two uses of one element.  The first level that has
room for them gives the element back; each level has rates (`machine.Memory`).  `contraction` asks for streams of operands,
`overlap.costs` and `distribute` for tensors that one statement passes to the next.  Rough on purpose: it only has to rank
choices.  Functions give cycles of one core unless their name says bytes.  They take amounts (`amounts`): numbers, or formulas
over the sizes of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import prod
from typing import Generic

from polyc.ir.expr import index_names, reads
from polyc.ir.program import Statement
from polyc.ir.types import DType
from polyc.machine import Level, Machine
from polyc.poly.ranges import StatementRanges, estimate_extent
from polyc.records import dataclass
from polyc.scheduler.amounts import A, Amount, Truth, common_power, either, largest, smallest, whole_part


def room_bytes(level: Level, target: Machine) -> float:
    """Bytes that stay in a cache until they are used again."""
    if level is Level.MEMORY:
        return float("inf")
    held = target.memory.held * target.size(level)
    return min(held, target.memory.l3_per_core) if level is Level.L3 else held


Places = list[tuple[Truth, Level]]
"""Levels, nearest first, and where each of them holds something that none before does; the last one holds what is left."""


def find_places(footprint: Amount, target: Machine, stride: Amount = 0, run: float = 0) -> Places:
    """Which levels hold `footprint` bytes until they are used again: one where that is known.  `stride`: bytes between steps
    where lines do not follow each other, `run`: bytes that one step reads in order."""
    found: Places = []
    for level in Level:
        held: Truth = level is Level.MEMORY or footprint <= room_bytes(level, target)
        if level <= Level.L2 and held is not False:
            held = held & has_sets(footprint, stride, level, target, run)
        if held is not False:
            found.append((held, level))
        if held is True:
            break
    return found


def find_level(footprint: float, target: Machine, stride: int = 0, run: float = 0) -> Level:
    """The level that holds a known number of bytes; `stride` and `run` as in `find_places`."""
    ((_, level),) = find_places(footprint, target, stride, run)
    return level


def at_places(places: Places, cost: Callable[[Level], A]) -> A:
    """What `cost` says of the level that holds something."""
    *nearer, (_, farthest) = places
    found = cost(farthest)
    for held, level in reversed(nearer):
        found = either(held, cost(level), found)
    return found


def pass_cycles(size: A, between: A, target: Machine) -> A:
    """Writing `size` bytes, and reading them again after `between` bytes."""
    return at_places(find_places(between, target), lambda level: size / target.memory.passed[level])


def pass_operations(
    s: Statement, own: StatementRanges, dtype: DType, shared: Collection[str], typical: Mapping[str, int], target: Machine
) -> float:
    """Arithmetic operations for one element of what `s` writes, of type `dtype`, that take as long as writing it and reading it
    in another loop, where loops over the indices `shared` are around both.

    0 where sizes are not known, or who computes it elsewhere would read more than one array of its size in its order."""
    as_large = {r for r in reads(s.value) if index_names(*r.subscripts).issuperset(s.indices)}
    extents = [estimate_extent(own.indices[i].extent, typical) for i in s.indices if i not in shared]
    if len(as_large) > 1 or any(r.subscripts != s.subscripts for r in as_large) or None in extents:
        return 0.0
    level = find_level(prod(n or 0 for n in extents) * dtype.itemsize, target)
    return target.vector_bits // 8 * target.fma_per_cycle / target.memory.passed[level]


def carries_sums(whole: float, read: float, n_steps: int, carried: float, target: Machine) -> bool:
    """Whether sums of `carried` bytes had better go in order along `n_steps` steps, and add up each as it is made, than read
    all steps when they are stored: `whole` bytes, or `read` where several sums do.

    Not where the second-level cache holds all.  Sums in the first one are counted as in the second: apart from their terms they
    would stay in registers."""
    if find_level(whole, target) <= Level.L2:
        return False
    together = whole / n_steps + carried
    level = max(Level.L2, find_level(together, target))
    in_order = pass_cycles(read, together, target) + n_steps * carried / target.memory.passed[level]
    return in_order < pass_cycles(read, whole, target)


def write_cycles(footprint: A, run: A, target: Machine) -> A:
    """Writing `footprint` bytes of results once, `run` bytes at a time: the line at an end of a run may be moved once more."""
    moved = footprint * (1 + 0.5 * target.cache_line / run)
    return at_places(find_places(footprint, target), lambda level: moved / target.memory.written[level])


@dataclass(frozen=True, slots=True)
class Stream(Generic[A]):
    """What one step of a register tile reads of an operand."""

    bytes: A
    cycles: A
    far_cycles: A
    """The same where they come from beyond the second-level cache and nothing asks for them ahead, else 0."""
    passed: A
    """1 where they come from beyond the first-level cache, else 0."""


def stream(bytes_per_step: A, footprint: A, target: Machine, stride: A = 0, run: float = 0) -> Stream[A]:
    """A stream over `footprint` bytes that is repeated; `stride` and `run` as in `find_places`."""
    places = find_places(footprint, target, stride, run)
    is_strided = not (isinstance(stride, int) and stride == 0)

    def cycles(level: Level) -> A:
        rates = target.memory.read_strided if (run if level <= Level.L2 else is_strided) else target.memory.read
        return bytes_per_step / rates[level]

    def far_cycles(level: Level) -> A:
        return cycles(level) if level >= Level.L3 else 0.0

    passed = at_places(places, lambda level: 1.0 if level > Level.L1 else 0.0)
    return Stream(bytes_per_step, at_places(places, cycles), at_places(places, far_cycles), passed)


def choose_stream(condition: Truth, then: Callable[[], Stream[A]], other: Callable[[], Stream[A]]) -> Stream[A]:
    """What `then` returns where the condition holds, else what `other` does."""
    if isinstance(condition, bool):
        return then() if condition else other()
    a, b = then(), other()
    pairs = ((a.bytes, b.bytes), (a.cycles, b.cycles), (a.far_cycles, b.far_cycles), (a.passed, b.passed))
    return Stream(*(either(condition, x, y) for x, y in pairs))


def asked_ahead(found: Stream[A], width: float, steps: A, size: A, target: Machine) -> Stream[A]:
    """The stream `found` of `width` bytes far apart in each of so many steps, over an operand of `size` bytes, where generated
    code asks for it ahead."""
    prefetchers, rates = target.prefetchers, target.memory.read_prefetched
    if not target.cache_line <= width <= prefetchers.strided_lines * target.cache_line:
        return found

    def asked() -> Stream[A]:
        places = [(held, level) for held, level in find_places(size, target) if level >= Level.L3]

        def at(level: Level) -> A:
            return smallest(found.cycles, found.bytes / rates[level])

        def far(level: Level) -> A:
            return 0.0 if rates[level] > target.memory.read[level] else smallest(found.far_cycles, at(level))

        return Stream(found.bytes, at_places(places, at), at_places(places, far), found.passed)

    return choose_stream((steps >= prefetchers.strided_steps) & (size > target.l2), asked, lambda: found)


def has_sets(footprint: Amount, stride: Amount, level: Level, target: Machine, run: float = 0) -> Truth:
    """Whether a cache can hold runs of lines that start `stride` bytes apart: they may fall into few of its sets."""
    line, ways = target.cache_line, target.ways(level)
    together = stride < line
    if together is True:
        return True
    sets = target.size(level) // (ways * line)
    # Of sets that are no power of two that part decides which strides return to the same ones.
    step = largest(1, whole_part(common_power(stride, line * (sets & -sets)), line))
    reached = sets / step * smallest(step, max(1, run // line))
    return together | (footprint <= 1.25 * ways * line * reached)


def holds_rows(rows: int, strides: Iterable[Amount], target: Machine) -> Truth:
    """Whether a set of the first-level cache holds a line of each row of a tile, which are so many bytes apart: too many of
    them fall into one set where all strides are about whole pages."""
    ways, page = target.ways(Level.L1), target.memory.page
    margin = (target.cache_line - 1) // ways
    found: Truth = rows <= ways
    if found:
        return True
    for stride in strides:
        found = found | (stride <= margin) | ((stride + margin) % page > 2 * margin)
    return found
