"""fmod and remainder without a library: the quotient by a division, and one multiply-add that leaves an exact rest.

Where |x / y| < 2^mantissa the quotient is known up to one, x - q y is a number of the format whichever of the two it is, and
a comparison tells which.  Vectors with larger quotients, and with operands that have none, are left to the C library behind a
branch that is not taken otherwise.  All results are exact, so it does not matter to them which way was taken.
"""

from __future__ import annotations

from polyc.codegen.functions.floats import Math
from polyc.codegen.writer.builder import Function, Val
from polyc.codegen.writer.choices import define_choice, is_defined
from polyc.records import replace


def emit_remainder(m: Math, op: str, x: Val, y: Val) -> Val:
    """`op`: fmod (the sign of x, a quotient rounded to zero) or remainder (the nearest quotient, ties to even)."""
    x, y = m.fn.unify(x, y)
    if not m.target.has_fma:
        return _by_library(m.fn, op, x, y)
    name = f"polyc.{op}.{x.type}.{x.lanes}"
    if not is_defined(m.fn, name):
        _define(m, op, name, x)
    return m.fn.pure(f'call {x.full_type} @"{name}"({x}, {y})', x.type, x.lanes)


def _define(m: Math, op: str, name: str, like: Val) -> None:
    x, y = Val("%x", like.type, like.lanes), Val("%y", like.type, like.lanes)

    def fast(fn: Function) -> tuple[Val, Val]:
        inner = replace(m, fn=fn)
        quotient = inner.div(x, y)
        usual = inner.is_less(inner.abs(quotient), 2.0**m.format.mantissa)
        rest = _truncated(inner, x, y, quotient) if op == "fmod" else _nearest(inner, x, y, quotient)
        return inner.copysign(rest, x) if op == "fmod" else rest, usual

    define_choice(m.fn, name, (x, y), fast, lambda fn: _by_library(fn, op, x, y))


def _truncated(m: Math, x: Val, y: Val, quotient: Val) -> Val:
    a, b = m.abs(x), m.abs(y)
    rest = m.fma(m.neg(m.fn.intrinsic("trunc", m.abs(quotient))), b, a)
    rest = m.where(m.is_less(rest, 0.0), m.add(rest, b), rest)  # the division rounded up to an integer
    return m.where(m.is_less(a, b), a, rest)


def _nearest(m: Math, x: Val, y: Val, quotient: Val) -> Val:
    rest = m.fma(m.neg(m.fn.intrinsic("rint", quotient)), y, x)
    b, size = m.abs(y), m.abs(rest)
    # Exact where it decides: the rest is within a factor of two of its distance to |y|.
    over = m.is_less(m.sub(b, size), size)
    rest = m.where(over, m.sub(rest, m.copysign(b, rest)), rest)
    rest = m.where(m.is_equal(rest, 0.0), m.copysign(rest, x), rest)
    return m.where(m.is_equal(b, float("inf")), x, rest)


def _by_library(fn: Function, op: str, x: Val, y: Val) -> Val:
    callee = fn.module.declare(op + ("f" if x.type == "float" else ""), x.type, [x.type] * 2, "nounwind memory(none)")
    return fn.map_lanes(lambda a: fn.pure(f"call {x.type} {callee}({a[0]}, {a[1]})", x.type), x, y)
