"""Drop dimensions of temporaries along which all elements are equal.

Before: ``p[t, i, j] = -c / (a * p[t, i, j-1] + b)``.  After: ``p[j] = -c / (a * p[j-1] + b)``: nothing in the value moves with
t and i but the tensor's own elements at the same t and i.  A recurrence that is written inside a loop over steps, as its source
had it, is computed once.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.diagnostics import Remark
from polyc.ir.expr import Expr, Index, Pad, Read, reads, rewrite, walk
from polyc.ir.program import Condition, Exists, Program, RangeClause, Statement, Where
from polyc.poly.domains import is_box, is_product, project_domain
from polyc.poly.ranges import Ranges, StatementRanges


def drop_invariant_dimensions(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """The program whose temporaries have no dimension that tells nothing."""
    remarks: list[Remark] = []
    is_changed = True
    while is_changed:
        is_changed = False
        writers, fixed = program.writers(), _read_beside_or_guarded(program, ranges)
        for t in program.tensors:
            own = writers.get(t.name, []) if t.role == "temporary" and t.name not in fixed else []
            d = next((d for d in range(t.rank) if _is_invariant(own, d, ranges)), None)
            if d is not None:
                remarks.append(Remark("passed", "invariant", f"{t.base} is the same all along its dimension {d}", None))
                program, ranges = _drop(t.name, d, program, ranges)
                is_changed = True
                break
    return program, ranges, remarks


def _is_invariant(writers: list[Statement], d: int, ranges: Ranges) -> bool:
    if not writers or not all(_ignores(s, d, ranges.statements[s.name]) for s in writers):
        return False
    # Parts that lie one behind the other along the dimension would fall together.
    return len(writers) == 1 or all(_fills(s, d, ranges) for s in writers)


def _read_beside_or_guarded(program: Program, ranges: Ranges) -> set[str]:
    """Tensors that are read beside their elements, where the value is another one, or are checked when they are read."""
    guarded = {g.read.tensor for own in ranges.statements.values() for g in own.guards}
    padded = (n for s in program.statements for n in walk(s.value) if isinstance(n, Pad) and n.mode == "value")
    return guarded | {node.read.tensor for node in padded}


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
    if any(index in walk(e) for n, e in enumerate(s.subscripts) if n != d):
        return False

    def without_own(node: Expr) -> Expr | None:
        if isinstance(node, Read) and node.tensor == s.target and node.subscripts[d] == index:
            return Read(node.tensor, (*node.subscripts[:d], *node.subscripts[d + 1 :]))
        return None

    rest = rewrite(s.value, without_own)
    if any(node == index for node in walk(rest)) or any(
        r.tensor == s.target and len(r.subscripts) == len(s.subscripts) for r in reads(rest)
    ):
        return False
    return is_product(own.domain, [s.indices.index(index.name)])


def _drop(tensor: str, d: int, program: Program, ranges: Ranges) -> tuple[Program, Ranges]:
    def shorter(expr: Expr) -> Expr:
        def rule(node: Expr) -> Expr | None:
            if isinstance(node, Read) and node.tensor == tensor:
                return Read(tensor, (*node.subscripts[:d], *node.subscripts[d + 1 :]), node.span)
            return None

        return rewrite(expr, rule)

    own = dict(ranges.statements)
    statements = []
    for s in program.statements:
        new = replace(
            s,
            subscripts=tuple(map(shorter, s.subscripts)),
            value=shorter(s.value),
            reduction=None if s.reduction is None else replace(s.reduction, init=shorter(s.reduction.init)),
            where=tuple(replace(w, value=shorter(w.value)) if isinstance(w, Exists) else w for w in s.where),
        )
        old = own[s.name]
        if s.target == tensor:
            index = s.subscripts[d]
            assert isinstance(index, Index)
            kept = tuple(i for i in s.indices if i != index.name)
            subscripts = (*new.subscripts[:d], *new.subscripts[d + 1 :])
            where = tuple(w for w in new.where if not _mentions(w, index.name))
            new = replace(new, subscripts=subscripts, indices=kept, where=where)
            own[s.name] = StatementRanges(
                {i: old.indices[i] for i in kept}, project_domain(old.domain, s.indices, s.name, kept)
            )
        elif old.guards:
            guards = []
            for g in old.guards:
                read = shorter(g.read)
                assert isinstance(read, Read)
                guards.append(replace(g, read=read, condition=None if g.condition is None else shorter(g.condition)))
            own[s.name] = replace(old, guards=tuple(guards))
        statements.append(new)
    tensors = tuple(
        replace(t, rank=t.rank - 1, shape=None if t.shape is None else (*t.shape[:d], *t.shape[d + 1 :]))
        if t.name == tensor
        else t
        for t in program.tensors
    )
    intervals = ranges.tensors[tensor]
    known = {**ranges.tensors, tensor: (*intervals[:d], *intervals[d + 1 :])}
    new_program = replace(program, statements=tuple(statements), tensors=tensors)
    return new_program, replace(ranges, statements=own, tensors=known)


def _mentions(where: Where, index: str) -> bool:
    match where:
        case RangeClause():
            return where.index == index or any(Index(index) in walk(e) for e in (where.lower, where.upper))
        case Condition():
            return Index(index) in walk(where.condition)
        case Exists():
            return False
