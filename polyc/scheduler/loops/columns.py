"""Blocks of columns for the rows of a tile of a stencil, so that they wait in the first-level cache for the next rows.

Before: ``t { i { vector j { A[t, i, j] = A[t - 1, i - 1, j] + A[t - 1, i + 1, j] } } }``, the loops inside of a tile.
After: ``t { j by 656 { i { vector j' < 656 { … } } } }``: a row that is read for three rows of results is still near for the
second and the third.  (AMD, Zen 4, 32 KiB: 200 steps of Jacobi-2D over 1300 squared took 115 ms, and take 83.)

Loops over steps and those of one tile are a permutable band (`time_tiling`): inside of a step nothing is needed from columns
to come, and the order is proved as that of every schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from polyc.code_limits import ENOUGH_ROWS
from polyc.ir.expr import Expr, Read, int_const, mentions, reads
from polyc.ir.simplify import simplify
from polyc.machine import Level, Machine, Share
from polyc.poly.rows import Row
from polyc.poly.scop import Scop
from polyc.poly.tree import Plan, PlanLoop, PlanSequence, make_sequence
from polyc.records import replace
from polyc.scheduler.accesses import index_trips


def block_columns(plan: Plan, scop: Scop, target: Machine, around: tuple[PlanLoop, ...] = ()) -> Plan:
    """The plan with the long rows of tiles of stencils in blocks of columns; `around`: the loops outside of `plan`."""
    match plan:
        case PlanSequence():
            return PlanSequence(tuple(block_columns(child, scop, target, around) for child in plan.children))
        case PlanLoop():
            blocked = _block(plan, scop, target, around)
            return blocked or replace(plan, child=block_columns(plan.child, scop, target, (*around, plan)))
    return plan


def _block(row: PlanLoop, scop: Scop, target: Machine, around: tuple[PlanLoop, ...]) -> PlanLoop | None:
    """The loop over the rows of a tile inside of one over blocks of columns; None where that is of no use."""
    vectors = [x for x in _parts(row.child) if isinstance(x, PlanLoop) and x.part == "whole" and x.mark is not None]
    if row.part != "point" or row.size < ENOUGH_ROWS or len(vectors) < len(_parts(row.child)):
        return None
    is_tiled = any(x.part == "tile" and x.kind == "S" and x.rows == row.rows for x in around)
    steps = [x for x in around if x.part != "tile"]
    if not is_tiled or not steps or any(x.mark is None or x.mark.kind != "vector" for x in vectors):
        return None
    columns = {name: column for x in vectors for name, r in x.rows.items() if (column := _column(r, steps[0].rows[name]))}
    if columns.keys() != row.rows.keys() or not (width := _width(row, steps[0], vectors, columns, scop, target)):
        return None
    inside: list[Plan] = [replace(x, rows={n: columns[n] for n in x.rows}, part="point", size=width) for x in vectors]
    return PlanLoop(columns, "S", replace(row, child=make_sequence(inside)), "tile", width)


def _parts(plan: Plan) -> tuple[Plan, ...]:
    return plan.children if isinstance(plan, PlanSequence) else (plan,)


def _column(row: Row, step: Row) -> Row | None:
    """The row of a loop without what skews it by the steps; None where it is not an index, counted from somewhere, then."""
    if len(moving := _moving(step)) != 1:
        return None
    (index,) = moving
    factor, rest = divmod(row.coefficients[index], step.coefficients[index])
    left = [a - factor * b for a, b in zip(row.coefficients, step.coefficients, strict=True)]
    is_index = not rest and sorted(map(abs, left)) == [0] * (len(left) - 1) + [1] and sum(left) == 1
    return Row(tuple(left), row.constant - factor * step.constant) if is_index else None


def _moving(row: Row) -> set[int]:
    """Positions of the indices that a row moves along."""
    return {n for n, c in enumerate(row.coefficients) if c}


def _width(
    row: PlanLoop, step: PlanLoop, vectors: Sequence[PlanLoop], columns: Mapping[str, Row], scop: Scop, target: Machine
) -> int:
    """Columns of a block; 0 where a row and those that it is made of stay in the first-level cache, where none is read again,
    or where all rows of a step do not stay in the second-level one.

    So it is for vectors shorter than a line: computing two rows at once (`codegen/nests/row_pairs.py`) gains as much, and
    blocks nothing more (AVX2, Zen 4, steps of Jacobi-2D, four elements: 1.28 ns, in pairs 1.21, in pairs and blocks 1.24)."""
    rows: set[tuple[str, tuple[Expr, ...]]] = set()
    streams: set[tuple[str, tuple[Expr, ...]]] = set()
    length = 0
    for s in map(scop.statement, columns):
        moving = [s.indices[n] for n in _moving(row.rows[s.name]) - _moving(step.rows[s.name])]
        length = max(length, *(index_trips(s)[s.indices[n]] for n in _moving(columns[s.name])))
        for access in (Read(s.target, s.subscripts), *reads(s.value)):
            outer = tuple(map(simplify, access.subscripts[:-1]))
            rows.add((access.tensor, outer))
            streams.add((access.tensor, tuple(int_const(0) if mentions(e, *moving) else e for e in outer)))
    sizes = {t: scop.tensors[t].dtype.itemsize for t, _ in rows}
    per_column, per_row = (sum(sizes[t] for t, _ in group) for group in (rows, streams))
    marks = [x.mark for x in vectors if x.mark is not None]
    unit = max(m.lanes * m.interleave for m in marks)
    n_blocks = ceil(length * per_column / target.room(Level.L1, Share.MOST))
    width = ceil(length / n_blocks / unit) * unit
    if n_blocks == 1 or len(streams) == len(rows) or width >= length or width * max(sizes.values()) < target.prefetchers.run:
        return 0
    is_line = all(m.lanes * max(sizes.values()) >= target.cache_line for m in marks)
    return width if is_line and target.fits(row.size * length * per_row, Level.L2, Share.ALL) else 0
