"""Calls of other operators: ``H = linear(X, W, b)`` reads the body of `linear` in place, under new names.

The callee is a function of this kind, decorated or not, or an `Operator` made from text.  It is read into a Program of its own,
which `polyc.frontends.core.calls` splices in, so that both are scheduled as a whole.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Mapping
from typing import Any

from polyc.diagnostics import Diagnostic, PolycError
from polyc.frontends.core.builder import CallResult, Version
from polyc.frontends.core.calls import Argument, add_scalar, call, check_depth, describe_recursion, find_parameter
from polyc.frontends.core.values import Fault, Reported
from polyc.frontends.python.callees import ITSELF, find_callee
from polyc.frontends.python.expressions import read_expression
from polyc.frontends.python.scope import Scope
from polyc.frontends.python.signature import read_defaults
from polyc.frontends.python.source import FunctionText, load_function
from polyc.frontends.python.values import POISON
from polyc.ir.expr import Index, walk
from polyc.ir.program import Program, Tensor, call_parameters
from polyc.ir.types import DType
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The program of a function, warnings to show, and which of its results are numbers that adapt to what they meet."""

    program: Program
    warnings: tuple[Diagnostic, ...] = ()
    weak_results: tuple[bool, ...] = ()


ReadProgram = Callable[
    [FunctionText, Mapping[str, tuple[DType, int]], Mapping[str, object], frozenset[str], tuple[FunctionText, ...]], ReadResult
]
"""Reads a called function for element types, constants and the names of weak arguments, with the functions that call it."""


def read_call(node: ast.Assign, targets: list[ast.Name], callee: object, scope: Scope, read: ReadProgram) -> None:
    """Add the statements of `callee`, and let the targets name what it returns.

    Raises `Fault` where something does not fit; errors in the body are reported where they stand."""
    assert isinstance(node.value, ast.Call)
    results, weak, name = _inline(node.value, callee, scope, read)
    if len(results) != len(targets):
        message = f"{name} returns {len(results)} tensor{'s' if len(results) != 1 else ''}, and {len(targets)} are assigned"
        raise Fault("semantic-call", message, "give one name for each result; _ for one that is not wanted")
    if len({t.id for t in targets}) < len(targets):
        raise Fault("semantic-call", "two results of this call have the same name", "give each result a name of its own")
    for target, result, is_weak in zip(targets, results, weak, strict=True):
        if target.id in scope.sizes or (target.id in scope.current and scope.current[target.id].is_parameter):
            raise Fault("semantic-immutable-input", f"{target.id} cannot be assigned", "give the result a name of its own")
        span = scope.text.span(target)
        shape = tuple(i.extent for i in scope.intervals[result.name])
        scope.rename(target.id, Version(result.name, result.dtype, result.rank, is_weak, shape, False, span))
        scope.results[result.name] = CallResult(target.id, name, span)


@dataclass(frozen=True, slots=True)
class _Callee:
    """A function to be read, or an operator with a Program of its own."""

    name: str
    text: FunctionText | None
    program: Program | None
    positional: tuple[str, ...]
    annotated: frozenset[str]
    constants: tuple[str, ...]
    defaults: Mapping[str, object]


def _inline(
    node: ast.Call, callee: object, scope: Scope, read: ReadProgram
) -> tuple[tuple[Tensor, ...], tuple[bool, ...], str]:
    """The results of a call as versions of this program, which of them are weak, and the name of the callee."""
    if callee is ITSELF:
        raise _recursion([*scope.callers, scope.text], scope.text.definition.name)
    described = _describe_callee(callee, scope)
    name = described.name
    constants, nodes = _sort_arguments(node, described, scope)
    numbers = [p for p, n in nodes.items() if p in described.annotated and _is_number(n, scope)]
    given = {p: _read_argument(p, n, scope, read) for p, n in nodes.items() if p not in numbers}
    if described.program is None:
        assert described.text is not None
        tensors = {p: scope.tensors[a.version] for p, a in given.items() if p not in described.annotated}
        weak = frozenset(p for p in tensors if given[p].is_weak)
        opened = {p: (t.dtype, t.rank) for p, t in tensors.items()}
        found = _read_callee(described.text, opened, constants, weak, scope, read)
        program, weak_results = found.program, found.weak_results
    else:
        program, weak_results = described.program, (False,) * len(described.program.returns)
    declared = {p: find_parameter(program, p) for p in call_parameters(program)}
    by_base = {t.base: t for t in declared.values()}
    for p in numbers:
        given[p] = _make_scalar(name, by_base[p], nodes[p], scope)
    arguments = {p: given[t.base] for p, t in declared.items()}
    return call(scope, program, arguments, scope.text.span(node)), weak_results, name


