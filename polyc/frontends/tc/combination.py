"""``(re(i), im(i)) product=! (A(i, j), B(i, j))``: reductions by a monoid that the text defines."""

from __future__ import annotations

import math
from collections.abc import Mapping

from polyc.frontends.tc.definition import Definition, define_version, make_scope, next_version
from polyc.frontends.tc.scope import Let, Reporter, Scope, TensorEntry, Typed, check_not_builtin
from polyc.frontends.tc.statement import build_left, find_left_indices, find_reduction_indices
from polyc.frontends.tc.syntax import (
    Convert,
    Name,
    NamedValue,
    Number,
    SyntaxCombination,
    SyntaxExpr,
    SyntaxMonoid,
    Unary,
)
from polyc.frontends.tc.targets import CheckTarget, as_statement, check_targets, define_unknown
from polyc.frontends.tc.types import TYPE_NAMES, convert_expr, fits_type, is_narrower, spell_type
from polyc.frontends.tc.values import build_value, report_narrowing
from polyc.frontends.tc.where import build_where, check_size, define_lets
from polyc.ir.expr import Call, Const, Expr, Index, Read, Size, walk
from polyc.ir.program import Monoid, Reduction, Statement, Tensor, Where, order_components
from polyc.ir.types import BOOL, F32, DType
from polyc.records import dataclass, replace

_CODE = "semantic-monoid"
_EXAMPLE = "monoid product(float a, float b, float c, float d) -> (p = 1.0, q = 0.0) { p = a * c - b * d  q = a * d + b * c }"


# -- definitions
def read_monoids(reporter: Reporter, monoids: tuple[SyntaxMonoid, ...]) -> dict[str, Monoid | None]:
    """The monoids of a text by name; None for those with errors, which are reported."""
    found: dict[str, Monoid | None] = {}
    for monoid in monoids:
        if monoid.name in found:
            message = f"{monoid.name} is already defined as a reduction of this text"
            reporter.error("semantic-already-defined", message, monoid.name_span, "choose another name")
            continue
        errors_before = reporter.n_errors
        check_not_builtin(reporter, monoid.name, monoid.name_span)
        if monoid.name in ("argmax", "argmin"):
            reporter.error(_CODE, f"{monoid.name}=! is a reduction of the language", monoid.name_span, "choose another name")
        made = _read_monoid(reporter, monoid)
        found[monoid.name] = made if reporter.n_errors == errors_before else None
    return found


def _read_monoid(reporter: Reporter, monoid: SyntaxMonoid) -> Monoid | None:
    dtypes = _component_types(reporter, monoid)
    if dtypes is None:
        return None
    n = len(dtypes)
    names = [p.name for p in monoid.parameters]
    versions = [f"{side}.{k}" for side in ("left", "right") for k in range(n)]
    tensors = {name: TensorEntry(v, t, 0, ()) for name, v, t in zip(names, versions, dtypes * 2, strict=True)}
    scope = Scope(reporter, {}, tensors, frozenset())
    if "inf" not in names and all(p.name != "inf" for p in monoid.parts):
        scope.lets["inf"] = Let(Typed(Const(math.inf, F32), F32), None, False, True)
    for part in monoid.parts:
        _assign(scope, part, names, monoid)
    results = []
    for component, dtype in zip(monoid.identity, dtypes, strict=True):
        let = scope.lets.get(component.name)
        if let is None:
            message = f"{component.name} is a result of {monoid.name} and is never assigned"
            reporter.error(_CODE, message, component.span, f"assign it: {component.name} = …")
        elif let.value is not None:
            span = next(p.value.span for p in monoid.parts if p.name == component.name)
            if is_narrower(dtype, let.value.dtype):
                report_narrowing(scope, let.value.dtype, dtype, span)
            results.append(convert_expr(let.value.expr, let.value.dtype, dtype))
    identity = [_identity(reporter, c, dtype, monoid) for c, dtype in zip(monoid.identity, dtypes, strict=True)]
    if len(results) < n or any(c is None for c in identity):
        return None
    return Monoid(monoid.name, tuple(c for c in identity if c is not None), tuple(results))


