"""Reductions that choose: the greatest (or least) value and where it stands, as ordinary statements.

``(v(i), p(i), q(i)) argmax=! X(i, j, k)`` means, for the first point in the order of the indices that has the greatest value,

    v(i) max=! X(i, j, k)
    p(i) min=! X(i, j, k) == v(i) ? j : none
    q(i) min=! X(i, j, k) == v(i) && j == p(i) ? k : none

where ``==`` also holds for every NaN, as NaN wins in NumPy, and none is the greatest number of the position's type.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.diagnostics import Span
from polyc.ir.expr import Call, Cast, Expr, Index, Read, Select, identity_of
from polyc.ir.program import Reduction, Statement, Where
from polyc.ir.types import I64, U8, DType

SELECTIONS = {"argmax": "max", "argmin": "min"}
"""The monoid of the values by the name of the selection."""


def compared_type(dtype: DType) -> DType:
    """The type in which values of `dtype` are compared."""
    if dtype.is_storage:
        return dtype.computed
    return U8 if dtype.kind == "b" else dtype


def build_selection(
    op: str,
    value: Expr,
    dtype: DType,
    best: str,
    positions: Sequence[tuple[str, DType]],
    left: tuple[Index, ...],
    others: tuple[str, ...],
    where: tuple[Where, ...],
    span: Span | None,
) -> list[Statement]:
    """Statements for the values in `best` and the `positions` along `others`: (version, element type) each.

    `value` is of type `dtype`, which `compared_type` gave; `left` are the indices of all left sides.
    """
    monoid = SELECTIONS[op]
    indices = (*dict.fromkeys(i.name for i in left), *others)
    first = Statement("", best, left, indices, value, Reduction(monoid, identity_of(monoid, dtype)), where, span)
    statements = [first]
    is_chosen: Expr = Call("eq", (value, Read(best, left, span)))
    if dtype.is_float:
        is_chosen = Call("or", (is_chosen, Call("ne", (value, value))))
    for (version, type), index in zip(positions, others, strict=True):
        none = identity_of("min", type)
        here: Expr = Index(index, span) if type == I64 else Cast(Index(index, span), type)
        statements.append(
            Statement("", version, left, indices, Select(is_chosen, here, none), Reduction("min", none), where, span)
        )
        place = Read(version, left, span)
        is_chosen = Call("and", (is_chosen, Call("eq", (here, place))))
    return statements
