"""Rows of a recurrence by what they keep alive: a few steps of each tensor, or all of them.

The adjoint of ``V(k+1,j,i) = V(k,j,i) - W(k,i) * p(k,j)`` where ``j > k`` may run by columns j, each through all steps k, or by
steps k.  By columns, as the recurrence itself, sums over j for each k read what all later columns had at that step: all steps
of all columns are stored.  By steps, one is alive.

Reference: bounded distances of dependences as the measure of rows (Bondhugula, Hartono, Ramanujam and Sadayappan, "A practical
automatic polyhedral parallelizer and locality optimizer", 2008), here weighed by what they keep.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from polyc.code_limits import MUCH
from polyc.poly.farkas import Piece, longest_distance
from polyc.poly.rows import Row
from polyc.scheduler.rows.model import AccessShape, Model
from polyc.scheduler.rows.recurrence import find_shifted_row
from polyc.scheduler.rows.solver import Budget
from polyc.scheduler.rows.steps import MANY_STATES, align_steps, find_stored


def keep_fewer(
    model: Model, dims: Mapping[str, int], row: Mapping[str, Row], band: list[Piece], budget: Budget
) -> Mapping[str, Row]:
    """The first `row` of statements with `dims` dimensions, or one along steps that all have in common where the first keeps
    much alive beside what the statements touch, and this one little of it.  `band`: the dependences between statements."""
    stored = {*find_stored(model, {*dims}), *model.outputs}
    passed = [p for p in band if _write_of(model, p.source).tensor not in stored]
    largest = max(a.footprint for name in dims for a in model.statements[name].accesses)
    least = max(MANY_STATES, largest // MUCH)
    if sum({w.tensor: w.footprint for w in (_write_of(model, p.source) for p in passed)}.values()) < least:
        return row
    kept = _count_kept(model, row, passed)
    if kept < least:
        return row
    leader = max((p.source for p in passed), key=lambda name: _write_of(model, name).footprint)
    for d in range(dims[leader]):
        steps = align_steps(model, {*dims}, {leader: d})
        if steps.keys() != dims.keys():
            continue
        found = find_shifted_row(dims, band, band, {name: () for name in dims}, budget, model, moving=steps)
        if found is not None and _count_kept(model, found, passed) * MUCH < kept:
            return found
    return row


def _count_kept(model: Model, rows: Mapping[str, Row], passed: Collection[Piece]) -> int:
    """Elements of tensors that are alive at once: all where they are read many steps later, else those of one step."""
    kept: dict[str, int] = {}
    for piece in passed:
        write, extents = _write_of(model, piece.source), model.statements[piece.source].extents
        n_steps = max((extents[d] for d, c in enumerate(rows[piece.source].coefficients) if c), default=1)
        is_far = longest_distance(rows, piece) > n_steps // MUCH
        kept[write.tensor] = max(kept.get(write.tensor, 0), write.footprint if is_far else write.footprint // n_steps)
    return sum(kept.values())


def _write_of(model: Model, name: str) -> AccessShape:
    return next(a for a in model.statements[name].accesses if a.is_write)
