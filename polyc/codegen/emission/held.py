"""Reads at places that are held between two ends: neighbours in memory but for the ends.

Before: a gather of ``T[min(max(j - w, 0), 4999)]`` along j, where w is the same in all lanes.
After: one masked load of ``T[j - w]``, and the elements at the ends for the lanes beyond them.

What data decides is held inside of its array by code generation itself, so these are windows whose place is known at run time
only: shifts, lags, look-ups of dynamic programs.
"""

from __future__ import annotations

from polyc.codegen.emission.context import Context, byte_offset
from polyc.codegen.emission.linear import Linear, as_linear, constant_of, split_lane
from polyc.ir.expr import Call, Const, Expr, int_const
from polyc.ir.loops import Buffer
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Held:
    """`place`, that of lane 0, is held between `lower` and `upper`, and so are those behind it, one by one along the lanes;
    `first`: its offset in bytes where it is not held, `ends`: those of both ends."""

    place: Linear
    lower: int
    upper: int
    first: Linear
    ends: tuple[Linear, Linear]


def find_held(ctx: Context, buffer: Buffer, subscripts: tuple[Expr, ...]) -> Held | None:
    """The subscripts as a place between two ends inside of the buffer, with neighbouring lanes next to each other in memory."""
    for d, e in enumerate(subscripts):
        parts = _parts(e)
        if parts is None:
            continue
        place, lower, upper = parts
        linear = as_linear(place, ctx.env, ctx.lane)
        split = split_lane(linear, ctx.lane)
        extent = buffer.shape[d]
        if split is None or constant_of(split[1]) != 1 or not isinstance(extent, Const):
            continue
        if not 0 <= lower <= upper < int(extent.value):
            return None

        def offset(at: Expr, d: int = d) -> tuple[Linear, Linear] | None:
            moved = tuple(at if n == d else e for n, e in enumerate(subscripts))
            return split_lane(byte_offset(ctx, buffer, moved), ctx.lane)

        along, low, high = offset(place), offset(int_const(lower)), offset(int_const(upper))
        if along is None or low is None or high is None or constant_of(along[1]) != buffer.dtype.itemsize:
            return None
        if constant_of(low[1]) != 0 or constant_of(high[1]) != 0:
            return None
        return Held(split[0], lower, upper, along[0], (low[0], high[0]))
    return None


def _parts(expr: Expr) -> tuple[Expr, int, int] | None:
    """(x, lower, upper) of ``min(max(x, lower), upper)``."""
    match expr:
        case Call("min", (Call("max", (place, Const(lower))), Const(upper))):
            return place, int(lower), int(upper)
        case Call("max", (Call("min", (place, Const(upper))), Const(lower))):
            return place, int(lower), int(upper)
    return None
