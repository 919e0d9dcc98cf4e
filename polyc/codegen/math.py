"""Mathematical functions: inline polynomials for most, the C library lane by lane for the others (gamma, fmod, …)."""

from __future__ import annotations

from polyc.codegen import polynomials
from polyc.codegen.builder import Function, Val, float_val, int_val
from polyc.target import Target

_SIMPLE_EXPONENTS = (0.0, 1.0, 2.0, 3.0, 4.0, -1.0, 0.5, -0.5)


def emit_function(fn: Function, target: Target, op: str, args: list[Val]) -> Val:
    """`op` on floating-point operands of one type."""
    if op == "pow":
        for exponent in _SIMPLE_EXPONENTS:
            if args[1] == float_val(exponent, args[0].type):
                return _simple_power(fn, args[0], exponent)
    return polynomials.emit_inline(fn, target, op, args) or call_libm(fn, op, args)


def _simple_power(fn: Function, x: Val, exponent: float) -> Val:
    one = float_val(1.0, x.type)
    if exponent < 0:
        return fn.binary("fdiv", one, _simple_power(fn, x, -exponent))
    if exponent == 0.5:
        # Adding zero turns the root of -0 into +0; the power of -inf is +inf, where its root is NaN.
        root = fn.binary("fadd", fn.intrinsic("sqrt", x), float_val(0.0, x.type))
        lowest = fn.compare("fcmp oeq", x, float_val(float("-inf"), x.type))
        return fn.select(lowest, float_val(float("inf"), x.type), root)
    if exponent == 0:
        return one
    square = fn.binary("fmul", x, x) if exponent > 1 else x
    if exponent == 4:
        return fn.binary("fmul", square, square)
    return fn.binary("fmul", square, x) if exponent == 3 else square


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
    name = f"polyc.power.{'s' if signed else 'u'}{a.type}"
    if name not in fn.module.extra:
        fn.module.extra[name] = _POWER.format(
            name=name, t=a.type, one=int_val(1, a.type).ref, shift="ashr" if signed else "lshr"
        )
    return fn.map_lanes(lambda v: fn.pure(f'call {a.type} @"{name}"({v[0]}, {v[1]})', a.type), a, b)


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


_POWER = """
define internal {t} @"{name}"({t} %base, {t} %exponent) noinline nounwind memory(none) {{
entry:
  br label %loop
loop:
  %e = phi {t} [ %exponent, %entry ], [ %half, %step ]
  %b = phi {t} [ %base, %entry ], [ %square, %step ]
  %r = phi {t} [ {one}, %entry ], [ %next, %step ]
  %stop = icmp eq {t} %e, 0
  br i1 %stop, label %done, label %step
step:
  %odd = trunc {t} %e to i1
  %product = mul {t} %r, %b
  %next = select i1 %odd, {t} %product, {t} %r
  %square = mul {t} %b, %b
  %half = lshr {t} %e, 1
  br label %loop
done:
  ret {t} %r
}}"""
