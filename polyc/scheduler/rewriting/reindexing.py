"""Changes of variables: statements over other indices, tensors with other dimensions; units and what is constant dropped.

before  ``t[i, j] = f(x[j])   ;  y[i, j] = t[i, j]``
after   ``t[j] = f(x[j])      ;  y[i, j] = t[j]``       `relayout` of t to its dimension 1, and `without_indices` of i
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, reduce
from math import prod

from polyc.diagnostics import Remark
from polyc.ir.expr import Expr, Index, Pad, Read, index_names, int_const, mentions, reads, rewrite, substitute, walk
from polyc.ir.program import Condition, Program, RangeClause, Statement, Tensor, Where, map_statement
from polyc.ir.simplify import simplify, simplify_int
from polyc.poly.domains import is_box, is_product, project_domain
from polyc.poly.ranges import Interval, Ranges, StatementRanges
from polyc.records import replace
from polyc.scheduler.accesses import trip_count


def map_reads(expr: Expr, change: Callable[[Read], Expr], tensor: str | None = None) -> Expr:
    """`expr` with something else in the place of each read, or of those of one tensor; subscripts are changed before."""
    if not any(tensor in (None, r.tensor) for r in reads(expr)):
        return expr
    return rewrite(expr, lambda node: change(node) if isinstance(node, Read) and tensor in (None, node.tensor) else None)


def simplify_subscripts(expr: Expr) -> Expr:
    """`expr` with simpler subscripts, in the places where they were written, and its other arithmetic as it is."""

    def simpler(read: Read) -> Read:
        return replace(read, subscripts=tuple(replace(simplify(e), span=e.span) for e in read.subscripts))

    return map_reads(expr, simpler)


def change_expressions(s: Statement, own: StatementRanges, change: Callable[[Expr], Expr]) -> tuple[Statement, StatementRanges]:
    """A statement with all its expressions changed, those of its guards as well."""
    return map_statement(s, change), replace(own, guards=tuple(g.map(change) for g in own.guards))


Groups = dict[str, tuple[tuple[int, ...], ...]]
"""By tensor: which of its dimensions each dimension of another layout stands for."""


def relayout(program: Program, ranges: Ranges, groups: Mapping[str, Sequence[Sequence[int]]]) -> tuple[Program, Ranges]:
    """Tensors with each group of their dimensions as one, in this order, wherever they are written or read: dimensions of 4 and
    56 elements as one of 224, with ``56*h + w`` for ``h, w``.  Nothing guards dimensions that are gone."""

    def join(tensor: str, subscripts: Sequence[Expr]) -> tuple[Expr, ...]:
        box = ranges.tensors[tensor]
        return tuple(
            reduce(lambda e, d: simplify_int(box[d].extent * e + subscripts[d]), g[1:], subscripts[g[0]])
            for g in groups[tensor]
        )

    def move(read: Read) -> Read:
        return replace(read, subscripts=join(read.tensor, read.subscripts)) if read.tensor in groups else read

    own = dict(ranges.statements)
    statements = []
    for s in program.statements:
        new, own[s.name] = change_expressions(
            s, own[s.name], lambda e: map_reads(e, move) if any(r.tensor in groups for r in reads(e)) else e
        )
        new = replace(new, subscripts=move(Read(s.target, new.subscripts)).subscripts)
        if new.reduction is not None and s.target in groups:
            # Coordinates without an index of their own are called by their dimension, which may be another one now.
            kept = zip(groups[s.target], new.element_names, strict=True)
            gone = {d for d in range(len(s.subscripts)) if not any(d in g for g in groups[s.target])}
            place: dict[str, Expr] = {s.element_names[d]: ranges.tensors[s.target][d].lower for d in gone}
            place |= {s.element_names[g[0]]: Index(name) for g, name in kept if len(g) == 1}
            new = replace(new, reduction=replace(new.reduction, init=substitute(new.reduction.init, place)))
        statements.append(new)
    intervals, tensors = dict(ranges.tensors), list(program.tensors)
    for n, t in enumerate(tensors):
        if t.name in groups:
            intervals[t.name] = tuple(join_intervals([intervals[t.name][d] for d in g]) for g in groups[t.name])
            pairs = list(zip(groups[t.name], intervals[t.name], strict=True))
            shape = t.shape and tuple(t.shape[g[0]] if len(g) == 1 else i.extent for g, i in pairs)
            tensors[n] = replace(t, rank=len(pairs), shape=shape)
    program = replace(program, statements=tuple(statements), tensors=tuple(tensors))
    return program, replace(ranges, statements=own, tensors=intervals)


def join_intervals(intervals: Sequence[Interval]) -> Interval:
    """Those of dimensions, or of indices, that run as one."""
    if len(intervals) == 1:
        return intervals[0]
    row = prod(trip_count(i.extent) for i in intervals[1:])
    return Interval(simplify_int(row * intervals[0].lower), simplify_int(row * intervals[0].extent))


def drop_dimensions(program: Program, ranges: Ranges, groups: Mapping[str, Sequence[Sequence[int]]]) -> tuple[Program, Ranges]:
    """`relayout`, and statements without the indices that walked dimensions which are gone; others may mention only those that
    are 0."""
    new, ranges = relayout(program, ranges, groups)
    statements, own = list(new.statements), dict(ranges.statements)
    for n, (old, s) in enumerate(zip(program.statements, statements, strict=True)):
        gone: dict[str, Expr] = dict.fromkeys(set(old.left_indices).difference(s.left_indices), int_const(0))
        if gone:
            is_whole = is_box(own[s.name].domain, own[s.name].indices, s.indices)
            s = map_statement(s, partial(substitute, indices=gone))
            s, own[s.name] = without_indices(s, own[s.name], gone)
            statements[n] = replace(s, where=()) if is_whole else s
    return replace(new, statements=tuple(statements)), replace(ranges, statements=own)


def without_indices(s: Statement, own: StatementRanges, gone: Collection[str]) -> tuple[Statement, StatementRanges]:
    """A statement without indices that nothing which it computes depends on, nor where it writes."""
    kept = tuple(i for i in s.indices if i not in gone)
    domain = project_domain(own.domain, s.indices, s.name, kept)
    return replace(_without_clauses(s, gone), indices=kept), replace(
        own, indices={i: own.indices[i] for i in kept}, domain=domain
    )


def _without_clauses(s: Statement, gone: Collection[str]) -> Statement:
    return replace(s, where=tuple(w for w in s.where if not _is_about(w, gone)))


def _is_about(clause: Where, indices: Collection[str]) -> bool:
    match clause:
        case RangeClause():
            return clause.index in indices or mentions(clause.lower, *indices) or mentions(clause.upper, *indices)
        case Condition():
            return mentions(clause.condition, *indices)
    return False


def drop_unit_indices(program: Program, ranges: Ranges) -> tuple[Program, Ranges]:
    """The program without reduction indices that take one value, and with subscripts in canonical form.

    Before: ``O[h, w] += X[1*h + r, w + s] * F[r, s]`` with r and s in 0:1.  After: ``O[h, w] += X[h, w] * F[0, 0]``, whose
    indices stand alone and can be merged, vectorised and packed."""
    pairs = {s.name: _drop_units(s, ranges.statements[s.name]) for s in program.statements}
    ranges = replace(ranges, statements=ranges.statements | {name: own for name, (_, own) in pairs.items()})
    return replace(program, statements=tuple(s for s, _ in pairs.values())), ranges


def _drop_units(s: Statement, own: StatementRanges) -> tuple[Statement, StatementRanges]:
    units = {i: own.indices[i].lower for i in s.reduction_indices if own.indices[i].extent == int_const(1)}
    if units:
        s, own = without_indices(s, own, units)
    return change_expressions(s, own, lambda e: simplify_subscripts(substitute(e, units)))


def drop_invariant_dimensions(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Temporaries lose dimensions along which they are constant.

    Before: ``p[t, i, j] = -c / (a * p[t, i, j-1] + b)``.  After: ``p[j] = -c / (a * p[j-1] + b)``: nothing in the value moves
    with t and i but the tensor's own elements at the same t and i.  A recurrence that is written inside a loop over steps, as
    its source had it, is computed once."""
    remarks: list[Remark] = []
    # No tensor that is read beside its elements, where the value is another one, or is checked when it is read.
    fixed = {g.read.tensor for own in ranges.statements.values() for g in own.guards}
    fixed |= {n.read.tensor for s in program.statements for n in walk(s.value) if isinstance(n, Pad) and n.mode == "value"}
    while (found := _find_invariant(program, ranges, fixed)) is not None:
        tensor, d = found
        remarks.append(Remark("passed", "invariant", f"{tensor.base} is the same all along its dimension {d}", None))
        told = {
            s.name: _without_clauses(s, index_names(s.subscripts[d])) for s in program.statements if s.target == tensor.name
        }
        program = replace(program, statements=tuple(told.get(s.name, s) for s in program.statements))
        program, ranges = drop_dimensions(program, ranges, {tensor.name: [(k,) for k in range(tensor.rank) if k != d]})
    return program, ranges, remarks


