"""Dimensions of one element leave a program.

before::

    Y[i0, i1] = X[i0, i1, 0, 0]        i0 in 0:1, i1 in 0:1000, X of shape [1, 1000, 1, 1]

after::

    Y[i1] = X[i1]

Arrays are contiguous here, so theirs stay where they are.  What remains tells plainly which dimension is contiguous, and more
layers of a model become equal programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from polyc.ir.expr import Const, Expr, Index, Pad, Read, int_const, reads, rewrite, substitute, walk
from polyc.ir.program import Condition, Exists, Program, RangeClause, Statement, Where, element_names


def drop_unit_dimensions(program: Program) -> Program:
    """The program without indices of one value, and without dimensions of extent 1 that are read inside only."""
    statements = [_drop_indices(s) for s in program.statements]
    checked = _checked_dimensions(statements)
    kept = {
        t.name: tuple(d for d, e in enumerate(t.shape or ()) if e != int_const(1) or (t.name, d) in checked)
        for t in program.tensors
    }
    if all(len(kept[t.name]) == t.rank for t in program.tensors) and tuple(statements) == program.statements:
        return program
    tensors = []
    for t in program.tensors:
        shape = None if t.shape is None else tuple(t.shape[d] for d in kept[t.name])
        tensors.append(replace(t, rank=len(kept[t.name]), shape=shape))
    return replace(program, tensors=tuple(tensors), statements=tuple(_drop_dimensions(s, kept) for s in statements))


def _checked_dimensions(statements: Sequence[Statement]) -> set[tuple[str, int]]:
    """Tensors and dimensions that are read beside their elements (in `Pad`), or where data says."""
    found: set[tuple[str, int]] = set()
    for s in statements:
        for e in (e for v in _values(s) for e in walk(v)):
            if isinstance(e, Pad):
                found |= {(e.read.tensor, d) for d, i in enumerate(e.read.subscripts) if i != int_const(0)}
            elif isinstance(e, Read):
                found |= {(e.tensor, d) for d, i in enumerate(e.subscripts) if reads(i)}
        found |= {(s.target, d) for d, i in enumerate(s.subscripts) if reads(i)}
    return found


def _values(s: Statement) -> list[Expr]:
    return [s.value, *s.subscripts, *([] if s.reduction is None else [s.reduction.init])]


def _drop_indices(s: Statement) -> Statement:
    """An index from 0 to 1 is 0; one of a reduction's last index stays, so that it is one."""
    units = [
        c.index
        for c in s.where
        if isinstance(c, RangeClause) and c.lower == int_const(0) and c.upper == int_const(1) and c.index in s.indices
    ]
    left = set(s.left_indices)
    if s.reduction is not None and all(i in left or i in units for i in s.indices):
        summed = [i for i in units if i not in left]
        units = [i for i in units if i not in summed[-1:]]
    if not units:
        return s
    zeros: dict[str, Expr] = {i: int_const(0) for i in units}
    reduction = s.reduction
    subscripts = tuple(substitute(e, zeros) for e in s.subscripts)
    if reduction is not None:
        old, new = element_names(s.target, s.subscripts), element_names(s.target, subscripts)
        names: dict[str, Expr] = {a: Index(b) for a, b in zip(old, new, strict=True) if a != b}
        reduction = replace(reduction, init=substitute(reduction.init, names))
    return replace(
        s,
        subscripts=subscripts,
        indices=tuple(i for i in s.indices if i not in zeros),
        value=substitute(s.value, zeros),
        reduction=reduction,
        where=tuple(_substitute(w, zeros) for w in s.where if not (isinstance(w, RangeClause) and w.index in zeros)),
    )


def _substitute(w: Where, values: Mapping[str, Expr]) -> Where:
    match w:
        case RangeClause():
            return replace(w, lower=substitute(w.lower, values), upper=substitute(w.upper, values))
        case Condition():
            return replace(w, condition=substitute(w.condition, values))
        case Exists():
            return replace(w, value=substitute(w.value, values))


def _drop_dimensions(s: Statement, kept: Mapping[str, tuple[int, ...]]) -> Statement:
    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Read) and len(kept[node.tensor]) < len(node.subscripts):
            return replace(node, subscripts=tuple(node.subscripts[d] for d in kept[node.tensor]))
        return None

    subscripts = tuple(s.subscripts[d] for d in kept[s.target])
    reduction = s.reduction
    if reduction is not None and not isinstance(reduction.init, Const):
        old, new = element_names(s.target, s.subscripts), element_names(s.target, subscripts)
        position = {d: k for k, d in enumerate(kept[s.target])}
        names: dict[str, Expr] = {
            a: Index(new[position[d]]) if d in position else int_const(0) for d, a in enumerate(old) if a.startswith(s.target)
        }
        reduction = replace(reduction, init=rewrite(substitute(reduction.init, names), rule))
    return replace(s, subscripts=tuple(rewrite(e, rule) for e in subscripts), value=rewrite(s.value, rule), reduction=reduction)
