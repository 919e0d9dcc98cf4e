"""Loops around rows that are moved as they are, in the order in which memory holds what is read.

Before: ``a { c { b { vector d { Y[a, c, b, d] = X[a, b, c, d] } } } }``, whose reads jump from row to row.
After: ``a { b { c { vector d { … } } } }``, whose writes do.

A processor reads ahead where rows follow each other, and waits for each of those that do not; what it writes elsewhere leaves
by itself.  Few rows side by side are as many streams, which it reads ahead as well (one thread of Zen 4, rows of 256 bytes:
8×512×12×64 with the inner indices exchanged 1.73 → 0.98 ms, 4×2048×16×64 4.7 → 2.0, 1×4096×32×128 8.6 → 3.2; 8×12×512×64, as
twelve streams, 0.75 → 0.97, and stays).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from polyc.code_limits import MUCH
from polyc.machine import Machine
from polyc.poly.rows import Member
from polyc.poly.tree import Plan, PlanLoop
from polyc.scheduler.accesses import AccessMotion, access_motions, index_trips
from polyc.scheduler.loops.crossing import only_index, tile_blocks
from polyc.scheduler.loops.member_view import MemberView


def follow_reads(plan: Plan, name: str, members: list[Member], view: MemberView) -> Plan:
    """The chain of loops `plan` over `members` around one statement, in the order of its operand's memory where that pays."""
    s, trips = view.statement(name), index_trips(view.statement(name))
    if any(m.kind != "P" for m in members) or s.is_reduction:
        return plan
    write, *read = access_motions(s)
    orders = [_order(write), *map(_order, read)]
    sizes = [
        math.prod(trips[i] for i in order or ()) * view.scop.tensors[m.tensor].dtype.itemsize
        for order, m in zip(orders, (write, *read), strict=True)
    ]
    if len(sizes) < 2 or None in orders:
        return plan
    largest = max(range(1, len(sizes)), key=sizes.__getitem__)
    if MUCH * (sum(sizes[1:]) - sizes[largest]) > sizes[largest] or sizes[largest] <= view.target.l2:
        return plan
    itemsize = view.scop.tensors[read[largest - 1].tensor].dtype.itemsize
    wanted, found = orders[0] or [], orders[largest] or []
    if not _jumps(wanted, found, trips, itemsize, view.target):
        return plan
    rows = {view.index(m, name): id(m.rows) for m in members}
    if set(rows) != set(found) or set(wanted) != set(found) or not _is_whole_chain(plan, len(members)):
        return plan
    return tile_blocks(plan, {}, [rows[i] for i in found], members[-1], members[-1])


def _order(access: AccessMotion) -> list[str] | None:
    """The indices of an access, outermost first; None where some subscript is more than one index."""
    found = [only_index(c) for c in access.coefficients]
    return None if None in found else [i for i in found if i]


def _jumps(write: list[str], read: list[str], trips: Mapping[str, int], itemsize: int, target: Machine) -> bool:
    """Whether short rows are read from many places in turn in the order in which they are written.  Of rows below a line, lines
    are written in parts; long ones are streams by themselves."""
    run, inner = itemsize, 0
    while inner < min(len(write), len(read)) and write[-1 - inner] == read[-1 - inner]:
        run *= trips[write[-1 - inner]]
        inner += 1
    outer, others = write[: len(write) - inner], read[: len(read) - inner]
    if not outer or set(outer) != set(others) or not target.cache_line <= run <= target.prefetchers.long_run:
        return False
    n_streams = trips[outer[-1]]
    distance = run * math.prod(trips[i] for i in others[others.index(outer[-1]) + 1 :])
    return not target.is_followed(n_streams) or target.conflicts(n_streams, distance, soon_used=True)


def _is_whole_chain(plan: Plan, length: int) -> bool:
    while length and isinstance(plan, PlanLoop) and plan.part == "whole":
        plan, length = plan.child, length - 1
    return length == 0
