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

from polyc.code_limits import LONG_ROW
from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Const, Expr, Index, Pad, Read, int_const, reads, substitute, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement, all_reads, statement_expressions
from polyc.ir.scans import find_scan
from polyc.ir.simplify import simplify
from polyc.machine import Machine
from polyc.poly.points import Points
from polyc.poly.ranges import Interval, Ranges, known_shape
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.builder import ProgramBuilder, change_groups, find_recurrences
from polyc.scheduler.rewriting.reindexing import change_expressions, map_reads

LARGEST = 1 << 28
"""Bytes of a table by diagonals, above which it stays as written."""

FEWEST_LANES = 8
"""32-bit lanes from which on vectors save more than the copy of a result takes."""

GROWTH = 4
"""Elements of a table by diagonals for each as written: two where the shorter side is kept."""


@dataclass(frozen=True, slots=True)
class _Table:
    """A tensor whose last two dimensions, x and y, become x + y and the shorter of both; a result is stored a second time."""

    tensor: str
    stored: str
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


def walk_diagonals(program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, list[Remark]]:
    """Wavefront skewing: recurrences in two directions run along diagonals."""

    def rule(members: list[Statement], program: Program, ranges: Ranges) -> tuple[Program, Ranges, str] | None:
        builder = ProgramBuilder(program, ranges)
        tables = _find_tables(members, builder, target)
        if not tables:
            return None
        for s in program.statements:
            is_turned = s in members or not _touches_edges(s, tables)
            new = _rewrite(s, is_turned, tables, builder)
            if (table := tables.get(s.target)) is not None:
                new = replace(new, target=table.stored, subscripts=tuple(map(simplify, table.move(new.subscripts))))
            builder.statements.append(new)
        for table in tables.values():
            tensor, box = builder.tensor(table.tensor), ranges.tensors[table.tensor]
            layout = (*box[:-2], table.diagonals, table.kept)
            if table.stored == table.tensor:
                builder.intervals[table.tensor] = layout
                builder.tensors = [replace(t, shape=None) if t is tensor else t for t in builder.tensors]
                continue
            builder.temporary(table.stored, layout, tensor)
            points = builder.box({f"{table.tensor}.d{d}": i for d, i in enumerate(box)})
            element, name = tuple(map(Index, points.indices)), builder.free_name(f"{table.tensor}_copy")
            copy = builder.assign(name, table.tensor, element, Read(table.tensor, element), points, tensor)
            builder.statements.append(_rewrite(copy, True, tables, builder))
        shown = ", ".join(program.tensor(t).base for t in tables)
        message = f"{shown}: computed by diagonals, as rows and columns both carry values from element to element"
        return *builder.finish(), message

    # statements of fewer indices are the edges that the recurrence begins with
    groups = [[s for s in found if len(s.indices) >= program.tensor(s.target).rank] for found in find_recurrences(program)]
    return change_groups("skew-diagonals", rule, groups, program, ranges)


def _may_copy(result: str, program: Program, ranges: Ranges, target: Machine) -> bool:
    """Whether a result may be copied from a table by diagonals."""
    touching = [s for s in program.statements if s.target == result or any(r.tensor == result for r in all_reads(s))]
    return target.lanes(4) >= FEWEST_LANES and not any(ranges.statements[s.name].guards for s in touching)