def _describe_callee(callee: Any, scope: Scope) -> _Callee:
    if not isinstance(callee, types.FunctionType):
        if callee.bound_names:
            message = f"{callee.name} has inputs that are bound to arrays"
            raise Fault("semantic-call", message, "call the operator without bound inputs, and bind those of the caller")
        if callee.has_rules or not isinstance(getattr(callee, "__wrapped__", None), types.FunctionType):
            return _describe_program(callee)
    text = load_function(callee)
    chain = [*scope.callers, scope.text]
    if any(other.function is text.function for other in chain if other.function is not None):
        raise _recursion(chain, text.definition.name, text.function)
    check_depth(len(chain))
    spec = text.definition.args
    positional = tuple(a.arg for a in (*spec.posonlyargs, *spec.args))
    annotated = frozenset(a.arg for a in (*spec.posonlyargs, *spec.args) if a.annotation is not None)
    constants = tuple(a.arg for a in spec.kwonlyargs)
    defaults = {name: value for name, (value, _) in read_defaults(text).items()}
    return _Callee(text.definition.name, text, None, positional, annotated, constants, defaults)


def _describe_program(operator: Any) -> _Callee:
    try:
        program = operator.program
    except PolycError:
        message = f"the program of {operator.name} is not known before its arguments are"
        raise Fault("semantic-call", message, "annotate its parameters, or write it as a function") from None
    names = tuple(find_parameter(program, p).base for p in call_parameters(program))
    defaults = {f.name: f.default for f in operator.formals if f.default is not None}
    return _Callee(operator.name, None, program, names, frozenset(names), (), defaults)


def _recursion(chain: list[FunctionText], name: str, function: object = None) -> Fault:
    first = next((n for n, t in enumerate(chain) if function is not None and t.function is function), len(chain) - 1)
    return describe_recursion([*(t.definition.name for t in chain[first:]), name], "functions", "T[t] = f(T[t - 1])")


def _sort_arguments(call: ast.Call, callee: _Callee, scope: Scope) -> tuple[dict[str, object], dict[str, ast.expr]]:
    """Numbers for keyword-only parameters, and the arguments of the others by parameter."""
    positional, keyword_only = callee.positional, callee.constants
    constants: dict[str, object] = {}
    given: dict[str, ast.expr] = {}
    if len(call.args) > len(positional):
        message = f"{callee.name} takes {len(positional)} tensors, and {len(call.args)} are given"
        raise Fault("semantic-call", message, f"its parameters are: {', '.join(positional)}")
    pairs = [*zip(positional, call.args, strict=False), *((k.arg or "**", k.value) for k in call.keywords)]
    for name, node in pairs:
        if name in keyword_only:
            value = read_expression(node, scope)
            if value is POISON:
                raise Reported
            if value.constant is None:
                message = f"{name} takes a number that is known when the function is read"
                raise Fault("semantic-call", message, "give a constant")
            constants[name] = value.constant
        elif name not in positional or name in given:
            message = f"{callee.name} has no parameter {name}" if name not in positional else f"{name} is given twice"
            raise Fault("semantic-call", message, f"its parameters are: {', '.join([*positional, *keyword_only])}")
        else:
            given[name] = node
    for name, number in callee.defaults.items():
        if name not in given and isinstance(number, (bool, int, float, complex)):
            given[name] = ast.copy_location(ast.Constant(number), call)
    missing = [name for name in positional if name not in given]
    if missing:
        raise Fault("semantic-call", f"{callee.name} needs a tensor for {', '.join(missing)}", "give all parameters")
    return constants, given


