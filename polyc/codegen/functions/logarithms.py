"""log, log2, log10, log1p, asinh, acosh and atanh.

x = 2^e (1 + f) with -1/4 <= f < 1/2.  log(1+f) is a polynomial in float32 and FreeBSD's s = f/(2+f) form in float64.
"""

from __future__ import annotations

import math

from polyc.codegen.functions.coefficients import LOW
from polyc.codegen.functions.floats import Math
from polyc.codegen.writer.builder import Val, int_val


def split_exponent(m: Math, x: Val) -> tuple[Val, Val]:
    """e and 1 + f.  Zero, infinity, NaN and x < 0 give anything; with AVX-512 e = -inf, e = inf, and NaN twice."""
    f, k = m.format, m.format.mantissa
    if m.target.has_masks:
        mantissa = m.call512("getmant", 1, ", i32 11", x)  # to [3/4, 3/2), NaN for negative numbers
        e = m.call512("getexp", 1, "", x)
        return m.where(m.is_less(mantissa, 1.0), m.add(e, 1.0), e), mantissa
    lost = k + 2.0
    tiny = m.is_less(x, 2.0 ** (1 - f.bias))
    normal = m.where(tiny, m.mul(x, 2.0**lost), x)
    low = f.int_of(0.75)
    moved = m.int_op("add", m.ints(normal), f.int_of(1.0) - low)
    mantissa = m.floats(m.int_op("add", m.int_op("and", moved, (1 << k) - 1), low))
    # The biased exponent as a float: in the low bits of 2^mantissa.
    biased = m.floats(m.int_op("or", m.int_op("lshr", moved, k), f.int_of(2.0**k)))
    return m.sub(biased, m.where(tiny, 2.0**k + f.bias + lost, 2.0**k + f.bias)), mantissa


def _tail(m: Math, f: Val) -> Val:
    """log(1+f) - f."""
    square = m.mul(f, f)
    if m.is_f32:
        return m.fma(m.mul(square, f), m.horner(f, m.terms("log")), m.mul(square, -0.5))
    s = m.div(f, m.add(f, 2.0))
    z = m.mul(s, s)
    half = m.mul(square, 0.5)
    return m.sub(m.mul(s, m.fma(z, m.horner(z, m.terms("log_ratio")), half)), half)


def _natural(m: Math, e: Val, f: Val) -> Val:
    return m.fma(e, m.format.ln2_high, m.add(f, m.fma(e, m.format.ln2_low, _tail(m, f))))


def _at_ends(m: Math, x: Val, result: Val) -> Val:
    """The logarithm's values at and below zero, at infinity and of NaN.  With AVX-512 they come out of `split_exponent`."""
    if m.target.has_masks:
        return result
    infinity = float("inf")
    result = m.where(m.is_equal(x, infinity), infinity, result)
    result = m.where(m.fn.compare("fcmp ult", x, m.val(0.0)), float("nan"), result)
    return m.where(m.is_equal(x, 0.0), -infinity, result)


def emit_log(m: Math, x: Val) -> Val:
    e, mantissa = split_exponent(m, x)
    return _at_ends(m, x, _natural(m, e, m.sub(mantissa, 1.0)))


def _scaled(m: Math, f: Val, high: float, low: float) -> Val:
    """log(1+f) times the constant, the product with f exact before it is rounded."""
    if m.is_f32:
        high, low = m.format.round(high), high - m.format.round(high)
    p, rest = m.product(f, high)
    return m.add(p, m.fma(_tail(m, f), high, m.fma(f, low, rest)))


def emit_log2(m: Math, x: Val) -> Val:
    e, mantissa = split_exponent(m, x)
    return _at_ends(m, x, m.add(e, _scaled(m, m.sub(mantissa, 1.0), math.log2(math.e), LOW["log2(e)"])))


def emit_log10(m: Math, x: Val) -> Val:
    e, mantissa = split_exponent(m, x)
    scaled = _scaled(m, m.sub(mantissa, 1.0), math.log10(math.e), LOW["log10(e)"])
    return _at_ends(m, x, m.fma(e, m.format.log10_2_high, m.fma(e, m.format.log10_2_low, scaled)))


def emit_log1p(m: Math, x: Val) -> Val:
    """log(u) with u = 1 + x, and what the sum lost added to f: near zero f is x itself."""
    u = m.add(x, 1.0)
    lost = m.sub(m.at_most(x, 1.0), m.sub(u, m.at_least(x, 1.0)))
    e, mantissa = split_exponent(m, u)
    exponent = m.rounded_int(m.add(m.at_most(e, m.format.bias - 1.0), m.format.magic))
    inverse = m.power_of_two(m.fn.binary("sub", int_val(0, m.format.int_type), exponent))
    result = _at_ends(m, u, _natural(m, e, m.fma(lost, inverse, m.sub(mantissa, 1.0))))
    # At infinity `lost` is NaN, and at -0 the sum has no sign.
    return m.copysign(m.where(m.is_equal(x, float("inf")), x, result), x)


def emit_asinh(m: Math, x: Val) -> Val:
    """log1p(t + t^2 / (1 + sqrt(t^2 + 1))) with t = |x|; where t^2 is far above 1, log(2t)."""
    t = m.abs(x)
    large = m.is_less(2.0 ** (m.format.mantissa + 3), t)
    square = m.mul(t, t)
    u = m.add(t, m.div(square, m.add(m.sqrt(m.add(square, 1.0)), 1.0)))
    result = m.add(emit_log1p(m, m.where(large, t, u)), m.where(large, math.log(2), 0.0))
    return m.copysign(result, x)


def emit_acosh(m: Math, x: Val) -> Val:
    """log1p(t + sqrt(2t + t^2)) with t = x - 1; where x is large, log(2x)."""
    large = m.is_less(2.0 ** (m.format.mantissa + 3), x)
    t = m.sub(x, 1.0)
    u = m.add(t, m.sqrt(m.fma(t, t, m.mul(t, 2.0))))
    result = m.add(emit_log1p(m, m.where(large, x, u)), m.where(large, math.log(2), 0.0))
    return m.where(m.is_less(x, 1.0), float("nan"), result)


def emit_atanh(m: Math, x: Val) -> Val:
    """log1p(2t / (1 - t)) / 2 with t = |x|."""
    t = m.abs(x)
    return m.copysign(m.mul(emit_log1p(m, m.div(m.mul(t, 2.0), m.sub(1.0, t))), 0.5), x)
