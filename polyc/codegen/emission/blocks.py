"""Blocks of lanes and unrolled copies that lie across memory: rows are accessed whole and transposed in registers.

In ``vector j { unroll k { P[k, j] = B[j, k] } }`` every copy reads B with a large stride between its lanes, but all copies
together read a few consecutive elements per lane.  The rows are loaded before the copies are written.

Arrays begin 16 bytes off a line (NumPy's) as often as not, and each second wide load of a row then crosses lines.  What comes
from memory to be put together near by is loaded by units of 16 bytes, which is also half of the transpose (AMD, Zen 4, a busy
machine: `abcde → dbeac` 3.1 → 2.8 ms, 32×64×56×56 to channels last 1.68 → 1.33).  Where rows meet in few sets of the
first-level cache, lines would be gone between two units; where vectors go to memory at once, each load of a line that is still
on its way takes a buffer from them.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyc.code_limits import MAX_STRIDE, MINIMUM_LANES
from polyc.codegen.emission.accesses import element_pointer, store_element
from polyc.codegen.emission.context import Context, State, byte_offset
from polyc.codegen.emission.expressions import certain_reads, eval_value
from polyc.codegen.emission.linear import LANE, Linear, add_linear, constant_of, index_names, scale_linear, split_lane
from polyc.codegen.emission.predicates import as_mask, eval_predicates
from polyc.codegen.writer import shuffles, vectors
from polyc.codegen.writer.builder import Val, int_val
from polyc.ir.expr import Expr, Index, Read, int_const, reads
from polyc.ir.loops import Buffer, Loop, Node, Store, Update
from polyc.ir.types import DType
from polyc.records import dataclass, replace


def load_blocks(state: State, ctx: Context, loop: Loop, copies: int) -> dict[Read, tuple[str, list[Val]]]:
    """Reads of the body of an unrolled loop in a vector loop, with their value in every copy (before the first of them)."""
    if ctx.lane is None or copies < 2 or ctx.lanes & (ctx.lanes - 1) or loop.kind != "unroll":
        return {}
    bound = ctx.bind(loop.var, Val("%", "i64"))
    found = {read: linear for read in _block_reads(state, loop) if (linear := _across(state, bound, loop.var, read))}
    if not found:
        return {}
    guard = eval_predicates(state, ctx)
    if guard[0] is not None:
        return {}
    mask = as_mask(state, ctx, guard)
    is_put_near = all(isinstance(n, Store) and state.by_name[n.buffer].space == "thread" for n in loop.body)
    result: dict[Read, tuple[str, list[Val]]] = {}
    for read, (uniform, step) in found.items():
        buffer = state.by_name[read.tensor]
        rows = [element_pointer(state, ctx, buffer, add_linear(uniform, scale_linear(step, lane))) for lane in range(ctx.lanes)]
        epoch = state.epoch(ctx, buffer.name, ())
        apart = constant_of(step)
        in_units = (
            is_put_near and buffer.space == "argument" and apart is not None and not state.target.conflicts(ctx.lanes, apart)
        )
        columns = shuffles.load_columns(state.fn, state.target, buffer.dtype, rows, copies, mask, epoch, in_units)
        result[read] = loop.var, columns
    return result


def _block_reads(state: State, loop: Loop) -> Iterator[Read]:
    """Reads that every copy makes, of memory that no copy writes."""
    written: set[str] = set()
    for node in loop.body:
        if not isinstance(node, (Store, Update)):
            return
        written |= {node.buffer, *state.by_name[node.buffer].may_alias}
    for node in loop.body:
        assert isinstance(node, (Store, Update))
        for read in sorted(certain_reads(node.value), key=repr):
            buffer = state.by_name[read.tensor]
            if buffer.space != "register" and read.tensor not in written and not any(reads(s) for s in read.subscripts):
                yield read


def _across(state: State, ctx: Context, variable: str, read: Read) -> tuple[Linear, Linear] | None:
    """Offset of lane 0 in the first copy and bytes from lane to lane, if the copies are neighbours and the lanes are not."""
    buffer = state.by_name[read.tensor]
    split = split_lane(byte_offset(ctx, buffer, read.subscripts), ctx.lane)
    if split is None:
        return None
    uniform, step = dict(split[0]), split[1]
    size = buffer.dtype.itemsize
    if uniform.pop((Index(variable),), 0) != size or _mentions(uniform, variable) or _mentions(step, variable):
        return None
    known = constant_of(step)
    if known is not None and abs(known) <= MAX_STRIDE * size:
        return None
    return uniform, step


def _mentions(linear: Linear, variable: str) -> bool:
    return any(variable in index_names(atom) for atoms in linear for atom in atoms)


# -- stores


def store_interleaved(state: State, ctx: Context, loop: Loop, copies: int) -> bool:
    """Emit an unrolled loop around one store whose copies fill what lies between the lanes: whole vectors side by side.

    False, and nothing is emitted, where it is anything else."""
    if ctx.lane is None or loop.kind != "unroll" or loop.lower != int_const(0) or not 2 <= copies <= MAX_STRIDE:
        return False
    match loop.body:
        case (Store() as store,):
            buffer, fn = state.by_name[store.buffer], state.fn
        case _:
            return False
    size = buffer.dtype.itemsize
    split = split_lane(byte_offset(ctx.bind(loop.var, Val("%", "i64")), buffer, store.subscripts), ctx.lane)
    if buffer.space == "register" or split is None or constant_of(split[1]) != copies * size:
        return False
    first = dict(split[0])
    if first.pop((Index(loop.var),), 0) != size or _mentions(first, loop.var):
        return False
    used = {r.tensor for r in reads(store.value)}
    if used & {store.buffer, *buffer.may_alias}:
        return False
    scalar, mask = eval_predicates(state, ctx)
    count = None if mask is None else vectors.prefix_count(fn, mask)
    if scalar is not None or (mask is not None and (count is None or not state.target.has_masks)):
        return False
    values = [
        fn.splat(eval_value(state, ctx.bind(loop.var, copy).copies(loop.var, range(copies)), store.value), ctx.lanes)
        for copy in range(copies)
    ]
    state.invalidate(ctx, buffer.name, ())
    pointer = element_pointer(state, ctx, buffer, first)
    for number, part in enumerate(shuffles.interleave(fn, values)):
        own = None
        if count is not None:
            left = fn.binary("sub", fn.binary("mul", count, int_val(copies)), int_val(number * ctx.lanes))
            own = vectors.first_lanes(fn, state.target, left, ctx.lanes)
        place = vectors.offset_pointer(fn, pointer, number * ctx.lanes * size)
        vectors.store_contiguous(fn, buffer.dtype, place, part, own)
    return True


@dataclass(frozen=True, slots=True)
class Result:
    """A vector to be stored: where, under which context, and its value."""

    context: Context
    buffer: Buffer
    subscripts: tuple[Expr, ...]
    value: Val


def find_rows(state: State, ctx: Context, body: tuple[Node, ...]) -> list[Store]:
    """The stores that `body` begins with, where several fill rows that each lane has of its own; none where one could read what
    another one writes."""
    first = body[0]
    if ctx.lane is None or ctx.lanes & (ctx.lanes - 1) or not isinstance(first, Store):
        return []
    buffer = state.by_name[first.buffer]
    near = {buffer.name, *buffer.may_alias, *(b.name for b in state.nest.buffers if buffer.name in b.may_alias)}
    size, found = buffer.dtype.itemsize, dict[int, Store]()
    start: Linear = {}
    for node in body[: state.target.lanes(size)]:
        if not isinstance(node, Store) or node.buffer != first.buffer or node.streamed:
            break
        split = split_lane(byte_offset(ctx, buffer, node.subscripts), ctx.lane)
        step = None if split is None else constant_of(split[1])
        if split is None or step is None or abs(step) <= MAX_STRIDE * size:
            break
        place = split[0].get((), 0)
        varying = {**split[0], (): 0, (LANE,): step}
        if any(r.tensor in near for r in reads(node.value)) or place in found or (start and varying != start):
            break
        start = varying
        found[place] = node
    is_row = len(found) >= MINIMUM_LANES and any(place + size in found for place in found)
    return list(found.values()) if is_row and buffer.space != "register" else []


def emit_rows(state: State, ctx: Context, stores: list[Store]) -> None:
    """Emit stores that `find_rows` has found: all of their values, then a row for each lane."""
    results = [Result(ctx, state.by_name[node.buffer], node.subscripts, eval_value(state, ctx, node.value)) for node in stores]
    store_results(state, results)


@dataclass(slots=True)
class _Column:
    result: Result
    place: int
    """Constant part of the offset, in bytes."""
    uniform: Linear
    step: Linear
    condition: Val | None
    mask: Val | None


def store_results(state: State, results: list[Result]) -> None:
    """Store vectors; those that are neighbours in memory, each with its lanes far apart, go out as rows of a block.

    The results are different elements: their order is free."""
    groups: dict[object, list[_Column]] = {}
    others: list[Result] = []
    for result in results:
        column = _make_column(state, result)
        if column is None:
            others.append(result)
            continue
        varying = frozenset((atoms, c) for atoms, c in column.uniform.items() if atoms)
        scalar = None if state.target.has_masks else column.condition
        key = (result.buffer.name, result.context.lane, varying, frozenset(column.step.items()), scalar, column.mask)
        groups.setdefault(key, []).append(column)
    for columns in groups.values():
        for run in _neighbours(columns):
            if len(run) < 2:
                for column in run:
                    r = column.result
                    store_element(state, r.context, r.buffer, r.subscripts, r.value)
            else:
                _store_run(state, run)
    _store_whole_vectors(state, others)


def _store_whole_vectors(state: State, results: list[Result]) -> None:
    """Store vectors one by one; where masks are vectors, without a mask where all lanes are wanted: masked stores of AVX2 take
    some processors a dozen cycles each, and SSE has none."""
    fn, groups = state.fn, dict[str, tuple[Val, list[Result]]]()
    for result in results:
        ctx = result.context
        mask = eval_predicates(state, ctx)[1]
        lanes = None if mask is None or state.target.has_masks else vectors.count_first_lanes(fn, mask)
        if lanes is None or result.buffer.space == "register":
            store_element(state, ctx, result.buffer, result.subscripts, result.value)
        else:
            groups.setdefault(lanes.ref, (lanes, []))[1].append(result)
    for lanes, group in groups.values():
        is_whole = fn.compare("icmp sge", lanes, int_val(group[0].context.lanes))
        with fn.when(is_whole):
            for r in group:
                ctx = replace(r.context, predicates=tuple(p for p in r.context.predicates if p.variable != r.context.lane))
                store_element(state, ctx, r.buffer, r.subscripts, r.value)
        with fn.when(fn.not_(is_whole)):
            _store_first_lanes(state, group, lanes)


def _store_first_lanes(state: State, group: list[Result], count: Val) -> None:
    """Store the first lanes of vectors that have as many, and that no other condition keeps from it; others under masks."""
    free = list[tuple[DType, Val, Val]]()
    for r in group:
        ctx, lanes = r.context, r.context.lanes
        split = split_lane(byte_offset(ctx, r.buffer, r.subscripts), ctx.lane)
        is_next = split is not None and constant_of(split[1]) == r.buffer.dtype.itemsize
        if split is not None and is_next and lanes & (lanes - 1) == 0 and eval_predicates(state, ctx)[0] is None:
            state.invalidate(ctx, r.buffer.name, r.subscripts)
            pointer = element_pointer(state, ctx, r.buffer, split[0])
            free.append((r.buffer.dtype, pointer, state.fn.splat(r.value, lanes)))
        else:
            store_element(state, ctx, r.buffer, r.subscripts, r.value)
    if free:
        vectors.store_first_lanes(state.fn, free, count)


def _make_column(state: State, result: Result) -> _Column | None:
    ctx, buffer = result.context, result.buffer
    if ctx.lane is None or buffer.space == "register" or ctx.lanes & (ctx.lanes - 1):
        return None
    split = split_lane(byte_offset(ctx, buffer, result.subscripts), ctx.lane)
    if split is None:
        return None
    step = constant_of(split[1])
    if step is not None and abs(step) <= buffer.dtype.itemsize:
        return None
    scalar, mask = eval_predicates(state, ctx)
    return _Column(result, split[0].get((), 0), split[0], split[1], scalar, mask)


def _neighbours(columns: list[_Column]) -> Iterator[list[_Column]]:
    """Runs of columns that follow each other in memory."""
    run: list[_Column] = []
    for column in sorted(columns, key=lambda c: c.place):
        if run and column.place != run[-1].place + column.result.buffer.dtype.itemsize:
            yield run
            run = []
        run.append(column)
    yield run


def _store_run(state: State, run: list[_Column]) -> None:
    fn, first = state.fn, run[0]
    ctx, buffer = first.result.context, first.result.buffer
    state.invalidate(ctx, buffer.name, ())
    rows = [
        element_pointer(state, ctx, buffer, add_linear(first.uniform, scale_linear(first.step, lane)))
        for lane in range(ctx.lanes)
    ]
    values = [fn.splat(c.result.value, ctx.lanes) for c in run]
    if state.target.has_masks:
        conditions, common = [c.condition for c in run], None
    else:
        conditions, common = [None] * len(run), first.condition
    with fn.when(common):
        shuffles.store_rows(fn, state.target, buffer.dtype, rows, values, first.mask, conditions)
