"""Loops cut where comparisons of their variable change: no test of an index is left inside.

Before: ``for j in 0:n { S[j] = j > 0 ? f(S[j - 1]) : a }``.  After: ``for j in 0:1 { S[j] = a }  for j in 1:n { S[j] =
f(S[j - 1]) }``.  What a comparison decides is folded into the conditions, branches and checks that hold it.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyc.ir.expr import Call, Const, Expr, Select, int_const, mentions, substitute, walk
from polyc.ir.facts import assume, clamp, comparisons_in, hold, pieces, straight_nodes
from polyc.ir.loops import Guard, If, Loop, Store
from polyc.ir.simplify import difference, simplify
from polyc.records import replace

MOST_CUTS = 8
"""Places where a loop is cut."""


def split_borders(loop: Loop) -> tuple[Loop, ...]:
    """Pieces of the loop in which every test of its variable has one outcome."""
    cuts: list[Expr] = []
    decided: set[Expr] = set()
    for atom in dict.fromkeys(index_tests(loop)):
        found = _cut_points(atom, loop.var) if mentions(atom, loop.var) else None
        if found is not None and all(difference(point, (cuts or found)[0]) is not None for point in found):
            cuts += [point for point in found if point not in cuts]
            decided.add(atom)
    if not cuts or len(cuts) > MOST_CUTS:
        return (loop,)
    anchor = cuts[0]
    cuts.sort(key=lambda point: difference(point, anchor) or 0)
    parts: list[Loop] = []
    lower = loop.lower
    for n in range(len(cuts) + 1):
        upper = clamp(cuts[n], replace(loop, lower=lower)) if n < len(cuts) else loop.upper
        sample = simplify(cuts[n] - 1) if n < len(cuts) else cuts[-1]

        def known(test: Expr, sample: Expr = sample) -> bool | None:
            outcome = simplify(substitute(test, {loop.var: sample})) if test in decided else None
            return bool(outcome.value) if isinstance(outcome, Const) else None

        parts += [part for part in pieces(loop, (lower, upper, assume(loop.body, known))) if part.body]
        lower = upper
    return tuple(parts)


def index_tests(loop: Loop) -> Iterator[Call]:
    """Comparisons of indices in selections, and in the conditions of checks."""
    for node in straight_nodes(loop.body):
        if isinstance(node, If) or (isinstance(node, Guard) and node.condition is not None):
            assert node.condition is not None
            yield from comparisons_in(node.condition)
        for e in walk(node.value) if isinstance(node, Store) else ():
            if isinstance(e, Select):
                yield from comparisons_in(e.condition)


def decide_test(loop: Loop, atom: Expr, outcome: bool) -> Loop:
    return replace(loop, body=assume(loop.body, hold([atom], outcome)))


def stores_of(loop: Loop) -> Iterator[Store]:
    return (node for node in straight_nodes(loop.body) if isinstance(node, Store))


def _cut_points(atom: Call, var: str) -> list[Expr] | None:
    """Values of `var` from which on the outcome may be another one; None where that is not known."""
    a, b = atom.args
    at_zero, at_one, at_two = (simplify(substitute(a - b, {var: int_const(n)})) for n in range(3))
    step = difference(at_one, at_zero)
    if step not in (1, -1) or difference(at_two, at_one) != step:
        return None
    # The difference is 0 at `zero`.
    zero = simplify(-at_zero) if step == 1 else at_zero
    after = simplify(zero + 1)
    if atom.op in ("eq", "ne"):
        return [zero, after]
    return [zero if (atom.op in ("lt", "ge")) == (step == 1) else after]
