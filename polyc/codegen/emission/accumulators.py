"""Register accumulators: updates of one element by a whole loop kept in registers.

A `Frame` belongs to a loop that holds buffers.  The first update of an element inside it makes a stack slot (SSA after
LLVM's first pass), loaded or set to the identity in the loop's preheader, which is still open for writing; behind the loop
the slots of each element are combined, pairwise and in a fixed order, and stored.
"""

from __future__ import annotations

from collections.abc import Callable

from polyc.codegen.emission.accesses import load_element, store_element
from polyc.codegen.emission.arithmetic import emit_operator, emit_plain_extremum
from polyc.codegen.emission.blocks import Result, store_results
from polyc.codegen.emission.context import Context, Element, Frame, Key, State, Unordered, byte_offset
from polyc.codegen.emission.expressions import eval_arm, eval_expr, eval_value
from polyc.codegen.emission.linear import LANE, Linear, index_names
from polyc.codegen.emission.predicates import as_mask, as_scalar, eval_predicates
from polyc.codegen.writer import vectors
from polyc.codegen.writer.builder import Val, float_val, memory_type, zero_val
from polyc.codegen.writer.byte_products import add_byte_products
from polyc.ir.expr import Call, Const, Select, identity_of
from polyc.ir.loops import Update
from polyc.records import replace


def combine(state: State, update: Update) -> Callable[[Val, Val], Val]:
    """``(new, old) -> old op new``."""
    dtype = state.by_name[update.buffer].dtype
    return lambda new, old: emit_operator(state.fn, state.target, update.op, [new, old], dtype)


def apply_update(state: State, ctx: Context, update: Update, old: Callable[[], Val], is_part: bool = False) -> Val:
    """``old op value``.  A sum of products is fused: each partial sum is rounded once per term, where hardware can.

    `is_part`: a partial sum, which begins with 0.0 and so is never -0.0: it stays the same where a term is 0.0."""
    dtype = state.by_name[update.buffer].dtype
    is_masked = ctx.lanes > 1 and state.target.has_masks
    match update.value:
        case Select(_, _, Const(0.0)) if is_part and update.op == "add" and dtype.is_float and is_masked:
            condition, value = eval_arm(state, ctx, update.value)
            return state.fn.select(condition, combine(state, update)(value, old()), old())
        case Call("mul", (a, b)) if update.op == "add" and dtype.is_float and state.target.has_fma:
            left = eval_value(state, ctx, a)
            right = left if a == b else eval_value(state, ctx, b)
            return state.fn.intrinsic("fma", left, right, old())
        case Call("dot4u8s8", (a, b)) if update.op == "add":
            return add_byte_products(state.fn, state.target, eval_value(state, ctx, a), eval_value(state, ctx, b), old())
        case _:
            return combine(state, update)(eval_value(state, ctx, update.value), old())


def identity_value(state: State, ctx: Context, update: Update, lanes: int) -> Val:
    identity = identity_of(update.op, state.by_name[update.buffer].dtype)
    return state.fn.splat(eval_expr(state, ctx, identity), lanes)


def emit_update(state: State, ctx: Context, update: Update) -> None:
    """Emit one update, in the form that its frame, its lanes and its target ask for."""
    frame = state.held.get(update.buffer)
    if frame is not None:
        _update_slot(state, ctx, update, frame)
        return
    buffer = state.by_name[update.buffer]
    offset = byte_offset(ctx, buffer, update.subscripts)
    if ctx.lane is None or _mentions_lane(offset, ctx.lane):
        value = apply_update(state, ctx, update, lambda: load_element(state, ctx, buffer, update.subscripts))
        store_element(state, ctx, buffer, update.subscripts, value)
        return
    # One element updated by all lanes: their tree first, then the element.
    value = state.fn.splat(eval_value(state, ctx, update.value), ctx.lanes)
    guard = eval_predicates(state, ctx)
    if (mask := as_mask(state, ctx, guard)) is not None:
        value = state.fn.select(mask, value, identity_value(state, ctx, update, ctx.lanes))
    total = vectors.reduce_lanes(state.fn, value, combine(state, update))
    with state.fn.when(as_scalar(state, guard)):
        outer = replace(ctx, lane=None, lanes=1, predicates=())
        old = load_element(state, outer, buffer, update.subscripts)
        store_element(state, outer, buffer, update.subscripts, combine(state, update)(total, old))


