"""Python expressions to typed IR expressions."""

from __future__ import annotations

import ast
from typing import cast

import numpy as np

from polyc.diagnostics import Span, suggest_name
from polyc.frontends.core.builder import Version, count_dimensions
from polyc.frontends.core.values import Fault, Value
from polyc.frontends.python.attributes import (
    count_from_the_end,
    read_attribute,
    read_extent,
)
from polyc.frontends.python.functions import KNOWN, apply_function, invert, take_part
from polyc.frontends.python.operators import binary, keep, logical, negate, select
from polyc.frontends.python.scope import Retyped, Scope
from polyc.frontends.python.source import make_nesting_error
from polyc.frontends.python.syntax import call_name, unturn
from polyc.frontends.python.values import POISON, make_literal, require_integer
from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Read,
    Size,
    rewrite,
    walk,
)
from polyc.ir.types import BOOL, I64
from polyc.live import find_numbers
from polyc.records import replace

MAX_DEPTH = 120
"""Levels of nesting of one expression as written."""

_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "bitand",
    ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
ALLOWED = (
    "an expression may hold numbers, names, X[i, j], operators, comparisons, and/or/not, 'a if c else b' and calls of functions"
)


def read_expression(node: ast.expr, scope: Scope, depth: int = 0) -> Value:
    """The value of an expression.  Errors are reported to the scope, and POISON stands in their place."""
    if depth > MAX_DEPTH:
        diagnostic = make_nesting_error(scope.text.span(node))
        scope.report(diagnostic.code, diagnostic.message, node, diagnostic.help or "")
        return POISON
    try:
        return _read_node(node, scope, depth + 1)
    except Fault as fault:
        help = fault.help
        if fault.code == "budget-expression" and scope.element_function is not None:  # there, names stand for their values
            help = f"make {scope.element_function} of fewer rounds and branches, and its steps statements of the operator"
        scope.report(fault.code, fault.message, node, help)
        return POISON


def _read_node(node: ast.expr, scope: Scope, depth: int) -> Value:
    span = scope.text.span(node)
    match node:
        case ast.Constant(bool() | int() | float() | complex() as number):
            return make_literal(number, span)
        case ast.Name():
            return _read_name(node, scope)
        case ast.Subscript():
            return _read_subscript(node, scope, depth)
        case ast.BinOp(left, ast.LShift() | ast.RShift() as op, right):
            return _read_shift(op, read_expression(left, scope, depth), read_expression(right, scope, depth), span)
        case ast.BinOp(left, op, right):
            if type(op) not in _ARITHMETIC:
                help = "write the sum: T[i, j] += A[i, k] * B[k, j]"
                raise Fault("semantic-expression", "this operator is not available on elements", help)
            a, b = read_expression(left, scope, depth), read_expression(right, scope, depth)
            return binary(_ARITHMETIC[type(op)], a, b, span)
        case ast.UnaryOp(ast.Not(), operand):
            return logical("not", (read_boolean(operand, scope, depth),), span)
        case ast.UnaryOp(op, operand):
            value = read_expression(operand, scope, depth)
            is_minus = isinstance(op, ast.USub)
            return negate(value, span) if is_minus else invert(value, span) if isinstance(op, ast.Invert) else keep(value)
        case ast.BoolOp(op, values):
            operands = tuple(read_boolean(v, scope, depth) for v in values)
            return logical("and" if isinstance(op, ast.And) else "or", operands, span)
        case ast.Compare():
            return _read_comparison(node, scope, depth)
        case ast.IfExp(test, body, orelse):
            condition = read_boolean(test, scope, depth)
            then, other = read_expression(body, scope, depth), read_expression(orelse, scope, depth)
            return select(condition, then, other, span)
        case ast.Call():
            return scope.read_call(node, scope, depth)
        case ast.Attribute(ast.Name(module), ("real" | "imag") as part) if module in (*scope.current, *scope.values):
            return take_part(part, _read_name(ast.copy_location(ast.Name(module), node), scope), span)
        case ast.Attribute(ast.Name(module), name):
            return read_attribute(module, name, scope, scope.text.span(node))
        case ast.Attribute(ast.Attribute(_, "T") as inner, ("T" | "ndim" | "size") as name) if (
            tensor := unturn(inner)
        ) is not None:
            return read_attribute(tensor[0], name, scope, span)
        case ast.Attribute(inner, ("real" | "imag") as part):
            return take_part(part, read_expression(inner, scope, depth), span)
        case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
            help = "indices stand for loops: s = sum(X[i]) runs over all i, and with polyc.where(0 <= i < 3): gives their range"
            raise Fault("semantic-expression", "comprehensions have no meaning here", help)
        case _:
            raise Fault("semantic-expression", "this Python expression has no meaning here", ALLOWED)


