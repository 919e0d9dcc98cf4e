"""exp, exp2, exp10, expm1, sinh, cosh, tanh, sigmoid: e^r near zero, scaled by a power of two (Cody and Waite)."""

from __future__ import annotations

import math

from polyc.codegen.functions.coefficients import LOW
from polyc.codegen.functions.floats import F32, Format, Math
from polyc.codegen.writer.builder import Val, int_val
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer below 2 * bias in size: as a number, and in the low bits of integers to which 2 * bias was added.

    These halved are the exponent of a power of two, of half as many twos, and what is left to the whole is another one."""

    value: Val
    bits: Val


def _range(f: Format) -> tuple[float, float]:
    """Beyond these e^x is zero or infinite, whatever is rounded on the way."""
    return (-104.0, 89.0) if f is F32 else (-746.0, 710.0)


def round_to_whole(m: Math, x: Val, unit: float = 1.0) -> Whole:
    """The integer next to `x` times `unit`, which is below 2 * bias in size."""
    magic = m.format.magic + 2 * m.format.bias
    shifted = m.add(x, magic) if unit == 1.0 else m.fma(x, unit, magic)
    return Whole(m.sub(shifted, magic), m.ints(shifted))


def _reduce(m: Math, x: Val) -> tuple[Whole, Val]:
    """x = n ln 2 + r: n, and r with |r| <= ln(2)/2."""
    n = round_to_whole(m, x, math.log2(math.e))
    return n, m.fma(n.value, -m.format.ln2_low, m.fma(n.value, -m.format.ln2_high, x))


def _near_zero(m: Math, r: Val) -> Val:
    """e^r for |r| <= ln(2)/2."""
    return m.chain(r, (1.0, 1.0, *m.terms("exp"))) if m.is_f32 else m.add(_minus_one(m, r), 1.0)


def emit_exp(m: Math, x: Val, is_bounded: bool = False) -> Val:
    """e^x; `is_bounded`: no x is above 40."""
    low, high = _range(m.format)
    if m.is_f32 and m.target.has_masks:
        return _exp_by_table(m, m.at_least(x, low))
    x = m.at_least(x if is_bounded else m.at_most(x, high), low)
    if m.is_f32 and m.target.has_register_tables:
        return _exp_by_eighths(m, x, is_bounded)
    n, r = _reduce(m, x)
    return scale(m, _near_zero(m, r), n)


def emit_exp_of_sum(m: Math, x: Val, rest: Val, factor: Val) -> Val:
    """factor * e^(x + rest), `rest` far below 1, the product rounded before it is scaled."""
    low, high = _range(m.format)
    n, r = _reduce(m, m.clamp(x, low, high))
    return scale(m, m.mul(_near_zero(m, m.add(r, rest)), factor), n)


def _exp_by_table(m: Math, x: Val) -> Val:
    """T e^r 2^n with T = 2^(j/32), j from the table in two registers: a polynomial of two terms is enough.

    scalef rounds the exponent down, so n + j/32 need not be taken apart, and gives e^inf and large x their values."""
    magic = m.format.magic / 32
    shifted = m.fma(x, math.log2(math.e), magic)
    n = m.sub(shifted, magic)
    r = m.fma(n, -m.format.ln2_low, m.fma(n, -m.format.ln2_high, x))
    table = [m.format.round(2.0 ** (j / 32)) for j in range(32)]
    words = [", ".join(f"float {m.val(t).ref}" for t in half) for half in (table[:16], table[16:])]
    full = "<16 x float>"
    callee = m.fn.module.declare("llvm.x86.avx512.vpermi2var.ps.512", full, [full, "<16 x i32>", full])

    def look_up(v: list[Val]) -> Val:
        return m.fn.pure(f"call {full} {callee}({full} <{words[0]}>, {v[0]}, {full} <{words[1]}>)", "float", 16)

    t = m.in_registers(look_up, m.ints(shifted), width=16)
    p = m.mul(m.horner(r, m.terms("exp_fine")), r)
    return m.call512("scalef", 2, "", m.fma(t, p, t), n)


def _exp_by_eighths(m: Math, x: Val, is_bounded: bool) -> Val:
    """T e^r 2^n with T = 2^(j/8), j from the table in a register.

    2^n is in part a number that is added to the exponent of T, and in part a factor: T 2^(n - s) and 2^s are normal numbers
    for s = 65 where n >= 0, else s = -63, and that product overflows to infinity and underflows gradually."""
    f = m.format
    magic = f.magic / 8 + 256
    shifted = m.fma(x, math.log2(math.e), magic)
    n = m.sub(shifted, magic)
    r = m.fma(n, -f.ln2_low, m.fma(n, -f.ln2_high, x))
    bits = m.ints(shifted)
    exponent = m.int_op("and", m.int_op("shl", bits, f.mantissa - 3), 0x1FF << f.mantissa)  # of n + 256: negative for n >= 0
    factor = m.val(2.0**-63)
    if not is_bounded:
        factor = m.where(m.fn.compare("icmp slt", exponent, int_val(0, f.int_type)), 2.0**65, factor)
    rest = (f.bias << f.mantissa) - (1 << f.bits - 1)  # the exponent of 1, and 256 of them
    table = ", ".join(f"i32 {(f.int_of(f.round(2.0 ** (j / 8))) + rest) % (1 << f.bits)}" for j in range(8))
    callee = m.fn.module.declare("llvm.x86.avx2.permd", "<8 x i32>", ["<8 x i32>", "<8 x i32>"])

    def look_up(v: list[Val]) -> Val:
        return m.fn.pure(f"call <8 x i32> {callee}(<8 x i32> <{table}>, {v[0]})", "i32", 8)

    t = m.in_registers(look_up, bits, width=8)
    t = m.floats(m.fn.binary("add", t, m.fn.binary("sub", exponent, m.ints(factor))))
    _, *terms = m.terms("exp_eighth")  # the first one is 1
    p = m.fma(m.mul(r, r), m.horner(r, terms), r)
    return m.mul(m.fma(t, p, t), factor)


def emit_exp2(m: Math, x: Val) -> Val:
    """2^x."""
    x = m.clamp(x, *(1.5 * b for b in _range(m.format)))
    n = round_to_whole(m, x)
    r = m.sub(x, n.value)
    return scale(m, m.fma(r, m.horner(r, m.terms("exp2")), 1.0), n)


def emit_exp10(m: Math, x: Val) -> Val:
    """10^x."""
    x = m.clamp(x, *(b / 2 for b in _range(m.format)))
    n = round_to_whole(m, x, math.log2(10))
    r = m.fma(n.value, -m.format.log10_2_low, m.fma(n.value, -m.format.log10_2_high, x))
    high = m.format.round(math.log(10))
    low = math.log(10) - high if m.is_f32 else LOW["log(10)"]
    p, rest = m.product(r, high)
    p = m.add(p, m.fma(r, low, rest))
    return scale(m, _near_zero(m, p), n)


def scale(m: Math, p: Val, n: Whole, less: int = 0) -> Val:
    """p * 2^(n - less), rounded once, over the whole range: overflow to infinity, gradual underflow."""
    if m.target.has_masks:
        return m.call512("scalef", 2, "", p, m.sub(n.value, float(less)) if less else n.value)
    # Two factors of half the exponent each; the first product is exact, the second rounds.
    both = m.int_op("sub", n.bits, less) if less else n.bits
    half = m.int_op("lshr", both, 1)
    first, second = (m.floats(m.int_op("shl", e, m.format.mantissa)) for e in (half, m.fn.binary("sub", both, half)))
    return m.mul(m.mul(p, first), second)


def _power_of_two(m: Math, n: Whole, less: int = 0) -> Val:
    """2^(n - less), a normal number."""
    return m.floats(m.int_op("shl", m.int_op("sub", n.bits, m.format.bias + less), m.format.mantissa))


def _minus_one(m: Math, r: Val) -> Val:
    """e^r - 1 for |r| <= ln(2)/2."""
    return m.fma(m.mul(r, r), m.horner(r, m.terms("exp")), r)


def emit_expm1(m: Math, x: Val) -> Val:
    """e^x - 1 = 2^n (e^r - 1) + (2^n - 1), which is accurate near 0 too; half of it, so that 2^n is finite."""
    n, r = _reduce(m, m.clamp(x, -(m.format.mantissa + 3.0), _range(m.format)[1]))
    half = _power_of_two(m, n, 1)
    result = m.mul(m.fma(half, _minus_one(m, r), m.sub(half, 0.5)), 2.0)
    tiny = m.is_less(m.abs(x), 2.0 ** -(m.format.mantissa + 2))  # half of a denormal number may be none
    return m.where(tiny, x, result)


def emit_sigmoid(m: Math, x: Val) -> Val:
    """1/(1+e^-x), as e/(1+e) with e = e^-|x| where x < 0: no overflow, denormal results are right."""
    e = emit_exp(m, m.neg(m.abs(x)), is_bounded=True)
    return m.div(m.where(m.is_less(x, 0.0), e, 1.0), m.add(e, 1.0))


def emit_tanh(m: Math, x: Val) -> Val:
    """u/(u+2) with u = e^(2|x|) - 1."""
    bound = 10.0 if m.is_f32 else 20.0
    n, r = _reduce(m, m.mul(m.at_most(m.abs(x), bound), 2.0))
    power = _power_of_two(m, n)
    u = m.fma(power, _minus_one(m, r), m.sub(power, 1.0))
    return m.copysign(m.div(u, m.add(u, 2.0)), x)


def _half_exp(m: Math, x: Val) -> Val:
    """e^x / 2 for x >= 0, finite wherever sinh and cosh are."""
    n, r = _reduce(m, m.at_most(x, _range(m.format)[1] + 2))
    return scale(m, _near_zero(m, r), n, 1)


def emit_sinh(m: Math, x: Val) -> Val:
    """e^|x|/2 - e^-|x|/2, below 1 a polynomial."""
    t = m.abs(x)
    e = _half_exp(m, t)
    large = m.copysign(m.sub(e, m.div(0.25, e)), x)
    return m.copysign(m.where(m.is_less(t, 1.0), m.odd(x, "sinh"), large), x)


def emit_cosh(m: Math, x: Val) -> Val:
    e = _half_exp(m, m.abs(x))
    return m.add(e, m.div(0.25, e))
