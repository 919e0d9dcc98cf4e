"""Functions of complex numbers as expressions over their real and imaginary parts.

Formulas are those of the C99 rationale and of W. Kahan, "Branch cuts for complex elementary functions" (1987), with its branch
cuts, which are NumPy's.
"""

from __future__ import annotations

import math

from polyc.ir.expr import Call, Const, Expr, Select
from polyc.ir.types import DType

Pair = tuple[Expr, Expr]
"""Real and imaginary part."""


def apply_complex(op: str, args: list[Pair], part: DType) -> Pair:
    """A function of one argument, or ``pow`` of two, whose parts have the type `part`."""
    match op:
        case "exp":
            return _exponential(args[0], part)
        case "exp2":
            return _exponential(_scale(args[0], math.log(2), part), part)
        case "log":
            return _logarithm(args[0], part)
        case "log2":
            return _scale(_logarithm(args[0], part), 1 / math.log(2), part)
        case "log10":
            return _scale(_logarithm(args[0], part), 1 / math.log(10), part)
        case "sqrt":
            return _root(args[0], part)
        case "sinh":
            return _hyperbolic("sinh", "cosh", args[0], part)
        case "cosh":
            return _hyperbolic("cosh", "sinh", args[0], part)
        case "tanh":
            return _tangent(args[0], part)
        case "sin":  # -i sinh(iz)
            re, im = _hyperbolic("sinh", "cosh", _turn(args[0]), part)
            return im, _call("neg", re)
        case "cos":
            return _hyperbolic("cosh", "sinh", _turn(args[0]), part)
        case "tan":
            re, im = _tangent(_turn(args[0]), part)
            return im, _call("neg", re)
        case "pow":
            return _power(args[0], args[1], part)
    raise AssertionError(f"{op} of complex numbers")


def _call(op: str, *args: Expr) -> Expr:
    return Call(op, args, args[0].span)


def _turn(z: Pair) -> Pair:
    """``i * z``."""
    return _call("neg", z[1]), z[0]


def _scale(z: Pair, factor: float, part: DType) -> Pair:
    return _call("mul", z[0], Const(factor, part)), _call("mul", z[1], Const(factor, part))


def _is(value: Expr, number: float, part: DType) -> Expr:
    return _call("eq", value, Const(number, part))


def _is_infinite(value: Expr, part: DType) -> Expr:
    return _is(_call("abs", value), math.inf, part)


def _unless_known(known: Expr, value: Expr, wave: Expr, product: Expr) -> Expr:
    """`product`, of which `wave` is a factor; `value` where an angle without end leaves that undefined and `known` holds."""
    return Select(_call("and", _call("ne", wave, wave), known), value, product, value.span)


def _times_angle(size: Expr, wave: Expr, angle: Expr, part: DType) -> Expr:
    """``size * sin(angle)``; without an angle there is nothing, even of infinity."""
    return Select(_is(angle, 0.0, part), angle, _call("mul", size, wave), angle.span)


def is_zero(expr: Expr) -> bool:
    return isinstance(expr, Const) and expr.value == 0


def multiply_pairs(a: Pair, b: Pair) -> Pair:
    """``a * b``; a factor without an imaginary part (a number that was real) scales."""
    for (re, im), (x, y) in ((a, b), (b, a)):
        if is_zero(y):
            return Call("mul", (re, x), re.span), Call("mul", (im, x), im.span)
    (re, im), (x, y) = a, b
    span = re.span
    real = Call("sub", (Call("mul", (re, x), span), Call("mul", (im, y), span)), span)
    return real, Call("add", (Call("mul", (re, y), span), Call("mul", (im, x), span)), span)


def divide_pairs(a: Pair, b: Pair, part: DType) -> Pair:
    """``a / b`` as NumPy computes it (R. L. Smith, Algorithm 116, CACM 5, 1962), so that nothing overflows on the way."""
    (re, im), (x, y) = a, b
    span = re.span
    if is_zero(y):
        return Call("truediv", (re, x), span), Call("truediv", (im, x), span)

    def call(op: str, *args: Expr) -> Expr:
        return Call(op, args, span)

    wide = call("ge", call("abs", x), call("abs", y))
    large, small = Select(wide, x, y, span), Select(wide, y, x, span)
    nothing = call("eq", large, Const(0.0, part))
    ratio = Select(nothing, Const(0.0, part), call("truediv", small, large), span)
    scale = call("truediv", Const(1.0, part), call("add", large, call("mul", small, ratio)))
    first, second = Select(wide, re, im, span), Select(wide, im, re, span)
    real = call("mul", call("add", first, call("mul", second, ratio)), scale)
    cross = call("sub", call("mul", first, ratio), second)
    imaginary = call("mul", Select(wide, call("neg", cross), cross, span), scale)
    by_zero = (call("truediv", re, call("abs", x)), call("truediv", im, call("abs", x)))
    return Select(nothing, by_zero[0], real, span), Select(nothing, by_zero[1], imaginary, span)