def read_boolean(node: ast.expr, scope: Scope, depth: int) -> Value:
    """An operand that must be a boolean, and so is one where a recurrence reads it before anything tells its type."""
    value = read_expression(node, scope, depth)
    if value.weak and isinstance(value.expr, Read) and value.expr.tensor in scope.forward.keys() - scope.type_hints.keys():
        raise Retyped(value.expr.tensor, BOOL, True)
    if value is not POISON and value.dtype != BOOL:
        message, shown = f"a boolean is needed here, not {value.dtype}", ast.unparse(node)
        scope.report("type-not-boolean", message, node, f"compare with a number: {shown if len(shown) < 40 else 'x'} != 0")
        return POISON
    return value


def _read_shift(op: ast.LShift | ast.RShift, value: Value, count: Value, span: Span) -> Value:
    """Shifts by a number are products, and quotients rounded down, which is what they are for negative numbers as well.

    By numbers that differ from element to element, and by as many as there are bits and more, they give 0, or -1."""
    if value is POISON or count is POISON:
        return POISON
    is_left, number, help = isinstance(op, ast.LShift), count.constant, "multiply or divide by a power of two"
    if not value.dtype.is_integer:
        raise Fault("semantic-expression", f"only integers are shifted, and this is {value.dtype}", help)
    if number is not None and (type(number) is not int or number < 0):
        raise Fault("semantic-expression", f"{value.dtype} is shifted by numbers from 0 on", help)
    if type(number) is int and number < (63 if value.weak else value.dtype.bits - int(value.dtype.is_signed)):
        return binary("mul" if is_left else "floordiv", value, make_literal(1 << number, span).made_of(count), span)
    if not count.dtype.is_integer:
        raise Fault("semantic-expression", f"shifts are by integers, and this is {count.dtype}", "cast it with i32(...)")
    return binary("shl" if is_left else "shr", value, count, span)


def _read_comparison(node: ast.Compare, scope: Scope, depth: int) -> Value:
    operands = [read_expression(n, scope, depth) for n in (node.left, *node.comparators)]
    span = scope.text.span(node)
    parts = []
    for op, left, right in zip(node.ops, operands, operands[1:], strict=False):
        if type(op) not in COMPARISONS:
            raise Fault(
                "semantic-expression", "'is' and 'in' have no meaning on elements", "use == or <, and combine with and/or"
            )
        parts.append(binary(COMPARISONS[type(op)], left, right, span))
    return parts[0] if len(parts) == 1 else logical("and", tuple(parts), span)


def _read_name(node: ast.Name, scope: Scope) -> Value:
    name, span = node.id, scope.text.span(node)
    if name in scope.values:
        return scope.values[name]
    if name in scope.current:
        version = scope.current[name]
        if version.rank:
            subscripts = ", ".join("ijklmnpq"[: version.rank]) if version.rank <= 8 else "..."
            message = f"{name} is a tensor with {count_dimensions(version.rank)}"
            help = f"read one element of it: {name}[{subscripts}]; an index needs a name that is not assigned"
            raise Fault("semantic-rank", message, help)
        return read_element(version, (), name, node, scope)
    if name in scope.assigned_names:
        raise _undefined(name, scope)
    if name in scope.sizes:
        return Value(Size(name, span), I64, weak=True)
    if scope.element_function is not None and name not in scope.constants:
        help = f"{scope.element_function} sees its parameters, names assigned in it, and numbers of the module around"
        raise Fault("semantic-undefined", f"{name} has no value in {scope.element_function}", help)
    if scope.is_index(name):
        index = scope.index_name(node)
        return POISON if index is None else Value(Index(index, span), I64)
    number = scope.constants[name]
    return POISON if number is None else make_literal(number, span)


