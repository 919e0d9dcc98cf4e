"""Loops over single elements that begin with checks of subscripts from data: the checks of a block first, then its work.

Before: ``for i { check k[i]; H[clamp(k[i])] += w[i] }``.  After, for each block of `BLOCK` iterations: where no check of the
block fails, which is what nearly always happens, the loop without checks and without clamps; otherwise the loop as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from polyc.codegen.emission.context import Context, State
from polyc.codegen.emission.expressions import eval_value
from polyc.codegen.emission.linear import index_names
from polyc.codegen.writer import vectors
from polyc.codegen.writer.builder import Val, int_val
from polyc.ir.expr import Expr, maximum, minimum, reads, rewrite
from polyc.ir.loops import Guard, Loop, Node, Store, Update
from polyc.ir.simplify import simplify
from polyc.ir.walk import map_nodes
from polyc.records import replace

BLOCK = 512
"""Iterations whose checks go first: what they read is read again from the first-level cache."""
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
    work = tuple(n for n in loop.body if n not in checks)
    return replace(loop, body=_without_clamps(work, {c: c.value for c in checks if c.condition is None}))


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
    emit_blocks(
        state,
        lower,
        upper,
        int_val(BLOCK),
        fails,
        lambda start, stop: run(ctx, loop, start, stop, 1),
        lambda start, stop: run(ctx, plain, start, stop, UNROLLED),
    )


def emit_blocks(
    state: State,
    lower: Val,
    upper: Val,
    size: Val,
    fails: Callable[[Val, Val], Val],
    slow: Callable[[Val, Val], None],
    fast: Callable[[Val, Val], None],
) -> None:
    """Blocks of `size` iterations, each of which `slow` writes where something `fails` in it, else `fast`."""
    fn = state.fn
    fn.module.declare("llvm.expect.i1", "i1", ["i1", "i1"])

    def emit_block(start: Val) -> None:
        stop = fn.intrinsic("smin", upper, fn.binary("add", start, size))
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
