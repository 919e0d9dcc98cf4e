"""Loops over several values of their variable at once: interleaved vectors, single vectors, and the rest.

The rest runs under a mask.  Where the target has none, the last vector is moved back to end with the loop, or the rest is done
by narrower vectors and one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import assert_never

from polyc.code_limits import MAX_TRIED
from polyc.codegen.emission.accesses import are_loaded_places
from polyc.codegen.emission.context import Context, Predicate, State, byte_offset
from polyc.codegen.emission.linear import constant_of, index_names, split_lane
from polyc.codegen.writer import vectors
from polyc.codegen.writer.builder import Function, Val, int_val
from polyc.ir.expr import Const, Expr, Index, lt, reads
from polyc.ir.loops import Guard, If, Loop, Node, Prefetch, Store, Update
from polyc.ir.simplify import simplify_int
from polyc.ir.walk import node_expressions, walk_nodes
from polyc.records import replace

Body = Callable[[Context], None]
"""Writes the body of a loop in a context that its variable is bound in."""

InOrder = Callable[[Context, Val, Val], None]
"""Writes the iterations of a loop from a lower to an upper bound one after the other."""


def emit_vector(state: State, ctx: Context, loop: Loop, lower: Val, upper: Val, emit: Body, in_order: InOrder) -> None:
    """Emit a vector loop of at least one iteration."""
    fn, lanes = state.fn, loop.lanes
    ctx = ctx.multiple(loop.var, gcd(int(lower.ref), lanes) if lower.is_const else 1)
    if loop.var in ctx.overread:
        _emit_overread(state, ctx, loop, lower, upper, emit)
        return

    known = constant_trip(loop)
    # Loops whose trips are not known have many.
    n_vectors = 1 if any(isinstance(node, Loop) for node in loop.body) else MAX_TRIED if known is None else known // lanes
    whole = replace(ctx, n_vectors=n_vectors)

    trip = fn.binary("sub", upper, lower)
    start = lower
    # Partial sums are a ring of all lanes of two vectors, wherever the rest begins (`peeling`).
    # Rows between loaded ends are short (the degrees of a graph: 0.8 of the speed).
    is_ring = loop.interleave == 2 and state.target.has_masks and bool(state.held) and not reads(loop.upper)
    for count in (loop.interleave, 1) if loop.interleave > 1 else (1,):
        width = lanes * count
        if (known is not None and known < width) or (known is None and is_ring and count == 1):
            continue
        stop = fn.binary("add", lower, fn.binary("sub", trip, _modulo(fn, trip, width)))
        state.invalidate_all()
        with fn.when(fn.compare("icmp slt", start, stop)):
            fn.counted_loop(start, stop, width, emit_copies(whole, loop, count, emit))
        state.invalidate_all()
        start = stop
        if (known is not None and known % width == 0) or width == 1:
            return
    with fn.when(fn.compare("icmp slt", start, upper)):
        if state.target.has_masks and not (loads_apart(state, loop) and is_repeatable(state, loop)):
            end = loop.upper
            if reads(end):  # loaded once
                end = Index(f"{loop.var}·end")
                ctx = ctx.bind(end.name, upper)
            ctx = ctx.under(Predicate(lt(Index(loop.var), end), loop.var))
            if known is None and is_ring:
                emit_rest_of_ring(state, ctx, loop, start, upper, emit)
            else:
                emit(ctx.bind_lanes(loop.var, start, lanes, known // lanes % 2 if is_ring and known is not None else 0))
        elif is_repeatable(state, loop):
            # The last vector once more, moved back to end where the loop ends: it stores what is there already.
            is_long = None if known is not None and known >= lanes else fn.compare("icmp sge", trip, int_val(lanes))
            with fn.when(is_long):
                moved = replace(ctx.multiple(loop.var, 1), is_moved=True)
                emit_copies(moved, loop, 1, emit)(fn.binary("sub", upper, int_val(lanes)))
            state.invalidate_all()
            if is_long is not None:
                with fn.when(fn.not_(is_long)):
                    _emit_rest(state, ctx, loop, start, upper, emit, in_order)
        else:
            _emit_rest(state, ctx, loop, start, upper, emit, in_order)
    state.invalidate_all()


def _emit_overread(state: State, ctx: Context, loop: Loop, lower: Val, upper: Val, emit: Body) -> None:
    """A loop whose last vector loads behind its end as all others do, and leaves out what it computes there (`overreads`)."""
    fn = state.fn

    def emit_from(i: Val) -> None:
        left = fn.splat(fn.binary("sub", upper, i), loop.lanes)
        inside = fn.compare("icmp slt", vectors.lane_numbers(loop.lanes), left)
        emit(ctx.bind_lanes(loop.var, i, loop.lanes).under(Predicate(inside, loop.var)))

    state.invalidate_all()
    fn.counted_loop(lower, upper, loop.lanes, emit_from)
    state.invalidate_all()


def emit_rest_of_ring(state: State, ctx: Context, loop: Loop, start: Val, upper: Val, emit: Body) -> None:
    """What interleaved vectors leave of a loop, whose end `ctx` has as a predicate: vectors with the same accumulators."""
    for copy in range(loop.interleave):
        with state.fn.when(state.fn.compare("icmp slt", start, upper)):
            emit(ctx.bind_lanes(loop.var, start, loop.lanes, copy))
        state.invalidate_all()
        start = state.fn.binary("add", start, int_val(loop.lanes))


def emit_copies(ctx: Context, loop: Loop, count: int, emit: Body) -> Callable[[Val], None]:
    """What writes so many vectors of a loop, side by side, from a value of its variable on."""

    def emit_from(i: Val) -> None:
        inner, start_of = ctx, f"{loop.var}·start"
        if count > 1:
            inner = ctx.bind(start_of, i).multiple(start_of, ctx.divisors.get(loop.var, 1))
        for copy in range(count):
            # Places of all copies are distances from the first one's: what two of them read is one load.
            base: Val | Expr = i if copy == 0 else Index(start_of) + copy * loop.lanes
            emit(inner.bind_lanes(loop.var, base, loop.lanes, copy))

    return emit_from


def _emit_rest(state: State, ctx: Context, loop: Loop, start: Val, upper: Val, emit: Body, in_order: InOrder) -> None:
    """Fewer iterations than lanes, without masks: vectors of half and a quarter of the lanes, the others one by one.

    Of vectors in two registers, reductions take one more with one of them; the others go one by one at once, as what they
    would save is less than the combination of the lanes."""
    fn, lanes = state.fn, loop.lanes
    rest = fn.binary("sub", upper, start)
    width = lanes
    narrowest = lanes
    if not lanes & (lanes - 1):
        narrowest = max(2, lanes // 4) if _only_stores(loop.body) is not None else min(lanes, register_lanes(state, loop))
    ctx = replace(ctx.multiple(loop.var, 1), is_moved=True)
    while width > narrowest:
        base = fn.binary("add", start, fn.binary("and", rest, int_val(-width)))
        width //= 2
        with fn.when(fn.compare("icmp ne", fn.binary("and", rest, int_val(width)), int_val(0))):
            emit(ctx.bind_lanes(loop.var, base, width))
        state.invalidate_all()
    base = fn.binary("add", start, fn.binary("and", rest, int_val(-width))) if width < lanes else start
    with fn.when(fn.compare("icmp slt", base, upper)):
        in_order(replace(ctx, is_remainder=True), base, upper)


def _modulo(fn: Function, trip: Val, width: int) -> Val:
    if width & (width - 1):
        return fn.binary("srem", trip, int_val(width))
    return fn.binary("and", trip, int_val(width - 1))


def constant_trip(loop: Loop) -> int | None:
    """Iterations of an expanded loop (step 1) where its bounds differ by a constant."""
    trip = simplify_int(loop.upper - loop.lower)
    return max(0, int(trip.value)) if isinstance(trip, Const) else None


def is_vectorizable(state: State, ctx: Context, loop: Loop) -> bool:
    """Whether the loop runs several values of its variable at once; if not, it runs one by one."""
    if loop.kind != "vector" or loop.lanes == loop.interleave == 1 or ctx.lane is not None or ctx.is_remainder:
        return False
    if loop.lanes == 1:
        return True
    inner = ctx.bind_lanes(loop.var, Val("%", "i64"), loop.lanes)
    return all(_is_vector_node(state, inner, node) for node in loop.body)


def _is_vector_node(state: State, ctx: Context, node: Node) -> bool:
    lane = ctx.lane
    assert lane is not None
    match node:
        case Store() | Update():
            names = set().union(*(index_names(s) for s in node.subscripts)) if node.subscripts else set()
            if lane not in names:
                return isinstance(node, Update)
            split = split_lane(byte_offset(ctx, state.by_name[node.buffer], node.subscripts), lane)
            if split is None:
                return isinstance(node, Store)
            return constant_of(split[1]) != 0
        case Guard() | Prefetch():
            return True
        case If():
            return all(_is_vector_node(state, ctx, n) for n in node.body + node.orelse)
        case Loop():
            if node.kind == "parallel" or any(lane in index_names(e) for e in node_expressions(node)):
                return False
            inner = ctx.bind(node.var, Val("%", "i64"))
            return all(_is_vector_node(state, inner, n) for n in node.body)
        case _:
            assert_never(node)


def is_repeatable(state: State, loop: Loop) -> bool:
    """Whether running iterations twice changes nothing: only stores, of values that no store in the loop changes."""
    stores = _only_stores(loop.body)
    if stores is None:
        return False
    written = {name for node in stores for name in (node.buffer, *state.by_name[node.buffer].may_alias)}
    used = {read.tensor for node in stores for expr in (node.value, *node.subscripts) for read in reads(expr)}
    aliases = {name for buffer in used for name in state.by_name[buffer].may_alias}
    return written.isdisjoint(used | aliases)


def loads_apart(state: State, loop: Loop) -> bool:
    """Whether whole vectors of a loop load lanes one by one that are gathered under a mask, in more time."""
    found = (r for n in loop.body for e in node_expressions(n) for r in reads(e))
    return any(
        are_loaded_places(state, r.subscripts, loop.var)
        and not vectors.is_gathered(state.target, state.by_name[r.tensor].dtype, None)
        for r in found
    )


def _only_stores(body: tuple[Node, ...]) -> list[Store] | None:
    """The stores of a body that does nothing else, those in its loops included."""
    found: list[Store] = []
    for node in body:
        match node:
            case Store():
                found.append(node)
            case Prefetch():
                pass
            case Loop() if not node.registers and not node.initial and (inner := _only_stores(node.body)) is not None:
                found += inner
            case _:
                return None
    return found


def register_lanes(state: State, loop: Loop) -> int:
    """Lanes of one register for the widest element that a loop writes."""
    written = (n.buffer for n in walk_nodes(loop.body) if isinstance(n, (Store, Update)))
    return state.target.lanes(max((state.by_name[name].dtype.itemsize for name in written), default=1))
