"""Run the interior of a vector loop without the tests of its borders.

Before: ``vector for j in 0:n { Y[i, j] = (i >= 1 && j >= 1 ? X[i - 1, j - 1] : 0) + (j < n - 1 ? X[i, j + 1] : 0) }``.
After: ``if (i >= 1) { vector for j in 0:1 {…} ; vector for j in 1:n - 1 { Y[i, j] = X[i - 1, j - 1] + X[i, j + 1] } ;
vector for j in n - 1:n {…} } else { vector for j in 0:n {…} }``: inside, windows over neighbours are plain loads.
Every element is computed once, by the same operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from polyc.ir.expr import Call, Const, Expr, Index, Select, Size, int_const, reads, rewrite, walk
from polyc.ir.loops import If, Loop, Node, Store, Update
from polyc.ir.simplify import linear_form, simplify

MINIMUM_TRIP = 64
"""Iterations of a loop that is worth being written several times."""


@dataclass(frozen=True, slots=True)
class _Tests:
    """Comparisons that hold inside: those that stay the same in the loop, and where the others do, ``lower <= v < upper``."""

    fixed: tuple[Expr, ...]
    moving: tuple[Expr, ...]
    lower: Expr
    upper: Expr


def split_interiors(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """The same nodes with vector loops over chosen reads split into borders and interior."""
    return tuple(new for node in body for new in _split(node))


def _split(node: Node) -> tuple[Node, ...]:
    match node:
        case If():
            return (replace(node, body=split_interiors(node.body), orelse=split_interiors(node.orelse)),)
        case Loop():
            tests = _find_tests(node)
            if tests is not None:
                return _split_loop(node, tests)
            return (replace(node, body=split_interiors(node.body)),)
    return (node,)


def _find_tests(loop: Loop) -> _Tests | None:
    """The tests of a loop that is worth it; None for any other."""
    if loop.kind != "vector" or loop.max_trip is not None or loop.registers or loop.initial or loop.step != 1:
        return None
    trip = simplify(Call("sub", (loop.upper, loop.lower)))
    if isinstance(trip, Const) and int(trip.value) < MINIMUM_TRIP:
        return None
    fixed: dict[Expr, None] = {}
    moving: dict[Expr, None] = {}
    lower, upper = loop.lower, loop.upper
    for node in loop.body:
        if not isinstance(node, Store | Update) or not any(_mentions(e, loop.var) for e in node.subscripts):
            return None
        if isinstance(node.value, Select):
            continue  # a copy with a border: masks do that
        for atom in _atoms(node.value):
            if not _mentions(atom, loop.var):
                fixed[atom] = None
                continue
            bound = bound_of(atom, loop.var)
            if bound is None:
                continue
            moving[atom] = None
            if bound[0] == "lower":
                lower = Call("max", (lower, bound[1]))
            else:
                upper = Call("min", (upper, bound[1]))
    if not fixed and not moving:
        return None
    return _Tests(tuple(fixed), tuple(moving), simplify(lower), simplify(upper))


def _atoms(value: Expr) -> Iterator[Expr]:
    """Comparisons of integers, all of which hold where a selection takes a read that it guards."""
    for node in walk(value):
        if isinstance(node, Select) and reads(node.then) and not reads(node.condition):
            yield from (a for a in conjuncts(node.condition) if isinstance(a, Call) and _slack(a) is not None)


def conjuncts(condition: Expr) -> list[Expr]:
    if isinstance(condition, Call) and condition.op == "and":
        return [c for a in condition.args for c in conjuncts(a)]
    return [condition]


def _slack(atom: Call) -> Expr | None:
    """What is not negative exactly where a comparison of integers holds."""
    if atom.op not in ("ge", "gt", "le", "lt"):
        return None
    a, b = atom.args if atom.op in ("ge", "gt") else reversed(atom.args)
    slack = Call("sub", (a, b))
    if linear_form(slack) is None or any(not isinstance(e, Index | Size | Const | Call) for e in walk(slack)):
        return None
    return slack if atom.op in ("ge", "le") else Call("sub", (slack, int_const(1)))


def bound_of(atom: Expr, var: str) -> tuple[str, Expr] | None:
    """The bound of the variable that a comparison stands for: ("lower", first iteration) or ("upper", one behind the last)."""
    assert isinstance(atom, Call)
    slack = _slack(atom)
    form = None if slack is None else linear_form(slack)
    if form is None or any(not isinstance(t, int | Index) and _mentions(t, var) for t in form):
        return None
    step = form.get(Index(var), 0)
    if abs(step) != 1:
        return None
    assert slack is not None
    rest = Call("sub", (slack, Call("mul", (int_const(step), Index(var)))))
    if step == 1:  # v + rest >= 0
        return "lower", Call("neg", (rest,))
    return "upper", Call("add", (rest, int_const(1)))  # rest - v >= 0


def _split_loop(loop: Loop, tests: _Tests) -> tuple[Node, ...]:
    inside = replace(loop, body=tuple(_assume(node, {*tests.fixed, *tests.moving}) for node in loop.body))
    border = replace(loop, body=tuple(_assume(node, {*tests.fixed}) for node in loop.body))
    begin = simplify(Call("min", (tests.lower, loop.upper)))
    end = simplify(Call("max", (tests.upper, begin)))
    parts: list[Node] = []
    for lower, upper, part in ((loop.lower, begin, border), (begin, end, inside), (end, loop.upper, border)):
        trip = simplify(Call("sub", (upper, lower)))
        if not (isinstance(trip, Const) and int(trip.value) <= 0):
            few = isinstance(trip, Const) and int(trip.value) <= loop.lanes // 2
            parts.append(replace(part, lower=lower, upper=upper, kind="serial" if few else "vector"))
    if not tests.fixed:
        return tuple(parts)
    condition = tests.fixed[0]
    for atom in tests.fixed[1:]:
        condition = Call("and", (condition, atom))
    return (If(condition, tuple(parts), (loop,)),)


def _assume(node: Node, known: set[Expr]) -> Node:
    """A store under conditions that are known to hold."""
    assert isinstance(node, Store | Update)

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Select):
            return None
        left = [a for a in conjuncts(e.condition) if a not in known]
        if not left:
            return e.then
        condition = left[0]
        for atom in left[1:]:
            condition = Call("and", (condition, atom))
        return replace(e, condition=condition)

    return node if isinstance(node.value, Select) else replace(node, value=rewrite(node.value, rule))


def _mentions(expr: Expr, var: str) -> bool:
    return any(isinstance(node, Index) and node.name == var for node in walk(expr))