def _is_number(node: ast.expr, scope: Scope) -> bool:
    """Whether an argument is an expression over numbers and extents, and not a tensor."""
    if isinstance(node, ast.Name):
        return node.id not in scope.current and node.id in (*scope.sizes, *scope.constants)
    return find_callee(node, scope) is None


def _read_argument(parameter: str, node: ast.expr, scope: Scope, read: ReadProgram) -> Argument:
    span = scope.text.span(node)
    callee = find_callee(node, scope)
    if callee is not None:
        assert isinstance(node, ast.Call)
        results, weak, name = _inline(node, callee, scope, read)
        if len(results) != 1:
            message = f"{name} returns {len(results)} tensors, and an argument is one"
            raise Fault("semantic-call", message, "assign them to names first")
        return Argument(results[0].name, f"the result of {name}", span, weak[0])
    if _is_scalar(node, scope):
        value = read_expression(node, scope)
        if value is POISON:
            raise Reported
        scope.n_calls += 1
        return add_scalar(scope, f"{parameter}.{scope.n_calls}", parameter, value.dtype, value, span)
    if not isinstance(node, ast.Name) or node.id not in scope.current:
        help = "assign the expression to a tensor first, and give its name"
        raise Fault("semantic-call", f"the argument {parameter} must be the name of a tensor", help)
    version = scope.current[node.id]
    if version.dtype is None:
        raise Reported
    return Argument(version.name, node.id, span, version.is_weak)


def _make_scalar(name: str, parameter: Tensor, node: ast.expr, scope: Scope) -> Argument:
    """A scalar tensor for an argument that is a number or an extent."""
    if parameter.rank:
        help = "assign the expression to a tensor first, and give its name"
        raise Fault("semantic-call", f"the argument {parameter.base} must be the name of a tensor", help)
    value = read_expression(node, scope)
    if value is POISON or any(isinstance(n, Index) for n in walk(value.expr)):
        raise Reported
    if not value.weak or (value.dtype.is_float and not parameter.dtype.is_float):
        message = f"{parameter.base} of {name} is {parameter.dtype}, and the argument is {value.dtype}"
        if value.dtype != parameter.dtype:
            raise Fault("type-call", message, f"cast it: {parameter.dtype}(...)")
    version = f"{name}.{scope.n_calls + 1}.{parameter.name}"
    scope.made[version] = name
    return add_scalar(scope, version, parameter.base, parameter.dtype, value, scope.text.span(node))


def _is_scalar(node: ast.expr, scope: Scope) -> bool:
    """Whether an argument is a number, or an expression made of numbers, sizes and scalars."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    scalars = {name for name, version in scope.current.items() if version.rank == 0 and version.dtype is not None}
    is_tensor = isinstance(node, ast.Name) and node.id in scope.current
    has_call = any(isinstance(n, ast.Call) for n in ast.walk(node))
    return not is_tensor and not has_call and names <= {*scalars, *scope.sizes, *scope.constants}


def _read_callee(
    text: FunctionText,
    opened: Mapping[str, tuple[DType, int]],
    constants: Mapping[str, object],
    weak: frozenset[str],
    scope: Scope,
    read: ReadProgram,
) -> ReadResult:
    """The Program of a called function for these types; read once for all calls alike."""
    numbers = tuple((n, type(v).__name__, repr(v)) for n, v in sorted(constants.items()))
    key = (id(text.function), tuple(opened.items()), weak, numbers)
    if key not in scope.callee_programs:
        try:
            found = read(text, opened, constants, weak, (*scope.callers, scope.text))
        except PolycError as error:
            scope.reporter.add(*error.diagnostics)
            raise Reported from None
        scope.reporter.add(*found.warnings)
        scope.callee_programs[key] = found
    known: ReadResult = scope.callee_programs[key]
    return known
