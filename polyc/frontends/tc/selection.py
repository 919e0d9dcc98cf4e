"""``(v(i), p(i)) argmax=! X(i, j)``: the greatest value and where it stands."""

from __future__ import annotations

from polyc.frontends.selection import build_selection, compared_type
from polyc.frontends.tc.definition import Definition, define_version, make_scope, next_version
from polyc.frontends.tc.statement import build_left, find_left_indices, find_reduction_indices
from polyc.frontends.tc.syntax import SyntaxSelection
from polyc.frontends.tc.targets import CheckTarget, as_statement, check_targets, define_unknown
from polyc.frontends.tc.types import convert_expr, is_narrower, spell_type
from polyc.frontends.tc.values import build_value, report_narrowing
from polyc.frontends.tc.where import build_where, check_size, define_lets
from polyc.ir.expr import Expr, Index, Read
from polyc.ir.program import Statement, Tensor, Where
from polyc.ir.types import I64, DType
from polyc.records import dataclass, replace

_CODE = "semantic-selection"


def check_selection(d: Definition, s: SyntaxSelection, check_target: CheckTarget) -> None:
    """Add the statements that `polyc.frontends.selection` describes, and let the targets name their results."""
    errors_before = d.reporter.n_errors
    parts = _build_parts(d, s)
    check_targets(d, s.targets, check_target)
    n_values = 0 if parts is None else len(s.targets) - len(parts.others)
    if parts is not None and not parts.others:
        message = f"{s.op} has no index to choose from: all indices of the value are on the left side"
        d.reporter.error(_CODE, message, s.op_span, "leave out the index on the left side whose positions are wanted")
        parts = None
    if parts is not None and n_values not in (0, 1):
        listed = ", ".join(parts.others)
        n = len(parts.others)
        message = f"{s.op} over {listed} gives {n} position{'s' * (n > 1)}, and {len(s.targets)} are assigned"
        help = f"give one target for each of {listed}, and one more in front for the value"
        d.reporter.error(_CODE, message, s.span, help)
        parts = None
    if parts is None or d.reporter.n_errors > errors_before:
        define_unknown(d, s, s.op, s.value)
        return
    _add_statements(d, s, parts, n_values)
    if d.reporter.n_errors > errors_before:
        define_unknown(d, s, s.op, s.value)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the text of a selection says; `value` is of type `dtype`, in which values are compared, and was of `written`."""

    value: Expr
    dtype: DType
    written: DType
    left: tuple[Index, ...]
    others: tuple[str, ...]
    where: tuple[Where, ...]


def _build_parts(d: Definition, s: SyntaxSelection) -> _Parts | None:
    first = s.targets[0]
    scope, errors_before = make_scope(d), d.reporter.n_errors
    left = find_left_indices(scope, as_statement(s, first, s.op, s.value))
    scope.left = frozenset(left)
    define_lets(scope, s.where)
    subscripts = build_left(scope, as_statement(s, first, s.op, s.value))
    value = build_value(scope, s.value)
    if value is None or subscripts is None or not check_size(d.reporter, value.expr, s.value):
        return None
    others = tuple(find_reduction_indices(value.expr, left))
    known = frozenset([*left, *others])
    where: list[Where] = build_where(scope, s.where, known)
    plain = tuple(e for e in subscripts if isinstance(e, Index))
    same = all(t.subscripts == first.subscripts for t in s.targets)
    if len(plain) < len(subscripts) or not same:
        bad = first if same else next(t for t in s.targets if t.subscripts != first.subscripts)
        message = f"{s.op} needs the same plain indices on the left of all its results"
        d.reporter.error(_CODE, message, bad.span, "write for example (v(i), p(i)) argmax=! X(i, j)")
        return None
    if d.reporter.n_errors > errors_before:
        return None
    if value.dtype.is_complex:
        help = f"compare a part of them, or their size: {s.op} fabs(z(i))"
        d.reporter.error("type-complex", f"complex numbers have no order, so there is no {s.op}", s.value.span, help)
        return None
    dtype = compared_type(value.dtype)
    return _Parts(convert_expr(value.expr, value.dtype, dtype), dtype, value.dtype, plain, others, tuple(where))


def _add_statements(d: Definition, s: SyntaxSelection, parts: _Parts, n_values: int) -> None:
    values, positions = s.targets[:n_values], s.targets[n_values:]
    for target in s.targets:
        draft = Statement("", "", parts.left, (*(i.name for i in parts.left), *parts.others), parts.value, None, parts.where)
        written = any(w.target == d.current[target.name].version for w in d.statements) if target.name in d.current else False
        if written and draft.writes_part:
            message = f"{s.op} cannot assign a part of {target.name}, which is assigned above"
            d.reporter.error(_CODE, message, target.span, f"assign another name, and copy it to the part of {target.name}")
            return
    found = []
    for target in positions:
        annotation = d.returns.get(target.name)
        dtype = I64 if annotation is None or annotation.dtype is None else annotation.dtype
        if dtype.kind not in "iu" or dtype.bits < 32:
            message = f"{target.name} holds positions, and cannot be {spell_type(dtype)}"
            d.reporter.error("type-narrowing", message, target.span, "declare it int64 (or int32), or leave the type out")
            return
        found.append(dtype)
    kept: DType | None = None
    for target in values:
        annotation = d.returns.get(target.name)
        kept = parts.written if annotation is None or annotation.dtype is None else annotation.dtype
        if is_narrower(kept, parts.written):
            report_narrowing(make_scope(d), parts.written, kept, s.value.span)
            return
    best = f"{next_version(d, positions[0].name)}.best"
    if values and kept == parts.dtype:
        best = define_version(d, as_statement(s, values[0], s.op, s.value), kept)
    else:
        base = values[0].name if values else positions[0].name
        d.tensors[best] = Tensor(best, parts.dtype, len(parts.left), None, "temporary", base, s.span)
        for target in values:
            copy = define_version(d, as_statement(s, target, s.op, s.value), kept)
    versions = [define_version(d, as_statement(s, t, s.op, s.value), dtype) for t, dtype in zip(positions, found, strict=True)]
    made = build_selection(
        s.op.removesuffix("=!"),
        parts.value,
        parts.dtype,
        best,
        list(zip(versions, found, strict=True)),
        parts.left,
        parts.others,
        parts.where,
        s.span,
    )
    if values and kept is not None and kept != parts.dtype:
        read = convert_expr(Read(best, parts.left, s.span), parts.dtype, kept)
        made.append(Statement("", copy, parts.left, tuple(i.name for i in parts.left), read, None, (), s.span))
    for statement in made:
        d.statements.append(replace(statement, name=f"S{len(d.statements)}"))
