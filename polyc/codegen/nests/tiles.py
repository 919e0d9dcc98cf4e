"""Full and partial tiles: one version with constant trip counts and without border tests, one with predicates.

Before: ``for k { unroll i < min(6, M - c0) { vector j < min(64, N - c1) { … } } }``.
After: ``if (M - c0 >= 6 and N - c1 >= 64) for k { unroll i < 6 { vector j < 64 … } } else <before>``.  Where the rows alone
are full, as in the last columns and in all of an image that is narrower than the tile, only the lanes have masks:
``… else if (M - c0 >= 6) for k { unroll i < 6 { vector j < min(64, N - c1) … } } else <before>``.  What is partial runs in
parts (`parts`).

Tests of a selection (the border of a padded read, a mask) that the position of the tile decides for all points inside join the
condition of the full version, where the selection is gone: the interior has no test in it.
"""

from __future__ import annotations

from collections.abc import Collection

from polyc.codegen.nests.parts import Tiling, fill, run_in_parts
from polyc.ir.access import touched_in
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Select,
    Size,
    all_hold,
    ge,
    int_const,
    mentions,
    operands_of,
    reads,
    substitute,
    walk,
)
from polyc.ir.facts import assume, assume_value, hold
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import If, Loop, Node, Store, Update
from polyc.ir.simplify import simplify
from polyc.ir.types import BOOL
from polyc.ir.walk import Body, Scope, map_bodies, nodes_in, rewrite_nodes
from polyc.records import replace

EXPANDED, ROWS = ("unroll", "vector"), ("unroll",)
"""Kinds of loops that are expanded, and those of them whose copies each have a predicate where they may not run."""

MIN_ROWS = 4
"""Copies from which their predicates are worth a version without them."""


def split_partial_tiles(body: Body, tiling: Tiling) -> Body:
    """Version every outermost loop nest whose expanded loops have bounds that only the outer loops decide.

    Neighbours that share a register buffer are versioned together, so that it stays in registers between them."""
    groups: list[Body] = []
    for node in body:
        if groups and not tiling.registers.isdisjoint(touched_in(groups[-1][-1:]) & touched_in((node,))):
            groups[-1] = (*groups[-1], node)
        else:
            groups.append((node,))
    return tuple(new for group in groups for new in _split(group, tiling))


def _split(group: Body, tiling: Tiling) -> Body:
    loops = [n for n in group if isinstance(n, Loop)]
    found = [_full_conditions(n, EXPANDED) for n in loops]
    full = list(dict.fromkeys(c for conditions in found for c in conditions or ()))
    tests = {} if None in found else _interior_tests(loops)
    if len(loops) < len(group) or None in found or not (full or tests):
        if len(group) > 1 or any(n.registers for n in loops):
            return group
        return (map_bodies(group[0], lambda inside: split_partial_tiles(inside, tiling)),)
    in_rows = list(dict.fromkeys(c for n in loops for c in _full_conditions(n, ROWS) or ()))
    others = _run_partial(group, in_rows, len(in_rows) < len(full), tiling)
    whole = _drop_tests(fill(group, lambda n: _open_size(n, EXPANDED)), tests)
    # Tests that only loops inside decide are split further down, but never inside a loop that holds accumulators.
    if tests and not any(n.registers for n in loops):
        whole = _split(whole, tiling)
    return (If(all_hold([*full, *dict.fromkeys(c for found in tests.values() for c in found)]), whole, others),)


def _run_partial(group: Body, in_rows: list[Expr], has_open_lanes: bool, tiling: Tiling) -> Body:
    """A group whose tile is not full; `in_rows`: conditions under which all rows are there."""

    def run_lanes(nests: Body) -> Body:
        return (run_in_parts(nests, "vector", tiling) if has_open_lanes else None) or nests

    in_parts = run_in_parts(group, "unroll", tiling) if in_rows else None
    if in_rows and has_open_lanes and max(map(_n_rows, group)) >= MIN_ROWS:
        # Which loops of an initial nest run over rows is not known.
        whole_rows = fill(group, lambda n: _open_size(n, ROWS), with_initial=False)
        return (If(all_hold(in_rows), run_lanes(whole_rows), in_parts or group),)
    if in_parts is None:
        return run_lanes(group)
    (rows,) = in_parts
    return (replace(rows, body=run_lanes(rows.body)),)


def _n_rows(node: Node) -> int:
    """Copies that the unrolled loops inside make."""
    inside = (*node.body, *node.orelse) if isinstance(node, If) else node.body if isinstance(node, Loop) else ()
    own = node.max_trip or 1 if isinstance(node, Loop) and node.kind == "unroll" else 1
    return own * max(map(_n_rows, inside), default=1)


