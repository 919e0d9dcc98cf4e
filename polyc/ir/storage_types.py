"""Arithmetic on 16-bit floats written out in f32: what makes them types for memory only below this pass.

    before  ``H:f16[m, n] += X:f16[m, k] * W:f16[k, n]``
    after   ``H.wide:f32[m, n] += f32(X[m, k]) * f32(W[k, n])  ;  H[m, n] = f16(H.wide[m, n])``

A read converts to f32, operators and reductions work in f32, and what is stored is rounded once, as is what is cast explicitly.
So later stages meet `Read`, `Pad`, `Select`, `Const` and `Cast` of a 16-bit type and nothing that computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, children, substitute, type_of, with_children
from polyc.ir.program import Condition, Exists, Program, RangeClause, Statement, Tensor, Where, element_names
from polyc.ir.segments import is_segmented
from polyc.ir.types import F32, DType

Types = Mapping[str, DType]


def widen_arithmetic(program: Program) -> Program:
    """`program` with all arithmetic on 16-bit floats done in f32; any other program as it is."""
    types = program.types
    if not any(t.is_storage for t in types.values()) and not _casts_to_storage(program):
        return program
    combined = (s for s in program.statements if s.reduction is not None or is_segmented(s))
    reduced = {s.target for s in combined if types[s.target].is_storage}
    wide = {name: f"{name}.wide" for name in reduced}
    tensors = list(program.tensors)
    for t in program.tensors:
        if t.name in wide:
            tensors.append(replace(t, name=wide[t.name], dtype=F32, role="temporary"))
    last = {s.target: s.name for s in program.statements}
    names = {s.name for s in program.statements}
    statements: list[Statement] = []
    for s in program.statements:
        statements.append(_widen_statement(s, types, wide))
        if s.target in wide and last[s.target] == s.name:
            statements.append(_round_version(program.tensor(s.target), wide[s.target], _fresh(f"{s.name}_round", names), s))
    return replace(program, tensors=tuple(tensors), statements=tuple(statements))


def _casts_to_storage(program: Program) -> bool:
    roots = [e for s in program.statements for e in (s.value, *s.subscripts, *([s.reduction.init] if s.reduction else []))]
    roots += [c.condition for s in program.statements for c in s.where if isinstance(c, Condition)]
    return any(_has_storage_cast(e) for e in roots)


def _has_storage_cast(expr: Expr) -> bool:
    here = isinstance(expr, (Cast, Const)) and expr.dtype.is_storage
    return here or any(_has_storage_cast(child) for child in children(expr))


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _round_version(tensor: Tensor, wide: str, name: str, origin: Statement) -> Statement:
    """``T[i0, i1] = f16(T.wide[i0, i1])`` for all elements of a version."""
    indices = tuple(f"i{d}" for d in range(tensor.rank))
    element = tuple(Index(i, origin.span) for i in indices)
    value = Cast(Read(wide, element, origin.span), tensor.dtype, origin.span)
    return Statement(name, tensor.name, element, indices, value, None, (), origin.span)


def _widen_statement(s: Statement, types: Types, wide: Mapping[str, str]) -> Statement:
    is_stored = types[s.target].is_storage and s.target not in wide
    form = _storage_form if is_stored else _wide_form
    reduction = s.reduction
    target = wide.get(s.target, s.target)
    if reduction is not None:  # elements are named after their tensor
        renamed = {old: Index(new) for old, new in zip(s.element_names, element_names(target, s.subscripts), strict=True)}
        reduction = replace(reduction, init=substitute(_wide_form(reduction.init, types), renamed))
    return replace(
        s,
        target=target,
        subscripts=tuple(_wide_form(e, types) for e in s.subscripts),
        value=form(s.value, types),
        reduction=reduction,
        where=tuple(_widen_clause(w, types) for w in s.where),
    )


def _widen_clause(clause: Where, types: Types) -> Where:
    match clause:
        case RangeClause():
            return clause  # reads integers, if anything
        case Condition():
            return replace(clause, condition=_wide_form(clause.condition, types))
        case Exists():
            return replace(clause, value=_wide_form(clause.value, types))


def _wide_form(expr: Expr, types: Types) -> Expr:
    """The value of `expr` in f32 where its type is a 16-bit float, else in its own type."""
    match expr:
        case Const() if expr.dtype.is_storage:
            return replace(expr, dtype=F32)
        case Read() | Pad() if type_of(expr, types).is_storage:
            return Cast(_storage_form(expr, types), F32, expr.span)
        case Cast():
            source = type_of(expr.value, types)
            if source == expr.dtype:
                return _wide_form(expr.value, types)
            if expr.dtype.is_storage:
                is_exact = source.kind in "biu" and source.bits == 8  # by both: no rounding to keep
                inner = _wide_form(expr.value, types)
                return Cast(inner if is_exact else Cast(inner, expr.dtype, expr.span), F32, expr.span)
            inner = _wide_form(expr.value, types)
            return inner if source.computed == expr.dtype else replace(expr, value=inner)
        case _:
            return _over(expr, tuple(_wide_form(child, types) for child in children(expr)))


def _storage_form(expr: Expr, types: Types) -> Expr:
    """The value of `expr`, of a 16-bit type, rounded to it; copies stay copies."""
    match expr:
        case Const():
            return expr
        case Read():
            return _over(expr, tuple(_wide_form(child, types) for child in children(expr)))
        case Pad():
            read = _storage_form(expr.read, types)
            assert isinstance(read, Read)
            return _over(expr, (read, _storage_form(expr.value, types)))
        case Select() if _is_copied(expr.then, types) and _is_copied(expr.other, types):
            arms = (_storage_form(expr.then, types), _storage_form(expr.other, types))
            return _over(expr, (_wide_form(expr.condition, types), *arms))
        case Cast(value=Cast(dtype=wide) as inner) if wide == F32 and type_of(inner.value, types) == expr.dtype:
            return _storage_form(inner.value, types)  # there and back
        case Cast() if type_of(expr.value, types) != expr.dtype:
            return _over(expr, (_wide_form(expr.value, types),))
        case Cast():
            return _storage_form(expr.value, types)
        case Call() | Select():
            return Cast(_wide_form(expr, types), type_of(expr, types), expr.span)
        case _:
            raise AssertionError(f"{type(expr).__name__} has no 16-bit type")


def _is_copied(expr: Expr, types: Types) -> bool:
    """Whether the storage form of `expr` computes nothing in f32 only to round it."""
    match expr:
        case Const() | Read() | Pad() | Cast():
            return True
        case Select():
            return _is_copied(expr.then, types) and _is_copied(expr.other, types)
        case _:
            return False


def _over(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    old = children(expr)
    return with_children(expr, new) if any(a is not b for a, b in zip(old, new, strict=True)) else expr
