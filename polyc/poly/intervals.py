"""Interval arithmetic on subscripts that are not affine: what can be said of a value whatever the data is."""

from __future__ import annotations

from collections.abc import Mapping

import islpy

from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, Size
from polyc.ir.types import DType
from polyc.poly.isl import NotAffine
from polyc.poly.sizes import Bounds, Sizes, Value
from polyc.records import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class ValueInterval:
    """``lower <= value <= upper`` for all data and all indices; None: nothing is known on that side."""

    lower: Value | None = None
    upper: Value | None = None


def value_interval(expr: Expr, types: Mapping[str, DType], indices: Mapping[str, Bounds], sizes: Sizes) -> ValueInterval:
    """An interval for an integer expression over indices, sizes and tensor elements (of dtypes `types`)."""

    def of(e: Expr) -> ValueInterval:
        return value_interval(e, types, indices, sizes)

    match expr:
        case Const() if not expr.dtype.is_float:
            value = sizes.constant(int(expr.value))
            return ValueInterval(value, value)
        case Size():
            try:
                value = sizes.value(expr)
            except NotAffine:
                return ValueInterval()
            return ValueInterval(value, value)
        case Index() if expr.name in indices:
            return ValueInterval(indices[expr.name].lower, indices[expr.name].upper)
        case Read():
            return _type_interval(types[expr.tensor], sizes)
        case Pad():
            return _hull(of(expr.read), of(expr.value))
        case Select():
            return _hull(of(expr.then), of(expr.other))
        case Cast():
            return _cast_interval(expr, of(expr.value), sizes)
        case Call():
            return _call_interval(expr.op, [of(a) for a in expr.args], sizes)
    return ValueInterval()


def _hull(a: ValueInterval, b: ValueInterval) -> ValueInterval:
    lower = a.lower.min(b.lower) if a.lower is not None and b.lower is not None else None
    upper = a.upper.max(b.upper) if a.upper is not None and b.upper is not None else None
    return ValueInterval(lower, upper)


def _type_interval(dtype: DType, sizes: Sizes) -> ValueInterval:
    """The values of an integer type; floats (truncated by a cast) may be anything."""
    if not dtype.is_integer and dtype.kind != "b":
        return ValueInterval()
    low, high = dtype.limits
    return ValueInterval(sizes.constant(low), sizes.constant(high))


def _cast_interval(cast: Cast, inner: ValueInterval, sizes: Sizes) -> ValueInterval:
    """A conversion that may wrap around gives any value of its type; sizes and indices fit 32 bits and more."""
    limits = _type_interval(cast.dtype, sizes)
    if limits.lower is None or limits.upper is None or inner.lower is None or inner.upper is None:
        return limits
    fits = sizes.at_least(inner.lower, limits.lower) and sizes.at_least(limits.upper, inner.upper)
    return inner if fits else limits


def _call_interval(op: str, args: list[ValueInterval], sizes: Sizes) -> ValueInterval:
    match op, args:
        case "add", [a, b]:
            lower = a.lower.add(b.lower) if a.lower is not None and b.lower is not None else None
            upper = a.upper.add(b.upper) if a.upper is not None and b.upper is not None else None
            return ValueInterval(lower, upper)
        case "sub", [a, b]:
            return _call_interval("add", [a, _negate(b)], sizes)
        case "neg", [a]:
            return _negate(a)
        case "mul", [a, b]:
            for x, y in ((a, b), (b, a)):
                if x.lower is not None and x.upper is not None and x.lower.is_cst() and x.lower.plain_is_equal(x.upper):
                    return _scale(y, int(x.lower.max_val().to_python()))
        case (("max" | "fmax"), [a, b]):
            known = [v.lower for v in (a, b) if v.lower is not None]
            lower = known[0].max(known[-1]) if known else None
            upper = a.upper.max(b.upper) if a.upper is not None and b.upper is not None else None
            return ValueInterval(lower, upper)
        case (("min" | "fmin"), [a, b]):
            known = [v.upper for v in (a, b) if v.upper is not None]
            upper = known[0].min(known[-1]) if known else None
            lower = a.lower.min(b.lower) if a.lower is not None and b.lower is not None else None
            return ValueInterval(lower, upper)
        case "abs", [a]:
            if a.lower is not None and a.upper is not None:
                return ValueInterval(sizes.constant(0), a.upper.max(a.lower.neg()))
            return ValueInterval()  # the most negative number is its own absolute value
        case "mod", [_, n] if n.lower is not None and n.upper is not None and sizes.at_least(n.lower, sizes.constant(0)):
            # 0 <= x mod n < n for positive n; x mod 0 is 0.
            return ValueInterval(sizes.constant(0), n.upper.add_constant_val(islpy.Val(-1)).max(sizes.constant(0)))
        case "floordiv", [a, n] if n.lower is not None and n.upper is not None and n.lower.is_cst():
            divisor = int(n.lower.max_val().to_python())
            if divisor > 0 and n.lower.plain_is_equal(n.upper):
                scale = islpy.Val(divisor)
                lower = a.lower.scale_down_val(scale).floor() if a.lower is not None else None
                upper = a.upper.scale_down_val(scale).floor() if a.upper is not None else None
                return ValueInterval(lower, upper)
    return ValueInterval()


def _negate(a: ValueInterval) -> ValueInterval:
    return ValueInterval(a.upper.neg() if a.upper is not None else None, a.lower.neg() if a.lower is not None else None)


def _scale(a: ValueInterval, factor: int) -> ValueInterval:
    if factor < 0:
        return _scale(_negate(a), -factor)
    scale = islpy.Val(factor)
    return ValueInterval(
        a.lower.scale_val(scale) if a.lower is not None else None, a.upper.scale_val(scale) if a.upper is not None else None
    )
