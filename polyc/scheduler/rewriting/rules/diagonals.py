"""Recurrences along both rows and columns of a table are computed by its diagonals, whose elements need nothing of each other.

    before  ``D[i, j] = f(D[i-1, j], D[i, j-1], D[i-1, j-1], a[i], b[j])``          edit distance, alignment, time warping
    after   ``E[t, i] = f(E[t-1, i-1], E[t-1, i], E[t-2, i-1], a[i], b[t-i])``      t = i + j, with E[t, i] for D[t - i, i] …

A row as well as a column carries a value from each element to the next, so neither has vectors.  Along a diagonal there are as
many as the shorter side has elements (Lamport, "The parallel execution of DO loops", 1974: the hyperplane method).  The table
is stored by diagonals, so that vectors are loaded and stored whole.  Nothing is rounded differently.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Const, Expr, Index, Pad, Read, int_const, reads, rewrite, substitute, walk
from polyc.ir.graphs import find_components
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement, all_reads
from polyc.ir.scans import find_scan
from polyc.ir.simplify import simplify
from polyc.poly.domains import box_domain, map_domain
from polyc.poly.ranges import GuardedSubscript, Interval, Ranges, StatementRanges
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.rules.blocks import Edit, start_edit
from polyc.target import Target

MINIMUM_LENGTH = 32
"""Elements of the longest diagonal from which on vectors pay."""

LARGEST = 1 << 28
"""Bytes of a table by diagonals, above which it stays as written."""

MOST_COPIED = 4
"""Second-level caches that the diagonals of a result fill: from farther away, its rows are picked together too slowly."""

FEWEST_LANES = 8
"""32-bit lanes from which on vectors save more than the copy of a result takes."""

GROWTH = 4
"""Elements of a table by diagonals for each as written: two where the shorter side is kept."""


@dataclass(frozen=True, slots=True)
class _Table:
    """A tensor whose last two dimensions, x and y, become x + y and the shorter of both."""

    tensor: str
    keeps_first: bool
    x: Interval
    y: Interval

    @property
    def kept(self) -> Interval:
        return self.x if self.keeps_first else self.y

    @property
    def diagonals(self) -> Interval:
        lower = self.x.lower + self.y.lower
        extent = self.x.extent + self.y.extent - 1
        return Interval(simplify(lower), simplify(extent))

    def move(self, subscripts: Sequence[Expr]) -> tuple[Expr, ...]:
        """Subscripts of the same element by diagonals."""
        *outer, x, y = subscripts
        return (*outer, simplify(x + y), x if self.keeps_first else y)


def walk_diagonals(program: Program, ranges: Ranges, target: Target) -> tuple[Program, Ranges, list[Remark]]:
    """Tables whose recurrences run along both of their last dimensions, stored and computed by diagonals."""
    writers = program.writers()
    by_name = {s.name: s for s in program.statements}
    edges = {(w.name, s.name) for s in program.statements for r in all_reads(s) for w in writers.get(r.tensor, ())}
    remarks: list[Remark] = []
    for names in find_components([s.name for s in program.statements], sorted(edges)):
        # statements of fewer indices are the edges that the recurrence begins with
        members = [by_name[n] for n in names if len(by_name[n].indices) >= program.tensor(by_name[n].target).rank]
        apart = _keep_results_apart({s.target for s in members}, program, ranges, target)
        if apart is None:
            continue
        moved = {s.name: s for s in apart[0].statements}
        members = [moved[s.name] for s in members]
        tables = _find_tables(members, *apart)
        if not tables:
            continue
        program, ranges = apart
        edit = start_edit(program, ranges)
        turned = {s.name for s in program.statements if s in members or not _touches_edges(s, tables)}
        edit.statements += [_rewrite(s, s.name in turned, tables, edit) for s in program.statements]
        for table in tables.values():
            _store_by_diagonals(table, edit)
        program, ranges = edit.finish()
        shown = ", ".join(program.tensor(t).base for t in tables)
        message = f"{shown}: computed by diagonals, as rows and columns both carry values from element to element"
        remarks.append(Remark("passed", "skew-diagonals", message, members[0].name, members[0].span))
    return program, ranges, remarks


def _keep_results_apart(targets: set[str], program: Program, ranges: Ranges, target: Target) -> tuple[Program, Ranges] | None:
    """The program with temporaries for those of `targets` that are results, in whose layout copies put them; None where one
    cannot have such a copy."""
    results = {t for t in targets if program.tensor(t).role == "output"}
    if not results:
        return program, ranges
    touching = [s for s in program.statements if s.target in results or any(r.tensor in results for r in all_reads(s))]
    if any(ranges.statements[s.name].guards for s in touching) or any(program.tensor(t).rank < 2 for t in results):
        return None
    if target.lanes(4) < FEWEST_LANES or any(not _is_near(t, program, ranges, target) for t in results):
        return None
    edit = start_edit(program, ranges)
    tables = {t: program.free_name(f"{t}.table") for t in sorted(results)}

    def rename(node: Expr) -> Expr | None:
        if isinstance(node, Read) and node.tensor in tables:
            return replace(node, tensor=tables[node.tensor], subscripts=tuple(rewrite(e, rename) for e in node.subscripts))
        return None

    for s in program.statements:
        reduction = s.reduction and replace(s.reduction, init=rewrite(s.reduction.init, rename))
        value = rewrite(s.value, rename)
        edit.statements.append(replace(s, target=tables.get(s.target, s.target), value=value, reduction=reduction))
    for result, table in tables.items():
        own, name = program.tensor(result), program.free_name(f"{result}_copy")
        intervals = {f"{result}.d{d}": i for d, i in enumerate(ranges.tensors[result])}
        element = tuple(map(Index, intervals))
        edit.tensors.append(replace(own, name=table, shape=None, role="temporary"))
        edit.intervals[table] = tuple(intervals.values())
        domain = box_domain(name, tuple(intervals), intervals, ranges.parameters)
        edit.own[name] = StatementRanges(intervals, domain)
        edit.statements.append(Statement(name, result, element, tuple(intervals), Read(table, element), None, (), own.span))
    return edit.finish()


def _is_near(result: str, program: Program, ranges: Ranges, target: Target) -> bool:
    """Whether the diagonals of a result are still in a cache when they are copied."""
    trips = [int(i.extent.value) for i in ranges.tensors[result] if isinstance(i.extent, Const)]
    if len(trips) != len(ranges.tensors[result]):
        return False
    *outer, x, y = trips
    size = prod(outer) * (x + y) * min(x, y) * program.tensor(result).dtype.itemsize
    return size <= MOST_COPIED * target.l2


def _find_tables(members: Sequence[Statement], program: Program, ranges: Ranges) -> dict[str, _Table]:
    """The tables that statements which need each other define by such a recurrence; none where anything is in the way."""
    targets = {s.target for s in members}
    ranks = {program.tensor(t).rank for t in targets}
    if len(ranks) != 1 or min(ranks) < 2 or any(program.tensor(t).role != "temporary" for t in targets):
        return {}
    steps: dict[str, set[tuple[int, int]]] = {}
    for s in members:
        found = _find_steps(s, targets, ranges)
        if found is None:
            return {}
        steps[s.name] = found
    every = {step for found in steps.values() for step in found}
    if any(x + y >= 0 and (x, y) != (0, 0) for x, y in every):
        return {}  # an element of the same diagonal, or of a later one
    carrying = [s for s in members if any(x == 0 and y < 0 for x, y in steps[s.name])]
    if not carrying or not any(x < 0 for x, _ in every):
        return {}  # rows or columns are parallel as they are
    if all(_is_scan(s, program) for s in carrying):
        return {}  # rows run in vectors, a block at a time
    boxes = [ranges.tensors[t][-2:] for t in targets]
    trips = [[int(i.extent.value) for i in box if isinstance(i.extent, Const)] for box in boxes]
    if any(len(t) != 2 or min(t) < MINIMUM_LENGTH for t in trips):
        return {}
    others = [s for s in program.statements if s not in members]
    shorter = sum(x for x, _ in trips) <= sum(y for _, y in trips)
    for keeps_first in (shorter, not shorter):
        tables = {t: _Table(t, keeps_first, *ranges.tensors[t][-2:]) for t in sorted(targets)}
        if all(_touches_edges(s, tables) or _is_copy(s, tables) or _follows(s, tables, program, ranges) for s in others):
            return tables if all(_is_small(table, program, ranges) for table in tables.values()) else {}
    return {}


def _is_scan(s: Statement, program: Program) -> bool:
    (index,) = index_coefficients(s.subscripts[-1]) or {}
    return find_scan(s.target, s.subscripts, s.value, index, 1, program.tensor(s.target).dtype) is not None


def _find_steps(s: Statement, targets: set[str], ranges: Ranges) -> set[tuple[int, int]] | None:
    """From the element that `s` writes to those of tables that it reads, in the last two dimensions; None if not constant."""
    own = ranges.statements[s.name]
    steps = [index_coefficients(e) for e in s.subscripts]
    if s.reduction is not None or own.region is not None or any(c is None or list(c.values()) != [1] for c in steps):
        return None
    if len({i for c in steps for i in c or ()}) != len(s.indices) or len(s.indices) != len(s.subscripts):
        return None
    if any(isinstance(node, Pad) and node.read.tensor in targets for node in walk(s.value)):
        return None
    first, second = (i for c in steps[-2:] for i in c or ())
    result: set[tuple[int, int]] = set()
    for read in reads(s.value):
        if read.tensor not in targets:
            moving = [set(c) & {first, second} for e in read.subscripts if (c := index_coefficients(e))]
            if set().union(*moving) == {first, second} and len([m for m in moving if m]) > 1:
                return None  # a matrix in rows has no vectors along a diagonal
            continue
        away = [simplify(Call("sub", pair)) for pair in zip(read.subscripts, s.subscripts, strict=True)]
        numbers = [int(e.value) for e in away if isinstance(e, Const)]
        if len(numbers) != len(away) or any(numbers[:-2]):
            return None
        result.add((numbers[-2], numbers[-1]))
    return result


def _touches_edges(s: Statement, tables: Mapping[str, _Table]) -> bool:
    """Whether a statement beside the recurrence touches edges of the tables only, by subscripts that can be moved."""
    touched = [r.subscripts for r in all_reads(s) if r.tensor in tables]
    if s.target in tables:
        if s.reduction is not None:
            return False
        touched.append(s.subscripts)
    steps = [[index_coefficients(e) for e in subscripts] for subscripts in touched]
    is_linear = all(c is not None for subscripts in steps for c in subscripts)
    return is_linear and not _is_padded(s, tables) and all(len({i for c in e for i in c or ()}) < len(e) for e in steps)


def _is_copy(s: Statement, tables: Mapping[str, _Table]) -> bool:
    """Whether a statement copies a whole table, element by element."""
    return isinstance(s.value, Read) and s.value.tensor in tables and s.reduction is None and s.value.subscripts == s.subscripts


def _follows(s: Statement, tables: Mapping[str, _Table], program: Program, ranges: Ranges) -> bool:
    """Whether a statement that takes in whole tables may do so by diagonals: a reduction in any order."""
    found = [r.subscripts for r in all_reads(s) if r.tensor in tables]
    if s.target in tables or s.reduction is None or ranges.statements[s.name].region is not None or _is_padded(s, tables):
        return False
    is_exact = program.tensor(s.target).dtype.is_integer and s.reduction.op in ("add", "mul")
    if not is_exact and s.reduction.op not in ("max", "min", "and", "or"):
        return False
    if len(set(found)) != 1 or any(r.tensor in tables for r in reads(s.reduction.init)):
        return False
    steps = [index_coefficients(e) for e in found[0]]
    if any(c is None or list(c.values()) != [1] for c in steps) or len({i for c in steps for i in c or ()}) < len(steps):
        return False
    gone = steps[-1] if next(iter(tables.values())).keeps_first else steps[-2]
    return s.left_indices == () or (s.has_plain_left and not set(gone or ()) & set(s.left_indices))


def _is_padded(s: Statement, tables: Collection[str]) -> bool:
    return any(isinstance(n, Pad) and n.read.tensor in tables for e in _expressions(s) for n in walk(e))


def _expressions(s: Statement) -> tuple[Expr, ...]:
    return (*s.subscripts, s.value, *([] if s.reduction is None else [s.reduction.init]))


def _is_small(table: _Table, program: Program, ranges: Ranges) -> bool:
    before = [i.extent for i in ranges.tensors[table.tensor]]
    after = [*before[:-2], table.diagonals.extent, table.kept.extent]
    old, new = ([int(e.value) for e in extents if isinstance(e, Const)] for extents in (before, after))
    if len(old) != len(before) or len(new) != len(after):
        return False
    return prod(new) <= GROWTH * prod(old) and prod(new) * program.tensor(table.tensor).dtype.itemsize <= LARGEST


def _rewrite(s: Statement, is_turned: bool, tables: Mapping[str, _Table], edit: Edit) -> Statement:
    """`s` over tables by diagonals; if `is_turned`, it runs along them."""
    indices: tuple[str, ...] = s.indices
    place: dict[str, Expr] = {}
    if is_turned:
        element = s.subscripts if s.target in tables else next(r.subscripts for r in reads(s.value) if r.tensor in tables)
        indices, place = _turn(s, element, next(iter(tables.values())), edit)

    def move(node: Expr) -> Expr | None:
        if not isinstance(node, Read):
            return None
        subscripts = tuple(map(simplify, node.subscripts))
        return replace(node, subscripts=tables[node.tensor].move(subscripts) if node.tensor in tables else subscripts)

    def change(expr: Expr) -> Expr:
        return rewrite(substitute(expr, place), move)

    def change_guard(g: GuardedSubscript) -> GuardedSubscript:
        read = change(g.read)
        assert isinstance(read, Read)
        return replace(g, read=read, condition=g.condition and change(g.condition))

    own = edit.own[s.name]
    edit.own[s.name] = replace(own, guards=tuple(map(change_guard, own.guards)))
    subscripts = tuple(change(e) for e in s.subscripts)
    if s.target in tables:
        subscripts = tuple(map(simplify, tables[s.target].move(subscripts)))
    reduction = s.reduction and replace(s.reduction, init=change(s.reduction.init))
    where = () if is_turned else s.where
    return replace(s, subscripts=subscripts, indices=indices, value=change(s.value), reduction=reduction, where=where)


def _turn(s: Statement, element: Sequence[Expr], table: _Table, edit: Edit) -> tuple[tuple[str, ...], dict[str, Expr]]:
    """The indices of a statement that touches `element` along diagonals, and in terms of them the one that goes."""
    own, (*_, x, y) = edit.own[s.name], element
    (first,), (second,) = (tuple(index_coefficients(e) or ()) for e in (x, y))
    kept, gone = (first, second) if table.keeps_first else (second, first)
    diagonal = f"{first}.{second}"
    # x + y = diagonal, and x and y are both indices with something added
    at_zero = simplify(substitute(x + y, {first: int_const(0), second: int_const(0)}))
    place: dict[str, Expr] = {gone: simplify(Index(diagonal) - Index(kept) - at_zero)}
    lower = own.indices[first].lower + own.indices[second].lower + at_zero
    extent = own.indices[first].extent + own.indices[second].extent - 1
    intervals = own.indices | {diagonal: Interval(simplify(lower), simplify(extent))}
    left = [i for i in s.indices if i not in (first, second)]
    indices = (*left, diagonal, kept) if s.reduction is None else (*s.left_indices, *_without(s, gone, diagonal))
    domain = map_domain(own.domain, s.name, indices, [place.get(i, Index(i)) for i in s.indices], [])
    edit.own[s.name] = StatementRanges({i: intervals[i] for i in indices}, domain, own.guards)
    return indices, place


def _without(s: Statement, gone: str, diagonal: str) -> list[str]:
    """The indices that a reduction runs over, with the diagonal in the place of one of them."""
    return [diagonal if i == gone else i for i in s.reduction_indices]


def _store_by_diagonals(table: _Table, edit: Edit) -> None:
    edit.intervals[table.tensor] = (*edit.ranges.tensors[table.tensor][:-2], table.diagonals, table.kept)
    edit.tensors = [replace(t, shape=None) if t.name == table.tensor else t for t in edit.tensors]
