"""Reductions over axes, positions of extrema, running sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.families.elementwise import truncated_quotient
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, call, cast, maximum, select
from polyc.ir.types import BOOL, F64, I64, DType

Element = Callable[[Term], Operand]


def reduce_axes(b: Builder, op: str, x: Value, axes: Sequence[int], dtype: DType, element: Element) -> Value:
    """`element` of all elements along `axes` taken together by `op`; the other dimensions stay."""
    kept = [d for d in range(x.rank) if d not in axes]

    def body(*i: Term) -> Operand:
        at = dict(zip((*kept, *axes), i, strict=True))
        return element(x[tuple(at[d] for d in range(x.rank))])

    return b.reduce(op, [x.shape[d] for d in kept], [x.shape[d] for d in axes], dtype, body)


def _finish(b: Builder, x: Value, found: Value, axes: Sequence[int], keepdims: int, last: Element | None = None) -> Value:
    """The reduction in the result's type and shape; `last` is applied to each element."""
    if last is not None or found.dtype != x.dtype:
        number = x.dtype.computed
        function = last or (lambda v: v)
        source = found

        def body(*i: Term) -> Operand:
            value = function(source[i])
            return cast(value, number) if isinstance(value, Term) else value

        found = b.map(found.shape, x.dtype, body)
    if not keepdims:
        return found
    return b.view(found, [1 if d in axes else n for d, n in enumerate(x.shape)])


def _square(v: Term) -> Term:
    return v * v


def _absolute(v: Term) -> Term:
    return call("abs", v)


def _compute(b: Builder, x: Value, axes: Sequence[int], keepdims: int) -> Value:
    """The node's reduction of `x` over `axes`."""
    kind, number, count = b.node.op.removeprefix("Reduce"), x.dtype.computed, prod(x.shape[d] for d in axes)

    def total(element: Element) -> Value:
        return reduce_axes(b, "add", x, axes, number, element)

    match kind:
        case "Sum":
            return _finish(b, x, total(lambda v: v), axes, keepdims)
        case "SumSquare":
            return _finish(b, x, total(_square), axes, keepdims)
        case "L1":
            return _finish(b, x, total(_absolute if x.dtype.kind != "u" else lambda v: v), axes, keepdims)
        case "Prod":
            return _finish(b, x, reduce_axes(b, "mul", x, axes, number, lambda v: v), axes, keepdims)
        case "Max" | "Min":
            op = kind.lower() if x.dtype != BOOL else {"Max": "or", "Min": "and"}[kind]
            return _finish(b, x, reduce_axes(b, op, x, axes, number, lambda v: v), axes, keepdims)
        case "Mean" if x.dtype.is_float:
            return _finish(b, x, total(lambda v: v), axes, keepdims, lambda v: v / count)
        case "Mean":
            divisor = max(1, count)
            wide = reduce_axes(b, "add", x, axes, I64, lambda v: cast(v, I64))
            return _finish(b, x, wide, axes, keepdims, lambda v: truncated_quotient(v, v * 0 + divisor, I64))
        case "L2" | "LogSum":
            element, function = (_square, "sqrt") if kind == "L2" else ((lambda v: v), "log")
            if x.dtype.is_float:
                return _finish(b, x, total(element), axes, keepdims, lambda v: call(function, v))
            wide = reduce_axes(b, "add", x, axes, F64, lambda v: cast(element(v), F64))
            return _finish(b, x, wide, axes, keepdims, lambda v: call(function, v))
        case "LogSumExp":
            return _log_sum_exp(b, x, axes, keepdims)
    b.refuse(f"reduction {kind}")