def _mentions_lane(offset: Linear, lane: str) -> bool:
    return any(
        atom is LANE or (lane in index_names(atom) and getattr(atom, "name", None) != lane)
        for atoms in offset
        for atom in atoms
    )


def _update_slot(state: State, ctx: Context, update: Update, frame: Frame) -> None:
    fn, buffer = state.fn, state.by_name[update.buffer]
    offset = byte_offset(ctx, buffer, update.subscripts)
    own_lane = ctx.lane is not None and _mentions_lane(offset, ctx.lane)
    names = set().union(*(index_names(s) for s in update.subscripts)) if update.subscripts else set()
    branches = tuple(p.condition for p in ctx.predicates[len(frame.context.predicates) :] if p.variable is None)
    key: Key = (update.buffer, frozenset(offset.items()), branches)
    element = frame.elements.get(key)
    if element is None:
        element = frame.elements[key] = Element(update, _target_context(ctx, frame, names, own_lane))
    is_chained = ctx.lane is None and ctx.chain is not None and ctx.chain not in names
    reduced = (ctx.lane is not None and not own_lane) or (is_chained and ctx.copy > 0)  # the first chain starts from memory
    lanes = ctx.lanes if ctx.lane is not None else 1
    slot = _part_slot(state, ctx, element, frame) if reduced else _direct_slot(state, element, frame, lanes)
    type = Val("", memory_type(buffer.dtype) if buffer.dtype.kind != "b" else "i1", lanes).full_type
    access = f"{slot}, align {_slot_align(lanes, buffer.dtype.itemsize)}"
    # Copies and lanes that have an element of their own are dropped at its store; only those that share one need a blend.
    shared = tuple(p for p in ctx.predicates[len(frame.context.predicates) :] if not (p.variable and p.variable in names))
    old = fn.effect_value(f"load {type}, {access}", _scalar(type), lanes)
    inner = replace(ctx, has_loose_lanes=own_lane and buffer.dtype.is_float)
    is_tracked = own_lane and _is_tracked(state, update, frame, lanes)
    is_tested_apart = reduced and _is_tested_apart(state, update, lanes)
    if is_tracked or is_tested_apart:
        value = fn.splat(eval_value(state, inner, update.value), lanes)
        new = emit_plain_extremum(fn, state.target, update.op, value, old)
    else:
        new = fn.splat(apply_update(state, inner, update, lambda: old, reduced), lanes)
    scalar, mask = eval_predicates(state, replace(ctx, predicates=shared))
    condition = fn.and_(scalar, mask)
    if condition is not None:
        new = fn.select(condition, new, old)
    fn.effect(f"store {new}, {access}")
    if is_tracked:
        _track_numbers(state, element, frame, value, condition)
    if is_tested_apart:
        _test_apart(state, element, element.parts[(*_part_key(ctx), 0)][1], frame, value, condition)


def _is_tracked(state: State, update: Update, frame: Frame, lanes: int) -> bool:
    """Whether maxima and minima take plain instructions, while a mask for each accumulator remembers NaN.

    Masks follow each other more slowly than maxima do, so this is for accumulators whose loops are short and unrolled."""
    is_extremum = _is_extremum(state, update, lanes)
    most = state.target.mask_registers
    return is_extremum and most > 0 and frame.n_vectors is not None and frame.n_vectors <= most


def _track_numbers(state: State, element: Element, frame: Frame, value: Val, condition: Val | None) -> None:
    """The test for NaN is no part of the chain of maxima: one instruction that compares and combines masks."""
    fn, type = state.fn, f"<{value.lanes} x i1>"
    if element.ordered is None:
        element.ordered = fn.alloca(type, 1)
        with fn.at(frame.preheader, frame.scopes):
            fn.effect(f"store {type} splat (i1 true), {element.ordered}, align 1")
    old = fn.effect_value(f"load {type}, {element.ordered}, align 1", "i1", value.lanes)
    new = fn.binary("and", old, fn.compare("fcmp ord", value, value))
    if condition is not None:
        new = fn.select(condition, new, old)
    fn.effect(f"store {new}, {element.ordered}, align 1")


def _is_tested_apart(state: State, update: Update, lanes: int) -> bool:
    """Whether partial maxima and minima take plain instructions, while one vector or mask beside them remembers NaN: there
    is no blend at each, and of the tests of two copies of a loop LLVM makes one."""
    return _is_extremum(state, update, lanes) and state.target.architecture == "x86_64"


