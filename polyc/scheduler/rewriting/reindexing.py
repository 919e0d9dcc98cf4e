"""Changes of variables: statements over other indices, tensors with other dimensions; units and what is constant dropped.

before  ``t[i, j] = f(x[j])   ;  y[i, j] = t[i, j]``
after   ``t[j] = f(x[j])      ;  y[i, j] = t[j]``       `relayout` of t to its dimension 1, and `without_indices` of i
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from polyc.diagnostics import Remark
from polyc.ir.expr import Expr, Index, Pad, Read, index_names, int_const, mentions, reads, rewrite, substitute, walk
from polyc.ir.program import Condition, Program, RangeClause, Statement, Tensor, Where, map_statement
from polyc.ir.simplify import simplify
from polyc.poly.domains import is_box, is_product, project_domain
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
    pairs = {s.name: _drop_units(s, ranges.statements[s.name]) for s in program.statements}
    ranges = replace(ranges, statements=ranges.statements | {name: own for name, (_, own) in pairs.items()})
    return replace(program, statements=tuple(s for s, _ in pairs.values())), ranges


def _drop_units(s: Statement, own: StatementRanges) -> tuple[Statement, StatementRanges]:
    units = {i: own.indices[i].lower for i in s.reduction_indices if own.indices[i].extent == int_const(1)}
    if units:
        s, own = without_indices(s, own, units)
    return change_expressions(s, own, lambda e: simplify_subscripts(substitute(e, units)))


def drop_invariant_dimensions(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """The program without dimensions of temporaries along which all elements are equal.

    Before: ``p[t, i, j] = -c / (a * p[t, i, j-1] + b)``.  After: ``p[j] = -c / (a * p[j-1] + b)``: nothing in the value moves
    with t and i but the tensor's own elements at the same t and i.  A recurrence that is written inside a loop over steps, as
    its source had it, is computed once."""
    remarks: list[Remark] = []
    while (found := _find_invariant(program, ranges)) is not None:
        tensor, d = found
        remarks.append(Remark("passed", "invariant", f"{tensor.base} is the same all along its dimension {d}", None))
        program, ranges = _drop_dimension(tensor.name, d, program, ranges)
    return program, ranges, remarks


def _find_invariant(program: Program, ranges: Ranges) -> tuple[Tensor, int] | None:
    """A temporary, and a dimension along which all that its statements compute is equal.

    No tensor that is read beside its elements, where the value is another one, or is checked when it is read."""
    fixed = {g.read.tensor for own in ranges.statements.values() for g in own.guards}
    fixed |= {n.read.tensor for s in program.statements for n in walk(s.value) if isinstance(n, Pad) and n.mode == "value"}
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
    index = s.subscripts[d]
    if not isinstance(index, Index) or own.guards or s.reduction is not None:
        return False
    others = [e for n, e in enumerate(s.subscripts) if n != d]
    if any(r.tensor == s.target and r.subscripts[d] != index for r in reads(s.value)):
        return False
    rest = map_reads(s.value, lambda r: replace(r, subscripts=(*r.subscripts[:d], *r.subscripts[d + 1 :])), s.target)
    return not any(mentions(e, index.name) for e in (rest, *others)) and is_product(own.domain, [s.indices.index(index.name)])


def _drop_dimension(tensor: str, d: int, program: Program, ranges: Ranges) -> tuple[Program, Ranges]:
    """The program with one dimension less of a tensor, and one index less in what writes it."""
    gone = {s.name: index_names(s.subscripts[d]) for s in program.statements if s.target == tensor}
    kept = [k for k in range(program.tensor(tensor).rank) if k != d]
    program, ranges = relayout(program, ranges, {tensor: kept})
    own = dict(ranges.statements)
    statements = list(program.statements)
    for n, s in enumerate(statements):
        if s.name in gone:
            statements[n], own[s.name] = without_indices(s, own[s.name], gone[s.name])
    return replace(program, statements=tuple(statements)), replace(ranges, statements=own)
