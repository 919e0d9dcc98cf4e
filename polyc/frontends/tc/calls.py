"""Calls of other definitions of the text: ``h = linear(X, W)`` and ``(Q, K) = project(X, W)``."""

from __future__ import annotations

from polyc.diagnostics import suggest_name
from polyc.frontends.core.builder import CallResult, Version
from polyc.frontends.core.calls import Argument, add_scalar, call, copy_tensor, find_parameter
from polyc.frontends.core.values import Fault, Reported
from polyc.frontends.tc.definition import Definition
from polyc.frontends.tc.statement import check_targets
from polyc.frontends.tc.syntax import Apply, LetSyntax, Name, SyntaxDef, SyntaxExpr, SyntaxStatement, SyntaxTarget
from polyc.frontends.tc.types import TYPE_NAMES, is_narrower, spell_type
from polyc.frontends.tc.values import build_value, known
from polyc.ir.expr import Index, walk
from polyc.ir.program import Program, Tensor, call_parameters
from polyc.records import replace


def assigned_names(syntax: SyntaxDef) -> list[str]:
    """Names of all tensors that statements and calls assign."""
    return [t.name for s in syntax.statements for t in s.targets]


def find_calls(syntax: SyntaxDef, operators: frozenset[str]) -> SyntaxDef:
    """`syntax` with ``h = f(X)`` told from the statement ``s = f(i)``: f is an operator, and no tensor of the definition."""
    own = {*assigned_names(syntax), *(p.name for p in (*syntax.parameters, *syntax.returns))}

    def find(s: SyntaxStatement) -> SyntaxStatement:
        if s.subscripts or s.op != "=" or not isinstance(s.value, Apply) or s.value.name not in operators - own:
            return s
        is_let = any(isinstance(c, LetSyntax) and c.name == s.value.name for c in s.where)
        return s if is_let else replace(s, is_call=True)

    return replace(syntax, statements=tuple(find(s) for s in syntax.statements))


def check_call(d: Definition, s: SyntaxStatement) -> None:
    """Read the body of the callee in place, and let the targets name what it returns."""
    results: tuple[Tensor | None, ...] = (None,) * len(s.targets)
    with d.reporter.catching(s.span):
        found = _find_results(d, s)
        if len(found) != len(s.targets):
            assert isinstance(s.value, Apply)
            n = len(found)
            message = f"{s.value.name} returns {n} tensor{'s' if n != 1 else ''}, and {len(s.targets)} are assigned"
            help = "give one name for each result, as in (Q, K) = project(X, W); _ for one that is not wanted"
            raise Fault("semantic-call", message, help)
        results = found
    for target, result, is_good in zip(s.targets, results, check_targets(d, s, results), strict=True):
        if is_good:
            _assign(d, target, result, s)


def _find_results(d: Definition, s: SyntaxStatement) -> tuple[Tensor, ...]:
    """The results of the call as versions of this definition."""
    value = s.value
    if not isinstance(value, Apply) or value.is_operator or value.name in TYPE_NAMES:
        help = "write (Q, K) = project(X, W), or assign the tensors one by one"
        raise Fault("semantic-call", "only a call of another definition has several results", help, value.span)
    if value.name in d.names:
        message = f"{value.name} is a tensor here, and no operator that can be called"
        raise Fault("semantic-call", message, "rename one of them", value.name_span)
    if value.name not in d.operators:
        help = suggest_name(value.name, sorted(d.operators)) or f"definitions are: {', '.join(sorted(d.operators))}"
        raise Fault("semantic-undefined", f"there is no definition {value.name} in this text", help, value.name_span)
    if s.where:
        message = "a call computes whole tensors, and has no where clause"
        raise Fault("semantic-call", message, f"put the clause into {value.name}", s.where[0].span)
    return _call(d, value)