def _is_extremum(state: State, update: Update, lanes: int) -> bool:
    dtype = state.by_name[update.buffer].dtype
    return update.op in ("max", "min") and dtype.is_float and lanes > 1 and not lanes & (lanes - 1)


def _test_apart(state: State, element: Element, width: int, frame: Frame, value: Val, condition: Val | None) -> None:
    """The tests of a block are combined before they meet the vector that remembers them: of such LLVM makes pairs.  `width`:
    lanes of the partial result, of which vectors that end a loop have the first ones."""
    fn = state.fn
    type = _mark_type(state, value.type)
    test = fn.compare("fcmp uno", value, zero_val(value.type, value.lanes))
    test = test if condition is None else fn.binary("and", *fn.unify(condition, test))
    if type == "i1" and test.lanes < width:  # masks are bits: a part of them cannot be stored
        test = fn.shuffle(test, zero_val("i1", test.lanes), [min(lane, test.lanes) for lane in range(width)])
    vector, whole = f"<{test.lanes} x {type}>", f"<{width} x {type}>"
    align = _mark_align(type, test.lanes)
    seen = element.unordered.get(width)
    if seen is None:
        seen = element.unordered[width] = Unordered(fn.alloca(whole, _mark_align(type, width)))
        with fn.at(frame.preheader, frame.scopes):
            fn.effect(f"store {whole} zeroinitializer, {seen.slot}, align {align}")
    if seen.block is fn.current and seen.before is not None and seen.tests is not None and seen.tests.lanes == test.lanes:
        seen.tests = fn.binary("or", seen.tests, test)
    else:
        seen.block, seen.tests = fn.current, test
        seen.before = fn.effect_value(f"load {vector}, {seen.slot}, align {align}", type, test.lanes)
    marks = seen.tests if type == "i1" else fn.convert("sext", seen.tests, type)
    fn.effect(f"store {fn.binary('or', seen.before, marks)}, {seen.slot}, align {align}")


def _mark_type(state: State, type: str) -> str:
    """What a lane is marked by that has seen a NaN: a bit of a mask, where masks are vectors, else all bits of an integer."""
    return "i1" if state.target.has_masks else "i32" if type == "float" else "i64"


def _mark_align(type: str, lanes: int) -> int:
    return 1 if type == "i1" else _slot_align(lanes, 4 if type == "i32" else 8)


def _scalar(type: str) -> str:
    return type.split()[-1].rstrip(">") if type.startswith("<") else type


def _slot_align(lanes: int, itemsize: int) -> int:
    size = itemsize * lanes
    return min(64, size & -size) if size else 1


def _target_context(ctx: Context, frame: Frame, names: set[str], own_lane: bool) -> Context:
    """The context in which the target can be read and written outside the loop: no variable of the loop is left."""
    new = ctx.predicates[len(frame.context.predicates) :]
    kept = tuple(
        replace(p, branched=False)
        for p in new
        if (p.variable in names if p.variable is not None else not isinstance(p.condition, Val))
    )
    env = {**frame.context.env, **{n: b for n, b in ctx.env.items() if n in names and not isinstance(b, Val)}}
    env |= {n: b for n, b in ctx.env.items() if n in frame.context.env}
    predicates = frame.context.predicates + kept
    clamped = {n: e for n, e in ctx.clamped.items() if n in env and index_names(e) <= env.keys()}
    outside = replace(ctx, env=env, predicates=predicates, clamped=clamped)
    return outside if own_lane else replace(outside, lane=None, lanes=1)


def _direct_slot(state: State, element: Element, frame: Frame, lanes: int) -> Val:
    if element.direct is None:
        buffer = state.by_name[element.update.buffer]
        type = Val("", "i1" if buffer.dtype.kind == "b" else memory_type(buffer.dtype), lanes).full_type
        align = _slot_align(lanes, buffer.dtype.itemsize)
        slot = element.direct = state.fn.alloca(type, align)
        with state.fn.at(frame.preheader, frame.scopes):
            if buffer.space == "register" and element.update.buffer in frame.initial:
                # Nothing that was there is wanted: else what earlier iterations left would flow through loops around.
                anything = Val("poison", memory_type(buffer.dtype), lanes)
                whole = replace(element.context, predicates=())
                store_element(state, whole, buffer, element.update.subscripts, anything)
            value = _start_value(state, element, frame)
            state.fn.effect(f"store {state.fn.splat(value, lanes)}, {slot}, align {align}")
    return element.direct


