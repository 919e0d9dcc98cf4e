"""Loads and stores of elements under the predicates of a context, in the way that suits how the lanes lie in memory."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.code_limits import WORD
from polyc.codegen.emission.arithmetic import emit_operator
from polyc.codegen.emission.context import WORKSPACES, Context, State, byte_offset
from polyc.codegen.emission.held import find_held
from polyc.codegen.emission.index_values import eval_uniform, split_by_depth, sum_terms
from polyc.codegen.emission.linear import LANE, Linear, constant_of, index_names, split_lane
from polyc.codegen.emission.predicates import Conditions, as_mask, as_scalar, chosen_for_all, eval_predicates
from polyc.codegen.emission.repeats import find_distances, find_runs, load_runs, load_window
from polyc.codegen.emission.tables import find_choice, find_table, load_from_table
from polyc.codegen.emission.windows import find_phase
from polyc.codegen.writer import shuffles, vectors
from polyc.codegen.writer.builder import Val, int_val, llvm_type
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Read, Size, evaluate, int_const, reads, walk
from polyc.ir.loops import Buffer
from polyc.ir.types import I64, DType
from polyc.records import dataclass, replace


def buffer_base(state: State, buffer: Buffer) -> Val:
    """The address of a buffer; that of a register buffer is a stack slot, made when it is first used."""
    if buffer.name not in state.buffers:
        assert buffer.space == "register"
        size = buffer.dtype.itemsize
        for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
            size += max(0, evaluate(extent, {}) - 1) * evaluate(stride, {})
        # Room for a last vector that sticks out; LLVM splits the slot into registers, so it costs nothing.
        state.buffers[buffer.name] = state.fn.alloca(f"[{size + 512} x i8]", 64)
    return state.buffers[buffer.name]


def element_pointer(state: State, ctx: Context, buffer: Buffer, uniform: Linear) -> Val:
    """The address `uniform` bytes behind the beginning of a buffer."""
    pointer = buffer_base(state, buffer)
    for part in split_by_depth(ctx, uniform):
        pointer = vectors.offset_pointer(state.fn, pointer, sum_terms(state, ctx, part))
    return pointer


def _lane_pointers(state: State, ctx: Context, buffer: Buffer, offset: Linear) -> Val:
    """Addresses of the lanes, whatever the subscripts are."""
    lane = ctx.lane
    assert lane is not None
    varying = {t: c for t, c in offset.items() if any(a is LANE or lane in index_names(a) - _own_name(a) for a in t)}
    base = element_pointer(state, ctx, buffer, {t: c for t, c in offset.items() if t not in varying})
    return vectors.offset_pointer(state.fn, base, state.fn.splat(sum_terms(state, ctx, varying), ctx.lanes))


def _own_name(atom: Expr) -> set[str]:
    return {atom.name} if isinstance(atom, Index) else set()


# -- loads


@dataclass(frozen=True, slots=True)
class _Load:
    """What a load is of, the conditions under which it is made, and its lanes' value where it is not (None: 0)."""

    buffer: Buffer
    subscripts: tuple[Expr, ...]
    guard: Conditions
    epoch: str
    other: Val | None


def load_element(state: State, ctx: Context, buffer: Buffer, subscripts: tuple[Expr, ...], other: Val | None = None) -> Val:
    """The element under the predicates of `ctx`; where they fail nothing is read and the value is `other` or 0."""
    names = set().union(*(index_names(s) for s in subscripts)) if subscripts else set()
    if ctx.has_loose_lanes and buffer.space in WORKSPACES and buffer.dtype.is_float and not state.target.has_masks:
        names -= {ctx.lane}  # without masks a guarded lane costs a branch, and the memory is there
    names -= ctx.overread
    guard = eval_predicates(state, ctx, names)
    if buffer.space == "register":
        guard = (None, None)  # the whole slot exists
        ctx = ctx if ctx.exact is None else replace(ctx, env=ctx.exact)
    offset = byte_offset(ctx, buffer, subscripts)
    split = split_lane(offset, ctx.lane)
    load = _Load(buffer, subscripts, guard, state.epoch(ctx, buffer.name, subscripts), other)
    value: Val | None = None
    if split is not None:
        uniform, coefficient = split
        step = constant_of(coefficient)
        if step == 0:
            return _load_scalar(state, ctx, load, uniform)
        if step is not None:
            value = _load_steps(state, ctx, load, uniform, step)
    else:
        value = _load_repeated(state, ctx, load, offset)
        if value is None:
            value = _load_held(state, ctx, load)
        if value is None:
            value = _load_chosen(state, ctx, load)
        if value is None:
            value = _load_blended(state, ctx, load)
        if value is None:
            value = _load_apart(state, ctx, load)
    if value is not None:
        return value
    pointers = _lane_pointers(state, ctx, buffer, offset)
    return vectors.load_lanes(state.fn, state.target, buffer.dtype, pointers, as_mask(state, ctx, guard), load.epoch, other)


