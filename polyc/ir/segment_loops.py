"""Elements that loops over the segments of a partition visit: ``for b { for i in ptr[b]:ptr[b + 1] { … T[i] … } }``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from polyc.ir.access import expressions_in, reads_in, writes_in
from polyc.ir.expr import Expr, Index, index_names, lt, mentions, reads, substitute
from polyc.ir.facts import is_refused
from polyc.ir.loops import Loop, Node, Store, Update
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, nodes_in, perfect_nest
from polyc.records import dataclass

_PART = "·part"


@dataclass(frozen=True, slots=True)
class Visited:
    """All elements whose subscripts that are None lie in one segment, between `begin` and where the next one begins;
    `parts`: the range of what counts segments."""

    parts: tuple[Expr, Expr]
    begin: Expr
    subscripts: tuple[Expr | None, ...]


def find_visited(loops: Sequence[Loop], subscripts: Sequence[Expr], first: Body) -> tuple[Visited, frozenset[str]] | None:
    """The elements at `subscripts` in these loops, and the variables that tell them and their segment apart; None if they
    are not those of segments that the checks `first` know to be in order."""
    of: Mapping[str, Loop] = {loop.var: loop for loop in loops}
    inside = [of.get(e.name) if isinstance(e, Index) else None for e in subscripts]
    moving = [loop for loop in inside if loop is not None]
    ends = {(loop.lower, loop.upper) for loop in moving}
    names = {loop.var for loop in moving}
    if len(ends) != 1 or len(names) != len(moving) or any(loop.step != 1 for loop in moving):
        return None
    ((low, high),) = ends
    outer = index_names(low, high)
    if (
        len(outer) != 1
        or not outer <= of.keys()
        or any(mentions(e, *of) for e, loop in zip(subscripts, inside, strict=True) if loop is None)
    ):
        return None
    part = of[next(iter(outer))]
    follows = simplify(substitute(low, {part.var: Index(part.var) + 1})) == high
    if not follows or part.step != 1 or not is_refused(first, lt(high, low), part.var, part.lower, part.upper):
        return None
    own = tuple(simplify(e) if loop is None else None for e, loop in zip(subscripts, inside, strict=True))
    begin = simplify(substitute(low, {part.var: Index(_PART)}))
    return Visited((part.lower, part.upper), begin, own), frozenset({part.var, *names})


def visits_of(node: Node, buffer: str, first: Body) -> Iterator[Visited | None]:
    """For each read of a buffer in a nest what the loops there visit; None where they may visit anything."""
    for inner, scope in nodes_in((node,)):
        if isinstance(inner, (Store, Update)):
            for read in (r for e in (inner.value, *inner.subscripts) for r in reads(e) if r.tensor == buffer):
                found = find_visited(scope.loops, read.subscripts, first)
                yield None if found is None else found[0]
        elif isinstance(inner, Loop):
            yield from (None for e in (inner.lower, inner.upper) for r in reads(e) if r.tensor == buffer)
        elif any(r.tensor == buffer for e in expressions_in((inner,)) for r in reads(e)):
            yield None  # a test, or all that it stands around


def count_accesses(body: Body, buffer: str) -> int:
    """How often nodes name a buffer."""
    return sum(w.buffer == buffer for w in writes_in(body)) + sum(r.tensor == buffer for r in reads_in(body))


def find_segment_sum(
    nests: Sequence[Node], buffer: str, whole: Body, first: Body
) -> tuple[tuple[Loop, ...], Update, int] | None:
    """The loops and the update of a sum over elements of segments, and how many of its loops are around each element once.

    `nests`: the sum, and behind it all that reads its elements; None where some may be elements that it has not visited.
    Beside them `whole` names the buffer once more."""
    loops, (update, *more) = perfect_nest(nests[0])
    if more or not isinstance(update, Update) or update.buffer != buffer:
        return None
    found = find_visited(loops, update.subscripts, first)
    if found is None:
        return None
    visited, names = found
    around = loops[: len(names)]
    if names != {loop.var for loop in around if loop.kind in ("serial", "parallel")} or len(loops) == len(around):
        return None
    seen = [v for n in nests for v in visits_of(n, buffer, first)]
    is_all = all(v == visited for v in seen) and count_accesses(whole, buffer) == len(seen) + 2
    return (loops, update, len(around)) if is_all else None
