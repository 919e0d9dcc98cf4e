"""Scan loops in vectors: prefixes inside a register by doubling distances, and a carry from register to register.

Per vector of V elements there are log2 V steps, each a shuffle and an operation, off the chain from one vector to the next,
which is one operation (Hillis and Steele, "Data parallel algorithms", 1986).  Where products of factors leave the range of
normal numbers, a vector is done element by element: the result never is NaN or 0 because of the grouping.
"""

from __future__ import annotations

from collections.abc import Callable

from polyc.codegen.emission.accesses import store_element
from polyc.codegen.emission.arithmetic import emit_operator
from polyc.codegen.emission.context import Context, Predicate, State, byte_offset
from polyc.codegen.emission.expressions import eval_expr, eval_value
from polyc.codegen.emission.linear import add_linear, constant_of, scale_linear, split_lane
from polyc.codegen.writer import vectors
from polyc.codegen.writer.builder import Val, float_val, int_val, llvm_type
from polyc.ir.expr import Const, Expr, Index, Read, lt, reads, walk
from polyc.ir.loops import Buffer, Loop, Store
from polyc.ir.scans import Scan, match_recurrence, scan_identity
from polyc.ir.simplify import simplify
from polyc.records import dataclass

SMALLEST = {"float": 2.0**-126, "double": 2.0**-1022}
LARGEST = {"float": float.fromhex("0x1.fffffep127"), "double": float.fromhex("0x1.fffffffffffffp1023")}


@dataclass(frozen=True, slots=True)
class Found:
    """A loop ``store[var] = scan(previous = store[var - 1])``; of order two where it reads `second`, ``store[var - 2]``."""

    store: Store
    buffer: Buffer
    previous: Read
    scan: Scan
    second: Read | None = None


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
    second: Read | None = None
    for read in dict.fromkeys(reads(store.value)):
        if read.tensor != store.buffer:
            continue
        if _is_in_another_row(read, store, loop.var):
            continue
        at = split_lane(byte_offset(inner, buffer, read.subscripts), inner.lane)
        distance = None if at is None else constant_of(add_linear(place[0], scale_linear(at[0], -1)))
        if at is None or distance is None or constant_of(at[1]) != step:
            return None
        behind = distance // step if distance % step == 0 else None
        if behind == 1 and previous is None:
            previous = read
        elif behind == 2 and second is None:
            second = read
        elif behind is None or 0 < behind < loop.lanes:
            return None  # elements that lanes of the same vector write
    if previous is None:
        return None
    scan = match_recurrence(store.value, previous, second, buffer.dtype, loop.var)
    return None if scan is None else Found(store, buffer, previous, scan, second)


def _is_in_another_row(read: Read, store: Store, var: str) -> bool:
    """Whether a dimension that stands still in the loop tells the elements that are read from all that are written."""
    for a, b in zip(read.subscripts, store.subscripts, strict=True):
        difference = simplify(a - b)
        if var not in _names(a) | _names(b) and isinstance(difference, Const) and difference.value != 0:
            return True
    return False


def _names(expr: Expr) -> set[str]:
    return {node.name for node in walk(expr) if isinstance(node, Index)}


def emit_scan(
    state: State, ctx: Context, loop: Loop, found: Found, lower: Val, upper: Val, run_serial: Callable[[Val, Val], None]
) -> None:
    """Whole vectors, then the rest under a mask, or one by one.  `run_serial` runs iterations in order.  lower < upper."""
    if found.second is not None:
        emit_second_order(state, ctx, loop, found, lower, upper, run_serial)
        return
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
            inside = Predicate(lt(Index(loop.var), loop.upper), loop.var)
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


MOST_GROWTH = 2.0**20
"""What a unit may grow to within a vector: beyond, the parts that sums are made of would outweigh the sums."""


