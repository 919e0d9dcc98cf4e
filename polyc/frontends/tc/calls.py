"""Calls of other definitions of the text: ``h = linear(X, W)`` and ``(Q, K) = project(X, W)``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from polyc.diagnostics import PolycError, Span, suggest_name
from polyc.frontends.calls import (
    Argument,
    Caller,
    CallFault,
    CallResult,
    Incomplete,
    copy_tensor,
    drop_unused_calls,
    inline_program,
)
from polyc.frontends.tc.definition import Definition, ReadCallee, make_scope, next_version
from polyc.frontends.tc.scope import TensorEntry
from polyc.frontends.tc.syntax import (
    AnyStatement,
    Apply,
    LetSyntax,
    Name,
    SyntaxCall,
    SyntaxDef,
    SyntaxExpr,
    SyntaxStatement,
)
from polyc.frontends.tc.types import convert_expr, is_narrower, spell_type
from polyc.frontends.tc.values import build_value
from polyc.ir.expr import Index, walk
from polyc.ir.program import Program, Statement, Tensor

__all__ = ["ReadCallee", "assigned_names", "check_call", "drop_unused", "find_calls"]

CheckTarget = Callable[[Definition, str, Span, int | None], bool]

UNKNOWN_RANK = -1
"""Of the results of a call that is reported: reads of them stay silent."""


def assigned_names(syntax: SyntaxDef) -> list[str]:
    """Names of all tensors that statements and calls assign."""
    names: list[str] = []
    for s in syntax.statements:
        names += [s.target] if isinstance(s, SyntaxStatement) else [t.name for t in s.targets]
    return names


def find_calls(syntax: SyntaxDef, operators: frozenset[str]) -> SyntaxDef:
    """`syntax` with ``h = f(X)`` told from the statement ``s = f(i)``: f is an operator, and no tensor of the definition."""
    own = {*assigned_names(syntax), *(p.name for p in (*syntax.parameters, *syntax.returns))}
    callable_names = operators - own

    def find(s: AnyStatement) -> AnyStatement:
        if not isinstance(s, SyntaxStatement) or not isinstance(s.value, Apply) or s.value.name not in callable_names:
            return s
        lets = {c.name for c in s.where if isinstance(c, LetSyntax)}
        if s.subscripts or s.op != "=" or s.value.name in lets:
            return s
        return SyntaxCall((Name(s.target, s.target_span),), s.value, s.where, s.span)

    return replace(syntax, statements=tuple(find(s) for s in syntax.statements))


def check_call(d: Definition, call: SyntaxCall, check_target: CheckTarget) -> None:
    """Read the body of the callee in place, and let the targets name what it returns."""
    results = _inline(d, call)
    if results is not None and len(results) != len(call.targets):
        assert isinstance(call.value, Apply)
        n = len(results)
        message = f"{call.value.name} returns {n} tensor{'s' if n != 1 else ''}, and {len(call.targets)} are assigned"
        help = "give one name for each result, as in (Q, K) = project(X, W); _ for one that is not wanted"
        d.reporter.error("semantic-call", message, call.span, help)
        results = None
    seen: set[str] = set()
    for position, target in enumerate(call.targets):
        result = None if results is None else results[position]
        if target.name in seen:
            message = f"{target.name} is assigned twice by this call"
            d.reporter.error("semantic-already-defined", message, target.span, "give each result a name of its own")
        seen.add(target.name)
        if not check_target(d, target.name, target.span, None if result is None else result.rank):
            continue
        _assign(d, target, result, call)


def drop_unused(d: Definition, program: Program) -> Program:
    """The program without what only unused results of calls need; those are warned of."""
    program, warnings = drop_unused_calls(program, d.made, d.results)
    for warning in warnings:
        d.reporter.add(warning)
    return program


def _inline(d: Definition, call: SyntaxCall) -> tuple[Tensor, ...] | None:
    """The results of the call as versions of this definition; None after a report."""
    reporter = d.reporter
    if not isinstance(call.value, Apply) or call.value.name not in d.operators - d.names:
        _report_no_call(d, call.value)
        return None
    if call.where:
        message = "a call computes whole tensors, and has no where clause"
        reporter.error("semantic-call", message, call.where[0].span, f"put the clause into {call.value.name}")
        return None
    return _inline_apply(d, call.value)


def _inline_apply(d: Definition, apply: Apply) -> tuple[Tensor, ...] | None:
    assert d.read_callee is not None
    span = apply.span
    try:
        callee = d.read_callee(apply.name)
        if callee is None:
            d.is_incomplete = True
            return None
        if len(apply.args) != len(callee.parameters):
            n, given = len(callee.parameters), len(apply.args)
            message = f"{apply.name} takes {n} argument{'s' * (n != 1)}, and {given} {'are' if given != 1 else 'is'} given"
            names = ", ".join(callee.parameters) or "none"
            raise CallFault("semantic-call", message, f"its parameters are: {names}")
        arguments: dict[str, Argument] = {}
        for name, syntax in zip(callee.parameters, apply.args, strict=True):
            argument = _read_argument(d, callee, callee.tensor(name), syntax)
            if argument is not None:
                arguments[name] = argument
        if len(arguments) < len(callee.parameters):
            return None
        d.n_calls += 1
        caller = Caller(tuple(d.sizes), d.tensors, d.statements, d.intervals, spell_type, d.callees)
        inlined = inline_program(callee, arguments, caller, d.n_calls, span)
    except CallFault as fault:
        place = span
        if fault.argument is not None and callee is not None:
            place = apply.args[callee.parameters.index(fault.argument)].span
        elif fault.code == "semantic-recursion":
            place = apply.name_span
        d.reporter.error(fault.code, fault.message, place, fault.help)
        return None
    except Incomplete:
        return None
    except PolycError as error:  # ranges that cannot be inferred, here or in the callee
        for diagnostic in error.diagnostics:
            d.reporter.add(diagnostic)
        return None
    d.made |= {t.name: callee.name for t in inlined.tensors}
    d.tensors |= {t.name: t for t in inlined.tensors}
    for s in inlined.statements:
        d.statements.append(replace(s, name=f"S{len(d.statements)}"))
    return inlined.results


def _read_argument(d: Definition, callee: Program, parameter: Tensor, syntax: SyntaxExpr) -> Argument | None:
    """The version that an argument names; scalars may be any expression over scalars and sizes."""
    scope = make_scope(d)
    if isinstance(syntax, Name) and syntax.name in d.current:
        entry = d.current[syntax.name]
        return None if entry.dtype is None else Argument(entry.version, syntax.name, syntax.span)
    if isinstance(syntax, Name) and syntax.name in d.names:
        scope.report_undefined(syntax.name, syntax.span)
        return None
    if isinstance(syntax, Apply) and syntax.name in scope.operators:
        results = _inline_apply(d, syntax)
        if results is not None and len(results) != 1:
            message = f"{syntax.name} returns {len(results)} tensors, and an argument is one"
            help = "assign them first: (Q, K) = project(X, W)"
            d.reporter.error("semantic-call", message, syntax.span, help)
            return None
        return None if results is None else Argument(results[0].name, f"the result of {syntax.name}", syntax.span)
    if parameter.rank and isinstance(syntax, Name) and syntax.name not in d.sizes:
        scope.report_undefined(syntax.name, syntax.span)
        return None
    if parameter.rank:
        message = f"the argument {parameter.base} of {callee.name} must be the name of a tensor"
        help = "assign the expression to a tensor first, T(i) = …, and give its name"
        d.reporter.error("semantic-call", message, syntax.span, help)
        return None
    return _make_scalar(d, callee, parameter, syntax)


def _make_scalar(d: Definition, callee: Program, parameter: Tensor, syntax: SyntaxExpr) -> Argument | None:
    scope = make_scope(d)
    value = build_value(scope, syntax)
    if value is None:
        return None
    index = next((n for n in walk(value.expr) if isinstance(n, Index)), None)
    if index is not None:
        scope.report_undefined(index.name, index.span or syntax.span)
        return None
    if is_narrower(parameter.dtype, value.dtype):
        wanted, found = spell_type(parameter.dtype), spell_type(value.dtype)
        message = f"{parameter.base} of {callee.name} is {wanted}, and the argument is {found}"
        d.reporter.error("type-call", message, syntax.span, f"convert explicitly: {wanted}(…)")
        return None
    name = f"{callee.name}.{d.n_calls + 1}.{parameter.name}"
    expr = convert_expr(value.expr, value.dtype, parameter.dtype)
    d.tensors[name] = Tensor(name, parameter.dtype, 0, (), "temporary", parameter.base, syntax.span)
    d.made[name] = callee.name
    d.statements.append(Statement(f"S{len(d.statements)}", name, (), (), expr, None, (), syntax.span))
    return Argument(name, "the argument", syntax.span)


def _report_no_call(d: Definition, value: SyntaxExpr) -> None:
    """Names in parentheses on the left, and no call of a definition on the right."""
    if not isinstance(value, Apply):
        message = "only a call of another definition has several results"
        help = "write (Q, K) = project(X, W), or assign the tensors one by one"
        d.reporter.error("semantic-call", message, value.span, help)
        return
    if value.name in d.names:
        message = f"{value.name} is a tensor here, and no operator that can be called"
        d.reporter.error("semantic-call", message, value.name_span, "rename one of them")
        return
    close = suggest_name(value.name, d.operators)
    known = ", ".join(sorted(d.operators))
    message = f"there is no definition {value.name} in this text"
    d.reporter.error("semantic-undefined", message, value.name_span, close or f"definitions are: {known}")


def _assign(d: Definition, target: Name, result: Tensor | None, call: SyntaxCall) -> None:
    """Let `target` name the result; one that is declared by the caller is copied, so that the declaration is checked."""
    name = target.name
    version = next_version(d, name)
    d.n_versions[name] = d.n_versions.get(name, 0) + 1
    if result is None:
        d.current[name] = TensorEntry(version, None, UNKNOWN_RANK, None)
        return
    assert isinstance(call.value, Apply)
    annotation = d.returns.get(name)
    shape = tuple(i.extent for i in d.intervals[result.name])
    if annotation is not None and annotation.dtype is not None and annotation.rank == result.rank:
        if annotation.dtype != result.dtype:
            wanted, found = spell_type(annotation.dtype), spell_type(result.dtype)
            message = f"{name} is declared as {wanted}, and this result of {call.value.name} is {found}"
            help = "cast it in a statement of its own, or leave the type of the result out"
            d.reporter.error("type-call", message, target.span, help)
        if shape == annotation.shape:
            d.tensors[result.name] = replace(d.tensors[result.name], shape=shape)
        else:
            copied = Tensor(version, result.dtype, result.rank, annotation.shape, "temporary", name, target.span)
            d.tensors[version] = copied
            copy = copy_tensor(result, copied, target.span, {*d.sizes, *d.names})
            d.statements.append(replace(copy, name=f"S{len(d.statements)}"))
            result, shape = copied, annotation.shape
            d.made[version] = call.value.name
    d.results.setdefault(result.name, CallResult(name, call.value.name, target.span))
    d.current[name] = TensorEntry(result.name, result.dtype, result.rank, shape)
