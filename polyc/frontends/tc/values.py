"""Expressions as typed values: names resolved, types promoted, conversions made explicit.

As an element value an index or a size is int32 (``Cast(Index, I32)``), an integer literal int32, a literal with a point or an
exponent float32.  Subscripts and bounds are *wide*: their index arithmetic is exact in 64 bits, and so is that of comparisons
of plain index arithmetic, so that bounds proofs can use the condition of a ``?:``.

Functions raise `Fault` (`Reported` where an operand has an error); `build_value` reports it and returns None.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from polyc.diagnostics import Span
from polyc.frontends.core.builder import count_dimensions
from polyc.frontends.core.padding import describe_unknown_border, is_border_elsewhere
from polyc.frontends.core.values import Fault, Reported, Value
from polyc.frontends.tc.builtins import ARITHMETIC, BUILTIN_ARITY, BUILTIN_OPERATORS, COMPARISONS, EXPANSIONS, LOGICAL
from polyc.frontends.tc.scope import Scope, check_not_builtin
from polyc.frontends.tc.subscripts import is_index_expression
from polyc.frontends.tc.syntax import Apply, Extent, Name, Number, SyntaxExpr
from polyc.frontends.tc.types import TYPE_NAMES, convert, fits_type, is_narrower, promote_types, spell_type
from polyc.frontends.tc.wording import narrowing
from polyc.ir.expr import PAD_MODES, Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, identity_of, result_type
from polyc.ir.halves import narrow, round_to, widen
from polyc.ir.operators import COMPLEX_OPERATORS
from polyc.ir.types import BF16, BOOL, C64, F16, F32, F64, I32, I64, DType


def build_value(scope: Scope, syntax: SyntaxExpr, wide: bool = False) -> Value | None:
    """`syntax` with its element type, or, `wide`, as an int64 subscript or bound; None after a report."""
    try:
        match syntax:
            case Name():
                value = _build_name(scope, syntax, wide)
            case Number():
                value = _build_number(syntax, wide)
            case Extent():
                value = _as_element(build_extent(scope, syntax), wide, syntax.span)
            case Apply() if not syntax.is_operator and syntax.name not in TYPE_NAMES:
                value = _build_apply(scope, syntax, wide)
            case Apply(_, (left, right)):
                value = _build_binary(scope, syntax, left, right, wide)
            case Apply("-", (operand,)):
                value = _build_opposite(scope, operand, wide, syntax.span)
            case Apply("!", (operand,)):
                value = Value(Call("not", (_known_expr(build_condition(scope, operand)),), syntax.span), BOOL)
            case Apply(type_name, (operand,)):
                value = _build_cast(scope, TYPE_NAMES[type_name], operand, wide)
            case Apply(_, (test, then, other)):
                condition = build_condition(scope, test)
                (a, b), dtype = _promote(build_value(scope, then, wide), build_value(scope, other, wide))
                value = Value(Select(_known_expr(condition), a, b, syntax.span), dtype)
            case _:
                raise AssertionError(syntax)
        return _as_subscript(value, syntax.span) if wide and value.dtype != I64 else value
    except Fault as fault:
        scope.reporter.report(fault, syntax.span)
    except Reported:
        pass
    return None


def build_subscript(scope: Scope, syntax: SyntaxExpr) -> Expr | None:
    """`syntax` as an int64 expression; floats and bools are errors (``type-not-integral``)."""
    value = build_value(scope, syntax, wide=True)
    return None if value is None else value.expr


def build_condition(scope: Scope, syntax: SyntaxExpr) -> Expr | None:
    """`syntax` as a bool."""
    value = build_value(scope, syntax)
    if value is None or value.dtype == BOOL:
        return None if value is None else value.expr
    message = f"expected boolean but found {spell_type(value.dtype)}"
    literals = {"true": "1 == 1", "false": "1 == 0", "True": "1 == 1", "False": "1 == 0"}
    index = value.expr.value if isinstance(value.expr, Cast) else value.expr
    literal = literals.get(index.name) if isinstance(index, Index) else None
    help = "compare with something, as in (x != 0)" if literal is None else f"there are no truth values to write: {literal}"
    scope.reporter.error("type-not-boolean", message, syntax.span, help)
    return None


def known(value: Value | None) -> Value:
    """The value; raises `Reported` where it has an error."""
    if value is None:
        raise Reported
    return value


def _known_expr(expr: Expr | None) -> Expr:
    if expr is None:
        raise Reported
    return expr


def _as_element(plain: Expr, wide: bool, span: Span) -> Value:
    """An index, a size or an extent: int32, as a subscript the thing itself."""
    return Value(plain, I64) if wide else Value(Cast(plain, I32, span), I32)


def _as_subscript(value: Value, span: Span) -> Value:
    if not value.dtype.is_integer:
        raise not_integral(spell_type(value.dtype), span)
    return Value(convert(value, I64), I64)


def not_integral(found: str, span: Span) -> Fault:
    """A float or a bool where only integers make sense."""
    help = "subscripts and range bounds are integers: convert explicitly, as in A(int32(B(i)))"
    return Fault("type-not-integral", f"expected integral type but found {found}", help, span)


def _promote(*operands: Value | None, least: DType | None = None) -> tuple[tuple[Expr, ...], DType]:
    """All operands cast to their common type (and `least`)."""
    present = [known(o) for o in operands]
    dtype = reduce(promote_types, (o.dtype for o in present), least or present[0].dtype)
    return tuple(convert(o, dtype) for o in present), dtype


_LARGEST = {F16: 65519.99, BF16: 3.3961e38, F32: 3.4028235677973366e38, F64: 1.7976931348623157e308}
"""Literals up to here do not round to infinity."""


def _build_number(syntax: Number, wide: bool = False, sign: int = 1) -> Value:
    if wide and syntax.is_float:
        raise not_integral(spell_type(F32), syntax.span)
    return _read_literal(syntax, F32 if syntax.is_float else I64 if wide else I32, sign)


def _read_literal(syntax: Number, dtype: DType, sign: int = 1) -> Value:
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
        help = "write the conversion around it, as in int64(3000000000) or double(1e300)"
        message = f"the literal {syntax.text[:40]} does not fit {spell_type(dtype)}"
        raise Fault("type-literal", message, help, syntax.span)
    return Value(Const(value, dtype, syntax.span), dtype)


def _build_name(scope: Scope, syntax: Name, wide: bool) -> Value:
    name, span = syntax.name, syntax.span
    if name in scope.left:
        return _as_element(Index(name, span), wide, span)
    if name in scope.lets:
        let = scope.lets[name]
        value = known(let.value)
        return Value(_known_expr(let.subscript), I64) if wide and (value.dtype.is_integer or let.subscript) else value
    if name in scope.tensors:
        version = scope.tensors[name]
        if version.rank:
            message = f"expected a scalar but found a tensor expression: {name} has {count_dimensions(version.rank)}"
            raise Fault("semantic-scalar-expected", message, f"give a subscript for each, as in {name}(i)", span)
        if version.dtype is None or version.rank is None:
            raise Reported
        return Value(Read(version.name, (), span), version.dtype)
    if name in scope.sizes:
        return _as_element(Size(name, span), wide, span)
    if name in scope.later_lets or name in scope.definition_tensors:
        raise scope.undefined(name, span)
    if not check_not_builtin(scope.reporter, name, span):
        raise Reported
    return _as_element(Index(name, span), wide, span)


def build_extent(scope: Scope, syntax: Extent) -> Expr:
    """``T.1``: a declared extent, or what is inferred from the statements above."""
    entry = scope.tensors.get(syntax.tensor)
    if entry is None:
        raise scope.undefined(syntax.tensor, syntax.span)
    if entry.rank is None:
        raise Reported
    if syntax.dimension >= entry.rank:
        message = f"{syntax.tensor} has no dimension {syntax.dimension}: it has {count_dimensions(entry.rank)}"
        raise Fault("semantic-extent", message, "dimensions are counted from 0")
    shape = entry.shape if entry.shape is not None else scope.measure(entry.name, syntax.span) if entry.dtype else None
    if shape is None:
        raise Reported
    return shape[syntax.dimension]


def _build_apply(scope: Scope, syntax: Apply, wide: bool) -> Value:
    name = syntax.name
    if name in ("min", "max"):
        is_pair = len(syntax.args) == 2
        _require_arity(syntax, 2)
        args, dtype = _promote(*(build_value(scope, arg, wide and is_pair) for arg in syntax.args))
        _require_real(name, dtype)
        return Value(Call(name, args, syntax.span), dtype)
    if name in scope.left or name in scope.lets or name in scope.sizes:
        raise _tensor_expected(syntax, "an index" if name in scope.left else "a let" if name in scope.lets else "a size")
    if name in scope.tensors:
        return _build_read(scope, syntax)
    if name not in scope.definition_tensors:
        if name == "pad":
            return _build_pad(scope, syntax)
        if name in _OF_COMPLEX:
            return _build_of_complex(scope, syntax)
    if name == "pow" and wide and len(syntax.args) == 2:  # of whole numbers
        return Value(Call("pow", _promote(*(build_value(scope, arg, wide) for arg in syntax.args))[0], syntax.span), I64)
    if name in BUILTIN_ARITY:
        return _build_builtin(scope, syntax)
    scope.reporter.report(scope.undefined(name, syntax.name_span), syntax.span)
    for arg in syntax.args:  # find the errors in there too, but a name alone may be a tensor that was meant for a call
        if not isinstance(arg, Name):
            build_value(scope, arg)
    raise Reported


def _tensor_expected(syntax: Apply, what: str) -> Fault:
    message = f"expected a tensor but found a scalar: {syntax.name} is {what}"
    return Fault("semantic-tensor-expected", message, "remove the subscripts, or write * for a product", syntax.span)


def _build_read(scope: Scope, syntax: Apply) -> Value:
    entry, found = scope.tensors[syntax.name], len(syntax.args)
    subscripts = [build_subscript(scope, arg) for arg in syntax.args]
    if entry.rank is None:
        raise Reported
    if entry.rank == 0 and found:
        raise _tensor_expected(syntax, "a scalar")
    if entry.rank != found:
        message = f"expected {count_dimensions(entry.rank)} but found {count_dimensions(found)}: {syntax.name} has {entry.rank}"
        raise Fault("semantic-rank", message, "give one subscript for each dimension")
    read = Read(entry.name, tuple(_known_expr(e) for e in subscripts), syntax.span)
    if entry.dtype is None:
        raise Reported
    return Value(read, entry.dtype)


def _build_pad(scope: Scope, syntax: Apply) -> Value:
    _require_arity(syntax, 2)
    first, second = syntax.args
    word = second.name if isinstance(second, Name) and not _is_known(scope, second.name) else None
    mode = next((m for m in PAD_MODES if m == word), None)
    if word is not None and is_border_elsewhere(word):
        raise Fault("semantic-pad", *describe_unknown_border(word), second.span)
    filling = build_value(scope, second) if mode is None else Value(Const(0, I32), I32)
    functions = (*BUILTIN_ARITY, *_OF_COMPLEX, *TYPE_NAMES, "min", "max", "pad")
    if isinstance(first, Apply) and not (first.is_operator or _is_known(scope, first.name) or first.name in functions):
        raise scope.undefined(first.name, first.name_span)
    if not isinstance(first, Apply) or first.name not in scope.tensors or first.name in scope.lets:
        help = "write pad(A(i - 1), 0): a read, and the value outside of the tensor, or clamp, wrap, reflect or symmetric"
        raise Fault("semantic-pad", "the first argument of pad is not a tensor read", help, first.span)
    element, value = known(build_value(scope, first)), known(filling)
    read, dtype = element.expr, element.dtype
    assert isinstance(read, Read)
    if mode is not None:
        return Value(Pad(read, identity_of("add", dtype), syntax.span, mode), dtype)
    if is_narrower(dtype, value.dtype) and not _is_exact(value.expr, dtype):
        # The read still has a type, and that of a tensor which is defined further down settles by such values.
        scope.reporter.report(narrowing(value.dtype, dtype), second.span)
    return Value(Pad(read, convert(value, dtype), syntax.span), dtype)


def _is_exact(expr: Expr, target: DType) -> bool:
    """Whether `expr` is a literal of the same kind that a narrower type holds as well."""
    if not isinstance(expr, Const) or expr.dtype.is_float != target.is_float:
        return False
    if target.is_float:
        value = np.array(expr.value, expr.dtype.numpy)
        return bool(round_to(value, target) == value)
    return target.is_integer and fits_type(int(expr.value), target)


def split_sign(syntax: SyntaxExpr) -> tuple[SyntaxExpr, int]:
    """What stands behind a minus, and -1; or all of it, and 1."""
    match syntax:
        case Apply("-", (operand,)):
            return operand, -1
    return syntax, 1


def is_literal(syntax: SyntaxExpr) -> bool:
    """Whether `syntax` is a number, perhaps with a sign."""
    return isinstance(split_sign(syntax)[0], Number)


def _is_known(scope: Scope, name: str) -> bool:
    return name in scope.left or name in scope.lets or name in scope.tensors or name in scope.sizes


def _require_real(name: str, dtype: DType) -> None:
    if dtype.is_complex:
        help = "they have + - * / == !=, exp, log, sqrt, pow, sin, cos, tan, sinh, cosh, tanh, conj, and fabs, real and imag"
        raise Fault("type-complex", f"{name} is not defined for complex numbers", help)


_OF_COMPLEX = {"conj": 1, "real": 1, "imag": 1, "complex": 2}
"""Functions by number of arguments; tensors may have these names, too."""


def _build_of_complex(scope: Scope, syntax: Apply) -> Value:
    name, span = syntax.name, syntax.span
    args = [build_value(scope, arg) for arg in syntax.args]
    _require_arity(syntax, _OF_COMPLEX[name])
    if name == "complex":
        operands, dtype = _promote(*args, least=F32)
        _require_real(name, dtype)
        return Value(Call(name, operands, span), result_type(name, dtype))
    inner = known(args[0])
    if inner.dtype.is_complex:
        return Value(Call(name, (inner.expr,), span), result_type(name, inner.dtype))
    if name != "imag":
        return inner
    pair = Cast(inner.expr, C64, span)  # whose imaginary part is 0, and which reads what the text reads
    return Value(convert(Value(Call("imag", (pair,), span), F32), inner.dtype), inner.dtype)


def _require_arity(syntax: Apply, arity: int) -> None:
    name, found = syntax.name, len(syntax.args)
    if found == arity:
        return
    message = f"{name}: expected {arity} argument{'s' * (arity != 1)} but found {found}"
    if name in ("min", "max") and found == 1:
        help = f"to reduce over indices write the assignment {name}=!"
    elif name in ("min", "max", "fmin", "fmax") and found > 2:
        help = f"nest them: {name}({name}(a, b), c)"
    else:
        help = f"{name} takes {arity}"
    raise Fault("semantic-arity", message, help)


def _build_builtin(scope: Scope, syntax: Apply) -> Value:
    name, span = syntax.name, syntax.span
    args = [build_value(scope, arg) for arg in syntax.args]
    _require_arity(syntax, BUILTIN_ARITY[name])
    if name not in BUILTIN_OPERATORS:
        expansion = EXPANSIONS.get(name)
        help = f"write {expansion}" if expansion else "express it with the functions that the language reference lists"
        raise Fault("unsupported-builtin", f"the built-in function {name} is not available yet", help)
    if name == "stop_gradient":
        value = known(args[0])
        return Value(Call(name, (value.expr,), span), value.dtype)
    operands, dtype = _promote(*args, least=F32)
    warn_if_narrow(scope, syntax.args, dtype)
    if dtype.is_complex and name == "fabs":
        parts = tuple(Call(part, operands, span) for part in ("real", "imag"))
        return Value(Call("hypot", parts, span), dtype.part)
    if BUILTIN_OPERATORS[name] not in COMPLEX_OPERATORS:
        _require_real(name, dtype)
    return Value(Call(BUILTIN_OPERATORS[name], operands, span), dtype)


def _build_cast(scope: Scope, dtype: DType, syntax: SyntaxExpr, wide: bool) -> Value:
    literal, sign = split_sign(syntax)
    is_index = dtype in ((I32, I64) if wide else (I64,)) and is_index_expression(scope, syntax)
    is_number = dtype != BOOL and not dtype.is_complex and not (wide and is_index)
    if isinstance(literal, Number) and is_number and (dtype.is_float or not literal.is_float):
        # The literal itself in that type: double(0.1) is the double nearest to 0.1, int64(3000000000) needs 64 bits.
        return _read_literal(literal, dtype, sign)
    inner = known(build_value(scope, syntax, wide=is_index))
    if inner.dtype.is_complex and not dtype.is_complex:
        _require_real(spell_type(dtype), inner.dtype)
    return inner if is_index else Value(convert(inner, dtype), dtype)


def _build_opposite(scope: Scope, syntax: SyntaxExpr, wide: bool, span: Span) -> Value:
    if isinstance(syntax, Number) and not wide:
        return _build_number(syntax, sign=-1)
    inner = known(build_value(scope, syntax, wide))
    if wide and isinstance(inner.expr, Const):
        return Value(Const(-inner.expr.value, I64, span), I64)
    require_number(inner.dtype, syntax.span)
    return Value(Call("neg", (inner.expr,), span), inner.dtype)


def require_number(dtype: DType, span: Span) -> None:
    """Bools have no arithmetic of their own: what ``true + true`` should be is the user's to say."""
    if dtype == BOOL:
        help = "convert explicitly, as in int32(a < b), or use && || !"
        raise Fault("type-bool-arithmetic", "expected a number but found bool", help, span)


