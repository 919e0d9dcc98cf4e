"""Run the interior of a vector loop without the tests of its borders.

Before: ``vector for j in 0:n { Y[i, j] = (i >= 1 && j >= 1 ? X[i - 1, j - 1] : 0) + (j < n - 1 ? X[i, j + 1] : 0) }``.
After: ``if (i >= 1) { vector for j in 0:1 {…} ; vector for j in 1:n - 1 { Y[i, j] = X[i - 1, j - 1] + X[i, j + 1] } ;
vector for j in n - 1:n {…} } else { vector for j in 0:n {…} }``: inside, windows over neighbours are plain loads.
Every element is computed once, by the same operations.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    Select,
    Size,
    all_hold,
    evaluate,
    maximum,
    minimum,
    operands_of,
    reads,
    rewrite,
    walk,
)
from polyc.ir.loops import If, Loop, Node, Store, Update
from polyc.ir.simplify import linear_form, simplify
from polyc.ir.walk import node_expressions
from polyc.records import dataclass, replace
from polyc.target import Target

MINIMUM_TRIP = 64
"""Iterations of a loop that is worth being written several times, if its lanes lie side by side or there are mask registers."""

MINIMUM_COPY = 16
"""The same where elements from elsewhere stand in for what lies outside: lanes would read them one by one."""

MOST_PROVED = 4096
"""Iterations at which two subscripts are compared."""


@dataclass(frozen=True, slots=True)
class _Tests:
    """Comparisons that hold inside: those that stay the same in the loop, and where the others do, ``lower <= v < upper``."""

    fixed: tuple[Expr, ...]
    moving: tuple[Expr, ...]
    lower: Expr
    upper: Expr


def split_interiors(body: tuple[Node, ...], target: Target) -> tuple[Node, ...]:
    """The same nodes with vector loops over chosen reads split into borders and interior."""
    return tuple(new for node in body for new in _split(node, target))


def _split(node: Node, target: Target) -> tuple[Node, ...]:
    match node:
        case If():
            return (replace(node, body=split_interiors(node.body, target), orelse=split_interiors(node.orelse, target)),)
        case Loop():
            tests = _find_tests(node, target)
            if tests is not None:
                return _split_loop(node, tests)
            return (replace(node, body=split_interiors(node.body, target)),)
    return (node,)


def _find_tests(loop: Loop, target: Target) -> _Tests | None:
    """The tests of a loop that is worth it; None for any other."""
    if loop.kind != "vector" or loop.registers or loop.initial or loop.step != 1:
        return None
    fixed: dict[Expr, None] = {}
    moving: dict[Expr, None] = {}
    lower, upper = loop.lower, loop.upper
    for node in loop.body:
        if not isinstance(node, (Store, Update)) or not any(_mentions(e, loop.var) for e in node.subscripts):
            return None
        if isinstance(node.value, Select) and not _is_mirrored_copy(node.value):
            continue  # a copy with a border of one value: masks do that
        for atom in _atoms(node.value):
            if not _mentions(atom, loop.var):
                fixed[atom] = None
                continue
            bound = bound_of(atom, loop.var)
            if bound is None:
                continue
            moving[atom] = None
            if bound[0] == "lower":
                lower = maximum(lower, bound[1])
            else:
                upper = minimum(upper, bound[1])
    tests = _Tests(tuple(fixed), tuple(moving), simplify(lower), simplify(upper))
    return tests if (fixed or moving) and _is_long(loop, tests, target) else None


def _is_long(loop: Loop, tests: _Tests, target: Target) -> bool:
    """Whether a loop is worth being written several times."""
    has_stand_ins = all(isinstance(node, Store) and _is_mirrored_copy(node.value) for node in loop.body)
    trip = simplify(loop.upper - loop.lower)
    if isinstance(trip, Const) and not has_stand_ins and not target.has_masks and _reads_apart(loop):
        inside = simplify(tests.upper - tests.lower)
        if isinstance(inside, Const) and int(inside.value) >= loop.lanes:
            return True
    if loop.max_trip is not None and not has_stand_ins:
        return False
    return not isinstance(trip, Const) or int(trip.value) >= (MINIMUM_COPY if has_stand_ins else MINIMUM_TRIP)


def _reads_apart(loop: Loop) -> bool:
    """Whether lanes of chosen reads do not lie side by side: tests have them read one by one, or under shuffled masks."""
    chosen = (e for node in loop.body for root in node_expressions(node) for e in walk(root) if isinstance(e, Select))
    for subscript in (s for e in chosen for read in reads(e.then) for s in read.subscripts):
        form = linear_form(subscript)
        if form is None or abs(form.get(Index(loop.var), 0)) > 1:
            return True
    return False


def _atoms(value: Expr) -> Iterator[Expr]:
    """Comparisons of integers, all of which hold where a selection takes a read that it guards."""
    for node in walk(value):
        if isinstance(node, Select) and reads(node.then) and not reads(node.condition):
            yield from (a for a in operands_of(node.condition, "and") if isinstance(a, Call) and _slack(a) is not None)


def _slack(atom: Call) -> Expr | None:
    """What is not negative exactly where a comparison of integers holds."""
    if atom.op not in ("ge", "gt", "le", "lt"):
        return None
    a, b = atom.args if atom.op in ("ge", "gt") else reversed(atom.args)
    slack = a - b
    if linear_form(slack) is None or any(not isinstance(e, (Index, Size, Const, Call)) for e in walk(slack)):
        return None
    return slack if atom.op in ("ge", "le") else slack - 1


def bound_of(atom: Expr, var: str) -> tuple[str, Expr] | None:
    """The bound of the variable that a comparison stands for: ("lower", first iteration) or ("upper", one behind the last)."""
    assert isinstance(atom, Call)
    slack = _slack(atom)
    form = None if slack is None else linear_form(slack)
    if form is None or any(not isinstance(t, (int, Index)) and _mentions(t, var) for t in form):
        return None
    step = form.get(Index(var), 0)
    if step == 0:
        return None
    assert slack is not None
    rest = simplify(slack - step * Index(var))
    if abs(step) != 1:
        rest = rest // abs(step)
    if step > 0:  # step * v + rest >= 0
        return "lower", -rest
    return "upper", rest + 1  # rest - step * v >= 0


def _split_loop(loop: Loop, tests: _Tests) -> tuple[Node, ...]:
    loop = replace(loop, max_trip=None)
    inside = replace(loop, body=tuple(_assume(node, {*tests.fixed, *tests.moving}) for node in loop.body))
    border = replace(loop, body=tuple(_assume(node, {*tests.fixed}) for node in loop.body))
    if not tests.moving:
        return (If(all_hold(tests.fixed), (border,), (loop,)),)
    begin = simplify(minimum(tests.lower, loop.upper))
    end = simplify(maximum(tests.upper, begin))
    parts: list[Node] = []
    for lower, upper, part in ((loop.lower, begin, border), (begin, end, inside), (end, loop.upper, border)):
        trip = simplify(upper - lower)
        if not (isinstance(trip, Const) and int(trip.value) <= 0):
            most = _most(trip) if part is inside else _most_at_border(loop, tests, lower == loop.lower)
            few = most is not None and most <= loop.lanes // 2
            parts.append(replace(part, lower=lower, upper=upper, kind="serial" if few else "vector"))
    if not tests.fixed:
        return tuple(parts)
    outside: tuple[Node, ...] = (loop,)
    if tests.moving and isinstance(begin, Const) and isinstance(end, Const):
        whole = tuple(_take_stand_ins(node, tests, loop.var, int(begin.value), int(end.value)) for node in loop.body)
        if whole != loop.body:
            pieces = ((loop.lower, begin, loop.body), (begin, end, whole), (end, loop.upper, loop.body))
            outside = tuple(_piece(loop, *piece) for piece in pieces if piece[0] != piece[1])
    return (If(all_hold(tests.fixed), tuple(parts), outside),)


def _most_at_border(loop: Loop, tests: _Tests, is_first: bool) -> int | None:
    """Iterations in front of the interior, or behind it, at most; None where nothing is known."""
    if is_first:
        gaps = [e - loop.lower for e in operands_of(tests.lower, "max")]
    else:
        gaps = [loop.upper - e for e in operands_of(tests.upper, "min")]
    found = [_most(simplify(gap)) for gap in gaps]
    return None if None in found else max(0, *(n for n in found if n is not None))


def _most(expr: Expr) -> int | None:
    """A constant that an integer expression over sizes, which are not negative, does not exceed."""
    match expr:
        case Const(value):
            return int(value)
        case Call("neg", (value,)):
            least = _least(value)
            return None if least is None else -least
        case Call("add", (a, b)):
            sides = _most(a), _most(b)
        case Call("sub", (a, b)):
            sides = _most(a), _most(-b)
        case Call("mul", (Const(n), e)) if n == -1:
            return _most(-e)
        case Call("mod", (_, Const(n))) if n > 0:
            return int(n) - 1
        case _:
            return None
    return None if sides[0] is None or sides[1] is None else sides[0] + sides[1]


def _least(expr: Expr) -> int | None:
    """A constant that such an expression does not fall below."""
    match expr:
        case Const(value):
            return int(value)
        case Size():
            return 0
        case Call("mod", (_, Const(n))) if n > 0:
            return 0
        case Call("add", (a, b)):
            sides = _least(a), _least(b)
            return None if sides[0] is None or sides[1] is None else sides[0] + sides[1]
    return None


def _piece(loop: Loop, lower: Expr, upper: Expr, body: tuple[Node, ...]) -> Loop:
    return replace(loop, lower=lower, upper=upper, body=body)


def _is_mirrored_copy(value: Expr) -> bool:
    """Whether other elements of the same tensor stand in for those outside."""
    return (
        isinstance(value, Select)
        and isinstance(value.then, Read)
        and isinstance(value.other, Read)
        and value.then.tensor == value.other.tensor
    )


def _take_stand_ins(node: Node, tests: _Tests, var: str, begin: int, end: int) -> Node:
    """A copy in whose rows some of the fixed tests fail, where the moving ones hold: it takes a row that stands in."""
    if not isinstance(node, Store) or not isinstance(node.value, Select) or not _is_mirrored_copy(node.value):
        return node
    atoms = operands_of(node.value.condition, "and")
    if not set(tests.fixed) <= set(atoms) or not set(atoms) <= {*tests.fixed, *tests.moving} or end - begin > MOST_PROVED:
        return node
    then, other = node.value.then, node.value.other
    assert isinstance(then, Read)
    assert isinstance(other, Read)
    subscripts = []
    for inside, stand_in in zip(then.subscripts, other.subscripts, strict=True):
        if _mentions(stand_in, var):
            if any(isinstance(n, (Size, Read)) or (isinstance(n, Index) and n.name != var) for n in walk(stand_in)):
                return node
            if any(isinstance(n, (Size, Read)) or (isinstance(n, Index) and n.name != var) for n in walk(inside)):
                return node
            if any(evaluate(inside, {var: v}) != evaluate(stand_in, {var: v}) for v in range(begin, end)):
                return node
            stand_in = inside
        subscripts.append(stand_in)
    return replace(node, value=replace(other, subscripts=tuple(subscripts)))


def _assume(node: Node, known: set[Expr]) -> Node:
    """A store under conditions that are known to hold."""
    assert isinstance(node, (Store, Update))

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Select):
            return None
        left = [a for a in operands_of(e.condition, "and") if a not in known]
        if not left:
            return e.then
        condition = left[0]
        for atom in left[1:]:
            condition = Call("and", (condition, atom))
        return replace(e, condition=condition)

    if isinstance(node.value, Select) and not _is_mirrored_copy(node.value):
        return node
    return replace(node, value=rewrite(node.value, rule))


def _mentions(expr: Expr, var: str) -> bool:
    return any(isinstance(node, Index) and node.name == var for node in walk(expr))
