"""Run a vector loop of several statements without tests of where each of them ends.

Before: ``vector for j in 0:n { if (j < n - 1) { A[j] = … } if (i < m - 1) { B[j] = … } }``.
After: ``if (i < m - 1) { vector for j in 0:n - 1 { A[j] = … ; B[j] = … } vector for j in n - 1:n { B[j] = … } } else
{ vector for j in 0:n - 1 { A[j] = … } }``: statements that share a loop over one array may differ in their extents, and tests
in a vector loop are masks.  The few points of a tile are not cut: where all tests hold for all of them, none is asked.  Every
element is computed once, by the same operations, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyc.codegen.nests.interiors import MINIMUM_TRIP, bound_of
from polyc.ir.expr import Call, Const, Expr, Index, all_hold, maximum, minimum, operands_of, substitute, walk
from polyc.ir.loops import If, Loop, Node, Store, Update
from polyc.ir.simplify import simplify
from polyc.ir.walk import walk_nodes
from polyc.records import replace

MAX_TESTS = 4
"""Tests that a loop is written out for; each may double the number of loops."""


def separate_domains(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """The same nodes with vector loops over statements under conditions split where these change."""
    return tuple(new for node in body for new in _separate(node))


def _separate(node: Node) -> tuple[Node, ...]:
    match node:
        case If():
            return (replace(node, body=separate_domains(node.body), orelse=separate_domains(node.orelse)),)
        case Loop():
            if _is_eligible(node):
                atoms = list(dict.fromkeys(_tests(node.body)))
                # Sums over the loop stay whole: only what does not change with it is asked outside.
                cuts = not _reduces(node)
                known = [a for a in atoms if not _mentions(a, node.var) or (cuts and _is_bound(a, node.var))]
                if known and len(atoms) <= MAX_TESTS:
                    known.sort(key=lambda a: _mentions(a, node.var))
                    return _split(node, known)
            elif _is_tile(node):
                atoms = list(dict.fromkeys(_tests(node.body)))
                if (
                    atoms
                    and len(atoms) <= MAX_TESTS
                    and all(not _mentions(a, node.var) or _is_bound(a, node.var) for a in atoms)
                ):
                    return (_version(node, atoms),)
            return (replace(node, body=separate_domains(node.body)),)
    return (node,)


def _is_eligible(loop: Loop) -> bool:
    if loop.kind != "vector" or loop.max_trip is not None or loop.registers or loop.initial or loop.step != 1:
        return False
    trip = simplify(loop.upper - loop.lower)
    if isinstance(trip, Const) and int(trip.value) < MINIMUM_TRIP:
        return False
    return all(isinstance(w, Update) or _moves(w, loop.var) for w in _writes(loop.body))


def _is_tile(loop: Loop) -> bool:
    """Whether a loop is one over the points of a tile, of statements that each store to elements of their own."""
    if loop.kind != "vector" or loop.max_trip is None or loop.registers or loop.initial or loop.step != 1:
        return False
    inside = [node for node in walk_nodes(loop.body) if not isinstance(node, If)]
    return len(inside) > 1 and all(isinstance(node, Store) and _moves(node, loop.var) for node in inside)


def _version(loop: Loop, atoms: list[Expr]) -> Node:
    """The loop without its tests where they hold for its first and its last iteration, and as it is."""
    body, conditions = loop.body, list[Expr]()
    for atom in atoms:
        body = _assume(body, atom, True)
        ends = (loop.lower, loop.upper - 1) if _mentions(atom, loop.var) else (loop.lower,)
        conditions += [simplify(substitute(atom, {loop.var: end})) for end in ends]
    return If(all_hold(list(dict.fromkeys(conditions))), (replace(loop, body=body),), (loop,))


def _reduces(loop: Loop) -> bool:
    return not all(_moves(w, loop.var) for w in _writes(loop.body))


def _moves(write: Store | Update, var: str) -> bool:
    return any(_mentions(e, var) for e in write.subscripts)


def _writes(body: tuple[Node, ...]) -> Iterator[Store | Update]:
    for node in body:
        match node:
            case Store() | Update():
                yield node
            case If():
                yield from _writes(node.body + node.orelse)
            case Loop():
                yield from _writes(node.body)


def _tests(body: tuple[Node, ...]) -> Iterator[Expr]:
    """The comparisons that all have to hold for a statement of the body, and do not depend on loops inside."""
    for node in body:
        if isinstance(node, If) and not node.orelse:
            yield from operands_of(node.condition, "and")
            yield from _tests(node.body)


def _split(loop: Loop, atoms: list[Expr]) -> tuple[Node, ...]:
    """Versions of a loop for both values of the first test, and so on."""
    if not loop.body:
        return ()
    atoms = [a for a in atoms if a in set(_tests(loop.body))]
    if not atoms:
        return (loop,)
    atom, *rest = atoms
    holds, fails = (replace(loop, body=_assume(loop.body, atom, value)) for value in (True, False))
    if not _mentions(atom, loop.var):
        then, otherwise = _split(holds, rest), _split(fails, rest)
        return (If(atom, then, otherwise),) if then else (If(Call("not", (atom,)), otherwise, ()),) if otherwise else ()
    found = bound_of(atom, loop.var)
    assert found is not None
    side, place = found
    middle = simplify(maximum(loop.lower, minimum(place, loop.upper)))
    before, after = (fails, holds) if side == "lower" else (holds, fails)
    parts: list[Node] = []
    for part in (replace(before, upper=middle), replace(after, lower=middle)):
        trip = simplify(part.upper - part.lower)
        if isinstance(trip, Const) and int(trip.value) <= 0:
            continue
        few = isinstance(trip, Const) and int(trip.value) <= part.lanes // 2
        parts += _split(replace(part, kind="serial" if few else part.kind), rest)
    return tuple(parts)


def _assume(body: tuple[Node, ...], atom: Expr, value: bool) -> tuple[Node, ...]:
    """The nodes of a body where a test is known to hold, or not to."""
    result: list[Node] = []
    for node in body:
        if not isinstance(node, If) or node.orelse:
            result.append(node)
            continue
        tests = operands_of(node.condition, "and")
        if atom in tests and not value:
            continue
        left = [a for a in tests if a != atom]
        inner = _assume(node.body, atom, value)
        if not left:
            result += inner
        elif inner:
            condition = left[0]
            for a in left[1:]:
                condition = Call("and", (condition, a))
            result.append(replace(node, condition=condition, body=inner))
    return tuple(result)


def _is_bound(atom: Expr, var: str) -> bool:
    return isinstance(atom, Call) and bound_of(atom, var) is not None


def _mentions(expr: Expr, var: str) -> bool:
    return any(isinstance(node, Index) and node.name == var for node in walk(expr))
