"""Losses of classifiers, and the choice of the greatest class."""

from __future__ import annotations

from math import prod

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, call, cast, select
from polyc.ir.types import I64


@operator("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood_loss(
    b: Builder,
    x: Value,
    target: Value,
    weight: Value | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Value:
    """``-x[n, target[n, …], …]``, weighted by class; `x` is ``[batch, class, …]``."""
    b.require_float(x)
    return _pick(b, x, x, target, weight, ignore_index, reduction)


@operator("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy_loss(
    b: Builder,
    x: Value,
    target: Value,
    weight: Value | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Value, Value]:
    """The loss of the logarithms of the softmax over the classes, and these."""
    b.require_float(x)
    if x.rank < 2:
        b.refuse(f"scores of shape {x.shape}")
    number = x.dtype.computed
    left, n_classes = (x.shape[0], *x.shape[2:]), x.shape[1:2]

    def score(*i: Term) -> Term:
        return x[(i[0], i[-1], *i[1:-1])]

    greatest = b.reduce("max", left, n_classes, number, score)
    sums = b.reduce("add", left, n_classes, number, lambda *i: call("exp", score(*i) - greatest[i[:-1]]))
    totals = b.map(left, number, lambda *i: call("log", sums[i]) + greatest[i])
    logs = b.map(x.shape, x.dtype, lambda *i: x[i] - totals[(i[0], *i[2:])])
    return _pick(b, x, logs, target, weight, ignore_index, reduction), logs


def _pick(b: Builder, x: Value, logs: Value, target: Value, weight: Value | None, ignored: int | None, reduction: str) -> Value:
    if x.rank < 2 or target.shape != (x.shape[0], *x.shape[2:]) or reduction not in ("mean", "sum", "none"):
        b.refuse(f"scores of shape {x.shape}, targets of shape {target.shape}, reduction {reduction}")
    if weight is not None and weight.shape != x.shape[1:2]:
        b.refuse(f"weights of shape {weight.shape}")
    number, shape = x.dtype.computed, target.shape
    if x.shape[1] == 0:
        b.refuse("there are no classes")

    def known(*i: Term) -> tuple[Term, Term | None]:
        """The class (of what is ignored, any), and whether it counts."""
        label = cast(target[i], I64)
        if ignored is None:
            return label, None
        counts = label != ignored
        return select(counts, label, 0), counts

    def share(*i: Term) -> Term | None:
        """How much an element counts; None: fully."""
        label, counts = known(*i)
        if weight is None:
            return None if counts is None else cast(counts, number)
        value = cast(weight[label], number)
        return value if counts is None else select(counts, value, 0)

    def loss(*i: Term) -> Operand:
        label, counts = known(*i)
        value = -logs[(i[0], label, *i[1:])]
        if weight is not None:
            value = value * cast(weight[label], number)
        return value if counts is None else select(counts, value, 0)

    if reduction == "none":
        return b.map(shape, x.dtype, loss)
    total = b.reduce("add", (), shape, number, loss)
    if reduction == "sum":
        return b.map((), x.dtype, lambda: total[()])
    if weight is None and ignored is None:
        return b.map((), x.dtype, lambda: total[()] / float(prod(shape)))

    def counted(*i: Term) -> Operand:
        value = share(*i)
        assert value is not None
        return value

    count = b.reduce("add", (), shape, number, counted)
    return b.map((), x.dtype, lambda: total[()] / count[()])
