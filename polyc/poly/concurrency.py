"""Loops whose iterations overlap, and the proof that these do not meet in a cell of memory.

Iterations of a parallel loop must not share a cell, nor lanes of a vector; of a pipeline those may that wait for each other.
Memory that each thread has for itself must not pass values from one iteration to another.
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy

from polyc.poly.exclusive import drop_exclusive
from polyc.poly.instances import Theta, Violation, describe_pair, sets_by_name
from polyc.poly.uses import Use
from polyc.records import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class ConcurrentLoop:
    """A loop whose iterations overlap.  `window`: iterations at a distance below it do; None: all (a parallel loop)."""

    window: int | None
    level: int
    """Position of the loop in the flattened schedule: the levels before it are those of the loops outside."""
    reach: dict[str, islpy.Set]  # by instance set, those below the loop only: [sizes] -> { I[i] }
    columns: int = 0
    """Of a pipeline: how many levels from `level` on say which column it is; the level behind them says how far along."""


def concurrent_loops(schedule: islpy.Schedule, with_vectors: bool) -> Iterator[ConcurrentLoop]:
    """The loops below ``parallel``, ``pipeline`` and ``vector`` marks.  Raises `ValueError` for a mark that is not above a
    band, or a pipeline whose bands do not stand inside each other."""

    def visit(node: islpy.ScheduleNode, level: int) -> Iterator[ConcurrentLoop]:
        kind: object = node.get_type()
        if kind == islpy.schedule_node_type.mark:
            words = node.mark_get_id().get_name().split()
            band = node.child(0)
            if words and (words[0] in ("parallel", "pipeline") or (words[0] == "vector" and with_vectors)):
                below: object = band.get_type()
                if below != islpy.schedule_node_type.band:
                    raise ValueError(f"the mark {words[0]} is not above a band")
                window = None
                if words[0] == "vector":
                    window = int(words[2]) * int(words[3]) if len(words) > 3 else 1 << 30
                reach = sets_by_name(band.get_domain())
                columns = int(words[2]) if words[0] == "pipeline" else 0
                if columns:
                    _check_nesting(band, columns)
                yield ConcurrentLoop(window, level, reach, columns)
        elif kind == islpy.schedule_node_type.band:
            level += node.band_n_member()
        elif kind == islpy.schedule_node_type.sequence:
            level += 1
        for n in range(node.n_children()):
            yield from visit(node.child(n), level)

    yield from visit(schedule.get_root(), 0)


def _check_nesting(band: islpy.ScheduleNode, columns: int) -> None:
    """Below the mark of a pipeline `columns` members and one more must follow each other, with nothing between."""
    found = 0
    while found <= columns:
        kind: object = band.get_type()
        if kind == islpy.schedule_node_type.band:
            found += band.band_n_member()
        elif kind != islpy.schedule_node_type.mark:
            raise ValueError("the loops of a pipeline do not stand inside each other")
        band = band.child(0)


def check_concurrent(loop: ConcurrentLoop, theta: Theta, group: list[Use]) -> Violation | None:
    if not any(use.instances in loop.reach for use in group):
        return None
    if loop.window is None and group[0].space == "thread":
        return _check_private(loop, theta, group)
    inside = [use for use in group if use.instances in loop.reach]
    for n, w in enumerate(inside):
        if not w.is_write:
            continue
        for m, use in enumerate(inside):
            if use.is_write and m < n:
                continue
            pairs = drop_exclusive(w.to_cell.apply_range(use.to_cell.reverse()), w.part, use.part)
            if loop.window is not None and use is w and w.reduces and w.is_exact:
                # Lanes of a vectorised reduction have accumulators of their own; those of a scatter meet in memory.
                pairs = pairs.subtract(w.to_element.apply_range(use.to_element.reverse()))
            if pairs.is_empty():
                continue
            clash = _overlapping(loop, theta, pairs, w.instances, use.instances)
            if not clash.is_empty():
                what = "lanes of a vector" if loop.window is not None else "iterations of a parallel loop"
                what = "columns of a pipeline" if loop.columns else what
                return describe_pair(f"two {what} meet in one cell of {w.buffer}", clash)
    return None


def _overlapping(loop: ConcurrentLoop, theta: Theta, pairs: islpy.Map, a: str, b: str) -> islpy.Map:
    """Pairs in different iterations of the loop that may run at the same time."""
    pairs = pairs.intersect_domain(loop.reach[a]).intersect_range(loop.reach[b])
    # Equal outer times first: equations make the pairs few before anything splits them.
    for level in range(loop.level):
        if theta[a].constants[level] is None or theta[a].constants[level] != theta[b].constants[level]:
            pairs = pairs.intersect(theta[a].levels[level].apply_range(theta[b].levels[level].reverse())).detect_equalities()
    ta, tb = theta[a].levels[loop.level], theta[b].levels[loop.level]
    if loop.columns:
        return _ahead(loop, theta, pairs, a, b).union(_ahead(loop, theta, pairs.reverse(), b, a).reverse())
    near = "" if loop.window is None else f" and -{loop.window} < t - u < {loop.window}"
    apart = islpy.Map(f"{{ [t] -> [u] : t != u{near} }}")
    return pairs.intersect(ta.apply_range(apart).apply_range(tb.reverse()))


def _ahead(loop: ConcurrentLoop, theta: Theta, pairs: islpy.Map, a: str, b: str) -> islpy.Map:
    """Pairs of a pipeline whose second instance is of a later column, but does not wait for the first one: it is less far
    along."""
    along = loop.level + loop.columns
    pairs = pairs.intersect(theta[a].levels[along].lex_gt_map(theta[b].levels[along]))
    found = islpy.Map.empty(pairs.get_space())
    for level in range(loop.level, along):
        ta, tb = theta[a].levels[level], theta[b].levels[level]
        found = found.union(pairs.intersect(ta.lex_lt_map(tb)))
        if level < along - 1:
            pairs = pairs.intersect(ta.apply_range(tb.reverse()))
    return found


def _check_private(loop: ConcurrentLoop, theta: Theta, group: list[Use]) -> Violation | None:
    """Values in memory of one thread must stay inside one iteration of the loop, or one column of a pipeline."""
    inner = loop.level + max(1, loop.columns)
    for w in (use for use in group if use.is_write):
        for use in group:
            if use.version != w.version or (use is w and not w.reduces):
                continue
            made, needed = loop.reach.get(w.instances), loop.reach.get(use.instances)
            if made is None and needed is None:
                continue
            flow = w.to_element.apply_range(use.to_element.reverse())
            if made is not None and needed is not None:
                touched = flow.intersect_domain(made).union(flow.intersect_range(needed))
                leaving = touched.subtract(flow.intersect_domain(made).intersect_range(needed))
                a, b = theta[w.instances], theta[use.instances]
                for level in range(min(inner, len(a.levels))):
                    if a.constants[level] is None or a.constants[level] != b.constants[level]:
                        together = a.levels[level].apply_range(b.levels[level].reverse())
                        leaving = leaving.union(touched.subtract(together))
            elif made is not None:
                leaving = flow.intersect_domain(made)
            else:
                assert needed is not None
                leaving = flow.intersect_range(needed)
            if not leaving.is_empty():
                return describe_pair(f"a value passes between iterations of a parallel loop in private {w.buffer}", leaving)
    return None
