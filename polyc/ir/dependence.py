"""Dependences between accesses of a loop nest: by how many iterations of a loop they are apart where they meet in an element.

    ``for i { for j { A[i, j] = A[i - 1, j + 1] } }``    what is written is read in the next iteration of i: (1, 1)
    ``for t by 16 { for u < 16 { B[t + u] = … } }``    a subscript tells the tile: no iteration of t meets another

Subscripts are tested one by one: those without the loop's variable, and those in which both accesses have it with one factor;
what else moves is bounded (ZIV and strong SIV tests, and Banerjee's bounds: G. Goff, K. Kennedy, C.-W. Tseng, "Practical
dependence testing", PLDI 1991).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement

from polyc.ir.access import Access
from polyc.ir.expr import Call, Const, Expr, Index, index_names, int_const, mentions, minimum, operands_of, reads, substitute
from polyc.ir.intervals import Interval
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, Loop
from polyc.ir.simplify import constant_of, difference, least_constant, simplify
from polyc.records import replace

ANY: Interval = (None, None)

Loops = Sequence[Loop]
Known = dict[tuple[tuple[tuple[str, int], ...], int], Interval]
"""Bounds by the factors of variables and the `id` of the loops around."""


def carries_dependence(loop: Loop, accesses: Sequence[Access], buffers: Mapping[str, Buffer]) -> bool:
    """Whether an iteration of `loop` may need what another one writes, or write what it accesses.

    `accesses`: those of its body (`accesses_in`)."""
    inside = [(a, _loops_around(a)) for a in accesses]
    known: Known = {}
    for (a, a_loops), (b, b_loops) in combinations_with_replacement(inside, 2):
        if not (a.is_write or b.is_write):
            continue
        if a.buffer != b.buffer:
            if a.buffer in buffers[b.buffer].may_alias or b.buffer in buffers[a.buffer].may_alias:
                return True
            continue
        apart = iterations_apart(a.subscripts, b.subscripts, loop.var, a_loops, b_loops, known)
        if apart is not None and not all(n is not None and abs(n) < loop.step for n in apart):
            return True
    return False


def iterations_apart(
    a: Sequence[Expr], b: Sequence[Expr], var: str, a_loops: Loops = (), b_loops: Loops = (), known: Known | None = None
) -> Interval | None:
    """How much larger `var` may be where `b` meets what `a` accesses; None where they never meet.

    Each access has values of its own of the variables of loops inside, outermost first; of all others both have the same.
    `known`: what was found for other pairs with the very same loops."""
    low, high = ANY
    known = {} if known is None else known
    for x, y in zip(a, b, strict=True):
        found = _apart(x, y, var, a_loops, b_loops, known)
        if found is None:
            return None
        low = found[0] if low is None else low if found[0] is None else max(low, found[0])
        high = found[1] if high is None else high if found[1] is None else min(high, found[1])
        if low is not None and high is not None and low > high:
            return None
    return low, high


def _apart(x: Expr, y: Expr, var: str, x_loops: Loops, y_loops: Loops, known: Known) -> Interval | None:
    """The same by one subscript of each."""
    x_moves, y_moves = index_coefficients(x), index_coefficients(y)
    if x_moves is None or y_moves is None:
        moving = {var, *(loop.var for loop in (*x_loops, *y_loops))}
        return None if _are_other_remainders(x, y, moving) else ANY
    factor = x_moves.get(var, 0)
    if factor != y_moves.get(var, 0):
        return ANY
    if x == y and x_loops is y_loops:
        distance: int | None = 0
    else:
        at_zero = [dict.fromkeys((var, *(n.var for n in loops)), int_const(0)) for loops in (x_loops, y_loops)]
        distance = difference(substitute(x, at_zero[0]), substitute(y, at_zero[1]))
    if distance is None:
        return ANY
    (x_low, x_high), (y_low, y_high) = _bounds(x_moves, x_loops, known), _bounds(y_moves, y_loops, known)
    low = None if x_low is None or y_high is None else distance + x_low - y_high
    high = None if x_high is None or y_low is None else distance + x_high - y_low
    if factor == 0:
        return ANY if (low is None or low <= 0) and (high is None or high >= 0) else None
    if factor < 0:
        low, high = (None if n is None else -n for n in (high, low))
    low, high = None if low is None else -(-low // abs(factor)), None if high is None else high // abs(factor)
    return None if low is not None and high is not None and low > high else (low, high)


def _bounds(moves: Mapping[str, int], loops: Loops, known: Known) -> Interval:
    """The least and the greatest number that the variables of loops add to a subscript."""
    own = tuple((loop.var, moves[loop.var]) for loop in loops if moves.get(loop.var))
    if own and (own, id(loops)) not in known:
        known[own, id(loops)] = _find_bounds(moves, loops)
    return known[own, id(loops)] if own else (0, 0)


def _find_bounds(moves: Mapping[str, int], loops: Loops) -> Interval:
    moved = [loop for loop in loops if moves.get(loop.var)]
    boxes = [box for loop in moved if (box := _box_of(loop, loops)) is not None]
    if len(boxes) == len(moved):
        ends = [sorted(moves[loop.var] * n for n in box) for loop, box in zip(moved, boxes, strict=True)]
        return sum(e[0] for e in ends), sum(e[1] for e in ends)
    total: Expr = int_const(0)
    for loop in loops:
        total = total + moves.get(loop.var, 0) * Index(loop.var)
    least, most = _most(simplify(-total), loops), _most(simplify(total), loops)
    return None if least is None else -least, most


def _box_of(loop: Loop, loops: Loops) -> tuple[int, int] | None:
    """The first and the last value that a loop may have, where that is known whatever others around do."""
    first, end = constant_of(loop.lower), least_constant(loop.upper)
    if first is None or end is None or not index_names(loop.upper).isdisjoint(n.var for n in loops):
        return None
    return first, first + max(0, end - first - 1) // loop.step * loop.step


def _most(expr: Expr, loops: Loops) -> int | None:
    """What a sum of variables never exceeds: at the last or the first value of each, from the innermost one on, as bounds of
    loops inside depend on those around."""
    if isinstance(expr, Const):
        return int(expr.value)
    moving = index_coefficients(expr) or {}
    loop = next((loop for loop in reversed(loops) if moving.get(loop.var)), None)
    if loop is None:
        return None
    ends = _last_values(loop) if moving[loop.var] > 0 else operands_of(loop.lower, "max")
    found = (_most(simplify(substitute(expr, {loop.var: e})), loops) for e in ends)
    return min((n for n in found if n is not None), default=None)


def _last_values(loop: Loop) -> Iterator[Expr]:
    """What the variable of a loop never exceeds."""
    for e in operands_of(loop.upper, "min"):
        length = difference(e, loop.lower)
        yield simplify(e - 1) if length is None else simplify(loop.lower + max(0, length - 1) // loop.step * loop.step)


def _loops_around(access: Access) -> tuple[Loop, ...]:
    """The loops around an access, with what tests say of their iterations."""
    loops: tuple[Loop, ...] = ()
    for step in access.scope.path:
        if isinstance(step, Loop):
            loops = (*loops, step)
        elif step.outcome:
            loops = tuple(_narrow(loop, step.condition) for loop in loops)
    return loops


def _narrow(loop: Loop, condition: Expr) -> Loop:
    """The iterations of a loop for which a condition ``min(…, a - i) >= b`` inside of it can hold."""
    match condition:
        case Call("ge", (left, Const(least))):
            for e in operands_of(left, "min"):
                last = difference(e + Index(loop.var), int_const(int(least)))
                if last is not None:
                    loop = replace(loop, upper=minimum(loop.upper, last + 1))
    return loop


def _are_other_remainders(x: Expr, y: Expr, moving: set[str]) -> bool:
    """Whether both are remainders of a window that goes round, and differ in all iterations."""
    match x, y:
        case Call("mod", (u, Const(n))), Call("mod", (v, Const(m))) if n == m and not reads(u) and not mentions(u, *moving):
            distance = difference(u, v)
            return distance is not None and distance % int(n) != 0
    return False
