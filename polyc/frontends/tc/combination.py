"""``(re(i), im(i)) product=! (A(i, j), B(i, j))``: reductions by a monoid that the text defines."""

from __future__ import annotations

import math

from polyc.frontends.core.builder import Version
from polyc.frontends.core.reductions import add_combination
from polyc.frontends.core.reports import Reporter
from polyc.frontends.core.values import Fault, Value
from polyc.frontends.tc.definition import Definition
from polyc.frontends.tc.scope import Let, Scope, check_not_builtin
from polyc.frontends.tc.statement import read_sides
from polyc.frontends.tc.syntax import Convert, Name, NamedValue, Number, SyntaxExpr, SyntaxMonoid, SyntaxStatement, Unary
from polyc.frontends.tc.targets import check_targets, define_unknown
from polyc.frontends.tc.types import TYPE_NAMES, convert, fits_type, is_narrower, spell_type
from polyc.frontends.tc.values import build_value
from polyc.frontends.tc.where import check_size
from polyc.frontends.tc.wording import narrowing
from polyc.ir.expr import Const, Index, Size, walk
from polyc.ir.program import Monoid
from polyc.ir.types import BOOL, F32, DType

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
    tensors = {name: Version(v, t, 0, shape=()) for name, v, t in zip(names, versions, dtypes * 2, strict=True)}
    scope = Scope(reporter, {}, tensors, frozenset())
    if "inf" not in names and all(p.name != "inf" for p in monoid.parts):
        scope.lets["inf"] = Let(Value(Const(math.inf, F32), F32), None, False, True)
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
                reporter.report(narrowing(let.value.dtype, dtype), span)
            results.append(convert(let.value, dtype))
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
def check_combination(d: Definition, s: SyntaxStatement, monoid: Monoid | None) -> None:
    """Add one statement for each component, and let the targets name their results; `monoid` None: it has errors."""
    errors_before = d.reporter.n_errors
    check_targets(d, s)
    _, values, assignment = read_sides(d, s)
    if monoid is not None:
        n = len(monoid.identity)
        for found, what, verb in ((len(s.targets), "result", "assigned"), (len(s.values), "value", "given")):
            if found != n:
                message = f"{monoid.name} has {n} component{'s' * (n > 1)}, and {found} {what}{'s' * (found != 1)} are {verb}"
                d.reporter.error(_CODE, message, s.op_span, f"give one {what} for each component")
        for value, c, syntax in zip(values or (), monoid.identity, s.values, strict=False):
            if is_narrower(c.dtype, value.dtype):
                d.reporter.report(narrowing(value.dtype, c.dtype), syntax.span)
    if monoid is not None and assignment is not None and d.reporter.n_errors == errors_before:
        try:
            add_combination(d, assignment, monoid)
            return
        except Fault as fault:
            d.reporter.report(fault, s.op_span)
    define_unknown(d, s)
