"""Epilogues on accumulators: what a loop leaves in registers is used there by the nest that follows, without memory.

Before: ``for k (registers H from 0) { … H[i, j] += … } ; for i { vector j { Y[…] = f(H[i, j]) } }`` with `H` in memory.
After: the second nest is expanded like the tile of the first, and `H` is a register buffer.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import permutations
from math import prod

from polyc.codegen.nests.buffers import row_major_strides
from polyc.ir.access import accesses_in, moves, writes_in
from polyc.ir.expr import Call, Const, Expr, Index, evaluate, int_const, substitute, walk
from polyc.ir.loops import Buffer, Loop, LoopNest, Node, Store
from polyc.ir.promotion import updates_of
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, make_nest, map_bodies, node_expressions, perfect_nest
from polyc.machine.memory import LINE
from polyc.records import replace

MAX_WORK = 512
"""Operators in all copies of an epilogue beyond which its code would be too long to expand."""

FUNCTION_COSTS = (
    dict.fromkeys(("exp", "exp_below", "exp2", "exp10", "sin", "cos", "sinpi", "cospi", "log", "log2", "log10"), 20)
    | dict.fromkeys(("sigmoid", "tanh", "expm1", "sinh", "cosh", "asin", "acos", "atan", "hypot", "rhypot"), 24)
    | dict.fromkeys(("tan", "cbrt", "log1p", "atan2", "erf"), 36)
    | dict.fromkeys(("erfc", "asinh", "acosh", "atanh", "pow"), 56)
)
"""Instructions of functions that are computed inline by several."""


def keep_epilogues(nest: LoopNest) -> LoopNest:
    """Give tiles that only the following nest reads the space "register", and expand that nest."""
    counted = Counter(a.buffer for a in accesses_in(nest.body))
    tiles = (b.name for b in nest.buffers if b.space == "thread" and all(isinstance(e, Const) for e in b.shape))
    uses = {name: counted[name] for name in tiles}
    kept: set[str] = set()
    body = _keep(nest.body, uses, kept)
    return replace(nest, body=body, buffers=tuple(_in_registers(b) if b.name in kept else b for b in nest.buffers))


def _in_registers(buffer: Buffer) -> Buffer:
    """The buffer with rows of whole vectors: LLVM splits a slot into registers only where no vector reaches the next row."""
    size, (*outer, last) = buffer.dtype.itemsize, buffer.shape
    row = -(-evaluate(last, {}) * size // LINE) * LINE
    return replace(buffer, space="register", strides=(*row_major_strides(tuple(outer), row), int_const(size)))


def _keep(body: Body, uses: dict[str, int], kept: set[str]) -> Body:
    result: list[Node] = []
    for node in body:
        before = result[-1] if result else None
        if isinstance(node, Loop) and isinstance(before, Loop) and before.registers:
            result[-1], node, names = _join(before, node, uses)
            kept |= names
        elif not isinstance(node, Loop) or not node.registers:
            node = map_bodies(node, partial(_keep, uses=uses, kept=kept))
        result.append(node)
    return tuple(result)


def _join(first: Loop, second: Loop, uses: dict[str, int]) -> tuple[Loop, Loop, set[str]]:
    """Both loops with the buffers between them in registers, and their names; the second loop is expanded like their tiles."""
    own = Counter(a.buffer for a in accesses_in((first, second)))
    initial, names = list(first.initial), set[str]()
    for place, start in enumerate(first.initial):
        name = start.buffer
        sites = updates_of(first, name)
        if name not in uses or own[name] != uses[name] or sites is None or len(sites) != 1:
            continue
        ((update, scope),) = sites
        tile = [loop for loop in scope.loops if moves(update, loop.var)]
        if not all(loop.is_expanded for loop in tile):
            continue
        epilogue = _expand_like(second, tile, name, update.subscripts)
        nests = tuple(n for node in start.nest if (n := _expand_like(node, tile, name, update.subscripts)) is not None)
        if epilogue is None or len(nests) < len(start.nest) or _work(epilogue) > MAX_WORK:
            continue
        second, initial[place] = epilogue, replace(start, nest=nests)
        names.add(name)
    return replace(first, initial=tuple(initial)), second, names


def _expand_like(nest: Node, tile: list[Loop], name: str, subscripts: tuple[Expr, ...]) -> Loop | None:
    """A perfect nest over the elements of the tile, each of its loops expanded like the one of the tile that it matches."""
    own, body = perfect_nest(nest)
    if not own or len(own) != len(tile) or any(loop.registers or loop.kind == "parallel" for loop in own):
        return None
    if not body or not all(isinstance(node, Store) for node in body):
        return None
    for order in permutations(tile):
        pairs = list(zip(own, order, strict=True))
        if not all(_is_like(a, b) for a, b in pairs):
            continue
        names: dict[str, Expr] = {a.var: Index(b.var) for a, b in pairs}
        wanted = tuple(map(simplify, subscripts))
        found = [a.subscripts for a in accesses_in(body) if a.buffer == name]
        if all(tuple(simplify(substitute(e, names)) for e in s) == wanted for s in found):
            lanes = [a.var for a, b in pairs if b.kind == "vector"]
            if not all(moves(store, lane) for store in writes_in(body) for lane in lanes):
                return None  # an element for several lanes
            loops = [replace(a, kind=b.kind, max_trip=b.max_trip, lanes=b.lanes, interleave=1) for a, b in pairs]
            (made,) = make_nest(loops, body)
            return made if isinstance(made, Loop) else None
    return None


def _is_like(loop: Loop, other: Loop) -> bool:
    """Whether `loop` may be expanded as `other` is: the same iterations, lanes only where there were lanes, as many or more."""
    same = (loop.lower, loop.upper, loop.step) == (other.lower, other.upper, other.step)
    return same and (other.kind == "unroll" or (loop.kind == "vector" and loop.lanes % other.lanes == 0))


def _work(loop: Loop) -> int:
    """Operators in all copies of an expanded perfect nest, those computed inline by several instructions counted as such."""
    loops, body = perfect_nest(loop)
    copies = prod(-(-(n.max_trip or 1) // n.lanes) for n in loops)
    calls = [e.op for node in body for own in node_expressions(node) for e in walk(own) if isinstance(e, Call)]
    return copies * sum(FUNCTION_COSTS.get(op, 1) for op in calls)
