"""Interval arithmetic on subscripts that are not affine: what can be said of a value whatever the data is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import islpy

from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, type_of
from polyc.ir.program import Program
from polyc.ir.segments import loaded_clauses
from polyc.ir.types import I64, DType
from polyc.poly.isl import NotAffine
from polyc.poly.sizes import Bounds, Sizes, Value
from polyc.poly.solve import StatementSolution
from polyc.records import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class ValueInterval:
    """``lower <= value <= upper`` for all data and all indices; None: nothing is known on that side."""

    lower: Value | None = None
    upper: Value | None = None


MAX_DEPTH = 16
"""Temporaries of temporaries beyond which values may be anything of their type."""

MAX_SIZE = 2**47
"""Elements that the address space of a process has room for."""

_EXACT = frozenset(("max", "min", "mod", "floordiv"))
"""Integer operators whose values are between those of their operands, or nearer to 0."""


class Values:
    """Intervals for integer values, whatever the inputs hold: elements of temporaries are what is assigned to them."""

    def __init__(self, program: Program, solutions: Sequence[StatementSolution], sizes: Sizes) -> None:
        self._types, self._sizes = program.types, sizes
        self._writers: dict[str, list[StatementSolution]] = {}
        for solution in solutions:
            self._writers.setdefault(solution.statement.target, []).append(solution)
        self._known: dict[str, ValueInterval] = {}
        self._depth = 0

    def subscript(self, expr: Expr, indices: Mapping[str, Bounds]) -> ValueInterval:
        """Of an expression over indices, sizes and elements in 64 bits, as subscripts are computed."""
        return self._of(expr, indices, None)

    def _of_tensor(self, name: str) -> ValueInterval:
        """Of all elements that are read of a tensor."""
        if name not in self._known:
            if self._depth == MAX_DEPTH:
                return _type_interval(self._types[name], self._sizes)
            # What a recurrence reads of itself may be anything of its type.
            self._known[name] = _type_interval(self._types[name], self._sizes)
            self._depth += 1
            writers = self._writers.get(name, [])
            if self._types[name].is_integer and writers and all(map(_assigns, writers)):
                values = (self._of(w.statement.value, w.indices, self._types) for w in writers)
                self._known[name] = reduce(_hull, values)
            self._depth -= 1
        return self._known[name]

    def _of(self, expr: Expr, indices: Mapping[str, Bounds], types: Mapping[str, DType] | None) -> ValueInterval:
        """`types`: of tensors, where arithmetic is in the types of its operands and wraps around."""
        sizes = self._sizes

        def of(e: Expr) -> ValueInterval:
            return self._of(e, indices, types)

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
                return self._of_tensor(expr.tensor)
            case Pad():
                return _hull(of(expr.read), of(expr.value))
            case Select():
                return _hull(of(expr.then), of(expr.other))
            case Cast():
                # What is converted is computed in its own type, in subscripts, too.
                return _cast_interval(expr, self._of(expr.value, indices, self._types), sizes)
            case Call():
                found = _call_interval(expr.op, [of(a) for a in expr.args], sizes)
                if expr.op in _EXACT:
                    return found
                return _wrap(found, I64 if types is None else type_of(expr, types), sizes)
        return ValueInterval()


def _assigns(solution: StatementSolution) -> bool:
    """Whether each element that is read of what a statement writes has a value of its expression."""
    s = solution.statement
    return s.reduction is None and not solution.non_affine and not any(loaded_clauses(s.where))


def _hull(a: ValueInterval, b: ValueInterval) -> ValueInterval:
    lower = a.lower.min(b.lower) if a.lower is not None and b.lower is not None else None
    upper = a.upper.max(b.upper) if a.upper is not None and b.upper is not None else None
    return ValueInterval(lower, upper)


def _type_interval(dtype: DType, sizes: Sizes) -> ValueInterval:
    """The values of an integer type of at most 32 bits; others may be anything: floats are truncated by a cast."""
    if (not dtype.is_integer and dtype.kind != "b") or dtype.bits > 32:
        return ValueInterval()
    low, high = dtype.limits
    return ValueInterval(sizes.constant(low), sizes.constant(high))


def _cast_interval(cast: Cast, inner: ValueInterval, sizes: Sizes) -> ValueInterval:
    """A conversion that may wrap around gives any value of its type."""
    return (
        inner if cast.dtype.is_integer and _fits(inner, cast.dtype, sizes, sizes.context) else _type_interval(cast.dtype, sizes)
    )


def _wrap(found: ValueInterval, dtype: DType, sizes: Sizes) -> ValueInterval:
    """What arithmetic in a type gives that would give `found` in whole numbers; in 64 bits for sizes up to `MAX_SIZE`."""
    context = sizes.context
    if dtype.bits > 32:
        for name in sizes.parameters:
            size = sizes.value(Size(name))
            context = context.intersect(sizes.constant(MAX_SIZE).ge_set(size))
    return found if _fits(found, dtype, sizes, context) else _type_interval(dtype, sizes)


def _fits(found: ValueInterval, dtype: DType, sizes: Sizes, context: islpy.Set) -> bool:
    """`context`: of sizes."""
    if found.lower is None or found.upper is None:
        return False
    low, high = map(sizes.constant, dtype.limits)
    return context.is_subset(found.lower.ge_set(low).intersect(high.ge_set(found.upper)))


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
