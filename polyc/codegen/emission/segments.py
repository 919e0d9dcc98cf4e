"""Loops over the numbers of segments with loops over these inside, which begin with checks of subscripts from data.

Before: ``for i { for p in ptr[i]:ptr[i + 1] { check k[p]; y[i] += v[p] * x[clamp(k[p])] } }``.  After, for each block of
segments, from the begin of its first one to the end of its last one (the entry point has checked that they are in order): where
no check of the block fails, the loop without checks and clamps, of `strips` where it can be; otherwise the loop as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from itertools import dropwhile, takewhile
from typing import Literal

from polyc.codegen.emission.checks import Run, any_fails, emit_blocks, without_checks
from polyc.codegen.emission.context import Context, State
from polyc.codegen.emission.expressions import eval_value
from polyc.codegen.emission.linear import index_names
from polyc.codegen.emission.overreads import Overread, find_overread
from polyc.codegen.emission.strips import Strip, choose, count_segments, emit_strips, find_strip
from polyc.codegen.writer.builder import Val, int_val
from polyc.ir.access import written_in
from polyc.ir.expr import Expr, Index, all_hold, lt, mentions, operands_of, reads, substitute
from polyc.ir.facts import assume, hold, is_refused
from polyc.ir.loops import Guard, If, Loop, Node, Prefetch
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, rewrite_nodes
from polyc.records import replace

SEGMENTS = 32
"""Segments of a block."""


def assume_tests(loop: Loop) -> tuple[Loop, Expr | None]:
    """The loop where the tests of indices that stand around parts of its body hold, as far as it does not change these, and
    that they do: guards of sizes should not hide segments."""
    tests = (n.condition for n in loop.body if isinstance(n, If))
    fixed = [test for test in tests if not reads(test) and not mentions(test, loop.var)]
    return (replace(loop, body=assume(loop.body, hold(fixed))), all_hold(fixed)) if fixed else (loop, None)


def segment_checks(state: State, ctx: Context, loop: Loop) -> dict[Loop, tuple[Guard, ...]]:
    """The loops over segments inside of one over their numbers, and of tiles in this, with the checks that they begin with,
    behind requests, as far as these may be made for many segments at once."""
    if loop.step != 1 or ctx.lane is not None or ctx.is_remainder or state.held or any(not p.branched for p in ctx.predicates):
        return {}
    found: dict[Loop, tuple[Guard, ...]] = {}
    for inner in _find_segments(loop.body):
        checks = tuple(takewhile(lambda n: isinstance(n, Guard), dropwhile(_is_request, _drop_conditions(inner).body)))
        if not checks or not _are_in_order(state, loop, inner):
            continue
        written = state.nest.memory_of(written_in(loop.body))
        parts = [e for c in checks if isinstance(c, Guard) for e in (c.value, c.bound) if c.condition is None]
        used = {r.tensor for e in (*parts, inner.lower, inner.upper) for r in reads(e)}
        if used.isdisjoint(written) and len(parts) == 2 * len(checks) and set().union(*map(index_names, parts)) == {inner.var}:
            found[inner] = tuple(c for c in checks if isinstance(c, Guard))
    return found


def _find_segments(body: Body) -> Iterator[Loop]:
    for node in body:
        if isinstance(node, Loop) and reads(node.lower):
            yield node
        elif isinstance(node, (If, Loop)):
            yield from _find_segments((*node.body, *(node.orelse if isinstance(node, If) else ())))


def _drop_conditions(loop: Loop) -> Loop:
    """The loop with checks that ask more often: whatever the position of a tile is."""

    def ask(node: Node) -> Node:
        if (
            isinstance(node, Guard)
            and node.condition is not None
            and not reads(node.condition)
            and not mentions(node.condition, loop.var)
        ):
            return replace(node, condition=None)
        return node

    return replace(loop, body=tuple(map(ask, loop.body)))


def _is_request(node: Node) -> bool:
    return isinstance(node, Prefetch) or (isinstance(node, If) and not node.orelse and all(map(_is_request, node.body)))


def _are_in_order(state: State, loop: Loop, inner: Loop) -> bool:
    """Whether the iterations of `loop` have the segments of `inner` one behind the other: each ends where the next one begins,
    and a check of the entry point says that it does not end before it begins."""
    lower, upper = _loaded_end(inner.lower, "max"), _loaded_end(inner.upper, "min")
    if lower is None or upper is None or index_names(lower) != {loop.var}:
        return False
    if simplify(substitute(lower, {loop.var: Index(loop.var) + 1})) != simplify(upper):
        return False
    if not state.nest.memory_of(written_in(state.nest.body)).isdisjoint(r.tensor for r in reads(lower)):
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
) -> None:
    """A loop over the numbers of segments in blocks; `found`: `segment_checks`.  lower < upper."""
    fn = state.fn
    checked, strips, overreads = dict[Loop, Loop](), list[Strip](), dict[Loop, Overread]()
    for number, (inner, checks) in enumerate(found.items()):
        checked[inner] = without_checks(_drop_conditions(inner), checks)
        alone = replace(checked[inner], body=tuple(n for n in checked[inner].body if not _is_request(n)))
        # Terms of a strip are computed ahead, and rows are read on: nothing has to be requested.
        if inner in loop.body and (strip := find_strip(state, ctx, loop, alone, number)):
            checked[inner] = alone
            strips.append(strip)
            if state.target.loops.reads_on and (overread := find_overread(state, alone, checks, number)):
                overreads[inner] = overread
    plain = _with_inner(loop, checked)
    distinct: dict[tuple[object, ...], list[Loop]] = {}  # tiles ask the same
    for inner, checks in found.items():
        distinct.setdefault((inner.var, inner.lower, inner.upper, checks), []).append(inner)

    def ends_of(inner: Loop, start: Val, stop: Val) -> tuple[Val, Val]:
        last = fn.binary("sub", stop, int_val(1))
        begin = eval_value(state, ctx.bind(loop.var, start), inner.lower)
        return begin, eval_value(state, ctx.bind(loop.var, last), inner.upper)

    def emit(extended: Mapping[Loop, Overread], emit_block: Callable[[Val, Val], None]) -> None:
        def fails(start: Val, stop: Val) -> Val:
            failed = list[Val]()
            for alike in distinct.values():
                begin, end = ends_of(alike[0], start, stop)
                reached = [extended[inner].extend(state, ctx, end) for inner in alike if inner in extended]
                end = reduce(partial(fn.intrinsic, "smax"), reached, end)
                failed.append(any_fails(state, ctx, alike[0], found[alike[0]], begin, end))
            return reduce(partial(fn.binary, "or"), failed)

        size = count_segments(state, ctx, plain, strips, lower, upper) if strips else int_val(SEGMENTS)
        emit_blocks(state, lower, upper, size, fails, lambda start, stop: run(ctx, loop, start, stop, 1), emit_block)

    def emit_in_order(start: Val, stop: Val) -> None:
        run(ctx, plain, start, stop, 1)

    def emit_overread(start: Val, stop: Val) -> None:
        free, fits = replace(ctx, overread=frozenset(o.loop.var for o in overreads.values())), int_val(1, "i1")
        for inner, o in overreads.items():
            begin, end = ends_of(inner, start, stop)
            fits = fn.binary("and", fits, o.fits(state, ctx, end))
            free = free.bind(o.ahead.name, fn.binary("sub", end, begin))
        wide = _with_inner(loop, {**checked, **{inner: o.loop for inner, o in overreads.items()}})
        asking = _with_inner(loop, {**checked, **{inner: (*o.requests, o.loop) for inner, o in overreads.items()}})
        choose(state, fits, lambda: run(free, asking, start, stop, 1), lambda: run(ctx, wide, start, stop, 1))

    if not strips:
        emit({}, emit_in_order)
    elif len(overreads) == len(strips):
        emit(overreads, emit_overread)
    else:
        emit({}, lambda start, stop: emit_strips(state, ctx, run, plain, strips, start, stop))


def _with_inner(loop: Loop, made: Mapping[Loop, Loop | Body]) -> Loop:
    return replace(loop, body=rewrite_nodes(loop.body, lambda n, _: made.get(n) if isinstance(n, Loop) else None))
