"""Values of expressions in a context: scalars where they do not depend on the lane, vectors where they do.

Reads are made under the predicates of the context; an arm of a `Select` is read under its condition, so nothing that the
program does not read is touched.  Reads that are made whatever the conditions say are not masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, reduce
from typing import assert_never

import numpy as np

from polyc.code_limits import WORD
from polyc.codegen.emission.accesses import load_element
from polyc.codegen.emission.arithmetic import emit_cast, emit_operator
from polyc.codegen.emission.context import Context, Predicate, State, byte_offset
from polyc.codegen.emission.extrema import emit_extrema, find_operands
from polyc.codegen.emission.index_values import compare_indices, eval_linear, is_index_arithmetic, is_index_bound
from polyc.codegen.emission.linear import as_linear
from polyc.codegen.emission.lines import share_lines
from polyc.codegen.emission.predicates import eval_predicates
from polyc.codegen.emission.quotients import emit_quotient, multiply_parts
from polyc.codegen.functions.floats import F32, F64, Math
from polyc.codegen.functions.roots import compare_hypot
from polyc.codegen.writer.builder import Val, float_val, int_val, llvm_type
from polyc.ir.access import written_in
from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Pad,
    Read,
    Select,
    Size,
    children,
    count_operations,
    le,
    lt,
    reads,
    type_of,
    walk,
)
from polyc.ir.halves import narrow_bits
from polyc.ir.loops import Buffer
from polyc.records import replace

_ORDER = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
"""Comparisons by order, each with the one that says the same of operands that change places."""
_NOTHING: frozenset[Read] = frozenset()


def eval_expr(state: State, ctx: Context, expr: Expr) -> Val:
    """The value of `expr`: one lane, or `ctx.lanes`."""
    match expr:
        case Const(value, dtype):
            if dtype.is_storage:
                return int_val(int(narrow_bits(np.float32(value), dtype)[0]), llvm_type(dtype))
            return float_val(float(value), llvm_type(dtype)) if dtype.is_float else int_val(int(value), llvm_type(dtype))
        case Index() | Size():
            return eval_linear(state, ctx, as_linear(expr, ctx.env, ctx.lane))
        case Read():
            return _eval_read(state, ctx, expr)
        case Pad():
            return _eval_pad(state, ctx, expr)
        case Select():
            return _eval_select(state, ctx, expr)
        case Cast(value, dtype):
            source = type_of(value, state.types)
            return emit_cast(state.fn, state.target, eval_expr(state, ctx, value), source, dtype)
        case Call(op, args):
            if is_index_arithmetic(expr):
                return eval_linear(state, ctx, as_linear(expr, ctx.env, ctx.lane))
            if op in _ORDER and all(is_index_bound(a) for a in args):
                return compare_indices(state, ctx, op, args[0], args[1])
            match op, args:
                case "lt" | "le" | "gt" | "ge", (Call("hypot", squared), bound):
                    return _compare_hypot(state, ctx, op, squared, bound)
                case "lt" | "le" | "gt" | "ge", (bound, Call("hypot", squared)):
                    return _compare_hypot(state, ctx, _ORDER[op], squared, bound)
            dtype = type_of(args[0], state.types)
            if op in ("max", "min") and dtype.is_float and (found := find_operands(expr)) is not None:
                values = {a: eval_expr(state, ctx, a) for a in found}
                return emit_extrema(state.fn, state.target, expr, values)
            parts = state.divisors.get(args[1]) if op == "truediv" else None
            if parts is not None and 1 < ctx.lanes <= parts[0].lanes:
                dividend = state.fn.splat(eval_expr(state, ctx, args[0]), ctx.lanes)
                scale, high, low = (state.fn.shuffle(part, None, range(ctx.lanes)) for part in parts)
                return multiply_parts(state.fn, dividend, (scale, high, low))
            operands = [eval_expr(state, ctx, a) for a in args]
            if op == "truediv" and not state.nest.exact_quotients:
                return emit_quotient(state.fn, state.target, operands[0], operands[1], ctx.n_vectors)
            return emit_operator(state.fn, state.target, op, operands, dtype)
        case _:
            assert_never(expr)


def _compare_hypot(state: State, ctx: Context, op: str, parts: tuple[Expr, ...], bound: Expr) -> Val:
    """``hypot(x, y)`` on the left side of a comparison: by squares, where the bound can be no such root, which is rounded."""
    if any(isinstance(n, Call) and n.op == "hypot" for n in walk(bound)) or not _are_given(state, bound):
        operands = [eval_expr(state, ctx, e) for e in (Call("hypot", parts), bound)]
        return emit_operator(state.fn, state.target, op, operands, type_of(bound, state.types))
    x, y, limit = (eval_expr(state, ctx, e) for e in (*parts, bound))
    return compare_hypot(Math(state.fn, state.target, F32 if x.type == "float" else F64), op, x, y, limit)


def _are_given(state: State, expr: Expr) -> bool:
    """Whether all that is read is the caller's, and stays so."""
    buffers = [state.by_name[r.tensor] for r in reads(expr)]
    if not buffers:
        return True
    written = written_in(state.nest.body)
    return all(b.space == "argument" and written.isdisjoint((b.name, *b.may_alias)) for b in buffers)


