"""erf and erfc."""

from __future__ import annotations

from polyc.codegen.functions.coefficients import SERIES
from polyc.codegen.functions.exponentials import emit_exp, emit_exp_of_sum
from polyc.codegen.functions.floats import Math
from polyc.codegen.writer.builder import Val


def _small(m: Math, x: Val) -> Val:
    return m.fma(m.horner(m.mul(x, x), m.terms("erf")), x, x)


def emit_erf(m: Math, x: Val) -> Val:
    if m.is_f32:
        t, edge = m.at_most(m.abs(x), 4.0), 0.927734375  # erf(4) rounds to 1
        below = emit_exp(m, m.fma(m.horner(t, SERIES["erf exponent"]), t, m.neg(t)))
    else:
        t, edge = m.at_most(m.abs(x), 6.0), 1.0  # erf(6) rounds to 1
        z = m.div(m.sub(t, 4.0), m.add(t, 4.0))
        below = m.mul(emit_exp(m, m.neg(m.mul(t, t))), m.horner(z, SERIES["erf scaled"]))
    return m.where(m.is_less(edge, t), m.copysign(m.sub(1.0, below), x), _small(m, x))


def emit_erfc(m: Math, x: Val) -> Val:
    """e^(-t^2) times a polynomial with t = |x|, its square exact; 2 less that for negative x, and 1 - erf x near zero."""
    t = m.at_most(m.abs(x), 10.1 if m.is_f32 else 27.3)  # zero from there on
    square, rest = m.product(t, t)
    inverse = m.div(1.0, m.add(t, 4.0))
    z = m.mul(m.sub(t, 4.0), inverse)
    # What the quotient lost: z is taken to such a power that its last bit would show.
    high, low = m.product(z, t)
    lost = m.sub(m.sub(m.fma(m.add(z, 1.0), -4.0, t), high), low)
    z = m.fma(lost, inverse, z)
    scaled = m.chain(z, m.terms("erfc"))
    inverse = m.div(1.0, m.fma(t, 2.0, 1.0))
    factor = m.mul(scaled, inverse)
    # The same for the quotient by 1 + 2t: what is left of the dividend, less 2t and then 1 times it.
    high, low = m.product(m.add(factor, factor), t)
    lost = m.sub(m.sub(m.sub(scaled, high), low), factor)
    factor = m.fma(lost, inverse, factor)
    large = emit_exp_of_sum(m, m.neg(square), m.neg(rest), factor)
    large = m.where(m.is_less(x, 0.0), m.sub(2.0, large), large)
    return m.where(m.is_less(0.65, t), large, m.sub(1.0, _small(m, x)))
