"""Scan loops in vectors: prefixes inside a register by doubling distances, and a carry from register to register.

Per vector of V elements there are log2 V steps, each a shuffle and an operation, off the chain from one vector to the next,
which is one operation (Hillis and Steele, "Data parallel algorithms", 1986).  Where products of factors leave the range of
normal numbers, a vector is done element by element: the result never is NaN or 0 because of the grouping.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from polyc.codegen import vectors
from polyc.codegen.arithmetic import emit_operator
from polyc.codegen.builder import Val, float_val, int_val, llvm_type
from polyc.codegen.context import Context, Predicate, State
from polyc.codegen.expressions import byte_offset, eval_expr, eval_value, store_element
from polyc.codegen.linear import add_linear, constant_of, scale_linear, split_lane
from polyc.ir.expr import Call, Index, Read, reads
from polyc.ir.loops import Buffer, Loop, Store
from polyc.ir.scans import Scan, match_scan, scan_identity

SMALLEST = {"float": 2.0**-126, "double": 2.0**-1022}
LARGEST = {"float": float.fromhex("0x1.fffffep127"), "double": float.fromhex("0x1.fffffffffffffp1023")}


@dataclass(frozen=True, slots=True)
class Found:
    """A loop ``store[var] = scan(previous = store[var - 1])``."""

    store: Store
    buffer: Buffer
    previous: Read
    scan: Scan


def find_scan(state: State, ctx: Context, loop: Loop) -> Found | None:
    """What the loop computes, if it is a scan along consecutive elements of memory that can run in vectors here."""
    if loop.kind != "scan" or loop.lanes < 2 or loop.lanes & (loop.lanes - 1) or ctx.lane is not None or ctx.is_remainder:
        return None
    if len(loop.body) != 1 or not isinstance(store := loop.body[0], Store):
        return None
    if any(not p.branched for p in ctx.predicates):
        return None
    buffer = state.by_name[store.buffer]
    inner = ctx.bind_lanes(loop.var, Val("%", "i64"), loop.lanes)
    place = split_lane(byte_offset(inner, buffer, store.subscripts), inner.lane)
    step = None if place is None else constant_of(place[1])
    if buffer.space == "register" or place is None or step is None or abs(step) != buffer.dtype.itemsize:
        return None
    previous: Read | None = None
    for read in dict.fromkeys(reads(store.value)):
        if read.tensor != store.buffer:
            continue
        at = split_lane(byte_offset(inner, buffer, read.subscripts), inner.lane)
        distance = None if at is None else constant_of(add_linear(place[0], scale_linear(at[0], -1)))
        if at is None or distance is None or constant_of(at[1]) != step:
            return None
        behind = distance // step if distance % step == 0 else None
        if behind == 1 and previous is None:
            previous = read
        elif behind is None or 0 < behind < loop.lanes:
            return None  # elements that lanes of the same vector write
    if previous is None:
        return None
    scan = match_scan(store.value, previous, buffer.dtype)
    return None if scan is None else Found(store, buffer, previous, scan)


def emit_scan(
    state: State, ctx: Context, loop: Loop, found: Found, lower: Val, upper: Val, run_serial: Callable[[Val, Val], None]
) -> None:
    """Whole vectors, then the rest under a mask, or one by one.  `run_serial` runs iterations in order.  lower < upper."""
    fn, lanes, buffer = state.fn, loop.lanes, found.buffer
    type = llvm_type(buffer.dtype)
    slot = fn.alloca(f"<{lanes} x {type}>", buffer.dtype.itemsize * lanes)
    access = f"{slot}, align {buffer.dtype.itemsize * lanes}"

    def keep_carry(at: Val) -> None:
        """The element before iteration `at`, from memory."""
        before = eval_value(state, ctx.bind(loop.var, at), found.previous)
        fn.effect(f"store {fn.splat(before, lanes)}, {access}")

    def prefix(at: Val, predicates: tuple[Predicate, ...]) -> tuple[Context, Val, Val | None]:
        inner = ctx.bind_lanes(loop.var, at, lanes).under(*predicates)
        rest = fn.splat(eval_value(state, inner, found.scan.rest), lanes)
        factor = None
        if found.scan.factor is not None:
            factor = fn.splat(eval_value(state, inner, found.scan.factor), lanes)
        return inner, *_scan_lanes(state, found, rest, factor)

    def finish(inner: Context, value: Val, factor: Val | None) -> None:
        carry = fn.effect_value(f"load <{lanes} x {type}>, {access}", type, lanes)
        result = _apply(state, found, carry, value, factor)
        last = [lanes - 1] * lanes
        following = _apply(
            state, found, carry, fn.shuffle(value, None, last), None if factor is None else fn.shuffle(factor, None, last)
        )
        fn.effect(f"store {following}, {access}")
        store_element(state, inner, buffer, found.store.subscripts, result)

    def emit_one(at: Val) -> None:
        inner, value, factor = prefix(at, ())
        products = value if found.scan.op == "mul" else factor
        if products is None or not buffer.dtype.is_float:
            finish(inner, value, factor)
            return
        bad = _is_out_of_range(state, products)
        fast, slow, after = fn.new_block("fast"), fn.new_block("slow"), fn.new_block("both")
        fn.branch_if(bad, slow, fast)
        fn.place(fast)
        with fn.scope():
            finish(inner, value, factor)
        fn.branch(after)
        fn.place(slow)
        with fn.scope():
            end = fn.binary("add", at, int_val(lanes))
            run_serial(at, end)
            keep_carry(end)
        fn.branch(after)
        fn.place(after)

    state.invalidate_all()
    keep_carry(lower)
    trip = fn.binary("sub", upper, lower)
    stop = fn.binary("add", lower, fn.binary("and", trip, int_val(-lanes)))
    with fn.when(fn.compare("icmp slt", lower, stop)):
        fn.counted_loop(lower, stop, lanes, emit_one)
    state.invalidate_all()
    with fn.when(fn.compare("icmp slt", stop, upper)):
        has_factors = buffer.dtype.is_float and found.scan.op in ("mul", "linear")
        if state.target.has_masks and not has_factors:
            inside = Predicate(Call("lt", (Index(loop.var), loop.upper)), loop.var)
            finish(*prefix(stop, (inside,)))
        else:
            run_serial(stop, upper)
    state.invalidate_all()


def _scan_lanes(state: State, found: Found, value: Val, factor: Val | None) -> tuple[Val, Val | None]:
    """Inclusive prefixes over the lanes; with factors, of the functions ``x -> factor * x + value``."""
    fn, lanes, distance = state.fn, value.lanes, 1
    identity = fn.splat(_identity(state, found), lanes)
    while distance < lanes:
        # Lane l takes lane l - distance, the first ones the identity.
        moved = [lanes + lane - distance if lane >= distance else lane for lane in range(lanes)]
        before = fn.shuffle(identity, value, moved)
        if factor is None:
            value = _combine(state, found, before, value)
        else:
            one = fn.splat(_one(found), lanes)
            value = _apply(state, found, before, value, factor)
            factor = _times(state, found, fn.shuffle(one, factor, moved), factor)
        distance *= 2
    return value, factor


def _apply(state: State, found: Found, carry: Val, value: Val, factor: Val | None) -> Val:
    """The state after a prefix: ``carry op value`` or ``factor * carry + value``."""
    if factor is None:
        return _combine(state, found, carry, value)
    if found.buffer.dtype.is_float and state.target.has_fma:
        return state.fn.intrinsic("fma", factor, carry, value)
    product = _times(state, found, factor, carry)
    return emit_operator(state.fn, state.target, "add", [product, value], found.buffer.dtype)


def _combine(state: State, found: Found, a: Val, b: Val) -> Val:
    return emit_operator(state.fn, state.target, found.scan.op, [a, b], found.buffer.dtype)


def _times(state: State, found: Found, a: Val, b: Val) -> Val:
    return emit_operator(state.fn, state.target, "mul", [a, b], found.buffer.dtype)


def _identity(state: State, found: Found) -> Val:
    op = "add" if found.scan.op == "linear" else found.scan.op
    return eval_expr(state, Context(), scan_identity(op, found.buffer.dtype))


def _one(found: Found) -> Val:
    type = llvm_type(found.buffer.dtype)
    return float_val(1.0, type) if found.buffer.dtype.is_float else int_val(1, type)


def _is_out_of_range(state: State, products: Val) -> Val:
    """Whether a product is NaN, infinite, zero or too small to be exact."""
    fn = state.fn
    size = fn.intrinsic("fabs", products)
    low = fn.compare("fcmp oge", size, fn.splat(float_val(SMALLEST[products.type], products.type), products.lanes))
    high = fn.compare("fcmp ole", size, fn.splat(float_val(LARGEST[products.type], products.type), products.lanes))
    return vectors.is_any(fn, fn.not_(fn.binary("and", low, high)))
