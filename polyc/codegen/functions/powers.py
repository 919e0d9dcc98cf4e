"""Powers: 2^(y log2 |x|) with the logarithm as a sum of two numbers, and every special case of C99.

The result's relative error is the absolute one of the exponent, which has up to eleven bits before the point: the logarithm
is wanted to that many bits more than the format has (P. Tang; FreeBSD's e_pow.c goes the same way).
"""

from __future__ import annotations

from polyc.codegen.functions.exponentials import round_to_whole, scale
from polyc.codegen.functions.floats import Math
from polyc.codegen.functions.logarithms import split_exponent
from polyc.codegen.writer.builder import Function, Val, int_val
from polyc.codegen.writer.choices import define_choice, is_defined
from polyc.records import replace

_TWO_LOG2_E = {"float": (2.885390043258667, 3.851925982253235e-08), "double": (2.8853900817779268, 4.0710547481862066e-17)}
_THIRD = {"float": (1 / 3, 0.0), "double": (1 / 3, 1.850371707708594e-17)}


USUAL = 2.0**14
"""Exponents below are done in line where bases are positive numbers, or 0 to a positive power; a function of its own
does all others."""


def emit_power(m: Math, x: Val, y: Val) -> Val:
    """x to the power y."""
    fn = m.fn
    x, y = fn.unify(x, y)
    name = f"polyc.pow.{x.type}.{x.lanes}"
    if not is_defined(fn, name):
        _define(m, name, x)
    return fn.pure(f'call {x.full_type} @"{name}"({x}, {y})', x.type, x.lanes)


def _define(m: Math, name: str, like: Val) -> None:
    x, y = Val("%x", like.type, like.lanes), Val("%y", like.type, like.lanes)

    def fast(fn: Function) -> tuple[Val, Val]:
        inner = replace(m, fn=fn)
        # As integers numbers without a sign lie below infinity: one comparison.  Positive powers of zero are zero.
        infinity = int_val(m.format.int_of(float("inf")), m.format.int_type, like.lanes)
        finite = fn.compare("icmp ult", inner.ints(x), infinity)
        usual = fn.binary("and", finite, inner.is_less(inner.abs(y), USUAL))
        is_zero = inner.is_equal(x, 0.0)
        usual = fn.binary("and", usual, fn.binary("or", inner.is_less(0.0, y), fn.not_(is_zero)))
        return inner.where(is_zero, 0.0, _magnitude(inner, x, y, is_usual=True)), usual

    define_choice(m.fn, name, (x, y), fast, lambda fn: _any_power(replace(m, fn=fn), x, y))


def _any_power(m: Math, x: Val, y: Val) -> Val:
    """x to the power y, for any operands."""
    fn = m.fn
    t = m.abs(x)
    # The logarithm of a number that is not 1 is at least half an ulp: beyond, results are 0, 1 or infinite.
    bound = 2.0**40 if m.is_f32 else 2.0**70
    power = _magnitude(m, t, m.clamp(y, -bound, bound))
    # 0 and infinity have no logarithm; NaN is lost where instructions do not keep it.
    infinity = float("inf")
    grows = fn.binary("xor", m.is_less(0.0, y), m.is_less(t, 1.0))
    at_end = fn.binary("or", m.is_equal(t, 0.0), m.is_equal(t, infinity))
    power = m.where(at_end, m.where(grows, infinity, 0.0), power)
    power = m.where(fn.compare("fcmp uno", x, y), float("nan"), power)
    whole = m.is_equal(fn.intrinsic("rint", y), y)
    half = m.mul(y, 0.5)
    odd = fn.binary("and", whole, fn.compare("fcmp une", fn.intrinsic("rint", half), half))
    power = m.where(odd, m.copysign(power, x), power)
    # (-inf)^y and (-0)^y have values for every y.
    negative = fn.binary("and", m.is_less(x, 0.0), m.is_less(-infinity, x))
    power = m.where(fn.binary("and", negative, fn.not_(whole)), float("nan"), power)
    return m.where(fn.binary("or", m.is_equal(x, 1.0), m.is_equal(y, 0.0)), 1.0, power)


def _magnitude(m: Math, t: Val, y: Val, is_usual: bool = False) -> Val:
    """t^y for 0 < t < inf; `is_usual`: |y| < `USUAL`, which leaves the product of y and the logarithm room for its fraction."""
    high, low = _log2(m, t)
    product, rest = m.product(y, high)
    rest, exponent = m.fma(y, low, rest), product
    if not (is_usual and m.target.has_masks):
        # Only where the product is far out of range is the rest larger than that.
        limit = 160.0 if m.is_f32 else 1100.0
        rest, exponent = m.clamp(rest, -0.5, 0.5), m.clamp(product, -limit, limit)
    n = round_to_whole(m, exponent)
    r = m.add(m.sub(exponent, n.value), rest)
    return scale(m, m.fma(r, m.horner(r, m.terms("exp2")), 1.0), n)


def _log2(m: Math, t: Val) -> tuple[Val, Val]:
    """log2 t as a sum of two.  t = 2^e (1 + f), s = f / (2 + f): log2(1 + f) = 2 log2(e) s (1 + s^2/3 + s^4/5 + …)."""
    e, mantissa = split_exponent(m, t)
    f = m.sub(mantissa, 1.0)
    d = m.add(f, 2.0)
    d_low = m.sub(f, m.sub(d, 2.0))
    inverse = m.div(1.0, d)
    s = m.mul(f, inverse)
    if m.target.has_fma:
        rest = m.fma(m.neg(s), d_low, m.fma(m.neg(s), d, f))
    else:
        p, p_low = m.product(s, d)
        rest = m.sub(m.sub(f, p), m.fma(s, d_low, p_low))
    s_low = m.mul(rest, inverse)
    third, third_low = _THIRD[m.format.type]
    z, z_low = m.product(s, s)
    z_low = m.fma(m.add(s, s), s_low, z_low)
    if m.is_f32:
        v = m.fma(z, m.horner(z, m.terms("pow_ratio")), third)
        w, w_low = m.product(z, v)
        w_low = m.fma(z_low, v, w_low)
    else:
        u = m.mul(z, m.horner(z, m.terms("pow_ratio")))
        v = m.add(u, third)
        v_low = m.add(m.sub(u, m.sub(v, third)), third_low)
        w, w_low = m.product(z, v)
        w_low = m.add(w_low, m.fma(z, v_low, m.mul(z_low, v)))
    q, q_low = m.product(s, w)
    q_low = m.fma(s, w_low, q_low)
    h = m.add(s, q)
    h_low = m.add(m.add(m.sub(q, m.sub(h, s)), q_low), m.fma(s_low, w, s_low))
    factor, factor_low = _TWO_LOG2_E[m.format.type]
    a, a_low = m.product(h, factor)
    a_low = m.add(a_low, m.fma(h, factor_low, m.mul(h_low, factor)))
    high = m.add(e, a)
    return high, m.add(m.sub(a, m.sub(high, e)), a_low)