# -- reads


@lru_cache(maxsize=4096)
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
    with _reads_shared(state, ctx, expr, target) as inner:
        return eval_expr(state, inner, expr)


def eval_arm(state: State, ctx: Context, expr: Select) -> tuple[Val, Val]:
    """The condition of a statement's choice, and its first arm, which is its value where that holds."""
    with _reads_shared(state, ctx, expr) as inner:
        condition = eval_expr(state, inner, expr.condition)
        return condition, _arm(state, inner, expr.then, condition, expr.condition)


@contextmanager
def _reads_shared(state: State, ctx: Context, expr: Expr, target: tuple[Buffer, Expr] | None = None) -> Iterator[Context]:
    """The context for the value of a statement, while its reads are shared."""
    ctx = ctx.for_values()
    state.memo = [{}]
    state.certain = certain_reads(expr)
    state.statement_context = ctx
    _share_neighbours(state, ctx, expr, target)
    yield ctx
    state.certain = frozenset()
    state.memo = [{}]


def _share_neighbours(state: State, ctx: Context, value: Expr, target: tuple[Buffer, Expr] | None) -> None:
    """Vectors of `value` that overlap along memory are put together from few loads."""
    if ctx.lane is None or ctx.lanes < 2:
        return
    least = state.target.cache_line if state.target.has_masks else state.target.cache_line // 2
    near: list[Read] = []
    for read in state.certain:
        buffer = state.by_name[read.tensor]
        itemsize = buffer.dtype.itemsize
        if itemsize < WORD or itemsize * ctx.lanes < least or buffer.space == "register":
            continue
        if read not in state.blocks and not any(reads(e) for e in read.subscripts):
            near.append(read)
    if len(near) > 1 and eval_predicates(state, ctx) == (None, None):
        near.sort(key=str)
        found = [(read, byte_offset(ctx, state.by_name[read.tensor], read.subscripts)) for read in near]
        n_operations = count_operations(value)
        state.memo[0].update(share_lines(state, ctx, found, target, n_operations))


def _eval_read(state: State, ctx: Context, read: Read) -> Val:
    """What a read gives, loaded once in a statement."""
    is_certain = read in state.certain
    if is_certain:
        ctx = replace(ctx, predicates=state.statement_context.predicates)
    if state.blocks and read in state.blocks:
        variable, columns = state.blocks[read]
        copy = ctx.env[variable]
        assert isinstance(copy, int)
        return columns[copy]
    for values in state.memo:
        if values and (known := values.get(read)) is not None:
            return known
    value = load_element(state, ctx, state.by_name[read.tensor], read.subscripts)
    state.memo[0 if is_certain else -1][read] = value
    return value


# -- conditional values


def _arm(state: State, ctx: Context, expr: Expr, condition: Val, source: Expr | None = None) -> Val:
    state.memo.append({})
    value = eval_expr(state, ctx.under(Predicate(condition, source=source)), expr)
    state.memo.pop()
    return value


def _choose_operand(expr: Select) -> Call | None:
    """Before ``test ? a ^ b : a``, after ``a ^ (test ? b : 0)``: a chain of such steps waits for the test, not for an arm."""
    for n, (arm, other) in enumerate(((expr.then, expr.other), (expr.other, expr.then))):
        match arm:
            case Call("add" | "sub" | "bitor" | "bitxor" as op, (a, Const(_, dtype) as b)) if a == other and dtype.is_integer:
                nothing = Const(0, dtype)
                return Call(op, (a, Select(expr.condition, nothing, b) if n else Select(expr.condition, b, nothing)), expr.span)
    return None


def _eval_select(state: State, ctx: Context, expr: Select) -> Val:
    if ctx.lanes == 1 and reads(expr.condition) and (chosen := _choose_operand(expr)) is not None:
        return eval_expr(state, ctx, chosen)
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
        return state.fn.select(condition, _eval_read(state, ctx, read), other)
    state.memo.append({})  # what its subscripts read is read under the condition, too
    value = load_element(state, ctx.under(where), buffer, read.subscripts, other)
    state.memo.pop()
    if buffer.space == "register" or value.lanes < max(condition.lanes, other.lanes):
        return state.fn.select(condition, value, other)
    return value


def _eval_pad(state: State, ctx: Context, expr: Pad) -> Val:
    buffer = state.by_name[expr.read.tensor]
    inside: Val | None = None
    tests = [t for e, n in zip(expr.read.subscripts, buffer.shape, strict=True) for t in (le(Const(0), e), lt(e, n))]
    values = [eval_expr(state, ctx, test) for test in tests]
    if not values:
        return _eval_read(state, ctx, expr.read)
    for value in values:
        if value.ref != "true":
            inside = state.fn.and_(inside, value)
    source = reduce(lambda a, b: Call("and", (a, b)), tests)
    if inside is None:  # in this copy of loops around, not in all
        return _eval_read(state, ctx.under(Predicate(values[0], source=source)), expr.read)
    within = Predicate(inside, source=source)
    return _read_or(state, ctx, expr.read, within, _arm(state, ctx, expr.value, state.fn.not_(inside)))
