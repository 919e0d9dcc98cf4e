"""Recurrences of many small problems, one problem in each lane of a vector.

    before  ``S[b,i,j] += F[b,i,k] * F[b,k,j]`` over ``k < i, k < j``, and F made of S and A element by element, for every b
    after   ``A'[c,i,j,t] = A[c*V+t,i,j]``, ``S'[c,i,j,t] += F'[c,i,k,t] * F'[c,k,j,t]``, F' made of S' and A', and
            ``F[c*V+t,i,j] = F'[c,i,j,t]``

The steps of one small factorisation wait for each other, and its sums are shorter than a vector.  V problems run in step
instead: elements of F' with neighbouring t are neighbours in memory, and the temporaries of V problems stay in a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from polyc.diagnostics import Remark
from polyc.ir.expr import Expr, Index, Pad, Read, mentions, reads, walk
from polyc.ir.program import Program, Statement, all_reads, map_statement
from polyc.machine import Level, Machine, Share
from polyc.poly.ranges import Ranges, estimate_extent
from polyc.records import dataclass
from polyc.scheduler.rewriting.builder import ProgramBuilder, Split, change_groups, find_recurrences
from polyc.scheduler.rewriting.reindexing import map_reads

MOST_ROWS = 80
"""Elements of a problem along each of its dimensions beyond which its own vectors are long enough.
The problems of one vector share the second-level cache, too."""


@dataclass(frozen=True, slots=True)
class _Batch:
    members: tuple[Statement, ...]
    indices: dict[str, str]
    """By statement, the index of the problem."""
    lanes: int
    room: int
    """Elements of one problem's tensor of which those of a whole vector of problems stay in the cache."""

    def split(self, s: Statement, ranges: Ranges) -> Split:
        index = self.indices[s.name]
        return Split(index, self.lanes, ranges.statements[s.name].indices[index], is_innermost=True)


def batch_recurrences(program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, list[Remark]]:
    """Every recurrence through sums that runs apart for each value of its first index, where these are many and it is small."""
    return change_groups("batch-recurrences", _batch_members, find_recurrences(program), program, ranges, target)


def _batch_members(
    members: list[Statement], program: Program, ranges: Ranges, target: Machine
) -> tuple[Program, Ranges, str] | None:
    batch = _find_batch(tuple(members), program, ranges, target)
    if batch is None:
        return None
    message = f"{batch.lanes} values of {batch.indices[members[0].name]} at a time, one in each lane"
    return *_rewrite(batch, program, ranges), message


def _find_batch(members: tuple[Statement, ...], program: Program, ranges: Ranges, target: Machine) -> _Batch | None:
    targets, sums = {s.target for s in members}, [s for s in members if s.reduction is not None]
    tensors = [program.tensor(t) for t in targets]
    if not sums or any(t.dtype.is_complex or t.dtype.is_storage or t.rank < 2 for t in tensors):
        return None
    if any(w not in members for t in targets for w in program.writers()[t]):
        return None
    if any(ranges.statements[s.name].domain.is_empty() for s in members):
        return None  # of one row each: nothing is summed
    if not all(_is_apart(s, targets, ranges) for s in members) or not all(_moves_with_batch(s) for s in sums):
        return None
    room = target.room(Level.L2, Share.HALF) // target.lanes(1)
    if any(not _is_small(t, ranges, room) for t in targets):
        return None
    indices = {s.name: s.element_names[0] for s in members}
    interval, *others = (ranges.statements[name].indices[index] for name, index in indices.items())
    lanes = target.lanes(max(t.dtype.itemsize for t in tensors))
    problems = estimate_extent(interval.extent, ranges.typical) or 0
    batch = _Batch(members, indices, lanes, room)
    is_taken = any(batch.split(other, ranges).is_taken(s) for other in members for s in members)
    return None if is_taken or lanes == 1 or problems < lanes or any(i != interval for i in others) else batch


