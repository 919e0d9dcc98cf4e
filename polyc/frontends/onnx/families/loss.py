"""Losses of classifiers, and the choice of the greatest class."""

from __future__ import annotations

from math import prod

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, call, cast, select
from polyc.ir.expr import identity_of
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


@operator("Hardmax", since=1)
def hardmax_1(b: Builder, x: Value, *, axis: int = 1) -> Value:
    """Over all dimensions from `axis` on, as one."""
    axis = b.axis(axis, x.rank) if axis != x.rank else axis
    rows = b.view(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))
    return b.view(_hardmax(b, rows, 1), x.shape)


@operator("Hardmax", since=13)
def hardmax(b: Builder, x: Value, *, axis: int = -1) -> Value:
    return _hardmax(b, x, b.axis(axis, x.rank))


def _hardmax(b: Builder, x: Value, axis: int) -> Value:
    """1 at the first greatest element along `axis`, 0 elsewhere."""
    b.require_float(x)
    left, over = (*x.shape[:axis], *x.shape[axis + 1 :]), (x.shape[axis],)

    def element(i: tuple[Term, ...]) -> Term:
        return x[(*i[:axis], i[-1], *i[axis:-1])]

    best = b.reduce("max", left, over, x.dtype, lambda *i: element(i))
    none = identity_of("min", I64).value

    def position(*i: Term) -> Operand:
        value = element(i)
        return select((value == best[i[:-1]]) | (value != value), i[-1], none)

    first = b.reduce("min", left, over, I64, position)
    number = x.dtype.computed
    return b.map(x.shape, x.dtype, lambda *i: cast(first[(*i[:axis], *i[axis + 1 :])] == i[axis], number))


@operator("Det", since=11)
def det(b: Builder, x: Value) -> Value:
    """The product of the pivots of Gauss' elimination, each the greatest of its column."""
    b.require_float(x)
    if x.rank < 2 or x.shape[-1] != x.shape[-2] or not 1 <= x.shape[-1] <= 16:
        b.refuse(f"the determinant of a tensor of shape {x.shape}")
    batch, n, number = x.shape[:-2], x.shape[-1], x.dtype.computed
    rest = b.map(x.shape, number, lambda *i: x[i])
    pivots: list[Value] = []
    none = identity_of("min", I64).value
    for m in range(n, 0, -1):
        column = b.reduce("max", batch, (m,), number, lambda *i, a=rest: call("abs", a[(*i, 0)]))
        row = b.reduce(
            "min",
            batch,
            (m,),
            I64,
            lambda *i, a=rest, c=column: select(
                (call("abs", a[(*i, 0)]) == c[i[:-1]]) | (a[(*i, 0)] != a[(*i, 0)]), i[-1], none
            ),
        )
        # The first row takes the place of the pivot's, which changes the sign.
        pivot = b.map(batch, number, lambda *i, a=rest, r=row: a[(*i, r[i], 0)])
        pivots.append(b.map(batch, number, lambda *i, p=pivot, r=row: select(r[i] == 0, p[i], -p[i])))
        if m == 1:
            break

        def eliminated(*i: Term, a: Value = rest, r: Value = row, p: Value = pivot) -> Operand:
            front, k, j = i[:-2], i[-2] + 1, i[-1] + 1
            best = r[front]
            source = select(best == k, k - k, k)
            factor = select(p[front] == 0, 0, a[(*front, source, 0)] / p[front])
            return a[(*front, source, j)] - factor * a[(*front, best, j)]

        rest = b.map((*batch, m - 1, m - 1), number, eliminated)

    def product(*i: Term) -> Operand:
        total = pivots[0][i]
        for p in pivots[1:]:
            total = total * p[i]
        return total

    return b.map(batch, x.dtype, product)