def _start_value(state: State, element: Element, frame: Frame) -> Val:
    """What an element is worth before the loop."""
    initial = frame.initial.get(element.update.buffer)
    if initial is not None:
        return eval_value(state, element.context, initial)
    return load_element(state, element.context, state.by_name[element.update.buffer], element.update.subscripts)


def _part_slot(state: State, ctx: Context, element: Element, frame: Frame) -> Val:
    buffer = state.by_name[element.update.buffer]
    # The first lanes of a slot serve the vectors that end a loop, but truth values are bits: a part of them cannot be stored.
    key = (*_part_key(ctx), ctx.lanes if buffer.dtype.kind == "b" else 0)
    if key not in element.parts:
        type = Val("", "i1" if buffer.dtype.kind == "b" else memory_type(buffer.dtype), ctx.lanes).full_type
        align = _slot_align(ctx.lanes, buffer.dtype.itemsize)
        slot = state.fn.alloca(type, align)
        element.parts[key] = slot, ctx.lanes
        with state.fn.at(frame.preheader, frame.scopes):
            start = identity_value(state, element.context, element.update, ctx.lanes)
            state.fn.effect(f"store {start}, {slot}, align {align}")
    return element.parts[key][0]


def _part_key(ctx: Context) -> tuple[str, int]:
    variable = ctx.lane or ctx.chain
    assert variable is not None
    return variable, ctx.copy


def finish_frame(state: State, frame: Frame) -> None:
    """Behind the loop: combine the partial results of every element and store it."""
    results: list[Result] = []
    for element in frame.elements.values():
        update, ctx = element.update, element.context
        buffer = state.by_name[update.buffer]
        op = combine(state, update)
        value: Val | None = None
        if element.direct is not None:
            value = _load_slot(state, update, element.direct, ctx.lanes)
            if element.ordered is not None:
                ordered = state.fn.effect_value(f"load <{ctx.lanes} x i1>, {element.ordered}, align 1", "i1", ctx.lanes)
                value = state.fn.select(ordered, value, float_val(float("nan"), value.type))
        partial: dict[int, list[Val]] = {}
        for slot, lanes in element.parts.values():
            partial.setdefault(lanes, []).append(_load_slot(state, update, slot, lanes))
        trees = [_reduce_parts(state, element, group) for group in partial.values()]
        if (
            value is None
            and trees
            and frame.is_segment
            and frame.initial.get(update.buffer) == identity_of(update.op, buffer.dtype)
        ):
            value = trees.pop(0)  # of a short sum each operation counts
        if value is None:
            value = _start_value(state, element, frame)
        for total in trees:
            value = op(total, value)
        results.append(Result(ctx, buffer, update.subscripts, value))
    store_results(state, results)


def _reduce_parts(state: State, element: Element, group: list[Val]) -> Val:
    """The tree of an element's partial results of the same lanes."""
    fn, op, seen = state.fn, combine(state, element.update), element.unordered.get(group[0].lanes)
    if seen is None:
        return vectors.reduce_lanes(fn, vectors.reduce_pairwise(group, op), op)

    def choose(a: Val, b: Val) -> Val:
        return emit_plain_extremum(fn, state.target, element.update.op, a, b)

    total = vectors.reduce_lanes(fn, vectors.reduce_pairwise(group, choose), choose)
    lanes, type = group[0].lanes, _mark_type(state, total.type)
    bits = fn.effect_value(f"load <{lanes} x {type}>, {seen.slot}, align {_mark_align(type, lanes)}", type, lanes)
    is_nan = vectors.is_any(fn, bits if type == "i1" else fn.compare("icmp slt", bits, zero_val(type, lanes)))
    return fn.select(is_nan, float_val(float("nan"), total.type), total)


def _load_slot(state: State, update: Update, slot: Val, lanes: int) -> Val:
    dtype = state.by_name[update.buffer].dtype
    type = "i1" if dtype.kind == "b" else memory_type(dtype)
    full = Val("", type, lanes).full_type
    return state.fn.effect_value(f"load {full}, {slot}, align {_slot_align(lanes, dtype.itemsize)}", type, lanes)
