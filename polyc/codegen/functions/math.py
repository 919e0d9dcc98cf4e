"""Mathematical functions: inline polynomials for most, the C library lane by lane for the gamma functions in float64."""

from __future__ import annotations

from polyc.codegen.functions import polynomials
from polyc.codegen.writer.builder import Function, Val, float_val, int_val, zero_val
from polyc.codegen.writer.choices import is_defined
from polyc.codegen.writer.vectors import is_any
from polyc.machine import Machine

_SIMPLE_EXPONENTS = (0.0, *map(float, range(1, 8)), -1.0, -2.0, -3.0, 0.5, -0.5)
"""Those that few products give, within 4 units in the last place."""
_HALVES = (1.5, 2.5)
"""Those, and their opposites, that few products of the number and its root give."""
_LARGEST_PRODUCT = 64
"""Exponents, whole numbers, up to which products with more digits are faster than a logarithm."""


def emit_function(fn: Function, target: Machine, op: str, args: list[Val]) -> Val:
    """`op` on floating-point operands of one type."""
    if op == "pow":
        for exponent in _SIMPLE_EXPONENTS:
            if args[1] == float_val(exponent, args[0].type):
                return _simple_power(fn, args[0], exponent)
        for exponent in _HALVES:
            for sign in (1, -1):
                if args[1] == float_val(sign * exponent, args[0].type):
                    return _half_power(fn, args[0], exponent, sign)
        for n in range(1, _LARGEST_PRODUCT + 1):
            if args[1] == float_val(float(n), args[0].type) and (args[0].type == "float" or target.has_fma):
                return _whole_power(fn, args[0], n)
            if args[1] == float_val(float(-n), args[0].type) and args[0].type == "float":
                return _whole_power(fn, args[0], -n)
    return polynomials.emit_inline(fn, target, op, args) or call_libm(fn, op, args)


def _simple_power(fn: Function, x: Val, exponent: float) -> Val:
    one = float_val(1.0, x.type)
    if exponent < 0:
        # Powers of the reciprocal: those of x may be denormal, or infinite, where their reciprocals have all digits.
        if exponent == -0.5:
            return fn.binary("fdiv", one, _simple_power(fn, x, 0.5))
        return _simple_power(fn, fn.binary("fdiv", one, x), -exponent)
    if exponent == 0.5:
        # Adding zero turns the root of -0 into +0; the power of -inf is +inf, where its root is NaN.
        root = fn.binary("fadd", fn.intrinsic("sqrt", x), float_val(0.0, x.type))
        lowest = fn.compare("fcmp oeq", x, float_val(float("-inf"), x.type))
        return fn.select(lowest, float_val(float("inf"), x.type), root)
    if exponent == 0:
        return one
    half = int(exponent) // 2
    if half == 0:
        return x
    root = _simple_power(fn, x, float(half))
    square = fn.binary("fmul", root, root)
    return fn.binary("fmul", square, x) if exponent % 2 else square


def _half_power(fn: Function, x: Val, exponent: float, sign: int) -> Val:
    """x to the power `exponent`, a whole number and a half, or of its opposite: a power of the reciprocal."""
    base = fn.binary("fdiv", float_val(1.0, x.type), x) if sign < 0 else x
    if sign > 0:
        root = _simple_power(fn, base, 0.5)
    else:  # -inf may be the reciprocal of -0, which has a power, and of a small negative number, which has none
        is_zero = fn.compare("fcmp oeq", x, float_val(0.0, x.type))
        root = fn.binary("fadd", fn.intrinsic("sqrt", base), float_val(0.0, x.type))
        root = fn.select(is_zero, float_val(float("inf"), x.type), root)
    size = fn.intrinsic("fabs", base)  # the root has the sign: none, or it is no number
    return fn.binary("fmul", _simple_power(fn, size, float(int(exponent))), root)


