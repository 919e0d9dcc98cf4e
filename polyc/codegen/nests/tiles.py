"""Full and partial tiles: one version with constant trip counts and without border tests, one with predicates.

Before: ``for k { unroll i < min(6, M - c0) { vector j < min(64, N - c1) { … } } }``.
After: ``if (M - c0 >= 6 and N - c1 >= 64) for k { unroll i < 6 { vector j < 64 … } } else <before>``.  Where the rows alone are
full, as in the last columns and in all of an image that is narrower than the tile, only the lanes have masks:
``… else if (M - c0 >= 6) for k { unroll i < 6 { vector j < min(64, N - c1) … } } else <before>``.  What is partial runs in
parts (`parts`).

Tests of a selection (the border of a padded read, a mask) that the position of the tile decides for all points inside join the
condition of the full version, where the selection is gone: the interior has no test in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod

from polyc.code_limits import FEW
from polyc.codegen.nests.parts import Tiling, run_in_parts
from polyc.ir.access import touched_in
from polyc.ir.expr import Call, Const, Expr, Select, all_hold, index_names, int_const, mentions, operands_of, reads, walk
from polyc.ir.facts import assume, comparisons_in, hardest, hold, tile_tests
from polyc.ir.loops import If, Loop, Node, Store, Update
from polyc.ir.simplify import simplify
from polyc.ir.types import BOOL
from polyc.ir.walk import Body, loops_in, map_bodies, nodes_in
from polyc.records import replace

EXPANDED, ROWS = ("unroll", "vector"), ("unroll",)
"""Kinds of loops that are expanded, and those of them whose copies each have a predicate where they may not run."""


def split_partial_tiles(body: Body, tiling: Tiling) -> Body:
    """Version every outermost loop nest whose expanded loops have bounds that only the outer loops decide.

    Neighbours that share a register buffer are versioned together, so that it stays in registers between them."""
    groups: list[Body] = []
    for node in body:
        if groups and tiling.registers and tiling.registers & touched_in(groups[-1][-1:]) & touched_in((node,)):
            groups[-1] = (*groups[-1], node)
        else:
            groups.append((node,))
    return tuple(new for group in groups for new in _split(group, tiling))


def _split(group: Body, tiling: Tiling) -> Body:
    full = _full_tests(group, EXPANDED)
    borders = {} if full is None else _interior_tests(group)
    holds_sums = any(isinstance(n, Loop) and n.registers for n in group)
    if full is None or not (full or borders):
        if len(group) > 1 or holds_sums:
            return group
        return (map_bodies(group[0], lambda inside: split_partial_tiles(inside, tiling)),)
    whole = assume(group, hold((*full, *borders)))
    # Tests that only loops inside decide are split further down, but never inside a loop that holds accumulators.
    if borders and not holds_sums:
        whole = _split(whole, tiling)
    conditions = dict.fromkeys((*full, *(c for found in borders.values() for c in found)))
    return (If(all_hold(conditions), whole, _run_partial(group, full, tiling)),)


def _run_partial(group: Body, full: Collection[Expr], tiling: Tiling) -> Body:
    """A group whose tile is not full, by the tests under which it is."""
    in_rows = _full_tests(group, ROWS) or []

    def run_lanes(nests: Body) -> Body:
        lanes = run_in_parts(nests, "vector", tiling) if len(in_rows) < len(full) else None
        return nests if lanes is None else (lanes,)

    rows = run_in_parts(group, "unroll", tiling) if in_rows else None
    n_rows = max(prod(n.max_trip or 1 for n in scope.loops if n.kind == "unroll") for _, scope in nodes_in(group))
    if 0 < len(in_rows) < len(full) and n_rows >= FEW:
        return (If(all_hold(in_rows), run_lanes(assume(group, hold(in_rows))), group if rows is None else (rows,)),)
    return run_lanes(group) if rows is None else (replace(rows, body=run_lanes(rows.body)),)


def _full_tests(nests: Body, kinds: Collection[str]) -> list[Expr] | None:
    """Tests under which all expanded loops of these kinds are full; None where a nest has no expanded loop, or one whose bounds
    depend on a loop inside."""
    tests: dict[Expr, None] = {}
    for nest in nests:
        loops = list(loops_in((nest,)))
        own = [t for n in loops if n.is_expanded and n.kind in kinds for t in tile_tests(n)]
        if not any(n.is_expanded for n in loops) or any(n.kind == "parallel" for n in loops):
            return None
        if not isinstance(nest, Loop) or not index_names(*own).isdisjoint(n.var for n in loops):
            return None
        tests |= dict.fromkeys(own)
    return list(tests)


# -- border tests


def _interior_tests(nests: Body) -> dict[Expr, list[Expr]]:
    """Tests of statements that share a vector, where they are masks, and inside selections, each with the conditions on outer
    variables under which it holds at every point of the nests.

    Loops side by side share names of variables: a test that stands in several of them needs a condition for each."""
    found: dict[Expr, list[Expr]] = {}
    undecided: set[Expr] = set()
    for node, scope in nodes_in(nests):
        tests = list(_tests_of(node))
        undecided.update(c for t in tests if isinstance(t, Call) and t.op in ("or", "not") for c in comparisons_in(t))
        if isinstance(node, If) and (node.orelse or scope.loops[-1].kind != "vector" or len(scope.loops[-1].body) < 2):
            undecided.update(tests)
        elif tests:
            last = {n.var: int_const(n.max_trip or 0) if n.is_expanded else n.upper for n in scope.loops}
            ranges = {n.var: (n.lower, simplify(last[n.var] - 1)) for n in scope.loops}
            for test in tests:
                is_fixed = isinstance(node, If) and not mentions(test, *ranges) and not reads(test)
                outer = test if is_fixed else hardest(test, ranges)
                if outer is None or outer == Const(False, BOOL):
                    undecided.add(test)
                else:
                    found.setdefault(test, []).append(outer)
    return {test: conditions for test, conditions in found.items() if test not in undecided}


def _tests_of(node: Node) -> Iterator[Expr]:
    """The tests that a node asks, all of which hold in the interior."""
    if isinstance(node, If):
        yield from operands_of(node.condition, "and")
    elif isinstance(node, (Store, Update)):
        for e in walk(node.value):
            if isinstance(e, Select):
                yield from operands_of(e.condition, "and")
