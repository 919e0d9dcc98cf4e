"""Register promotion of reductions (scalar replacement): which buffers a loop can hold in accumulators while it runs.

    before  ``for k { unroll i < 6 { vector j < 64 { C[i, j] += A[i, k] * B[k, j] } } }``
    after   the same with ``registers = (C,)``: 6 rows of vectors, loaded before the loop and stored behind it

A loop can hold a buffer where that cannot be seen: every use inside is an update of one and the same set of elements, and
different copies and lanes update different elements, or share one on purpose.  Loops are marked by
a narrower test (`codegen.nests.scalars`); this one is asked before code is written, for what passes in between have made of
them, and what does not qualify stays in memory.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

from polyc.ir.access import accesses_in, moves, touched_in
from polyc.ir.expr import Expr, Index, index_names, reads
from polyc.ir.loops import Loop, Update
from polyc.ir.simplify import factors_of, linear_form
from polyc.ir.walk import TOP, Fact, Scope

Site = tuple[Update, Scope]
"""An update, and what is around it from the loop on that holds its buffer."""


def updates_of(loop: Loop, name: str) -> list[Site] | None:
    """The updates of a buffer in a loop; None where it is used in any other way, or threads would share it."""
    found = [a for a in accesses_in(loop.body, TOP.inside(loop)) if a.buffer == name]
    sites = [(a.node, a.scope) for a in found if isinstance(a.node, Update) and a.is_write]
    if len(sites) < len(found) or any(inner.kind == "parallel" for _, scope in sites for inner in scope.loops[1:]):
        return None
    return sites


def can_hold(loop: Loop, name: str, sharing: Collection[str], positive: Collection[Expr] = (), lane: str | None = None) -> bool:
    """Whether a loop can keep what it accumulates in a buffer out of memory while it runs.

    `sharing`: buffers that may be the same memory.  `positive`: expressions that are at least 1.  `lane`: the variable of a
    vector loop around, whose lanes must not share elements: each of its iterations adds their sum to memory."""
    sites = updates_of(loop, name)
    if not sites or not touched_in(loop.body).isdisjoint(sharing):
        return False
    if lane is not None and not all(moves(update, lane) for update, _ in sites):
        return False
    tests = [frozenset(step for step in scope.path if isinstance(step, Fact)) for _, scope in sites]
    if any(tests) and any(start.buffer == name for start in loop.initial):
        return False  # the initial value is due where the condition fails, too
    tiles = {(update.subscripts, update.op, _tile_of(update, scope, positive)) for update, scope in sites}
    if len(tiles) > 1 or any(tile is None for _, _, tile in tiles):
        return False
    return all(a == b or any(Fact(t.condition, not t.outcome) in b for t in a) for a, b in combinations(tests, 2))


def _tile_of(update: Update, scope: Scope, positive: Collection[Expr]) -> tuple[object, ...] | None:
    """The expanded loops whose copies have elements of their own, or None where the target cannot be held."""
    names = index_names(*update.subscripts)
    own = [loop for loop in scope.loops if loop.is_expanded and loop.var in names]
    changing = {loop.var for loop in scope.loops if loop not in own}
    asked = [step.condition for step in scope.path if isinstance(step, Fact)]
    fixed = (*update.subscripts, *asked, *(bound for loop in own for bound in (loop.lower, loop.upper)))
    if index_names(*fixed) & changing or any(reads(e) for e in fixed) or not _is_disjoint(update.subscripts, own, positive):
        return None
    return tuple((loop.var, loop.kind, loop.lower, loop.upper, loop.max_trip, loop.lanes) for loop in own)


def _is_disjoint(subscripts: tuple[Expr, ...], own: list[Loop], positive: Collection[Expr]) -> bool:
    """Whether different copies and lanes write different elements: in each dimension the strides of the variables nest, or one
    variable alone has a stride that is at least 1."""
    # With the lanes of the last vector: those beyond the bound are masked, but the keys must differ.
    trips = {n.var: -(-(n.max_trip or 1) // n.lanes) * n.lanes if n.kind == "vector" else n.max_trip or 1 for n in own}
    seen: set[str] = set()
    for subscript in subscripts:
        strides: list[tuple[int, int, str]] = []
        is_open = False
        form = linear_form(subscript)
        if form is None:
            return False
        for term, c in form.items():
            factors = factors_of(term)
            touched = index_names(*factors) & trips.keys()
            if not touched:
                continue
            variables = [f.name for f in factors if isinstance(f, Index) and f.name in trips]
            if variables != list(touched) or not all(f in positive or f == Index(variables[0]) for f in factors):
                return False
            is_open |= len(factors) > 1
            strides.append((abs(c), trips[variables[0]], variables[0]))
        if is_open and len(strides) > 1:
            return False
        reach = 0
        for stride, trip, name in sorted(strides):
            if name in seen or stride <= reach:
                return False
            seen.add(name)
            reach += stride * (trip - 1)
    return seen == set(trips)
