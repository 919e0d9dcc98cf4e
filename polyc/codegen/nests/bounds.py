"""Tighten loops to where their bodies do something, by comparisons with data that stand around all of them.

Before: ``for p in 0:n { Y[i] += ptr[i] <= p && p < ptr[i + 1] ? v[p] : 0 }``.
After: ``for p in max(0, ptr[i]):min(n, ptr[i + 1]) { Y[i] += v[p] }``.

Comparisons of indices alone are bounds of loops already, as the polyhedral model has them; of data it knows nothing.  What the
new bounds read is read once for each run of the loop, and only where an iteration would have read it.
"""

from __future__ import annotations

from polyc.ir.access import written_in
from polyc.ir.expr import (
    Call,
    Expr,
    Index,
    all_hold,
    any_holds,
    index_names,
    lt,
    maximum,
    mentions,
    minimum,
    operands_of,
    reads,
    substitute,
    walk,
)
from polyc.ir.facts import assume, hold, is_refused, span_of
from polyc.ir.intervals import range_of, ranges_in
from polyc.ir.loaded_ranges import may_wrap, needed_tests
from polyc.ir.loops import Guard, If, Loop, LoopNest, Node, Update
from polyc.ir.simplify import difference, simplify
from polyc.ir.walk import Body, Scope, rewrite_inside, rewrite_nest
from polyc.records import dataclass, replace


def tighten_bounds(nest: LoopNest) -> LoopNest:
    """The nest with loops of step 1 from and up to loaded ends."""
    written = nest.memory_of(written_in(nest.body))
    wide = {b.name for b in nest.buffers if b.dtype.itemsize > 4}

    def visit(node: Node, scope: Scope) -> Body | None:
        if not isinstance(node, Loop) or node.kind not in ("serial", "vector") or node.step != 1 or node.registers:
            return None
        needed = _find_needed(node.body)
        changing = nest.memory_of(written_in(node.body))
        loaded = [t for t in needed.tests if reads(t) and changing.isdisjoint(r.tensor for r in reads(t))]
        ranges = ranges_in(scope.inside(node)) if loaded else {}
        spans = {t: s for t in loaded if (s := span_of(t, node.var, ranges)) is not None and not may_wrap(t, s, wide)}
        if not spans or any(mentions(e, node.var) for e in needed.runs):
            return None
        lowers = [simplify(s.lower) for s in spans.values() if s.lower is not None]
        uppers = [simplify(s.upper) for s in spans.values() if s.upper is not None]
        is_kept = written.isdisjoint(r.tensor for e in (*lowers, *uppers) for r in reads(e))
        is_checked = is_kept and any(_lie_inside(node, loop, lowers, uppers, nest.preconditions) for loop in scope.loops)
        if not is_checked:
            lowers, uppers = [node.lower, *lowers], [node.upper, *uppers]
        lower, upper = simplify(maximum(*lowers)), simplify(minimum(*uppers))
        ends = [(s.lower, s.upper) for s in spans.values()]
        is_one = any(a is not None and b is not None and difference(b, a) == 1 for a, b in ends)
        kind = "serial" if is_one else node.kind  # a vector of one value is none
        cut = replace(node, lower=lower, upper=upper, kind=kind, max_trip=None, tile=None, body=assume(node.body, hold(spans)))
        made = rewrite_inside(cut, visit, scope)
        if is_checked:  # the checks have read all ends, and refuse iterations where the loop had none
            return (made,)
        runs = all_hold([lt(node.lower, node.upper), *needed.runs])
        tests = [(c, *c.args) for c in walk(runs) if isinstance(c, Call) and c.op == "lt"]
        return assume((If(runs, (made,)),), hold(c for c, a, b in tests if (range_of(simplify(b - a), ranges)[0] or 0) > 0))

    return rewrite_nest(nest, visit)


def _lie_inside(node: Loop, around: Loop, lowers: list[Expr], uppers: list[Expr], first: Body) -> bool:
    """Whether checks say that ends which a loop around counts are in order, and lie inside of the loop."""
    if len(lowers) != 1 or len(uppers) != 1 or index_names(*lowers, *uppers) != {around.var}:
        return False
    (low,), (high,), begin, end = lowers, uppers, around.lower, around.upper
    once = minimum(simplify(end - begin), 1)  # there may be no segments
    ends = (lt(low, node.lower), begin, begin + once), (lt(node.upper, high), end - 1, end - 1 + once)
    follows = simplify(substitute(low, {around.var: Index(around.var) + 1})) == high
    tests = ((lt(high, low), begin, end), *ends)
    return follows and all(is_refused(first, t, around.var, simplify(a), simplify(b)) for t, a, b in tests)


@dataclass(frozen=True, slots=True)
class _Needed:
    """Tests all of which are asked, and hold, wherever a body does anything; `runs`: where all of these hold
    they are asked at all, as loops inside are not empty."""

    tests: tuple[Expr, ...] = ()
    runs: tuple[Expr, ...] = ()


def _find_needed(body: Body) -> _Needed:
    """What nodes have in common.  Tests inside of others are left out: what they read may not exist where the others fail."""
    found = [_needed_by(node) for node in body]
    if not found:
        return _Needed()
    tests = tuple(t for t in found[0].tests if all(t in other.tests for other in found[1:]))
    if not all(n.runs for n in found):
        return _Needed(tests)
    return _Needed(tests, tuple(operands_of(any_holds(dict.fromkeys(all_hold(n.runs) for n in found)), "and")))


def _needed_by(node: Node) -> _Needed:
    match node:
        case Update():
            return _Needed(tuple(needed_tests(node.op, node.value)))
        case If(orelse=()):
            return _Needed(tuple(operands_of(node.condition, "and")))
        case Guard() if node.condition is not None:
            return _Needed(tuple(operands_of(node.condition, "and")))
        case Loop() if not node.initial:
            inside = _find_needed(node.body)
            if not any(mentions(e, node.var) for e in inside.runs):
                tests = tuple(t for t in inside.tests if not mentions(t, node.var))
                return _Needed(tests, (lt(node.lower, node.upper), *inside.runs))
    return _Needed()
