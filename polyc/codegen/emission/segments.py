"""Loops over the numbers of segments with loops over these inside, which begin with checks of subscripts from data.

Before: ``for i { for p in ptr[i]:ptr[i + 1] { check k[p]; y[i] += v[p] * x[clamp(k[p])] } }``.  After, for each block of
segments, from the begin of its first one to the end of its last one (the entry point has checked that they are in order): where
no check of the block fails, the loop without checks and clamps, of `strips` where it can be; otherwise the loop as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import dropwhile, takewhile
from typing import Literal

from polyc.codegen.emission.checks import Run, any_fails, emit_blocks, without_checks
from polyc.codegen.emission.context import Context, State
from polyc.codegen.emission.expressions import eval_value
from polyc.codegen.emission.linear import index_names
from polyc.codegen.emission.strips import Strip, count_segments, emit_strips, find_strip
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
    checked, strips = dict[Loop, Loop](), list[Strip]()
    for number, (inner, checks) in enumerate(found.items()):
        checked[inner] = without_checks(_drop_conditions(inner), checks)
        alone = replace(checked[inner], body=tuple(n for n in checked[inner].body if not _is_request(n)))
        # Copies of a strip run ahead, so that nothing has to be requested.
        if inner in loop.body and (strip := find_strip(state, ctx, loop, alone, number)):
            checked[inner] = alone
            strips.append(strip)
    plain = replace(loop, body=rewrite_nodes(loop.body, lambda n, _: checked.get(n) if isinstance(n, Loop) else None))
    distinct = {(inner.var, inner.lower, inner.upper, checks): inner for inner, checks in found.items()}  # tiles ask the same

    def fails(start: Val, stop: Val) -> Val:
        failed: Val | None = None
        last = fn.binary("sub", stop, int_val(1))
        for (*_, checks), inner in distinct.items():
            begin = eval_value(state, ctx.bind(loop.var, start), inner.lower)
            end = eval_value(state, ctx.bind(loop.var, last), inner.upper)
            one = any_fails(state, ctx, inner, checks, begin, end)
            failed = one if failed is None else fn.binary("or", failed, one)
        assert failed is not None
        return failed

    def emit_block(start: Val, stop: Val) -> None:
        if strips:
            emit_strips(state, ctx, run, plain, strips, start, stop)
        else:
            run(ctx, plain, start, stop, 1)

    size = count_segments(state, ctx, plain, strips, lower, upper) if strips else int_val(SEGMENTS)
    emit_blocks(state, lower, upper, size, fails, lambda start, stop: run(ctx, loop, start, stop, 1), emit_block)