def _undefined(name: str, scope: Scope) -> Fault:
    if name == scope.target:
        message = f"{name} is defined by the very element that is written"
        return Fault("semantic-undefined", message, f"assign {name} above, or read an element that is computed before")
    return Fault(
        "semantic-undefined",
        f"{name} is read before it is assigned",
        "move its assignment up; an index needs a name that is not assigned",
    )


def read_element(version: Version, subscripts: tuple[Expr, ...], name: str, node: ast.expr, scope: Scope) -> Value:
    """The read of one element of the current version of a tensor."""
    if version.dtype is None:
        return POISON
    if len(subscripts) != version.rank:
        wanted = count_dimensions(version.rank or 0)
        message = f"{name} has {wanted}, but is read with {len(subscripts)} subscript{'' if len(subscripts) == 1 else 's'}"
        if version.is_parameter and not version.rank:
            help = f"declare its dimensions, as in {name}: 'f32[N]', and give an array that has them"
            raise Fault("semantic-rank", message, help)
        raise Fault("semantic-rank", message, f"give one subscript for each dimension of {name}")
    read = Read(version.name, subscripts, scope.text.span(node))
    return Value(read, version.dtype, version.is_weak, 1 + len(subscripts))


def _read_subscript(node: ast.Subscript, scope: Scope, depth: int) -> Value:
    if (outside := _read_outside(node, scope, depth)) is not None:
        return outside
    match node.value:
        case ast.Name(name) if name in scope.values:
            help = (
                f"call {scope.element_function} on elements, {scope.element_function}(X[i, j]), or decorate it with @polyc.op"
            )
            raise Fault("semantic-element-function", f"{name} is one element here, and has no subscripts", help)
        case ast.Name(name):
            return _read_tensor(name, node, scope, depth)
        case ast.Attribute(inner, "shape") if (tensor := unturn(inner)) is not None:
            return read_extent(*tensor, read_expression(node.slice, scope).constant, scope, scope.text.span(node))
        case ast.Subscript(ast.Name(name), slice=inner) if name in scope.current:
            if any(isinstance(part, ast.Slice) for part in ast.walk(inner)):
                help = f"tensors are not sliced: put the offset into the subscript, as in {name}[i + 1]"
            else:
                help = f"write all subscripts in one pair of brackets: {name}[i, j]"
            raise Fault("semantic-expression", f"{name}[...] is an element, and has no subscripts", help)
        case ast.Attribute(_, "T") as inner if (tensor := unturn(inner)) is not None:
            return _read_tensor(tensor[0], node, scope, depth, tensor[1])
    called = call_name(node.value.func) if isinstance(node.value, ast.Call) else None
    if called is not None and called[0] in scope.current:
        assert isinstance(node.value, ast.Call)
        return scope.read_call(node.value, scope, depth)  # which says what stands for the method
    if called is not None and called[1] not in KNOWN:
        apply_function(*called, (), scope.text.span(node))  # whatever it is of whole arrays: tell its name
    raise Fault("semantic-expression", "only a tensor has subscripts", "assign the value to a name of its own first")


def _read_tensor(name: str, node: ast.Subscript, scope: Scope, depth: int, is_turned: bool = False) -> Value:
    parts: dict[object, Value] = dict(enumerate(scope.components.get(name, ())))
    if isinstance(node.slice, ast.Constant) and node.slice.value in parts:
        return parts[node.slice.value]
    values = _read_subscripts(node.slice, scope, depth)
    version = scope.current.get(name) or scope.forward_version(name)
    if version is None:
        if name in scope.assigned_names:
            raise _undefined(name, scope)
        if name in scope.sizes or name in scope.constants:
            raise Fault("semantic-undefined", f"{name} is a number, not a tensor", "read it without subscripts")
        hint = suggest_name(name, scope.current) or f"make {name} a parameter, or assign it above"
        if isinstance(scope.text.lookup(name), np.ndarray):
            hint = f"arrays come in as parameters: make {name} one, and fix it with bind({name}={name}) if it never changes"
        raise Fault("semantic-undefined", f"there is no tensor {name}", hint)
    if values is None:
        return POISON
    subscripts = tuple(v.expr for v in (values[::-1] if is_turned else values))
    if not scope.is_padded:  # there, what is in front of a tensor is not its end
        written = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        from_end = [isinstance(p, ast.UnaryOp) and isinstance(p.operand, ast.Constant) for p in written]
        subscripts = count_from_the_end(subscripts, from_end[::-1] if is_turned else from_end, version)
    return read_element(version, subscripts, name, node, scope).made_of(*values)


