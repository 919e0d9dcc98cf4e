"""The nodes of a loop nest: stores, updates, guards, branches and loops of every kind.

Every loop becomes a guarded region; vector loops a main loop of interleaved vectors, a loop of single vectors, and a masked
tail.  Where the target has no masks, the last vector is moved back to end with the loop, or the tail is done by narrower
vectors and one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import gcd
from typing import assert_never

from polyc.codegen.emission.accumulators import emit_update, finish_frame
from polyc.codegen.emission.blocks import load_blocks, store_interleaved
from polyc.codegen.emission.checks import clamped, emit_checked, leading_checks, use_checked
from polyc.codegen.emission.context import Context, Frame, Predicate, State, byte_offset
from polyc.codegen.emission.expressions import (
    as_scalar,
    element_pointer,
    eval_expr,
    eval_predicates,
    eval_value,
    store_element,
)
from polyc.codegen.emission.holding import held_buffers
from polyc.codegen.emission.interleaved import emit_interleaved, find_interleaved
from polyc.codegen.emission.linear import constant_of, index_names, split_lane
from polyc.codegen.emission.openmp import emit_parallel, emit_stream
from polyc.codegen.emission.pipelines import is_pipeline
from polyc.codegen.emission.scans import emit_scan, find_scan
from polyc.codegen.emission.unrolling import count_unrolled, reads_between_lanes, tests_border
from polyc.codegen.writer import vectors
from polyc.codegen.writer.builder import Function, Val, int_val
from polyc.ir.expr import Call, Const, Expr, Index, int_const, operands_of, reads, simplify_int
from polyc.ir.loops import Guard, If, Loop, Node, Prefetch, Store, Update, node_expressions, walk_nodes
from polyc.ir.simplify import simplify


def emit_body(state: State, ctx: Context, body: tuple[Node, ...]) -> None:
    for number, node in enumerate(body, start=1):
        if stores := find_interleaved(state, ctx, body[number - 1 :]):
            emit_interleaved(state, ctx, stores)
            emit_body(state, ctx, body[number - 1 + len(stores) :])
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
                emit_loop(state, ctx, node)
            case _:
                assert_never(node)


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
    value, bound = (fn.splat(v, failed.lanes) for v in (value, bound))
    is_plain = node.condition is None and guard is None and all(isinstance(n, (Guard, Store, Update)) for n in behind)
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
    is_free = loop.stream is None or is_pipeline(loop)
    if loop.kind == "parallel" and is_free and not state.in_parallel and ctx.lane is None:
        emit_parallel(state, ctx, loop, lambda inner, context, lo, hi: _emit_serial(inner, context, loop, lo, hi))
        return
    if loop.is_expanded:
        if constant_trip(loop) == 0:
            for start in loop.initial:
                emit_body(state, ctx, start.nest)
            return
        _with_frame(state, ctx, loop, lambda: _emit_expanded(state, ctx, loop))
        return
    lower, upper = eval_expr(state, ctx, loop.lower), eval_expr(state, ctx, loop.upper)
    if state.columns is not None and loop.var == state.columns.stream:
        emit_stream(state, ctx, loop, lower, upper, lambda inner, context, lo, hi: _emit_serial(inner, context, loop, lo, hi))
        return
    run: Callable[[], None]
    if is_vectorizable(state, ctx, loop):
        run = lambda: _emit_vector(state, ctx, loop, lower, upper)  # noqa: E731
    elif (found := find_scan(state, ctx, loop)) is not None:
        in_order = lambda start, stop: _emit_serial(state, ctx, loop, start, stop)  # noqa: E731
        run = lambda: emit_scan(state, ctx, loop, found, lower, upper, in_order)  # noqa: E731
    elif checks := leading_checks(state, ctx, loop):
        part = lambda some, start, stop, unroll: _emit_serial(state, ctx, some, start, stop, unroll)  # noqa: E731
        run = lambda: emit_checked(state, ctx, loop, checks, lower, upper, part)  # noqa: E731
    else:
        run = lambda: _emit_serial(state, ctx, loop, lower, upper)  # noqa: E731
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
    held = held_buffers(state, ctx, loop) if loop.registers else frozenset()
    for value in loop.initial:
        if value.buffer not in held:
            emit_body(state, ctx, value.nest)
    if not held:
        run()
        return
    fn = state.fn
    frame = Frame(ctx, fn.current, list(fn.scopes), held, {i.buffer: i.value for i in loop.initial})
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


def _emit_serial(state: State, ctx: Context, loop: Loop, lower: Val, upper: Val, unroll: int = 1) -> None:
    state.invalidate_all()
    unroll = count_unrolled(loop, state.target) if state.held else unroll
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
    state.fn.counted_loop(lower, upper, loop.step, lambda i: emit_body(state, ctx.inside(loop, i), loop.body), unroll)
    state.invalidate_all()


def _emit_expanded(state: State, ctx: Context, loop: Loop) -> None:
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
    if trip is not None and trip % lanes and not state.target.has_masks and _is_repeatable(state, loop):
        # Instead of a mask the last vector moves back to end with the loop; it stores what is there already.
        ctx = replace(ctx, is_moved=True)
        lanes = min(lanes, 1 << (trip.bit_length() - 1))
        starts = sorted({*range(0, trip - lanes + 1, lanes), trip - lanes})
    one_register = _one_register(state, loop)
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
                emit_body(state, bound, loop.body)
                continue
            place = simplify_int(Call("add", (loop.lower, int_const(start))))
            last = Call("min", (place, simplify_int(Call("sub", (loop.upper, int_const(1))))))
            bound = replace(bound, clamped={**bound.clamped, loop.var: last})
        if trip is None or start + lanes > trip:
            bound = bound.under(inside)
        emit_body(state, bound, loop.body)
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


def constant_trip(loop: Loop) -> int | None:
    """Iterations of an expanded loop (step 1) where its bounds differ by a constant."""
    trip = simplify_int(Call("sub", (loop.upper, loop.lower)))
    return max(0, int(trip.value)) if isinstance(trip, Const) else None


def _emit_vector(state: State, ctx: Context, loop: Loop, lower: Val, upper: Val) -> None:
    """Interleaved vectors, single vectors, and the rest under a mask or one by one."""
    fn, lanes = state.fn, loop.lanes
    ctx = ctx.multiple(loop.var, gcd(int(lower.ref), lanes) if lower.is_const else 1)

    def emit_vectors(count: int, ctx: Context = ctx) -> Callable[[Val], None]:
        def emit(i: Val) -> None:
            inner = ctx if count == 1 else ctx.bind(start_of := f"{loop.var}·start", i)
            for copy in range(count):
                # Places of all copies are distances from the first one's: what two of them read is one load.
                base: Val | Expr = i if copy == 0 else Call("add", (Index(start_of), int_const(copy * lanes)))
                emit_body(state, inner.bind_lanes(loop.var, base, lanes, copy), loop.body)

        return emit

    trip, known = fn.binary("sub", upper, lower), constant_trip(loop)
    start = lower
    for count in (loop.interleave, 1) if loop.interleave > 1 else (1,):
        width = lanes * count
        if known is not None and known < width:
            continue
        whole = fn.binary("sub", trip, _modulo(fn, trip, width))
        stop = fn.binary("add", lower, whole)
        state.invalidate_all()
        with fn.when(fn.compare("icmp slt", start, stop)):
            fn.counted_loop(start, stop, width, emit_vectors(count))
        state.invalidate_all()
        start = stop
        if known is not None and known % width == 0:
            return
    with fn.when(fn.compare("icmp slt", start, upper)):
        if state.target.has_masks:
            inside = Predicate(Call("lt", (Index(loop.var), loop.upper)), loop.var)
            emit_body(state, ctx.bind_lanes(loop.var, start, lanes).under(inside), loop.body)
        elif _is_repeatable(state, loop):
            # The last vector once more, moved back to end where the loop ends: it stores what is there already.
            is_long = None if known is not None and known >= lanes else fn.compare("icmp sge", trip, int_val(lanes))
            with fn.when(is_long):
                emit_vectors(1, replace(ctx.multiple(loop.var, 1), is_moved=True))(fn.binary("sub", upper, int_val(lanes)))
            state.invalidate_all()
            if is_long is not None:
                with fn.when(fn.not_(is_long)):
                    _emit_rest(state, ctx, loop, start, upper)
        else:
            _emit_rest(state, ctx, loop, start, upper)
    state.invalidate_all()


def _is_repeatable(state: State, loop: Loop) -> bool:
    """Whether running iterations twice changes nothing: only stores, of values that no store in the loop changes."""
    stores = _only_stores(loop.body)
    if stores is None:
        return False
    written = {name for node in stores for name in (node.buffer, *state.by_name[node.buffer].may_alias)}
    used = {read.tensor for node in stores for expr in (node.value, *node.subscripts) for read in reads(expr)}
    aliases = {name for buffer in used for name in state.by_name[buffer].may_alias}
    return written.isdisjoint(used | aliases)


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


def _emit_rest(state: State, ctx: Context, loop: Loop, start: Val, upper: Val) -> None:
    """Fewer iterations than lanes, without masks: vectors of half and a quarter of the lanes, the others one by one.

    Of vectors in two registers, reductions take one more with one of them; the others go one by one at once, as what they
    would save is less than the combination of the lanes."""
    fn, lanes = state.fn, loop.lanes
    rest = fn.binary("sub", upper, start)
    width = lanes
    narrowest = lanes
    if not lanes & (lanes - 1):
        narrowest = max(2, lanes // 4) if _only_stores(loop.body) is not None else min(lanes, _one_register(state, loop))
    ctx = replace(ctx.multiple(loop.var, 1), is_moved=True)
    while width > narrowest:
        base = fn.binary("add", start, fn.binary("and", rest, int_val(-width)))
        width //= 2
        with fn.when(fn.compare("icmp ne", fn.binary("and", rest, int_val(width)), int_val(0))):
            emit_body(state, ctx.bind_lanes(loop.var, base, width), loop.body)
        state.invalidate_all()
    base = fn.binary("add", start, fn.binary("and", rest, int_val(-width))) if width < lanes else start
    with fn.when(fn.compare("icmp slt", base, upper)):
        _emit_serial(state, replace(ctx, is_remainder=True), loop, base, upper)


def _one_register(state: State, loop: Loop) -> int:
    """Lanes of one register for the widest element that a loop writes."""
    written = (n.buffer for n in walk_nodes(loop.body) if isinstance(n, (Store, Update)))
    return state.target.lanes(max((state.by_name[name].dtype.itemsize for name in written), default=1))


def _modulo(fn: Function, trip: Val, width: int) -> Val:
    if width & (width - 1):
        return fn.binary("srem", trip, int_val(width))
    return fn.binary("and", trip, int_val(width - 1))


def is_vectorizable(state: State, ctx: Context, loop: Loop) -> bool:
    """Whether the loop runs several values of its variable at once; if not, it runs one by one."""
    if loop.kind != "vector" or loop.lanes == 1 or ctx.lane is not None or ctx.is_remainder:
        return False
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