def _whole_power(fn: Function, x: Val, exponent: int) -> Val:
    """x to a whole number, by products: of float32 in float64, of float64 as sums of two numbers."""
    if x.type == "float":
        wide = fn.convert("fpext", x, "double")
        power = _simple_power(fn, wide, float(abs(exponent)))
        return fn.convert("fptrunc", power if exponent > 0 else fn.binary("fdiv", float_val(1.0, "double"), power), "float")
    high, low = _sum_power(fn, x, exponent)
    # What is infinite or no number has no rest, and a zero keeps its sign.
    size = fn.intrinsic("fabs", high)
    below = fn.compare("fcmp olt", size, float_val(float("inf"), x.type))
    above = fn.compare("fcmp ogt", size, float_val(0.0, x.type))
    return fn.select(fn.binary("and", below, above), fn.binary("fadd", high, low), high)


def _sum_power(fn: Function, x: Val, exponent: int) -> tuple[Val, Val]:
    """x to a positive whole number as a sum of two, the second of which is small."""
    if exponent == 1:
        return x, float_val(0.0, x.type)
    high, low = _sum_power(fn, x, exponent // 2)
    twice = fn.binary("fadd", high, high)
    square = fn.binary("fmul", high, high)
    rest = fn.intrinsic("fma", high, high, _negative(fn, square))
    rest = fn.intrinsic("fma", twice, low, rest)
    if exponent % 2 == 0:
        return square, rest
    product = fn.binary("fmul", square, x)
    return product, fn.intrinsic("fma", rest, x, fn.intrinsic("fma", square, x, _negative(fn, product)))


def _negative(fn: Function, a: Val) -> Val:
    return fn.pure(f"fneg {a}", a.type, a.lanes)


def call_libm(fn: Function, op: str, args: list[Val]) -> Val:
    """The C library's function, one call per lane; float uses the ``f`` functions."""
    type = args[0].type
    name = op + ("f" if type == "float" else "")
    callee = fn.module.declare(name, type, [type] * len(args), "nounwind memory(none)")
    return fn.map_lanes(lambda a: fn.pure(f"call {type} {callee}({', '.join(map(str, a))})", type), *args)


def emit_int_power(fn: Function, a: Val, b: Val, signed: bool) -> Val:
    """a to the power b by squaring, wrapping around; a negative exponent gives what NumPy refuses: here 1, -1 or 0."""
    if b.lanes == 1 and b.is_const and 0 <= int(b.ref) <= 64:
        return _constant_power(fn, a, int(b.ref))
    a, b = fn.unify(a, b)
    name = f"polyc.power.{'s' if signed else 'u'}{a.type}.{a.lanes}"
    if not is_defined(fn, name):
        _define_int_power(fn, name, a)
    return fn.pure(f'call {a.full_type} @"{name}"({a}, {b})', a.type, a.lanes)


def _define_int_power(fn: Function, name: str, like: Val) -> None:
    """As long as an exponent of some lane has bits left: ``power *= odd(e) ? base : 1; base *= base; e >>= 1``."""
    full, type, lanes = like.full_type, like.type, like.lanes
    inner = Function(fn.module, f'define internal {full} @"{name}"({full} %base, {full} %exponent) noinline')
    entry, loop, step, done = inner.current, *(inner.new_block(n) for n in ("loop", "step", "done"))
    exponent, base, power = (Val(inner.fresh(n), type, lanes) for n in "ebp")
    inner.branch(loop)
    inner.place(step)
    one = int_val(1, type, lanes)
    odd = inner.compare("icmp ne", inner.binary("and", exponent, one), zero_val(type, lanes))
    following = (
        inner.binary("lshr", exponent, one),
        inner.binary("mul", base, base),
        inner.select(odd, inner.binary("mul", power, base), power),
    )
    inner.branch(loop)
    inner.place(loop)
    starts = ("%exponent", "%base", one.ref)
    for value, start, again in zip((exponent, base, power), starts, following, strict=True):
        inner.effect(f"{value.ref} = phi {full} [ {start}, %{entry.label} ], [ {again.ref}, %{step.label} ]")
    left = inner.compare("icmp ne", exponent, zero_val(type, lanes))
    inner.branch_if(is_any(inner, left), step, done)
    inner.place(done)
    inner.current.terminator = f"ret {power}"


def _constant_power(fn: Function, a: Val, exponent: int) -> Val:
    result: Val | None = None
    square = a
    while exponent:
        if exponent & 1:
            result = square if result is None else fn.binary("mul", result, square)
        exponent >>= 1
        if exponent:
            square = fn.binary("mul", square, square)
    return result if result is not None else int_val(1, a.type, a.lanes)
