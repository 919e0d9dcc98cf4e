"""Take conditions that choose between values out of innermost vector loops.

Before: ``vector for j { A[j] = i == 0 || j == 0 ? x : y }``.  After: ``if (i == 0) { vector for j { A[j] = x } } else
{ A[0] = x; vector for j from 1 { A[j] = y } }``: a condition that does not change with the loop is asked once, and the first
and last iterations, where one holds that is false in between, run by themselves.  Several statements that choose alike leave
their conditions together.  The values are those of before.
"""

from __future__ import annotations

from polyc.ir.access import with_values
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    Select,
    Size,
    any_holds,
    ge,
    int_const,
    le,
    mentions,
    operands_of,
    reads,
    substitute,
    walk,
)
from polyc.ir.facts import assume, clamp, hold, span_of
from polyc.ir.loops import If, Loop, Node, Store, Update, known_length
from polyc.ir.simplify import difference, simplify, simplify_value
from polyc.ir.types import I64
from polyc.ir.walk import Body, Scope, rewrite_nodes
from polyc.poly.bounds import negate_condition
from polyc.records import replace

MINIMUM_TRIP = 16
"""Iterations of a loop that is worth being written more than once."""

MOST_ENDS, FEW_ENDS = 16, 2
"""Iterations at either end of a loop that run apart from the others, and how many of them one by one."""


def take_out_conditions(body: Body) -> Body:
    """The same nodes, with the vector loops (and scans) of chosen values split, without stores of what is there already."""
    return rewrite_nodes(body, _take_out)


def _take_out(node: Node, scope: Scope) -> Body | None:
    match node:
        case Store() if node.value == Read(node.buffer, node.subscripts):
            return ()  # a border of a recurrence that keeps one step
        case Loop():
            split = _split_loop(node)
            if split is not None:
                return split
            body = take_out_conditions(node.body)
            if node.kind == "serial" and len(body) == 1 and body != node.body and not node.registers:
                (inner,) = body
                if isinstance(inner, If) and not mentions(inner.condition, node.var):
                    return _unswitch(node, inner)
            return (replace(node, body=body),) if body or node.initial else ()
    return None


def _unswitch(loop: Loop, inner: If) -> Body:
    """The loop once for each outcome of a test that does not change with it."""
    then, orelse = ((replace(loop, body=arm),) if arm else () for arm in (inner.body, inner.orelse))
    return (replace(inner, body=then, orelse=orelse),)


def _split_loop(loop: Loop) -> Body | None:
    """The nodes in the place of a loop that chooses, without the conditions that could be taken out; None where none could."""
    if loop.kind not in ("vector", "scan") or loop.max_trip is not None or loop.registers or loop.initial:
        return None
    if len(loop.body) != 1 and (loop.kind != "vector" or loop.step != 1):
        return None
    nodes = tuple(_turn(n) for n in loop.body if isinstance(n, (Store, Update)))
    conditions = {n.value.condition for n in nodes if _chooses(n) and isinstance(n.value, Select)}
    if len(nodes) < len(loop.body) or not conditions:
        return None
    if len(conditions) > 1:
        return _go_on(_split_steps(loop, nodes))
    (condition,) = conditions
    atoms = operands_of(condition, "or")
    fixed = [a for a in atoms if not mentions(a, loop.var)]
    moving = [a for a in atoms if mentions(a, loop.var)]
    unfixed = assume(nodes, hold(fixed, False))
    rest = _split_ends(loop, nodes, condition, unfixed, moving)
    if rest is None and not fixed:
        store = nodes[0] if len(nodes) == 1 else None
        return _go_on(_split_in_two(loop, store) if isinstance(store, Store) else _split_steps(loop, nodes))
    if rest is None:
        rest = take_out_conditions((replace(loop, body=unfixed),))
    if not fixed:
        return rest
    then = take_out_conditions((replace(loop, body=assume(nodes, hold([condition]))),))
    return (If(any_holds(fixed), then, rest),) if then or rest else ()


def _go_on(parts: Body | None) -> Body | None:
    return None if parts is None else take_out_conditions(parts)


def _chooses(node: Store | Update) -> bool:
    """Whether a store chooses between values by a condition on indices."""
    return isinstance(node, Store) and isinstance(node.value, Select) and not reads(node.value.condition)


def _turn(node: Store | Update) -> Store | Update:
    """``a && b ? x : y`` as ``!a || !b ? y : x``: each part of a disjunction may hold by itself in few iterations."""
    chosen = node.value
    if not _chooses(node) or not isinstance(chosen, Select) or not _is_conjunction(chosen.condition):
        return node
    return replace(node, value=Select(negate_condition(chosen.condition), chosen.other, chosen.then))


def _is_conjunction(condition: Expr) -> bool:
    """Whether a condition holds where all of several do, which compare integers: their negations are comparisons."""
    if not isinstance(condition, Call) or condition.op != "and":
        return False
    leaves = (n for n in walk(condition) if not isinstance(n, Call))
    return all(isinstance(n, (Index, Size)) or (isinstance(n, Const) and n.dtype == I64) for n in leaves)


