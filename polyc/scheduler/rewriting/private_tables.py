"""Reductions into elements that data chooses: a table for each of a few parts of the points, and the sum of the tables.

Before: ``H[k[i]] += w[i]`` over N points.  After: ``p[c, 0, k[c*T + t]] += w[c*T + t]`` over as many parts as the machine model
has cores, then ``H[m] += p[c, 0, m]``.  Parts write different elements whatever the data are, so threads may have one each; the
tables are combined in their order, so the result is the same at any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from polyc.code_limits import ENOUGH_TASKS, MAX_ITEMS
from polyc.ir.expr import Expr, Index, Read, identity_of, int_const, reads, substitute
from polyc.ir.program import Program, Statement
from polyc.ir.text import format_expr
from polyc.machine import Machine
from polyc.machine.memory import LINE_PAIR
from polyc.poly.ranges import GuardedSubscript, Interval, Ranges, known_shape
from polyc.records import replace
from polyc.scheduler.rewriting.builder import Change, ProgramBuilder, Split

SHARE = 8
"""A part has at least so many points for each element of its table."""

LARGE = 1024
"""Bytes of a table from which a line that it shares with another one hardly matters."""


def split_table(s: Statement, builder: ProgramBuilder, target: Machine) -> Change | None:
    """Privatisation: histograms have a table for each thread."""
    split = _find_split(s, builder.program, builder.ranges, target)
    if split is None or split.is_taken(s):
        return None
    count = format_expr(split.blocks.extent)
    message = f"{count} tables for parts of {split.size} values of {split.index}, which are added up"
    return _write_tables(s, split, builder), message


def _find_split(s: Statement, program: Program, ranges: Ranges, target: Machine) -> Split | None:
    by_data = [e for e in s.subscripts if reads(e)]
    tensor, own = program.tensor(s.target), ranges.statements[s.name]
    if s.reduction is None or s.reduction.op == "combine" or not by_data or target.cores < 2:
        return None
    if tensor.dtype.is_storage or tensor.dtype.is_complex or len(program.writers()[s.target]) != 1 or own.region is not None:
        return None
    if any(r.tensor == s.target for e in (*s.subscripts, s.value) for r in reads(e)):
        return None
    table = ranges.tensors[s.target]
    shape, extents = known_shape(table), known_shape(own.indices[i] for i in s.indices)
    if shape is None or extents is None or any(t.lower != int_const(0) for t in table):
        return None
    trips = dict(zip(s.indices, extents, strict=True))
    plain = {e.name for e in s.subscripts if isinstance(e, Index)}
    free = [i for i in s.indices if i not in plain]
    last = s.subscripts[-1]
    rows = prod(trips[i] for i in plain if Index(i) != last)  # vectors run along the last one
    if not free or prod(extents) < target.threads.work_per_part or rows >= ENOUGH_TASKS:
        return None
    longest = max(free, key=lambda i: trips[i])
    parts = min(target.cores, MAX_ITEMS)
    size = -(-trips[longest] // parts)
    if size * (parts - 1) >= trips[longest] or prod(extents) < SHARE * parts * prod(shape):
        return None
    return Split(longest, size, own.indices[longest])


def _write_tables(s: Statement, split: Split, builder: ProgramBuilder) -> tuple[Statement, Statement]:
    """A table for each part, and their combination."""
    assert s.reduction is not None
    like, box, place = builder.tensor(s.target), builder.intervals[s.target], {split.index: split.point}
    size = like.dtype.itemsize * max(1, prod(known_shape(box) or ()))
    # Tables for which there is room in each part: the first is used, the others keep small ones apart.
    spread = 1 if size >= LARGE else -(-(size + LINE_PAIR) // size)
    gap = Interval(int_const(0), int_const(spread))
    table = builder.add_temporary(s, "part", (split.blocks, gap, *box))

    def of_part(subscripts: Iterable[Expr]) -> tuple[Expr, ...]:
        return (Index(split.block), int_const(0), *subscripts)

    def move(expr: Expr) -> Expr:
        moved = substitute(expr, place)
        if isinstance(moved, Read) and expr == Read(s.target, s.subscripts):
            return Read(table, of_part(moved.subscripts), moved.span)
        return moved

    def move_guard(guard: GuardedSubscript) -> GuardedSubscript:
        moved = guard.map(move)
        if moved.read.tensor != table:
            return moved
        return replace(moved, dimension=guard.dimension + 2, shown=(like.base, guard.dimension))

    order = (split.block, *split.inside((split.index,), split.index), *(i for i in s.indices if i != split.index))
    points = split.apply(builder.points(s), split.index, order)
    start = replace(s.reduction, init=identity_of(s.reduction.op, like.dtype))
    subscripts = of_part(map(move, s.subscripts))
    guards = tuple(map(move_guard, builder.own[s.name].guards))
    part = builder.assign(builder.free_name(f"{s.name}_part"), table, subscripts, move(s.value), points, s, start, guards)
    elements = tuple(map(Index, s.element_names))
    whole = builder.box(dict(zip(s.element_names, box, strict=True)) | {split.block: split.blocks})
    return part, builder.change(s, whole, subscripts=elements, value=Read(table, of_part(elements)))
