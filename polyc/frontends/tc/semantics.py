"""Syntax tree -> Program: names, versions, types and reductions of one definition.

All errors of a definition are collected; after an error the type of a tensor is unknown (None) and what depends on it
is not reported again.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyc.diagnostics import Diagnostic, Span, suggest_name
from polyc.frontends.core.builder import Target, Version, count_dimensions, reduced_indices
from polyc.frontends.core.calls import drop_unused_calls
from polyc.frontends.core.forward import find_forward_reads
from polyc.frontends.core.reductions import SELECTIONS, add_selection
from polyc.frontends.core.reports import Reporter
from polyc.frontends.core.values import Fault, Value
from polyc.frontends.tc.calls import assigned_names, check_call, find_calls
from polyc.frontends.tc.combination import check_combination, read_monoids
from polyc.frontends.tc.definition import Annotation, Definition, ReadCallee
from polyc.frontends.tc.forward import describe_assignment
from polyc.frontends.tc.scope import check_not_builtin
from polyc.frontends.tc.statement import MONOIDS, check_targets, define_unknown, read_sides
from polyc.frontends.tc.syntax import Name, Number, SyntaxDef, SyntaxStatement, TypeSyntax
from polyc.frontends.tc.types import TYPE_NAMES, convert, is_narrower, promote_types, spell_type
from polyc.frontends.tc.values import is_literal, require_number, warn_if_narrow
from polyc.frontends.tc.wording import NOTATION, narrowing
from polyc.ir.expr import Const, Expr, Index, Size, walk
from polyc.ir.program import Monoid, Program, Return, Tensor
from polyc.ir.types import BOOL, I64, U8, DType

MAX_READINGS = 8
"""Rounds in which the element types of a recurrence settle; promotion has fewer steps."""


def check_definition(
    syntax: SyntaxDef, operators: frozenset[str] = frozenset(), read_callee: ReadCallee | None = None
) -> tuple[Program | None, list[Diagnostic]]:
    """The Program of `syntax`, or None where the findings hold an error; findings in the order of the text.

    `operators` are the names of all definitions of the text, `read_callee` gives their Programs.

    A tensor that a recurrence reads before its first assignment has the type that this assignment then gives: read the
    definition with the narrowest type for it, and again with what came out, until nothing changes.  A literal that starts a
    tensor takes the type of the other parts in the same way.
    """
    syntax = find_calls(syntax, operators)
    whole = {t.name for s in syntax.statements if not _is_plain(s) for t in s.targets}
    events = [describe_assignment(s) for s in syntax.statements if _is_plain(s)]
    parameters = frozenset(p.name for p in syntax.parameters)
    forward = {name: rank for name, rank in find_forward_reads(events, parameters).items() if name not in whole}
    findings: list[Diagnostic] = []
    for guess in (U8, BOOL) if forward else (U8,):
        types = dict.fromkeys(forward, guess)
        starts: dict[str, DType] = {}
        for _ in range(MAX_READINGS):
            d = _read_definition(syntax, forward, types, operators, read_callee, dict(starts))
            found = {name: d.tensors[name].dtype if name in d.tensors else types[name] for name in forward}
            if found == types and d.starts == starts:
                break
            types, starts = found, d.starts
        if not d.reporter.n_errors:
            break
        findings = _find_common(findings, d.reporter.diagnostics)
    program = None
    if not d.reporter.n_errors:
        if not d.is_incomplete:
            returns = tuple(Return(name, d.current[name].name, d.initial.get(name)) for name in d.returns)
            program = drop_unused_calls(d, d.build(syntax.name, d.parameters, returns, syntax.source))
        findings = d.reporter.diagnostics
    return program, sorted(findings, key=lambda f: f.span.start if f.span else 0)


def _find_common(before: list[Diagnostic], now: list[Diagnostic]) -> list[Diagnostic]:
    """Of the findings under two guessed types those that do not come from the guess; all of `now` where every error does."""
    places = {(f.code, f.message, f.span) for f in before}
    common = [f for f in now if (f.code, f.message, f.span) in places]
    return common if any(f.severity == "error" for f in common) else now


def _read_definition(
    syntax: SyntaxDef,
    forward: dict[str, int],
    types: dict[str, DType],
    operators: frozenset[str],
    read_callee: ReadCallee | None,
    starts: dict[str, DType],
) -> Definition:
    d = Definition(Reporter(), NOTATION, operators=operators, read_callee=read_callee, starts=starts)
    check_not_builtin(d.reporter, syntax.name, syntax.name_span)
    _declare_parameters(d, syntax)
    _declare_returns(d, syntax)
    if not syntax.returns:
        message = f"{syntax.name} returns nothing"
        d.reporter.error("semantic-no-result", message, syntax.name_span, "name a result: def f(float(N) A) -> (B) { … }")
    d.forward = {name: Version(name, types[name], rank) for name, rank in forward.items()}
    d.names = frozenset([*d.parameters, *d.returns, *assigned_names(syntax)])
    monoids = read_monoids(d.reporter, syntax.monoids)
    for statement in syntax.statements:
        _check_statement(d, statement, monoids)
    for result in syntax.returns:
        if result.name in d.returns and result.name not in d.n_versions:
            message = f"undefined variable {result.name} used here: it is returned but never assigned"
            help = suggest_name(result.name, [n for n in d.current if n not in d.returns])
            help = help or f"assign it: {result.name}(i) = …, or remove it from the results"
            d.reporter.error("semantic-undefined", message, result.name_span, help)
        elif d.result_formats.get(result.name):
            from polyc.frontends.core.compressed import check_stored_result

            check_stored_result(d, result.name, result.name_span)
    return d


def _is_plain(s: SyntaxStatement) -> bool:
    """Whether a statement assigns elements, or reduces with a monoid of the language."""
    return not s.is_call and (s.op == "=" or s.reduction in MONOIDS)


def _already_defined(d: Definition, name: str, what: str, span: Span, help: str = "choose another name") -> None:
    d.reporter.error("semantic-already-defined", f"{name} is already defined as {what}", span, help)


def _is_number(type: TypeSyntax | None) -> bool:
    """Whether a parameter is an integer, which may be an extent of others."""
    return type is not None and not type.dimensions and TYPE_NAMES[type.name].is_integer


def _declare_parameters(d: Definition, syntax: SyntaxDef) -> None:
    for parameter in syntax.parameters:
        for dimension in parameter.type.dimensions if parameter.type else ():
            if not isinstance(dimension, Name) or dimension.name.endswith("*"):
                continue
            if check_not_builtin(d.reporter, dimension.name, dimension.span):
                d.sizes.setdefault(dimension.name, dimension.span)
    for parameter in syntax.parameters:
        name, span = parameter.name, parameter.name_span
        check_not_builtin(d.reporter, name, span)
        if name in d.parameters or (name in d.sizes and not _is_number(parameter.type)):
            if name in d.parameters:
                _already_defined(d, name, "a parameter", span)
            else:
                _already_defined(d, name, "a size", span, f"choose another name; what a call gives as a size is int64 {name}")
            continue
        d.parameters[name] = span
        if parameter.type is None:
            message = f"the parameter {name} has no type"
            help = f"write float(N) {name}, or float {name} for a scalar"
            sizes = "B, L*, D" if parameter.format == "ragged" else "M, N"
            help = f"write {parameter.format} float({sizes}) {name}" if parameter.format else help
            d.reporter.error("semantic-parameter-type", message, span, help)
            d.current[name] = Version(name, None, 2 if parameter.format else 0, is_parameter=True)
            continue
        shape = _build_shape(d, parameter.type, parameter.format)
        tensor = Tensor(name, TYPE_NAMES[parameter.type.name], len(shape), shape, "input", name, span)
        d.add_parameter(tensor, format=parameter.format)


def _build_shape(d: Definition, syntax: TypeSyntax, format: str = "") -> tuple[Expr, ...]:
    """Declared extents; a size that no parameter has is reported (only results can have one)."""
    shape: list[Expr] = []
    for dimension in syntax.dimensions:
        match dimension:
            case Number(text=text) if dimension.is_float or int(text) >= 1 << 63:
                help = "dimensions are size names or integers"
                message = f"a dimension must be an integer but found {text}"
                d.reporter.error("semantic-dimension", message, dimension.span, help)
                shape.append(Const(1, I64, dimension.span))
            case Number(text=text):
                shape.append(Const(int(text), I64, dimension.span))
            case Name(name=name) if name.endswith("*"):
                if format != "ragged":
                    message = f"{name} is a length that varies, and nothing here is ragged"
                    help = f"write ragged {syntax.name}(…, {name}, …), or leave out the star for one length"
                    d.reporter.error("semantic-ragged", message, dimension.span, help)
                shape.append(Size(name, dimension.span))
            case Name(name=name):
                if name not in d.sizes and name not in d.integers and check_not_builtin(d.reporter, name, dimension.span):
                    near = suggest_name(name, [*d.sizes, *d.integers])
                    help = near or "a size is a dimension of a parameter, which gives the value, or a parameter itself: int64 n"
                    d.reporter.error("semantic-undefined", f"undefined variable {name} used here", dimension.span, help)
                shape.append(Size(name, dimension.span))
    return tuple(shape)


def _declare_returns(d: Definition, syntax: SyntaxDef) -> None:
    for result in syntax.returns:
        name, span = result.name, result.name_span
        check_not_builtin(d.reporter, name, span)
        if result.format:
            from polyc.frontends.core.compressed import declare_result

            declare_result(d, name, result.format, span)
        elif result.type is not None:
            d.result_formats[name] = ""
        type = result.type
        annotation = None if type is None else Annotation(TYPE_NAMES[type.name], _build_shape(d, type, result.format))
        if name in d.parameters or name in d.sizes or name in d.returns:
            what = "a parameter" if name in d.parameters else "a size" if name in d.sizes else "a result"
            _already_defined(d, name, what, span)
        else:
            d.returns[name] = annotation


def _check_statement(d: Definition, s: SyntaxStatement, monoids: Mapping[str, Monoid | None]) -> None:
    if s.is_call:
        check_call(d, s)
    elif s.op == "until":
        from polyc.frontends.tc.until import check_until  # which few texts need

        check_until(d, s)
    elif _is_plain(s):
        _check_assignment(d, s)
    elif s.reduction in SELECTIONS:
        _check_selection(d, s)
    else:
        check_combination(d, s, monoids[s.reduction])


def _check_selection(d: Definition, s: SyntaxStatement) -> None:
    """Add the statements that `polyc.frontends.core.reductions` describes, and let the targets name their results."""
    errors_before = d.reporter.n_errors
    _, _, assignment = read_sides(d, s)
    check_targets(d, s)
    if assignment is not None and d.reporter.n_errors == errors_before:
        with d.reporter.catching(s.value.span):
            add_selection(d, assignment, s.reduction)
            return
    define_unknown(d, s)


def _check_assignment(d: Definition, s: SyntaxStatement) -> None:
    reporter, errors_before = d.reporter, d.reporter.n_errors
    (is_assignable,) = check_targets(d, s)
    scope, values, assignment = read_sides(d, s)
    value = None if values is None else values[0]
    op, starts = MONOIDS.get(s.reduction), s.op == "=" or s.op.endswith("!")
    others = () if value is None else reduced_indices([value], scope.left) if assignment is None else assignment.loose
    if op is None and value is not None and others:
        _report_missing_reduction(d, s, value, others)
    if not is_assignable:
        return
    joins, dtype, init = False, None, None
    target = draft = None
    with reporter.catching(s.span):
        if assignment is not None and value is not None:
            target, draft = assignment.targets[0], assignment.draft(value.expr)
            joins = starts and d.joins_version(target, draft)
        dtype = _choose_type(d, s, op, joins or not starts, value)
        if not starts and target is not None:
            init = _continue_reduction(d, s, target, dtype)
    if draft is None or target is None or value is None or dtype is None or reporter.n_errors > errors_before:
        if not joins:
            d.define(s.target, len(s.subscripts), s.targets[0].span, dtype)
        return
    version = d.add_assignment(draft, target, Value(convert(value, dtype), dtype), op, init, joins)
    if not is_literal(s.value):
        d.typed.add(version)
    elif value.dtype != dtype:
        warn_if_narrow(scope, [s.value], dtype)


_INFINITY, _NAN, _PI = "1.0 / 0.0 for infinity", "0.0 / 0.0 for NaN", "3.14159265358979"
_TRUE, _FALSE = (f"bool({n}), or the comparison itself" for n in (1, 0))
_NUMBERS = {
    **dict.fromkeys(("inf", "Inf", "INF", "infinity", "Infinity", "INFINITY", "HUGE_VAL"), _INFINITY),
    **dict.fromkeys(("nan", "NaN", "NAN"), _NAN),
    **dict.fromkeys(("pi", "PI", "M_PI"), _PI),
    **dict.fromkeys(("true", "True", "TRUE"), _TRUE),
    **dict.fromkeys(("false", "False", "FALSE"), _FALSE),
    "M_E": "2.71828182845905",
    "FLT_MAX": "3.4028234e38",
    "FLT_EPSILON": "1.1920929e-7",
    "DBL_MAX": "double(1.7976931348623157e308)",
    "DBL_EPSILON": "double(2.220446049250313e-16)",
    "INT_MAX": "2147483647",
    "INT_MIN": "-2147483647 - 1",
}
"""Constants of other languages, and how they are written here."""


def _report_missing_reduction(d: Definition, s: SyntaxStatement, value: Value, names: tuple[str, ...]) -> None:
    first = next((node for node in walk(value.expr) if isinstance(node, Index) and node.name in names), None)
    plural = "variable" if len(names) == 1 else "variables"
    message = f"{s.target} includes reduction {plural} {', '.join(names)} but does not specify a reduction"
    # An index k beside a size K is what everybody writes; only a longer name can be a slip.
    close = suggest_name(names[0], [*d.sizes, *d.current]) if len(names[0]) > 1 else None
    help = f"put {names[0]} on the left side, or reduce with +=! (or *=! min=! max=!)" + (f"; or {close}" if close else "")
    if names[0] in _NUMBERS:
        help = f"{names[0]} is an index here: write {_NUMBERS[names[0]]}"
    elif names[0][0].isupper() and not close:
        sizes = f"the sizes are {', '.join(d.sizes)}" if d.sizes else "there are none"
        help += f"; if a size is meant: sizes come from parameters, and {sizes}"
    d.reporter.error("semantic-missing-reduction", message, (first and first.span) or s.span, help)


def _choose_type(d: Definition, s: SyntaxStatement, op: str | None, continues: bool, value: Value | None) -> DType | None:
    """Element type of the version that `s` defines: declared, that of the version it `continues`, or the value's.

    Raises `Fault` where the operator has no meaning for it."""
    declared, previous = d.declared_type(s.target), d.current.get(s.target)
    dtype = declared
    if declared is None and continues and previous is not None:
        dtype = previous.dtype
    elif declared is None and value is not None:
        dtype = d.starts.get(d.next_version(s.target), value.dtype) if is_literal(s.value) else value.dtype
    if dtype is None or value is None:
        return declared
    place = s.value.span
    if is_narrower(dtype, value.dtype):
        help = None
        if continues and (op is None or s.op.endswith("!")) and declared is None and previous is not None:
            there, here = spell_type(value.dtype), spell_type(dtype)
            help = f"{s.target} is {here} above: convert explicitly there, {there}(…), or here, {here}(…)"
            if previous.name not in d.typed:
                d.starts[previous.name] = promote_types(dtype, value.dtype)
        d.reporter.report(narrowing(value.dtype, dtype, place, help), place)
    if op in ("add", "mul"):
        require_number(dtype, place)
    if op in ("max", "min") and dtype.is_complex:
        help = "reduce a part of them, or their size: max=! fabs(z(i))"
        raise Fault("type-complex", f"complex numbers have no order, so there is no {s.op}", help, place)
    if op in ("and", "or") and dtype != BOOL:
        message = f"{s.op} reduces booleans but found {spell_type(dtype)}"
        raise Fault("type-not-boolean", message, "compare with something, as in (x != 0)", place)
    return dtype


def _continue_reduction(d: Definition, s: SyntaxStatement, target: Target, dtype: DType | None) -> Expr | None:
    """``op=`` without ``!``: start from the version before, or from what the caller's array holds."""
    name, previous = s.target, d.current.get(s.target)
    if previous is None and name not in d.returns:
        message = f"undefined variable {name} used here: {s.op} continues from a value that nothing gives it"
        raise Fault("semantic-undefined", message, f"write {s.op}! to set the start value", target.span)
    if previous is None:
        help = f"write {s.op}! to set the start value; as it stands the caller's array is read"
        message = f"{name} accumulates into an output that was not initialized; {s.op}! was probably meant"
        d.reporter.warn("semantic-accumulate", message, s.op_span, help)
        version = d.initial[name] = f"{name}.in"
        if dtype is not None:
            d.add_tensor(version, dtype, target.rank, name, target.span, d.declared_shape(name, target.rank), "accumulated")
        previous = Version(version, dtype, target.rank)
    if previous.rank is not None and previous.rank != target.rank:
        message = f"expected {count_dimensions(previous.rank)} but found {count_dimensions(target.rank)}"
        help = f"{name} has {count_dimensions(previous.rank)} above; {s.op} continues from those values"
        raise Fault("semantic-rank", message, help, target.span)
    if dtype is None or previous.rank is None or previous.dtype is None:
        return None
    return convert(d.read_previous(target, previous), dtype)
