"""Floating-point arithmetic for the inline functions: formats, shorthands, exact products, AVX-512's own instructions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from polyc.codegen.functions.coefficients import POLYNOMIALS
from polyc.codegen.writer.builder import Function, Val, float_val, int_val
from polyc.machine import Machine
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """Constants of one floating-point type."""

    type: str
    bits: int
    mantissa: int
    magic: float
    """1.5 * 2^mantissa: adding it rounds to an integer and leaves that integer in the low bits."""
    ln2_high: float
    ln2_low: float
    log10_2_high: float
    log10_2_low: float
    """Both sums are constants of twice the precision; multiples of the high parts by exponents are exact."""
    splitter: float
    """x times this, less the difference to x, is the upper half of x (Dekker, Veltkamp)."""

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.mantissa - 2)) - 1

    @property
    def int_type(self) -> str:
        return f"i{self.bits}"

    def int_of(self, value: float) -> int:
        """The bits of `value`."""
        return int.from_bytes(struct.pack(">f" if self.bits == 32 else ">d", value), "big")

    def round(self, value: float) -> float:
        """`value` in the format."""
        return float(struct.unpack("f", struct.pack("f", value))[0]) if self.bits == 32 else value


F32 = Format(
    type="float",
    bits=32,
    mantissa=23,
    magic=12582912.0,
    ln2_high=0.693145751953125,
    ln2_low=1.42860682030941723212e-6,
    log10_2_high=0.30102920532226562,
    log10_2_low=7.9034151668e-07,
    splitter=4097.0,
)

F64 = Format(
    type="double",
    bits=64,
    mantissa=52,
    magic=6755399441055744.0,
    ln2_high=6.93147180369123816490e-01,
    ln2_low=1.90821492927058770002e-10,
    log10_2_high=3.01029995663611771306e-01,
    log10_2_low=3.69423907715893078616e-13,
    splitter=134217729.0,
)


_LONG = 8
"""Terms from which on a polynomial is split into even and odd ones: a chain of multiply-adds waits for each one's latency.
float32 has none so long that it is worth the error, and rounding products too makes the error larger."""


@dataclass(frozen=True, slots=True)
class Math:
    """Arithmetic shorthands; `Val | float` operands, constants rounded to the format."""

    fn: Function
    target: Machine
    format: Format

    @property
    def is_f32(self) -> bool:
        return self.format is F32

    def terms(self, name: str) -> tuple[float, ...]:
        """The coefficients of `POLYNOMIALS` in this format."""
        return POLYNOMIALS[name][0 if self.is_f32 else 1]

    def val(self, x: Val | float) -> Val:
        return x if isinstance(x, Val) else float_val(x, self.format.type)

    def add(self, a: Val | float, b: Val | float) -> Val:
        return self.fn.binary("fadd", self.val(a), self.val(b))

    def sub(self, a: Val | float, b: Val | float) -> Val:
        return self.fn.binary("fsub", self.val(a), self.val(b))

    def mul(self, a: Val | float, b: Val | float) -> Val:
        return self.fn.binary("fmul", self.val(a), self.val(b))

    def div(self, a: Val | float, b: Val | float) -> Val:
        return self.fn.binary("fdiv", self.val(a), self.val(b))

    def neg(self, a: Val) -> Val:
        return self.fn.pure(f"fneg {a}", a.type, a.lanes)

    def sqrt(self, a: Val) -> Val:
        return self.fn.intrinsic("sqrt", a)

    def fma(self, a: Val | float, b: Val | float, c: Val | float) -> Val:
        """a*b + c, rounded once where the hardware can."""
        if self.target.has_fma:
            return self.fn.intrinsic("fma", self.val(a), self.val(b), self.val(c))
        return self.add(self.mul(a, b), c)

    def horner(self, x: Val, coefficients: Sequence[float]) -> Val:
        """The polynomial with `coefficients`, constant term first; long ones as two chains that do not wait for each other."""
        if self.is_f32 or not self.target.has_fma or len(coefficients) < _LONG:
            return self.chain(x, coefficients)
        square = self.mul(x, x)
        return self.fma(self.horner(square, coefficients[1::2]), x, self.horner(square, coefficients[::2]))

    def chain(self, x: Val, coefficients: Sequence[float]) -> Val:
        """The same in Horner's order: the smallest error where terms cancel."""
        result: Val | float = coefficients[-1]
        for c in reversed(coefficients[:-1]):
            result = self.fma(result, x, c)
        return self.val(result)

    def odd(self, r: Val, name: str) -> Val:
        """r + r^3 P(r^2)."""
        z = self.mul(r, r)
        return self.fma(self.mul(r, z), self.horner(z, self.terms(name)), r)

    def product(self, a: Val, b: Val | float) -> tuple[Val, Val]:
        """a*b as a sum of two: exact, but for the last bit of the second where an operand has no room to be split."""
        b = self.val(b)
        p = self.mul(a, b)
        if self.target.has_fma:
            return p, self.fma(a, b, self.neg(p))
        (a1, a2), (b1, b2) = self._halves(a), self._halves(b)
        low = self.add(self.sub(self.mul(a1, b1), p), self.mul(a1, b2))
        return p, self.add(self.add(low, self.mul(a2, b1)), self.mul(a2, b2))

    def _halves(self, a: Val) -> tuple[Val, Val]:
        spread = self.mul(a, self.format.splitter)
        high = self.sub(spread, self.sub(spread, a))
        return high, self.sub(a, high)

    def is_less(self, a: Val | float, b: Val | float) -> Val:
        """a < b, false for NaN."""
        return self.fn.compare("fcmp olt", self.val(a), self.val(b))

    def is_equal(self, a: Val | float, b: Val | float) -> Val:
        return self.fn.compare("fcmp oeq", self.val(a), self.val(b))

    def where(self, condition: Val, a: Val | float, b: Val | float) -> Val:
        return self.fn.select(condition, self.val(a), self.val(b))

    def at_most(self, x: Val, bound: float) -> Val:
        """min(x, bound); NaN stays (one minimum instruction: its second operand wins)."""
        return self.where(self.is_less(bound, x), bound, x)

    def at_least(self, x: Val, bound: float) -> Val:
        return self.where(self.is_less(x, bound), bound, x)

    def clamp(self, x: Val, low: float, high: float) -> Val:
        return self.at_least(self.at_most(x, high), low)

    def abs(self, x: Val) -> Val:
        return self.fn.intrinsic("fabs", x)

    def copysign(self, x: Val, sign: Val) -> Val:
        return self.fn.intrinsic("copysign", x, sign)

    def ints(self, x: Val) -> Val:
        return self.fn.bitcast(x, self.format.int_type)

    def floats(self, x: Val) -> Val:
        return self.fn.bitcast(x, self.format.type)

    def int_op(self, op: str, a: Val, b: int) -> Val:
        return self.fn.binary(op, a, int_val(b, self.format.int_type))

    def rounded_int(self, shifted: Val) -> Val:
        """The integer in the low bits of a sum with `magic`."""
        return self.int_op("sub", self.ints(shifted), self.format.int_of(self.format.magic))

    def flip(self, x: Val, parity: Val) -> Val:
        """x, negated where the integer `parity` is odd."""
        return self.xor_bits(x, self.int_op("shl", parity, self.format.bits - 1))

    def with_sign(self, x: Val, sign: Val) -> Val:
        """x times the sign of `sign`."""
        return self.xor_bits(x, self.int_op("and", self.ints(sign), 1 << (self.format.bits - 1)))

    def xor_bits(self, x: Val, bits: Val) -> Val:
        return self.floats(self.fn.binary("xor", self.ints(x), bits))

    def power_of_two(self, n: Val) -> Val:
        """2^n for an integer vector inside the range of normal numbers."""
        return self.floats(self.int_op("shl", self.int_op("add", n, self.format.bias), self.format.mantissa))

    # -- AVX-512

    def in_registers(self, function: Callable[[list[Val]], Val], *values: Val, width: int | None = None) -> Val:
        """`function` on whole registers of the operands (of at most `width` lanes, if given of exactly so many).

        Operands are filled up with undefined lanes; all operands and the result have elements of the format's size."""
        vectors = self.fn.unify(*values)
        lanes = vectors[0].lanes
        least, most = (128 // self.format.bits, 512 // self.format.bits) if width is None else (width, width)
        room = max(least, 1 << (lanes - 1).bit_length())
        if room != lanes:
            vectors = [_widened(self.fn, v, room) for v in vectors]
        result = self.fn.map_registers(function, min(most, room), *vectors)
        return result if room == lanes else self.fn.shuffle(result, None, range(lanes))

    def call512(self, name: str, operands: int, extra: str, *values: Val) -> Val:
        """The masked AVX-512 intrinsic `name` (``scalef``, …) of `operands` vectors; `extra` stands behind them."""

        def call(v: list[Val]) -> Val:
            width = v[0].lanes
            full, mask, bits = v[0].full_type, f"i{max(8, width)}", width * self.format.bits
            last = ", i32 4" if bits == 512 else ""
            types = [full] * operands + (["i32"] if extra else []) + [full, mask] + (["i32"] if last else [])
            letter = "s" if self.is_f32 else "d"
            callee = self.fn.module.declare(f"llvm.x86.avx512.mask.{name}.p{letter}.{bits}", full, types)
            text = ", ".join(map(str, v)) + extra
            return self.fn.pure(f"call {full} {callee}({text}, {full} zeroinitializer, {mask} -1{last})", v[0].type, width)

        return self.in_registers(call, *values)


def _widened(fn: Function, v: Val, lanes: int) -> Val:
    if v.lanes == 1:
        return fn.insert(Val("poison", v.type, lanes), v, 0)
    return fn.shuffle(v, None, [*range(v.lanes), *[-1] * (lanes - v.lanes)])