def _call(d: Definition, apply: Apply) -> tuple[Tensor, ...]:
    assert d.read_callee is not None
    try:
        callee = d.read_callee(apply.name, apply.name_span)
        if callee is None:
            d.is_incomplete = True
            raise Reported
        parameters = call_parameters(callee)
        if len(apply.args) != len(parameters):
            n, given = len(parameters), len(apply.args)
            message = f"{apply.name} takes {n} argument{'s' * (n != 1)}, and {given} {'are' if given != 1 else 'is'} given"
            raise Fault("semantic-call", message, f"its parameters are: {', '.join(parameters) or 'none'}")
        arguments: dict[str, Argument] = {}
        for name, syntax in zip(parameters, apply.args, strict=True):
            with d.reporter.catching(syntax.span):
                arguments[name] = _read_argument(d, callee, find_parameter(callee, name), syntax)
        if len(arguments) < len(parameters):
            raise Reported
        return call(d, callee, arguments, apply.span)
    except Fault as fault:
        fault.span = fault.span or apply.span
        raise


def _read_argument(d: Definition, callee: Program, parameter: Tensor, syntax: SyntaxExpr) -> Argument:
    """The version that an argument names; scalars may be any expression over scalars and sizes."""
    if isinstance(syntax, Name) and syntax.name in d.current:
        version = d.current[syntax.name]
        if version.dtype is None:
            raise Reported
        return Argument(version.name, syntax.name, syntax.span)
    if isinstance(syntax, Name) and (syntax.name in d.names or (parameter.rank and syntax.name not in d.sizes)):
        raise d.scope().undefined(syntax.name, syntax.span)
    if isinstance(syntax, Apply) and syntax.name in d.operators - d.names:
        results = _call(d, syntax)
        if len(results) != 1:
            message = f"{syntax.name} returns {len(results)} tensors, and an argument is one"
            raise Fault("semantic-call", message, "assign them first: (Q, K) = project(X, W)")
        return Argument(results[0].name, f"the result of {syntax.name}", syntax.span)
    if parameter.rank:
        message = f"the argument {parameter.base} of {callee.name} must be the name of a tensor"
        raise Fault("semantic-call", message, "assign the expression to a tensor first, T(i) = …, and give its name")
    scope = d.scope()
    value = known(build_value(scope, syntax))
    index = next((n for n in walk(value.expr) if isinstance(n, Index)), None)
    if index is not None:
        raise scope.undefined(index.name, index.span or syntax.span)
    if is_narrower(parameter.dtype, value.dtype):
        wanted, found = spell_type(parameter.dtype), spell_type(value.dtype)
        message = f"{parameter.base} of {callee.name} is {wanted}, and the argument is {found}"
        raise Fault("type-call", message, f"convert explicitly: {wanted}(…)")
    name = f"{callee.name}.{d.n_calls + 1}.{parameter.name}"
    d.made[name] = callee.name
    return add_scalar(d, name, parameter.base, parameter.dtype, value, syntax.span)


def _assign(d: Definition, target: SyntaxTarget, result: Tensor | None, s: SyntaxStatement) -> None:
    """Let `target` name the result; one that is declared by the caller is copied, so that the declaration is checked."""
    name, version = target.name, d.next_version(target.name)
    if result is None:
        d.rename(name, Version(version, None, None))
        return
    assert isinstance(s.value, Apply)
    declared, wanted = d.declared_shape(name, result.rank), d.declared_type(name)
    shape = tuple(i.extent for i in d.intervals[result.name])
    if declared is not None and wanted is not None and result.name not in d.compressed:
        if wanted != result.dtype:
            spelled = spell_type(result.dtype)
            message = f"{name} is declared as {spell_type(wanted)}, and this result of {s.value.name} is {spelled}"
            help = "cast it in a statement of its own, or leave the type of the result out"
            d.reporter.error("type-call", message, target.span, help)
        if shape == declared:
            d.tensors[result.name] = replace(d.tensors[result.name], shape=shape)
        else:
            d.add_tensor(version, result.dtype, result.rank, name, target.span, declared)
            d.add(copy_tensor(result.name, d.tensors[version], target.span, {*d.sizes, *d.names}))
            d.made[version] = s.value.name
            result, shape = d.tensors[version], declared
    d.results.setdefault(result.name, CallResult(name, s.value.name, target.span))
    d.rename(name, Version(result.name, result.dtype, result.rank, shape=shape))
