"""Calls of other einsum-style functions: ``H = linear(X, W, b)`` reads the body of `linear` in place, under new names.

The statements become part of one Program, so that both functions are scheduled as a whole.  Parameters stand for the tensors
given, sizes of annotations for their extents, keyword-only parameters for numbers; everything else gets a name of its own.
"""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Callable, Sequence

from polyc.frontends.python.expressions import count_dimensions, read_expression
from polyc.frontends.python.forward import find_forward_reads
from polyc.frontends.python.functions import KNOWN
from polyc.frontends.python.names import Index as IndexObject
from polyc.frontends.python.scope import Scope, Version
from polyc.frontends.python.signature import Number, PythonSignature, read_parameters
from polyc.frontends.python.source import FunctionText, load_function
from polyc.frontends.python.values import Fault
from polyc.ir.expr import Size

ReadBody = Callable[[Sequence[ast.stmt]], None]


def find_callee(node: ast.Assign, scope: Scope) -> object | None:
    """The function that the right side of an assignment calls; None where it is an expression over elements."""
    if not isinstance(node.value, ast.Call) or len(node.targets) != 1:
        return None
    targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else [node.targets[0]]
    if not all(isinstance(t, ast.Name) for t in targets):
        return None
    match node.value.func:
        case ast.Name(name) if name == scope.text.definition.name:
            found = scope.text.lookup(name) or scope.text.function or _ITSELF
        case ast.Name(name) if name not in KNOWN:
            found = scope.text.lookup(name)
        case ast.Attribute(ast.Name(module), name) if isinstance(scope.text.lookup(module), types.ModuleType):
            found = getattr(scope.text.lookup(module), name, None)
        case _:
            return None
    if found is _ITSELF:
        return found
    is_function = isinstance(found, types.FunctionType) and not found.__module__.startswith(("polyc.", "numpy"))
    return found if is_function or (hasattr(found, "__wrapped__") and hasattr(found, "formals")) else None


_ITSELF = object()
"""A function that is still being defined."""


def _recursion(name: str) -> Fault:
    return Fault("semantic-recursion", f"{name} calls itself", "a recurrence over elements is written T[t] = f(T[t - 1])")


def inline_call(node: ast.Assign, callee: object, scope: Scope, read_body: ReadBody) -> None:
    """Read the body of `callee` for the arguments of the call, and let the targets name what it returns.

    Raises `Fault` where the arguments do not fit; errors in the body are reported where they stand."""
    assert isinstance(node.value, ast.Call)
    if callee is _ITSELF or callee is scope.text.function:
        raise _recursion(scope.text.definition.name)
    text = load_function(callee)  # type: ignore[arg-type]
    name = text.definition.name
    if any(other.function is text.function for other in (*scope.callers, scope.text) if other.function is not None):
        raise _recursion(name)
    constants, given = _sort_arguments(node.value, text, scope)
    errors_before = len(scope.errors)
    signature = read_parameters(text, constants, scope.errors.append)
    if len(scope.errors) > errors_before:
        return
    arguments = _match_parameters(signature, given)
    extents = _check_arguments(signature, arguments, scope)
    scope.n_calls += 1
    renamer = _Renamer(text, f"{name}.{scope.n_calls}", arguments, extents, signature, scope)
    body = [renamer.visit(copy.deepcopy(s)) for s in text.definition.body]
    results = _split_return(body, name)
    targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else [node.targets[0]]
    if len(results) != len(targets):
        message = f"{name} returns {len(results)} tensor{'s' if len(results) != 1 else ''}, and {len(targets)} are assigned"
        raise Fault("semantic-call", message, "give one name for each result")
    scope.assigned_names |= renamer.assigned
    scope.forward = {**scope.forward, **find_forward_reads(body, frozenset())}
    caller, scope.text = scope.text, text
    scope.callers.append(caller)
    try:
        read_body(body)
    finally:
        scope.text = scope.callers.pop()
    for target, result in zip(targets, results, strict=True):
        assert isinstance(target, ast.Name)
        version = scope.tensors.get(result)
        if target.id in scope.sizes or (target.id in scope.tensors and scope.tensors[target.id].is_parameter):
            raise Fault("semantic-immutable-input", f"{target.id} cannot be assigned", "give the result a name of its own")
        scope.tensors[target.id] = version or Version(target.id, None, None)


