"""Loops whose copies are all written out: unrolled ones, and vector loops of few vectors.

Vectors that are parts of streamed lines are all computed before the parts of each line are stored one behind the other: lines
wait for their other parts in a few buffers that a core has for them, and in fewer while it has something else to do (AVX2 on
AMD, Zen 4, a busy host, 32×64×56×56 to channels first: 1.5 ms, and 9.4 in spells where halves of eight lines are written by
turns, 1.9 where those of one)."""

from __future__ import annotations

from polyc.codegen.emission.accesses import store_row_ends
from polyc.codegen.emission.blocks import load_blocks, store_interleaved
from polyc.codegen.emission.context import Context, Predicate, State
from polyc.codegen.emission.expressions import eval_value
from polyc.codegen.emission.vector_loops import Body, constant_trip, is_repeatable, is_vectorizable, register_lanes
from polyc.codegen.writer.builder import Val, int_val
from polyc.codegen.writer.vectors import store_streamed
from polyc.ir.expr import Const, Expr, Index, int_const, lt, minimum, operands_of, reads
from polyc.ir.loops import Loop, Store
from polyc.ir.simplify import simplify, simplify_int
from polyc.ir.types import DType
from polyc.machine.memory import LINE
from polyc.records import replace


def emit_expanded(state: State, ctx: Context, loop: Loop, emit: Body) -> None:
    """All copies of an unrolled loop, or all vectors of a short vector loop; those not surely inside are predicated."""
    lanes = loop.lanes if is_vectorizable(state, ctx, loop) else 1
    if reads(loop.lower) and reads(loop.upper):
        ctx, loop = _load_ends(state, ctx, loop)
    assert loop.max_trip is not None
    trip = constant_trip(loop)
    copies = loop.max_trip if trip is None else min(trip, loop.max_trip)
    first = None if _is_entered(ctx, loop) else loop.lower
    inside = Predicate(lt(Index(loop.var), loop.upper), loop.var, first)
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
    parts: list[list[tuple[DType, Val, Val]]] | None = [] if _writes_parts_of_lines(state, loop, lanes, trip) else None
    ends = [] if state.row_ends is None and _writes_row_ends(state, loop) else state.row_ends
    outer_ends, state.row_ends = state.row_ends, ends
    for number, start in enumerate(starts):
        if trip is not None and (narrow := _lanes_of_rest(state, loop, lanes, trip - start, one_register)) < lanes:
            lanes, ctx = narrow, replace(ctx, is_moved=ctx.is_moved or narrow < one_register)
        base: int | Expr = start
        if loop.lower != int_const(0):
            base = simplify_int(loop.lower + start)
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
            place = simplify_int(loop.lower + start)
            last = minimum(place, simplify_int(loop.upper - 1))
            bound = replace(bound, clamped={**bound.clamped, loop.var: last})
        if trip is None or start + lanes > trip:
            bound = bound.under(inside)
        if parts is not None:
            parts.append([])
            state.parts_of_lines = parts[-1]
        emit(bound)
    if parts is not None:
        state.parts_of_lines = None
        for line in zip(*parts, strict=True):
            for dtype, pointer, value in line:
                store_streamed(state.fn, dtype, pointer, value)
    state.row_ends = outer_ends
    if ends and outer_ends is None:
        store_row_ends(state, ends)
    state.blocks = outer


def _load_ends(state: State, ctx: Context, loop: Loop) -> tuple[Context, Loop]:
    """A loop over a segment (`strips`), with ends that are loaded once.  Checks have said that they are in order, and at most
    `max_trip` apart, of which LLVM is told."""
    fn = state.fn
    names = Index(f"{loop.var}·begin"), Index(f"{loop.var}·end")
    begin, end = (eval_value(state, ctx, e) for e in (loop.lower, loop.upper))
    is_short = fn.compare("icmp ule", fn.binary("sub", end, begin), int_val(loop.max_trip or 0))
    fn.effect(f"call void {fn.module.declare('llvm.assume', 'void', ['i1'])}({is_short})")
    ctx = ctx.bind(names[0].name, begin).bind(names[1].name, end)
    return ctx, replace(loop, lower=names[0], upper=names[1])


def _writes_row_ends(state: State, loop: Loop) -> bool:
    """Whether each copy is a store to a result that is streamed elsewhere: nothing reads it, so that it may wait."""
    match loop.body:
        case (Store() as store,):
            return loop.kind == "unroll" and store.buffer in state.streamed
    return False


def _writes_parts_of_lines(state: State, loop: Loop, lanes: int, trip: int | None) -> bool:
    """Whether the vectors of `loop` are the parts of one line in each of several rows, which copies inside of it stream."""
    match loop.body:
        case (Loop(kind="unroll", body=(Store(streamed=True) as store,)) as copies,):
            buffer = state.by_name[store.buffer]
        case _:
            return False
    if loop.kind != "vector" or lanes < 2 or trip is None or trip % lanes or constant_trip(copies) is None:
        return False
    read = {r.tensor for e in (store.value, *store.subscripts) for r in reads(e)}
    return lanes < trip == LINE // buffer.dtype.itemsize and read.isdisjoint({store.buffer, *buffer.may_alias})


def _lanes_of_rest(state: State, loop: Loop, lanes: int, rest: int, one_register: int) -> int:
    """Lanes of the vector for the last `rest` iterations: one register where that is enough, and half of one of 512 bits, which
    some processors (AMD, Zen 4) have in halves: two operations, of which the second would compute nothing."""
    if rest <= one_register:
        lanes = min(lanes, one_register)
    is_half = loop.kind == "vector" and state.target.lanes(1) == LINE and lanes == one_register and rest <= lanes // 2
    return lanes // 2 if is_half else lanes


def _is_entered(ctx: Context, loop: Loop) -> bool:
    """Whether a loop surely has an iteration: each bound is as far away as the end of a loop around, ``min(6, M - c0)``."""

    def is_reached(bound: Expr) -> bool:
        trip = simplify(bound - loop.lower)
        if isinstance(trip, Const):
            return int(trip.value) >= 1
        further = (simplify(trip - known) for known in ctx.ahead)
        return any(isinstance(d, Const) and int(d.value) >= 0 for d in further)

    return all(is_reached(bound) for bound in operands_of(loop.upper, "min"))