def emit_second_order(
    state: State, ctx: Context, loop: Loop, found: Found, lower: Val, upper: Val, run_serial: Callable[[Val, Val], None]
) -> None:
    """``y[i] = a y[i-1] + b y[i-2] + x[i]`` with a and b that stay the same, by whole vectors; the rest one by one.

    As ``(1 - a z - b z^2) (1 + a z - b z^2) = 1 - (a^2 + 2 b) z^2 - (-b^2) z^4``, a step that adds elements one and two places
    behind leaves a recurrence over every second element, the next one over every fourth (scattered look-ahead: Parhi and
    Messerschmitt, "Pipeline interleaving and parallelism in recursive digital filters", 1989).  What the two elements before
    a vector add to its lanes is found once.  Where that grows much the loop runs in order."""
    fn, lanes, buffer = state.fn, loop.lanes, found.buffer
    type, itemsize = llvm_type(buffer.dtype), buffer.dtype.itemsize
    assert found.scan.factor is not None and found.scan.second is not None and found.second is not None
    state.invalidate_all()
    a, b = (eval_value(state, ctx.bind(loop.var, lower), f) for f in (found.scan.factor, found.scan.second))
    steps = _look_ahead(state, a, b, lanes)
    unit = [_lane_values(state, values, lanes) for values in ((a, b), (b,))]
    ahead = [_recur(state, v, steps) for v in unit]
    fits: Val | None = None
    for value in (*ahead, *(fn.splat(c, lanes) for step in steps for c in step)):
        size = fn.intrinsic("fabs", value)
        fits = fn.and_(fits, fn.compare("fcmp ole", size, fn.splat(float_val(MOST_GROWTH, type), lanes)))
    assert fits is not None
    trip = fn.binary("sub", upper, lower)
    whole = fn.select(vectors.is_any(fn, fn.not_(fits)), int_val(0), fn.binary("and", trip, int_val(-lanes)))
    stop = fn.binary("add", lower, whole)
    slots = [f"{fn.alloca(f'<{lanes} x {type}>', itemsize * lanes)}, align {itemsize * lanes}" for _ in range(2)]
    ends = [[fn.shuffle(v, None, [lanes - 1 - n] * lanes) for v in ahead] for n in range(2)]

    def add_ahead(value: Val, factors: list[Val], carries: list[Val]) -> Val:
        for factor, carry in zip(reversed(factors), reversed(carries), strict=True):
            value = _apply(state, found, carry, value, factor)
        return value

    def emit_one(at: Val) -> None:
        inner = ctx.bind_lanes(loop.var, at, lanes)
        value = _recur(state, fn.splat(eval_value(state, inner, found.scan.rest), lanes), steps)
        carries = [fn.effect_value(f"load <{lanes} x {type}>, {slot}", type, lanes) for slot in slots]
        result = add_ahead(value, ahead, carries)
        for n, slot in enumerate(slots):
            last = add_ahead(fn.shuffle(value, None, [lanes - 1 - n] * lanes), ends[n], carries)
            fn.effect(f"store {last}, {slot}")
        store_element(state, inner, buffer, found.store.subscripts, result)

    with fn.when(fn.compare("icmp slt", lower, stop)):
        for read, slot in zip((found.previous, found.second), slots, strict=True):
            before = eval_value(state, ctx.bind(loop.var, lower), read)
            fn.effect(f"store {fn.splat(before, lanes)}, {slot}")
        fn.counted_loop(lower, stop, lanes, emit_one)
    state.invalidate_all()
    with fn.when(fn.compare("icmp slt", stop, upper)):
        run_serial(stop, upper)
    state.invalidate_all()


def _look_ahead(state: State, a: Val, b: Val, lanes: int) -> list[tuple[Val, Val]]:
    """Factors of the elements one and two places behind, of distances 1, 2, 4, …"""
    fn, steps = state.fn, []
    for _ in range(lanes.bit_length() - 1):
        minus = fn.pure(f"fneg {b}", b.type, b.lanes)
        steps.append((a, minus))
        a = fn.binary("fadd", fn.binary("fmul", a, a), fn.binary("fadd", b, b))
        b = fn.binary("fmul", minus, b)
    return steps


def _recur(state: State, value: Val, steps: list[tuple[Val, Val]]) -> Val:
    """The recurrence over the lanes of a vector, with zeros before it."""
    fn, lanes = state.fn, value.lanes
    zero = fn.splat(float_val(0.0, value.type), lanes)
    for n, factors in enumerate(steps):
        before = value
        for distance, factor in zip((1 << n, 2 << n), factors, strict=True):
            if distance < lanes:
                moved = fn.shuffle(zero, before, [lanes + k - distance if k >= distance else k for k in range(lanes)])
                product = fn.splat(factor, lanes)
                value = (
                    fn.intrinsic("fma", product, moved, value)
                    if state.target.has_fma
                    else fn.binary("fadd", fn.binary("fmul", product, moved), value)
                )
    return value


def _lane_values(state: State, values: tuple[Val, ...], lanes: int) -> Val:
    """A vector that begins with `values`, and zeros."""
    fn = state.fn
    result = fn.splat(float_val(0.0, values[0].type), lanes)
    for n, value in enumerate(values):
        result = fn.pure(f"insertelement {result}, {value}, i64 {n}", value.type, lanes)
    return result
