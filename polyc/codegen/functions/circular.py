"""sin, cos, tan, sinpi, cospi, asin, acos, atan, atan2.

Arguments are reduced by multiples of pi in parts (Cody and Waite).  Beyond `_FAR` that is not exact enough: such lanes are
left to the C library, behind one branch that is not taken otherwise.
"""

from __future__ import annotations

import math

from polyc.codegen.functions.coefficients import PI
from polyc.codegen.functions.floats import F64, Math
from polyc.codegen.writer.builder import Val

_FAR = {"float": 1e5, "double": 5e6}


def _reduce(m: Math, x: Val, unit: float, offset: float = 0.0) -> tuple[Val, Val]:
    """n and r with x = (n + offset) unit pi + r; `unit` is a power of two, n even or odd like the integer that is given."""
    if m.is_f32 and not m.target.has_fma:
        wide = Math(m.fn, m.target, F64)
        n, r = _reduce(wide, m.fn.convert("fpext", x, "double"), unit, offset)
        return m.fn.convert("trunc", n, "i32"), m.fn.convert("fptrunc", r, "float")
    shifted = m.add(m.fma(x, 1 / (unit * math.pi), -offset), m.format.magic)
    k = m.mul(m.add(m.sub(shifted, m.format.magic), offset), unit)
    r = x
    for part in PI["short" if not m.target.has_fma else m.format.type]:
        r = m.fma(k, -part, r)
    return m.ints(shifted), r


def _sin(m: Math, r: Val) -> Val:
    """sin r for |r| <= pi/2: never beyond 1, where roundings would take it."""
    return m.clamp(m.odd(r, "sin"), -1.0, 1.0)


def emit_sin(m: Math, x: Val) -> Val:
    """sin |x| = (-1)^n sin r, and the sign of x."""
    n, r = _reduce(m, m.abs(x), 1.0)
    return _far_by_library(m, "sin", x, m.with_sign(m.flip(_sin(m, r), n), x))


def emit_cos(m: Math, x: Val) -> Val:
    """cos x = -(-1)^n sin r where x = (n + 1/2) pi + r."""
    n, r = _reduce(m, m.abs(x), 1.0, 0.5)
    return _far_by_library(m, "cos", x, m.flip(_sin(m, m.neg(r)), n))


def emit_tan(m: Math, x: Val) -> Val:
    """sin r / cos r, or -cos r / sin r where n is odd."""
    n, r = _reduce(m, m.abs(x), 0.5)
    z = m.mul(r, r)
    sin = m.odd(r, "sin_quarter")
    cos = m.fma(m.mul(z, z), m.horner(z, m.terms("cos_quarter")), m.fma(z, -0.5, 1.0))
    odd = m.fn.compare("icmp ne", m.int_op("and", n, 1), m.int_op("and", n, 0))
    ratio = m.div(m.where(odd, m.neg(cos), sin), m.where(odd, sin, cos))
    return _far_by_library(m, "tan", x, m.with_sign(ratio, x))


def emit_sinpi(m: Math, x: Val) -> Val:
    """sin(pi x): taken to sin(pi t) with |t| <= 1/2, exactly, before pi is multiplied; so zeros are zeros."""
    rest = _of_turn(m, m.abs(x))
    mirrored = m.sub(m.copysign(m.val(1.0), rest), rest)
    t = m.where(m.is_less(0.5, m.abs(rest)), mirrored, rest)
    return m.with_sign(_sin(m, m.mul(t, math.pi)), x)


def emit_cospi(m: Math, x: Val) -> Val:
    t = m.sub(0.5, m.abs(_of_turn(m, m.abs(x))))
    return _sin(m, m.mul(t, math.pi))


def _of_turn(m: Math, x: Val) -> Val:
    """x less the nearest multiple of 2: exact, -1 to 1."""
    turns = m.fn.intrinsic("rint", m.mul(x, 0.5))
    return m.sub(x, m.mul(turns, 2.0))


def _arc(m: Math, q: Val) -> Val:
    """atan q for 0 <= q <= 1: above tan(pi/8) it is pi/4 + atan((q - 1)/(q + 1))."""
    is_large = m.is_less(0.41421356237309503, q)
    t = m.where(is_large, m.div(m.sub(q, 1.0), m.add(q, 1.0)), q)
    result = m.odd(t, "atan")
    return m.add(m.where(is_large, math.pi / 4, 0.0), result)


def _from_constant(m: Math, share: float, less: Val) -> Val:
    """share * pi - less; `share` is a power of two."""
    high = m.format.round(math.pi)
    low = math.pi - high if m.is_f32 else PI["double"][1]
    return m.sub(share * high, m.sub(less, share * low))


def emit_atan(m: Math, x: Val) -> Val:
    """Above 1, pi/2 - atan(1/x); one division either way."""
    t = m.abs(x)
    # 0: atan t, 1: pi/4 + atan((t - 1)/(t + 1)), 2: pi/2 - atan(1/t)
    above, far = m.is_less(0.41421356237309503, t), m.is_less(2.414213562373095, t)
    top = m.where(far, -1.0, m.where(above, m.sub(t, 1.0), t))
    bottom = m.where(far, t, m.where(above, m.add(t, 1.0), 1.0))
    high = m.format.round(math.pi)
    low = math.pi - high if m.is_f32 else PI["double"][1]
    base = m.where(far, high / 2, m.where(above, high / 4, 0.0))
    rest = m.where(far, low / 2, m.where(above, low / 4, 0.0))
    return m.copysign(m.add(base, m.add(m.odd(m.div(top, bottom), "atan"), rest)), x)