def _is_apart(s: Statement, targets: set[str], ranges: Ranges) -> bool:
    """Whether a statement needs of the recurrence only elements of its own problem."""
    if not s.has_plain_left or ranges.statements[s.name].guards or (s.reduction is not None and s.reduction.monoid is not None):
        return False
    if any(isinstance(n, Pad) and n.read.tensor in targets for n in walk(s.value)):
        return False
    return all(_is_own(r, s) for r in all_reads(s) if r.tensor in targets)


def _is_own(read: Read, s: Statement) -> bool:
    """Whether an element belongs to the problem of a statement, and moves with nothing else of it."""
    index = s.element_names[0]
    return read.subscripts[:1] == (Index(index),) and not any(mentions(e, index) for e in read.subscripts[1:])


def _moves_with_batch(s: Statement) -> bool:
    """Whether each problem sums operands of its own: weights that all share are a product of matrices already."""
    moving = (r for r in reads(s.value) if mentions(r, *s.reduction_indices))
    return all(mentions(r, s.element_names[0]) for r in moving)


def _is_small(tensor: str, ranges: Ranges, room: int) -> bool:
    """Whether one problem of the tensor is small, of at most `room` elements."""
    extents = [estimate_extent(i.extent, ranges.typical) for i in ranges.tensors[tensor][1:]]
    return all(n is not None and n <= MOST_ROWS for n in extents) and prod(n or 0 for n in extents) <= room


def _rewrite(batch: _Batch, program: Program, ranges: Ranges) -> tuple[Program, Ranges]:
    builder, first = ProgramBuilder(program, ranges), batch.members[0]
    outside = {r.tensor for s in program.statements if s not in batch.members for r in all_reads(s)}
    copies = {t: builder.free_name(f"{t}.lanes") for t in sorted(_find_copied(batch, program, ranges))}
    in_lanes = {s.target: f"{s.target}.lanes" for s in batch.members} | copies
    for t, copy in copies.items():
        builder.statements += _copy(t, copy, batch.split(first, ranges), first, builder)
    for s in program.statements:
        if s not in batch.members:
            builder.statements.append(s)
            continue
        split = batch.split(s, ranges)

        def read_lanes(read: Read, split: Split = split) -> Expr:
            if read.tensor not in in_lanes:
                return read
            return Read(in_lanes[read.tensor], split.element(read.subscripts, split.index), read.span)

        part = builder.block(map_statement(s, lambda e: map_reads(e, read_lanes)), split, suffix="lanes")
        builder.statements.append(part)
        if s.target in outside or program.tensor(s.target).role != "temporary":
            builder.statements.append(builder.restore(s, part, split))
    return builder.finish()


def _find_copied(batch: _Batch, program: Program, ranges: Ranges) -> set[str]:
    """Inputs of which each problem has a small part of its own: lanes would pick their elements one by one."""
    found = [(s, r) for s in batch.members for r in reads(s.value) if program.tensor(r.tensor).role == "input"]
    own = {r.tensor for s, r in found if len(r.subscripts) > 1 and _is_own(r, s) and _is_small(r.tensor, ranges, batch.room)}
    others = {r.tensor for s, r in found if not _is_own(r, s)}
    problems = ranges.tensors[batch.members[0].target][0]
    return {t for t in own - others if ranges.tensors[t][0] == problems}


def _copy(tensor: str, copy: str, split: Split, s: Statement, builder: ProgramBuilder) -> Sequence[Statement]:
    """An input with the problems of a block innermost."""
    box = builder.intervals[tensor]
    names = (split.index, *(f"{split.index}.dim{d}" for d in range(1, len(box))))
    points = split.apply(builder.box(dict(zip(names, box, strict=True))), split.index, split.left(names, split.index))
    value, called = Read(tensor, (split.point, *map(Index, names[1:]))), (copy, f"{s.name}_lanes_{tensor}")
    return builder.materialise(value, points, called, builder.program.tensor(tensor), s)[1]
