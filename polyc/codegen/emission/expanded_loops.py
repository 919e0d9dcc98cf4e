"""Loops whose copies are all written out: unrolled ones, and vector loops of few vectors."""

from __future__ import annotations

from polyc.codegen.emission.blocks import load_blocks, store_interleaved
from polyc.codegen.emission.context import Context, Predicate, State
from polyc.codegen.emission.vector_loops import Body, constant_trip, is_repeatable, is_vectorizable, register_lanes
from polyc.ir.expr import Call, Const, Expr, Index, int_const, operands_of, simplify_int
from polyc.ir.loops import Loop
from polyc.ir.nodes import replace
from polyc.ir.simplify import simplify


def emit_expanded(state: State, ctx: Context, loop: Loop, emit: Body) -> None:
    """All copies of an unrolled loop, or all vectors of a short vector loop; those not surely inside are predicated."""
    assert loop.max_trip is not None
    lanes = loop.lanes if is_vectorizable(state, ctx, loop) else 1
    trip = constant_trip(loop)
    copies = loop.max_trip if trip is None else min(trip, loop.max_trip)
    first = None if _is_entered(ctx, loop) else loop.lower
    inside = Predicate(Call("lt", (Index(loop.var), loop.upper)), loop.var, first)
    outer = state.blocks
    if trip is not None:
        state.blocks = {**outer, **load_blocks(state, ctx, loop, copies)}
        if store_interleaved(state, ctx, loop, copies):
            state.blocks = outer
            return
    starts = list(range(0, copies, lanes))
    if trip is not None and trip % lanes and not state.target.has_masks and is_repeatable(state, loop):
        # Instead of a mask the last vector moves back to end with the loop; it stores what is there already.
        ctx = replace(ctx, is_moved=True)
        lanes = min(lanes, 1 << (trip.bit_length() - 1))
        starts = sorted({*range(0, trip - lanes + 1, lanes), trip - lanes})
    one_register = register_lanes(state, loop)
    if lanes > 1:
        ctx = replace(ctx, n_vectors=len(starts))
    for number, start in enumerate(starts):
        if trip is not None and trip - start <= one_register:
            lanes = min(lanes, one_register)
        base: int | Expr = start
        if loop.lower != int_const(0):
            base = simplify_int(Call("add", (loop.lower, int_const(start))))
            base = int(base.value) if isinstance(base, Const) else base
        bound = ctx.bind(loop.var, base)
        if loop.kind == "unroll" and trip is not None and loop.lower == int_const(0):
            bound = bound.copies(loop.var, range(copies))
        if lanes > 1:
            bound = ctx.bind_lanes(loop.var, base, lanes, number % loop.interleave)
        if trip is None and loop.kind == "unroll" and first is None:
            if start == 0:  # the first copy runs
                emit(bound)
                continue
            place = simplify_int(Call("add", (loop.lower, int_const(start))))
            last = Call("min", (place, simplify_int(Call("sub", (loop.upper, int_const(1))))))
            bound = replace(bound, clamped={**bound.clamped, loop.var: last})
        if trip is None or start + lanes > trip:
            bound = bound.under(inside)
        emit(bound)
    state.blocks = outer


def _is_entered(ctx: Context, loop: Loop) -> bool:
    """Whether a loop surely has an iteration: each bound is as far away as the end of a loop around, ``min(6, M - c0)``."""

    def is_reached(bound: Expr) -> bool:
        trip = simplify(Call("sub", (bound, loop.lower)))
        if isinstance(trip, Const):
            return int(trip.value) >= 1
        further = (simplify(Call("sub", (trip, known))) for known in ctx.ahead)
        return any(isinstance(d, Const) and int(d.value) >= 0 for d in further)

    return all(is_reached(bound) for bound in operands_of(loop.upper, "min"))
