"""Changes of variables that rewritings share: statements over other indices, tensors with other dimensions.

before  ``t[i, j] = f(x[j])   ;  y[i, j] = t[i, j]``
after   ``t[j] = f(x[j])      ;  y[i, j] = t[j]``       `relayout` of t to its dimension 1, and `without_indices` of i
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from polyc.ir.expr import Expr, Index, Read, int_const, mentions, rewrite, substitute
from polyc.ir.program import Condition, Program, RangeClause, Statement, Where, map_statement
from polyc.ir.simplify import simplify
from polyc.poly.domains import project_domain
from polyc.poly.ranges import Ranges, StatementRanges
from polyc.records import replace


def map_reads(expr: Expr, change: Callable[[Read], Expr], tensor: str | None = None) -> Expr:
    """`expr` with something else in the place of each read, or of those of one tensor; subscripts are changed before."""
    return rewrite(expr, lambda node: change(node) if isinstance(node, Read) and tensor in (None, node.tensor) else None)


def simplify_subscripts(expr: Expr) -> Expr:
    """`expr` with simpler subscripts, in the places where they were written, and its other arithmetic as it is."""

    def simpler(read: Read) -> Read:
        return replace(read, subscripts=tuple(replace(simplify(e), span=e.span) for e in read.subscripts))

    return map_reads(expr, simpler)


def change_expressions(s: Statement, own: StatementRanges, change: Callable[[Expr], Expr]) -> tuple[Statement, StatementRanges]:
    """A statement with all its expressions changed, those of its guards as well."""
    return map_statement(s, change), replace(own, guards=tuple(g.map(change) for g in own.guards))


def relayout(program: Program, ranges: Ranges, orders: Mapping[str, Sequence[int]]) -> tuple[Program, Ranges]:
    """Tensors with these of their dimensions, in this order, wherever they are written or read; nothing guards dimensions that
    are gone."""

    def move(read: Read) -> Read:
        order = orders.get(read.tensor)
        return read if order is None else replace(read, subscripts=tuple(read.subscripts[d] for d in order))

    own = dict(ranges.statements)
    statements = []
    for s in program.statements:
        new, own[s.name] = change_expressions(s, own[s.name], lambda e: map_reads(e, move))
        new = replace(new, subscripts=move(Read(s.target, new.subscripts)).subscripts)
        if new.reduction is not None and s.target in orders:
            place: dict[str, Expr] = {n: i.lower for n, i in zip(s.element_names, ranges.tensors[s.target], strict=True)}
            place |= {s.element_names[d]: Index(n) for d, n in zip(orders[s.target], new.element_names, strict=True)}
            new = replace(new, reduction=replace(new.reduction, init=substitute(new.reduction.init, place)))
        statements.append(new)
    tensors = tuple(
        t
        if (order := orders.get(t.name)) is None
        else replace(t, rank=len(order), shape=None if t.shape is None else tuple(t.shape[d] for d in order))
        for t in program.tensors
    )
    intervals = {n: tuple(i[d] for d in orders[n]) if n in orders else i for n, i in ranges.tensors.items()}
    program = replace(program, statements=tuple(statements), tensors=tensors)
    return program, replace(ranges, statements=own, tensors=intervals)


def without_indices(s: Statement, own: StatementRanges, gone: Collection[str]) -> tuple[Statement, StatementRanges]:
    """A statement without indices that nothing which it computes depends on, nor where it writes."""
    kept = tuple(i for i in s.indices if i not in gone)
    where = tuple(w for w in s.where if not _is_about(w, gone))
    domain = project_domain(own.domain, s.indices, s.name, kept)
    return replace(s, indices=kept, where=where), replace(own, indices={i: own.indices[i] for i in kept}, domain=domain)


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
    statements, own = list[Statement](), dict(ranges.statements)
    for s in program.statements:
        new, own[s.name] = _drop_units(s, own[s.name])
        statements.append(new)
    return replace(program, statements=tuple(statements)), replace(ranges, statements=own)


def _drop_units(s: Statement, own: StatementRanges) -> tuple[Statement, StatementRanges]:
    units = {i: own.indices[i].lower for i in s.reduction_indices if own.indices[i].extent == int_const(1)}
    if units:
        s, own = without_indices(s, own, units)
    return change_expressions(s, own, lambda e: simplify_subscripts(substitute(e, units)))
