"""Syntax tree -> Program: names, versions, types and reductions of one definition.

All errors of a definition are collected; after an error the type of a tensor is unknown (None) and what depends on it
is not reported again.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.diagnostics import Diagnostic, Span, suggest_name
from polyc.frontends.tc.calls import ReadCallee, assigned_names, check_call, drop_unused, find_calls
from polyc.frontends.tc.combination import check_combination, read_monoids
from polyc.frontends.tc.definition import Annotation, Definition, add_tensor, define_version, make_scope, next_version
from polyc.frontends.tc.forward import find_forward_reads
from polyc.frontends.tc.scope import Reporter, Scope, TensorEntry, Typed, check_not_builtin
from polyc.frontends.tc.selection import check_selection
from polyc.frontends.tc.statement import (
    build_left,
    find_left_indices,
    find_reduction_indices,
    is_same_part,
    split_operator,
)
from polyc.frontends.tc.syntax import (
    Name,
    Number,
    Parameter,
    SyntaxCombination,
    SyntaxDef,
    SyntaxSelection,
    SyntaxStatement,
    TypeSyntax,
)
from polyc.frontends.tc.types import TYPE_NAMES, convert_expr, count_dimensions, is_narrower, promote_types, spell_type
from polyc.frontends.tc.values import build_value, check_arithmetic, is_literal, report_narrowing, warn_if_narrow
from polyc.frontends.tc.where import (
    build_where,
    check_size,
    define_lets,
    restricts_points,
)
from polyc.ir.expr import Const, Expr, Index, Read, Size, identity_of, reads, walk
from polyc.ir.program import Program, Reduction, Return, Statement, Tensor, Where, element_names
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
    forward = find_forward_reads(syntax)
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
        findings = _find_common(findings, d.reporter.diagnostics) if d.reporter.n_errors else d.reporter.diagnostics
        if not d.reporter.n_errors:
            break
    program = None if d.reporter.n_errors or d.is_incomplete else drop_unused(d, _assemble_program(d, syntax))
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
    d = Definition(Reporter(), operators=operators, read_callee=read_callee, starts=starts)
    check_not_builtin(d.reporter, syntax.name, syntax.name_span)
    _declare_parameters(d, syntax)
    _declare_returns(d, syntax)
    if not syntax.returns:
        message = f"{syntax.name} returns nothing"
        d.reporter.error("semantic-no-result", message, syntax.name_span, "name a result: def f(float(N) A) -> (B) { … }")
    d.forward = {name: TensorEntry(name, types[name], rank, None) for name, rank in forward.items()}
    d.names = frozenset([*d.parameters, *d.returns, *assigned_names(syntax)])
    monoids = read_monoids(d.reporter, syntax.monoids)
    for statement in syntax.statements:
        if isinstance(statement, SyntaxStatement):
            _check_statement(d, statement)
        elif isinstance(statement, SyntaxSelection):
            check_selection(d, statement, check_target)
        elif isinstance(statement, SyntaxCombination):
            check_combination(d, statement, monoids, check_target)
        else:
            check_call(d, statement, check_target)
    for result in syntax.returns:
        if result.name in d.returns and result.name not in d.n_versions:
            message = f"undefined variable {result.name} used here: it is returned but never assigned"
            help = suggest_name(result.name, [n for n in d.current if n not in d.returns])
            help = help or f"assign it: {result.name}(i) = …, or remove it from the results"
            d.reporter.error("semantic-undefined", message, result.name_span, help)
    return d


def _assemble_program(d: Definition, syntax: SyntaxDef) -> Program:
    returns = tuple(Return(name, d.current[name].version, d.initial.get(name)) for name in d.returns)
    last = {r.version for r in returns}
    return Program(
        name=syntax.name,
        sizes=tuple(d.sizes),
        tensors=tuple(replace(t, role="output") if t.name in last else t for t in d.tensors.values()),
        parameters=tuple(d.parameters),
        returns=returns,
        statements=tuple(d.statements),
        source=syntax.source,
    )


def _already_defined(d: Definition, name: str, what: str, span: Span) -> None:
    d.reporter.error("semantic-already-defined", f"{name} is already defined as {what}", span, "choose another name")


def _declare_parameters(d: Definition, syntax: SyntaxDef) -> None:
    for parameter in syntax.parameters:
        for dimension in parameter.type.dimensions if parameter.type else ():
            if isinstance(dimension, Name) and check_not_builtin(d.reporter, dimension.name, dimension.span):
                d.sizes.setdefault(dimension.name, dimension.span)
    for parameter in syntax.parameters:
        name, span = parameter.name, parameter.name_span
        check_not_builtin(d.reporter, name, span)
        if name in d.parameters or name in d.sizes:
            _already_defined(d, name, "a parameter" if name in d.parameters else "a size", span)
            continue
        d.parameters[name] = span
        if parameter.type is None:
            message = f"the parameter {name} has no type"
            d.reporter.error("semantic-parameter-type", message, span, f"write float(N) {name}, or float {name} for a scalar")
            d.current[name] = TensorEntry(name, None, 0, None)
            continue
        shape = _build_shape(d, parameter.type)
        dtype = TYPE_NAMES[parameter.type.name]
        d.current[name] = TensorEntry(name, dtype, len(shape), shape)
        d.tensors[name] = Tensor(name, dtype, len(shape), shape, "input", name, span)


def _build_shape(d: Definition, syntax: TypeSyntax) -> tuple[Expr, ...]:
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
            case Name(name=name):
                if name not in d.sizes and check_not_builtin(d.reporter, name, dimension.span):
                    help = suggest_name(name, d.sizes) or "a size must be a dimension of a parameter: it gives the value"
                    d.reporter.error("semantic-undefined", f"undefined variable {name} used here", dimension.span, help)
                shape.append(Size(name, dimension.span))
    return tuple(shape)


def _declare_returns(d: Definition, syntax: SyntaxDef) -> None:
    scope = Scope(d.reporter, d.sizes, {}, frozenset())
    for result in syntax.returns:
        name, span = result.name, result.name_span
        check_not_builtin(d.reporter, name, span)
        annotation = _read_annotation(d, scope, result)
        if name in d.parameters or name in d.sizes or name in d.returns:
            what = "a parameter" if name in d.parameters else "a size" if name in d.sizes else "a result"
            _already_defined(d, name, what, span)
        else:
            d.returns[name] = annotation


def _read_annotation(d: Definition, scope: Scope, result: Parameter) -> Annotation | None:
    if result.type is None:
        return None
    shape = _build_shape(d, result.type)
    return Annotation(TYPE_NAMES[result.type.name], len(shape), shape)


def check_target(d: Definition, name: str, span: Span, rank: int | None) -> bool:
    """Whether a name may be assigned; `rank` None where that is not known yet."""
    if not check_not_builtin(d.reporter, name, span):
        return False
    if name in d.parameters:
        message = f"TC inputs are immutable: {name} is a parameter"
        d.reporter.error("semantic-immutable-input", message, span, f"assign another name and return it, such as {name}_out")
        return False
    if name in d.sizes:
        _already_defined(d, name, "a size", span)
        return False
    annotation = d.returns.get(name)
    if annotation is not None and rank is not None and annotation.rank != rank:
        message = f"tensor defined with {rank} dimensions but declared as an output with {annotation.rank} dimensions"
        d.reporter.error("semantic-rank", message, span, "make the annotation and the left side agree")
    return True


def _check_statement(d: Definition, s: SyntaxStatement) -> None:
    reporter, errors_before = d.reporter, d.reporter.n_errors
    assignable = check_target(d, s.target, s.target_span, len(s.subscripts))
    scope = make_scope(d)
    left = find_left_indices(scope, s)
    scope.left = frozenset(left)
    define_lets(scope, s.where)
    subscripts = build_left(scope, s)
    value = build_value(scope, s.value)
    if value is not None and not check_size(reporter, value.expr, s.value):
        value = None
    others = None if value is None else find_reduction_indices(value.expr, left)
    known = None if others is None else frozenset([*left, *others])
    where: list[Where] = build_where(scope, s.where, known)
    op, starts = split_operator(s.op)
    if op is None and others:
        _report_missing_reduction(d, s, value, tuple(others))
    if not assignable:
        return
    if subscripts is None or value is None or others is None:
        define_version(d, s, _choose_type(d, scope, s, op, starts, value))
        return
    draft = Statement("", s.target, subscripts, (*left, *others), value.expr, None, tuple(where), s.span)
    joins = starts and _joins_version(d, s, draft)
    dtype = _choose_type(d, scope, s, op, starts, value, joins)
    reduction = None
    if op is not None and not starts:
        reduction = _continue_reduction(d, s, op, draft, dtype)
    elif op is not None and (others or restricts_points(where) or not draft.has_plain_left) and dtype is not None:
        reduction = Reduction(op, identity_of(op, dtype))
    version = d.current[s.target].version if joins else define_version(d, s, dtype)
    if reporter.n_errors > errors_before or dtype is None:
        return
    if not is_literal(s.value):
        d.typed.add(version)
    elif value.dtype != dtype:
        warn_if_narrow(scope, [s.value], dtype)
    converted = convert_expr(value.expr, value.dtype, dtype)
    d.statements.append(replace(draft, name=f"S{len(d.statements)}", target=version, value=converted, reduction=reduction))


def _joins_version(d: Definition, s: SyntaxStatement, draft: Statement) -> bool:
    """Whether an assignment to a part of a tensor belongs to the version that the statements above write."""
    previous = d.current.get(s.target)
    if previous is None or s.target in d.parameters:
        return False
    writers = [w for w in d.statements if w.target == previous.version]
    is_partial = all(w.writes_part for w in writers) and previous.version not in d.made
    recurs = is_partial and any(r.tensor == previous.version and r.subscripts != draft.subscripts for r in reads(draft.value))
    if previous.rank < 0:
        return True  # the result of a call that is reported already
    if not writers or not (draft.writes_part or recurs) or (len(writers) == 1 and is_same_part(writers[0], draft)):
        return False
    if previous.rank != len(draft.subscripts):
        message = f"expected {count_dimensions(previous.rank)} but found {count_dimensions(len(draft.subscripts))}"
        help = f"{s.target} has {count_dimensions(previous.rank)} above, and this assigns a part of it"
        d.reporter.error("semantic-rank", message, s.target_span, help)
        return False
    if previous.version in d.intervals:
        if previous.version in d.made:
            message = f"{s.target} is the result of a call, which has assigned all of it"
            help = f"make a new tensor of it, as in T(i) = i == 0 ? 1.0 : {s.target}(i)"
        else:
            message = f"{s.target} is given to a call above, and this assigns another part of it"
            help = f"assign all parts of {s.target} above the call"
        d.reporter.error("semantic-call-part", message, s.target_span, help)
        return False
    return True


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


def _report_missing_reduction(d: Definition, s: SyntaxStatement, value: Typed | None, names: tuple[str, ...]) -> None:
    assert value is not None
    first = next(node for node in walk(value.expr) if isinstance(node, Index) and node.name in names)
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
    d.reporter.error("semantic-missing-reduction", message, first.span or s.span, help)


def _choose_type(
    d: Definition, scope: Scope, s: SyntaxStatement, op: str | None, starts: bool, value: Typed | None, joins: bool = False
) -> DType | None:
    """Element type of the version that `s` defines: annotated, that of the version it continues, or the value's."""
    annotation, previous = d.returns.get(s.target), d.current.get(s.target)
    if annotation is not None:
        dtype = annotation.dtype
    elif previous is not None and (joins or (op is not None and not starts)):
        dtype = previous.dtype
    else:
        dtype = value.dtype if value is not None else None
        if is_literal(s.value) and dtype is not None:
            dtype = d.starts.get(next_version(d, s.target), dtype)
    if dtype is None or value is None:
        return dtype if annotation is not None else None
    if is_narrower(dtype, value.dtype):
        help = None
        if joins and annotation is None and previous is not None:
            there, here = spell_type(value.dtype), spell_type(dtype)
            help = f"{s.target} is {here} above: convert explicitly there, {there}(…), or here, {here}(…)"
            if previous.version not in d.typed:
                d.starts[previous.version] = promote_types(dtype, value.dtype)
        report_narrowing(scope, value.dtype, dtype, s.value.span, help)
    if op in ("add", "mul") and not check_arithmetic(scope, dtype, s.value.span):
        return None
    if op in ("max", "min") and dtype.is_complex:
        help = "reduce a part of them, or their size: max=! fabs(z(i))"
        d.reporter.error("type-complex", f"complex numbers have no order, so there is no {s.op}", s.value.span, help)
        return None
    if op in ("and", "or") and dtype != BOOL:
        message = f"{s.op} reduces booleans but found {spell_type(dtype)}"
        d.reporter.error("type-not-boolean", message, s.value.span, "compare with something, as in (x != 0)")
        return None
    return dtype


