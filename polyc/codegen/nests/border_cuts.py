"""Loops cut where comparisons of their variable change: no test of an index is left inside.

Before: ``for j in 0:n { S[j] = j > 0 ? f(S[j - 1]) : a }``.  After: ``for j in 0:1 { S[j] = a }  for j in 1:n { S[j] =
f(S[j - 1]) }``.  What a comparison decides is folded into the conditions, branches and checks that hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from polyc.ir.expr import Call, Const, Expr, Index, Read, Select, int_const, maximum, minimum, reads, rewrite, substitute, walk
from polyc.ir.loops import Guard, If, Loop, Node, Store
from polyc.ir.simplify import simplify
from polyc.ir.types import BOOL
from polyc.records import replace

MOST_CUTS = 8
"""Places where a loop is cut."""

COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))


def split_borders(loop: Loop) -> tuple[Loop, ...]:
    """Pieces of the loop in which every test of its variable has one outcome."""
    cuts: list[Expr] = []
    decided: set[Call] = set()
    for atom in dict.fromkeys(index_tests(loop)):
        found = _cut_points(atom, loop.var) if mentions(atom, loop.var) else None
        if found is None:
            continue
        distances = [simplify(point - (cuts or found)[0]) for point in found]
        if all(isinstance(d, Const) for d in distances):
            cuts += [point for point in found if point not in cuts]
            decided.add(atom)
    if not cuts or len(cuts) > MOST_CUTS:
        return (loop,)
    anchor = cuts[0]
    cuts.sort(key=lambda point: int(getattr(simplify(point - anchor), "value", 0)))
    parts: list[Loop] = []
    lower = loop.lower
    for n in range(len(cuts) + 1):
        upper = loop.upper
        if n < len(cuts):
            upper = simplify(maximum(lower, minimum(cuts[n], loop.upper)))
        inside = cuts[n] if n < len(cuts) else cuts[-1] + 1
        sample = simplify(inside - 1)
        if simplify(upper - lower) != int_const(0) and not _is_empty(lower, upper):

            def decide(atom: Call, sample: Expr = sample) -> bool | None:
                if atom not in decided:
                    return None
                known = simplify(substitute(atom, {loop.var: sample}))
                return bool(known.value) if isinstance(known, Const) else None

            part = _rewrite_tests(replace(loop, lower=lower, upper=upper), decide)
            parts += [part] if part.body else []
        lower = upper
    return tuple(parts)


def index_tests(loop: Loop) -> Iterator[Call]:
    """Comparisons of indices in selections, and in the conditions of checks."""
    for node in straight_nodes(loop.body):
        if isinstance(node, If) or (isinstance(node, Guard) and node.condition is not None):
            assert node.condition is not None
            yield from _atoms(node.condition)
        for e in walk(node.value) if isinstance(node, Store) else ():
            if isinstance(e, Select):
                yield from _atoms(e.condition)


def decide_test(loop: Loop, atom: Expr, outcome: bool) -> Loop:
    return _rewrite_tests(loop, lambda a: outcome if a == atom else None)


def mentions(expr: Expr, var: str) -> bool:
    return any(isinstance(node, Index) and node.name == var for node in walk(expr))


def stores_of(loop: Loop) -> Iterator[Store]:
    return (node for node in straight_nodes(loop.body) if isinstance(node, Store))


def straight_nodes(body: tuple[Node, ...]) -> Iterator[Node]:
    for node in body:
        yield node
        if isinstance(node, If):
            yield from straight_nodes((*node.body, *node.orelse))


def _atoms(condition: Expr) -> Iterator[Call]:
    if isinstance(condition, Call):
        if condition.op in ("and", "or", "not"):
            for a in condition.args:
                yield from _atoms(a)
        elif condition.op in COMPARISONS and not reads(condition):
            yield condition


def _rewrite_tests(loop: Loop, decide: Callable[[Call], bool | None]) -> Loop:
    """The loop with the comparisons replaced that `decide` knows."""

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Call) or e.op not in COMPARISONS or reads(e):
            return None
        known = decide(e)
        return None if known is None else Const(known, BOOL)

    def select(e: Expr) -> Expr | None:
        if not isinstance(e, Select):
            return None
        return _choose(replace(e, condition=rewrite(e.condition, rule)))

    return replace(loop, body=_rewrite_body(loop.body, rule, select))


def _rewrite_body(
    nodes: tuple[Node, ...], rule: Callable[[Expr], Expr | None], select: Callable[[Expr], Expr | None]
) -> tuple[Node, ...]:
    body: list[Node] = []
    for node in nodes:
        if isinstance(node, Store):
            value = rewrite(node.value, select)
            if value != Read(node.buffer, node.subscripts):  # else it is there already
                body.append(replace(node, value=value))
        elif isinstance(node, If):
            condition = _fold(rewrite(node.condition, rule))
            then, other = (_rewrite_body(part, rule, select) for part in (node.body, node.orelse))
            if isinstance(condition, Const):
                body += then if condition.value else other
            else:
                body.append(If(condition, then, other))
        elif isinstance(node, Guard) and node.condition is not None:
            condition = _fold(rewrite(node.condition, rule))
            if not isinstance(condition, Const):
                body.append(replace(node, condition=condition))
            elif condition.value:
                body.append(replace(node, condition=None))
        else:
            body.append(node)
    return tuple(body)


def _choose(e: Select) -> Expr:
    """The selection with its condition folded, or the arm that is taken."""
    condition = _fold(e.condition)
    if isinstance(condition, Const):
        return e.then if condition.value else e.other
    return replace(e, condition=condition)


def _fold(e: Expr) -> Expr:
    if not isinstance(e, Call) or e.op not in ("and", "or", "not"):
        return e
    args = [_fold(a) for a in e.args]
    if e.op == "not":
        return Const(not args[0].value, BOOL) if isinstance(args[0], Const) else Call("not", (args[0],))
    a, b = args
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Const):
            return y if bool(x.value) == (e.op == "and") else x
    return Call(e.op, (a, b))


def _cut_points(atom: Call, var: str) -> list[Expr] | None:
    """Values of `var` from which on the outcome may be another one; None where that is not known."""
    difference = Call("sub", atom.args)
    at_zero = simplify(substitute(difference, {var: int_const(0)}))
    step = simplify(substitute(difference, {var: int_const(1)}) - at_zero)
    if step not in (int_const(1), int_const(-1)):
        return None
    again = simplify(substitute(difference, {var: int_const(2)}) - substitute(difference, {var: int_const(1)}))
    if again != step:
        return None
    # The difference is 0 at `zero`.
    zero = simplify(-at_zero) if step == int_const(1) else at_zero
    after = simplify(zero + 1)
    if atom.op in ("eq", "ne"):
        return [zero, after]
    rises = step == int_const(1)
    return [zero if (atom.op in ("lt", "ge")) == rises else after]


def _is_empty(lower: Expr, upper: Expr) -> bool:
    trip = simplify(upper - lower)
    return isinstance(trip, Const) and int(trip.value) <= 0
