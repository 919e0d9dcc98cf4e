"""Symmetric results: one half of their elements is computed, the other half is its mirror image.

    before  ``P[i, j] += X[k, i] * X[k, j]  ;  C[i, j] = P[i, j] / n``
    after   ``P[i, j] += X[k, i] * X[k, j] where j <= i  ;  C[i, j] = P[i, j] / n where j <= i``
            ``C[i, j] = C[j, i] where j > i``

That is what BLAS's `syrk` saves of the product of a matrix with its own transpose.  Which results stay the same where two of
their dimensions change places is read off their expressions (`ir.exchange`): distances between points, and squares of
symmetric matrices, are such sums, too.  What is made of elements of a symmetric sum one by one is made of its half.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from math import prod

from polyc.code_limits import CLEARLY, UNKNOWN_EXTENT
from polyc.diagnostics import Remark
from polyc.ir.exchange import survives_exchange
from polyc.ir.expr import Const, Expr, Index, Read, gt, le, padded_reads, rewrite
from polyc.ir.program import Program, Statement, all_reads, map_statement
from polyc.machine import Machine
from polyc.poly.ranges import Ranges
from polyc.scheduler.accesses import operation_weight
from polyc.scheduler.contractions.choice import choose, estimate_cycles
from polyc.scheduler.contractions.contraction import find_contraction_in
from polyc.scheduler.rewriting.builder import ProgramBuilder
from polyc.scheduler.rewriting.split import find_split

Pairs = dict[str, tuple[int, int]]
"""By tensor, two dimensions that may change places; the subscript of the second is the smaller one where it is computed."""


def mirror_symmetric_results(program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, list[Remark]]:
    """Symmetric results are computed for one half and mirrored."""
    builder = ProgramBuilder(program, ranges)
    symmetric, sums = _find_symmetric(builder, target)
    halved = _choose_halved(sums, symmetric, program) if sums else {}
    remarks: list[Remark] = []
    for s in program.statements:
        if s.name not in halved:
            builder.statements.append(s)
            continue
        builder.statements += _halve(s, symmetric, halved[s.name], builder)
        if s.name in sums:
            i, j = _pair(s, symmetric)
            message = f"{program.tensor(s.target).base} is symmetric in {i} and {j}: {sums[s.name]}"
            remarks.append(Remark("passed", "symmetric-results", message, s.name, s.span))
    return (*builder.finish(), remarks) if remarks else (program, ranges, remarks)


def _pair(s: Statement, symmetric: Pairs) -> tuple[str, str]:
    """The two indices that may change places."""
    p, q = symmetric[s.target]
    return s.element_names[p], s.element_names[q]


# -- what is symmetric


def _find_symmetric(builder: ProgramBuilder, target: Machine) -> tuple[Pairs, dict[str, str]]:
    """Symmetric tensors, and the sums that are worth being halved, each with the estimate that says so."""
    program, symmetric, sums = builder.program, Pairs(), dict[str, str]()
    writers = program.writers()
    for s in program.statements:
        if len(writers[s.target]) > 1 or not (symmetric or s.reduction_indices):
            continue
        pairs = combinations(range(len(s.subscripts)), 2)
        pair = next((pair for pair in pairs if _may_exchange(s, *pair, symmetric, builder)), None)
        if pair is None or not program.made_from(s.target).isdisjoint(r.tensor for r in all_reads(s)):
            continue
        symmetric[s.target] = pair
        if s.reduction_indices and (gain := _estimate(s, pair, builder, target)) is not None:
            sums[s.name] = gain
    return symmetric, sums


def _may_exchange(s: Statement, p: int, q: int, symmetric: Pairs, builder: ProgramBuilder) -> bool:
    """Whether a statement computes the same elements with these two dimensions of its target exchanged."""
    own, box, types = builder.own[s.name], builder.intervals[s.target], builder.program.types
    if not s.has_plain_left or own.guards or own.region is not None or box[p] != box[q]:
        return False
    i, j = s.element_names[p], s.element_names[q]
    if own.indices[i] != own.indices[j] or any(own.indices[n] != whole for n, whole in zip(s.element_names, box, strict=True)):
        return False
    r = s.reduction
    if r is not None and (r.monoid is not None or not survives_exchange(r.init, i, j, types, symmetric)):
        return False
    if not survives_exchange(s.value, i, j, types, symmetric, r is not None and r.op == "add"):
        return False
    points = builder.points(s)
    turned = points.project({i: j, j: i}.get(n, n) for n in s.indices)
    return bool(points.domain.is_equal(turned.domain))


def _estimate(s: Statement, pair: tuple[int, int], builder: ProgramBuilder, target: Machine) -> str | None:
    """What is saved of a sum that is computed for one half, in words; None where that is less than mirroring takes.

    Tiles across the diagonal are computed whole, or row by row where extents are not known, which takes about twice as long.
    Long sums of few results stay as they are: these are cut for threads."""
    program, ranges = builder.program, builder.ranges
    if find_split(s, ranges) is not None:
        return None
    names, found = s.element_names, ranges.trips(s.name)
    trips = {i: UNKNOWN_EXTENT if n is None else n for i, n in found.items()}
    i, j = (names[d] for d in pair)
    c = find_contraction_in(program, ranges, s.name, target)
    choice = None if c is None else choose(c, target)
    if c is not None and choice is not None:
        across, before = sum(choice.way.tile.get(x, 1) for x in (i, j)), estimate_cycles(c, choice, target)
    else:
        lanes = target.lanes(program.tensor(s.target).dtype.itemsize)
        operations = prod(trips.values()) * (1 + operation_weight(s.value))
        across, before = 1 + lanes, target.loops.operation * operations / lanes
    if not isinstance(builder.own[s.name].indices[i].extent, Const):
        across *= 2
    part = min(1.0, (1 + across / max(1, trips[i])) / 2)
    after = part * before + prod(trips[x] for x in names) / 2 * target.tiles.far_store
    return f"about {after:.2g} cycles, as written {before:.2g}" if after < CLEARLY * before else None


# -- what is halved


def _choose_halved(sums: Mapping[str, str], symmetric: Pairs, program: Program) -> dict[str, bool]:
    """Statements that are computed for one half, and whether the other half of what they write is read.

    Beside the sums these are statements that read halves at their own element, if nothing else reads them."""
    chosen = {s.name: s for s in program.statements if s.target in symmetric and (s.name in sums or s.reduction is None)}
    while True:
        targets = {s.target for s in chosen.values()}
        whole = {t for t in targets if program.tensor(t).role != "temporary"}
        for reader in program.statements:
            whole |= {r.tensor for r in _reads_elsewhere(reader, symmetric, chosen)} & targets
        halves = targets - whole
        kept = {}
        for name, s in chosen.items():
            read = {r.tensor for r in all_reads(s)} & targets
            if name in sums or (read and read <= halves):
                kept[name] = s
        if len(kept) == len(chosen):
            return {name: s.target in whole for name, s in chosen.items()}
        chosen = kept


def _reads_elsewhere(s: Statement, symmetric: Pairs, chosen: Mapping[str, Statement]) -> list[Read]:
    """Reads of symmetric tensors that are not made at the pair of indices of a statement that is computed for one half."""
    padded = set(padded_reads(s.value))
    found = [r for r in all_reads(s) if r.tensor in symmetric]
    return [r for r in found if s.name not in chosen or r in padded or not _is_at_element(r, s, symmetric)]


def _is_at_element(read: Read, s: Statement, symmetric: Pairs) -> bool:
    return {read.subscripts[d] for d in symmetric[read.tensor]} == {Index(i) for i in _pair(s, symmetric)}


def _halve(s: Statement, symmetric: Pairs, is_mirrored: bool, builder: ProgramBuilder) -> list[Statement]:
    """The statement for one half, and what gives the other half."""
    (i, j), (p, q), points = _pair(s, symmetric), symmetric[s.target], builder.points(s)
    # A sum gives all elements a value, those without a term, too.
    elements = points if s.reduction is None else builder.elements(s)
    lower, given, upper = points.where(le(Index(j), Index(i))), *(elements.where(f(Index(j), Index(i))) for f in (le, gt))
    assert lower is not None
    assert given is not None
    assert upper is not None

    def from_half(node: Expr) -> Expr | None:
        if not isinstance(node, Read) or node.tensor not in symmetric or not _is_at_element(node, s, symmetric):
            return None
        first, second = symmetric[node.tensor]
        place = {first: Index(i), second: Index(j)}
        return Read(node.tensor, tuple(place.get(d, e) for d, e in enumerate(node.subscripts)), node.span)

    s = map_statement(s, lambda e: rewrite(e, from_half))
    if not is_mirrored:
        return [builder.change(s, lower)]
    if s.reduction is None:
        made = [builder.change(s, lower)]
    else:
        half = builder.define(s, "half", s.element_names, s.value, s.reduction_indices, s.reduction, lower)
        copied = builder.assign(s.name, s.target, s.subscripts, Read(half.target, s.subscripts), given, s)
        made = [half, copied]
    place = {p: s.subscripts[q], q: s.subscripts[p]}
    turned = Read(s.target, tuple(place.get(d, e) for d, e in enumerate(s.subscripts)))
    return [*made, builder.assign(builder.free_name(f"{s.name}_mirror"), s.target, s.subscripts, turned, upper, s)]