def _split_ends(loop: Loop, nodes: Body, condition: Expr, short: Body, moving: list[Expr]) -> Body | None:
    """The first and the last iterations apart, if each of the tests `moving` that the `condition` is made of holds in few of
    them and nowhere else.

    Where their number is not known, few iterations do what `short` does."""
    trip = known_length(loop)
    if not moving or (trip is not None and trip < MINIMUM_TRIP):
        return None
    n_first = n_last = 0
    for atom in moving:
        found = _count_ends(atom, loop)
        if found is None:
            return None
        n_first, n_last = max(n_first, found[0]), max(n_last, found[1])
    least = max(MINIMUM_TRIP, n_first + n_last + 1)
    if max(n_first, n_last) > MOST_ENDS or (trip is not None and trip < least):
        return None
    end, between = (assume(nodes, hold([condition], outcome)) for outcome in (True, False))
    lower = simplify(loop.lower + n_first)
    upper = simplify(loop.upper - n_last)
    inside = replace(loop, lower=lower, upper=upper, body=between)
    split = take_out_conditions((*_run_end(loop, end, loop.lower, n_first), inside, *_run_end(loop, end, upper, n_last)))
    if trip is not None:
        return split
    return (If(ge(simplify(loop.upper - loop.lower), least), split, (replace(loop, body=short),)),)


def _count_ends(atom: Expr, loop: Loop) -> tuple[int, int] | None:
    """In how many of the first iterations of a loop, or of the last ones, a condition holds that holds nowhere else."""
    if not isinstance(atom, Call):
        return None
    if atom.op == "eq" and _is_unit(atom, loop.var):
        if _holds(atom, loop.var, loop.lower):
            return 1, 0
        return (0, 1) if _holds(atom, loop.var, simplify(loop.upper - 1)) else None
    span = span_of(atom, loop.var)
    if span is None:
        return None
    if span.upper is not None:
        count = difference(span.upper, loop.lower)
        return None if count is None else (max(0, count), 0)
    assert span.lower is not None
    count = difference(loop.upper, span.lower)
    return None if count is None else (0, max(0, count))


def _run_end(loop: Loop, end: Body, first: Expr, n: int) -> Body:
    """The nodes in `n` iterations from `first` on."""
    if n <= FEW_ENDS:
        places = [simplify(first + k) for k in range(n)]
        return tuple(_at(node, loop.var, place) for place in places for node in end)
    # Loops that are written out begin at 0.
    body = tuple(_at(node, loop.var, simplify(first + Index(loop.var))) for node in end)
    run = replace(loop, lower=int_const(0), upper=int_const(n), interleave=1, body=body)
    return (replace(run, max_trip=n) if loop.kind == "vector" else replace(run, kind="serial"),)


def _split_in_two(loop: Loop, store: Store) -> Body | None:
    """The iterations where the condition holds, and those where it does not, if it tells up to or from which one on."""
    chosen = store.value
    assert isinstance(chosen, Select)
    span = span_of(chosen.condition, loop.var)
    place = None if span is None else span.upper if span.lower is None else span.lower
    if span is None or place is None:
        return None
    place = simplify(place)
    before, after = (chosen.other, chosen.then) if span.upper is None else (chosen.then, chosen.other)
    if simplify(place + 1) == simplify(loop.upper):
        # All but the last iteration, where there is one.
        first = replace(loop, upper=place, body=(replace(store, value=before),))
        last = _at(replace(store, value=after), loop.var, place)
        return first, If(le(loop.lower, place), (last,))
    middle = clamp(place, loop)
    first = replace(loop, upper=middle, body=(replace(store, value=before),))
    return first, replace(loop, lower=middle, body=(replace(store, value=after),))


def _split_steps(loop: Loop, nodes: tuple[Store | Update, ...]) -> Body | None:
    """A loop of several statements, one of which chooses: all but the last iteration, and that one, where they choose alike."""
    if loop.kind != "vector":
        return None
    chosen = [n for n in nodes if isinstance(n, Store) and _chooses(n)]
    parts = [_split_in_two(replace(loop, body=(n,)), n) for n in chosen]
    first: dict[Node, Node] = {}
    last: dict[Node, Node] = {}
    place: Expr | None = None
    for n, part in zip(chosen, parts, strict=True):
        if part is None or not isinstance(part[1], If) or not isinstance(part[0], Loop):
            return None
        if place is not None and part[0].upper != place:
            return None
        place = part[0].upper
        (first[n],), (last[n],) = part[0].body, part[1].body
    assert place is not None
    end = tuple(last[n] if n in last else _at(n, loop.var, place) for n in nodes)
    whole = replace(loop, upper=place, body=tuple(first.get(n, n) for n in nodes))
    return whole, If(le(loop.lower, place), end)


def _is_unit(atom: Call, var: str) -> bool:
    """Whether the two sides of an equation move apart by one with the variable: then it holds at one value at most."""
    a, b = atom.args
    return difference(substitute(a - b, {var: Index(var) + 1}), a - b) in (1, -1)


def _holds(atom: Call, var: str, at: Expr) -> bool:
    a, b = (substitute(e, {var: at}) for e in atom.args)
    return difference(a, b) == 0


def _at(store: Node, var: str, place: Expr) -> Store | Update:
    assert isinstance(store, (Store, Update))
    store = with_values(store, {var: place})
    return replace(store, value=simplify_value(store.value))
