"""Two parallel loops, one of them all that the other one holds, as one loop whose iterations threads share out.

Before: ``parallel for b < B { parallel for h < 12 { … } }``.  After: ``parallel for b_h < 12 * B { for b in b_h // 12 {
for h in b_h % 12 { … } } }``, with loops of one iteration: an element of a batch alone is work for several threads, too.
"""

from __future__ import annotations

from polyc.ir.expr import Expr, Index, Size, ceil_div, int_const, maximum
from polyc.ir.loops import Loop, Node, do_bounds_depend
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, map_bodies
from polyc.records import replace


def collapse_parallel(outer: Loop) -> Loop:
    """The parallel loop `outer` and a parallel loop inside of it as one; where they cannot be, the inner one is serial."""
    inner = outer.body[0] if len(outer.body) == 1 else None
    if not isinstance(inner, Loop) or inner.kind != "parallel" or do_bounds_depend((inner,), outer.var):
        return replace(outer, body=tuple(map(_serialize, outer.body)))
    n_inner, both = _count(inner), f"{outer.var}_{inner.var}"
    place, within = Index(both) // n_inner, Index(both) % n_inner
    body = (_run_one(outer, place, (_run_one(inner, within, tuple(map(_serialize, inner.body))),)),)
    upper = simplify(_count(outer) * n_inner)
    return replace(outer, var=both, lower=int_const(0), upper=upper, step=1, body=body)


def _count(loop: Loop) -> Expr:
    """Iterations of a loop, at least 0."""
    length = loop.upper - loop.lower
    count = simplify(ceil_div(length, loop.step))
    return count if isinstance(count, Size) else simplify(maximum(count, 0))


def _run_one(loop: Loop, number: Expr, body: Body) -> Loop:
    """Iteration `number` of a loop."""
    lower = simplify(loop.lower + number * loop.step)
    return replace(loop, lower=lower, upper=simplify(lower + 1), kind="serial", body=body)


def _serialize(node: Node) -> Node:
    node = map_bodies(node, lambda body: tuple(map(_serialize, body)))
    return replace(node, kind="serial") if isinstance(node, Loop) and node.kind == "parallel" else node
