"""Operators and casts on values: NumPy's meaning, no undefined behaviour for any operand, no fast-math flags."""

from __future__ import annotations

from polyc.codegen.functions.math import emit_function, emit_int_power
from polyc.codegen.writer.builder import Function, Val, float_val, int_val, is_number, llvm_type, zero_val
from polyc.codegen.writer.byte_products import add_byte_products
from polyc.codegen.writer.choices import define_choice, is_defined
from polyc.codegen.writer.halves import narrow_half, widen_half
from polyc.codegen.writer.vectors import truncate
from polyc.ir.types import F32, F64, DType
from polyc.machine import Machine

_COMPARE = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}
_BITS = {"bitand": "and", "bitor": "or", "bitxor": "xor", "and": "and", "or": "or"}


def emit_operator(fn: Function, target: Machine, op: str, args: list[Val], dtype: DType) -> Val:
    """`op` of `operators.OPERATORS` on operands of element type `dtype`."""
    if op in ("tuple", "stop_gradient", "once_differentiable"):
        return args[0]
    if op in _COMPARE:
        return _compare(fn, op, args[0], args[1], dtype)
    if op in _BITS:
        return fn.binary(_BITS[op], args[0], args[1])
    if op in ("shl", "shr"):
        return _shift(fn, op, args[0], args[1], dtype.kind == "i")
    if op == "not":
        return fn.not_(args[0])
    if dtype.kind == "f":
        return _float_operator(fn, target, op, args)
    if dtype.kind == "b":
        # On booleans NumPy's + and maximum are "or", * and minimum are "and".
        return fn.binary({"add": "or", "max": "or", "mul": "and", "min": "and", "sub": "xor"}[op], args[0], args[1])
    if op == "dot4u8s8":
        return add_byte_products(fn, target, args[0], args[1])
    return _int_operator(fn, target, op, args, dtype.kind == "i")


def _compare(fn: Function, op: str, a: Val, b: Val, dtype: DType) -> Val:
    if dtype.kind == "f":
        return fn.compare("fcmp une" if op == "ne" else f"fcmp o{op}", a, b)
    sign = "" if op in ("eq", "ne") else ("s" if dtype.kind == "i" else "u")
    return fn.compare(f"icmp {sign}{op}", a, b)


def _float_operator(fn: Function, target: Machine, op: str, args: list[Val]) -> Val:
    match op:
        case "add" | "sub" | "mul":
            return fn.binary("f" + op, args[0], args[1])
        case "truediv":
            return fn.binary("fdiv", args[0], args[1])
        case "neg":
            return fn.pure(f"fneg {args[0]}", args[0].type, args[0].lanes)
        case "abs":
            return fn.intrinsic("fabs", args[0])
        case "max" | "min":
            return emit_extremum(fn, target, op, args[0], args[1])
        case "fmax" | "fmin":
            a, b = fn.unify(*args)
            return fn.select(fn.compare("fcmp uno", b, b), a, emit_plain_extremum(fn, target, op[1:], a, b))
        case "floordiv":
            return _float_divmod(fn, target, args[0], args[1])[0]
        case "mod":
            return _float_divmod(fn, target, args[0], args[1])[1]
        case "fma":
            return fn.intrinsic("fma", *args)
        case "copysign":
            return fn.intrinsic("copysign", *args)
        case "fdim":
            a, b = args
            return fn.select(fn.compare("fcmp ole", a, b), zero_val(a.type), fn.binary("fsub", a, b))
        case "floor" | "ceil" | "trunc" | "rint" | "round" | "sqrt":
            return fn.intrinsic(op, args[0])
        case "rsqrt":
            return fn.binary("fdiv", float_val(1.0, args[0].type), fn.intrinsic("sqrt", args[0]))
        case _:
            return emit_function(fn, target, op, args)


