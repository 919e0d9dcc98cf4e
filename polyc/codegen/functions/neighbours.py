"""nextafter and logb, which take numbers apart."""

from __future__ import annotations

from polyc.codegen.functions.floats import Math
from polyc.codegen.functions.logarithms import split_exponent
from polyc.codegen.writer.builder import Val


def emit_nextafter(m: Math, x: Val, y: Val) -> Val:
    """The number next to x towards y: as integers, neighbours of one sign differ by one."""
    fn = m.fn
    x, y = fn.unify(x, y)
    away = fn.compare("icmp eq", m.is_less(x, y), m.is_less(0.0, x))
    bits = m.ints(x)
    moved = m.floats(fn.select(away, m.int_op("add", bits, 1), m.int_op("sub", bits, 1)))
    smallest = m.floats(m.int_op("or", m.int_op("and", m.ints(y), 1 << (m.format.bits - 1)), 1))
    moved = m.where(m.is_equal(x, 0.0), smallest, moved)
    moved = m.where(m.is_equal(x, y), y, moved)
    return m.where(fn.compare("fcmp uno", x, y), float("nan"), moved)


def emit_logb(m: Math, x: Val) -> Val:
    """The exponent of x; -inf for 0, inf for infinities."""
    t = m.abs(x)
    if m.target.has_masks:
        return m.call512("getexp", 1, "", t)
    e, mantissa = split_exponent(m, t)
    e = m.where(m.is_less(mantissa, 1.0), m.sub(e, 1.0), e)
    e = m.where(m.is_equal(t, 0.0), -float("inf"), e)
    return m.where(m.is_less(t, float("inf")), e, t)
