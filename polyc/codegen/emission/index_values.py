"""Values of index arithmetic: subscripts, bounds of loops and comparisons of them, as sums of terms.

Sums are added up so that what stays the same in a loop is one value; comparisons along the lanes are prefixes and suffixes.
"""

from __future__ import annotations

from functools import lru_cache

from polyc.codegen.emission.context import Context, State
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
from polyc.codegen.writer import vectors
from polyc.codegen.writer.builder import Val, int_val, vector_const
from polyc.ir.expr import Call, Const, Expr, Index, Size
from polyc.ir.types import I64

_AFFINE = frozenset(("add", "sub", "mul", "neg"))
_OF_BOUNDS = _AFFINE | {"min", "max", "floordiv", "mod"}


@lru_cache(maxsize=4096)
def is_index_arithmetic(expr: Expr) -> bool:
    """Whether `as_linear` takes an expression apart: sums and products of loop variables, sizes and 64-bit integers."""
    match expr:
        case Index() | Size():
            return True
        case Const(_, dtype):
            return dtype == I64
        case Call(op, args):
            return op in _AFFINE and all(is_index_arithmetic(a) for a in reversed(args))  # literals often stand behind
        case _:
            return False


def is_index_bound(expr: Expr) -> bool:
    """Index arithmetic, also of quotients, remainders, and the least or greatest of such, as ends of loops are."""
    return is_index_arithmetic(expr) or (
        isinstance(expr, Call) and expr.op in _OF_BOUNDS and all(is_index_bound(a) for a in reversed(expr.args))
    )


def eval_linear(state: State, ctx: Context, linear: Linear) -> Val:
    """The i64 value of a linear form."""
    split = split_lane(linear, ctx.lane)
    if split is None:
        return sum_terms(state, ctx, linear)
    uniform, coefficient = split
    if not coefficient:
        return eval_uniform(state, ctx, uniform)
    step = state.fn.splat(eval_uniform(state, ctx, coefficient), ctx.lanes)
    lanes = vectors.lane_numbers(ctx.lanes)
    spread = lanes if constant_of(coefficient) == 1 else state.fn.binary("mul", lanes, step)
    if constant := uniform.get((), 0):  # unrolled copies of a loop, which differ in this, share what is added to it
        spread = state.fn.binary("add", int_val(constant), spread)
        uniform = {atoms: c for atoms, c in uniform.items() if atoms}
    return state.fn.binary("add", eval_uniform(state, ctx, uniform), spread) if uniform else spread


def eval_uniform(state: State, ctx: Context, linear: Linear) -> Val:
    """The i64 value of a linear form that is the same in all lanes, added up from the outside inwards."""
    total: Val | None = None
    for part in split_by_depth(ctx, linear):
        value = sum_terms(state, ctx, part)
        total = value if total is None else state.fn.binary("add", total, value)
    return int_val(0) if total is None else total


def split_by_depth(ctx: Context, linear: Linear) -> list[Linear]:
    """Terms by the innermost variable they depend on, outermost first, the constant last.

    Added up in this order, what does not change in a loop is one value that LLVM hoists out of it.  Terms of sizes alone tell
    the rows of a tile apart: they stand just before the innermost variable, so that rows share what is in front of it, unless
    that is a single sum, behind which LLVM runs out of registers for rows of few vectors."""
    if len(linear) == 1:
        return [linear]
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


def sum_terms(state: State, ctx: Context, linear: Linear) -> Val:
    """The sum of at least one term, in the order in which they stand."""
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
    return state.evaluate(ctx, atom)


def compare_indices(state: State, ctx: Context, op: str, a: Expr, b: Expr) -> Val:
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
        return fn.compare("icmp slt", eval_linear(state, ctx, difference), int_val(0))
    uniform, coefficient = split
    slope = constant_of(coefficient)
    known = constant_of(uniform)
    if slope == 0:
        if known is not None:
            return int_val(known < 0, "i1")
        negative = {atoms: -c for atoms, c in uniform.items() if c < 0 and atoms}
        positive = {atoms: c for atoms, c in uniform.items() if c >= 0 or not atoms}
        return fn.compare("icmp slt", eval_uniform(state, ctx, positive), eval_uniform(state, ctx, negative))
    if known is not None and slope is not None:
        active = [int(known + slope * lane < 0) for lane in range(ctx.lanes)]
        return int_val(active[0], "i1") if len(set(active)) == 1 else vector_const(active, "i1")
    if slope == 1:  # lane < -uniform
        if known is not None and -known >= ctx.lanes:
            return int_val(1, "i1")
        count = eval_uniform(state, ctx, scale_linear(uniform, -1))
        return vectors.first_lanes(fn, state.target, count, ctx.lanes)
    if slope == -1:  # lane > uniform, that is, not lane < uniform + 1
        count = eval_uniform(state, ctx, add_linear(uniform, {(): 1}))
        return vectors.last_lanes(fn, state.target, count, ctx.lanes)
    return fn.compare("icmp slt", eval_linear(state, ctx, difference), int_val(0))
