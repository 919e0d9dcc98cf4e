"""Loops over single elements that begin with checks of subscripts from data: the checks of a block first, then its work.

Before: ``for i { check k[i]; H[clamp(k[i])] += w[i] }``.  After, for each block of `BLOCK` iterations: where no check of the
block fails, which is what nearly always happens, the loop without checks and without clamps; otherwise the loop as it was.

Where a loop over segments has such loops inside, ``for i { for p in ptr[i]:ptr[i + 1] { check k[p]; … } }``, a block is some of
the segments: from the begin of its first one to the end of its last one, as the entry point has checked that they are in order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import takewhile
from typing import Literal

from polyc.codegen.emission.context import Context, State
from polyc.codegen.emission.expressions import eval_value
from polyc.codegen.emission.linear import index_names
from polyc.codegen.writer import vectors
from polyc.codegen.writer.builder import Val, int_val
from polyc.ir.access import writes_in, written_in
from polyc.ir.expr import Expr, Index, lt, maximum, minimum, operands_of, reads, rewrite, substitute
from polyc.ir.facts import is_refused
from polyc.ir.loops import Guard, Loop, Node, Store, Update
from polyc.ir.simplify import simplify
from polyc.ir.walk import map_nodes
from polyc.records import replace

BLOCK = 512
"""Iterations whose checks go first: what they read is read again from the first-level cache."""
SEGMENTS = 32
"""Segments of a block."""
LANES = 16

Run = Callable[[Context, Loop, Val, Val, int], None]
"""Writes a loop from a lower to an upper bound, in order, unrolled."""

UNROLLED = 4
"""Iterations in one, where they need no checks."""


def leading_checks(state: State, ctx: Context, loop: Loop) -> tuple[Guard, ...]:
    """The checks at the start of a serial loop that can be made for many iterations at once; none where that is not so."""
    if loop.kind != "serial" or loop.step != 1 or ctx.lane is not None or ctx.is_remainder or loop.registers or state.held:
        return ()
    checks = tuple(n for n in loop.body if isinstance(n, Guard))
    work = loop.body[len(checks) :]
    if not checks or loop.body[: len(checks)] != checks or any(not p.branched for p in ctx.predicates):
        return ()
    written: set[str] = set()
    for node in work:
        if not isinstance(node, (Store, Update)):
            return ()
        written |= {node.buffer, *state.by_name[node.buffer].may_alias}
    for check in checks:
        parts = [e for e in (check.value, check.bound, check.condition) if e is not None]
        if any(r.tensor in written for e in parts for r in reads(e)) or loop.var not in set().union(*map(index_names, parts)):
            return ()
    return checks


def without_checks(loop: Loop, checks: tuple[Guard, ...]) -> Loop:
    """The loop where they hold: subscripts need no clamps."""
    return replace(loop, body=_without_clamps(loop.body[len(checks) :], {c: c.value for c in checks if c.condition is None}))


def use_checked(body: tuple[Node, ...], check: Guard, checked: Expr) -> tuple[Node, ...]:
    """Stores, updates and further checks behind `check`, with `checked` where they have its value in bounds."""
    return _without_clamps(body, {check: checked})


def _without_clamps(body: tuple[Node, ...], values: Mapping[Guard, Expr]) -> tuple[Node, ...]:
    known = {clamped(check): value for check, value in values.items()}

    def rule(expr: Expr) -> Expr | None:
        return known.get(expr)

    return map_nodes(body, lambda e: rewrite(e, rule))


def clamped(check: Guard) -> Expr:
    """The value of a check in bounds, as the reads behind it have it."""
    last = simplify(check.bound - 1)
    return minimum(maximum(check.value, 0), last)


def emit_checked(
    state: State,
    ctx: Context,
    loop: Loop,
    checks: tuple[Guard, ...],
    lower: Val,
    upper: Val,
    run: Run,
) -> None:
    """The loop in blocks.  lower < upper."""

    def fails(start: Val, stop: Val) -> Val:
        return any_fails(state, ctx, loop, checks, start, stop)

    plain = without_checks(loop, checks)
    _emit_blocks(
        state,
        lower,
        upper,
        BLOCK,
        fails,
        lambda start, stop: run(ctx, loop, start, stop, 1),
        lambda start, stop: run(ctx, plain, start, stop, UNROLLED),
    )


def _emit_blocks(
    state: State,
    lower: Val,
    upper: Val,
    size: int,
    fails: Callable[[Val, Val], Val],
    slow: Callable[[Val, Val], None],
    fast: Callable[[Val, Val], None],
) -> None:
    """Blocks of `size` iterations, each of which `slow` writes where something `fails` in it, else `fast`."""
    fn = state.fn
    fn.module.declare("llvm.expect.i1", "i1", ["i1", "i1"])

    def emit_block(start: Val) -> None:
        stop = fn.intrinsic("smin", upper, fn.binary("add", start, int_val(size)))
        failed = fn.pure(f"call i1 @llvm.expect.i1({fails(start, stop)}, i1 false)", "i1")
        then, other, after = fn.new_block("failed"), fn.new_block("checked"), fn.new_block("next")
        fn.branch_if(failed, then, other)
        for block, write in ((then, slow), (other, fast)):
            fn.place(block)
            with fn.scope():
                write(start, stop)
            fn.branch(after)
        fn.place(after)

    state.invalidate_all()
    fn.counted_loop(lower, upper, size, emit_block)
    state.invalidate_all()


# -- segments


def segment_checks(state: State, ctx: Context, loop: Loop) -> dict[Loop, tuple[Guard, ...]]:
    """The loops over segments inside of one over their numbers, with the checks that they begin with, as far as these may be
    made for many segments at once."""
    if loop.step != 1 or ctx.lane is not None or ctx.is_remainder or state.held or any(not p.branched for p in ctx.predicates):
        return {}
    found: dict[Loop, tuple[Guard, ...]] = {}
    for inner in (n for n in loop.body if isinstance(n, Loop) and reads(n.lower)):
        checks = tuple(takewhile(lambda n: isinstance(n, Guard), inner.body))
        if not checks or not _are_in_order(state, loop, inner):
            continue
        written = {name for n in writes_in(loop.body) for name in (n.buffer, *state.by_name[n.buffer].may_alias)}
        parts = [e for c in checks if isinstance(c, Guard) for e in (c.value, c.bound) if c.condition is None]
        used = {r.tensor for e in (*parts, inner.lower, inner.upper) for r in reads(e)}
        if used.isdisjoint(written) and len(parts) == 2 * len(checks) and set().union(*map(index_names, parts)) == {inner.var}:
            found[inner] = tuple(c for c in checks if isinstance(c, Guard))
    return found


def _are_in_order(state: State, loop: Loop, inner: Loop) -> bool:
    """Whether the iterations of `loop` have the segments of `inner` one behind the other: each ends where the next one begins,
    and a check of the entry point says that it does not end before it begins."""
    lower, upper = _loaded_end(inner.lower, "max"), _loaded_end(inner.upper, "min")
    if lower is None or upper is None or index_names(lower) != {loop.var}:
        return False
    if simplify(substitute(lower, {loop.var: Index(loop.var) + 1})) != simplify(upper):
        return False
    written = {name for b in written_in(state.nest.body) for name in (b, *state.by_name[b].may_alias)}
    if not written.isdisjoint(r.tensor for r in reads(lower)):
        return False
    return is_refused(state.nest.preconditions, lt(upper, lower), loop.var, loop.lower, loop.upper)


def _loaded_end(bound: Expr, op: Literal["min", "max"]) -> Expr | None:
    """What is loaded of a bound of a loop, where nothing else in it depends on loops."""
    loaded = [e for e in operands_of(bound, op) if index_names(e)]
    return loaded[0] if len(loaded) == 1 and reads(loaded[0]) else None


def emit_segments(
    state: State,
    ctx: Context,
    loop: Loop,
    found: Mapping[Loop, tuple[Guard, ...]],
    lower: Val,
    upper: Val,
    run: Run,
    emit_block: Callable[[Run, Loop, Collection[Loop], Val, Val], None],
) -> None:
    """A loop over the numbers of segments in blocks; `found`: `segment_checks`.  lower < upper.  `emit_block` writes one in which
    all checks hold: the loop without them, those over segments in it, from a lower to an upper bound."""
    fn = state.fn
    checked = {inner: without_checks(inner, checks) for inner, checks in found.items()}
    plain = replace(loop, body=tuple(checked.get(n, n) if isinstance(n, Loop) else n for n in loop.body))

    def fails(start: Val, stop: Val) -> Val:
        failed: Val | None = None
        last = fn.binary("sub", stop, int_val(1))
        for inner, checks in found.items():
            begin = eval_value(state, ctx.bind(loop.var, start), inner.lower)
            end = eval_value(state, ctx.bind(loop.var, last), inner.upper)
            one = any_fails(state, ctx, inner, checks, begin, end)
            failed = one if failed is None else fn.binary("or", failed, one)
        assert failed is not None
        return failed

    _emit_blocks(
        state,
        lower,
        upper,
        SEGMENTS,
        fails,
        lambda start, stop: run(ctx, loop, start, stop, 1),
        lambda start, stop: emit_block(run, plain, checked.values(), start, stop),
    )


def any_fails(state: State, ctx: Context, loop: Loop, checks: tuple[Guard, ...], start: Val, stop: Val) -> Val:
    """Whether a check fails in the iterations from `start` to `stop`: in vectors, the last of which ends at `stop`, or one by
    one where there are fewer."""
    fn = state.fn
    flags = fn.alloca(f"<{LANES} x i1>", 8)
    flag = fn.alloca("i1", 1)
    fn.effect(f"store <{LANES} x i1> zeroinitializer, {flags}, align 8")
    fn.effect(f"store i1 false, {flag}, align 1")
    middle = fn.binary("add", start, fn.binary("and", fn.binary("sub", stop, start), int_val(-LANES)))

    def test(context: Context, slot: Val, lanes: int, align: int) -> None:
        for check in checks:
            value, bound = (eval_value(state, context, e) for e in (check.value, check.bound))
            failed = fn.compare("icmp uge", value, bound)
            if check.condition is not None:
                failed = fn.binary("and", failed, eval_value(state, context, check.condition))
            failed = fn.splat(failed, lanes)
            old = fn.effect_value(f"load {failed.full_type}, {slot}, align {align}", "i1", lanes)
            fn.effect(f"store {fn.binary('or', old, failed)}, {slot}, align {align}")

    state.invalidate_all()
    is_short = fn.compare("icmp sle", middle, start)

    def test_lanes(i: Val) -> None:
        test(ctx.bind_lanes(loop.var, i, LANES), flags, LANES, 8)

    with fn.when(fn.not_(is_short)):
        fn.counted_loop(start, middle, LANES, test_lanes, 4)
        state.invalidate_all()
        test_lanes(fn.binary("sub", stop, int_val(LANES)))
    state.invalidate_all()
    with fn.when(fn.binary("and", is_short, fn.compare("icmp slt", start, stop))):
        fn.counted_loop(start, stop, 1, lambda i: test(ctx.bind(loop.var, i), flag, 1, 1))
    state.invalidate_all()
    many = fn.effect_value(f"load <{LANES} x i1>, {flags}, align 8", "i1", LANES)
    return fn.binary("or", vectors.is_any(fn, many), fn.effect_value(f"load i1, {flag}, align 1", "i1"))
