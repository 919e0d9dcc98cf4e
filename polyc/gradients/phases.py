"""Strided windows by phases: the adjoint of ``X[2 * h + r]`` is that of a window of stride 1 for each element modulo 2.

    before  ``d_X[2 * h + r] += d_Y[h] * W[r]``
    after   ``E[p, h + t] += d_Y[h] * W[2 * t + p]  where 2 * t + p < R``,  ``d_X[e] = E[e % 2, e // 2]``

All accesses can then be solved for h, and what is left is a convolution for each phase p.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from polyc.gradients.sums import Part
from polyc.ir.expr import Expr, Index, ceil_div, index_names, int_const, lt, mentions, reads, substitute
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Condition, RangeClause, map_statement
from polyc.ir.simplify import simplify
from polyc.poly.ranges import Interval
from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Phased:
    """A part into a tensor with two dimensions for each strided one, and where an element of the adjoint stands in it."""

    part: Part
    box: tuple[Interval, ...]
    element: tuple[Expr, ...]


def by_phases(part: Part, box: Sequence[Interval], element: Sequence[Expr]) -> Phased:
    """The part itself where no dimension is strided."""
    found = Phased(part, tuple(box), tuple(element))
    while (more := _split(found)) is not None:
        found = more
    return found


def _split(phased: Phased) -> Phased | None:
    part, box = phased.part, phased.box
    for d, subscript in enumerate(part.subscripts):
        found = _window(part, d) if not reads(subscript) and box[d].lower == int_const(0) else None
        if found is None:
            continue
        stride, outer, index = found
        s, extent = part.statement, part.intervals[index].extent
        phase, step = _free(f"{index}_phase", s.indices), _free(f"{index}_step", s.indices)
        inside = simplify(stride * Index(step) + Index(phase))
        moved = {index: inside}
        where = tuple(w for w in s.where if not (isinstance(w, RangeClause) and w.index == index))
        made = map_statement(replace(s, where=where), partial(substitute, indices=moved))
        indices = tuple(n for i in s.indices for n in ((step, phase) if i == index else (i,)))
        made = replace(made, indices=indices, where=(*made.where, Condition(lt(inside, extent))))
        intervals = {i: b for i, b in part.intervals.items() if i != index}
        intervals |= {step: _from_zero(ceil_div(extent, stride)), phase: _from_zero(int_const(stride))}
        subscripts = [Index(phase), simplify(Index(outer) + Index(step))]
        terms = tuple(
            (substitute(v, moved), tuple((substitute(c, moved), holds) for c, holds in under)) for v, under in part.terms
        )
        e = phased.element[d]
        return Phased(
            Part(made, intervals, (*part.subscripts[:d], *subscripts, *part.subscripts[d + 1 :]), terms),
            (*box[:d], _from_zero(int_const(stride)), _from_zero(ceil_div(box[d].extent, stride)), *box[d + 1 :]),
            (*phased.element[:d], e % stride, e // stride, *phased.element[d + 1 :]),
        )
    return None


def _window(part: Part, d: int) -> tuple[int, str, str] | None:
    """The stride of a subscript ``c * h + r``, h, and r, which no other subscript and no clause mentions."""
    s, coefficients = part.statement, index_coefficients(part.subscripts[d]) or {}
    strides = [(c, i) for i, c in coefficients.items() if c > 1]
    windows = [i for i, c in coefficients.items() if c == 1]
    if len(coefficients) != 2 or len(strides) != 1 or len(windows) != 1:
        return None
    (stride, outer), (index,) = strides[0], windows
    whole = simplify(part.subscripts[d] - stride * Index(outer) - Index(index))
    others = [e for k, e in enumerate(part.subscripts) if k != d]
    clauses = [e for w in s.where if isinstance(w, (Condition, RangeClause)) for e in w.expressions]
    bounds = [w for w in s.where if isinstance(w, RangeClause) and w.index == index]
    is_free = not any(mentions(e, index) for e in (*others, *clauses)) and not any(index_names(*w.expressions) for w in bounds)
    is_free = is_free and whole == int_const(0) and part.intervals[index].lower == int_const(0)
    return (stride, outer, index) if is_free else None


def _from_zero(extent: Expr) -> Interval:
    return Interval(int_const(0), simplify(extent))


def _free(wanted: str, taken: Sequence[str]) -> str:
    while wanted in taken:
        wanted += "_"
    return wanted
