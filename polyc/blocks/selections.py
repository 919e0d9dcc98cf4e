"""What an extremum selects, such as its position: reduced in the pass that finds the extremum.

``T[i] max= f(i, r)`` with ``Q[i] op= f(i, r) == T[i] ? e(i, r) : none`` are two passes over all of f.  A block has its part of
both by its own maximum t in the place of T: where t is the total, its points are those that are selected, and its q is right;
where it is not, none of its points is.  So partial results are combined by

    T = max over blocks of t,  Q = op over blocks of (t == T ? q : none)

which is right for the parts of any tree.  The same goes for what is selected by what was selected before: ``f == T && e == Q``
holds at no point of a block whose q is not Q, as Q is an extremum of e, or a block without such a point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polyc.blocks.laws import Law
from polyc.ir.expr import MONOIDS, Call, Expr, Read, Select, identity_of, operands_of, reads
from polyc.ir.program import Monoid, Program, Statement
from polyc.poly.ranges import Ranges


@dataclass(frozen=True)
class Combined:
    """How one of the partial results of blocks is combined: by the monoid `op`, of those blocks alone whose partial results at
    the places `agreeing` are the totals; others count as `none`.

    With `monoid`, a user's, all partial results together are one of its tuples.  With a `law` its terms are combined."""

    op: str
    agreeing: tuple[int, ...] = ()
    none: Any = 0
    monoid: Monoid | None = None
    law: Law | None = None


@dataclass(frozen=True)
class _Extremum:
    """`total` is an extremum of `value` at the points at which the extrema at the places `among` are met."""

    value: Expr
    total: Read
    among: frozenset[int]


def find_selections(program: Program, ranges: Ranges, s: Statement) -> list[tuple[Statement, Combined]]:
    """The reductions that the extremum `s` selects the terms of, in their order."""
    assert s.reduction is not None
    if s.reduction.op not in ("max", "min") or s.reduction.init != identity_of(s.reduction.op, program.types[s.target]):
        return []
    found: list[tuple[Statement, Combined]] = []
    extrema: list[_Extremum | None] = [_Extremum(s.value, Read(s.target, s.subscripts), frozenset())]
    writers = program.writers()
    for x in program.statements[program.statements.index(s) + 1 :]:
        if (
            x.reduction is None
            or x.reduction.op not in MONOIDS
            or not isinstance(x.value, Select)
            or len(writers[x.target]) > 1
        ):
            continue
        dtype, own = program.types[x.target], ranges.statements[x.name].indices
        if (x.subscripts, x.where) != (s.subscripts, s.where) or own != ranges.statements[s.name].indices:
            continue
        if x.reduction.op in ("add", "mul") and (dtype.is_float or dtype.is_complex):
            continue
        agreeing, none = _find_agreeing(x.value.condition, extrema), identity_of(x.reduction.op, dtype)
        taken = {e.total.tensor for e in extrema if e is not None}
        if 0 not in agreeing or x.value.other != none or any(r.tensor in taken for r in reads(x.value.then)):
            continue
        found.append((x, Combined(x.reduction.op, tuple(sorted(agreeing)), none.value)))
        is_extremum = x.reduction.op in ("max", "min") and x.reduction.init == none
        extrema.append(_Extremum(x.value.then, Read(x.target, x.subscripts), agreeing) if is_extremum else None)
    return found


def _find_agreeing(condition: Expr, extrema: Sequence[_Extremum | None]) -> frozenset[int]:
    """The places of the extrema that a condition asks its terms to meet: ``e == T``, also with ``|| e != e``, where NaN is an
    extremum.  Nothing where it asks anything else, or does not ask what one of the extrema is among."""
    places: dict[Expr, int] = {}
    for n, e in enumerate(extrema):
        if e is not None:
            equal = Call("eq", (e.value, e.total))
            places[equal] = places[Call("or", (equal, Call("ne", (e.value, e.value))))] = n
    asked = frozenset(places.get(c, -1) for c in operands_of(condition, "and"))
    is_closed = all(n >= 0 and (e := extrema[n]) is not None and e.among <= asked for n in asked)
    return asked if is_closed else frozenset()