def _is_closed(left: Apply, whole: Apply) -> bool:
    """Whether the left side of an operator stands in parentheses."""
    between = whole.span.source.text[left.name_span.end : whole.name_span.start]
    return between.count(")") > between.count("(")


def _build_binary(scope: Scope, syntax: Apply, left: SyntaxExpr, right: SyntaxExpr, wide: bool) -> Value:
    op, span = syntax.name, syntax.span
    if op in LOGICAL:
        a, b = build_condition(scope, left), build_condition(scope, right)
        return Value(Call(LOGICAL[op], (_known_expr(a), _known_expr(b)), span), BOOL)
    if op in COMPARISONS and isinstance(left, Apply) and left.name in COMPARISONS and not _is_closed(left, syntax):
        text = span.source.text
        first, middle = text[span.start : left.name_span.end], text[left.name_span.end : syntax.name_span.start].strip()
        help = f"write {first} {middle} && {middle} {text[syntax.name_span.start : span.end]}"
        raise Fault("type-comparison-chain", "comparisons do not follow each other", help)
    is_exact = all(is_index_expression(scope, side) for side in (left, right)) if op in COMPARISONS else wide
    args, dtype = _promote(build_value(scope, left, is_exact), build_value(scope, right, is_exact))
    if op not in ("+", "-", "*", "/", "==", "!="):
        _require_real(op, dtype)
    warn_if_narrow(scope, (left, right), dtype)
    if op in COMPARISONS:
        return Value(Call(COMPARISONS[op], args, span), BOOL)
    require_number(dtype, span)
    if op == "/" and isinstance(left, Number) and isinstance(right, Number) and not wide:
        _warn_if_rounded(scope, left, right, span)
    name = "truediv" if op == "/" and (dtype.is_float or dtype.is_complex) else ARITHMETIC[op]
    return Value(Call(name, args, span), dtype)


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
        literal, _ = split_sign(operand)
        if not isinstance(literal, Number) or not literal.is_float:
            continue
        rounded = float(np.float32(literal.text))
        if rounded == float(literal.text):
            continue
        message = f"{literal.text} is a float, which is {rounded:.12g} beside a double"
        scope.reporter.warn("type-rounded-literal", message, literal.span, f"write double({literal.text})")
