"""Checks of arguments' elements that run before everything else: a loop over each box, with all checks of that box."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import count, groupby

from polyc.ir.expr import Expr, Index, int_const, operands_of, substitute
from polyc.ir.loops import Guard, Loop, Node
from polyc.ir.simplify import simplify
from polyc.poly.ranges import DataCheck, Interval


def translate_checks(checks: Sequence[DataCheck], first: int, lanes: int, taken: Collection[str]) -> tuple[Node, ...]:
    """The loops of `checks`, which are numbered from `first` on.  What a failed one reports is the element that it shows, and
    the number of the point in its box, in row-major order.  `taken`: names that loops cannot have."""
    numbered = groupby(enumerate(checks, first), lambda numbered: numbered[1].box)
    return tuple(node for box, group in numbered for node in _over_box(box, list(group), lanes, taken))


def _over_box(
    box: tuple[tuple[str, Interval], ...], checks: list[tuple[int, DataCheck]], lanes: int, taken: Collection[str]
) -> tuple[Node, ...]:
    names = (f"c{n}" for n in count() if f"c{n}" not in taken)
    loops = [(interval, name, next(names)) for name, interval in box]
    values: dict[str, Expr] = {name: Index(var) for _, name, var in loops}
    place: Expr = int_const(0)
    for interval, _, var in loops:
        place = place * interval.extent + (Index(var) - interval.lower)
    nodes: tuple[Node, ...] = tuple(
        Guard(number, int_const(-1), int_const(0), c.violated, (c.shown, place)).map(lambda e: simplify(substitute(e, values)))
        for number, c in checks
    )
    for n, (interval, _, var) in enumerate(reversed(loops)):
        start, end = simplify(interval.lower), simplify(interval.lower + interval.extent)
        is_long = n == 0 and int_const(1) not in operands_of(interval.extent, "min")
        nodes = (Loop(var, start, end, 1, "vector" if is_long else "serial", nodes, lanes=lanes if is_long else 1),)
    return nodes