def _continue_reduction(d: Definition, s: SyntaxStatement, op: str, draft: Statement, dtype: DType | None) -> Reduction | None:
    """``op=`` without ``!``: start from the version before, or from what the caller's array holds."""
    name, previous = s.target, d.current.get(s.target)
    if previous is None and name not in d.returns:
        message = f"undefined variable {name} used here: {s.op} continues from a value that nothing gives it"
        d.reporter.error("semantic-undefined", message, s.target_span, f"write {s.op}! to set the start value")
        return None
    if previous is None:
        help = f"write {s.op}! to set the start value; as it stands the caller's array is read"
        message = f"{name} accumulates into an output that was not initialized; {s.op}! was probably meant"
        d.reporter.warn("semantic-accumulate", message, s.op_span, help)
        previous = add_tensor(d, f"{name}.in", s, dtype, "accumulated")
        d.initial[name] = previous.version
    if previous.rank < 0:
        return None
    if previous.rank != len(s.subscripts):
        message = f"expected {count_dimensions(previous.rank)} but found {count_dimensions(len(s.subscripts))}"
        help = f"{name} has {count_dimensions(previous.rank)} above; {s.op} continues from those values"
        d.reporter.error("semantic-rank", message, s.target_span, help)
        return None
    if dtype is None or previous.dtype is None:
        return None
    element = tuple(Index(n, e.span) for n, e in zip(_element_names(d, draft), draft.subscripts, strict=True))
    read = Read(previous.version, element, s.target_span)
    return Reduction(op, convert_expr(read, previous.dtype, dtype))


def _element_names(d: Definition, draft: Statement) -> tuple[str, ...]:
    return element_names(next_version(d, draft.target), draft.subscripts)
