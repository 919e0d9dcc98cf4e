"""Ranges whose ends are data: between which loaded ends an index of a reduction runs, and for which other indices they are.

``Y[i] += ptr[i] <= p && p < ptr[i + 1] ? v[p] : 0`` adds something only where p lies in the segment of i: a loop over p inside
of one over i may run from one end to the other (`codegen.nests.bounds`), on average as many times as there are p for each i.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import field
from math import prod

from polyc.ir.expr import (
    MONOIDS,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Read,
    Select,
    identity_of,
    index_names,
    map_children,
    operands_of,
    reads,
    substitute,
)
from polyc.ir.facts import Span, span_of
from polyc.ir.simplify import difference, simplify
from polyc.ir.types import I64
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class LoadedRange:
    """`outer`: the indices that name the ends.  `is_partition`: these are neighbours in one array, where each range ends as the
    next one begins; `begin` is then the lower one."""

    outer: frozenset[str]
    is_partition: bool
    begin: Expr | None = field(default=None, compare=False)


def needed_tests(op: str, value: Expr) -> list[Expr]:
    """Tests all of which hold wherever a term of a reduction is not the identity."""
    match value:
        case Select(condition, _, Const() as other) if op in MONOIDS and other == identity_of(op, other.dtype):
            return operands_of(condition, "and")
    return []


def find_loaded_ranges(op: str, value: Expr, indices: Sequence[str], reduced: Collection[str]) -> dict[str, LoadedRange]:
    """The indices of a reduction over those that are `reduced` that run between loaded ends, as far as loops should.

    No index names the ends of one that names its own.  Left out is what an index of a sum says of one of its results, but for
    segments: the terms of a result would be far apart, and single values (equations) are classes, of which there may be few."""
    found: dict[str, LoadedRange] = {}
    ends: dict[str, list[tuple[Expr | None, Expr | None]]] = {}
    assumed = dict.fromkeys(indices, (0, 0))  # the loops will tell whether indices fit into the types that they are compared in
    for test in needed_tests(op, value):
        is_range = isinstance(test, Call) and test.op != "eq" and bool(reads(test))
        for index in reversed(indices) if is_range else ():
            span = span_of(test, index, assumed)
            if span is None:
                continue
            outer = index_names(*(e for e in (span.lower, span.upper) if e is not None))
            if index in _all_outer(outer, found):
                continue
            ends.setdefault(index, []).append((span.lower, span.upper))
            outer |= found[index].outer if index in found else set()
            is_partition = _are_neighbours(ends[index])
            begin = _first_end(ends[index]) if is_partition else None
            found[index] = LoadedRange(frozenset(outer), is_partition, begin)
            break
    return {i: r for i, r in found.items() if r.is_partition or i in reduced or r.outer.isdisjoint(reduced)}


def expected_trips(found: Mapping[str, LoadedRange], trips: Mapping[str, int]) -> dict[str, int]:
    """Iterations by index, of the parts of a partition as many as they have on average."""
    averages = {i: max(1, trips[i] // max(1, prod(trips[o] for o in r.outer))) for i, r in found.items() if r.is_partition}
    return {**trips, **averages}


def _all_outer(names: Collection[str], found: Mapping[str, LoadedRange]) -> set[str]:
    """These indices, those that name their ends, and so on."""
    result, left = set[str](), list(names)
    while left:
        name = left.pop()
        if name not in result:
            result.add(name)
            left += found[name].outer if name in found else ()
    return result


def _first_end(spans: Sequence[tuple[Expr | None, Expr | None]]) -> Expr | None:
    """Where a part begins, if the next one begins where it ends: ``ptr[i] + 1`` up to ``ptr[i + 1] + 1``; else None."""
    low, high = (next(e for e in ends if e is not None) for ends in zip(*spans, strict=True))
    names = index_names(low, high)
    follows = {i: Index(i) + 1 for i in names} if len(names) == 1 else {}
    return simplify(low) if follows and simplify(substitute(low, follows)) == simplify(high) else None


def _are_neighbours(spans: Sequence[tuple[Expr | None, Expr | None]]) -> bool:
    """Whether the least and the greatest value are elements of one array that lie side by side."""
    lowers, uppers = ([r for e in ends if e is not None for r in reads(e)] for ends in zip(*spans, strict=True))
    if len(lowers) != 1 or len(uppers) != 1 or lowers[0].tensor != uppers[0].tensor:
        return False
    steps = [difference(b, a) for a, b in zip(lowers[0].subscripts, uppers[0].subscripts, strict=True)]
    return None not in steps and [s for s in steps if s] == [1]


def may_wrap(test: Expr, span: Span, wide: Set[str]) -> bool:
    """Whether an end is 1 beside what the test reads, of 64 bits: ``k <= n`` holds for all k where n is the greatest number."""
    if not isinstance(test, Call) or test.op == "eq":
        return False
    ends = [e for e in (span.lower, span.upper) if e is not None and any(r.tensor in wide for r in reads(e))]
    return any(all(difference(_as_i64(e), _as_i64(a)) != 0 for a in test.args) for e in ends)


def _as_i64(expr: Expr) -> Expr:
    """The same with each read as an ``i64``, once."""
    match expr:
        case Cast(Read(), dtype) if dtype == I64:
            return expr
        case Read():
            return Cast(expr, I64)
    return map_children(expr, _as_i64)