def _load_scalar(state: State, ctx: Context, load: _Load, uniform: Linear) -> Val:
    """One element for all lanes."""
    fn, dtype, other = state.fn, load.buffer.dtype, load.other
    pointer = element_pointer(state, ctx, load.buffer, uniform)
    condition = as_scalar(state, load.guard)
    if other is not None and other.lanes > 1:
        value = vectors.load_scalar(fn, dtype, pointer, condition, load.epoch)
        mask = as_mask(state, ctx, load.guard)
        return value if mask is None else fn.select(mask, value, other)
    return vectors.load_scalar(fn, dtype, pointer, condition, load.epoch, other)


def _load_steps(state: State, ctx: Context, load: _Load, uniform: Linear, step: int) -> Val | None:
    """Lanes that lie `step` bytes apart, from the first of them on; None where they are loaded one by one or gathered."""
    fn, buffer, dtype, guard = state.fn, load.buffer, load.buffer.dtype, load.guard
    if abs(step) == dtype.itemsize:
        pointer = element_pointer(state, ctx, buffer, uniform)
        pointer = vectors.pointer_or_spare(fn, chosen_for_all(state, ctx, guard), pointer)
        load_vector = vectors.load_contiguous if step > 0 else vectors.load_reversed
        return load_vector(fn, dtype, pointer, ctx.lanes, as_mask(state, ctx, guard), load.epoch, load.other)
    if shuffles.is_small_stride(dtype, step) and (guard == (None, None) or state.target.has_masked_loads(dtype.itemsize)):
        pointer, mask = element_pointer(state, ctx, buffer, uniform), as_mask(state, ctx, guard)
        pointer = vectors.pointer_or_spare(fn, chosen_for_all(state, ctx, guard), pointer)
        stride = step // dtype.itemsize
        phase = None
        if stride > 1 and buffer.space != "register":
            phase = find_phase(state, ctx, Read(buffer.name, load.subscripts), stride)
        if phase is not None:
            first = vectors.offset_pointer(fn, pointer, -phase * dtype.itemsize)
            row = shuffles.load_interleaved(fn, state.target, dtype, first, ctx.lanes, stride, mask, load.epoch)
            return _or_other(state, mask, row[phase], load.other)
        return shuffles.load_strided(fn, state.target, dtype, pointer, ctx.lanes, stride, mask, load.epoch, load.other)
    if guard == (None, None) and dtype.itemsize >= 4:
        return vectors.load_steps(fn, dtype, element_pointer(state, ctx, buffer, uniform), ctx.lanes, step, load.epoch)
    return None


def _load_repeated(state: State, ctx: Context, load: _Load, offset: Linear) -> Val | None:
    """Lanes that read one element in runs (`repeats`)."""
    fn, itemsize = state.fn, load.buffer.dtype.itemsize
    repeated = find_runs(ctx, offset, itemsize)
    if repeated is None:
        distances = find_distances(ctx, offset) if load.guard == (None, None) and load.buffer.space != "register" else None
        if distances is None or ctx.lane is None:
            return None
        one = replace(ctx, lane=None, lanes=1)
        first = element_pointer(state, one, load.buffer, byte_offset(one, load.buffer, load.subscripts))
        return load_window(state, load.buffer, first, distances, load.epoch)
    uniform, runs = repeated
    start = eval_uniform(state, ctx, runs.inside)
    number = emit_operator(fn, state.target, "floordiv", [start, int_val(runs.length)], I64)
    bytes = fn.binary("mul", number, int_val(itemsize))
    first = vectors.offset_pointer(fn, element_pointer(state, ctx, load.buffer, uniform), bytes)
    mask = as_mask(state, ctx, load.guard)
    loaded = load_runs(state, ctx, load.buffer, first, start, runs, mask)
    return None if loaded is None else _or_other(state, mask, loaded, load.other)


