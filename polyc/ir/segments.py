"""Ranges that data bounds: clauses with bounds that read integer tensors, and those that cut a range into segments.

``k in 0:length(b)`` leaves points of a box out, which `loaded_conditions` says as conditions.  Where both bounds are
neighbours in one tensor, ``p in ptr(i):ptr(i + 1)``, and the tensor never decreases, each `p` is in the segment of one `i` at
most.  That the tensor is so is checked when the operator is called, before anything is written; a statement may count on it
(`fixed_indices`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Read,
    Select,
    any_holds,
    index_names,
    int_const,
    le,
    lt,
    size_names,
    substitute,
    walk,
)
from polyc.ir.program import RangeClause, Statement, Where
from polyc.ir.simplify import difference, simplify
from polyc.ir.types import BOOL, I64, DType
from polyc.records import dataclass

FARTHEST = 1 << 48
"""More than there are elements in an address space: index arithmetic counts on sums of numbers up to this one to be exact."""

NUMBER, BEGIN, LENGTH = "segment.number", "segment.begin", "segment.length"
SEGMENT_SIZES = (NUMBER, BEGIN, LENGTH)
"""Sizes of a program for one segment: which one it is, its first position, and how many it has."""


@dataclass(frozen=True, slots=True)
class SegmentRuns:
    """The segments that a program for one of them is run for.

    ``for NUMBER in 0:count { BEGIN = lower; LENGTH = upper - lower; … }``: `count` is over sizes, `lower` and `upper` read,
    over NUMBER, where a segment begins and ends.  The call has checked that segments follow each other in order in
    ``0:positions``."""

    count: Expr
    lower: Expr
    upper: Expr
    positions: Expr
    initial: tuple[tuple[str, Expr], ...]
    """Results, and what their elements at positions in no segment hold."""
    is_parallel: bool
    """Whether threads share segments out; else they share out the work on each of them."""

    def longest(self, shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Extents that serve segments of any length."""
        return tuple(simplify(substitute(e, {}, {LENGTH: self.positions})) for e in shape)


def place_in_segment(subscripts: tuple[Expr, ...], lower: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Where an element of a segment's part of an argument lies: a dimension that is one of positions, or of segments, has its
    `lower` end at the first position, or at the number, of the segment."""
    own = [size_names(low).isdisjoint(SEGMENT_SIZES) for low in lower]
    return tuple(e if whole else e + low for e, low, whole in zip(subscripts, lower, own, strict=True))


def is_loaded(bound: Expr) -> bool:
    """Whether a bound of a range reads a tensor."""
    return any(isinstance(node, Read) for node in walk(bound))


def loaded_clauses(where: Sequence[Where]) -> Iterator[RangeClause]:
    """The clauses of which a bound reads."""
    return (w for w in where if isinstance(w, RangeClause) and (is_loaded(w.lower) or is_loaded(w.upper)))


def loaded_conditions(where: Sequence[Where]) -> Iterator[Expr]:
    """What bounds that read say of their indices."""
    for clause in loaded_clauses(where):
        if is_loaded(clause.lower):
            yield le(clause.lower, Index(clause.index))
        if is_loaded(clause.upper):
            yield lt(Index(clause.index), clause.upper)


def too_large_terms(bound: Expr, types: Mapping[str, DType]) -> Iterator[tuple[Expr, Expr, Read]]:
    """Where an element that a bound calculates with is so large that 64 bits may not hold the result, and that element:
    guarded as it is in the bound, and alone.

    ``n(b) + 1`` is less than nothing for the greatest number; ``n(b)`` itself, minima and quotients are as they are."""

    def find(e: Expr, is_operand: bool) -> Iterator[tuple[Expr, Expr, Read]]:
        match e:
            case Read(tensor) if is_operand and types[tensor] == I64:
                yield any_holds([lt(e, -FARTHEST), lt(FARTHEST, e)]), e, e
            case Cast(value):
                yield from find(value, is_operand)
            case Call(op, args):
                for arg in args:
                    yield from find(arg, is_operand or op not in ("min", "max", "floordiv", "mod"))
            case Select(condition, then, other):  # which guards what the arms read
                no, zero = Const(False, BOOL), int_const(0)
                for violated, shown, read in find(then, is_operand):
                    yield Select(condition, violated, no), Select(condition, shown, zero), read
                for violated, shown, read in find(other, is_operand):
                    yield Select(condition, no, violated), Select(condition, zero, shown), read

    return find(bound, False)


def segment_reads(clause: RangeClause) -> tuple[Read, Read, str] | None:
    """Both bounds of a range that is a segment, and the index that counts segments; None where it is none.

    The bounds are elements of one tensor, side by side along a dimension in which that index stands, with a number at most."""
    lower, upper = clause.lower, clause.upper
    while isinstance(lower, Cast) and isinstance(upper, Cast) and lower.dtype == upper.dtype:
        lower, upper = lower.value, upper.value
    if not isinstance(lower, Read) or not isinstance(upper, Read) or lower.tensor != upper.tensor:
        return None
    steps = [difference(b, a) for a, b in zip(lower.subscripts, upper.subscripts, strict=True)]
    moving = [d for d, step in enumerate(steps) if step != 0]
    if len(moving) != 1 or steps[moving[0]] != 1:
        return None
    place = lower.subscripts[moving[0]]
    others = index_names(*(e for d, e in enumerate(lower.subscripts) if d != moving[0]))
    for index in index_names(place) - others:
        if difference(place, Index(index)) is not None:
            return lower, upper, index
    return None


def fixed_indices(subscripts: Sequence[Expr], where: Sequence[Where]) -> set[str]:
    """Indices of which at most one value goes with an element: those that stand alone in a subscript, and those that count the
    segments of such an index."""
    fixed = {e.name for e in subscripts if isinstance(e, Index)}
    clauses = [(c.index, found) for c in loaded_clauses(where) if (found := segment_reads(c)) is not None]
    is_new = True
    while is_new:
        more = {
            along
            for index, (lower, _, along) in clauses
            if index in fixed and index_names(*lower.subscripts) - {along} <= fixed and along not in fixed
        }
        fixed, is_new = fixed | more, bool(more)
    return fixed


def is_segmented(s: Statement) -> bool:
    """Whether a statement assigns elements of segments, with values that an index which is not on the left counts."""
    return s.reduction is None and bool(s.reduction_indices)
