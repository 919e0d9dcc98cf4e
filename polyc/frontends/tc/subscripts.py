"""Expressions in subscripts and range bounds: 64-bit integers over indices and sizes.

``i + 1`` in a subscript is exact 64-bit arithmetic; the same text as an element value is int32 (values.py).  A read in a
subscript is ``Cast(Read, I64)``.  Functions return None after reporting an error.
"""

from __future__ import annotations

from polyc.diagnostics import Span
from polyc.frontends.tc import values
from polyc.frontends.tc.builtins import ARITHMETIC, COMPARISONS, LOGICAL
from polyc.frontends.tc.scope import Let, Scope
from polyc.frontends.tc.syntax import (
    Apply,
    Binary,
    Convert,
    Extent,
    Name,
    Number,
    SyntaxExpr,
    Ternary,
    Unary,
    syntax_children,
)
from polyc.frontends.tc.types import TYPE_NAMES, convert_expr, count_dimensions, fits_type, spell_type
from polyc.ir.expr import Call, Const, Expr, Select
from polyc.ir.types import I32, I64


def build_subscript(scope: Scope, syntax: SyntaxExpr) -> Expr | None:
    """`syntax` as an i64 expression; floats and bools are errors (``type-not-integral``)."""
    match syntax:
        case Number():
            if syntax.is_float:
                report_not_integral(scope, "float32", syntax.span)
                return None
            if not fits_type(int(syntax.text), I64):
                values.report_literal(scope, syntax, I64)
                return None
            return Const(int(syntax.text), I64, syntax.span)
        case Name():
            return _build_name(scope, syntax)
        case Extent():
            return build_extent(scope, syntax)
        case Convert() if TYPE_NAMES[syntax.type_name] in (I32, I64) and is_index_expression(scope, syntax.value):
            return build_subscript(scope, syntax.value)  # already exact in 64 bits
        case Unary("-", operand):
            inner = build_subscript(scope, operand)
            if isinstance(inner, Const):
                return Const(-inner.value, I64, syntax.span)
            return None if inner is None else Call("neg", (inner,), syntax.span)
        case Binary() if syntax.op in ARITHMETIC:
            return _build_call(scope, ARITHMETIC[syntax.op], (syntax.left, syntax.right), syntax.span)
        case Apply("min" | "max", (_, _)):
            return _build_call(scope, syntax.name, syntax.args, syntax.span)
        case Ternary():
            condition = values.build_condition(scope, syntax.condition)
            then, other = build_subscript(scope, syntax.then), build_subscript(scope, syntax.other)
            if condition is None or then is None or other is None:
                return None
            return Select(condition, then, other, syntax.span)
        case _:
            return _build_from_value(scope, syntax)


def _build_from_value(scope: Scope, syntax: SyntaxExpr) -> Expr | None:
    typed = values.build_value(scope, syntax)
    if typed is None:
        return None
    if not typed.dtype.is_integer:
        report_not_integral(scope, spell_type(typed.dtype), syntax.span)
        return None
    return convert_expr(typed.expr, typed.dtype, I64)


def _build_name(scope: Scope, syntax: Name) -> Expr | None:
    name = syntax.name
    if name not in scope.left and name in scope.lets:
        return _build_let(scope, scope.lets[name], syntax.span)
    if name not in scope.left and name in scope.tensors:
        return _build_from_value(scope, syntax)
    return values.build_index_or_size(scope, syntax)


def _build_let(scope: Scope, let: Let, use: Span) -> Expr | None:
    if let.value is None:
        return None
    if not let.value.dtype.is_integer:
        report_not_integral(scope, spell_type(let.value.dtype), use)
        return None
    return let.subscript


def _build_call(scope: Scope, op: str, operands: tuple[SyntaxExpr, ...], span: Span) -> Expr | None:
    args = [build_subscript(scope, operand) for operand in operands]
    present = tuple(a for a in args if a is not None)
    return Call(op, present, span) if len(present) == len(args) else None


def report_not_integral(scope: Scope, found: str, span: Span) -> None:
    """A float or a bool where only integers make sense."""
    help = "subscripts and range bounds are integers: convert explicitly, as in A(int32(B(i)))"
    scope.reporter.error("type-not-integral", f"expected integral type but found {found}", span, help)


def build_extent(scope: Scope, syntax: Extent) -> Expr | None:
    """``T.1``: a declared extent."""
    reporter = scope.reporter
    entry = scope.tensors.get(syntax.tensor)
    if entry is None:
        scope.report_undefined(syntax.tensor, syntax.span)
        return None
    if entry.rank < 0:
        return None
    if syntax.dimension >= entry.rank:
        message = f"{syntax.tensor} has no dimension {syntax.dimension}: it has {count_dimensions(entry.rank)}"
        reporter.error("semantic-extent", message, syntax.span, "dimensions are counted from 0")
        return None
    if entry.shape is None:
        message = f"the extent of {syntax.tensor} is inferred later and cannot be used in the text"
        help = "use a size of a parameter, or annotate the result: -> (float(M, N) T)"
        reporter.error("unsupported-extent", message, syntax.span, help)
        return None
    return entry.shape[syntax.dimension]


def is_index_expression(scope: Scope, syntax: SyntaxExpr) -> bool:
    """Whether `syntax` is integer arithmetic over indices, sizes and literals alone."""
    stack = [syntax]
    while stack:
        node = stack.pop()
        match node:
            case Number():
                if node.is_float:
                    return False
            case Name():
                if node.name in scope.left:
                    continue
                if node.name in scope.lets:
                    if not scope.lets[node.name].is_index:
                        return False
                elif node.name in scope.tensors or node.name in scope.definition_tensors:
                    return False
            case Extent() | Unary("-"):
                pass
            case Binary() if node.op in ARITHMETIC:
                pass
            case Apply("min" | "max", (_, _)):
                pass
            case _:
                return False
        stack.extend(syntax_children(node))
    return True


def build_bound(scope: Scope, syntax: SyntaxExpr) -> Expr | None:
    """A range bound: like a subscript, without any access to data."""
    access = find_access(scope, syntax)
    if access is not None:
        help = "the size of a loop must be known from the sizes alone: pass it as a size, or mask with ?:"
        message = "tensor accesses cannot be used in this context"
        scope.reporter.error("semantic-read-in-bound", message, access.span, help)
        return None
    if isinstance(syntax, Binary) and syntax.op in (*COMPARISONS, *LOGICAL):
        message = "a bound of a range is a number, and this is a condition"
        help = "clauses are separated by commas: where i in 0:N, i > 1"
        scope.reporter.error("type-not-integral", message, syntax.span, help)
        return None
    return build_subscript(scope, syntax)


def find_access(scope: Scope, syntax: SyntaxExpr) -> SyntaxExpr | None:
    """The first tensor read or builtin call in `syntax`, or the use of a let that holds one."""
    stack = [syntax]
    while stack:
        node = stack.pop()
        if isinstance(node, Apply) and node.name not in ("min", "max"):
            return node
        if isinstance(node, Name) and node.name not in scope.left:
            let = scope.lets.get(node.name)
            if let.has_access if let is not None else node.name in scope.tensors:
                return node
        stack.extend(reversed(syntax_children(node)))
    return None
