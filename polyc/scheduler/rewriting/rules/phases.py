"""Sums whose results lie between each other along memory are computed one kind after the other, and put together behind.

    before  ``y[i, 2j+q] += x[i,j+b] * p[q,b]``                                   q in 0:2
    after   ``t[q,i,j] += x[i,j+b] * p[q,b]  ;  y[i,2j+q] = t[q,i,j]``

As written neither index runs along the results: vectors along ``j`` would add to every second element, which no register
holds.  Apart, each phase is a sum over whole vectors, and a copy interleaves them.
"""

from __future__ import annotations

from polyc.diagnostics import Remark
from polyc.ir.expr import Const, Index, Read, reads, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement
from polyc.poly.domains import is_box
from polyc.poly.ranges import Ranges
from polyc.records import replace
from polyc.scheduler.rewriting.rules.blocks import Change, Edit, change_statements, has_own_elements, writes_whole
from polyc.scheduler.rewriting.rules.gathered_windows import find_windows

MINIMUM_EXTENT = 16
"""Elements of each phase, from which on they fill vectors."""


def separate_phases(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Sums into every few elements of rows, each phase on its own."""

    def change(s: Statement, edit: Edit) -> Change | None:
        phase = _find_phase(s, program, ranges)
        if phase is None:
            return None
        message = f"the phases of {s.target} along {phase} are summed up one behind the other, then interleaved"
        return _sum_apart(s, phase, edit), message

    return change_statements("separate-phases", change, program, ranges)


def _find_phase(s: Statement, program: Program, ranges: Ranges) -> str | None:
    """``q`` where the last subscript is ``n * j + q`` with n values of q; None where the statement stays as it is."""
    own = ranges.statements[s.name]
    if s.reduction is None or s.reduction.monoid is not None or not isinstance(s.reduction.init, Const):
        return None
    if not s.subscripts or own.guards or own.region is not None or len(program.writers()[s.target]) != 1:
        return None
    steps = index_coefficients(s.subscripts[-1])
    if steps is None or len(steps) != 2 or not is_box(own.domain, own.indices, s.indices):
        return None
    inner, outer = sorted(steps, key=lambda i: steps[i])
    count, length = own.indices[inner].extent, own.indices[outer].extent
    if steps[inner] != 1 or not isinstance(count, Const) or not 2 <= steps[outer] == count.value:
        return None
    if isinstance(length, Const) and length.value < MINIMUM_EXTENT:
        return None
    if (
        not has_own_elements(s, ranges)
        or not writes_whole(s, ranges)
        or find_windows(s, program, ranges)
        or not _has_rows(s, outer, inner)
    ):
        return None
    return inner


def _has_rows(s: Statement, outer: str, inner: str) -> bool:
    """Whether vectors along `outer` read whole vectors somewhere, and vectors along `inner` would do so nowhere."""
    is_along = False
    for read in reads(s.value):
        if read.tensor == s.target:
            return False
        if all(Index(outer) not in walk(e) for e in read.subscripts):
            continue
        last = index_coefficients(read.subscripts[-1])
        if last is None or last.get(inner, 0):
            return False
        is_along |= abs(last.get(outer, 0)) == 1
    return is_along


def _sum_apart(s: Statement, phase: str, edit: Edit) -> list[Statement]:
    """The sum into a tensor with the phase outermost, and the statement that puts its elements where they belong."""
    left = (phase, *(i for i in s.left_indices if i != phase))
    own = edit.own[s.name].indices
    total = edit.define(s, "phases", left, s.value, s.reduction_indices, s.reduction, own)
    edit.set_ranges(s.name, s.left_indices, own)
    read = Read(total.target, total.subscripts)
    return [total, replace(s, indices=s.left_indices, value=read, reduction=None, where=())]