def emit_extremum(fn: Function, target: Machine, op: str, new: Val, old: Val) -> Val:
    """max or min that propagates NaN in one min/max instruction, one compare and one blend; of a known number in the first.

    The instruction gives `old` where either is NaN.  So only a NaN in `new` needs care, and the compare does not depend on
    `old`: a reduction's critical path is one blend longer than a plain maximum, no more."""
    if is_number(old):
        new, old = old, new
    is_known = is_number(new)
    new, old = fn.unify(new, old)
    if is_known:
        return emit_plain_extremum(fn, target, op, new, old)
    return fn.select(fn.compare("fcmp uno", new, new), new, emit_plain_extremum(fn, target, op, new, old))


def emit_plain_extremum(fn: Function, target: Machine, op: str, a: Val, b: Val) -> Val:
    """``a > b ? a : b`` (or <): `b` where either is NaN.

    On x86 as the intrinsic: LLVM would merge the select with the NaN test around it into mask arithmetic, which
    takes five instructions instead of three."""
    bits = 32 if a.type == "float" else 64
    width = min(a.lanes, target.vector_bits // bits)
    name = _X86_EXTREMA.get(width * bits)
    if a.lanes > 1 and _is_power_of_two(a.lanes) and name is not None and target.triple.startswith("x86_64"):
        suffix = "ps" if bits == 32 else "pd"
        extra = ", i32 4" if width * bits == 512 else ""
        full = f"<{width} x {a.type}>"
        callee = fn.module.declare(
            name.format(op=op, t=suffix, sse="" if bits == 32 else "2"), full, [full, full, *(["i32"] if extra else [])]
        )
        return fn.map_registers(lambda v: fn.pure(f"call {full} {callee}({v[0]}, {v[1]}{extra})", a.type, width), width, a, b)
    if a.lanes == 1 and target.triple.startswith("x86_64"):
        full, suffix = f"<{128 // bits} x {a.type}>", "sse.{op}.ss" if bits == 32 else "sse2.{op}.sd"
        callee = fn.module.declare(f"llvm.x86.{suffix.format(op=op)}", full, [full, full])
        left, right = (fn.pure(f"insertelement {full} poison, {v}, i64 0", v.type, 128 // bits) for v in (a, b))
        both = fn.pure(f"call {full} {callee}({left}, {right})", a.type, 128 // bits)
        return fn.pure(f"extractelement {both}, i64 0", a.type)
    return fn.select(fn.compare("fcmp ogt" if op == "max" else "fcmp olt", a, b), a, b)


def _is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


_X86_EXTREMA = {128: "llvm.x86.sse{sse}.{op}.{t}", 256: "llvm.x86.avx.{op}.{t}.256", 512: "llvm.x86.avx512.{op}.{t}.512"}


def _float_divmod(fn: Function, target: Machine, a: Val, b: Val) -> tuple[Val, Val]:
    """Quotient rounded down and remainder with the divisor's sign, as NumPy computes them (from fmod)."""
    a, b = fn.unify(a, b)
    zero = zero_val(a.type, a.lanes)
    one = float_val(1.0, a.type, a.lanes)
    rest = emit_function(fn, target, "fmod", [a, b])
    quotient = fn.binary("fdiv", fn.binary("fsub", a, rest), b)
    nonzero = fn.compare("fcmp une", rest, zero)
    signs = fn.binary("xor", fn.compare("fcmp olt", b, zero), fn.compare("fcmp olt", rest, zero))
    off = fn.binary("and", nonzero, signs)
    quotient = fn.select(off, fn.binary("fsub", quotient, one), quotient)
    mod = fn.select(off, fn.binary("fadd", rest, b), rest)
    mod = fn.select(nonzero, mod, fn.intrinsic("copysign", zero, b))
    down = fn.intrinsic("floor", quotient)
    half = float_val(0.5, a.type, a.lanes)
    up = fn.compare("fcmp ogt", fn.binary("fsub", quotient, down), half)
    div = fn.select(up, fn.binary("fadd", down, one), down)
    plain = fn.binary("fdiv", a, b)
    div = fn.select(fn.compare("fcmp une", quotient, zero), div, fn.intrinsic("copysign", zero, plain))
    by_zero = fn.compare("fcmp oeq", b, zero)
    return fn.select(by_zero, plain, div), fn.select(by_zero, rest, mod)


def _int_operator(fn: Function, target: Machine, op: str, args: list[Val], signed: bool) -> Val:
    a = args[0]
    match op:
        case "add" | "sub" | "mul":
            return fn.binary(op, a, args[1])
        case "neg":
            return fn.binary("sub", zero_val(a.type, a.lanes), a)
        case "abs":
            return fn.intrinsic("abs", a, extra="i1 false") if signed else a
        case "max" | "min" | "fmax" | "fmin":
            return fn.intrinsic(("s" if signed else "u") + op[-3:], a, args[1])
        case "floordiv" | "mod":
            return _int_divmod(fn, target, op, a, args[1], signed)
        case "pow":
            return emit_int_power(fn, a, args[1], signed)
        case _:
            raise AssertionError(f"operator {op} has no integer form")


def _int_divmod(fn: Function, target: Machine, op: str, a: Val, b: Val, signed: bool) -> Val:
    if b.lanes == 1 and b.is_const and int(b.ref) > 0:
        return _divide_by_constant(fn, op, a, int(b.ref), signed)
    a, b = fn.unify(a, b)
    zero, one = zero_val(a.type, a.lanes), int_val(1, a.type, a.lanes)
    by_zero = fn.compare("icmp eq", b, zero)
    safe = fn.select(by_zero, one, b)
    if not signed:
        quotient = _quotient(fn, target, a, safe, signed)
        result = quotient if op == "floordiv" else fn.binary("sub", a, fn.binary("mul", quotient, safe))
        return fn.select(by_zero, zero, result)
    lowest = int_val(-(1 << (int(a.type[1:]) - 1)), a.type, a.lanes)
    minus = fn.compare("icmp eq", b, int_val(-1, a.type, a.lanes))
    # lowest / -1 traps; lowest / 1 is what wrapping arithmetic gives, and the remainder is 0 either way.
    traps = fn.binary("and", fn.compare("icmp eq", a, lowest), minus)
    safe = fn.select(traps, one, safe)
    quotient = _quotient(fn, target, a, safe, signed)
    rest = fn.binary("sub", a, fn.binary("mul", quotient, safe))
    other_sign = fn.compare("icmp slt", fn.binary("xor", rest, safe), zero)
    off = fn.binary("and", fn.compare("icmp ne", rest, zero), other_sign)
    if op == "floordiv":
        result = fn.select(off, fn.binary("sub", quotient, one), quotient)
    else:
        result = fn.select(off, fn.binary("add", rest, safe), rest)
    return fn.select(by_zero, zero, result)


def _quotient(fn: Function, target: Machine, a: Val, b: Val, signed: bool) -> Val:
    """a / b rounded to zero, for b other than 0 and a quotient in range.

    In vectors as a division of floating-point numbers, which every machine has: a quotient that is no integer is farther from
    the next one than rounding moves it, where the operands have at most 16 of 24, or 52 of 53 bits."""
    bits = int(a.type[1:])
    if a.lanes == 1 or (not target.has_masks and (bits == 64 or (bits == 32 and not signed))):
        return fn.binary("sdiv" if signed else "udiv", a, b)
    if bits < 64:
        return _float_quotient(fn, a, b, signed)
    name = f"polyc.quotient.{'s' if signed else 'u'}.{a.lanes}"
    if not is_defined(fn, name):
        x, y = Val("%x", a.type, a.lanes), Val("%y", a.type, a.lanes)

        def fast(inner: Function) -> tuple[Val, Val]:
            offset = int_val(1 << 52 if signed else 0)
            both = inner.binary("or", *(inner.binary("add", v, offset) for v in (x, y)))
            return _float_quotient(inner, x, y, signed), inner.compare(
                "icmp ult", both, int_val(1 << 53 if signed else 1 << 52)
            )

        define_choice(fn, name, (x, y), fast, lambda inner: inner.binary("sdiv" if signed else "udiv", x, y))
    return fn.pure(f'call {a.full_type} @"{name}"({a}, {b})', a.type, a.lanes)


def _float_quotient(fn: Function, a: Val, b: Val, signed: bool) -> Val:
    bits, letter = int(a.type[1:]), "s" if signed else "u"
    wide = "float" if bits <= 16 else "double"
    ratio = fn.binary("fdiv", fn.convert(f"{letter}itofp", a, wide), fn.convert(f"{letter}itofp", b, wide))
    if bits < 32:
        return fn.convert("trunc", fn.convert("fptosi", ratio, "i32"), a.type)
    return fn.convert(f"fpto{letter}i", ratio, a.type)


def _divide_by_constant(fn: Function, op: str, a: Val, divisor: int, signed: bool) -> Val:
    """Division by a positive constant, rounding down, without branches and without a division where it is a power of two."""
    shift = divisor.bit_length() - 1
    if divisor == 1 << shift:
        if op == "mod":
            return fn.binary("and", a, int_val(divisor - 1, a.type, a.lanes))
        return fn.binary("ashr" if signed else "lshr", a, int_val(shift, a.type, a.lanes)) if shift else a
    d = int_val(divisor, a.type, a.lanes)
    if not signed:
        return fn.binary("udiv" if op == "floordiv" else "urem", a, d)
    sign = fn.binary("ashr", a, int_val(int(a.type[1:]) - 1, a.type, a.lanes))
    quotient = fn.binary("xor", fn.binary("sdiv", fn.binary("xor", a, sign), d), sign)
    return quotient if op == "floordiv" else fn.binary("sub", a, fn.binary("mul", quotient, d))


def _shift(fn: Function, op: str, value: Val, count: Val, signed: bool) -> Val:
    """Shifts by any number of places, in forms that vector instructions have."""
    value, count = fn.unify(value, count)
    bits = int(value.type[1:])
    is_near = fn.compare("icmp ult", count, int_val(bits, value.type, value.lanes))
    if op == "shr" and signed:
        return fn.binary("ashr", value, fn.select(is_near, count, int_val(bits - 1, value.type, value.lanes)))
    shifted = fn.binary("shl" if op == "shl" else "lshr", value, count)
    return fn.select(is_near, shifted, zero_val(value.type, value.lanes))


def emit_cast(fn: Function, target: Machine, value: Val, source: DType, dtype: DType) -> Val:
    """NumPy's astype.  A float outside the integer's range gives some value of the type, never undefined behaviour."""
    to = llvm_type(dtype)
    if source == dtype:
        return value
    if source.is_storage:
        return emit_cast(fn, target, widen_half(fn, target, value, source), F32, dtype)
    if dtype.is_storage:
        if source != F64:
            value = emit_cast(fn, target, value, source, F32)
        return narrow_half(fn, target, value, dtype)
    match source.kind, dtype.kind:
        case "f", "f":
            return fn.convert("fpext" if dtype.bits > source.bits else "fptrunc", value, to)
        case "f", "b":
            return fn.compare("fcmp une", value, zero_val(value.type, value.lanes))
        case "f", _:
            return _float_to_int(fn, target, value, dtype)
        case _, "b":
            return fn.compare("icmp ne", value, zero_val(value.type, value.lanes))
        case "i", "f":
            return fn.convert("sitofp", value, to)
        case _, "f":
            return fn.convert("uitofp", value, to)
        case _:
            if dtype.bits < source.bits and source.kind != "b":
                return truncate(fn, target, value, to)
            return fn.convert("sext" if source.kind == "i" else "zext", value, to)


def _float_to_int(fn: Function, target: Machine, value: Val, dtype: DType) -> Val:
    # Through the wider signed type, as C compilers (and so NumPy) do on x86; freeze makes the poison of an overflow some value.
    if dtype.kind == "u" and dtype.bits == 64:
        return fn.freeze(fn.convert("fptoui", value, "i64"))
    wide = "i64" if dtype.bits == 64 or (dtype.kind == "u" and dtype.bits == 32) else "i32"
    return truncate(fn, target, fn.freeze(fn.convert("fptosi", value, wide)), llvm_type(dtype))