def _log_sum_exp(b: Builder, x: Value, axes: Sequence[int], keepdims: int) -> Value:
    """Relative to the greatest element, so that nothing overflows."""
    number = x.dtype.computed if x.dtype.is_float else F64
    kept = [d for d in range(x.rank) if d not in axes]
    greatest = reduce_axes(b, "max", x, axes, number, lambda v: cast(v, number))
    # where every element is -inf (or one is inf) the difference would be NaN
    base = b.map(greatest.shape, number, lambda *i: select(call("abs", greatest[i]) == float("inf"), 0, greatest[i]))

    def body(*i: Term) -> Operand:
        at = dict(zip((*kept, *axes), i, strict=True))
        return call("exp", cast(x[tuple(at[d] for d in range(x.rank))], number) - base[i[: len(kept)]])

    sums = b.reduce("add", base.shape, [x.shape[d] for d in axes], number, body)
    logs = b.map(base.shape, number, lambda *i: call("log", sums[i]) + base[i])
    return _finish(b, x, logs, axes, keepdims, lambda v: v)


_NAMES = [f"Reduce{kind}" for kind in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()]


@operator(*_NAMES)
def reduce_by_attribute(b: Builder, x: Value, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Value:
    return _compute(b, x, b.axes(axes or None, x.rank), keepdims)


def reduce_by_input(
    b: Builder, x: Value, axes: Value | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Value:
    given = () if axes is None else b.integers(axes)
    if not given and noop_with_empty_axes:
        return _compute(b, x, (), keepdims)
    return _compute(b, x, b.axes(given or None, x.rank), keepdims)


operator("ReduceSum", since=13)(reduce_by_input)
operator(*(n for n in _NAMES if n != "ReduceSum"), since=18)(reduce_by_input)


# --- Positions ---


@operator("ArgMax", "ArgMin")
def arg_extremum(b: Builder, x: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Value:
    """The first (or last) position of the extremum, or of a NaN."""
    axis = b.axis(axis, x.rank)
    extent, number = x.shape[axis], x.dtype.computed
    if extent == 0:
        b.refuse("an empty axis has no extremum")
    found = reduce_axes(b, b.node.op.removeprefix("Arg").lower(), x, (axis,), number, lambda v: v)
    positions = find_position(b, x, found, axis, bool(select_last_index))
    return b.view(positions, [1 if d == axis else n for d, n in enumerate(x.shape)]) if keepdims else positions


def find_position(b: Builder, x: Value, wanted: Value, axis: int, is_last: bool) -> Value:
    """Where `x` equals `wanted` (or is NaN) along `axis`, the first or the last time."""
    left = (*x.shape[:axis], *x.shape[axis + 1 :])
    extent = x.shape[axis]

    def body(*i: Term) -> Operand:
        value, position = x[(*i[:axis], i[-1], *i[axis:-1])], i[-1]
        hit = value == wanted[i[:-1]]
        if x.dtype.is_float:
            hit = hit | (value != value)
        return select(hit, position, -1 if is_last else extent)

    return b.reduce("max" if is_last else "min", left, (extent,), I64, body)


# --- Running sums ---


@operator("CumSum", "CumProd")
def running(b: Builder, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
    d = b.axis(b.integers(axis)[0], x.rank)
    op, neutral = ("add", 0) if b.node.op == "CumSum" else ("mul", 1)
    extent, number = x.shape[d], x.dtype.computed

    def at(i: Sequence[Term], position: Operand) -> tuple[Operand, ...]:
        return (*i[:d], position, *i[d + 1 :])

    def element(i: Sequence[Term], position: Operand) -> Term:
        return x[at(i, (extent - 1) - position if reverse else position)]

    def body(own: Value, *i: Term) -> Operand:
        return select(i[d] == 0, element(i, i[d]), call(op, own[at(i, i[d] - 1)], element(i, i[d])))

    sums = b.recur(x.shape, number, body)
    if not exclusive and not reverse and number == x.dtype:
        return sums

    def place(*i: Term) -> Operand:
        position = (extent - 1) - i[d] if reverse else i[d]
        if not exclusive:
            return sums[at(i, position)]
        return select(position == 0, neutral, sums[at(i, maximum(position - 1, 0))])

    return b.map(x.shape, x.dtype, place)
