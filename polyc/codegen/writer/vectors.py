"""Memory access in scalar and vector form, lane masks, and reductions over lanes.

Everything is element-aligned: NumPy promises no more.  Inactive lanes never touch memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polyc.code_limits import WORD
from polyc.codegen.writer.builder import Function, Val, int_val, llvm_type, memory_type, vector_const, zero_val
from polyc.codegen.writer.masks import constant_lanes, take_lanes, take_values
from polyc.ir.types import DType
from polyc.machine import Machine
from polyc.machine.memory import LINE

_ZEROS = '@".zeros" = internal constant [64 x i8] zeroinitializer, align 64'


def offset_pointer(fn: Function, base: Val, offset: Val | int) -> Val:
    """`base` plus bytes; a vector of offsets gives a vector of pointers."""
    value = int_val(offset) if isinstance(offset, int) else offset
    if value.ref == "0":
        return base
    return fn.pure(f"getelementptr i8, {base}, {value}", "ptr", value.lanes)


def to_memory(fn: Function, value: Val) -> Val:
    return fn.convert("zext", value, "i8") if value.type == "i1" else value


def from_memory(fn: Function, value: Val, dtype: DType) -> Val:
    return fn.compare("icmp ne", value, zero_val("i8", value.lanes)) if dtype.kind == "b" else value


def pointer_or_zeros(fn: Function, condition: Val, pointer: Val) -> Val:
    """`pointer`, or where `condition` fails a place with 64 zero bytes."""
    fn.module.extra["zeros"] = _ZEROS
    return fn.select(condition, pointer, Val('@".zeros"', "ptr"))


def pointer_or_spare(fn: Function, condition: Val | None, pointer: Val) -> Val:
    """`pointer`, or where `condition` fails memory of its own for an access that is masked off: at a page that is not there it
    would take a hundred times as long."""
    return pointer if condition is None else fn.select(condition, pointer, fn.spare())


def load_scalar(fn: Function, dtype: DType, pointer: Val, condition: Val | None, epoch: str, other: Val | None = None) -> Val:
    """One element; where `condition` fails, `other` (or 0) and no access outside: a block of zeros is read instead."""
    type = memory_type(dtype)
    if condition is not None:
        pointer = pointer_or_zeros(fn, condition, pointer)
    text = f"load {type}, {pointer}, align {dtype.alignment}"
    value = from_memory(fn, fn.pure(text, type, key=text + epoch), dtype)
    if condition is not None and other is not None and other != zero_val(value.type):
        value = fn.select(condition, value, other)
    return value


def load_contiguous(
    fn: Function, dtype: DType, pointer: Val, lanes: int, mask: Val | None, epoch: str, other: Val | None = None
) -> Val:
    """`lanes` consecutive elements from `pointer`; inactive lanes give `other` (or 0)."""
    type = memory_type(dtype)
    first = None if mask is None else constant_prefix(mask)
    if first is not None and first & (first - 1) == 0 and 1 < first < lanes:
        # A masked load waits for the cache lines of its inactive lanes, too.
        text = f"load <{first} x {type}>, {pointer}, align {dtype.alignment}"
        part = from_memory(fn, fn.pure(text, type, first, key=text + epoch), dtype)
        through = zero_val(part.type, lanes) if other is None else fn.splat(other, lanes)
        padded = fn.shuffle(part, None, [lane if lane < first else -1 for lane in range(lanes)])
        return fn.shuffle(padded, through, [lane if lane < first else lanes + lane for lane in range(lanes)])
    if mask is not None and _is_wide(fn, dtype, lanes):
        through = zero_val(type) if other is None else other
        parts = [_load_part(fn, dtype, pointer, part, mask, epoch, through) for part in _registers(fn, dtype, lanes)]
        return concatenate(fn, parts)
    if mask is None:
        text = f"load <{lanes} x {type}>, {pointer}, align {dtype.alignment}"
    else:
        full = f"<{lanes} x {type}>"
        name = f"llvm.masked.load.v{lanes}{_suffix(type)}.p0"
        callee = fn.module.declare(name, full, ["ptr", "i32", f"<{lanes} x i1>", full])
        through = fn.splat(to_memory(fn, other), lanes) if other is not None else zero_val(type, lanes)
        text = f"call {full} {callee}({pointer}, i32 {dtype.alignment}, {mask}, {through})"
    return from_memory(fn, fn.pure(text, type, lanes, key=text + epoch), dtype)


def _is_wide(fn: Function, dtype: DType, lanes: int) -> bool:
    """Whether a masked access has more lanes than may be under one mask."""
    return dtype.itemsize >= 4 and 8 * dtype.itemsize * lanes > fn.module.mask_bits


def _registers(fn: Function, dtype: DType, lanes: int) -> list[range]:
    """The lanes of each register."""
    width = fn.module.mask_bits // (8 * dtype.itemsize)
    return [range(first, min(first + width, lanes)) for first in range(0, lanes, width)]


def _load_part(fn: Function, dtype: DType, pointer: Val, part: range, mask: Val, epoch: str, other: Val) -> Val:
    """Lanes of a wider load, which begins at `pointer`."""
    own, through = take_lanes(fn, mask, part), take_values(fn, other, part)
    known, place = constant_lanes(own), offset_pointer(fn, pointer, part.start * dtype.itemsize)
    if known is not None and not any(known):
        return through
    if len(part) == 1:
        return load_scalar(fn, dtype, place, own, epoch, through)
    return load_contiguous(fn, dtype, place, len(part), own if known is None or not all(known) else None, epoch, through)


def load_reversed(fn: Function, dtype: DType, pointer: Val, lanes: int, mask: Val | None, epoch: str, other: Val | None) -> Val:
    """Elements from `pointer` downwards: a contiguous load that ends there, turned round."""
    backwards = range(lanes - 1, -1, -1)
    turned = None if mask is None else fn.shuffle(mask, None, backwards)
    through = fn.shuffle(other, None, backwards) if other is not None and other.lanes > 1 else other
    first = offset_pointer(fn, pointer, -(lanes - 1) * dtype.itemsize)
    return fn.shuffle(load_contiguous(fn, dtype, first, lanes, turned, epoch, through), None, backwards)


def is_gathered(target: Machine, dtype: DType, mask: Val | None) -> bool:
    """Whether lanes anywhere are one instruction: where it is fast for this width.  Lanes under a mask are gathered wherever
    they can be: apart each of them would take a branch."""
    return (target.has_gather if mask is not None else target.has_fast_gather) and dtype.itemsize >= WORD


def load_lanes(
    fn: Function, target: Machine, dtype: DType, pointers: Val, mask: Val | None, epoch: str, other: Val | None = None
) -> Val:
    """One element per pointer: a gather (`is_gathered`), else one load per lane."""
    lanes, type = pointers.lanes, memory_type(dtype)
    if is_gathered(target, dtype, mask):
        full = f"<{lanes} x {type}>"
        callee = fn.module.declare(
            f"llvm.masked.gather.v{lanes}{_suffix(type)}.v{lanes}p0", full, [f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>", full]
        )
        active = mask if mask is not None else int_val(1, "i1", lanes)
        through = fn.splat(other, lanes) if other is not None else zero_val(type, lanes)
        text = f"call {full} {callee}({pointers}, i32 {dtype.alignment}, {active}, {through})"
        return from_memory(fn, fn.pure(text, type, lanes, key=text + epoch), dtype)
    result = Val("poison", llvm_type(dtype), lanes)
    for lane in range(lanes):
        condition = None if mask is None else fn.extract(mask, lane)
        default = None if other is None else fn.extract(other, lane)
        one = load_scalar(fn, dtype, fn.extract(pointers, lane), condition, epoch, default)
        result = fn.insert(result, one, lane)
    return result


def load_steps(fn: Function, dtype: DType, pointer: Val, lanes: int, step: int, epoch: str) -> Val:
    """Elements `step` bytes apart, one load each: addresses are a register and numbers, and a gather takes longer."""
    result = Val("poison", llvm_type(dtype), lanes)
    for lane in range(lanes):
        one = load_scalar(fn, dtype, offset_pointer(fn, pointer, lane * step), None, epoch, None)
        result = fn.insert(result, one, lane)
    return result


def store_scalar(fn: Function, dtype: DType, pointer: Val, value: Val, condition: Val | None = None) -> None:
    with fn.when(condition):
        fn.effect(f"store {to_memory(fn, value)}, {pointer}, align {dtype.alignment}")


def store_contiguous(fn: Function, dtype: DType, pointer: Val, value: Val, mask: Val | None) -> None:
    value = to_memory(fn, value)
    if mask is None:
        fn.effect(f"store {value}, {pointer}, align {dtype.alignment}")
        return
    if _is_wide(fn, dtype, value.lanes):
        for part in _registers(fn, dtype, value.lanes):
            place = offset_pointer(fn, pointer, part.start * dtype.itemsize)
            _store_part(fn, dtype, place, take_values(fn, value, part), take_lanes(fn, mask, part))
        return
    name = f"llvm.masked.store.v{value.lanes}{_suffix(value.type)}.p0"
    callee = fn.module.declare(name, "void", [value.full_type, "ptr", "i32", f"<{value.lanes} x i1>"])
    fn.effect(f"call void {callee}({value}, {pointer}, i32 {dtype.alignment}, {mask})")


def _store_part(fn: Function, dtype: DType, place: Val, value: Val, mask: Val) -> None:
    """Lanes of a wider store."""
    known = constant_lanes(mask)
    if known is not None and not any(known):
        return
    if value.lanes == 1:
        store_scalar(fn, dtype, place, value, mask)
    else:
        store_contiguous(fn, dtype, place, value, mask if known is None or not all(known) else None)


def concatenate(fn: Function, parts: Sequence[Val]) -> Val:
    """The lanes of all parts side by side; the last one may have fewer than the others."""
    while len(parts) > 1:
        pairs = [_join(fn, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + list(parts[2 * len(pairs) :])
    return parts[0]


def _join(fn: Function, a: Val, b: Val) -> Val:
    together = range(a.lanes + b.lanes)
    if b.lanes == 1:
        b = fn.insert(Val("poison", a.type, a.lanes), b, 0)
    elif b.lanes < a.lanes:
        b = fn.shuffle(b, None, [lane if lane < b.lanes else -1 for lane in range(a.lanes)])
    return fn.shuffle(a, b, together)


def store_first_lanes(fn: Function, stores: Sequence[tuple[DType, Val, Val]], count: Val) -> None:
    """Store the first `count` (an i64, from 0, fewer than all) lanes of vectors of one width, each to a pointer, without masks:
    half of the lanes where `count` is as many, a quarter of them where those that are left are as many, and so on."""
    parts = [(dtype, pointer, to_memory(fn, value)) for dtype, pointer, value in stores]
    width = max(value.lanes for _, _, value in parts)
    while width > 1:
        width //= 2
        own = fn.binary("and", count, int_val(width))
        is_left = fn.compare("icmp ne", own, int_val(0))
        with fn.when(is_left):
            for dtype, pointer, value in parts:
                fn.effect(f"store {fn.shuffle(value, None, range(width))}, {pointer}, align {dtype.alignment}")
        for number, (dtype, pointer, value) in enumerate(parts):
            low, high = (fn.shuffle(value, None, half) for half in (range(width), range(width, 2 * width)))
            behind = offset_pointer(fn, pointer, fn.binary("mul", own, int_val(dtype.itemsize)))
            parts[number] = dtype, behind, fn.select(is_left, high, low)


def count_first_lanes(fn: Function, mask: Val) -> Val | None:
    """How many lanes are active, an i64, where these are known to be the first ones."""
    known = constant_prefix(mask)
    return prefix_count(fn, mask) if known is None else int_val(known)


def store_streamed(fn: Function, dtype: DType, pointer: Val, value: Val) -> None:
    """A whole vector at a multiple of its size, past the caches."""
    value = to_memory(fn, value)
    align = min(LINE, value.lanes * dtype.itemsize)
    fn.effect(f"store {value}, {pointer}, align {align}, !nontemporal {fn.module.streaming_hint()}")
    fn.is_streaming = True


def finish_streams(fn: Function) -> None:
    """Where the function ends: wait until what it streamed can be seen."""
    if fn.is_streaming:
        callee = fn.module.declare("llvm.x86.sse.sfence", "void", [])
        fn.effect(f"call void {callee}()")


def has_scatter(target: Machine, dtype: DType) -> bool:
    return target.has_masks and target.has_gather and dtype.itemsize >= 4


def store_lanes(fn: Function, target: Machine, dtype: DType, pointers: Val, value: Val, mask: Val | None) -> None:
    """One element per pointer, in the order of the lanes."""
    value = to_memory(fn, value)
    lanes = value.lanes
    if has_scatter(target, dtype):
        name = f"llvm.masked.scatter.v{lanes}{_suffix(value.type)}.v{lanes}p0"
        callee = fn.module.declare(name, "void", [value.full_type, f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>"])
        active = mask if mask is not None else int_val(1, "i1", lanes)
        fn.effect(f"call void {callee}({value}, {pointers}, i32 {dtype.alignment}, {active})")
        return
    for lane in range(lanes):
        with fn.when(None if mask is None else fn.extract(mask, lane)):
            fn.effect(f"store {fn.extract(value, lane)}, {fn.extract(pointers, lane)}, align {dtype.alignment}")


def store_steps(fn: Function, dtype: DType, pointer: Val, value: Val, step: int) -> None:
    """Elements `step` bytes apart, one store each: addresses are a register and numbers, so that loads behind need not wait for
    them."""
    for lane in range(value.lanes):
        store_scalar(fn, dtype, offset_pointer(fn, pointer, lane * step), fn.extract(value, lane))


def lane_numbers(lanes: int, type: str = "i64") -> Val:
    return vector_const(range(lanes), type)


def first_lanes(fn: Function, target: Machine, count: Val, lanes: int) -> Val:
    """The mask of lanes below `count` (an i64, any value).

    On AVX-512 as bits of an integer: LLVM (22.1) moves a comparison into the loop that uses its result, where its operands
    would take vector registers from the accumulators.  BZHI makes them, since all bits above must be 0 in the register: LLVM
    takes that for granted where it widens the mask for a store of narrower elements, and would narrow other arithmetic."""
    if count.is_const:
        return vector_const([int(lane < int(count.ref)) for lane in range(lanes)], "i1")
    clamped = _clamp_count(fn, count, lanes)
    mask = _first_lanes(fn, target, clamped, lanes)
    fn.prefixes[mask.ref] = clamped
    return mask


def prefix_count(fn: Function, mask: Val) -> Val | None:
    """How many lanes are active, an i64, where the mask is one of `first_lanes`."""
    return fn.prefixes.get(mask.ref)


def _first_lanes(fn: Function, target: Machine, clamped: Val, lanes: int) -> Val:
    bits = max(8, lanes)
    if target.has_masks and target.triple.startswith("x86_64") and bits <= 32 and bits.bit_count() == 1:
        callee = fn.module.declare("llvm.x86.bmi.bzhi.64", "i64", ["i64", "i64"])
        below = fn.convert("trunc", fn.pure(f"call i64 {callee}(i64 -1, {clamped})", "i64"), f"i{bits}")
        mask = fn.pure(f"bitcast {below} to <{bits} x i1>", "i1", bits)
        return mask if bits == lanes else fn.shuffle(mask, None, range(lanes))
    return _compare_lanes(fn, target, "icmp ult", clamped, lanes)


def last_lanes(fn: Function, target: Machine, count: Val, lanes: int) -> Val:
    """The mask of lanes from `count` (an i64, any value) on."""
    if count.is_const:
        return vector_const([int(lane >= int(count.ref)) for lane in range(lanes)], "i1")
    return _compare_lanes(fn, target, "icmp uge", _clamp_count(fn, count, lanes), lanes)


def _clamp_count(fn: Function, count: Val, lanes: int) -> Val:
    return fn.intrinsic("smin", fn.intrinsic("smax", count, int_val(0)), int_val(lanes))


def _compare_lanes(fn: Function, target: Machine, op: str, count: Val, lanes: int) -> Val:
    """Lane numbers against `count`, as narrow as a register allows."""
    widest = 1 << ((target.vector_bits // lanes).bit_length() - 1) if lanes <= target.vector_bits else 8
    type = f"i{min(64, max(8, widest))}"
    narrow = fn.splat(fn.convert("trunc", count, type), lanes)
    return fn.compare(op, lane_numbers(lanes, type), narrow)


def truncate(fn: Function, target: Machine, value: Val, type: str) -> Val:
    """Integers cut to the narrower `type`.

    On AVX-512 the result is hidden from what follows: where LLVM (22.1) merges a truncation that drops zeros with a masked
    store of a single lane, it stores the wide element, over memory that is not its to write.  The hiding is no instruction."""
    cut = fn.convert("trunc", value, type)
    if cut is value or cut.lanes == 1 or not target.has_masks or not target.triple.startswith("x86_64"):
        return cut
    bits = int(type[1:])
    lanes = max(1 << (cut.lanes - 1).bit_length(), 128 // bits)
    padded = cut if lanes == cut.lanes else fn.shuffle(cut, None, [e if e < cut.lanes else -1 for e in range(lanes)])
    width = min(lanes, 512 // bits)

    def hide(parts: list[Val]) -> Val:
        full = parts[0].full_type
        return fn.pure(f'call {full} asm "", "=x,0"({parts[0]})', type, width)

    hidden = fn.map_registers(hide, width, padded)
    return hidden if lanes == cut.lanes else fn.shuffle(hidden, None, range(cut.lanes))


def constant_prefix(mask: Val) -> int | None:
    """How many lanes are active where they are known to be the first ones; None for any other mask."""
    lanes = mask.ref.strip("<>").split(", ")
    first = lanes.count("i1 1")
    return first if mask.is_const and mask.ref == vector_const([int(n < first) for n in range(mask.lanes)], "i1").ref else None


def is_any(fn: Function, mask: Val) -> Val:
    """Whether a lane is active."""
    if mask.lanes == 1:
        return mask
    callee = fn.module.declare(f"llvm.vector.reduce.or.v{mask.lanes}i1", "i1", [mask.full_type])
    return fn.pure(f"call i1 {callee}({mask})", "i1")


def reduce_lanes(fn: Function, value: Val, combine: Callable[[Val, Val], Val]) -> Val:
    """Lanes combined pairwise, upper half with lower half, down to one: a tree that depends on the lane count only."""
    while value.lanes > 1:
        if value.lanes % 2:
            rest = fn.extract(value, value.lanes - 1)
            return combine(reduce_lanes(fn, fn.shuffle(value, None, range(value.lanes - 1)), combine), rest)
        half = value.lanes // 2
        value = combine(fn.shuffle(value, None, range(half)), fn.shuffle(value, None, range(half, value.lanes)))
    return value


def reduce_pairwise(values: list[Val], combine: Callable[[Val, Val], Val]) -> Val:
    """Neighbours combined, level by level: a tree that depends on the count only."""
    while len(values) > 1:
        pairs = [combine(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + ([values[-1]] if len(values) % 2 else [])
    return values[0]


def _suffix(type: str) -> str:
    return {"float": "f32", "double": "f64"}.get(type, type)
