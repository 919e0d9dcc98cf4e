"""Softmax and its relatives."""

from __future__ import annotations

from math import prod

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.families.reductions import find_position, reduce_axes
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, call, constant, select

_NAMES = ("Softmax", "LogSoftmax", "Hardmax")


@operator(*_NAMES)
def over_the_rest(b: Builder, x: Value, *, axis: int = 1) -> Value:
    """All dimensions from `axis` on are one row."""
    axis = axis + x.rank if axis < 0 else axis
    if not 0 <= axis <= x.rank:
        b.refuse(f"axis {axis} of a tensor of rank {x.rank}")
    rows = b.view(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))
    return b.view(_along(b, rows, 1), x.shape)


@operator(*_NAMES, since=13)
def along_axis(b: Builder, x: Value, *, axis: int = -1) -> Value:
    return _along(b, x, b.axis(axis, x.rank))


def _along(b: Builder, x: Value, axis: int) -> Value:
    b.require_float(x)
    number = x.dtype.computed

    def kept(i: tuple[Term, ...]) -> tuple[Term, ...]:
        return (*i[:axis], *i[axis + 1 :])

    greatest = reduce_axes(b, "max", x, (axis,), number, lambda v: v)
    if b.node.op == "Hardmax":
        first = find_position(b, x, greatest, axis, is_last=False)
        one = constant(1, x.dtype)
        return b.map(x.shape, x.dtype, lambda *i: select(first[kept(i)] == i[axis], one, 0))
    powers = b.map(x.shape, number, lambda *i: call("exp", x[i] - greatest[kept(i)]))
    sums = reduce_axes(b, "add", powers, (axis,), number, lambda v: v)

    def body(*i: Term) -> Operand:
        if b.node.op == "LogSoftmax":
            return x[i] - greatest[kept(i)] - call("log", sums[kept(i)])
        return powers[i] / sums[kept(i)]

    return b.map(x.shape, x.dtype, body)
