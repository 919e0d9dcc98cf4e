"""Which instances of statements are computed: none that nothing reads, but where sums take whole register tiles."""

from __future__ import annotations

from collections.abc import Collection

from polyc.diagnostics import Remark, UnsupportedError
from polyc.ir.program import Condition, Program
from polyc.machine import Machine
from polyc.poly.dependences import compute_dependences
from polyc.poly.domains import shift_domain
from polyc.poly.live import find_dead_instances, find_dead_starts
from polyc.poly.ranges import Ranges
from polyc.poly.scop import Scop
from polyc.poly.whole_tiles import has_unread_parts, make_whole_tiles
from polyc.records import replace
from polyc.scheduler.contractions.choice import Choice, choose
from polyc.scheduler.contractions.contraction import find_contraction
from polyc.scheduler.contractions.packing import choose_together
from polyc.scheduler.distribute import distribute_bands
from polyc.scheduler.loops.plan import merge_bands
from polyc.scheduler.misfits import find_cutting
from polyc.scheduler.rows.ilp import schedule_statements

MOST_MORE = 8
"""Products of whole tiles for each that is asked for, at most: there are two in a triangle that one tile covers, many along a
narrow band.  Rows whose ends differ take several times as long for each."""


def drop_dead_instances(scop: Scop) -> tuple[Program, Ranges, list[Remark]]:
    """The program and the ranges of `scop` without the instances of recurrences and the initial values that no result needs;
    the same objects where there are none.

    Before: ``V[k+1, j, i] = 0 where j <= k`` beside a part for j > k, and ``Y[k, i] = i <= k ? … : 0``, of which only the
    elements ``j >= k`` and ``i <= k`` are ever read.  After: the first is gone, the second runs over ``i <= k``.  Every element
    of a tensor has a definition in the source; those that only complete it would keep all steps of a recurrence alive.
    Initial values of sums are given to elements that are read: in a band, not to the whole matrix around it."""
    remarks: list[Remark] = []
    own, gone = dict(scop.ranges.statements), set[str]()
    for name, region in find_dead_starts(scop).items():
        s = scop.statement(name)
        lower = dict(zip(s.elements, (i.lower for i in scop.ranges.tensors[s.target]), strict=True))
        own[name] = replace(own[name], region=shift_domain(region, s.elements, lower))
        message = f"elements of {scop.tensors[s.target].base} that nothing reads have no start"
        remarks.append(Remark("passed", "dead", message, name))
    narrowed = find_dead_instances(scop)
    for s in (s for s in scop.statements if s.name in narrowed):
        domain, base = narrowed[s.name], scop.tensors[s.target].base
        message = f"elements of {base} that nothing reads are not computed"
        if domain is None:
            gone.add(s.name)
            del own[s.name]
            message = f"{base} is never read where this statement writes it"
        else:
            lower = {i: own[s.name].indices[i].lower for i in s.indices}
            own[s.name] = replace(own[s.name], domain=shift_domain(domain, s.indices, lower))
        remarks.append(Remark("passed", "dead", message, s.name))
    if not remarks:
        return scop.program, scop.ranges, remarks
    statements = tuple(s for s in scop.program.statements if s.name not in gone)
    return replace(scop.program, statements=statements), replace(scop.ranges, statements=own), remarks


def complete_tiles(scop: Scop, target: Machine, constants: Collection[str] = ()) -> tuple[Program, Ranges, list[Remark]]:
    """The program and the ranges of `scop` with sums into parts of temporaries computed for whole register tiles; the same
    objects where there are none.

    before  ``P[i, j] += Q[i, d] * K[j, d]  where j <= i``                  what is beside the triangle is never read
    after   ``P[i, j] += Q[i, d] * K[j, d]  where j < 64 * (i / 64) + 64``  for register tiles of 64 columns

    The border of a triangle cuts the rows of a tile short, each at another place, so that they run one by one, with few sums at
    a time; where one tile is as wide as the matrix all of them do.  Whole tiles take less time, though they have more
    products."""
    remarks: list[Remark] = []
    changed, own = dict[str, tuple[Condition, ...]](), dict(scop.ranges.statements)
    found = [s for s in scop.statements if has_unread_parts(s, scop)]
    shared = _choose_in_shared_loops(scop, target) if found else {}
    for s in found:
        c = find_contraction(s, scop, target)
        choice = None if c is None else shared.get(s.name) or choose(c, target, constants)
        whole = None if choice is None else make_whole_tiles(s, scop, choice.way.tile, choice.way.vector)
        if choice is None or whole is None or whole.growth > MOST_MORE:
            continue
        own[s.name] = whole.own
        changed[s.name] = () if whole.condition is None else (Condition(whole.condition),)
        size = " x ".join(f"{i} {n}" for i, n in choice.way.tile.items())
        message = f"computed for whole tiles of {size}: {whole.growth:.2g} products for each that is read"
        remarks.append(Remark("passed", "whole-tiles", message, s.name, s.origin.span))
    if not remarks:
        return scop.program, scop.ranges, remarks
    statements = tuple(replace(s, where=changed[s.name]) if s.name in changed else s for s in scop.program.statements)
    return replace(scop.program, statements=statements), replace(scop.ranges, statements=own), remarks


def _choose_in_shared_loops(scop: Scop, target: Machine) -> dict[str, Choice]:
    """How contractions are computed in the loops that they share: tiles that these do not divide would begin elsewhere."""
    dependences = compute_dependences(scop)
    if dependences.has_recurrence():
        return {}
    try:
        rows = merge_bands(distribute_bands(schedule_statements(scop, dependences), scop, target))
    except UnsupportedError:
        return {}
    return choose_together(rows, scop, target, find_cutting(rows, scop, target))
