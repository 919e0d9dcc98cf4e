"""Quotients by a divisor that a loop over vectors does not change: two or three multiplications instead of a division each.

Before: ``x / d``, for every vector one division, which takes as long as ten multiplications.
After: ``fma(x, h, x * l)``, where ``h + l`` is 1 / d to about twice the precision (Brisebarre, Muller and Raina, Accelerating
correctly rounded floating-point division when the divisor is known in advance, IEEE Transactions on Computers 53, 2004).

That is the rounded quotient, but for a few pairs of operands that lie as near as can be to the middle between two numbers, and
for results near the smallest numbers, whose last bit may differ.  `h` and `l` have the same sign and `l` is never zero, so that
infinite dividends stay infinite.  Divisors near the ends of the range are scaled together with the dividend: what then
overflows or vanishes does so in the quotient as well.
"""

from __future__ import annotations

import struct
from fractions import Fraction
from math import isfinite

from polyc.codegen.writer.builder import Function, Val, float_val, int_val, is_number
from polyc.machine import Machine

MINIMUM_VECTORS = {"float": 48, "double": 8}
"""Fewer quotients do not pay for the parts of the reciprocal."""

_LIMIT = {"float": 100, "double": 900}
"""Divisors between two to this power and its reciprocal need no scaling ..."""
_SCALE = {"float": 64, "double": 512}
"""... and others are scaled by this power of two."""


Parts = tuple[Val, Val, Val]
"""What a dividend is to be multiplied by first, and the two parts of the reciprocal of the divisor, times that."""


def emit_quotient(fn: Function, target: Machine, dividend: Val, divisor: Val, n_vectors: int) -> Val:
    """The quotient of floating-point values.  `n_vectors`: a divisor without lanes is the same for so many vectors."""
    if target.has_fma and dividend.lanes > 1 and divisor.lanes == 1:
        if divisor.is_const:
            parts = split_reciprocal(divisor)
            if parts is not None:
                return _multiply(fn, dividend, *parts)
        elif n_vectors >= MINIMUM_VECTORS[divisor.type]:
            return multiply_parts(fn, dividend, emit_parts(fn, fn.splat(divisor, dividend.lanes)))
    return fn.binary("fdiv", dividend, divisor)


def multiply_parts(fn: Function, dividend: Val, parts: Parts) -> Val:
    """The quotient of a vector by a divisor of these parts."""
    scale, high, low = parts
    return _multiply(fn, fn.binary("fmul", dividend, scale), high, low)


def _multiply(fn: Function, dividend: Val, high: Val, low: Val) -> Val:
    return fn.intrinsic("fma", dividend, high, fn.binary("fmul", dividend, low))


def split_reciprocal(divisor: Val) -> tuple[Val, Val] | None:
    """Two numbers whose sum is the reciprocal of a literal; None of a power of two, and of what would have to be scaled."""
    type = divisor.type
    value = struct.unpack(">d", bytes.fromhex(divisor.ref[2:]))[0] if is_number(divisor) else 0.0
    number = Fraction(value) if isfinite(value) else Fraction(0)
    numerator, limit = abs(number.numerator), 2 ** _LIMIT[type]
    if numerator & (numerator - 1) == 0 or not Fraction(1, limit) <= abs(number) <= limit:
        return None
    nearest = _round(1 / number, type)
    high = nearest if abs(nearest) < abs(1 / number) else _below(nearest, type)
    return float_val(float(high), type), float_val(float(1 / number - high), type)


def _round(value: Fraction, type: str) -> Fraction:
    return Fraction(struct.unpack("f", struct.pack("f", float(value)))[0]) if type == "float" else Fraction(float(value))


def _below(value: Fraction, type: str) -> Fraction:
    """The next number towards zero."""
    form, bits = ("f", "I") if type == "float" else ("d", "Q")
    return Fraction(struct.unpack(form, struct.pack(bits, struct.unpack(bits, struct.pack(form, float(value)))[0] - 1))[0])


def emit_parts(fn: Function, divisor: Val) -> Parts:
    """Those of a vector of divisors."""
    type, lanes = divisor.type, divisor.lanes
    bits = "i32" if type == "float" else "i64"

    def number(value: float) -> Val:
        return float_val(value, type)

    size = fn.intrinsic("fabs", divisor)
    limit, power = 2.0 ** _LIMIT[type], 2.0 ** _SCALE[type]
    is_huge, is_tiny = fn.compare("fcmp ogt", size, number(limit)), fn.compare("fcmp olt", size, number(1 / limit))
    scale = fn.select(is_huge, number(1 / power), fn.select(is_tiny, number(power), number(1.0)))
    scaled = fn.binary("fmul", divisor, scale)
    negated = fn.pure(f"fneg {scaled}", type, lanes)
    nearest = fn.binary("fdiv", number(1.0), scaled)
    # A number below the reciprocal misses something of its sign.
    below = fn.bitcast(fn.binary("sub", fn.bitcast(nearest, bits), int_val(1, bits)), type)
    missing = fn.binary("fmul", fn.intrinsic("fma", negated, below, number(1.0)), below)
    # Of zero and infinity the product with the reciprocal is not a number: it is itself both parts.
    test = fn.binary("fmul", negated, nearest)
    is_number = fn.compare("fcmp ord", test, test)
    return scale, fn.select(is_number, below, nearest), fn.select(is_number, missing, nearest)
