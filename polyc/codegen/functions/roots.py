"""cbrt, hypot and rhypot, and what is compared with hypot."""

from __future__ import annotations

from polyc.codegen.functions.floats import F64, Math
from polyc.codegen.writer.builder import Val, int_val


def emit_cbrt(m: Math, x: Val) -> Val:
    """x y^2 with y = |x|^(-1/3): a third of the exponent, two steps, the first of fourth order, and one on the root itself."""
    f = m.format
    t = m.abs(x)
    tiny = m.is_less(t, 2.0 ** (1 - f.bias))
    third = (f.mantissa + 4) // 3
    a = m.where(tiny, m.mul(t, 2.0 ** (3 * third)), t)
    # Float and exponent are almost proportional; the constant centres the error of 3.5 %.
    upper = m.ints(a) if m.is_f32 else m.fn.convert("trunc", m.int_op("lshr", m.ints(a), 32), "i32")
    kind = f.type
    start = m.fn.convert("sitofp", upper, kind)
    start = m.fma(start, -1 / 3, float(0x54A2FA8C if m.is_f32 else 0x553EF0FF))
    bits = m.fn.convert("fptosi", start, "i32")
    if not m.is_f32:
        bits = m.fn.binary("shl", m.fn.convert("zext", bits, "i64"), int_val(32))
    y = m.floats(m.fn.freeze(bits))
    for terms in ((1 / 3, 2 / 9, 14 / 81), (1 / 3,) if m.is_f32 else (1 / 3, 2 / 9, 14 / 81)):
        e = m.fma(m.mul(m.neg(a), y), m.mul(y, y), 1.0)
        y = m.fma(m.mul(y, e), m.horner(e, terms), y)
    root = m.mul(m.mul(a, y), y)
    root = m.fma(m.neg(root), m.fma(root, y, -1.0), root)
    root = m.where(tiny, m.mul(root, 2.0**-third), root)
    ordinary = m.fn.binary("and", m.is_less(0.0, t), m.is_less(t, float("inf")))
    return m.where(ordinary, m.copysign(root, x), x)


def emit_hypot(m: Math, op: str, x: Val, y: Val) -> Val:
    """sqrt(x^2 + y^2), or one over it: in float64 for float32, otherwise scaled so that the squares are in range."""
    fn = m.fn
    wide = Math(fn, m.target, F64)
    a, b = (wide.abs(v) for v in fn.unify(fn.convert("fpext", x, "double"), fn.convert("fpext", y, "double")))
    infinite = fn.binary("or", wide.is_equal(a, float("inf")), wide.is_equal(b, float("inf")))
    if m.is_f32:
        root = wide.sqrt(wide.fma(a, a, wide.mul(b, b)))
    else:
        more = wide.is_less(a, b)
        high, low = wide.where(more, b, a), wide.where(more, a, b)
        up, down = wide.is_less(high, 2.0**-459), wide.is_less(2.0**500, high)
        factor = wide.where(up, 2.0**600, wide.where(down, 2.0**-600, 1.0))
        back = wide.where(up, 2.0**-600, wide.where(down, 2.0**600, 1.0))
        high, low = wide.mul(high, factor), wide.mul(low, factor)
        p, rest = wide.product(high, high)
        root = wide.sqrt(wide.add(p, wide.fma(low, low, rest)))
        if op == "hypot":
            root = wide.mul(root, back)
        else:
            root = wide.mul(wide.div(1.0, root), factor)
    if m.is_f32 and op == "rhypot":
        root = wide.div(1.0, root)
    root = fn.select(infinite, wide.val(float("inf") if op == "hypot" else 0.0), root)
    return fn.convert("fptrunc", root, m.format.type)


def compare_hypot(m: Math, op: str, x: Val, y: Val, bound: Val) -> Val:
    """sqrt(x^2 + y^2) compared with a number (`op`: lt, le, gt, ge) by squares, without a root and its rounding.

    All is first multiplied by a power of two where the square of the bound might not be a normal number: what overflows then is
    greater than it, and what vanishes is less."""
    fn, f, infinity = m.fn, m.format, float("inf")
    size, near, one = m.abs(bound), f.bias // 2 - 12, int_val(1, f.int_type)
    is_far = fn.binary("or", m.is_less(size, 2.0**-near), m.is_less(2.0**near, size))
    opposite = fn.binary("sub", int_val(2 * f.bias, f.int_type), m.int_op("lshr", m.ints(size), f.mantissa))
    opposite = fn.select(fn.compare("icmp slt", opposite, one), one, opposite)
    factor = m.where(is_far, m.floats(m.int_op("shl", opposite, f.mantissa)), 1.0)
    a, b, limit = (m.mul(v, factor) for v in (x, y, bound))
    infinite = fn.binary("or", m.is_equal(m.abs(x), infinity), m.is_equal(m.abs(y), infinity))  # even beside NaN
    square = m.where(infinite, infinity, m.fma(a, a, m.mul(b, b)))
    return fn.compare(f"fcmp o{op}", square, m.where(m.is_less(limit, 0.0), -1.0, m.mul(limit, limit)))