def _find_tables(members: Sequence[Statement], builder: ProgramBuilder, target: Machine) -> dict[str, _Table]:
    """The tables that statements which need each other define by such a recurrence; none where anything is in the way."""
    program, ranges = builder.program, builder.ranges
    targets = {s.target for s in members}
    ranks, results = {program.tensor(t).rank for t in targets}, {t for t in targets if program.tensor(t).role == "output"}
    if len(ranks) != 1 or min(ranks) < 2 or not all(_may_copy(t, program, ranges, target) for t in results):
        return {}
    steps = [found for s in members if (found := _find_steps(s, targets, ranges)) is not None]
    if len(steps) < len(members):
        return {}
    every = set().union(*steps)
    if any(x + y >= 0 and (x, y) != (0, 0) for x, y in every):
        return {}  # an element of the same diagonal, or of a later one
    carrying = [s for s, found in zip(members, steps, strict=True) if any(x == 0 and y < 0 for x, y in found)]
    if not carrying or not any(x < 0 for x, _ in every):
        return {}  # rows or columns are parallel as they are
    if all(_is_scan(s, program) for s in carrying):
        return {}  # rows run in vectors, a block at a time
    shapes = [shape[-2:] for t in targets if (shape := known_shape(ranges.tensors[t])) is not None]
    if len(shapes) != len(targets) or any(min(shape) < LONG_ROW for shape in shapes):
        return {}
    others = [s for s in program.statements if s not in members]
    shorter = sum(x for x, _ in shapes) <= sum(y for _, y in shapes)
    for keeps_first in (shorter, not shorter):
        stored = {t: builder.free_name(f"{t}.table") if t in results else t for t in sorted(targets)}
        tables = {t: _Table(t, name, keeps_first, *ranges.tensors[t][-2:]) for t, name in stored.items()}
        if all(_touches_edges(s, tables) or _is_copy(s, tables) or _follows(s, tables, program, ranges) for s in others):
            return tables if all(_is_small(table, program, ranges, target) for table in tables.values()) else {}
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
    return any(isinstance(n, Pad) and n.read.tensor in tables for e in statement_expressions(s) for n in walk(e))


def _is_small(table: _Table, program: Program, ranges: Ranges, target: Machine) -> bool:
    """Whether a table by diagonals is not too much memory; that of a result is still in a cache when it is copied."""
    box = ranges.tensors[table.tensor]
    old, new = known_shape(box), known_shape((*box[:-2], table.diagonals, table.kept))
    if old is None or new is None:
        return False
    limit = LARGEST if table.stored == table.tensor else target.copies.room * target.l2
    return prod(new) <= GROWTH * prod(old) and prod(new) * program.tensor(table.tensor).dtype.itemsize <= limit


def _rewrite(s: Statement, is_turned: bool, tables: Mapping[str, _Table], builder: ProgramBuilder) -> Statement:
    """`s` over tables by diagonals; if `is_turned`, it runs along them.  What touches none stays the very same statement."""
    if s.target not in tables and all(r.tensor not in tables for r in all_reads(s)):
        return s
    points, place = builder.points(s), dict[str, Expr]()
    if is_turned:
        element = s.subscripts if s.target in tables else next(r.subscripts for r in reads(s.value) if r.tensor in tables)
        points, place = _turn(s, element, next(iter(tables.values())), points)
        s = replace(s, indices=tuple(points.indices), where=())

    def move(read: Read) -> Read:
        subscripts = tuple(map(simplify, read.subscripts))
        table = tables.get(read.tensor)
        return replace(read, subscripts=subscripts) if table is None else Read(table.stored, table.move(subscripts), read.span)

    own = builder.own[s.name]
    new, own = change_expressions(s, own, lambda e: map_reads(substitute(e, place), move))
    builder.set_points(s.name, points, own.guards)
    return new


def _turn(s: Statement, element: Sequence[Expr], table: _Table, own: Points) -> tuple[Points, dict[str, Expr]]:
    """The points of a statement that touches `element` along diagonals, and in terms of them the index that goes."""
    *_, x, y = element
    (first,), (second,) = (tuple(index_coefficients(e) or ()) for e in (x, y))
    kept, gone = (first, second) if table.keeps_first else (second, first)
    diagonal = f"{first}.{second}"
    # x + y = diagonal, and x and y are both indices with something added
    at_zero = simplify(substitute(x + y, {first: int_const(0), second: int_const(0)}))
    place: dict[str, Expr] = {gone: simplify(Index(diagonal) - Index(kept) - at_zero)}
    lower = own.indices[first].lower + own.indices[second].lower + at_zero
    extent = own.indices[first].extent + own.indices[second].extent - 1
    if s.reduction is None:
        order = [*(i for i in s.indices if i not in (first, second)), diagonal, kept]
    else:
        order = [*s.left_indices, *(diagonal if i == gone else i for i in s.reduction_indices)]
    return own.move(order, {diagonal: Interval(simplify(lower), simplify(extent))}, place), place