def _load_held(state: State, ctx: Context, load: _Load) -> Val | None:
    """One load of the lanes that lie between two ends (`held`); the others have the element of their end."""
    has_masks = state.target.has_masked_loads(load.buffer.dtype.itemsize)
    held = find_held(ctx, load.buffer, load.subscripts) if has_masks else None
    if held is None:
        return None
    fn, buffer, dtype = state.fn, load.buffer, load.buffer.dtype
    somewhere = as_scalar(state, load.guard)
    low, high = (
        fn.splat(vectors.load_scalar(fn, dtype, element_pointer(state, ctx, buffer, end), somewhere, load.epoch), ctx.lanes)
        for end in held.ends
    )
    # A place may be the least integer; from one that lies all lanes below, distances do not overflow.
    place = fn.intrinsic("smax", eval_uniform(state, ctx, held.place), int_val(held.lower - ctx.lanes))
    before = fn.binary("sub", int_val(held.lower), place)
    within = fn.binary("sub", int_val(held.upper + 1), place)
    is_low = vectors.first_lanes(fn, state.target, before, ctx.lanes)
    is_high = vectors.last_lanes(fn, state.target, within, ctx.lanes)
    mask = as_mask(state, ctx, load.guard)
    inside = fn.not_(fn.binary("or", is_low, is_high))
    wanted = fn.and_(mask, inside)
    assert wanted is not None
    pointer = element_pointer(state, ctx, buffer, held.first)
    value = vectors.load_contiguous(fn, dtype, pointer, ctx.lanes, wanted, load.epoch, fn.select(is_low, low, high))
    return _or_other(state, mask, value, load.other)


def _load_chosen(state: State, ctx: Context, load: _Load) -> Val | None:
    """Lanes that choose from a table in registers (`tables`)."""
    table = find_table(state.target, load.buffer, load.subscripts, ctx.lane, ctx.lanes)
    if table is None:
        return None
    d, place, size = table
    origin = tuple(int_const(0) if n == d else e for n, e in enumerate(load.subscripts))
    row, at = split_lane(byte_offset(ctx, load.buffer, origin), ctx.lane), state.evaluate(ctx, place)
    if row is None or constant_of(row[1]) != 0 or at.lanes != ctx.lanes:
        return None
    mask = as_mask(state, ctx, load.guard)
    somewhere = as_scalar(state, load.guard)
    pointer = element_pointer(state, ctx, load.buffer, row[0])
    value = load_from_table(state.fn, load.buffer.dtype, pointer, at, size, load.epoch, somewhere)
    return _or_other(state, mask, value, load.other)


def _load_blended(state: State, ctx: Context, load: _Load) -> Val | None:
    """Lanes side by side in memory, each in one of few rows that data chooses: all rows are loaded, and blended.

    Before: ``T[k[j], j]`` along j, a load for each lane.  After: ``k == 1 ? T[1, j] : T[0, j]``, two whole vectors.  There are
    no more rows than lanes, so that no more is loaded, and other reads that choose among the same rows share the vectors.
    Each row is read as if it were named, where its own element is inside of the array."""
    buffer, dtype = load.buffer, load.buffer.dtype
    found = find_choice(buffer, load.subscripts, ctx.lane)
    if found is None or buffer.space == "register" or dtype.itemsize < WORD or not 1 <= found[1] <= ctx.lanes:
        return None
    d, n_rows = found
    rows = [tuple(int_const(n) if i == d else e for i, e in enumerate(load.subscripts)) for n in range(n_rows)]
    along = split_lane(byte_offset(ctx, buffer, rows[0]), ctx.lane)
    if along is None or constant_of(along[1]) != dtype.itemsize:
        return None
    if load.guard != (None, None) and not state.target.has_masked_loads(dtype.itemsize):
        return None
    fn, place = state.fn, state.evaluate(ctx, load.subscripts[d])
    value = load_element(state, ctx, buffer, rows[0])
    for n in range(1, n_rows):
        chosen = fn.compare("icmp eq", place, int_val(n, place.type))
        value = fn.select(chosen, load_element(state, ctx, buffer, rows[n]), value)
    return _or_other(state, as_mask(state, ctx, load.guard), value, load.other)


