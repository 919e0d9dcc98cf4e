"""Calls inside of expressions: functions of elements, reductions, borders, and what is no function here."""

from __future__ import annotations

import ast
import types

from polyc.frontends.core.padding import describe_unknown_border
from polyc.frontends.core.values import Fault, Value
from polyc.frontends.python.attributes import extent_value, tensor_with_shape
from polyc.frontends.python.callees import find_function
from polyc.frontends.python.comprehensions import read_comprehension
from polyc.frontends.python.element_functions import read_element_function
from polyc.frontends.python.expressions import ALLOWED, read_expression
from polyc.frontends.python.functions import CAST_NAMES, INSTEAD, KNOWN, REDUCERS, apply_function, cast
from polyc.frontends.python.names import UserMonoid
from polyc.frontends.python.reductions import read_reduction, refuse_loop
from polyc.frontends.python.scope import Scope
from polyc.frontends.python.syntax import call_name, find_comprehension, is_reduction, unturn
from polyc.frontends.python.values import POISON, check_size, common_type, convert, make_literal
from polyc.ir.expr import PAD_MODES, Pad, Read, identity_of


def read_element_call(node: ast.Call, scope: Scope, depth: int) -> Value:
    """The value of a call inside of an expression."""
    found = call_name(node.func)
    if found is None:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "astype" and len(node.args) == 1 and not node.keywords:
            return _convert_element(node.func.value, node.args[0], node, scope, depth)
        if isinstance(node.func, ast.Attribute):
            help = _instead_of_method(node.func.attr, ast.unparse(node.func.value))
            raise Fault("semantic-function", f"elements have no method {node.func.attr}", help)
        raise Fault("semantic-function", "only functions with a name can be called", ALLOWED)
    module, name = found
    if (function := _find_function(name, node, scope)) is not None:
        return _read_function(node, function, scope, depth)
    if isinstance(scope.text.lookup(name), UserMonoid):
        raise Fault("semantic-monoid", f"{name} reduces, and stands alone on the right side", f"assign it: s[i] = {name}(...)")
    if module in scope.current or module in scope.assigned_names or module in scope.values:
        version = scope.current.get(module or "")
        element = f"{module}[{', '.join('ijklmnpq'[: (version.rank if version is not None else 1) or 1])}]"
        raise Fault("semantic-function", f"tensors have no method {name}", _instead_of_method(name, element))
    if module is None and name in scope.current:
        subscripts = ", ".join("ijklmnpq"[: scope.current[name].rank or 1])
        raise Fault(
            "semantic-function", f"{name} is a tensor, and is not called", f"subscripts stand in brackets: {name}[{subscripts}]"
        )
    if name == "pad":
        return _read_pad(node, scope, depth)
    if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
        if name in INSTEAD:
            apply_function(module, name, (), scope.text.span(node))
        return _refuse_keywords(node, name, scope)
    if name == "len" and len(node.args) == 1 and (tensor := unturn(node.args[0])) is not None:
        version = tensor_with_shape(tensor[0], scope, scope.text.span(node))
        if version is not None and not version.shape:
            raise Fault("semantic-rank", f"{tensor[0]} has no dimension", "len is the first extent of a tensor")
        return POISON if version is None or not version.shape else extent_value(version.shape[-1 if tensor[1] else 0])
    if name == "float" and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
        text = node.args[0].value
        if isinstance(text, str):
            try:
                return make_literal(float(text), scope.text.span(node))
            except ValueError:
                raise Fault("type-literal", f"{text!r} is no number", "write float('inf') or float('nan')") from None
    _check_not_below(module, name, scope)
    if name not in KNOWN and any(isinstance(a, ast.Name) and a.id in scope.current for a in node.args):
        apply_function(
            module, name, (), scope.text.span(node)
        )  # tensors as they stand were meant for an operator: tell its name
    if name in REDUCERS and (inner := find_comprehension(node)) is not None:
        return read_comprehension(node, inner, name, scope, depth)
    refuse_loop(node, name)
    if is_reduction(node):
        if scope.outer_names is None:
            message = f"{name} of one operand is a reduction, which cannot stand here"
            raise Fault("unsupported-nested-reduction", message, f"assign it to a name of its own first: t[i] = {name}(...)")
        return read_reduction(node, name, scope, depth)
    args = tuple(read_expression(a, scope, depth) for a in node.args)
    return apply_function(module, name, args, scope.text.span(node))


def _check_not_below(module: str | None, name: str, scope: Scope) -> None:
    """Raise `Fault` for a function that the file defines behind the operator."""
    if module is None and name not in KNOWN and scope.text.is_below(name):
        message = f"{name} is defined below {scope.text.definition.name}, which is read before it is there"
        raise Fault("semantic-function", message, f"move the definition of {name} above the operator")


