"""Contractions that add windows into their results sum up the windows of each result instead: transposed convolutions.

    before  ``y[m, p+r] += g[k,p] * w[k,m,r]``
    after   ``y[m, u] += pad(g[k,u-r], 0) * w[k,m,r]``

    before  ``y[m, 2p+r] += g[k,p] * w[k,m,r]``                                     r in 0:4
    after   ``t[m,u,e] += pad(g[k,u-t], 0) * w[k,m,2t+e]  ;  y[m,2u+e] = t[m,u,e]``  t, e in 0:2

As written, results are read and written once for every position in the window; gathered, they stay in registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from math import prod

from polyc.code_limits import FULL_ROW, MAX_COPIES
from polyc.ir.expr import Call, Const, Expr, Index, Pad, Read, identity_of, index_names, int_const, mentions, reads, substitute
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement
from polyc.ir.simplify import constant_of, linear_form, simplify
from polyc.poly.domains import is_box
from polyc.poly.ranges import Interval, Ranges, known_shape
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import trip_count
from polyc.scheduler.rewriting.builder import Change, ProgramBuilder
from polyc.scheduler.rewriting.reindexing import map_reads
from polyc.scheduler.rewriting.rules.analysis import has_own_elements, writes_whole
from polyc.scheduler.rewriting.rules.operands import find_operand, find_operands

MINIMUM_TERMS, LONGEST = 8, 1.75
"""Products of one position in the window that are summed in registers, from which on this always pays; with fewer it does
where results are at most so many times as many as the positions: ends of long windows read borders."""


@dataclass(frozen=True, slots=True)
class _Window:
    """``stride * outer + step * inner + offset`` in one subscript of the left side."""

    outer: str
    inner: str
    stride: int
    """Also the number of phases: results between the windows of two positions, which read different elements of them."""
    step: int
    offset: int
    positions: int
    width: int
    chosen: int | None = None
    """The phase, where each is computed on its own, because they read different numbers of elements."""

    @property
    def taps(self) -> int:
        """Elements of the window that a result reads."""
        return self.width // self.stride if self.chosen is None else len(range(self.chosen, self.width, self.stride))

    @property
    def choices(self) -> list[_Window]:
        """This window with each of its phases chosen, if they differ."""
        return [self] if self.width % self.stride == 0 else [replace(self, chosen=n) for n in range(self.stride)]

    @property
    def place(self) -> str:
        return f"{self.outer}.place"

    @property
    def phase(self) -> Index | Const:
        return Index(f"{self.inner}.phase") if self.chosen is None else int_const(self.chosen)

    @property
    def intervals(self) -> dict[str, Interval]:
        """Of places, which are results, or those of phase 0 where they have phases; then of the phases, if there are any."""
        first = 0 if self.stride > 1 else self.offset + min(0, self.step * (self.width - 1))
        places = self.positions + abs(self.step) * (self.taps - 1)
        found = {self.place: Interval(int_const(first), int_const(places))}
        if self.stride > 1 and isinstance(self.phase, Index):
            found[self.phase.name] = Interval(int_const(0), int_const(self.stride))
        return found

    @property
    def values(self) -> dict[str, Expr]:
        """Both indices, in terms of place, phase and, where there are several, tap (by the name of `inner`)."""
        back = Index(self.place) - self.step * Index(self.inner)
        if self.stride == 1:
            return {self.outer: simplify(back - self.offset)}
        if self.taps == 1:
            return {self.outer: Index(self.place), self.inner: self.phase}
        return {self.outer: simplify(back), self.inner: simplify(self.stride * Index(self.inner) + self.phase)}

    @property
    def result(self) -> Expr:
        """The subscript of the left side, from place and phase."""
        return simplify(self.stride * Index(self.place) + self.phase + self.offset) if self.stride > 1 else Index(self.place)


def gather_windows(s: Statement, builder: ProgramBuilder) -> Change | None:
    """Scatter to gather: each result sums what is added to it."""
    windows = _find_windows(s, builder.program, builder.ranges)
    if not windows:
        return None
    choices = list(product(*(w.choices for w in windows.values())))
    made: list[Statement] = []
    for n, chosen in enumerate(choices):
        part = f"{n}" if len(choices) > 1 else ""
        made += _gather(s, dict(zip(windows, chosen, strict=True)), part, builder)
    return made, f"every element of {s.target} sums up its windows, instead of windows being added to it"


def _find_windows(s: Statement, program: Program, ranges: Ranges) -> dict[int, _Window]:
    """The window of each dimension of the left side that has one; none where the statement stays."""
    own, shape = ranges.statements[s.name].indices, known_shape(ranges.statements[s.name].indices.values())
    if s.has_plain_left or s.reduction is None or s.reduction.init != identity_of("add", program.tensor(s.target).dtype):
        return {}
    if s.reduction.op != "add" or not shape or not all(shape) or not _is_free(s, program, ranges):
        return {}
    trips = dict(zip(own, shape, strict=True))
    found = {d: _find_window(e, own, trips) for d, e in enumerate(s.subscripts) if not isinstance(e, Index)}
    windows = {d: w for d, w in found.items() if w is not None}
    used = [i for e in s.subscripts for i in index_names(e)]
    if len(windows) < len(found) or not len(set(used)) == len(used) < len(s.indices):
        return {}
    if prod(len(w.choices) for w in windows.values()) > MAX_COPIES:
        return {}
    if any(w.stride > 1 for w in windows.values()) and not writes_whole(s, ranges):
        return {}
    return windows if _is_contraction(s, windows, ranges, trips) else {}


def _is_free(s: Statement, program: Program, ranges: Ranges) -> bool:
    """Whether a reduction over a box alone writes its target, and checks nothing at run time."""
    own = ranges.statements[s.name]
    if own.guards or own.region is not None or len(program.writers()[s.target]) != 1:
        return False
    return s.reduction is not None and s.reduction.monoid is None and is_box(own.domain, own.indices, s.indices)


def _find_window(subscript: Expr, intervals: Mapping[str, Interval], trips: Mapping[str, int]) -> _Window | None:
    steps, form = index_coefficients(subscript) or {}, linear_form(subscript)
    if form is None or len(steps) != 2 or len(form) > 2 + (1 in form) or any(intervals[i].lower != int_const(0) for i in steps):
        return None
    order = sorted(steps, key=lambda i: (trips[i], i), reverse=True)
    for outer, inner in (order, order[::-1]):
        window = _Window(outer, inner, steps[outer], steps[inner], form.get(1, 0), trips[outer], trips[inner])
        if window.stride == 1 and abs(window.step) <= trips[outer]:
            return window
        if 1 < window.stride <= trips[inner] and window.step == 1:
            return window
    return None


def _is_contraction(s: Statement, windows: Mapping[int, _Window], ranges: Ranges, trips: Mapping[str, int]) -> bool:
    """Whether one operand holds the positions, each all of a dimension, the other none, and enough is summed beside windows."""
    operands = find_operands(s.value)
    if not operands or any(o.pad is not None or o.read.tensor == s.target for o in operands):
        return False
    growth = prod(trip_count(w.intervals[w.place].extent) / w.positions for w in windows.values())
    summed = operands[0].indices & operands[1].indices & set(s.reduction_indices)
    if prod(trips[i] for i in summed) < MINIMUM_TERMS and growth > LONGEST:
        return False
    outer = {w.outer for w in windows.values()}
    holder, *others = [o for o in operands if o.indices & outer] or operands
    box = ranges.tensors[holder.read.tensor]
    places = {i: holder.dimension_of(i) for i in outer}
    is_whole = all(d is not None and box[d] == Interval(int_const(0), int_const(trips[i])) for i, d in places.items())
    return not others and is_whole


def _gather(s: Statement, windows: Mapping[int, _Window], part: str, builder: ProgramBuilder) -> list[Statement]:
    """The sum over windows; behind it, where results have phases, the statement that puts them in their places."""
    intervals = dict(builder.own[s.name].indices)
    for w in windows.values():
        intervals |= w.intervals | {w.inner: Interval(int_const(0), int_const(w.taps))}
    assert isinstance(s.value, Call)
    value = Call("mul", tuple(_move(operand, windows.values(), builder.program) for operand in s.value.args))
    left = [i for d, e in enumerate(s.subscripts) for i in (windows[d].intervals if d in windows else index_names(e))]
    replaced = {i for w in windows.values() for i in (w.outer, *([w.inner] if w.stride > 1 and w.taps == 1 else []))}
    indices = (*left, *(i for i in s.indices if i not in left and i not in replaced))
    element = tuple(map(Index, left))
    if all(w.stride == 1 for w in windows.values()):
        return [builder.change(s, builder.box(intervals, indices), subscripts=element, value=value)]
    total = builder.define(s, f"phases{part}", left, value, indices[len(left) :], s.reduction, intervals)
    name = f"{s.name}_part{part}" if part else s.name
    subscripts = [windows[d].result if d in windows else e for d, e in enumerate(s.subscripts)]
    box = builder.box({i: intervals[i] for i in left})
    return [total, builder.assign(name, s.target, subscripts, Read(total.target, element), box, s)]


def _move(factor: Expr, windows: Iterable[_Window], program: Program) -> Expr:
    """An operand over places, phases and taps; 0 where the place lies outside of the window."""
    moved, operand = substitute(factor, {i: e for w in windows for i, e in w.values.items()}), find_operand(factor)
    assert operand is not None
    if operand.indices.isdisjoint(w.outer for w in windows if w.taps > 1):
        return moved
    return map_reads(moved, lambda read: Pad(read, identity_of("add", program.tensor(read.tensor).dtype)))


# -- phases: results between each other along memory, one kind after the other, and put together behind


def separate_phases(s: Statement, builder: ProgramBuilder) -> Change | None:
    """Polyphase decomposition: statements of remainders have domains of their own.

    Vectors along ``j`` would add to every second element, which no register holds.

    before  ``y[i, 2j+q] += x[i,j+b] * p[q,b]``                                   q in 0:2
    after   ``t[q,i,j] += x[i,j+b] * p[q,b]  ;  y[i,2j+q] = t[q,i,j]``"""
    phase = _find_phase(s, builder.program, builder.ranges)
    if phase is None:
        return None
    own, left = builder.own[s.name].indices, (phase, *(i for i in s.left_indices if i != phase))
    total = builder.define(s, "phases", left, s.value, s.reduction_indices, s.reduction, own)
    points, read = builder.box({i: own[i] for i in s.left_indices}), Read(total.target, total.subscripts)
    message = f"the phases of {s.target} along {phase} are summed up one behind the other, then interleaved"
    return [total, builder.change(s, points, value=read, reduction=None)], message


def _find_phase(s: Statement, program: Program, ranges: Ranges) -> str | None:
    """``q`` where the last subscript is ``n * j + q`` with n values of q; None where the statement stays as it is."""
    own, steps = ranges.statements[s.name].indices, index_coefficients(s.subscripts[-1]) if s.subscripts else None
    if s.reduction is None or not isinstance(s.reduction.init, Const) or steps is None or len(steps) != 2:
        return None
    inner, outer = sorted(steps, key=lambda i: steps[i])
    count, length = constant_of(own[inner].extent), constant_of(own[outer].extent)
    if steps[inner] != 1 or not count or not 2 <= steps[outer] == count or (length is not None and length < FULL_ROW):
        return None
    if not _is_free(s, program, ranges) or not has_own_elements(s, ranges) or not writes_whole(s, ranges):
        return None
    return inner if not _find_windows(s, program, ranges) and _has_rows(s, outer, inner) else None


def _has_rows(s: Statement, outer: str, inner: str) -> bool:
    """Whether vectors along `outer` read whole vectors somewhere, and vectors along `inner` would do so nowhere."""
    moved = (r for r in reads(s.value) if any(mentions(e, outer) for e in r.subscripts))
    lasts = [index_coefficients(r.subscripts[-1]) for r in moved]
    if any(r.tensor == s.target for r in reads(s.value)) or any(last is None or last.get(inner, 0) for last in lasts):
        return False
    return any(last is not None and abs(last.get(outer, 0)) == 1 for last in lasts)
