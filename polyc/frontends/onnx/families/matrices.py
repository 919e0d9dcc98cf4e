"""Determinants."""

from __future__ import annotations

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, call, select
from polyc.ir.expr import identity_of
from polyc.ir.types import I64

MAX_ORDER = 16
"""Order of a matrix whose elimination is written out."""


@operator("Det", since=11)
def det(b: Builder, x: Value) -> Value:
    """The product of the pivots of Gauss' elimination, each the greatest of its column."""
    b.require_float(x)
    if x.rank < 2 or x.shape[-1] != x.shape[-2] or not 1 <= x.shape[-1] <= MAX_ORDER:
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
