"""Values of expressions in a context: scalars where they do not depend on the lane, vectors where they do.

Reads are made under the predicates of the context; an arm of a `Select` is read under its condition, so nothing that the
program does not read is touched.  Reads that are made whatever the conditions say are not masked.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import assert_never

import numpy as np

from polyc.codegen.emission.arithmetic import emit_cast, emit_operator
from polyc.codegen.emission.context import WORKSPACES, Context, Predicate, State, byte_offset
from polyc.codegen.emission.extrema import emit_extrema, find_operands
from polyc.codegen.emission.held import Held, find_held
from polyc.codegen.emission.linear import (
    LANE,
    Linear,
    add_linear,
    as_linear,
    constant_of,
    index_names,
    scale_linear,
    split_lane,
)
from polyc.codegen.emission.lines import MINIMUM_SHARED, share_lines
from polyc.codegen.emission.repeats import find_runs, load_runs
from polyc.codegen.emission.tables import find_table, load_from_table
from polyc.codegen.emission.windows import find_phase
from polyc.codegen.writer import shuffles, vectors
from polyc.codegen.writer.builder import Val, float_val, int_val, llvm_type, vector_const
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, children, evaluate, int_const, reads, type_of
from polyc.ir.halves import narrow_bits
from polyc.ir.loops import Buffer
from polyc.ir.types import I64

_AFFINE = frozenset(("add", "sub", "mul", "neg"))
_ORDER = frozenset(("lt", "le", "gt", "ge"))
_NOTHING: frozenset[Read] = frozenset()


def eval_expr(state: State, ctx: Context, expr: Expr) -> Val:
    """The value of `expr`: one lane, or `ctx.lanes`."""
    match expr:
        case Const(value, dtype):
            if dtype.is_storage:
                return int_val(int(narrow_bits(np.float32(value), dtype)[0]), llvm_type(dtype))
            return float_val(float(value), llvm_type(dtype)) if dtype.is_float else int_val(int(value), llvm_type(dtype))
        case Index() | Size():
            return _eval_linear(state, ctx, as_linear(expr, ctx.env, ctx.lane))
        case Read():
            return eval_read(state, ctx, expr)
        case Pad():
            return _eval_pad(state, ctx, expr)
        case Select():
            return _eval_select(state, ctx, expr)
        case Cast(value, dtype):
            source = type_of(value, state.types)
            return emit_cast(state.fn, state.target, eval_expr(state, ctx, value), source, dtype)
        case Call(op, args):
            if _is_index_arithmetic(expr):
                return _eval_linear(state, ctx, as_linear(expr, ctx.env, ctx.lane))
            if op in _ORDER and all(_is_index_bound(a) for a in args):
                return _eval_order(state, ctx, op, args[0], args[1])
            dtype = type_of(args[0], state.types)
            if op in ("max", "min") and dtype.is_float and (operands := find_operands(expr)) is not None:
                values = {a: eval_expr(state, ctx, a) for a in operands}
                return emit_extrema(state.fn, state.target, expr, values)
            return emit_operator(state.fn, state.target, op, [eval_expr(state, ctx, a) for a in args], dtype)
        case _:
            assert_never(expr)


def _is_index_arithmetic(expr: Expr) -> bool:
    match expr:
        case Index() | Size():
            return True
        case Const(_, dtype):
            return dtype == I64
        case Call(op, args):
            return op in _AFFINE and all(_is_index_arithmetic(a) for a in args)
        case _:
            return False


def _is_index_bound(expr: Expr) -> bool:
    """Index arithmetic, or the least or greatest of such, as ends of loops are."""
    return _is_index_arithmetic(expr) or (
        isinstance(expr, Call) and expr.op in ("min", "max") and all(_is_index_bound(a) for a in expr.args)
    )


def _eval_linear(state: State, ctx: Context, linear: Linear) -> Val:
    """The i64 value of a linear form."""
    split = split_lane(linear, ctx.lane)
    if split is None:
        return _sum_terms(state, ctx, linear)
    uniform, coefficient = split
    if not coefficient:
        return _uniform_value(state, ctx, uniform)
    step = state.fn.splat(_uniform_value(state, ctx, coefficient), ctx.lanes)
    lanes = vectors.lane_numbers(ctx.lanes)
    spread = lanes if constant_of(coefficient) == 1 else state.fn.binary("mul", lanes, step)
    return state.fn.binary("add", _uniform_value(state, ctx, uniform), spread)


def _uniform_value(state: State, ctx: Context, linear: Linear) -> Val:
    total: Val | None = None
    for part in _by_depth(ctx, linear):
        value = _sum_terms(state, ctx, part)
        total = value if total is None else state.fn.binary("add", total, value)
    return int_val(0) if total is None else total


def _by_depth(ctx: Context, linear: Linear) -> list[Linear]:
    """Terms by the innermost variable they depend on, outermost first, the constant last.

    Added up in this order, what does not change in a loop is one value that LLVM hoists out of it.  Terms of sizes alone tell
    the rows of a tile apart: they stand just before the innermost variable, so that rows share what is in front of it, unless
    that is a single sum, behind which LLVM runs out of registers for rows of few vectors."""
    depth = {name: number for number, name in enumerate(ctx.env)}
    groups: dict[int, Linear] = {}
    for atoms, c in linear.items():
        inner = -1 if atoms else len(depth)
        for atom in atoms:
            if isinstance(atom, Index):
                inner = max(inner, depth[atom.name])
            elif not isinstance(atom, Size):
                inner = max(inner, *(depth[name] for name in index_names(atom)), -1)
        groups.setdefault(inner, {})[atoms] = c
    order = sorted(groups)
    variables = [key for key in order if 0 <= key < len(depth)]
    if -1 in groups and len(variables) > 2:
        order = [*variables[:-1], -1, *order[order.index(variables[-1]) :]]
    return [groups[key] for key in order]


def _sum_terms(state: State, ctx: Context, linear: Linear) -> Val:
    total: Val | None = None
    for atoms, c in linear.items():
        value: Val | None = None
        for atom in atoms:
            one = _atom_value(state, ctx, atom)
            value = one if value is None else state.fn.binary("mul", value, one)
        if value is None:
            value = int_val(c)
        elif c != 1:
            value = state.fn.binary("mul", value, int_val(c))
        total = value if total is None else state.fn.binary("add", total, value)
    assert total is not None
    return total


def _atom_value(state: State, ctx: Context, atom: Expr) -> Val:
    if isinstance(atom, Index):
        if atom is LANE:
            return vectors.lane_numbers(ctx.lanes)
        bound = ctx.env[atom.name]
        assert isinstance(bound, Val)
        return bound
    if isinstance(atom, Size):
        return state.params[atom.name]
    return eval_expr(state, ctx, atom)


def _eval_order(state: State, ctx: Context, op: str, a: Expr, b: Expr) -> Val:
    """A comparison of index arithmetic; along the lanes it is a prefix or a suffix, one compare of narrow lane numbers."""
    fn = state.fn
    left, right = as_linear(a, ctx.env, ctx.lane), as_linear(b, ctx.env, ctx.lane)
    if op in ("gt", "ge"):
        left, right = right, left
    difference = add_linear(left, scale_linear(right, -1))  # a < b is: difference < 0
    if op in ("le", "ge"):
        difference = add_linear(difference, {(): -1})
    split = split_lane(difference, ctx.lane)
    if split is None:
        return fn.compare("icmp slt", _eval_linear(state, ctx, difference), int_val(0))
    uniform, coefficient = split
    slope = constant_of(coefficient)
    known = constant_of(uniform)
    if slope == 0:
        if known is not None:
            return int_val(known < 0, "i1")
        negative = {atoms: -c for atoms, c in uniform.items() if c < 0 and atoms}
        positive = {atoms: c for atoms, c in uniform.items() if c >= 0 or not atoms}
        return fn.compare("icmp slt", _uniform_value(state, ctx, positive), _uniform_value(state, ctx, negative))
    if known is not None and slope is not None:
        active = [int(known + slope * lane < 0) for lane in range(ctx.lanes)]
        return int_val(active[0], "i1") if len(set(active)) == 1 else vector_const(active, "i1")
    if slope == 1:  # lane < -uniform
        if known is not None and -known >= ctx.lanes:
            return int_val(1, "i1")
        count = _uniform_value(state, ctx, scale_linear(uniform, -1))
        return vectors.first_lanes(fn, state.target, count, ctx.lanes)
    if slope == -1:  # lane > uniform, that is, not lane < uniform + 1
        count = _uniform_value(state, ctx, add_linear(uniform, {(): 1}))
        return vectors.last_lanes(fn, state.target, count, ctx.lanes)
    return fn.compare("icmp slt", _eval_linear(state, ctx, difference), int_val(0))


# -- predicates


def eval_predicates(state: State, ctx: Context, names: set[str] | None = None) -> tuple[Val | None, Val | None]:
    """What an access that depends on the variables `names` must be guarded with: a scalar condition and a mask."""
    scalar: Val | None = None
    mask: Val | None = None
    if not ctx.predicates:
        return None, None
    outer = replace(ctx, predicates=())
    for p in ctx.predicates:
        if p.branched:
            continue
        if isinstance(p.condition, Val):
            value = p.condition
        elif names is not None and p.variable is not None and p.variable not in names:
            if p.first is None:
                continue
            value = eval_expr(state, _at_first(outer, p.variable, p.first), p.condition)
        else:
            value = eval_expr(state, outer, p.condition)
        if value.ref == "true":
            continue
        if value.lanes == 1:
            scalar = state.fn.and_(scalar, value)
        else:
            mask = state.fn.and_(mask, value)
    return scalar, mask


def _at_first(ctx: Context, variable: str, first: Expr) -> Context:
    inner = replace(ctx, env={**ctx.env, variable: evaluate(first, {}) if isinstance(first, Const) else first})
    return replace(inner, lane=None, lanes=1) if ctx.lane == variable else inner


def as_scalar(state: State, guard: tuple[Val | None, Val | None]) -> Val | None:
    """The guard of something that is the same in all lanes: some lane wants it."""
    scalar, mask = guard
    return state.fn.and_(scalar, None if mask is None else vectors.is_any(state.fn, mask))


def as_mask(state: State, ctx: Context, guard: tuple[Val | None, Val | None]) -> Val | None:
    both = state.fn.and_(*guard)
    return None if both is None else state.fn.splat(both, ctx.lanes)


def _chosen_for_all(state: State, ctx: Context, guard: tuple[Val | None, Val | None]) -> Val | None:
    """What the choices between values that `guard` is made of ask of all lanes alike; None where they ask nothing."""
    if guard == (None, None) or ctx.lane is None:
        return None
    outer, found = replace(ctx, predicates=()), None
    for p in ctx.predicates:
        if p.branched or p.source is None or not isinstance(p.condition, Val):
            continue
        for term in _conjuncts(p.source):
            if ctx.lane not in index_names(term) and not reads(term):
                value = eval_expr(state, outer, term)
                found = found if value.lanes > 1 or value.ref == "true" else state.fn.and_(found, value)
    return found


def _conjuncts(condition: Expr) -> list[Expr]:
    """Conditions that hold together where `condition` does."""
    match condition:
        case Call("and", parts):
            return [term for part in parts for term in _conjuncts(part)]
        case Call("not", (Call("or", parts),)):
            return [term for part in parts for term in _conjuncts(Call("not", (part,)))]
    return [condition]


# -- memory


def certain_reads(expr: Expr) -> frozenset[Read]:
    """Reads made whatever the conditions in `expr` say."""
    match expr:
        case Const() | Index() | Size():
            return _NOTHING
        case Read():
            return _NOTHING.union((expr,), *map(certain_reads, expr.subscripts))
        case Pad():
            return _NOTHING.union(*map(certain_reads, expr.read.subscripts))
        case Select():
            both = certain_reads(expr.then) & certain_reads(expr.other)
            return certain_reads(expr.condition) | both
        case _:
            return _NOTHING.union(*map(certain_reads, children(expr)))


def eval_value(state: State, ctx: Context, expr: Expr, target: tuple[Buffer, Expr] | None = None) -> Val:
    """The value of a statement's expression: reads are shared within it.  `target`: the buffer that it is stored to, and the
    last subscript."""
    ctx = ctx.for_values()
    state.memo = [{}]
    state.certain = certain_reads(expr)
    state.statement_context = ctx
    _share_neighbours(state, ctx, target)
    value = eval_expr(state, ctx, expr)
    state.certain = frozenset()
    state.memo = [{}]
    return value


def _share_neighbours(state: State, ctx: Context, target: tuple[Buffer, Expr] | None) -> None:
    """Vectors that overlap along memory are put together from few loads."""
    if ctx.lane is None or not state.target.has_masks or ctx.lanes < 2:
        return
    near: list[Read] = []
    for read in state.certain:
        buffer = state.by_name[read.tensor]
        itemsize = buffer.dtype.itemsize
        if itemsize < MINIMUM_SHARED or itemsize * ctx.lanes < state.target.cache_line or buffer.space == "register":
            continue
        if read not in state.blocks and not any(reads(e) for e in read.subscripts):
            near.append(read)
    if len(near) > 1 and eval_predicates(state, ctx) == (None, None):
        near.sort(key=str)
        found = [(read, byte_offset(ctx, state.by_name[read.tensor], read.subscripts)) for read in near]
        state.memo[0].update(share_lines(state, ctx, found, target, lambda read: eval_read(state, ctx, read)))


def eval_read(state: State, ctx: Context, read: Read, other: Val | None = None) -> Val:
    is_certain = read in state.certain
    if is_certain:
        ctx = replace(ctx, predicates=state.statement_context.predicates)
        other = None
    if state.blocks and read in state.blocks:
        variable, columns = state.blocks[read]
        copy = ctx.env[variable]
        assert isinstance(copy, int)
        return columns[copy]
    for values in state.memo:
        if values and (known := values.get(read)) is not None:
            return known
    value = load_element(state, ctx, state.by_name[read.tensor], read.subscripts, other)
    state.memo[0 if is_certain else -1][read] = value
    return value


def buffer_base(state: State, buffer: Buffer) -> Val:
    if buffer.name not in state.buffers:
        assert buffer.space == "register"
        size = buffer.dtype.itemsize
        for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
            size += max(0, evaluate(extent, {}) - 1) * evaluate(stride, {})
        # Room for a last vector that sticks out; LLVM splits the slot into registers, so it costs nothing.
        state.buffers[buffer.name] = state.fn.alloca(f"[{size + 512} x i8]", 64)
    return state.buffers[buffer.name]


def element_pointer(state: State, ctx: Context, buffer: Buffer, uniform: Linear) -> Val:
    pointer = buffer_base(state, buffer)
    for part in _by_depth(ctx, uniform):
        pointer = vectors.offset_pointer(state.fn, pointer, _sum_terms(state, ctx, part))
    return pointer


def lane_pointers(state: State, ctx: Context, buffer: Buffer, offset: Linear) -> Val:
    """Addresses of the lanes, whatever the subscripts are."""
    lane = ctx.lane
    assert lane is not None
    varying = {t: c for t, c in offset.items() if any(a is LANE or lane in index_names(a) - _own_name(a) for a in t)}
    base = element_pointer(state, ctx, buffer, {t: c for t, c in offset.items() if t not in varying})
    return vectors.offset_pointer(state.fn, base, state.fn.splat(_sum_terms(state, ctx, varying), ctx.lanes))


def _own_name(atom: Expr) -> set[str]:
    return {atom.name} if isinstance(atom, Index) else set()


def load_element(state: State, ctx: Context, buffer: Buffer, subscripts: tuple[Expr, ...], other: Val | None = None) -> Val:
    """The element under the predicates of `ctx`; where they fail nothing is read and the value is `other` or 0."""
    fn, dtype = state.fn, buffer.dtype
    names = set().union(*(index_names(s) for s in subscripts)) if subscripts else set()
    if ctx.has_loose_lanes and buffer.space in WORKSPACES and dtype.is_float and not state.target.has_masks:
        names -= {ctx.lane}  # without masks a guarded lane costs a branch, and the memory is there
    guard = eval_predicates(state, ctx, names)
    if buffer.space == "register":
        guard = (None, None)  # the whole slot exists
        ctx = ctx if ctx.exact is None else replace(ctx, env=ctx.exact)
    offset = byte_offset(ctx, buffer, subscripts)
    split = split_lane(offset, ctx.lane)
    epoch = state.epoch(ctx, buffer.name, subscripts)
    if split is not None:
        uniform, coefficient = split
        step = constant_of(coefficient)
        if step == 0:
            pointer = element_pointer(state, ctx, buffer, uniform)
            condition = as_scalar(state, guard)
            if other is not None and other.lanes > 1:
                value = vectors.load_scalar(fn, dtype, pointer, condition, epoch)
                mask = as_mask(state, ctx, guard)
                return value if mask is None else fn.select(mask, value, other)
            return vectors.load_scalar(fn, dtype, pointer, condition, epoch, other)
        if step is not None and abs(step) == dtype.itemsize:
            pointer = element_pointer(state, ctx, buffer, uniform)
            pointer = vectors.pointer_or_spare(fn, _chosen_for_all(state, ctx, guard), pointer)
            load = vectors.load_contiguous if step > 0 else vectors.load_reversed
            return load(fn, dtype, pointer, ctx.lanes, as_mask(state, ctx, guard), epoch, other)
        if step is not None and shuffles.is_small_stride(state.target, dtype, step, guard != (None, None)):
            pointer, mask = element_pointer(state, ctx, buffer, uniform), as_mask(state, ctx, guard)
            pointer = vectors.pointer_or_spare(fn, _chosen_for_all(state, ctx, guard), pointer)
            stride = step // dtype.itemsize
            phase = None
            if stride > 1 and buffer.space != "register":
                phase = find_phase(state, ctx, Read(buffer.name, subscripts), stride, lambda c, e: _holds(state, c, e))
            if phase is not None:
                first = vectors.offset_pointer(fn, pointer, -phase * dtype.itemsize)
                value = shuffles.load_interleaved(fn, state.target, dtype, first, ctx.lanes, stride, mask, epoch)[phase]
                return value if mask is None or other is None else fn.select(mask, value, other)
            return shuffles.load_strided(fn, state.target, dtype, pointer, ctx.lanes, stride, mask, epoch, other)
        if step is not None and guard == (None, None) and dtype.itemsize >= 4:
            pointer = element_pointer(state, ctx, buffer, uniform)
            return vectors.load_steps(fn, dtype, pointer, ctx.lanes, step, epoch)
    repeated = find_runs(ctx, offset, dtype.itemsize) if split is None else None
    if repeated is not None:
        uniform, runs = repeated
        start = _uniform_value(state, ctx, runs.inside)
        number = emit_operator(fn, state.target, "floordiv", [start, int_val(runs.length)], I64)
        bytes = fn.binary("mul", number, int_val(dtype.itemsize))
        first = vectors.offset_pointer(fn, element_pointer(state, ctx, buffer, uniform), bytes)
        mask = as_mask(state, ctx, guard)
        loaded = load_runs(state, ctx, buffer, first, start, runs, mask)
        if loaded is not None:
            return loaded if mask is None or other is None else fn.select(mask, loaded, other)
    held = find_held(ctx, buffer, subscripts) if split is None and state.target.has_masks else None
    if held is not None:
        return _load_held(state, ctx, buffer, held, guard, epoch, other)
    table = find_table(state.target, buffer, subscripts, ctx.lane, ctx.lanes) if split is None else None
    if table is not None:
        d, place, size = table
        origin = tuple(int_const(0) if n == d else e for n, e in enumerate(subscripts))
        row, at = split_lane(byte_offset(ctx, buffer, origin), ctx.lane), eval_expr(state, ctx, place)
        if row is not None and constant_of(row[1]) == 0 and at.lanes == ctx.lanes:
            mask = as_mask(state, ctx, guard)
            somewhere = as_scalar(state, guard)
            value = load_from_table(fn, dtype, element_pointer(state, ctx, buffer, row[0]), at, size, epoch, somewhere)
            return value if mask is None or other is None else fn.select(mask, value, other)
    pointers = lane_pointers(state, ctx, buffer, offset)
    return vectors.load_lanes(fn, state.target, dtype, pointers, as_mask(state, ctx, guard), epoch, other)


def _load_held(
    state: State, ctx: Context, buffer: Buffer, held: Held, guard: tuple[Val | None, Val | None], epoch: str, other: Val | None
) -> Val:
    """One load of the lanes that lie between the ends; the others have the element of their end."""
    fn, dtype = state.fn, buffer.dtype
    somewhere = as_scalar(state, guard)
    low, high = (
        fn.splat(vectors.load_scalar(fn, dtype, element_pointer(state, ctx, buffer, end), somewhere, epoch), ctx.lanes)
        for end in held.ends
    )
    # A place may be the least integer; from one that lies all lanes below, distances do not overflow.
    place = fn.intrinsic("smax", _uniform_value(state, ctx, held.place), int_val(held.lower - ctx.lanes))
    before = fn.binary("sub", int_val(held.lower), place)
    within = fn.binary("sub", int_val(held.upper + 1), place)
    is_low = vectors.first_lanes(fn, state.target, before, ctx.lanes)
    is_high = vectors.last_lanes(fn, state.target, within, ctx.lanes)
    mask = as_mask(state, ctx, guard)
    inside = fn.not_(fn.binary("or", is_low, is_high))
    wanted = fn.and_(mask, inside)
    assert wanted is not None
    pointer = element_pointer(state, ctx, buffer, held.first)
    value = vectors.load_contiguous(fn, dtype, pointer, ctx.lanes, wanted, epoch, fn.select(is_low, low, high))
    return value if mask is None or other is None else fn.select(mask, value, other)


def _holds(state: State, ctx: Context, test: Expr) -> bool:
    return eval_expr(state, replace(ctx, predicates=()), test).ref == "true"


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
            vectors.store_streamed(fn, dtype, pointer, value)
        else:
            pointer = vectors.pointer_or_spare(fn, guard[0], pointer) if state.target.has_masks else pointer
            vectors.store_contiguous(fn, dtype, pointer, value, mask)
    elif split is not None and step is not None and shuffles.is_small_stride(state.target, dtype, step, True):
        pointer = element_pointer(state, ctx, buffer, split[0])
        shuffles.store_strided(fn, dtype, pointer, value, step // dtype.itemsize, mask)
    else:
        vectors.store_lanes(fn, state.target, dtype, lane_pointers(state, ctx, buffer, offset), value, mask)


# -- conditional values


def _arm(state: State, ctx: Context, expr: Expr, condition: Val, source: Expr | None = None) -> Val:
    state.memo.append({})
    value = eval_expr(state, ctx.under(Predicate(condition, source=source)), expr)
    state.memo.pop()
    return value


def _eval_select(state: State, ctx: Context, expr: Select) -> Val:
    condition = eval_expr(state, ctx, expr.condition)
    opposite = Call("not", (expr.condition,))
    if isinstance(expr.then, Read):
        other = _arm(state, ctx, expr.other, state.fn.not_(condition), opposite)
        return _read_or(state, ctx, expr.then, Predicate(condition, source=expr.condition), other)
    then = _arm(state, ctx, expr.then, condition, expr.condition)
    other = _arm(state, ctx, expr.other, state.fn.not_(condition), opposite)
    return state.fn.select(condition, then, other)


def _read_or(state: State, ctx: Context, read: Read, where: Predicate, other: Val) -> Val:
    """What is read where a value holds, else `other`: one masked load, unless others have read it anyway."""
    condition, buffer = where.condition, state.by_name[read.tensor]
    assert isinstance(condition, Val)
    if read in state.certain or read in state.blocks or any(read in known for known in state.memo):
        return state.fn.select(condition, eval_read(state, ctx, read), other)
    state.memo.append({})  # what its subscripts read is read under the condition, too
    value = load_element(state, ctx.under(where), buffer, read.subscripts, other)
    state.memo.pop()
    if buffer.space == "register" or value.lanes < max(condition.lanes, other.lanes):
        return state.fn.select(condition, value, other)
    return value


def _eval_pad(state: State, ctx: Context, expr: Pad) -> Val:
    buffer = state.by_name[expr.read.tensor]
    inside: Val | None = None
    tests: list[Expr] = []
    for subscript, extent in zip(expr.read.subscripts, buffer.shape, strict=True):
        for test in (Call("le", (Const(0), subscript)), Call("lt", (subscript, extent))):
            value = eval_expr(state, ctx, test)
            tests.append(test)
            if value.ref != "true":
                inside = state.fn.and_(inside, value)
    if inside is None:
        return eval_read(state, ctx, expr.read)
    within = Predicate(inside, source=reduce(lambda a, b: Call("and", (a, b)), tests))
    return _read_or(state, ctx, expr.read, within, _arm(state, ctx, expr.value, state.fn.not_(inside)))
