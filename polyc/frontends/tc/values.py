"""Expressions as element values: names resolved, types promoted, conversions made explicit.

An index or a size is int32 here (``Cast(Index, I32)``), an integer literal int32, a literal with a point or an exponent
float32.  Comparisons of plain index arithmetic stay in 64 bits, so that bounds proofs can use the condition of a ``?:``.
Functions return None after reporting an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import numpy as np

from polyc.diagnostics import Span
from polyc.frontends.padding import describe_unknown_border, is_border_elsewhere
from polyc.frontends.tc import subscripts
from polyc.frontends.tc.builtins import ARITHMETIC, BUILTIN_ARITY, BUILTIN_OPERATORS, COMPARISONS, EXPANSIONS, LOGICAL
from polyc.frontends.tc.scope import Scope, Typed, check_not_builtin
from polyc.frontends.tc.syntax import Apply, Binary, Convert, Extent, Name, Number, SyntaxExpr, Ternary, Unary
from polyc.frontends.tc.types import (
    TYPE_NAMES,
    convert_expr,
    count_dimensions,
    fits_type,
    is_narrower,
    promote_types,
    spell_type,
)
from polyc.ir.expr import PAD_MODES, Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, identity_of, result_type
from polyc.ir.halves import narrow, round_to, widen
from polyc.ir.operators import COMPLEX_OPERATORS
from polyc.ir.types import BF16, BOOL, C64, F16, F32, F64, I32, I64, DType


def build_value(scope: Scope, syntax: SyntaxExpr) -> Typed | None:
    """`syntax` with its element type."""
    match syntax:
        case Number():
            return _build_number(scope, syntax, F32 if syntax.is_float else I32)
        case Name():
            return _build_name(scope, syntax)
        case Extent():
            extent = subscripts.build_extent(scope, syntax)
            return None if extent is None else Typed(Cast(extent, I32, syntax.span), I32)
        case Apply():
            return _build_apply(scope, syntax)
        case Convert():
            return _build_cast(scope, syntax)
        case Unary():
            return _build_unary(scope, syntax)
        case Binary():
            return _build_binary(scope, syntax)
        case Ternary():
            condition = build_condition(scope, syntax.condition)
            arms = _promote_operands([build_value(scope, syntax.then), build_value(scope, syntax.other)])
            if condition is None or arms is None:
                return None
            (then, other), dtype = arms
            return Typed(Select(condition, then, other, syntax.span), dtype)
        case _:
            assert_never(syntax)


def build_condition(scope: Scope, syntax: SyntaxExpr) -> Expr | None:
    """`syntax` as a bool."""
    typed = build_value(scope, syntax)
    if typed is None:
        return None
    if typed.dtype != BOOL:
        message = f"expected boolean but found {spell_type(typed.dtype)}"
        literals = {"true": "1 == 1", "false": "1 == 0", "True": "1 == 1", "False": "1 == 0"}
        index = typed.expr.value if isinstance(typed.expr, Cast) else typed.expr
        literal = literals.get(index.name) if isinstance(index, Index) else None
        help = "compare with something, as in (x != 0)" if literal is None else f"there are no truth values to write: {literal}"
        scope.reporter.error("type-not-boolean", message, syntax.span, help)
        return None
    return typed.expr


def _promote_operands(operands: list[Typed | None], least: DType | None = None) -> tuple[tuple[Expr, ...], DType] | None:
    """All operands cast to their common type (and `least`)."""
    present = [o for o in operands if o is not None]
    if len(present) < len(operands):
        return None
    dtype = least or present[0].dtype
    for operand in present:
        dtype = promote_types(dtype, operand.dtype)
    return tuple(convert_expr(o.expr, o.dtype, dtype) for o in present), dtype


def report_literal(scope: Scope, syntax: Number, dtype: DType) -> None:
    help = "write the conversion around it, as in int64(3000000000) or double(1e300)"
    message = f"the literal {syntax.text[:40]} does not fit {spell_type(dtype)}"
    scope.reporter.error("type-literal", message, syntax.span, help)


_LARGEST = {F16: 65519.99, BF16: 3.3961e38, F32: 3.4028235677973366e38, F64: 1.7976931348623157e308}
"""Literals up to here do not round to infinity."""


def _build_number(scope: Scope, syntax: Number, dtype: DType, sign: int = 1) -> Typed | None:
    """The literal itself as `dtype`: an integer type for integer literals, or a float type."""
    if dtype.is_float:
        value: float | int = sign * float(syntax.text)
        fits = abs(value) <= _LARGEST[dtype]
        if fits and dtype.is_storage:
            value = float(widen(narrow(value, dtype))[()])
    else:
        value = sign * int(syntax.text)
        fits = fits_type(value, dtype)
    if not fits:
        report_literal(scope, syntax, dtype)
        return None
    return Typed(Const(value, dtype, syntax.span), dtype)


def build_index_or_size(scope: Scope, syntax: Name) -> Index | Size | None:
    """A name that is neither let nor tensor: a size, or an index (a new one where the name is unknown)."""
    name, span = syntax.name, syntax.span
    if name in scope.left:
        return Index(name, span)
    if name in scope.sizes:
        return Size(name, span)
    if name in scope.later_lets or name in scope.definition_tensors:
        scope.report_undefined(name, span)
        return None
    return Index(name, span) if check_not_builtin(scope.reporter, name, span) else None


def _build_name(scope: Scope, syntax: Name) -> Typed | None:
    name, span = syntax.name, syntax.span
    if name not in scope.left and name in scope.lets:
        return scope.lets[name].value
    if name not in scope.left and name in scope.tensors:
        entry = scope.tensors[name]
        if entry.rank > 0:
            message = f"expected a scalar but found a tensor expression: {name} has {count_dimensions(entry.rank)}"
            scope.reporter.error("semantic-scalar-expected", message, span, f"give a subscript for each, as in {name}(i)")
            return None
        return None if entry.dtype is None or entry.rank else Typed(Read(entry.version, (), span), entry.dtype)
    plain = build_index_or_size(scope, syntax)
    return None if plain is None else Typed(Cast(plain, I32, span), I32)


def _build_apply(scope: Scope, syntax: Apply) -> Typed | None:
    name = syntax.name
    if name in ("min", "max"):
        if not _check_arity(scope, syntax, 2):
            return None
        operands = _promote_operands([build_value(scope, arg) for arg in syntax.args])
        if operands is not None and not _check_real(scope, name, operands[1], syntax.span):
            return None
        return None if operands is None else Typed(Call(name, operands[0], syntax.span), operands[1])
    if name in scope.left or name in scope.lets or name in scope.sizes:
        _report_tensor_expected(scope, syntax, "index" if name in scope.left else "let" if name in scope.lets else "size")
        return None
    if name in scope.tensors:
        read = _build_read(scope, syntax)
        dtype = scope.tensors[name].dtype
        return None if read is None or dtype is None else Typed(read, dtype)
    if name == "pad" and name not in scope.definition_tensors:
        return _build_pad(scope, syntax)
    if name in _OF_COMPLEX and name not in scope.definition_tensors:
        return _build_of_complex(scope, syntax)
    if name in BUILTIN_ARITY:
        return _build_builtin(scope, syntax)
    scope.report_undefined(name, syntax.name_span)
    for arg in syntax.args:  # find the errors in there too, but a name alone may be a tensor that was meant for a call
        if not isinstance(arg, Name):
            build_value(scope, arg)
    return None


def _report_tensor_expected(scope: Scope, syntax: Apply, what: str) -> None:
    message = f"expected a tensor but found a scalar: {syntax.name} is a {what}"
    message = message.replace("a index", "an index")
    scope.reporter.error("semantic-tensor-expected", message, syntax.span, "remove the subscripts, or write * for a product")


def _build_read(scope: Scope, syntax: Apply) -> Read | None:
    entry, found = scope.tensors[syntax.name], len(syntax.args)
    subscript_list = [subscripts.build_subscript(scope, arg) for arg in syntax.args]
    if entry.rank < 0:
        return None
    if entry.rank == 0 and found:
        _report_tensor_expected(scope, syntax, "scalar")
        return None
    if entry.rank != found:
        message = f"expected {count_dimensions(entry.rank)} but found {count_dimensions(found)}: {syntax.name} has {entry.rank}"
        scope.reporter.error("semantic-rank", message, syntax.span, "give one subscript for each dimension")
        return None
    present = tuple(s for s in subscript_list if s is not None)
    return Read(entry.version, present, syntax.span) if len(present) == found else None


def _build_pad(scope: Scope, syntax: Apply) -> Typed | None:
    if not _check_arity(scope, syntax, 2):
        return None
    first, second = syntax.args
    mode = next((m for m in PAD_MODES if isinstance(second, Name) and second.name == m and not _is_known(scope, m)), None)
    if isinstance(second, Name) and is_border_elsewhere(second.name) and not _is_known(scope, second.name):
        message, help = describe_unknown_border(second.name)
        scope.reporter.error("semantic-pad", message, second.span, help)
        return None
    value = build_value(scope, second) if mode is None else Typed(Const(0, I32), I32)
    functions = (*BUILTIN_ARITY, *_OF_COMPLEX, "min", "max", "pad")
    if isinstance(first, Apply) and not _is_known(scope, first.name) and first.name not in functions:
        scope.report_undefined(first.name, first.name_span)
        return None
    if not isinstance(first, Apply) or first.name not in scope.tensors or first.name in scope.lets:
        help = "write pad(A(i - 1), 0): a read, and the value outside of the tensor, or clamp, wrap, reflect or symmetric"
        message = "the first argument of pad is not a tensor read"
        scope.reporter.error("semantic-pad", message, first.span, help)
        return None
    typed = build_value(scope, first)
    if typed is None or value is None:
        return None
    assert isinstance(typed.expr, Read)
    if mode is not None:
        zero = identity_of("add", typed.dtype)
        return Typed(Pad(typed.expr, zero, syntax.span, mode), typed.dtype)
    if is_narrower(typed.dtype, value.dtype) and not _is_exact(value.expr, typed.dtype):
        # The read still has a type, and that of a tensor which is defined further down settles by such values.
        report_narrowing(scope, value.dtype, typed.dtype, second.span)
    return Typed(Pad(typed.expr, convert_expr(value.expr, value.dtype, typed.dtype), syntax.span), typed.dtype)


def _is_exact(expr: Expr, target: DType) -> bool:
    """Whether `expr` is a literal of the same kind that a narrower type holds as well."""
    if not isinstance(expr, Const) or expr.dtype.is_float != target.is_float:
        return False
    if target.is_float:
        value = np.array(expr.value, expr.dtype.numpy)
        return bool(round_to(value, target) == value)
    return target.is_integer and fits_type(int(expr.value), target)


def is_literal(syntax: SyntaxExpr) -> bool:
    """Whether `syntax` is a number, perhaps with a sign."""
    return isinstance(syntax.operand if isinstance(syntax, Unary) and syntax.op == "-" else syntax, Number)


def _is_known(scope: Scope, name: str) -> bool:
    return name in scope.left or name in scope.lets or name in scope.tensors or name in scope.sizes


def report_narrowing(scope: Scope, found: DType, target: DType, span: Span, help: str | None = None) -> None:
    message = f"attempting to assign type {spell_type(found)} to narrower type {spell_type(target)} without an explicit cast"
    scope.reporter.error("type-narrowing", message, span, help or f"convert explicitly: {spell_type(target)}(…)")


def _check_real(scope: Scope, name: str, dtype: DType, span: Span) -> bool:
    if not dtype.is_complex:
        return True
    help = "they have + - * / == !=, exp, log, sqrt, pow, sin, cos, tan, sinh, cosh, tanh, conj, and fabs, real and imag"
    scope.reporter.error("type-complex", f"{name} is not defined for complex numbers", span, help)
    return False


_OF_COMPLEX = {"conj": 1, "real": 1, "imag": 1, "complex": 2}
"""Functions by number of arguments; tensors may have these names, too."""


def _build_of_complex(scope: Scope, syntax: Apply) -> Typed | None:
    name = syntax.name
    args = [build_value(scope, arg) for arg in syntax.args]
    if not _check_arity(scope, syntax, _OF_COMPLEX[name]):
        return None
    if name == "complex":
        operands = _promote_operands(args, F32)
        if operands is None or not _check_real(scope, name, operands[1], syntax.span):
            return None
        return Typed(Call(name, operands[0], syntax.span), result_type(name, operands[1]))
    inner = args[0]
    if inner is None or inner.dtype.is_complex:
        return None if inner is None else Typed(Call(name, (inner.expr,), syntax.span), result_type(name, inner.dtype))
    if name != "imag":
        return inner
    pair = Cast(inner.expr, C64, syntax.span)  # whose imaginary part is 0, and which reads what the text reads
    return Typed(convert_expr(Call("imag", (pair,), syntax.span), F32, inner.dtype), inner.dtype)


def _check_arity(scope: Scope, syntax: Apply, arity: int) -> bool:
    found = len(syntax.args)
    if found == arity:
        return True
    message = f"{syntax.name}: expected {arity} argument{'s' * (arity != 1)} but found {found}"
    if syntax.name in ("min", "max") and found == 1:
        help = f"to reduce over indices write the assignment {syntax.name}=!"
    elif syntax.name in ("min", "max", "fmin", "fmax") and found > 2:
        help = f"nest them: {syntax.name}({syntax.name}(a, b), c)"
    else:
        help = f"{syntax.name} takes {arity}"
    scope.reporter.error("semantic-arity", message, syntax.span, help)
    return False


def _build_builtin(scope: Scope, syntax: Apply) -> Typed | None:
    name = syntax.name
    args = [build_value(scope, arg) for arg in syntax.args]
    if not _check_arity(scope, syntax, BUILTIN_ARITY[name]):
        return None
    if name not in BUILTIN_OPERATORS:
        expansion = EXPANSIONS.get(name)
        help = f"write {expansion}" if expansion else "express it with the functions that the language reference lists"
        message = f"the built-in function {name} is not available yet"
        scope.reporter.error("unsupported-builtin", message, syntax.span, help)
        return None
    operands = _promote_operands(args, F32)
    if operands is not None:
        warn_if_narrow(scope, syntax.args, operands[1])
    if operands is not None and operands[1].is_complex:
        if name == "fabs":
            parts = tuple(Call(part, operands[0], syntax.span) for part in ("real", "imag"))
            return Typed(Call("hypot", parts, syntax.span), operands[1].part)
        if BUILTIN_OPERATORS[name] not in COMPLEX_OPERATORS:
            _check_real(scope, name, operands[1], syntax.span)
            return None
    return None if operands is None else Typed(Call(BUILTIN_OPERATORS[name], operands[0], syntax.span), operands[1])


def _build_cast(scope: Scope, syntax: Convert) -> Typed | None:
    dtype = TYPE_NAMES[syntax.type_name]
    literal, sign = syntax.value, 1
    if isinstance(literal, Unary) and literal.op == "-":
        literal, sign = literal.operand, -1
    if isinstance(literal, Number) and dtype != BOOL and not dtype.is_complex and (dtype.is_float or not literal.is_float):
        # The literal itself in that type: double(0.1) is the double nearest to 0.1, int64(3000000000) needs 64 bits.
        return _build_number(scope, literal, dtype, sign)
    if dtype == I64 and subscripts.is_index_expression(scope, syntax.value):
        wide = subscripts.build_subscript(scope, syntax.value)
        return None if wide is None else Typed(wide, I64)
    inner = build_value(scope, syntax.value)
    if inner is None:
        return None
    if inner.dtype.is_complex and not dtype.is_complex:
        return None if not _check_real(scope, spell_type(dtype), inner.dtype, syntax.span) else inner
    return Typed(convert_expr(inner.expr, inner.dtype, dtype), dtype)


def _build_unary(scope: Scope, syntax: Unary) -> Typed | None:
    if syntax.op == "!":
        condition = build_condition(scope, syntax.operand)
        return None if condition is None else Typed(Call("not", (condition,), syntax.span), BOOL)
    if isinstance(syntax.operand, Number):
        return _build_number(scope, syntax.operand, F32 if syntax.operand.is_float else I32, -1)
    inner = build_value(scope, syntax.operand)
    if inner is None or not check_arithmetic(scope, inner.dtype, syntax.operand.span):
        return None
    return Typed(Call("neg", (inner.expr,), syntax.span), inner.dtype)


def check_arithmetic(scope: Scope, dtype: DType, span: Span) -> bool:
    """Bools have no arithmetic of their own: what ``true + true`` should be is the user's to say."""
    if dtype != BOOL:
        return True
    help = "convert explicitly, as in int32(a < b), or use && || !"
    scope.reporter.error("type-bool-arithmetic", "expected a number but found bool", span, help)
    return False


