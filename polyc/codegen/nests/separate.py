"""Run a vector loop of several statements without tests of where each of them ends.

Before: ``vector for j in 0:n { if (j < n - 1) { A[j] = … } if (i < m - 1) { B[j] = … } }``.
After: ``if (i < m - 1) { vector for j in 0:n - 1 { A[j] = … ; B[j] = … } vector for j in n - 1:n { B[j] = … } } else
{ vector for j in 0:n - 1 { A[j] = … } }``: statements that share a loop over one array may differ in their extents, and tests
in a vector loop are masks.  The few points of a tile are not cut: where all tests hold for all of them, none is asked.  Every
element is computed once, by the same operations, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyc.codegen.nests.interiors import MINIMUM_TRIP
from polyc.ir.access import moves, writes_in
from polyc.ir.expr import Call, Expr, all_hold, mentions, operands_of, substitute
from polyc.ir.facts import assume, clamp, hold, pieces, span_of
from polyc.ir.loops import If, Loop, Node, Store, Update, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, rewrite_nodes, walk_nodes
from polyc.records import replace

MAX_TESTS = 4
"""Tests that a loop is written out for; each may double the number of loops."""


def separate_domains(body: Body) -> Body:
    """The same nodes with vector loops over statements under conditions split where these change."""
    return rewrite_nodes(body, _separate)


def _separate(node: Node, scope: Scope) -> Body | None:
    if not isinstance(node, Loop):
        return None
    atoms = list(dict.fromkeys(_tests(node.body)))
    if _is_eligible(node):
        # Sums over the loop stay whole: only what does not change with it is asked outside.
        cuts = not _reduces(node)
        known = [a for a in atoms if not mentions(a, node.var) or (cuts and span_of(a, node.var) is not None)]
        if known and len(atoms) <= MAX_TESTS:
            return _split(node, sorted(known, key=lambda a: mentions(a, node.var)))
        return None
    is_decided = all(not mentions(a, node.var) or span_of(a, node.var) is not None for a in atoms)
    return (_version(node, atoms),) if 0 < len(atoms) <= MAX_TESTS and is_decided and _is_tile(node) else None


def _is_eligible(loop: Loop) -> bool:
    if loop.kind != "vector" or loop.max_trip is not None or loop.registers or loop.initial or loop.step != 1:
        return False
    trip = known_length(loop)
    if trip is not None and trip < MINIMUM_TRIP:
        return False
    return all(isinstance(w, Update) or moves(w, loop.var) for w in writes_in(loop.body))


def _is_tile(loop: Loop) -> bool:
    """Whether a loop is one over the points of a tile, of statements that each store to elements of their own."""
    if loop.kind != "vector" or loop.max_trip is None or loop.registers or loop.initial or loop.step != 1:
        return False
    inside = [node for node in walk_nodes(loop.body) if not isinstance(node, If)]
    return len(inside) > 1 and all(isinstance(node, Store) and moves(node, loop.var) for node in inside)


def _version(loop: Loop, atoms: list[Expr]) -> Node:
    """The loop without its tests where they hold for its first and its last iteration, and as it is."""
    conditions: dict[Expr, None] = {}
    for atom in atoms:
        ends = (loop.lower, loop.upper - 1) if mentions(atom, loop.var) else (loop.lower,)
        conditions |= dict.fromkeys(simplify(substitute(atom, {loop.var: end})) for end in ends)
    return If(all_hold(conditions), (replace(loop, body=assume(loop.body, hold(atoms))),), (loop,))


def _reduces(loop: Loop) -> bool:
    return not all(moves(w, loop.var) for w in writes_in(loop.body))


def _tests(body: Body) -> Iterator[Expr]:
    """The comparisons that all have to hold for a statement of the body, and do not depend on loops inside."""
    for node in body:
        if isinstance(node, If) and not node.orelse:
            yield from operands_of(node.condition, "and")
            yield from _tests(node.body)


def _split(loop: Loop, atoms: list[Expr]) -> Body:
    """Versions of a loop for both values of the first test, and so on."""
    if not loop.body:
        return ()
    atoms = [a for a in atoms if a in set(_tests(loop.body))]
    if not atoms:
        return (loop,)
    atom, *rest = atoms
    holds, fails = (assume(loop.body, hold([atom], value)) for value in (True, False))
    if not mentions(atom, loop.var):
        then, otherwise = (_split(replace(loop, body=body), rest) for body in (holds, fails))
        return (If(atom, then, otherwise),) if then else (If(Call("not", (atom,)), otherwise, ()),) if otherwise else ()
    span = span_of(atom, loop.var)
    assert span is not None
    if span.lower is not None:
        middle, before, after = clamp(span.lower, loop), fails, holds
    else:
        assert span.upper is not None
        middle, before, after = clamp(span.upper, loop), holds, fails
    parts: list[Node] = []
    for part in pieces(loop, (loop.lower, middle, before), (middle, loop.upper, after)):
        trip = known_length(part)
        few = trip is not None and trip <= part.lanes // 2
        parts += _split(replace(part, kind="serial" if few else part.kind), rest)
    return tuple(parts)
