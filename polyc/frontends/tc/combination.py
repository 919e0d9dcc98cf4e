"""``(re(i), im(i)) product=! (A(i, j), B(i, j))``: reductions by a monoid that the text defines."""

from __future__ import annotations

import math

from polyc.frontends.core.builder import Version
from polyc.frontends.core.reductions import add_combination
from polyc.frontends.core.reports import Reporter
from polyc.frontends.core.values import Fault, Value
from polyc.frontends.tc.definition import Definition
from polyc.frontends.tc.scope import Let, Scope, check_not_builtin
from polyc.frontends.tc.statement import check_targets, define_unknown, read_sides
from polyc.frontends.tc.syntax import Apply, LetSyntax, Name, Number, SyntaxExpr, SyntaxMonoid, SyntaxStatement
from polyc.frontends.tc.types import TYPE_NAMES, convert, fits_type, is_narrower, spell_type
from polyc.frontends.tc.where import build_sized
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
        made = None
        with reporter.catching(monoid.name_span):
            made = _read_monoid(reporter, monoid)
        found[monoid.name] = made if reporter.n_errors == errors_before else None
    return found


def _read_monoid(reporter: Reporter, monoid: SyntaxMonoid) -> Monoid:
    dtypes = _component_types(monoid)
    names = [p.name for p in monoid.parameters]
    versions = [f"{side}.{k}" for side in ("left", "right") for k in range(len(dtypes))]
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
            reporter.error(_CODE, message, component.name_span, f"assign it: {component.name} = …")
        elif let.value is not None:
            span = next(p.value.span for p in monoid.parts if p.name == component.name)
            if is_narrower(dtype, let.value.dtype):
                reporter.report(narrowing(let.value.dtype, dtype), span)
            results.append(convert(let.value, dtype))
    identity = tuple(_identity(c, dtype, monoid) for c, dtype in zip(monoid.identity, dtypes, strict=True))
    return Monoid(monoid.name, identity, tuple(results))


def _component_types(monoid: SyntaxMonoid) -> list[DType]:
    """Element types of the components, from the parameters: all of the left value, then all of the right one."""
    n, given = len(monoid.identity), len(monoid.parameters)
    if given != 2 * n:
        message = f"{monoid.name} has {n} result{'s' * (n > 1)}, so it combines {2 * n} values, and has {given}"
        help = f"the parameters are those of the left value, then those of the right one, as in {_EXAMPLE}"
        raise Fault(_CODE, message, help, monoid.name_span)
    dtypes: dict[str, DType] = {}
    for parameter in monoid.parameters:
        name, span = parameter.name, parameter.name_span
        if parameter.type is None or parameter.type.dimensions or parameter.format:
            message = f"{monoid.name} combines numbers, and {name} is none"
            raise Fault(_CODE, message, f"declare it as a number: float {name}", span)
        if name in dtypes:
            raise Fault("semantic-already-defined", f"{name} is already defined as a parameter", "choose another name", span)
        dtypes[name] = dtype = TYPE_NAMES[parameter.type.name]
        beside = list(dtypes.values())[len(dtypes) - 1 - n] if len(dtypes) > n else dtype
        if dtype != beside:
            message = f"{name} is {spell_type(dtype)}, and what it is combined with is {spell_type(beside)}"
            raise Fault("type-monoid", message, "give both the same type", span)
        if dtype.is_complex or dtype.is_storage:
            help = "combine real and imaginary parts, as two components" if dtype.is_complex else "combine them as float"
            raise Fault("type-monoid", f"{monoid.name} cannot combine {spell_type(dtype)}", help, span)
    return list(dtypes.values())[:n]


def _assign(scope: Scope, part: LetSyntax, parameters: list[str], monoid: SyntaxMonoid) -> None:
    """``name = value`` in the body: a name for an expression, as in a where clause."""
    reporter, name = scope.reporter, part.name
    check_not_builtin(reporter, name, part.name_span)
    if name in parameters or name in scope.lets:
        what = "a parameter" if name in parameters else "a name"
        message = f"{name} is already defined as {what} of {monoid.name}"
        reporter.error("semantic-already-defined", message, part.name_span, "choose another name")
        return
    value = build_sized(scope, part.value)
    for node in walk(value.expr) if value is not None else ():
        if isinstance(node, (Index, Size)):
            message = f"{node.name} has no value in {monoid.name}"
            help = f"{monoid.name} sees its parameters ({', '.join(parameters)}) and the names assigned above"
            reporter.error(_CODE, message, node.span or part.value.span, help)
            value = None
            break
    scope.lets[name] = Let(value, None, False, True)


def _identity(component: LetSyntax, dtype: DType, monoid: SyntaxMonoid) -> Const:
    number = _number(component.value)
    span = component.value.span
    if number is None:
        raise Fault(
            _CODE, f"the identity of {monoid.name} is no number", "write a literal, or inf or -inf: -> (c = -inf)", span
        )
    is_whole = math.isfinite(number) and number == int(number)
    if not dtype.is_float and not (is_whole and (number in (0, 1) if dtype == BOOL else fits_type(int(number), dtype))):
        message = f"the identity of {monoid.name} does not fit {spell_type(dtype)}"
        raise Fault("type-monoid", message, f"give a number of {spell_type(dtype)}, or other parameters", span)
    return Const(float(number) if dtype.is_float else bool(number) if dtype == BOOL else int(number), dtype, span)


def _number(syntax: SyntaxExpr) -> float | int | None:
    match syntax:
        case Number():
            return float(syntax.text) if syntax.is_float else int(syntax.text)
        case Name(name="inf"):
            return math.inf
        case Apply("-", (operand,)):
            inner = _number(operand)
            return None if inner is None else -inner
        case Apply(type_name, (value,)) if type_name in TYPE_NAMES:
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
        with d.reporter.catching(s.op_span):
            add_combination(d, assignment, monoid)
            return
    define_unknown(d, s)
