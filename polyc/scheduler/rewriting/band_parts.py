"""Results of recurrences that are a band: what lies beside the band is a statement of its own.

    before  ``L[i, j] = j > i || i > j + 8 ? 0 : f(A[i, j], S[i, j], L[j, j])``      S a sum over earlier elements of L
    after   ``L[i, j] = 0 where j > i``, ``L[i, j] = 0 where i > j + 8``, ``L[i, j] = f(…) where i - 8 <= j <= i``

As one statement the recurrence goes over the whole matrix in its order and asks each element where it is; apart, it goes along
the band, and vectors fill the rest.
"""

from __future__ import annotations

from polyc.code_limits import LONG_ROW, MAX_PARTS
from polyc.ir.expr import Select, reads
from polyc.ir.program import Statement
from polyc.poly.domains import convex_pieces, has_divs, longest_run, subtract_domain
from polyc.poly.points import Points
from polyc.poly.ranges import Ranges, estimate_extent
from polyc.scheduler.rewriting.builder import Change, ProgramBuilder, find_recurrences

MINIMUM_SHARE = 4
"""Rows are at least so many times as long as the band is wide."""


def split_band(s: Statement, builder: ProgramBuilder) -> Change | None:
    """Domain splitting: what lies beside a band is a statement of its own."""
    if not isinstance(s.value, Select) or s.reduction is not None or builder.own[s.name].guards or len(s.indices) < 2:
        return None
    if builder.program.tensor(s.target).role != "output" or not s.has_plain_left:
        return None
    cyclic = {r.target for group in find_recurrences(builder.program) if s in group for r in group}
    arms = s.value.then, s.value.other
    recurs = [any(r.tensor in cyclic for r in reads(arm)) for arm in arms]
    points = builder.points(s)
    inside = points.where(s.value.condition, recurs[0]) if recurs[0] != recurs[1] else None
    if inside is None or not _is_band(inside, builder.ranges):
        return None
    band, (value, other) = inside.domain.coalesce(), arms if recurs[0] else arms[::-1]
    pieces = convex_pieces(subtract_domain(points.domain, band))
    if band.n_basic_set() != 1 or not 1 <= len(pieces) <= MAX_PARTS or any(map(has_divs, (band, *pieces))):
        return None
    parts = [builder.change(s, Points(points.indices, band), value=value)]
    for n, piece in enumerate(pieces, 1):
        name = builder.free_name(f"{s.name}_beside{n}")
        parts.append(builder.assign(name, s.target, s.subscripts, other, Points(points.indices, piece), s))
    return parts, f"{s.target} beside its band is computed apart"


def _is_band(points: Points, ranges: Ranges) -> bool:
    """Whether points are few along one of the indices wherever the others stand."""
    for n, interval in enumerate(points.indices.values()):
        extent, width = estimate_extent(interval.extent, ranges.typical), longest_run(points.domain, n)
        if extent is not None and width is not None and extent >= max(LONG_ROW, MINIMUM_SHARE * width):
            return True
    return False
