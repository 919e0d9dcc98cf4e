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

from polyc.diagnostics import Remark
from polyc.ir.expr import Index, Pad, reads, walk
from polyc.ir.program import Program, Statement, all_reads
from polyc.machine import Level, Machine, Share
from polyc.poly.domains import is_box
from polyc.poly.ranges import Ranges, estimate_extent
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.builder import ProgramBuilder, Split
from polyc.scheduler.rewriting.rules.analysis import is_simple, redirect

MINIMUM_ROWS, MAXIMUM_ROWS = 8, 256
"""Rows of a block: each block writes and reads a row of sums, and with more rows that is no less of the whole."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """Statements that come to the rows of `tensor` one by one, and the index that each has for them."""

    tensor: str
    rows: Mapping[str, str]
    """Statements that make one element (or more) of each row, those that are made of them included."""
    columns: Mapping[str, str]
    """Statements that sum over the rows."""


def share_rows(program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, list[Remark]]:
    """Fusion by blocks of rows: reductions share the rows that they read."""
    remarks: list[Remark] = []
    for tensor in program.tensors:
        is_there = tensor.name in ranges.tensors  # a pass before may have taken it in
        size = _block_size(tensor.name, program, ranges, target) if is_there else None
        found = None if size is None else _find_pass(tensor.name, program, ranges)
        if found is None or size is None:
            continue
        program, ranges = _rewrite(found, size, program, ranges)
        first = next(s for s in program.statements if s.name in found.columns)
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
    size = min(MAXIMUM_ROWS, target.room(Level.L2, Share.HALF) // row if row else 0)
    size -= size % 8
    return size if n_rows * row > target.l2 and MINIMUM_ROWS <= size <= n_rows // 4 else None


def _find_pass(tensor: str, program: Program, ranges: Ranges) -> _Pass | None:
    readers = [s for s in program.statements if any(r.tensor == tensor for r in reads(s.value))]
    rows: dict[str, str] = {}
    columns: dict[str, str] = {}
    for s in readers if len(readers) > 1 else ():
        index = _row_index(s, tensor)
        if index is None or not _can_cut(s, index, program, ranges) or s.reduction is None:
            continue
        (columns if index in s.reduction_indices else rows)[s.name] = index
    if not rows or not columns:
        return None
    behind = _needing(columns, program)
    rows = {name: index for name, index in rows.items() if name not in behind}
    interval = next((ranges.statements[n].indices[i] for n, i in rows.items()), None)
    if interval is None or any(ranges.statements[n].indices[i] != interval for n, i in (rows | columns).items()):
        return None
    columns = {name: i for name, i in columns.items() if _follow_rows(name, i, rows, behind, program, ranges)}
    return _Pass(tensor, rows, columns) if columns else None


def _row_index(s: Statement, tensor: str) -> str | None:
    """The index of the first dimension in every read of the tensor, whose others move with other indices, each by itself."""
    found: set[str] = set()
    for read in reads(s.value):
        if read.tensor != tensor:
            continue
        names = [e.name for e in read.subscripts if isinstance(e, Index)]
        if len(names) < max(2, len(read.subscripts)) or len(set(names)) < len(names):
            return None
        is_across = set(names[1:]) <= (set(s.left_indices) if names[0] in s.reduction_indices else set(s.reduction_indices))
        if not is_across:
            return None
        found.add(names[0])
    return found.pop() if len(found) == 1 else None


def _can_cut(s: Statement, index: str, program: Program, ranges: Ranges) -> bool:
    own, dtype = ranges.statements[s.name], program.tensor(s.target).dtype
    is_fit = is_simple(s, ranges) and own.region is None and is_box(own.domain, own.indices, s.indices)
    if not is_fit or len(program.writers()[s.target]) != 1 or dtype.is_complex or dtype.is_storage:
        return False
    if s.reduction is not None and s.reduction.monoid is not None:
        return False
    return index in s.reduction_indices or s.subscripts[0] == Index(index)


def _needing(first: Collection[str], program: Program) -> set[str]:
    """The statements that need what one of `first` computes, directly or not."""
    made = {t for s in program.statements if s.name in first for t in program.made_from(s.target)}
    return {s.name for s in program.statements if any(r.tensor in made for r in all_reads(s))}


def _follow_rows(
    name: str,
    index: str,
    rows: dict[str, str],
    behind: set[str],
    program: Program,
    ranges: Ranges,
) -> bool:
    """Whether a sum over rows needs of the sums along rows those of its own row alone; what lies between joins `rows`."""
    by_name, writers = {s.name: s for s in program.statements}, program.writers()
    interval = ranges.statements[name].indices[index]
    pending, between, needing = [(name, index)], {name: index}, _needing(rows, program)
    while pending:
        reader, own = pending.pop()
        s = by_name[reader]
        if reader in behind and reader != name:
            return False
        for read in dict.fromkeys(all_reads(s)):
            for writer in writers.get(read.tensor, ()):
                if writer.name not in rows and writer.name not in needing:
                    continue
                inside = read in reads(s.value) and not any(isinstance(n, Pad) and n.read == read for n in walk(s.value))
                others = (e for e in read.subscripts[1:] for n in walk(e) if isinstance(n, Index) and n.name == own)
                if not inside or not read.subscripts or read.subscripts[0] != Index(own) or any(others):
                    return False
                if writer.name in rows or writer.name in between:
                    continue
                element = writer.subscripts[0]
                if not isinstance(element, Index) or writer.reduction is not None:
                    return False
                if not _can_cut(writer, element.name, program, ranges):
                    return False
                if ranges.statements[writer.name].indices[element.name] != interval:
                    return False
                between[writer.name] = element.name
                pending.append((writer.name, element.name))
    del between[name]
    rows.update(between)
    return True


def _rewrite(found: _Pass, size: int, program: Program, ranges: Ranges) -> tuple[Program, Ranges]:
    builder = ProgramBuilder(program, ranges)
    chain = {s.target: 0 for s in program.statements if s.name in found.rows}
    parts: list[Statement] = []
    wholes: list[Statement] = []
    made: list[tuple[Statement, Statement, Split]] = []
    for s in program.statements:
        index = found.rows.get(s.name) or found.columns.get(s.name)
        if index is None:
            wholes.append(s)
            continue
        split = Split(index, size, ranges.statements[s.name].indices[index])
        part = builder.block(replace(s, value=redirect(s.value, chain, index, split)), split)
        parts.append(part)
        if s.name in found.columns:
            wholes.append(builder.combine(s, part, split))
        else:
            made.append((s, part, split))
    read = {r.tensor for s in (*parts, *wholes) for r in all_reads(s)}
    for s, part, split in made:
        if program.tensor(s.target).role != "temporary" or s.target in read:
            wholes.append(builder.restore(s, part, split))
    builder.statements += [*parts, *wholes]
    return builder.finish()