def _exponential(z: Pair, part: DType) -> Pair:
    re, im = z
    size = Call("exp", (re,), re.span)
    if is_zero(im):
        return size, im
    # Without an imaginary part there is no angle: infinity times sin(0) would be NaN.
    cosine, sine = _call("cos", im), _call("sin", im)
    real = Select(_is(im, 0.0, part), size, _call("mul", size, cosine), re.span)
    nothing = _is(re, -math.inf, part)
    return (
        _unless_known(_is_infinite(re, part), size, cosine, real),
        _unless_known(nothing, _call("copysign", size, im), sine, _times_angle(size, sine, im, part)),
    )


def _logarithm(z: Pair, part: DType) -> Pair:
    """The real part from ``|z|² - 1`` where that is exact enough and z is near the unit circle."""
    re, im = z
    x, y = _call("abs", re), _call("abs", im)
    large, small = _call("max", x, y), _call("min", x, y)
    one, half = Const(1.0, part), Const(0.5, part)
    beyond = _call("add", _call("mul", _call("sub", large, one), _call("add", large, one)), _call("mul", small, small))
    near = _call("and", _call("gt", large, half), _call("lt", large, Const(2.0, part)))
    size = Select(near, _call("mul", half, _call("log1p", beyond)), _call("log", _call("hypot", re, im)), re.span)
    return size, _call("atan2", im, re)


def _root(z: Pair, part: DType) -> Pair:
    re, im = z
    half = Const(0.5, part)
    total = _call("add", _call("mul", _call("abs", re), half), _call("mul", _call("hypot", re, im), half))
    root = _call("sqrt", total)
    other = _call("truediv", _call("mul", _call("abs", im), half), root)
    is_right = _call("ge", re, Const(0.0, part))
    nothing = _call("eq", total, Const(0.0, part))
    infinite = _call("eq", _call("abs", im), Const(math.inf, part))
    right = Select(is_right, root, other, re.span)
    up = Select(is_right, other, root, re.span)
    real = Select(infinite, _call("abs", im), Select(nothing, total, right))
    imaginary = Select(_call("or", infinite, nothing), im, _call("copysign", up, im))
    return real, imaginary


def _hyperbolic(first: str, second: str, z: Pair, part: DType) -> Pair:
    """``first(x) cos(y) + i second(x) sin(y)``: both hyperbolic functions."""
    re, im = z
    one, other, cosine, sine = _call(first, re), _call(second, re), _call("cos", im), _call("sin", im)
    is_zero_or_infinite = _call("or", _is(one, 0.0, part), _is_infinite(re, part))
    return (
        _unless_known(is_zero_or_infinite, one, cosine, _call("mul", one, cosine)),
        _unless_known(_is(other, 0.0, part), other, sine, _times_angle(other, sine, im, part)),
    )


def _tangent(z: Pair, part: DType) -> Pair:
    """``tanh``, from the tangents of the parts, which do not overflow."""
    one = Const(1.0, part)
    t, s = _call("tanh", z[0]), _call("tan", z[1])
    product = _call("mul", t, s)
    below = _call("add", one, _call("mul", product, product))
    rest = _call("mul", _call("sub", one, t), _call("add", one, t))
    real = _call("truediv", _call("mul", t, _call("add", one, _call("mul", s, s))), below)
    imaginary = _call("truediv", _call("mul", s, rest), below)
    is_infinite = _is_infinite(z[0], part)
    return (
        _unless_known(_call("or", _is(t, 0.0, part), is_infinite), t, s, real),
        _unless_known(
            is_infinite, _call("copysign", Const(0.0, part), z[1]), s, Select(_is(s, 0.0, part), s, imaginary, s.span)
        ),
    )


def _power(z: Pair, w: Pair, part: DType) -> Pair:
    """Small whole powers by products, others by logarithms; any number to the power 0 is 1, and 0 to others is 0 or, where the
    real part of these is not positive, undefined."""
    exponent = w[0].value if isinstance(w[0], Const) and is_zero(w[1]) else None
    if exponent in (1, 2, 3, 4):
        square = multiply_pairs(z, z)
        return {1: z, 2: square, 3: multiply_pairs(square, z), 4: multiply_pairs(square, square)}[int(exponent)]
    zero, one, undefined = Const(0.0, part), Const(1.0, part), Const(math.nan, part)
    found = _exponential(multiply_pairs(w, _logarithm(z, part)), part)
    from_nothing = _call("and", _call("eq", z[0], zero), _call("eq", z[1], zero))
    to_nothing = _call("and", _call("eq", w[0], zero), _call("eq", w[1], zero))
    nothing = Select(_call("gt", w[0], zero), zero, undefined)
    real = Select(to_nothing, one, Select(from_nothing, nothing, found[0]))
    imaginary = Select(to_nothing, zero, Select(from_nothing, nothing, found[1]))
    return real, imaginary
