"""Sums along the rows of a large array and sums down its columns, in one pass over blocks of rows.

    before  ``q[i] += a[i,j] * p[j]  ;  s[j] += r[i] * a[i,j]``
    after   ``q'[b,t] += a[b*B+t,j] * p[j]  ;  s'[b,j] += r[b*B+t] * a[b*B+t,j]``  over blocks b of B rows, then
            ``q[b*B+t] = q'[b,t]  ;  s[j] += s'[b,j]``

A block stays in the second-level cache between the two, so the array comes from memory once.  What columns are weighted with
may be made of the rows' own sums, element by element (``Aᵀ (A x)``, the gradient of a regression): a block of rows is finished
before its columns begin.  Blocks depend on sizes alone, so results are the same at any number of threads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod

from polyc.code_limits import TILE_ROWS
from polyc.diagnostics import Remark
from polyc.ir.expr import Index, Pad, Read, mentions, reads, walk
from polyc.ir.program import Program, Statement, all_reads
from polyc.machine import Level, Machine, Share
from polyc.poly.ranges import Ranges, estimate_extent
from polyc.records import replace
from polyc.scheduler.rewriting.builder import ProgramBuilder, Split
from polyc.scheduler.rewriting.rules.analysis import is_whole_box, redirect


def share_rows(program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, list[Remark]]:
    """Fusion by blocks of rows: reductions share the rows that they read."""
    remarks: list[Remark] = []
    for tensor in program.tensors:
        is_there = tensor.name in ranges.tensors  # a pass before may have taken it in
        size = _block_size(tensor.name, program, ranges, target) if is_there else None
        room = target.room(Level.L2, Share.HALF) // tensor.dtype.itemsize
        found = None if size is None else _find_pass(tensor.name, program, ranges, room)
        if found is None or size is None:
            continue
        program, ranges = _rewrite(*found, size, program, ranges)
        first = next(s for s in program.statements if s.name in found[1])
        message = f"sums along rows of {tensor.base} and down its columns in one pass, by blocks of {size} rows"
        remarks.append(Remark("passed", "share-rows", message, first.name, first.span))
    return program, ranges, remarks


def _block_size(name: str, program: Program, ranges: Ranges, target: Machine) -> int | None:
    """Rows that half of the second-level cache holds; None where all of them fit there, or too few do."""
    extents = [estimate_extent(i.extent, ranges.typical) for i in ranges.tensors[name]]
    if len(extents) < 2 or None in extents:
        return None
    row = prod(n or 0 for n in extents[1:]) * program.tensor(name).dtype.itemsize
    n_rows = extents[0] or 0
    size = min(target.rows.computed, target.room(Level.L2, Share.HALF) // row if row else 0)
    size -= size % TILE_ROWS
    return size if n_rows * row > target.l2 and TILE_ROWS <= size <= n_rows // 4 else None


def _find_pass(tensor: str, program: Program, ranges: Ranges, room: int) -> tuple[dict[str, str], dict[str, str]] | None:
    """Statements that make one element (or more) of each row of a tensor, those that are made of them included, and those that
    sum over its rows, each with its index for rows."""
    readers = [s for s in program.statements if any(r.tensor == tensor for r in reads(s.value))]
    rows: dict[str, str] = {}
    columns: dict[str, str] = {}
    for s in readers if len(readers) > 1 else ():
        index = _row_index(s, tensor, ranges, room)
        if s.reduction is not None and index is not None and _can_cut(s, index, program, ranges):
            (columns if index in s.reduction_indices else rows)[s.name] = index
    behind = _needing(columns, program)
    rows = {name: index for name, index in rows.items() if name not in behind}
    if not rows or len({ranges.statements[n].indices[i] for n, i in (rows | columns).items()}) > 1:
        return None
    found: dict[str, str] = {}
    for name, index in columns.items():
        between = _follow_rows(name, index, rows, behind, program, ranges)
        if between is not None:
            rows, found = rows | between, found | {name: index}
    return (rows, found) if found else None


def _row_index(s: Statement, tensor: str, ranges: Ranges, room: int) -> str | None:
    """The index of the first dimension in every read of the tensor, whose others move with indices of their own.  A row
    meets `room` elements at most: those of a larger matrix would come from memory for every block."""
    found: set[str] = set()
    for read in (r for r in reads(s.value) if r.tensor == tensor):
        names = [e.name for e in read.subscripts if isinstance(e, Index)]
        if len(names) < max(2, len(read.subscripts)) or len(set(names)) < len(names):
            return None
        if not set(names[1:]) <= set(s.left_indices if names[0] in s.reduction_indices else s.reduction_indices):
            return None
        if prod(n or room + 1 for i, n in ranges.trips(s.name).items() if i != names[0]) > room:
            return None
        found.add(names[0])
    return found.pop() if len(found) == 1 else None


def _can_cut(s: Statement, index: str, program: Program, ranges: Ranges) -> bool:
    dtype, is_users = program.tensor(s.target).dtype, s.reduction is not None and s.reduction.monoid is not None
    if is_users or dtype.is_complex or dtype.is_storage or not is_whole_box(s, program, ranges):
        return False
    return index in s.reduction_indices or s.subscripts[0] == Index(index)


def _needing(first: Collection[str], program: Program) -> set[str]:
    """The statements that need what one of `first` computes, directly or not."""
    made = {t for s in program.statements if s.name in first for t in program.made_from(s.target)}
    return {s.name for s in program.statements if any(r.tensor in made for r in all_reads(s))}


def _follow_rows(
    name: str, index: str, rows: Mapping[str, str], behind: set[str], program: Program, ranges: Ranges
) -> dict[str, str] | None:
    """What lies between the sums along rows and a sum over rows, and the index of each for rows, if that needs of them those of
    its own row alone."""
    by_name, writers = {s.name: s for s in program.statements}, program.writers()
    interval = ranges.statements[name].indices[index]
    pending, between, needing = [name], {name: index}, _needing(rows, program)
    while pending:
        s = by_name[pending.pop()]
        if s.name in behind and s.name != name:
            return None
        for read in dict.fromkeys(all_reads(s)):
            for writer in writers.get(read.tensor, ()):
                if writer.name not in needing.union(rows):
                    continue
                if not _reads_own_row(s, read, between[s.name]):
                    return None
                if writer.name in rows or writer.name in between:
                    continue
                row, own = writer.subscripts[0], ranges.statements[writer.name].indices
                if not isinstance(row, Index) or writer.reduction is not None or own[row.name] != interval:
                    return None
                if not _can_cut(writer, row.name, program, ranges):
                    return None
                between[writer.name] = row.name
                pending.append(writer.name)
    del between[name]
    return between


def _reads_own_row(s: Statement, read: Read, index: str) -> bool:
    """Whether a read stands in the value of `s`, of elements that there are, with `index` as its first subscript alone."""
    is_inside = read in reads(s.value) and not any(isinstance(n, Pad) and n.read == read for n in walk(s.value))
    return is_inside and read.subscripts[:1] == (Index(index),) and not any(mentions(e, index) for e in read.subscripts[1:])


def _rewrite(
    rows: Mapping[str, str], columns: Mapping[str, str], size: int, program: Program, ranges: Ranges
) -> tuple[Program, Ranges]:
    builder, cut = ProgramBuilder(program, ranges), {**rows, **columns}
    chain = {s.target: 0 for s in program.statements if s.name in rows}
    parts: dict[str, tuple[Statement, Split]] = {}
    for s in program.statements:
        if s.name in cut:
            split = Split(cut[s.name], size, ranges.statements[s.name].indices[cut[s.name]])
            parts[s.name] = builder.block(replace(s, value=redirect(s.value, chain, split.index, split)), split), split
    wholes = [builder.combine(s, *parts[s.name]) if s.name in cut else s for s in program.statements if s.name not in rows]
    builder.statements += [*(part for part, _ in parts.values()), *wholes]
    read = {r.tensor for s in builder.statements for r in all_reads(s)}
    for s in (s for s in program.statements if s.name in rows):
        if program.tensor(s.target).role != "temporary" or s.target in read:
            builder.statements.append(builder.restore(s, *parts[s.name]))
    return builder.finish()