def _is_closed(left: Binary, whole: Binary) -> bool:
    """Whether the left side of an operator stands in parentheses."""
    between = whole.span.source.text[left.op_span.end : whole.op_span.start]
    return between.count(")") > between.count("(")


def _build_binary(scope: Scope, syntax: Binary) -> Typed | None:
    op, left, right, span = syntax.op, syntax.left, syntax.right, syntax.span
    if op in LOGICAL:
        a, b = build_condition(scope, left), build_condition(scope, right)
        return None if a is None or b is None else Typed(Call(LOGICAL[op], (a, b), span), BOOL)
    if op in COMPARISONS and isinstance(left, Binary) and left.op in COMPARISONS and not _is_closed(left, syntax):
        text = span.source.text
        first, middle = text[span.start : left.op_span.end], text[left.op_span.end : syntax.op_span.start].strip()
        help = f"write {first} {middle} && {middle} {text[syntax.op_span.start : span.end]}"
        scope.reporter.error("type-comparison-chain", "comparisons do not follow each other", span, help)
        return None
    if op in COMPARISONS and all(subscripts.is_index_expression(scope, side) for side in (left, right)):
        x, y = subscripts.build_subscript(scope, left), subscripts.build_subscript(scope, right)
        return None if x is None or y is None else Typed(Call(COMPARISONS[op], (x, y), span), BOOL)
    operands = _promote_operands([build_value(scope, left), build_value(scope, right)])
    if operands is None:
        return None
    args, dtype = operands
    if op not in ("+", "-", "*", "/", "==", "!=") and not _check_real(scope, op, dtype, span):
        return None
    warn_if_narrow(scope, (left, right), dtype)
    if op in COMPARISONS:
        return Typed(Call(COMPARISONS[op], args, span), BOOL)
    if not check_arithmetic(scope, dtype, span):
        return None
    if op == "/" and isinstance(left, Number) and isinstance(right, Number):
        _warn_if_rounded(scope, left, right, span)
    name = "truediv" if op == "/" and (dtype.is_float or dtype.is_complex) else ARITHMETIC[op]
    return Typed(Call(name, args, span), dtype)


def _warn_if_rounded(scope: Scope, left: Number, right: Number, span: Span) -> None:
    """A warning for ``1/2``, which is 0: who writes it between two whole numbers mostly wants the fraction."""
    if left.is_float or right.is_float or int(right.text) == 0 or int(left.text) % int(right.text) == 0:
        return
    message = f"{left.text}/{right.text} divides integers: it is {int(left.text) // int(right.text)}"
    help = f"write {left.text}.0/{right.text}.0 for the fraction; numbers without a point are integers"
    scope.reporter.warn("type-integer-division", message, span, help)


def warn_if_narrow(scope: Scope, operands: Sequence[SyntaxExpr], dtype: DType) -> None:
    """A warning for ``x * 0.1`` with a double x: the literal is a float, and has been rounded to one."""
    if dtype.part != F64:
        return
    for operand in operands:
        literal = operand.operand if isinstance(operand, Unary) and operand.op == "-" else operand
        if not isinstance(literal, Number) or not literal.is_float:
            continue
        rounded = float(np.float32(literal.text))
        if rounded == float(literal.text):
            continue
        message = f"{literal.text} is a float, which is {rounded:.12g} beside a double"
        scope.reporter.warn("type-rounded-literal", message, literal.span, f"write double({literal.text})")
