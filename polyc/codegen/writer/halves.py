"""16-bit floats, which are bits until they are converted: f16 and bf16 to f32, and back rounded to nearest, ties to even.

Every target gives the same bits.  f16 converts in one instruction where there is one (F16C, AVX-512, AArch64), else by integer
arithmetic (F. Giesen, "Float->half variants"), never through the library calls that LLVM would make and few processes define.
bf16 rounds by integer arithmetic everywhere: VCVTNEPS2BF16 flushes denormal numbers to zero, so its results would depend on
the machine, and the five instructions it would save are hidden behind the store.
"""

from __future__ import annotations

from polyc.codegen.writer.builder import Function, Val, float_val, int_val
from polyc.codegen.writer.vectors import truncate
from polyc.ir.types import BF16, DType
from polyc.machine import Machine


def widen_half(fn: Function, target: Machine, value: Val, dtype: DType) -> Val:
    """The float of the bits `value` (i16) of a 16-bit type."""
    if dtype == BF16:
        wide = fn.binary("shl", fn.convert("zext", value, "i32"), int_val(16, "i32"))
        return fn.bitcast(wide, "float")
    if has_half_conversion(target):
        return fn.convert("fpext", fn.bitcast(value, "half"), "float")
    return _widen_by_bits(fn, value)


def narrow_half(fn: Function, target: Machine, value: Val, dtype: DType) -> Val:
    """The bits (i16) of a 16-bit type nearest to `value`, a float or double."""
    if value.type == "double":
        value = _round_to_odd(fn, value)
    if dtype == BF16:
        return _narrow_bfloat(fn, target, value)
    if has_half_conversion(target):
        return fn.bitcast(fn.convert("fptrunc", value, "half"), "i16")
    return _narrow_by_bits(fn, target, value)


def has_half_conversion(target: Machine) -> bool:
    """Whether the instruction set converts between f16 and f32."""
    if target.triple.startswith("x86_64"):
        return "+f16c" in target.features.split(",")
    return target.triple.startswith(("aarch64", "arm64"))


def _bits(value: int) -> Val:
    return int_val(value, "i32")


def _narrow_bfloat(fn: Function, target: Machine, value: Val) -> Val:
    bits = fn.bitcast(value, "i32")
    upper = fn.binary("lshr", bits, _bits(16))
    odd = fn.binary("and", upper, _bits(1))
    rounded = fn.binary("lshr", fn.binary("add", bits, fn.binary("add", odd, _bits(0x7FFF))), _bits(16))
    quiet = fn.binary("or", upper, _bits(0x40))
    return truncate(fn, target, fn.select(fn.compare("fcmp uno", value, value), quiet, rounded), "i16")


def _widen_by_bits(fn: Function, value: Val) -> Val:
    """The exponent moved over; a denormal f16 is put under an implicit one and normalised by taking that away again."""
    half = fn.convert("zext", value, "i32")
    sign = fn.binary("shl", fn.binary("and", half, _bits(0x8000)), _bits(16))
    moved = fn.binary("shl", fn.binary("and", half, _bits(0x7FFF)), _bits(13))
    exponent = fn.binary("and", moved, _bits(0x1F << 23))
    plain = fn.binary("add", moved, _bits((127 - 15) << 23))
    special = fn.binary("add", moved, _bits((255 - 31) << 23))
    under_one = fn.bitcast(fn.binary("add", moved, _bits((127 - 15 + 1) << 23)), "float")
    denormal = fn.bitcast(fn.binary("fsub", under_one, float_val(2.0**-14, "float")), "i32")
    result = fn.select(fn.compare("icmp eq", exponent, _bits(0x1F << 23)), special, plain)
    result = fn.select(fn.compare("icmp eq", exponent, _bits(0)), denormal, result)
    return fn.bitcast(fn.binary("or", result, sign), "float")


def _narrow_by_bits(fn: Function, target: Machine, value: Val) -> Val:
    """Normal numbers round in the integers; denormal ones in an addition whose last place is that of a denormal f16."""
    signed = fn.bitcast(value, "i32")
    sign = fn.binary("lshr", fn.binary("and", signed, _bits(1 << 31)), _bits(16))
    bits = fn.binary("and", signed, _bits((1 << 31) - 1))
    odd = fn.binary("and", fn.binary("lshr", bits, _bits(13)), _bits(1))
    rebased = fn.binary("add", bits, _bits(((15 - 127) << 23) + 0xFFF))
    normal = fn.binary("lshr", fn.binary("add", rebased, odd), _bits(13))
    shifted = fn.binary("fadd", fn.bitcast(bits, "float"), float_val(0.5, "float"))
    denormal = fn.binary("sub", fn.bitcast(shifted, "i32"), _bits(126 << 23))
    payload = fn.binary("and", fn.binary("lshr", bits, _bits(13)), _bits(0x1FF))
    nan = fn.binary("or", payload, _bits(0x7E00))
    result = fn.select(fn.compare("icmp ult", bits, _bits(113 << 23)), denormal, normal)
    result = fn.select(fn.compare("icmp uge", bits, _bits(143 << 23)), _bits(0x7C00), result)
    result = fn.select(fn.compare("icmp ugt", bits, _bits(255 << 23)), nan, result)
    return truncate(fn, target, fn.binary("or", result, sign), "i16")


def _round_to_odd(fn: Function, value: Val) -> Val:
    """A double as a float, towards zero, the last bit set where that is not exact: a second rounding then does no harm."""
    single = fn.convert("fptrunc", value, "float")
    back = fn.convert("fpext", single, "double")
    bits = fn.bitcast(single, "i32")
    too_large = fn.compare("fcmp ogt", fn.intrinsic("fabs", back), fn.intrinsic("fabs", value))
    bits = fn.select(too_large, fn.binary("sub", bits, _bits(1)), bits)
    inexact = fn.compare("fcmp one", back, value)
    return fn.bitcast(fn.select(inexact, fn.binary("or", bits, _bits(1)), bits), "float")