def _component_types(reporter: Reporter, monoid: SyntaxMonoid) -> list[DType] | None:
    """Element types of the components, from the parameters: all of the left value, then all of the right one."""
    n = len(monoid.identity)
    if len(monoid.parameters) != 2 * n:
        message = (
            f"{monoid.name} has {n} result{'s' * (n > 1)}, so it combines {2 * n} values, and has {len(monoid.parameters)}"
        )
        help = f"the parameters are those of the left value, then those of the right one, as in {_EXAMPLE}"
        reporter.error(_CODE, message, monoid.name_span, help)
        return None
    dtypes: list[DType] = []
    seen: set[str] = set()
    for parameter in monoid.parameters:
        if parameter.type is None or parameter.type.dimensions:
            message = f"{monoid.name} combines numbers, and {parameter.name} is none"
            reporter.error(_CODE, message, parameter.name_span, f"declare it as a number: float {parameter.name}")
            return None
        if parameter.name in seen:
            message = f"{parameter.name} is already defined as a parameter"
            reporter.error("semantic-already-defined", message, parameter.name_span, "choose another name")
            return None
        seen.add(parameter.name)
        dtypes.append(TYPE_NAMES[parameter.type.name])
    for left, right, parameter in zip(dtypes[:n], dtypes[n:], monoid.parameters[n:], strict=True):
        if left != right:
            message = f"{parameter.name} is {spell_type(right)}, and what it is combined with is {spell_type(left)}"
            reporter.error("type-monoid", message, parameter.name_span, "give both the same type")
            return None
    bad = next((p for p, t in zip(monoid.parameters, dtypes, strict=True) if t.is_complex or t.is_storage), None)
    if bad is not None:
        kind = spell_type(TYPE_NAMES[bad.type.name]) if bad.type is not None else ""
        help = "combine real and imaginary parts, as two components" if kind.startswith("complex") else "combine them as float"
        reporter.error("type-monoid", f"{monoid.name} cannot combine {kind}", bad.name_span, help)
        return None
    return dtypes[:n]


def _assign(scope: Scope, part: NamedValue, parameters: list[str], monoid: SyntaxMonoid) -> None:
    """``name = value`` in the body: a name for an expression, as in a where clause."""
    reporter, name = scope.reporter, part.name
    check_not_builtin(reporter, name, part.span)
    if name in parameters or name in scope.lets:
        what = "a parameter" if name in parameters else "a name"
        message = f"{name} is already defined as {what} of {monoid.name}"
        reporter.error("semantic-already-defined", message, part.span, "choose another name")
        return
    value = build_value(scope, part.value)
    if value is not None and not check_size(reporter, value.expr, part.value):
        value = None
    for node in walk(value.expr) if value is not None else ():
        if isinstance(node, (Index, Size)):
            message = f"{node.name} has no value in {monoid.name}"
            help = f"{monoid.name} sees its parameters ({', '.join(parameters)}) and the names assigned above"
            reporter.error(_CODE, message, node.span or part.value.span, help)
            value = None
            break
    scope.lets[name] = Let(value, None, False, True)


def _identity(reporter: Reporter, component: NamedValue, dtype: DType, monoid: SyntaxMonoid) -> Const | None:
    number = _number(component.value)
    span = component.value.span
    if number is None:
        message = f"the identity of {monoid.name} is no number"
        reporter.error(_CODE, message, span, "write a literal, or inf or -inf: -> (c = -inf)")
        return None
    if dtype == BOOL:
        fits = number in (0, 1)
        value: float | int | bool = bool(number)
    elif dtype.is_integer:
        fits = math.isfinite(number) and number == int(number) and fits_type(int(number), dtype)
        value = int(number) if fits else 0
    else:
        fits, value = True, float(number)
    if not fits:
        message = f"the identity of {monoid.name} does not fit {spell_type(dtype)}"
        reporter.error("type-monoid", message, span, f"give a number of {spell_type(dtype)}, or other parameters")
        return None
    return Const(value, dtype, span)


def _number(syntax: SyntaxExpr) -> float | int | None:
    match syntax:
        case Number():
            return float(syntax.text) if syntax.is_float else int(syntax.text)
        case Name(name="inf"):
            return math.inf
        case Unary(op="-", operand=operand):
            inner = _number(operand)
            return None if inner is None else -inner
        case Convert(value=value):
            return _number(value)
    return None


# -- uses
def check_combination(
    d: Definition,
    s: SyntaxCombination,
    monoids: Mapping[str, Monoid | None],
    check_target: CheckTarget,
) -> None:
    """Add one statement for each component, and let the targets name their results."""
    errors_before = d.reporter.n_errors
    monoid = monoids.get(s.monoid)
    check_targets(d, s.targets, check_target)
    if monoid is not None:
        n = len(monoid.identity)
        for found, what, verb in ((len(s.targets), "result", "assigned"), (len(s.values), "value", "given")):
            if found != n:
                message = f"{s.monoid} has {n} component{'s' * (n > 1)}, and {found} {what}{'s' * (found != 1)} are {verb}"
                d.reporter.error(_CODE, message, s.op_span, f"give one {what} for each component")
    parts = _build_parts(d, s, monoid)
    if monoid is None or parts is None or d.reporter.n_errors > errors_before:
        define_unknown(d, s, "+=!", s.values[0])
        return
    _add_statements(d, s, monoid, parts)
    if d.reporter.n_errors > errors_before:
        define_unknown(d, s, "+=!", s.values[0])


