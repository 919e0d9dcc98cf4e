"""The gamma functions in float32, by Stirling's series in float64.

There absolute errors of a few 10^-15 are below the last place of every float32 result: near the zeros at 1, at 2 and between
the poles too, which no float32 comes closer to than 10^-8.
"""

from __future__ import annotations

import math

from polyc.codegen.functions.circular import emit_sinpi
from polyc.codegen.functions.coefficients import SERIES
from polyc.codegen.functions.exponentials import emit_exp
from polyc.codegen.functions.floats import F64, Math
from polyc.codegen.functions.logarithms import emit_log
from polyc.codegen.writer.builder import Val

_SHIFT = 8
"""Below it the argument is moved up by as much: the series is exact enough from there on."""


def emit_lgamma(m: Math, x: Val) -> Val:
    """log |gamma(x)|: infinite at 0 and at negative integers."""
    return m.fn.convert("fptrunc", _log_gamma(Math(m.fn, m.target, F64), m.fn.convert("fpext", x, "double")), "float")


def emit_tgamma(m: Math, x: Val) -> Val:
    """gamma(x): infinite at 0, NaN at negative integers and -inf."""
    fn, wide = m.fn, Math(m.fn, m.target, F64)
    t = fn.convert("fpext", x, "double")
    size = emit_exp(wide, _log_gamma(wide, t))
    floor = fn.intrinsic("floor", t)
    half = wide.mul(floor, 0.5)
    is_odd = fn.compare("fcmp une", fn.intrinsic("floor", half), half)
    value = wide.where(fn.binary("and", wide.is_less(t, 0.0), is_odd), wide.neg(size), size)
    value = wide.where(wide.is_equal(t, 0.0), wide.copysign(size, t), value)
    is_pole = fn.binary("and", wide.is_less(t, 0.0), wide.is_equal(floor, t))
    return fn.convert("fptrunc", wide.where(is_pole, math.nan, value), "float")


def _log_gamma(m: Math, x: Val) -> Val:
    """By reflection below 0: gamma(x) gamma(1 - x) = pi / sin(pi x)."""
    is_negative = m.is_less(x, 0.0)
    z = m.where(is_negative, m.sub(1.0, x), x)
    is_small = m.is_less(z, _SHIFT)
    y = m.where(is_small, m.add(z, _SHIFT), z)
    product = z
    for k in range(1, _SHIFT):
        product = m.mul(product, m.add(z, float(k)))
    product = m.where(is_small, product, 1.0)
    inverse = m.div(1.0, y)
    series = m.mul(inverse, m.chain(m.mul(inverse, inverse), SERIES["stirling"]))
    stirling = m.add(m.fma(m.sub(y, 0.5), emit_log(m, y), m.sub(math.log(2 * math.pi) / 2, y)), series)
    sine = m.abs(emit_sinpi(m, m.where(is_negative, x, 0.5)))
    factor = emit_log(m, m.where(is_negative, m.div(m.mul(product, math.pi), sine), product))
    result = m.where(is_negative, m.sub(factor, stirling), m.sub(stirling, factor))
    is_zero = m.fn.binary("or", m.is_equal(x, 1.0), m.is_equal(x, 2.0))
    result = m.where(is_zero, 0.0, result)
    return m.where(m.is_equal(m.abs(x), math.inf), math.inf, result)