def _read_pad(node: ast.Call, scope: Scope, depth: int) -> Value:
    """``pad(X[i - 1], 0)``, or with the name of a border: ``pad(X[i - 1], "clamp")``, ``pad(X[i - 1], mode="clamp")``."""
    given = [*node.args[1:], *(k.value for k in node.keywords if k.arg == "mode")]
    word = given[0].value if len(given) == 1 and isinstance(given[0], ast.Constant) and node.args else None
    if not isinstance(word, str) and (node.keywords or any(isinstance(a, ast.Starred) for a in node.args)):
        return _refuse_keywords(node, "pad", scope)
    scope.is_padded = True
    args = [read_expression(a, scope, depth) for a in (node.args[:1] if isinstance(word, str) else node.args)]
    scope.is_padded = False
    mode = next((m for m in PAD_MODES if m == word), None)
    if isinstance(word, str) and mode is None:
        raise Fault("semantic-pad", *describe_unknown_border(word))
    if mode is None and len(args) != 2:
        raise Fault("semantic-arity", f"pad takes 2 arguments, not {len(args)}", "write pad(X[i - 1], 0)")
    if any(a is POISON for a in args):
        return POISON
    read, span = args[0], scope.text.span(node)
    if not isinstance(read.expr, Read):
        help = "write pad(X[i - 1], 0)" if mode is None else 'write pad(X[i - 1], "clamp")'
        raise Fault("semantic-pad", "the first argument of pad must be an element of a tensor", help)
    filling = args[1] if mode is None else Value(identity_of("add", read.dtype), read.dtype)
    if common_type((read, filling))[0] != read.dtype:
        message = f"the padding is {filling.dtype}, but the tensor holds {read.dtype}"
        raise Fault("type-pad", message, f"cast the padding: pad(X[i], {read.dtype}(...))")
    filling = filling if mode is not None else convert(filling, read.dtype)
    n_nodes = 1 + read.n_nodes + filling.n_nodes
    check_size(n_nodes)
    return Value(Pad(read.expr, filling.expr, span, mode or "value"), read.dtype, read.weak, n_nodes).made_of(read, filling)


def _refuse_keywords(node: ast.Call, name: str, scope: Scope) -> Value:
    place = node.keywords[0].value if node.keywords else node.args[0]
    help = "give the operands by position; reductions run over the indices that are absent on the left"
    scope.report("semantic-function", f"{name} takes positional operands only", place, help)
    return POISON


def _convert_element(element: ast.expr, wanted: ast.expr, node: ast.Call, scope: Scope, depth: int) -> Value:
    """``x[i].astype(np.float32)``; the type by its name, also in a text."""
    match wanted:
        case ast.Constant(str() as name) | ast.Name(name) | ast.Attribute(_, name) if name in CAST_NAMES:
            value = read_expression(element, scope, depth)
            return value if value is POISON else cast(value, CAST_NAMES[name], scope.text.span(node))
    raise Fault("semantic-function", "astype takes the name of an element type here", "write x[i].astype(np.float32)")


def _instead_of_method(name: str, element: str) -> str:
    if name in REDUCERS:
        return f"write the reduction of its elements: s = {name}({element})"
    if name in INSTEAD:
        return INSTEAD[name]
    if name == "astype":
        return f"convert elements with a function: polyc.f64({element})"
    if name == "copy":
        return f"copy its elements: Y[{element.partition('[')[2]} = {element}"
    return (
        f"write {name}({element}) as a function of elements" if name in KNOWN else "the language reference lists what there is"
    )


def _find_function(name: str, node: ast.Call, scope: Scope) -> object | None:
    """The function of the program around that a call is of."""
    found = find_function(node, scope)
    if found is None and name in KNOWN:
        return None
    if found is None and isinstance(node.func, ast.Name) and not isinstance(scope.text.lookup(node.func.id), UserMonoid):
        found = scope.text.lookup(node.func.id)
        if isinstance(found, types.FunctionType):  # of a library: known by its name, or not at all
            return None
    return found if callable(found) else None


def _read_function(node: ast.Call, function: object, scope: Scope, depth: int) -> Value:
    """A call inside of an expression: of a function of numbers, which is read in place."""
    name = ast.unparse(node.func)
    if not isinstance(function, types.FunctionType):
        message = f"{name} computes whole tensors, and cannot be called on elements"
        help = f"call it as a statement of its own: T = {name}(X); or write out what it does, on elements"
        raise Fault("unsupported-call", message, help)
    values = read_element_function(node, function, scope, depth)
    if len(values) != 1:
        message = f"{name} returns {len(values)} values, and one is needed here"
        raise Fault("semantic-element-function", message, f"assign them: a[i], b[i] = {name}(...)")
    return values[0]
