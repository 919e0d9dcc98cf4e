"""The nodes of a loop nest: stores, updates, guards, branches and loops of every kind.

Every loop becomes a guarded region; what is in it is written by `vector_loops`, `expanded_loops`, `scans`, `openmp`, or here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import gcd
from typing import assert_never

from polyc.codegen.emission.accesses import element_pointer, store_element
from polyc.codegen.emission.accumulators import emit_update, finish_frame
from polyc.codegen.emission.blocks import emit_rows, find_rows
from polyc.codegen.emission.checks import clamped, emit_checked, leading_checks, use_checked
from polyc.codegen.emission.context import Context, Frame, Predicate, State, byte_offset
from polyc.codegen.emission.divisors import drop_written, split_divisors
from polyc.codegen.emission.expanded_loops import emit_expanded
from polyc.codegen.emission.expressions import eval_expr, eval_value
from polyc.codegen.emission.interleaved import emit_interleaved, find_interleaved
from polyc.codegen.emission.linear import constant_of, index_names, split_lane
from polyc.codegen.emission.openmp import emit_parallel, emit_stream
from polyc.codegen.emission.peeling import emit_aligned
from polyc.codegen.emission.pipelines import is_pipeline
from polyc.codegen.emission.predicates import as_scalar, eval_predicates
from polyc.codegen.emission.row_addresses import takes_many_addresses
from polyc.codegen.emission.scans import emit_scan, find_scan
from polyc.codegen.emission.segments import assume_tests, emit_segments, segment_checks
from polyc.codegen.emission.strips import choose
from polyc.codegen.emission.unrolling import count_accumulators, count_steps, count_unrolled, reads_between_lanes, tests_border
from polyc.codegen.emission.vector_loops import constant_trip, is_vectorizable
from polyc.codegen.writer import vectors
from polyc.codegen.writer.builder import Val
from polyc.ir.expr import Call, Const, Expr, Index, reads
from polyc.ir.loops import Guard, If, Loop, Node, Prefetch, Store, Update
from polyc.ir.promotion import can_hold
from polyc.records import replace


def emit_body(state: State, ctx: Context, body: tuple[Node, ...]) -> None:
    outer = state.divisors
    _emit_nodes(state, ctx, body)
    state.divisors = outer


def _emit_nodes(state: State, ctx: Context, body: tuple[Node, ...]) -> None:
    for number, node in enumerate(body, start=1):
        if stores := find_interleaved(state, ctx, body[number - 1 :]):
            emit_interleaved(state, ctx, stores)
            _emit_nodes(state, ctx, body[number - 1 + len(stores) :])
            return
        if rows := find_rows(state, ctx, body[number - 1 :]):
            emit_rows(state, ctx, rows)
            _emit_nodes(state, ctx, body[number - 1 + len(rows) :])
            return
        match node:
            case Store():
                _emit_store(state, ctx, node)
            case Update():
                _emit_update(state, ctx, node)
            case Guard():
                checked = _emit_guard(state, ctx, node, body[number:])
                if checked is not None:
                    name = f"checked.{checked.ref}"
                    emit_body(state, ctx.bind(name, checked), use_checked(body[number:], node, Index(name)))
                    return
            case Prefetch():
                _emit_prefetch(state, ctx, node)
            case If():
                _emit_if(state, ctx, node)
            case Loop():
                state.divisors = {**state.divisors, **split_divisors(state, ctx, node)}
                emit_loop(state, ctx, node)
            case _:
                assert_never(node)
        drop_written(state, node)


def _emit_store(state: State, ctx: Context, node: Store) -> None:
    if ctx.lane is None and state.by_name[node.buffer].space != "register":
        # One branch for the value and its store, instead of conditional reads.
        with state.fn.when(as_scalar(state, eval_predicates(state, ctx))):
            ctx = ctx.branched()
            store_element(state, ctx, state.by_name[node.buffer], node.subscripts, eval_value(state, ctx, node.value))
        return
    target = (state.by_name[node.buffer], node.subscripts[-1]) if node.subscripts else None
    value = eval_value(state, ctx, node.value, target)
    # Remainders without masks are stored in narrower vectors, or twice: in the ordinary way.
    streamed = node.streamed and ctx.lane is not None and not ctx.is_moved
    store_element(state, ctx, state.by_name[node.buffer], node.subscripts, value, streamed)


def _emit_update(state: State, ctx: Context, node: Update) -> None:
    if ctx.lane is None and node.buffer not in state.held and state.by_name[node.buffer].space != "register":
        with state.fn.when(as_scalar(state, eval_predicates(state, ctx))):
            emit_update(state, ctx.branched(), node)
        return
    emit_update(state, ctx, node)


def _emit_guard(state: State, ctx: Context, node: Guard, behind: tuple[Node, ...]) -> Val | None:
    """Emit a check.  The value in bounds, where that is a single one for straight code `behind` it: as it is, where the check
    holds, so that nothing but the check is asked on the usual way."""
    fn = state.fn
    value, bound = eval_value(state, ctx, node.value), eval_value(state, ctx, node.bound)
    failed = fn.compare("icmp uge", value, bound)
    if node.condition is not None:
        failed_where = eval_value(state, ctx, node.condition)
        failed = fn.binary("and", failed, failed_where)
    guard = fn.and_(*eval_predicates(state, ctx))
    if guard is not None:
        failed = fn.binary("and", failed, guard)
    if node.shown is not None:
        value, bound = (eval_value(state, ctx, e) for e in node.shown)
        failed = fn.splat(failed, max(failed.lanes, value.lanes, bound.lanes))
    value, bound = (fn.splat(v, failed.lanes) for v in (value, bound))
    is_plain = node.condition is None and node.shown is None and guard is None
    is_plain = is_plain and all(isinstance(n, (Guard, Store, Update)) for n in behind)
    slot = fn.alloca("i64", 8) if is_plain and ctx.lane is None and failed.lanes == 1 else None
    if slot is not None:
        fn.effect(f"store {value}, {slot}, align 8")
    with fn.when(vectors.is_any(fn, failed)):
        if slot is not None:
            fn.effect(f"store {eval_value(state, ctx, clamped(node))}, {slot}, align 8")
        if failed.lanes > 1:
            bits = fn.pure(f"bitcast {failed} to i{failed.lanes}", f"i{failed.lanes}")
            lane = fn.intrinsic("cttz", bits, extra="i1 false")
            value, bound = (fn.pure(f"extractelement {v}, {lane}", v.type) for v in (value, bound))
        _declare_report(state)
        operands = f"{state.hidden['error']}, i64 {node.check}, {value}, {bound}"
        fn.effect(f'call void @"{state.nest.name}.report"({operands})')
    return None if slot is None else fn.effect_value(f"load i64, {slot}, align 8", "i64")


def _declare_report(state: State) -> None:
    """Only the first failure is kept: the check number changes from -1 once."""
    state.module.extra[f"{state.nest.name}.report"] = f'''
define internal void @"{state.nest.name}.report"(ptr %error, i64 %check, i64 %value, i64 %bound) noinline cold {{
  %pair = cmpxchg ptr %error, i64 -1, i64 %check seq_cst seq_cst, align 8
  %first = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %first, label %write, label %done
write:
  %p1 = getelementptr i8, ptr %error, i64 8
  store i64 %value, ptr %p1, align 8
  %p2 = getelementptr i8, ptr %error, i64 16
  store i64 %bound, ptr %p2, align 8
  br label %done
done:
  ret void
}}'''


def _emit_prefetch(state: State, ctx: Context, node: Prefetch) -> None:
    """A line each until the piece is covered, and the line of its last byte: rows do not start where lines do.

    Of the pieces of lanes that lie side by side the first one of each line is asked for, and none for iterations one by one
    behind them."""
    if ctx.is_remainder:
        return
    fn, buffer, lane = state.fn, state.by_name[node.buffer], ctx.lane
    place = byte_offset(ctx, buffer, node.subscripts)
    pieces: Iterable[int] = sorted({*range(0, node.size, state.target.cache_line), node.size - 1})
    if lane is not None and any(lane in index_names(s) for s in node.subscripts):
        split = split_lane(place, lane)
        motion = None if split is None else constant_of(split[1])
        if split is None or not motion or motion * ctx.copy * ctx.lanes % state.target.cache_line:
            return
        place, pieces = split[0], range(0, motion * ctx.lanes, state.target.cache_line)
    ctx = replace(ctx, predicates=(), lane=None, lanes=1)
    state.memo = [{}]
    pointer = element_pointer(state, ctx, buffer, place)
    state.memo = [{}]
    callee = fn.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32 immarg", "i32 immarg", "i32 immarg"])
    locality = {1: 3, 2: 2}[node.level]
    for offset in pieces:
        fn.effect(f"call void {callee}({vectors.offset_pointer(fn, pointer, offset)}, i32 0, i32 {locality}, i32 1)")


def _emit_if(state: State, ctx: Context, node: If) -> None:
    fn = state.fn
    condition = eval_value(state, ctx, node.condition)
    # Code moved out of the branch evaluates the condition again, unless it reads memory.
    kept: Expr | Val = condition if reads(node.condition) else node.condition
    opposite: Expr | Val = fn.not_(condition) if isinstance(kept, Val) else Call("not", (kept,))
    if condition.lanes > 1:
        emit_body(state, ctx.under(Predicate(kept)), node.body)
        emit_body(state, ctx.under(Predicate(opposite)), node.orelse)
        return
    then, other, after = fn.new_block("then"), fn.new_block("else"), fn.new_block("endif")
    fn.branch_if(condition, then, other)
    for block, body, predicate in ((then, node.body, kept), (other, node.orelse, opposite)):
        fn.place(block)
        with fn.scope():
            emit_body(state, ctx.under(Predicate(predicate, branched=True)), body)
        fn.branch(after)
    fn.place(after)


# -- loops


def emit_loop(state: State, ctx: Context, loop: Loop) -> None:
    """Emit a loop of any kind; with `registers` its accumulators are set up before and stored behind it."""

    def emit(inner: Context) -> None:
        emit_body(state, inner, loop.body)

    is_free = loop.stream is None or is_pipeline(loop)
    if loop.kind == "parallel" and is_free and not state.in_parallel and ctx.lane is None:
        emit_parallel(state, ctx, loop, lambda inner, context, lo, hi: _emit_in_order(inner, context, loop, lo, hi))
        return
    if loop.is_expanded:
        if constant_trip(loop) == 0:
            for start in loop.initial:
                emit_body(state, ctx, start.nest)
            return
        _with_frame(state, ctx, loop, lambda: emit_expanded(state, ctx, loop, emit))
        return
    # What bounds read is read here, and not taken from what was read for a value.
    lower, upper = ((eval_value if reads(e) else eval_expr)(state, ctx, e) for e in (loop.lower, loop.upper))
    if state.columns is not None and loop.var == state.columns.stream:
        emit_stream(state, ctx, loop, lower, upper, lambda inner, context, lo, hi: _emit_serial(inner, context, loop, lo, hi))
        return
    run: Callable[[], None]
    if is_vectorizable(state, ctx, loop):

        def rest(context: Context, start: Val, stop: Val) -> None:
            _emit_serial(state, context, loop, start, stop)

        run = partial(emit_aligned, state, ctx, loop, lower, upper, emit, rest)
    elif (found := find_scan(state, ctx, loop)) is not None:
        run = partial(emit_scan, state, ctx, loop, found, lower, upper, partial(_emit_serial, state, ctx, loop))
    elif checks := leading_checks(state, ctx, loop):
        run = partial(emit_checked, state, ctx, loop, checks, lower, upper, partial(_emit_serial, state))
    else:
        run = partial(_emit_in_order, state, ctx, loop, lower, upper)
    is_run = state.fn.compare("icmp slt", lower, upper)
    if loop.initial and not _surely_runs(loop):
        with state.fn.when(state.fn.compare("icmp sge", lower, upper)):
            for start in loop.initial:
                emit_body(state, ctx, start.nest)
    with state.fn.when(is_run):
        _with_frame(state, ctx, loop, run)


def _surely_runs(loop: Loop) -> bool:
    return isinstance(loop.lower, Const) and isinstance(loop.upper, Const) and loop.lower.value < loop.upper.value


def _with_frame(state: State, ctx: Context, loop: Loop, run: Callable[[], None]) -> None:
    wanted = [name for name in loop.registers if name not in state.held]
    held = frozenset(n for n in wanted if can_hold(loop, n, _sharing(state, n), ctx.ahead, ctx.lane))
    for value in loop.initial:
        if value.buffer not in held:
            emit_body(state, ctx, value.nest)
    if not held:
        run()
        return
    fn = state.fn
    initial = {i.buffer: i.value for i in loop.initial}
    is_segment = bool(reads(loop.lower) and reads(loop.upper))
    n_vectors = count_accumulators(loop)
    frame = Frame(ctx, fn.current, list(fn.scopes), held, initial, n_vectors=n_vectors, is_segment=is_segment)
    start = fn.new_block("start")
    fn.branch(start)
    fn.place(start)
    state.held.update(dict.fromkeys(held, frame))
    with fn.scope():
        run()
    for name in held:
        del state.held[name]
    with fn.scope():
        finish_frame(state, frame)


def _sharing(state: State, name: str) -> frozenset[str]:
    """Buffers that may be the same memory as `name`."""
    return frozenset(state.nest.memory_of((name,))) - {name}


def _emit_in_order(state: State, ctx: Context, loop: Loop, lower: Val, upper: Val) -> None:
    whole, test = assume_tests(loop)
    found = segment_checks(state, ctx, whole)
    in_order = partial(_emit_serial, state, ctx, loop, lower, upper)
    in_blocks = partial(emit_segments, state, ctx, whole, found, lower, upper, partial(_emit_serial, state))
    if not found:
        in_order()
    elif test is None:
        in_blocks()
    else:
        choose(state, eval_value(state, ctx, test), in_blocks, in_order)


def _emit_serial(state: State, ctx: Context, loop: Loop, lower: Val, upper: Val, unroll: int = 1) -> None:
    state.invalidate_all()
    unroll = count_unrolled(loop, state.target) if state.held else max(unroll, count_steps(loop))
    is_whole = unroll > 1 and lower.is_const and upper.is_const and unroll == int(upper.ref) - int(lower.ref)
    if is_whole and (tests_border(loop) or reads_between_lanes(state, ctx, loop)):
        # The copies are written here instead of by LLVM: a mask that is known to be full is no mask, and what one copy loads
        # between its lanes is what the next one looks for.
        values = range(int(lower.ref), int(upper.ref))
        for i in values:
            with state.fn.scope():
                emit_body(state, ctx.copies(loop.var, values).inside(loop, i), loop.body)
        state.invalidate_all()
        return
    ctx = ctx.multiple(loop.var, gcd(int(lower.ref), loop.step) if lower.is_const else 1)
    hide = state.fn.hide if takes_many_addresses(state, ctx, loop) else lambda i: i
    state.fn.counted_loop(lower, upper, loop.step, lambda i: emit_body(state, ctx.inside(loop, hide(i)), loop.body), unroll)
    state.invalidate_all()