def _full_conditions(nest: Loop, kinds: Collection[str]) -> list[Expr] | None:
    """Conditions under which all expanded loops of these kinds inside are full; None if one depends on a loop inside (or there
    is none)."""
    loops = [node for node, _ in nodes_in((nest,)) if isinstance(node, Loop)]
    expanded = [n for n in loops if n.is_expanded and n.kind in kinds]
    if not expanded or any(n.kind == "parallel" for n in loops):
        return None
    found = {ge(bound, n.max_trip or 0): None for n in expanded for bound in _open_bounds(n.upper)}
    return None if any(mentions(c, *(n.var for n in loops)) for c in found) else list(found)


def _open_bounds(upper: Expr) -> list[Expr]:
    """The arguments of a (nested) minimum that are not constant."""
    return [bound for bound in operands_of(upper, "min") if not isinstance(bound, Const)]


def _open_size(loop: Loop, kinds: Collection[str]) -> int | None:
    """The iterations of a full tile, for an expanded loop of these kinds that may have fewer."""
    return loop.max_trip if loop.is_expanded and loop.kind in kinds and not isinstance(loop.upper, Const) else None


# -- border tests


def _interior_tests(loops: list[Loop]) -> dict[Expr, list[Expr]]:
    """Tests around statements and inside selections, each with the conditions on outer variables under which it holds at every
    point of the nests.

    Loops side by side share names of variables: a test that stands in several of them needs a condition for each."""
    found: dict[Expr, list[Expr]] = {}
    undecided: set[Expr] = set()
    for node, scope in nodes_in(tuple(loops)):
        ranges = {loop.var: (loop.lower, simplify(_widest(loop) - 1)) for loop in scope.loops}
        tests: list[Expr] = []
        is_domain = isinstance(node, If) and not node.orelse and _has_domains(scope.loops[-1])
        if isinstance(node, (Store, Update)):
            tests = [test for e in walk(node.value) if isinstance(e, Select) for test in operands_of(e.condition, "and")]
        elif isinstance(node, If) and is_domain:
            tests = operands_of(node.condition, "and")
        for test in tests:
            is_fixed = is_domain and not mentions(test, *ranges) and not reads(test)
            outer = test if is_fixed else hardest(test, ranges)
            if outer is None or outer == Const(False, BOOL):
                undecided.add(test)
            else:
                found.setdefault(test, []).append(outer)
    return {test: conditions for test, conditions in found.items() if test not in undecided}


def _widest(loop: Loop) -> Expr:
    """The upper bound of the full version."""
    return int_const(loop.max_trip) if loop.is_expanded and loop.max_trip is not None else loop.upper


def hardest(test: Expr, ranges: dict[str, tuple[Expr, Expr]]) -> Expr | None:
    """The test at the point of the nest where it is hardest; None if it does not move inside, or not monotonously.

    `ranges`: first and last value of the loops of the nest, outermost first."""
    if not isinstance(test, Call) or test.op not in ("lt", "le", "gt", "ge") or reads(test):
        return None
    if not mentions(test, *ranges):
        return None
    result: Expr = test
    for variable in reversed(ranges):  # innermost first: its bounds may bring in the variables around it
        slack = _slack_coefficients(result, ranges)
        if slack is None:
            return None
        first, last = ranges[variable]
        result = substitute(result, {variable: first if slack.get(variable, 0) >= 0 else last})
    return simplify(result)


def _slack_coefficients(test: Expr, ranges: dict[str, tuple[Expr, Expr]]) -> dict[str, int] | None:
    """How far `test` moves from failing when each variable of `ranges` grows by one; None if it is not linear in them."""
    assert isinstance(test, Call)
    low, high = test.args if test.op in ("lt", "le") else (test.args[1], test.args[0])
    slack: Expr = high - low
    outer: dict[str, Expr] = {e.name: Size(e.name) for e in walk(slack) if isinstance(e, Index) and e.name not in ranges}
    return index_coefficients(substitute(slack, outer))


def _has_domains(loop: Loop) -> bool:
    """Whether statements share a vector loop, in which their domains are masks."""
    return loop.kind == "vector" and len(loop.body) > 1


def _drop_tests(body: Body, tests: Collection[Expr]) -> Body:
    """The nests without the tests that hold in selections and around statements of a vector; of others they say nothing."""

    def drop(node: Node, scope: Scope) -> Node | None:
        match node:
            case Store() | Update():
                return replace(node, value=assume_value(node.value, hold(tests)))
            case Loop() if _has_domains(node):
                return replace(node, body=assume(node.body, hold(tests)))
        return None

    return rewrite_nodes(body, drop)
