"""Reads and copies of whole tensors, and names that are free."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from polyc.ir.expr import Expr, Index, Read, int_const
from polyc.ir.program import RangeClause, Statement
from polyc.ir.simplify import simplify
from polyc.poly.ranges import Interval


def read_shifted(name: str, subscripts: Iterable[Expr], box: Sequence[Interval]) -> Read:
    """A read of a tensor that is counted from 0, at subscripts in `box`."""
    places = zip(subscripts, box, strict=True)
    return Read(name, tuple(e if i.lower == int_const(0) else simplify(e - i.lower) for e, i in places))


def copy_tensor(target: str, box: Sequence[Interval], read: Callable[[Sequence[Expr]], Expr]) -> Statement:
    """The statement that fills a box of a tensor with what `read` makes of the subscripts."""
    names = [f"e{d}" for d in range(len(box))]
    places: list[Expr] = [Index(n) for n in names]
    where = tuple(RangeClause(n, i.lower, simplify(i.lower + i.extent)) for n, i in zip(names, box, strict=True))
    return Statement(f"{target}_copy", target, tuple(places), tuple(names), read(places), None, where)


def free(wanted: str, taken: set[str]) -> str:
    name, k = wanted, 2
    while name in taken:
        name, k = f"{wanted}_{k}", k + 1
    taken.add(name)
    return name
