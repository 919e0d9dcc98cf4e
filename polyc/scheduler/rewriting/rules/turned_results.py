"""Results of products that lie across memory are computed in another order, and turned into their place in tiles.

    before  ``Z[c,b,a] += X[a,d,b] * Y[a,d,c]``
    after   ``T[a,c,b] += X[a,d,b] * Y[a,d,c]  ;  Z[c,b,a] = T[a,c,b]``

Along the memory of ``Z`` runs an index that both operands have: a vector along it would share no load with its neighbours,
and a register tile of the others stores each lane by itself.  In the other order a tile stores vectors, and a cache line of
``a`` is put together from as many tiles (`loops.band_tiles`) by shuffles.  What is made of the sum, element by element, reads
``T`` in the place of the sum.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from polyc.code_limits import CLEARLY
from polyc.diagnostics import Remark
from polyc.ir.expr import Const, Index, Read, identity_of
from polyc.ir.program import Program, Statement
from polyc.machine import Machine
from polyc.poly.ranges import Ranges
from polyc.records import replace
from polyc.scheduler.contractions.choice import choose, estimate_cycles
from polyc.scheduler.contractions.contraction import Contraction, find_contraction_in
from polyc.scheduler.rewriting.builder import ProgramBuilder, change_groups
from polyc.scheduler.rewriting.reindexing import map_reads
from polyc.scheduler.rewriting.rules.analysis import find_elementwise_reader, is_whole_box


def turn_results(
    program: Program, ranges: Ranges, target: Machine, constants: Collection[str] = ()
) -> tuple[Program, Ranges, list[Remark]]:
    """Temporaries have the layout in which they are read."""
    groups = ([s] for s in program.statements)
    return change_groups("transpose-results", _rewrite, groups, program, ranges, target, constants)


def _rewrite(
    group: list[Statement], program: Program, ranges: Ranges, target: Machine, constants: Collection[str]
) -> tuple[Program, Ranges, str] | None:
    (s,) = group
    reader = _find_reader(s, program, ranges)
    found = None if reader is None else _find_order(s, program, ranges, target, constants)
    return found and (*_turn(s, None if reader is s else reader, found[0], program, ranges), found[1])


def _find_reader(s: Statement, program: Program, ranges: Ranges) -> Statement | None:
    """The statement whose results lie as those of `s`: the one that makes an output of them element by element, else `s`
    itself where it writes an output that nobody reads; None where the order of `s` has to stay."""
    if s.reduction is None or s.reduction.op != "add" or s.reduction.init != identity_of("add", program.tensor(s.target).dtype):
        return None
    is_known = all(isinstance(x.extent, Const) for x in ranges.statements[s.name].indices.values())
    if not is_known or len(s.left_indices) < 2 or not is_whole_box(s, program, ranges):
        return None
    if program.tensor(s.target).role == "output":
        return None if program.readers(s.target) else s
    found = find_elementwise_reader(s, program, ranges)
    if found is None or program.tensor(found[0].target).role != "output":
        return None
    is_same = tuple(found[1].values()) == found[0].left_indices
    return found[0] if is_same else None


def _find_order(
    s: Statement, program: Program, ranges: Ranges, target: Machine, constants: Collection[str]
) -> tuple[list[int], str] | None:
    """The dimensions of the results in the order in which the sum is computed the fastest, the index along memory outermost,
    and why; None where they stay."""
    c = find_contraction_in(program, ranges, s.name, target)
    names = [e.name for e in s.subscripts if isinstance(e, Index)]
    if c is None or c.lanes == 1 or not all(v.moves(names[-1]) for v in c.views):
        return None
    line = target.cache_line // c.itemsize
    if c.trips[names[-1]] < line // 2:
        return None  # what is put together would be stored in short pieces
    before = estimate_cycles(c, choose(c, target, constants), target, constants)
    best: tuple[float, list[int]] | None = None
    for n, vector in enumerate(names[:-1]):
        if c.trips[vector] < c.lanes or all(v.moves(vector) for v in c.views):
            continue
        order = [len(names) - 1, *(k for k in range(len(names) - 1) if k != n), n]
        turned = replace(c, result=_strides([names[k] for k in order], c))
        cycles = estimate_cycles(turned, choose(turned, target, constants), target, constants)
        if best is None or cycles < best[0]:
            best = cycles, order
    if best is None:
        return None
    after = best[0] + target.copies.transposing * prod(c.trips[i] for i in names[:-1]) * max(c.trips[names[-1]], line)
    message = f"computed with {names[best[1][-1]]} along memory and turned: about {after:.2g} cycles, as written {before:.2g}"
    return (best[1], message) if after < CLEARLY * before else None


def _strides(names: list[str], c: Contraction) -> dict[str, int]:
    return {i: prod(c.trips[k] for k in names[n + 1 :]) for n, i in enumerate(names)}


def _turn(s: Statement, reader: Statement | None, order: list[int], program: Program, ranges: Ranges) -> tuple[Program, Ranges]:
    """`s` into a tensor with its dimensions in that order, and what reads it: `reader`, or else an assignment."""
    builder = ProgramBuilder(program, ranges)
    turned = builder.add_temporary(s, "turned", [ranges.tensors[s.target][k] for k in order])

    def at(read: Read) -> Read:
        return Read(turned, tuple(read.subscripts[k] for k in order))

    read, points = at(Read(s.target, s.subscripts)), builder.points(s)
    made = [builder.assign(f"{s.name}_turned", turned, read.subscripts, s.value, points, s, s.reduction)]
    if reader is None:
        made.append(builder.change(s, points.project(s.left_indices), value=read, reduction=None))
    for old in program.statements:
        builder.statements += made if old is s else [old]
        if old is reader:
            builder.statements[-1] = replace(old, value=map_reads(old.value, at, s.target))
    return builder.finish()