def _find_invariant(program: Program, ranges: Ranges, fixed: Collection[str]) -> tuple[Tensor, int] | None:
    """A temporary, and a dimension along which all that its statements compute is equal; none of `fixed`."""
    writers = program.writers()
    for t in program.tensors:
        own = writers.get(t.name, []) if t.role == "temporary" and t.name not in fixed else []
        for d in range(t.rank if own else 0):
            # Parts that lie one behind the other along the dimension would fall together.
            is_one = all(_ignores(s, d, ranges.statements[s.name]) for s in own)
            if is_one and (len(own) == 1 or all(_fills(s, d, ranges) for s in own)):
                return t, d
    return None


def _fills(s: Statement, d: int, ranges: Ranges) -> bool:
    """Whether the statement writes along all of dimension `d` of its target."""
    index, own = s.subscripts[d], ranges.statements[s.name]
    assert isinstance(index, Index)
    moved = project_domain(own.domain, s.indices, s.name, (index.name,))
    return is_box(moved, {index.name: ranges.tensors[s.target][d]}, (index.name,))


def _ignores(s: Statement, d: int, own: StatementRanges) -> bool:
    """Whether the statement computes the same for every value of the index at dimension `d` of its target."""
    index, found = s.subscripts[d], reads(s.value)
    if not isinstance(index, Index) or own.guards or s.reduction is not None:
        return False
    others = [*s.subscripts[:d], *s.subscripts[d + 1 :], *(r for r in found if all(q.tensor != s.target for q in reads(r)))]
    if any(mentions(e, index.name) for e in others) or any(r.tensor == s.target and r.subscripts[d] != index for r in found):
        return False
    rest = map_reads(s.value, lambda r: replace(r, subscripts=(*r.subscripts[:d], *r.subscripts[d + 1 :])), s.target)
    return not mentions(rest, index.name) and is_product(own.domain, [s.indices.index(index.name)])
