"""Stencils over a few steps of time become a chain of statements, one for each step.

    before  ``A[0, i] = X[i]`` ; ``A[t, i] = f(A[t-1, i-1], A[t-1, i])  t in 1:4`` ; ``Y[i] = A[3, i]``
    after   ``A.at0[i] = X[i]`` ; ``A.at1[i] = f(A.at0[i-1], A.at0[i])`` and so on ; ``Y[i] = A.at3[i]``

Steps that are written out already (`A[1, i] = f(A[0, i])`) become tensors likewise.  Copies at both ends are then inlined, and
what remains are producers and consumers that overlapping tiles compute together (`overlap`): one pass over memory for all
steps, in tiles that need nothing of each other.  Tiles of time (`loops.time_tiling`) of few steps are one column, which is one
thread's work.
"""

from __future__ import annotations

from math import prod

from polyc.diagnostics import Remark
from polyc.ir.expr import Const, Expr, reads
from polyc.ir.program import Program, Statement
from polyc.ir.simplify import simplify
from polyc.machine import Level, Machine, Share
from polyc.poly.ranges import Ranges
from polyc.scheduler.accesses import trip_count
from polyc.scheduler.rewriting.short_indices import Plan, write_out

MOST_STEPS = 8
"""Steps that are written out: with more, tiles of time compute nothing twice, and have columns for more than one thread."""

MOST_DIMENSIONS = 2
"""Dimensions of space: tiles of three that fit a cache compute more of their neighbours' elements again than of their own (five
steps of 160 cubed on one thread: 6.5 ms in tiles of time, 13.4 as a chain)."""


def write_out_steps(
    program: Program, ranges: Ranges, target: Machine, shared: frozenset[str]
) -> tuple[Program, Ranges, list[Remark]]:
    """Full unrolling of recurrences of few steps: their steps are tiled as producers and consumers.

    `shared` inputs, whose memory results share, leave the program as it is."""
    plan = Plan(program, ranges, False, MOST_STEPS, 2 * MOST_STEPS, {s.name for s in program.statements})
    for s in program.statements:
        step = None if shared else _find_step(s, program, ranges, target)
        if step is not None and plan.can_write_out(s, step):
            plan.indices[s.name] = {step}
    first = dict(plan.indices)
    plan.follow()
    targets = {s.target for s in program.statements if s.name in first}
    if first and (not targets <= set(plan.dimensions) or not plan.is_small()):
        return program, ranges, []
    numbered = [] if shared else [s for s in program.statements if plan.spread_numbers(s)]
    if not first and not numbered:
        return program, ranges, []
    remarks = [Remark("passed", "short-recurrences", f"parts of {s.target} are apart", s.name, s.span) for s in numbered]
    for s in program.statements:
        if s.name in first:
            message = f"the steps of {program.tensor(s.target).base} are written out"
            remarks.append(Remark("passed", "short-recurrences", message, s.name, s.span))
    return (*write_out(plan, target), remarks)


def _find_step(s: Statement, program: Program, ranges: Ranges, target: Machine) -> str | None:
    """The index of a statement that counts steps, each of which reads neighbours of an earlier one, and nothing of its own."""
    if s.reduction is not None or not s.has_plain_left or program.tensor(s.target).role != "temporary":
        return None
    own = [r for r in dict.fromkeys(reads(s.value)) if r.tensor == s.target]
    steps = [d for d in range(len(s.subscripts)) if own and all(_is_before(r.subscripts[d], s.subscripts[d]) for r in own)]
    if len(steps) != 1 or len(s.subscripts) > MOST_DIMENSIONS + 1:
        return None
    (step,) = steps
    intervals = ranges.statements[s.name].indices
    n_bytes = prod(trip_count(intervals[i].extent) for d, i in enumerate(s.left_indices) if d != step)
    n_bytes *= program.tensor(s.target).dtype.itemsize
    places = {r.subscripts[:step] + r.subscripts[step + 1 :] for r in own}
    return s.left_indices[step] if len(places) > 1 and n_bytes >= target.room(Level.L2, Share.QUARTER) else None


def _is_before(subscript: Expr, step: Expr) -> bool:
    distance = simplify(step - subscript)
    return isinstance(subscript, Const) or (isinstance(distance, Const) and int(distance.value) > 0)
