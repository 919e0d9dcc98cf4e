"""Partition vector loops: unswitch and split them, so that no test of an index is left inside.

Before: ``vector for j in 0:n { Y[i, j] = (i >= 1 && j >= 1 ? X[i - 1, j - 1] : 0) + (j < n - 1 ? X[i, j + 1] : 0) }``.
After: ``if (i >= 1) { Y[i, 0] = … ; vector for j in 1:n - 1 { Y[i, j] = X[i - 1, j - 1] + X[i, j + 1] } Y[i, n - 1] = … } else
{ vector for j in 0:n {…} }``.

Three kinds of tests are taken out: domains of statements (``if``) that share a loop, choices between values (``?:``), and
guards of reads inside of larger expressions.  What does not change with the loop, of indices or of data that a choice asks for,
is tested once (loop unswitching); where the outcome of others changes, the loop is cut (index-set splitting, as in Halide's
loop partitioning), and pieces of few iterations are peeled.  Each element is computed by the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from polyc.code_limits import FULL_ROW, MAX_EXPANDED
from polyc.ir.access import moves, reads_in, writes_in, written_in
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    Select,
    all_hold,
    any_holds,
    ge,
    int_const,
    lt,
    mentions,
    operands_of,
    reads,
    rewrite,
    walk,
)
from polyc.ir.facts import Piece, assume, comparisons_in, cut, hold, interior, slack_of, span_of, straight_nodes
from polyc.ir.intervals import Interval, range_of, ranges_in, tighten
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import If, Loop, LoopNest, Node, Store, Update, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, rewrite_nest, rewrite_nodes, substitute_nodes
from polyc.machine import Machine
from polyc.poly.bounds import negate_condition
from polyc.records import dataclass, replace

MIN_GUARDED_TRIP = 64
"""Iterations of a loop that is worth being written more than once for guards of reads, which masks do as well."""

MAX_UNSWITCHED = 3
"""Tests for both outcomes of which a loop is written."""

MAX_PEELED = 2
"""Iterations of a piece that is written out statement by statement."""


def partition_loops(nest: LoopNest, target: Machine) -> LoopNest:
    """The nest with vector loops (and scans) partitioned, without stores of what is there already."""

    def visit(node: Node, scope: Scope) -> Body | None:
        match node:
            case Store() if node.value == Read(node.buffer, node.subscripts):
                return ()  # a border of a recurrence that keeps one step
            case Loop() if node.kind in ("vector", "scan") and _has_tests(node):
                made = _Partition(target, ranges_in(scope), nest.aliased).unswitch(node, MAX_UNSWITCHED)
                return made if made != (node,) else None
            case Loop(kind="serial") if not node.registers:
                inside = rewrite_nodes(node.body, visit, scope.inside(node))
                if inside is node.body:
                    return (node,)
                match inside:
                    case (If() as choice,) if not mentions(choice.condition, node.var) and not reads(choice.condition):
                        return choose(choice.condition, *(_with_body(node, arm) for arm in (choice.body, choice.orelse)))
                return _with_body(node, inside)
        return None

    return rewrite_nest(nest, visit)


def _with_body(loop: Loop, body: Body) -> Body:
    return (replace(loop, body=body),) if body or loop.initial else ()


def choose(test: Expr | bool, then: Body, other: Body = ()) -> Body:
    """One of two bodies, by the outcome of a test that may be known."""
    if isinstance(test, Const):
        test = bool(test.value)
    if isinstance(test, bool) or then == other:
        return other if test is False else then
    return (If(test, then, other),) if then else (If(negate_condition(test), other),)


@dataclass(frozen=True, slots=True)
class _Partition:
    """The pieces of one loop; `ranges`: the values of the variables around; `aliased`: buffers that may share memory."""

    target: Machine
    ranges: Mapping[str, Interval]
    aliased: Set[str]

    def unswitch(self, loop: Loop, left: int) -> Body:
        """Versions of a loop for tests that do not change in it, `left` of them at most, and their pieces."""
        if not loop.body:
            return ()
        if loop.registers or loop.initial or loop.step != 1:
            return (loop,)
        is_eligible = loop.max_trip is None or _has_mirrors(loop)
        changed = written_in(loop.body) | self.aliased
        domains, choices = (list(found) if is_eligible else [] for found in (_domains(loop), _choices(loop, changed)))
        for condition in (*domains, *choices) if left else ():
            is_domain = condition in domains
            op = condition.op if isinstance(condition, Call) and condition.op in ("and", "or") else "and" if is_domain else "or"
            fixed = [a for a in operands_of(condition, op) if not (mentions(a, loop.var) or (is_domain and reads(a)))]
            if fixed:
                # Where they all hold (or none does) the rest of the condition decides; elsewhere it is decided.
                goes_on = op == "and"
                inside = assume(loop.body, hold(fixed, goes_on))
                outside = assume(loop.body, hold([condition, *fixed[: len(fixed) == 1]], not goes_on))
                if goes_on:
                    outside = self.mirrored(loop, outside, [a for a in operands_of(condition, op) if a not in fixed])
                inner, outer = (self.unswitch(replace(loop, body=b), left - 1) for b in (inside, outside))
                if is_domain and goes_on:
                    return choose(all_hold(fixed), inner, outer)
                made = choose(negate_condition(all_hold(fixed)) if goes_on else any_holds(fixed), outer, inner)
                return made if known_length(loop) or not any(map(reads, fixed)) else (If(lt(loop.lower, loop.upper), made),)
        trip = known_length(loop)
        conditions = (*domains, *choices) if trip is None or trip >= FULL_ROW else ()
        return self.split(
            replace(loop, max_trip=None) if conditions else loop, [t for c in conditions for t in comparisons_in(c)]
        )

    def mirrored(self, loop: Loop, body: Body, tests: list[Expr]) -> Body:
        """Where tests hold, reads have plain subscripts: a row that stands in for one outside still has a border of its own."""
        begin, end = interior(loop, (span for test in tests if (span := span_of(test, loop.var)) is not None))
        ranges = {**self.ranges, loop.var: (range_of(begin)[0], range_of(simplify(end - 1))[1])}

        def tighten_read(e: Expr) -> Expr | None:
            return replace(e, subscripts=tuple(tighten(s, ranges) for s in e.subscripts)) if isinstance(e, Read) else None

        def choose(node: Node) -> Node:
            if not isinstance(node, Store) or (inside := rewrite(node.value, tighten_read)) == node.value:
                return node
            return replace(node, value=Select(all_hold(tests), inside, node.value))

        return tuple(map(choose, body)) if tests else body

    def split(self, loop: Loop, tests: list[Expr]) -> Body:
        """The loop cut where the outcomes of tests change.  Sums over it stay whole, but for peeled iterations."""
        parts = [part for part in cut(loop, tests, self.ranges) if part.loop.body]
        reduces = not all(moves(w, loop.var) for w in writes_in(loop.body))
        if reduces and sum(not _is_peeled(part) for part in parts) > 1:
            return (loop,)
        return tuple(new for part in parts for old in self.write(part) for new in self.unguard(old))

    def unguard(self, node: Node) -> Body:
        """A loop in pieces without guards of reads (comparisons of integers, all of which hold where a selection takes the
        read), and as it is where guards fail that do not change in it."""
        if not isinstance(node, Loop) or not _is_worth_guarding(node, self.target):
            return (node,)
        conditions = (e.condition for e in _selections(node) if reads(e.then) and not reads(e.condition))
        guards = list(dict.fromkeys(a for c in conditions for a in operands_of(c, "and") if slack_of(a) is not None))
        fixed = [g for g in guards if not mentions(g, node.var)]
        inside = replace(node, max_trip=None, body=assume(node.body, hold(fixed)))
        parts = tuple(new for part in cut(inside, guards, self.ranges) for new in self.write(part))
        return (node,) if not guards else choose(all_hold(fixed), parts, (node,)) if fixed else parts

    def write(self, part: Piece) -> Iterator[Node]:
        """A piece of a loop, as what suits the number of its iterations."""
        loop, most = part.loop, part.most
        if most is None or most > MAX_EXPANDED:
            yield loop
        elif _is_peeled(part):
            places = (simplify(part.first + k) for k in range(most))
            nodes = tuple(node for place in places for node in substitute_nodes(loop.body, {loop.var: place}))
            slacks = [simplify(part.first - e) for e in operands_of(loop.lower, "max")]
            slacks += [simplify(e - part.first - 1) for e in operands_of(loop.upper, "min")]
            runs = [ge(slack, 0) for slack in slacks if (least := range_of(slack, self.ranges)[0]) is None or least < 0]
            yield from (If(all_hold(runs), nodes),) if runs else nodes
        elif (
            loop.kind == "vector"
            and _is_plain(loop)
            and known_length(loop) == most
            and self.target.has_masks
            and not _lie_apart(reads_in(loop.body), loop.var)
        ):
            # Loops that are written out begin at 0.
            body = substitute_nodes(loop.body, {loop.var: loop.lower + Index(loop.var)})
            yield replace(loop, lower=int_const(0), upper=int_const(most), interleave=1, max_trip=most, body=body)
        elif loop.kind == "scan" or most <= loop.lanes // 2:
            yield replace(loop, kind="serial")
        else:
            yield loop


# -- tests


def _has_tests(loop: Loop) -> bool:
    """Whether there is anything to partition a loop by."""
    return any(isinstance(node, If) for node in loop.body) or any(True for _ in _selections(loop))


def _selections(loop: Loop) -> Iterator[Select]:
    """The selections in what is stored, outside of loops inside."""
    values = (node.value for node in straight_nodes(loop.body) if isinstance(node, (Store, Update)))
    return (e for value in values for e in walk(value) if isinstance(e, Select))


def _domains(loop: Loop) -> Iterator[Expr]:
    """The conditions of statements."""
    if loop.kind == "vector":
        yield from (node.condition for node in straight_nodes(loop.body) if isinstance(node, If))


def _choices(loop: Loop, changed: Set[str]) -> Iterator[Expr]:
    """The conditions that choose between whole values of statements: of indices, or of data that each iteration reads and none
    changes."""

    def conditions(value: Expr, is_arm: bool) -> Iterator[Expr]:
        if not isinstance(value, Select):
            return
        found = {r.tensor for r in reads(value.condition)}
        if not found:
            yield value.condition
            yield from conditions(value.then, True)
            yield from conditions(value.other, True)
        elif not (is_arm or found & changed or mentions(value.condition, loop.var)):
            yield value.condition

    for node in straight_nodes(loop.body) if _is_straight(loop) else ():
        yield from conditions(node.value, node not in loop.body) if isinstance(node, Store) else ()


def _is_worth_guarding(loop: Loop, target: Machine) -> bool:
    """Whether a loop is worth being written again without guards of reads."""
    if loop.kind != "vector" or not _is_straight(loop) or not all(moves(w, loop.var) for w in writes_in(loop.body)):
        return False
    trip = known_length(loop)
    if loop.max_trip is None and (trip is None or trip >= MIN_GUARDED_TRIP):
        return True
    # Without mask registers, lanes that lie apart are read one by one where there are tests.
    guarded = [read for e in _selections(loop) for read in reads(e.then)]
    return trip is not None and trip >= loop.lanes + MAX_PEELED and not target.has_masks and _lie_apart(guarded, loop.var)


def _has_mirrors(loop: Loop) -> bool:
    """Whether elements from elsewhere stand in for those outside: lanes read them one by one."""
    values = [node.value for node in loop.body if isinstance(node, Store)]
    mirrored = [isinstance(v, Select) and bool(reads(v.then)) and _lie_apart(reads(v.other), loop.var) for v in values]
    return len(mirrored) == len(loop.body) and all(mirrored)


def _lie_apart(found: Iterable[Read], var: str) -> bool:
    """Whether lanes of some of these reads do not lie side by side."""
    moving = (s for read in found for s in read.subscripts if mentions(s, var))
    return any(abs((index_coefficients(s) or {}).get(var, 0)) != 1 for s in moving)


# -- pieces


def _is_straight(loop: Loop) -> bool:
    return all(isinstance(node, (Store, Update, If)) for node in straight_nodes(loop.body))


def _is_plain(loop: Loop) -> bool:
    return all(isinstance(node, (Store, Update)) for node in loop.body)


def _is_peeled(part: Piece) -> bool:
    """Whether the iterations of a piece are statements of their own: a single one under a test, or as many as are known."""
    most = part.most
    return _is_plain(part.loop) and most is not None and most <= MAX_PEELED and most in (1, known_length(part.loop))