def _load_apart(state: State, ctx: Context, load: _Load) -> Val | None:
    """Lanes at places that are loaded as well, one by one with single loads of these: addresses in a vector would have to be
    taken out of it again."""
    lane, dtype = ctx.lane, load.buffer.dtype
    if lane is None or load.guard != (None, None) or vectors.is_gathered(state.target, dtype, None):
        return None
    if load.other is not None or not are_loaded_places(state, load.subscripts, lane):
        return None
    first, memo, certain = Index(f"{lane}·first"), state.memo, state.certain
    state.certain = frozenset()
    result = Val("poison", llvm_type(dtype), ctx.lanes)
    known: list[dict[Read, Val]] = []
    for number in range(ctx.lanes):
        one = replace(ctx.bind(first.name, ctx.env[lane]).bind(lane, first + number), lane=None, lanes=1)
        if not known:
            known = _load_pairs(state, ctx, one, load) if number + 1 < ctx.lanes else [{}]
        state.memo = [known.pop(0)]  # what other lanes have read is no use
        result = state.fn.insert(result, _load_lane(state, one, load), number)
    state.memo, state.certain = memo, certain
    return result


def _load_lane(state: State, one: Context, load: _Load) -> Val:
    """The element of a lane, in the context `one`.

    A place that is a subscript as it was loaded is not negative: of the two in a load of 64 bits, the second one is a shift of
    that, and the address scales it."""
    buffer, last, itemsize = load.buffer, load.subscripts[-1], load.buffer.dtype.itemsize
    is_scaled = buffer.strides[-1] == int_const(itemsize) and buffer.space != "register"
    if not is_scaled or not isinstance(last, Cast) or last.dtype != I64 or not isinstance(last.value, Read):
        return load_element(state, one, buffer, load.subscripts)
    row = byte_offset(one, buffer, (*load.subscripts[:-1], int_const(0)))
    place = state.fn.convert("zext", state.evaluate(one, last.value), llvm_type(I64))
    text = f"getelementptr [{itemsize} x i8], {element_pointer(state, one, buffer, row)}, {place}"
    return vectors.load_scalar(state.fn, buffer.dtype, state.fn.pure(text, "ptr"), None, load.epoch)


def _load_pairs(state: State, ctx: Context, one: Context, load: _Load) -> list[dict[Read, Val]]:
    """The places of a lane (in the context `one`) and of the next one, as far as both come with one load of 64 bits or less.

    That takes two operations more and one access of memory less, of which there are too many beside vectors of many lanes."""
    fn, pairs = state.fn, (dict[Read, Val](), dict[Read, Val]())
    for read in dict.fromkeys(r for e in load.subscripts for r in reads(e)):
        buffer = state.by_name[read.tensor]
        size, bits = buffer.dtype.itemsize, buffer.dtype.bits
        split = split_lane(byte_offset(ctx, buffer, read.subscripts), ctx.lane)
        if split is None or constant_of(split[1]) != size or 2 * size > I64.itemsize:
            continue
        pointer = element_pointer(state, one, buffer, byte_offset(one, buffer, read.subscripts))
        both, epoch = replace(buffer.dtype, bits=2 * bits, unit=size), state.epoch(ctx, buffer.name, read.subscripts)
        wide = vectors.load_scalar(fn, both, pointer, None, epoch)
        for values, part in zip(pairs, (wide, fn.binary("lshr", wide, int_val(bits, wide.type))), strict=True):
            values[read] = fn.convert("trunc", part, f"i{bits}")
    return list(pairs)


def are_loaded_places(state: State, subscripts: Sequence[Expr], lane: str) -> bool:
    """Whether data names the elements along a lane: integers in memory, and what one instruction makes of them."""
    places = [r for e in subscripts for r in reads(e) if lane in index_names(r)]
    nodes = [n for e in subscripts for n in walk(e)]
    buffers = [state.by_name[r.tensor] for r in places]
    return (
        bool(places)
        and all(isinstance(n, (Index, Size, Const, Cast, Read)) or (isinstance(n, Call) and n.op in _OF_PLACES) for n in nodes)
        and all(b.dtype.is_integer and b.space != "register" for b in buffers)
    )


_OF_PLACES = frozenset(("add", "sub", "mul", "neg", "min", "max"))
"""What single integers are as fast as vectors of them, beside a load for each."""


def _or_other(state: State, mask: Val | None, value: Val, other: Val | None) -> Val:
    return value if mask is None or other is None else state.fn.select(mask, value, other)