def emit_atan2(m: Math, y: Val, x: Val) -> Val:
    """The angle of (x, y), -pi to pi; zeros and infinities as in C99."""
    y, x = m.fn.unify(y, x)
    a, b = m.abs(y), m.abs(x)
    steep = m.is_less(b, a)
    low, high = m.where(steep, b, a), m.where(steep, a, b)
    ratio = m.where(m.is_equal(low, high), 1.0, m.div(low, high))
    angle = _arc(m, m.where(m.is_equal(high, 0.0), 0.0, ratio))
    angle = m.where(steep, _from_constant(m, 0.5, angle), angle)
    is_left = m.fn.compare("icmp slt", m.ints(x), m.int_op("and", m.ints(x), 0))
    angle = m.where(is_left, _from_constant(m, 1.0, angle), angle)
    unordered = m.fn.compare("fcmp uno", x, y)
    return m.where(unordered, float("nan"), m.copysign(angle, y))


def _half_angle(m: Math, t: Val) -> Val:
    """acos t for 1/2 <= t <= 1: 2 asin(sqrt((1 - t) / 2))."""
    return m.mul(m.odd(m.sqrt(m.mul(m.sub(1.0, t), 0.5)), "asin"), 2.0)


def emit_asin(m: Math, x: Val) -> Val:
    """Above 1/2, pi/2 - acos x."""
    t = m.abs(x)
    large = _from_constant(m, 0.5, _half_angle(m, t))
    return m.copysign(m.where(m.is_less(0.5, t), large, m.odd(x, "asin")), x)


def emit_acos(m: Math, x: Val) -> Val:
    """Between -1/2 and 1/2, pi/2 - asin x; below, pi - acos(-x)."""
    t = m.abs(x)
    large = _half_angle(m, t)
    large = m.where(m.is_less(x, 0.0), _from_constant(m, 1.0, large), large)
    return m.where(m.is_less(0.5, t), large, _from_constant(m, 0.5, m.odd(x, "asin")))


_GUARD = """
define internal {full} @"{name}"({full} %x, {full} %near, {flags} %far) alwaysinline #0 {{
entry:
{reduce}
  %some = call i1 @llvm.expect.i1(i1 %any, i1 false)
  br i1 %some, label %slow, label %done
slow:
  %exact = call {full} @"{name}.far"({full} %x, {full} %near)
  br label %done
done:
  %result = phi {full} [ %near, %entry ], [ %exact, %slow ]
  ret {full} %result
}}
define internal {full} @"{name}.far"({full} %x, {full} %near) noinline cold #0 {{
entry:
  br label %loop
loop:
  %lane = phi i64 [ 0, %entry ], [ %next, %step ]
  %old = phi {full} [ %near, %entry ], [ %new, %step ]
  %argument = extractelement {full} %x, i64 %lane
  %size = call {type} {absolute}({type} %argument)
  %flag = fcmp ogt {type} %size, {bound}
  br i1 %flag, label %call, label %step
call:
  %value = call {type} {callee}({type} %argument)
  %changed = insertelement {full} %old, {type} %value, i64 %lane
  br label %step
step:
  %new = phi {full} [ %old, %loop ], [ %changed, %call ]
  %next = add i64 %lane, 1
  %again = icmp ult i64 %next, {lanes}
  br i1 %again, label %loop, label %done
done:
  ret {full} %new
}}"""


def _far_by_library(m: Math, function: str, x: Val, near: Val) -> Val:
    """`near`, and in lanes where |x| is beyond `_FAR` the C library's `function`."""
    module, type = m.fn.module, m.format.type
    far = m.is_less(_FAR[type], m.abs(x))
    # A single lane is a vector of one for the template.
    full, flags = f"<{x.lanes} x {type}>", f"<{x.lanes} x i1>"
    name = f"polyc.{function}.{type}.{x.lanes}"
    if name not in module.extra:
        library = function + ("f" if m.is_f32 else "")
        callee = module.declare(library, type, [type], "nounwind memory(none)")
        module.declare("llvm.expect.i1", "i1", ["i1", "i1"])
        absolute = module.declare(f"llvm.fabs.{'f32' if m.is_f32 else 'f64'}", type, [type])
        if x.lanes == 1:
            reduce = f"  %any = extractelement {flags} %far, i64 0"
        else:
            either = module.declare(f"llvm.vector.reduce.or.v{x.lanes}i1", "i1", [flags])
            reduce = f"  %any = call i1 {either}({flags} %far)"
        module.extra[name] = _GUARD.format(
            name=name,
            full=full,
            flags=flags,
            type=type,
            reduce=reduce,
            callee=callee,
            lanes=x.lanes,
            absolute=absolute,
            bound=f"{_FAR[type]:e}",
        )
    if x.lanes > 1:
        return m.fn.pure(f'call {full} @"{name}"({x}, {near}, {far})', type, x.lanes)
    operands = [f"{full} {_single(m, v).ref}" for v in (x, near)] + [f"{flags} {_single(m, far).ref}"]
    result = m.fn.pure(f'call {full} @"{name}"({", ".join(operands)})', type)
    return m.fn.pure(f"extractelement {full} {result.ref}, i64 0", type)


def _single(m: Math, v: Val) -> Val:
    return m.fn.pure(f"insertelement <1 x {v.type}> poison, {v}, i64 0", v.type)
