"""Reductions over everything up to an index: each result is the one before and one term more.

before  ``Y[i, d] += f(i, e)`` over ``e <= d``
after   ``Y[i, 0] = f(i, 0)``, ``Y[i, d] = Y[i, d - 1] + f(i, d)``

A row of N results takes N terms instead of N²/2.  So do maxima and products, sums over ``e < d``, those over everything from an
index on, and those over more indices, whose terms of one step are summed up first: as a running sum along another index where
they are one (summed-area tables).  Gautam and Rajopadhye, "Simplifying reductions", 2006, have the general form; here the terms
that a result has more than the one before are those of one value of `e`.
"""

from __future__ import annotations

from itertools import product

from polyc.code_limits import MINIMUM_REUSE
from polyc.ir.expr import Call, Const, Expr, Index, Read, all_hold, ge, gt, identity_of, int_const, le, lt, mentions, substitute
from polyc.ir.program import Reduction, Statement, Tensor, all_reads
from polyc.ir.simplify import simplify
from polyc.ir.types import DType
from polyc.poly import isl
from polyc.poly.points import Points
from polyc.poly.ranges import Interval, estimate_extent
from polyc.records import dataclass
from polyc.scheduler.rewriting.builder import Change, ProgramBuilder

_OPERATORS = ("add", "mul", "max", "min")


def run_sum(s: Statement, builder: ProgramBuilder) -> Change | None:
    """Each result of a running reduction made from the one before."""
    if len(builder.program.writers()[s.target]) > 1:
        return None
    like, done = builder.program.tensor(s.target), list[Statement]()
    along: list[str] = []
    current: Statement | None = s
    while current is not None and (run := _find(current, like.dtype, builder)) is not None:
        along.append(f"{'before' if run.step > 0 else 'behind'} along {run.index}")
        current, *made = _write(current, run, like, builder)
        done = made + done
    start = [] if current is None else [current]
    message = f"running {s.target}: each result is made from the one {', and from the one '.join(along)}"
    return (start + done, message) if along else None


@dataclass(frozen=True, slots=True)
class _Run:
    """Results along `index` reduce the terms at ``summed <= index + distance``; with a `step` of -1 those at ``>=``."""

    index: str
    summed: str
    distance: int
    step: int
    first: Expr
    """The value of `index` that has the fewest terms: one, or none with `is_exclusive`."""
    is_exclusive: bool

    @property
    def place(self) -> Expr:
        """Where the term is that a result has more than the one before."""
        return simplify(Index(self.index) + self.distance)


def _find(s: Statement, dtype: DType, builder: ProgramBuilder) -> _Run | None:
    own, points = builder.own[s.name], builder.points(s)
    if s.reduction is None or s.reduction.op not in _OPERATORS or s.reduction.monoid is not None:
        return None
    if own.guards or not s.has_plain_left or dtype.is_storage or not isinstance(s.reduction.init, Const):
        return None
    if any(r.tensor == s.target for r in all_reads(s)):
        return None
    known = {i: estimate_extent(own.indices[i].extent, builder.ranges.typical) for i in s.left_indices}
    long = [i for i, n in known.items() if not mentions(s.value, i) and (n is None or n >= MINIMUM_REUSE)]
    runs = (_find_run(s, points, builder, *names) for names in product(long, s.reduction_indices, (1, -1)))
    return next((run for run in runs if run is not None), None)


def _find_run(s: Statement, own: Points, builder: ProgramBuilder, index: str, summed: str, step: int) -> _Run | None:
    """The run, if the points are a product cut off at ``summed <= index + distance`` (or ``>=``), one more at each step."""
    ahead = step * (Index(summed) - Index(index))
    farthest = own.domain.max_val(own.affine.pw_aff(ahead).as_aff())
    if not farthest.is_int():
        return None
    distance = step * int(farthest.to_python())
    cut = _others(own, builder, s, (index, summed)).where(le(ahead, step * distance))
    if cut is None or not cut.domain.is_subset(own.domain):
        return None
    along, terms = own.indices[index], own.indices[summed]
    first, start = (along.lower, terms.lower) if step > 0 else (_last(along), _last(terms))
    fewest = simplify(step * (first + distance - start))
    if fewest not in (int_const(0), int_const(-1)):
        return None
    run = _Run(index, summed, distance, step, first, fewest == int_const(-1))
    behind = _behind_first(run, builder.box(own.indices))
    return run if behind.satisfy(all_hold([ge(run.place, terms.lower), le(run.place, _last(terms))])) else None


def _others(own: Points, builder: ProgramBuilder, s: Statement, names: tuple[str, ...]) -> Points:
    """The points of the box that `own` allows at some values of the indices `names`; at no sums but these all of them."""
    box, domain = builder.box(own.indices), own.domain
    for name in names:
        domain = domain.eliminate(isl.dim_type.set, s.indices.index(name), 1)
    return Points(box.indices, domain.intersect(box.domain)) if len(s.reduction_indices) > 1 else box


def _behind_first(run: _Run, box: Points) -> Points:
    """The points of `box` at other values of the index than the first."""
    behind = box.where(gt(Index(run.index), run.first) if run.step > 0 else lt(Index(run.index), run.first))
    assert behind is not None
    return behind


def _last(interval: Interval) -> Expr:
    return simplify(interval.lower + interval.extent - 1)


def _write(s: Statement, run: _Run, like: Tensor, builder: ProgramBuilder) -> tuple[Statement | None, Statement, Statement]:
    """The sums of the terms of one step, where there are more, the first result, and the others."""
    assert s.reduction is not None and isinstance(s.reduction.init, Const)
    own, op = builder.points(s), s.reduction.op
    identity = identity_of(op, like.dtype)
    others = tuple(i for i in s.left_indices if i != run.index)
    box = builder.box({i: own.indices[i] for i in s.indices if i != run.summed})
    term = substitute(s.value, {run.summed: run.place})
    along = own.indices[run.index]
    lower = along.lower if run.step < 0 else simplify(along.lower + 1)
    behind = Points({**box.indices, run.index: Interval(lower, simplify(along.extent - 1))}, _behind_first(run, box).domain)
    terms: Statement | None = None
    if len(box.indices) > len(s.left_indices):
        added = behind if run.is_exclusive else box
        whole = _others(own, builder, s, (run.index, run.summed)).project(box.indices)
        over = Points(added.indices, whole.domain.intersect(added.domain))
        summed = tuple(i for i in box.indices if i not in s.left_indices)
        terms = builder.define(s, "step", s.left_indices, term, summed, Reduction(op, identity), over)
        term = Read(terms.target, s.subscripts)

    def joined(former: Expr, value: Expr) -> Expr:
        return value if former == identity else Call(op, (former, value))

    at_first = {run.index: run.first}
    subscripts = tuple(substitute(e, at_first) for e in s.subscripts)
    value = s.reduction.init if run.is_exclusive else joined(s.reduction.init, substitute(term, at_first))
    first = builder.assign(f"{s.name}_first", s.target, subscripts, value, box.project(others), s)
    former = {run.index: Index(run.index) - run.step}
    value = joined(Read(s.target, tuple(substitute(e, former) for e in s.subscripts)), term)
    return terms, first, builder.change(s, behind.project(s.left_indices), value=value, reduction=None)