def _read_outside(node: ast.Subscript, scope: Scope, depth: int) -> Value | None:
    """The number that ``C[2]`` or ``C[2][0]`` is, of a tuple of numbers outside of the function; None for anything else."""
    places: list[ast.expr] = []
    base: ast.expr = node
    while isinstance(base, ast.Subscript):
        places, base = [base.slice, *places], base.value
    if not isinstance(base, ast.Name) or base.id in scope.values or base.id in scope.current or base.id in scope.assigned_names:
        return None
    found: object = None if scope.is_taken(base.id) else find_numbers(scope.text.lookup(base.id))
    if found is None:
        return None
    for place in places:
        number = known_number(read_expression(place, scope, depth), scope)
        if not isinstance(found, tuple) or not isinstance(number, int) or not -len(found) <= number < len(found):
            help = f"read it by numbers that it has, as in a loop over range(2), or make {base.id} a parameter"
            raise Fault("semantic-undefined", f"{base.id} is a tuple of numbers outside of the function", help)
        found = found[number]
    if isinstance(found, tuple):
        raise Fault("semantic-undefined", f"{base.id} is a tuple of tuples", f"read a number of them: {base.id}[0][0]")
    return make_literal(cast(int | float | bool, found), scope.text.span(node))


def _read_subscripts(node: ast.expr, scope: Scope, depth: int) -> tuple[Value, ...] | None:
    """The i64 expressions between brackets (``[()]`` has none); None after a report."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    result: list[Value] = []
    for part in parts:
        if isinstance(part, (ast.Slice, ast.Starred)) or (isinstance(part, ast.Constant) and part.value in (None, ...)):
            help = "write an index for every dimension: X[i, j] stands for all elements, and absent indices are summed"
            scope.report("semantic-subscript", "slices, ... and None are not subscripts here", part, help)
            continue
        value = read_subscript(part, scope, depth)
        result += [] if value is None else [value]
    return tuple(result) if len(result) == len(parts) else None


def read_subscript(part: ast.expr, scope: Scope, depth: int = 0) -> Value | None:
    """A subscript with its i64 expression; None after a report."""
    value = read_expression(part, scope, depth)
    if value is POISON:
        return None
    try:
        return replace(value, expr=inline_numbers(require_integer(value, "a subscript"), scope))
    except Fault as fault:
        is_quotient = any(isinstance(node, ast.Div) for node in ast.walk(part))
        help = "/ gives fractions, as in Python: write // for whole quotients" if is_quotient else fault.help
        scope.report(fault.code, fault.message, part, help)
        return None


def inline_numbers(expr: Expr, scope: Scope) -> Expr:
    """An integer expression with what `k = 3` or `half = N // 2` says in place of `k` and `half`."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Read) or node.subscripts:
            return None
        writers = scope.writers.get(node.tensor, [])
        if len(writers) != 1 or writers[0].reduction is not None or writers[0].where:
            return None
        value = writers[0].value
        return value if all(isinstance(n, (Const, Size, Call, Cast)) for n in walk(value)) else None

    return rewrite(expr, rule)


def known_number(value: Value, scope: Scope) -> int | float | bool | None:
    """The number that a value is known to be when the function is read, else None."""
    if value.constant is not None or value is POISON or not value.weak:
        return value.constant
    expr = inline_numbers(value.expr, scope)
    return expr.value if isinstance(expr, Const) else None