def _sort_arguments(call: ast.Call, text: FunctionText, scope: Scope) -> tuple[dict[str, object], dict[str, str]]:
    """Numbers for keyword-only parameters, and names of tensors by parameter."""
    spec = text.definition.args
    positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    keyword_only = {a.arg for a in spec.kwonlyargs}
    constants: dict[str, object] = {}
    given: dict[str, str] = {}
    if len(call.args) > len(positional):
        message = f"{text.definition.name} takes {len(positional)} tensors, and {len(call.args)} are given"
        raise Fault("semantic-call", message, f"its parameters are: {', '.join(positional)}")
    pairs = [*zip(positional, call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
    for name, node in pairs:
        if name in keyword_only:
            value = read_expression(node, scope)
            if value.constant is None:
                raise Fault(
                    "semantic-call", f"{name} takes a number that is known when the function is read", "give a constant"
                )
            constants[name] = value.constant
        elif name not in positional or name in given:
            message = f"{text.definition.name} has no parameter {name}" if name not in positional else f"{name} is given twice"
            raise Fault("semantic-call", message, f"its parameters are: {', '.join([*positional, *keyword_only])}")
        elif not isinstance(node, ast.Name) or node.id not in scope.tensors:
            help = "assign the expression to a tensor first, and give its name"
            raise Fault("semantic-call", f"the argument {name} must be the name of a tensor", help)
        else:
            given[name] = node.id
    return constants, given


def _match_parameters(signature: PythonSignature, given: dict[str, str]) -> dict[str, str]:
    missing = [p.name for p in signature.parameters if p.name not in given]
    if missing:
        raise Fault("semantic-call", f"{signature.name} needs a tensor for {', '.join(missing)}", "give all parameters")
    return given


def _check_arguments(signature: PythonSignature, arguments: dict[str, str], scope: Scope) -> dict[str, tuple[str, int]]:
    """Where each size of the annotations is found: a tensor of the caller and a dimension."""
    extents: dict[str, tuple[str, int]] = {}
    for parameter in signature.parameters:
        name, annotation = arguments[parameter.name], parameter.annotation
        version = scope.tensors[name]
        if annotation is None or version.dtype is None:
            continue
        if version.rank != len(annotation.shape):
            message = f"{parameter.name} of {signature.name} has {count_dimensions(len(annotation.shape))}"
            raise Fault("semantic-rank", message, f"{name} has {count_dimensions(version.rank or 0)}")
        if version.dtype != annotation.dtype and not version.is_weak:
            message = f"{parameter.name} of {signature.name} is {annotation.dtype}, and {name} is {version.dtype}"
            raise Fault("type-call", message, f"cast it first: T[...] = {annotation.dtype}({name}[...])")
        for d, extent in enumerate(annotation.shape):
            if isinstance(extent, Size) and extent.name not in extents:
                extents[extent.name] = (name, d)
            elif isinstance(extent, Size):
                _check_equal(signature, extent.name, extents[extent.name], (name, d), scope)
    return extents


def _check_equal(signature: PythonSignature, size: str, a: tuple[str, int], b: tuple[str, int], scope: Scope) -> None:
    shapes = [(scope.tensors[name].shape, d) for name, d in (a, b)]
    (first, m), (second, n) = shapes
    if first is not None and second is not None and first[m] != second[n]:
        message = f"{size} of {signature.name} is dimension {m} of {a[0]} and {n} of {b[0]}, declared differently"
        raise Fault("semantic-call", message, "declare both with one size")


def _split_return(body: list[ast.stmt], name: str) -> list[str]:
    last = body.pop() if body and isinstance(body[-1], ast.Return) else None
    value = last.value if isinstance(last, ast.Return) else None
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    if not all(isinstance(p, ast.Name) for p in parts):
        raise Fault("semantic-call", f"{name} does not end with a return of tensors", "end it with 'return Y'")
    return [p.id for p in parts if isinstance(p, ast.Name)]


class _Renamer(ast.NodeTransformer):
    """Names of the callee as the caller's scope knows them (`ast` offers no other way to rewrite a tree in place)."""

    def __init__(
        self,
        text: FunctionText,
        prefix: str,
        arguments: dict[str, str],
        extents: dict[str, tuple[str, int]],
        signature: PythonSignature,
        scope: Scope,
    ) -> None:
        self.text, self.prefix, self.arguments, self.extents = text, prefix, arguments, extents
        self.constants: dict[str, Number | None] = {c.name: c.value for c in signature.constants}
        self.taken = {*scope.tensors, *scope.assigned_names, *scope.sizes, *scope.constants}
        stored = {n.id for n in ast.walk(text.definition) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        stored |= {
            n.value.id
            for n in ast.walk(text.definition)
            if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store) and isinstance(n.value, ast.Name)
        }
        self.local = {name: f"{prefix}.{name}" for name in stored}
        self.assigned = frozenset(self.local.values())

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = [self.visit(a) for a in node.args]
        node.keywords = [self.visit(k) for k in node.keywords]
        return node  # the function keeps its name

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id not in (*self.arguments, *self.local):
            return node  # np.pi
        node.value = self.visit(node.value)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        name = node.id
        if name in self.local:
            return self._named(self.local[name], node)
        if name in self.arguments:
            return self._named(self.arguments[name], node)
        if name in self.extents:
            tensor, d = self.extents[name]
            shape = ast.Attribute(self._named(tensor, node), "shape", ast.Load())
            extent = ast.Subscript(ast.copy_location(shape, node), ast.copy_location(ast.Constant(d), node), ast.Load())
            return ast.copy_location(extent, node)
        if name in self.constants:
            return ast.copy_location(ast.Constant(self.constants[name]), node)
        if name in self.taken and not isinstance(self.text.lookup(name), IndexObject):
            return self._named(f"{self.prefix}.{name}", node)  # an index that is called as something of the caller
        return node

    def _named(self, name: str, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(name, node.ctx), node)