@dataclass(frozen=True, slots=True)
class _Parts:
    values: tuple[Expr, ...]
    left: tuple[Index, ...]
    indices: tuple[str, ...]
    where: tuple[Where, ...]


def _build_parts(d: Definition, s: SyntaxCombination, monoid: Monoid | None) -> _Parts | None:
    first = s.targets[0]
    scope, errors_before = make_scope(d), d.reporter.n_errors
    left = find_left_indices(scope, as_statement(s, first, "+=!", s.values[0]))
    scope.left = frozenset(left)
    define_lets(scope, s.where)
    subscripts = build_left(scope, as_statement(s, first, "+=!", s.values[0]))
    typed = [build_value(scope, value) for value in s.values]
    built = [v for v, syntax in zip(typed, s.values, strict=True) if v is not None and check_size(d.reporter, v.expr, syntax)]
    if subscripts is None or len(built) < len(s.values):
        return None
    others = tuple(dict.fromkeys(i for v in built for i in find_reduction_indices(v.expr, left)))
    known = frozenset([*left, *others])
    where: list[Where] = build_where(scope, s.where, known)
    plain = tuple(e for e in subscripts if isinstance(e, Index))
    if len(set(plain)) < len(subscripts) or not all(t.subscripts == first.subscripts for t in s.targets):
        message = f"{s.monoid}=! needs the same plain indices on the left of all its results"
        d.reporter.error(_CODE, message, s.op_span, "write for example (p(i), q(i)) product=! (A(i, j), B(i, j))")
        return None
    if monoid is not None and len(built) == len(monoid.identity):
        for v, c, syntax in zip(built, monoid.identity, s.values, strict=True):
            if is_narrower(c.dtype, v.dtype):
                report_narrowing(scope, v.dtype, c.dtype, syntax.span)
    if monoid is None or d.reporter.n_errors > errors_before or len(built) != len(monoid.identity):
        return None
    values = tuple(convert_expr(v.expr, v.dtype, c.dtype) for v, c in zip(built, monoid.identity, strict=True))
    return _Parts(values, plain, (*(i.name for i in plain), *others), tuple(where))


def _add_statements(d: Definition, s: SyntaxCombination, monoid: Monoid, parts: _Parts) -> None:
    draft = Statement("", "", parts.left, parts.indices, monoid.identity[0], None, parts.where)
    for target, component in zip(s.targets, monoid.identity, strict=True):
        current = d.current.get(target.name)
        if draft.writes_part and current is not None and any(w.target == current.version for w in d.statements):
            message = f"{s.monoid}=! cannot assign a part of {target.name}, which is assigned above"
            d.reporter.error(_CODE, message, target.span, f"assign another name, and copy it to the part of {target.name}")
            return
        annotation = d.returns.get(target.name)
        if annotation is not None and annotation.dtype is not None and is_narrower(annotation.dtype, component.dtype):
            report_narrowing(make_scope(d), component.dtype, annotation.dtype, target.span)
            return
    made: list[Statement] = []
    copies: list[Statement] = []
    for k, (target, component) in enumerate(zip(s.targets, monoid.identity, strict=True)):
        annotation = d.returns.get(target.name)
        kept = component.dtype if annotation is None or annotation.dtype is None else annotation.dtype
        if kept == component.dtype:
            version = define_version(d, as_statement(s, target, "+=!", s.values[0]), kept)
        else:
            version = f"{next_version(d, target.name)}.combined"
            d.tensors[version] = Tensor(version, component.dtype, len(parts.left), None, "temporary", target.name, s.span)
            copy = define_version(d, as_statement(s, target, "+=!", s.values[0]), kept)
            read = convert_expr(Read(version, parts.left, s.span), component.dtype, kept)
            copies.append(Statement("", copy, parts.left, tuple(i.name for i in parts.left), read, None, (), s.span))
        value = Call("tuple", order_components(parts.values, k), s.span)
        reduction = Reduction("combine", component, monoid, k)
        made.append(Statement("", version, parts.left, parts.indices, value, reduction, parts.where, s.span))
    for statement in (*made, *copies):
        d.statements.append(replace(statement, name=f"S{len(d.statements)}"))