# -- stores


def store_element(
    state: State, ctx: Context, buffer: Buffer, subscripts: tuple[Expr, ...], value: Val, streamed: bool = False
) -> None:
    """Store under the predicates of `ctx`; `streamed`: whole vectors past the caches."""
    fn, dtype = state.fn, buffer.dtype
    guard = eval_predicates(state, ctx)
    offset = byte_offset(ctx, buffer, subscripts)
    split = split_lane(offset, ctx.lane)
    step = None if split is None else constant_of(split[1])
    if buffer.space == "register" and split is not None and (guard[0] is not None or guard[1] is not None):
        # A blend instead of a masked store keeps the slot in registers.  Lanes that come round to others' cells keep the mask.
        both = fn.and_(*guard)
        assert both is not None
        old = load_element(state, replace(ctx, predicates=()), buffer, subscripts)
        value, guard = fn.select(both, value, old), (None, None)
    state.invalidate(ctx, buffer.name, subscripts)
    if split is not None and step == 0:
        assert value.lanes == 1, "a store of lane-varying values to one element is not vectorised"
        vectors.store_scalar(fn, dtype, element_pointer(state, ctx, buffer, split[0]), value, as_scalar(state, guard))
        return
    value, mask = fn.splat(value, ctx.lanes), as_mask(state, ctx, guard)
    if split is not None and step == dtype.itemsize:
        pointer = element_pointer(state, ctx, buffer, split[0])
        if streamed and mask is None:
            if state.parts_of_lines is None:
                vectors.store_streamed(fn, dtype, pointer, value)
            else:
                state.parts_of_lines.append((dtype, pointer, value))
        elif guard[1] is None and not state.target.has_masks:
            with fn.when(guard[0]):
                vectors.store_contiguous(fn, dtype, pointer, value, None)
        elif not _store_beside_streams(state, buffer, pointer, value, guard):
            pointer = vectors.pointer_or_spare(fn, guard[0], pointer) if state.target.has_masks else pointer
            vectors.store_contiguous(fn, dtype, pointer, value, mask)
    elif split is not None and step is not None and state.target.has_masks and shuffles.is_small_stride(dtype, step):
        pointer = element_pointer(state, ctx, buffer, split[0])
        shuffles.store_strided(fn, dtype, pointer, value, step // dtype.itemsize, mask)
    elif split is not None and step is not None and mask is None and not vectors.has_scatter(state.target, dtype):
        vectors.store_steps(fn, dtype, element_pointer(state, ctx, buffer, split[0]), value, step)
    else:
        vectors.store_lanes(fn, state.target, dtype, _lane_pointers(state, ctx, buffer, offset), value, mask)


def _store_beside_streams(state: State, buffer: Buffer, pointer: Val, value: Val, guard: Conditions) -> bool:
    """Store the first lanes of a vector of a result that is streamed elsewhere, without a mask; False for any other store.

    A masked store asks for all lines that its lanes reach into, and the one behind may just be on its way to memory (layer
    normalisation of 4096x1024 floats, 16 bytes off a line, AMD, Zen 4: 1.08 ms with masks, 0.75 without)."""
    scalar, mask = guard
    if buffer.name not in state.streamed or scalar is not None or mask is None or value.lanes & (value.lanes - 1):
        return False
    count = vectors.count_first_lanes(state.fn, mask)
    if count is None:
        return False
    if state.row_ends is None:
        store_row_ends(state, [(count, buffer.dtype, pointer, value)])
    else:
        state.row_ends.append((count, buffer.dtype, pointer, value))
    return True


def store_row_ends(state: State, found: Sequence[tuple[Val, DType, Val, Val]]) -> None:
    """Store the first lanes, as many as the first of each entry says, of vectors: together those of as many."""
    fn, groups = state.fn, dict[tuple[str, int], list[tuple[Val, DType, Val, Val]]]()
    for entry in found:
        groups.setdefault((entry[0].ref, entry[-1].lanes), []).append(entry)
    for (_, lanes), group in groups.items():
        is_whole = fn.compare("icmp sge", group[0][0], int_val(lanes))
        with fn.when(is_whole):
            for _, dtype, pointer, value in group:
                vectors.store_contiguous(fn, dtype, pointer, value, None)
        with fn.when(fn.not_(is_whole)):
            vectors.store_first_lanes(fn, [entry[1:] for entry in group], group[0][0])
