"""Sums that need the result of another reduction over the same index, with it in one pass over blocks of that index.

    before  ``m[i] max= f[i,k];  s[i] += g(f[i,k], m[i])``
    after   the same over blocks of k, with a reference ``r[c,i]`` made of the block's own result in the place of m[i]; then
            ``m[i] max= m'[c,i];  s[i] += h(s'[c,i], r[c,i], m[i])``

What a block needs is read or computed once and stays in a cache.  Which g have such an h is a `Law`: `shifted_exponentials`
(online softmax) and `moments` have one each.  A running result, as published, would make blocks wait for each other; combining
them at the end does not, and its order depends on sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import permutations

from polyc.ir.expr import Expr, Index, Read, identity_of, reads, rewrite, substitute
from polyc.ir.program import Program, Reduction, Statement, all_reads
from polyc.ir.scales import linear_in
from polyc.poly.ranges import Ranges
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.builder import ProgramBuilder, Split
from polyc.scheduler.rewriting.reindexing import map_reads
from polyc.scheduler.rewriting.rules.analysis import covers, is_simple, plain_place, redirect


@dataclass(frozen=True, slots=True)
class Dependence:
    """A sum that reads the result of another reduction, the leader, at one place."""

    statement: Statement
    value: Expr
    """What is summed, with the values of what lies between written out."""
    use: Read
    """The leader's result in `value`."""
    place: Mapping[str, str]
    """Left index of the leader → that of the statement."""
    between: Mapping[str, Mapping[str, str]]
    """Statements that compute values of `value` from the leader's result: their indices → those of this one."""


@dataclass(frozen=True, slots=True)
class Law:
    """How sums over blocks become the whole sums."""

    refer: Callable[[Read], Expr]
    """What a block has in the place of the leader's result, of the leader's result in the block."""
    weights: Mapping[str, Callable[[Expr, Expr], Expr]]
    """Temporaries, by their suffix, of the leader's result in the block and the whole one."""
    combine: Callable[[str, Read, Callable[[str, Read], Read]], Expr]
    """The terms of a whole sum: of its name, what it is in a block, and how it reads a weight or, as ``shift``, the reference
    at the place of a read of the leader's result."""


def find_dependences(leader: Statement, program: Program, ranges: Ranges) -> list[Dependence]:
    """The sums that depend on `leader`, each at one place."""
    near = {leader.target, *(s.target for s in program.readers(leader.target))}
    some = (s for s in program.statements if not near.isdisjoint(r.tensor for r in reads(s.value)))
    return [d for s in some if (d := _find_dependence(s, leader, program, ranges)) is not None]


def _find_dependence(s: Statement, leader: Statement, program: Program, ranges: Ranges) -> Dependence | None:
    """How a sum depends on `leader`; None where it does not, or at several places."""
    if s.reduction is None or s.reduction.op != "add" or s.name == leader.name or not is_simple(s, ranges):
        return None
    value, between = write_out(s.value, leader, program, ranges)
    uses = list(dict.fromkeys(r for r in reads(value) if r.tensor == leader.target))
    place = plain_place(uses[0], leader.subscripts) if len(uses) == 1 else None
    elsewhere = (r.tensor for r in all_reads(s) if r not in reads(s.value))
    if place is None or not set(place.values()) <= set(s.left_indices) or leader.target in elsewhere:
        return None
    return Dependence(s, value, uses[0], place, between)


def write_out(value: Expr, leader: Statement, program: Program, ranges: Ranges) -> tuple[Expr, Mapping[str, Mapping[str, str]]]:
    """A value with those of plain statements that read the leader's result written out; their indices → those of the value."""
    writers, between = program.writers(), dict[str, Mapping[str, str]]()

    def rule(node: Expr) -> Expr | None:
        own = writers.get(node.tensor, []) if isinstance(node, Read) and node.tensor != leader.target else []
        if not isinstance(node, Read) or len(own) != 1 or own[0].reduction is not None or not is_simple(own[0], ranges):
            return None
        inside = plain_place(node, own[0].subscripts)
        if inside is None or all(r.tensor != leader.target for r in reads(own[0].value)):
            return None
        between[own[0].name] = inside
        return substitute(own[0].value, {i: Index(n) for i, n in inside.items()})

    return rewrite(value, rule), between


def find_deviations(
    expr: Expr, s: Statement, leader: Statement, use: Read, ranges: Ranges, with_rest: bool = False
) -> Iterator[tuple[Mapping[str, str], float]]:
    """Positive factors of ``f - m`` in `expr`, where f is what `leader` reduces at every point of `s`, and m its result, `use`;
    each with the leader's indices → those of `s`."""
    place = plain_place(use, leader.subscripts)
    if place is None or not all(n in s.indices for n in place.values()):
        return
    free = [i for i in s.indices if i not in place.values()]
    for chosen in permutations(free, len(leader.reduction_indices)):
        whole = place | dict(zip(leader.reduction_indices, chosen, strict=True))
        form = linear_in(expr, reduced_at(leader, whole), use, with_rest)
        if form is not None and form[0] == -form[1] > 0 and covers(s, leader, whole, ranges):
            yield whole, form[0]


def is_maximum(s: Statement, program: Program) -> bool:
    """Whether a statement has the maxima of floats, of -inf where there are none."""
    dtype = program.tensor(s.target).dtype
    is_float = dtype.is_float and not dtype.is_storage
    return is_float and s.has_plain_left and s.reduction == Reduction("max", identity_of("max", dtype))


def reduced_at(leader: Statement, place: Mapping[str, str]) -> Expr:
    """What `leader` reduces, over other indices."""
    return substitute(leader.value, {i: Index(n) for i, n in place.items()})


def block_reductions(
    leader: Statement,
    split: Split,
    cut: Mapping[str, str],
    chain: Mapping[str, int],
    law: Law,
    program: Program,
    ranges: Ranges,
    values: Mapping[str, Expr] | None = None,
) -> tuple[Program, Ranges]:
    """The statements `cut` over blocks of their indices there, with other `values` if given, and the combination of the sums.

    `chain`: temporaries that are cut as well, and their dimension for the index."""
    builder = ProgramBuilder(program, ranges)
    blocks, wholes = list[Statement](), list[Statement]()  # next to each other: the scheduler fuses neighbours
    made: dict[str, Statement] = {}

    def read(index: str) -> Callable[[str, Read], Read]:
        return lambda suffix, use: Read(made[suffix].target, split.element(use.subscripts, index))

    for s in program.statements:
        if s.name not in cut:
            wholes.append(s)
            continue
        index, value = cut[s.name], s.value if values is None else values.get(s.name, s.value)
        local = map_reads(value, partial(read(index), "shift"), leader.target)
        part = builder.block(replace(s, value=redirect(local, chain, index, split)), split, index)
        blocks.append(part)
        left, points, result = part.left_indices, builder.points(part), Read(part.target, part.subscripts)
        if s is leader:
            made["shift"] = builder.define(s, "shift", left, law.refer(result), over=points)
            blocks.append(made["shift"])
            wholes.append(builder.combine(s, part, split))
            for suffix, weigh in law.weights.items():
                made[suffix] = builder.define(s, suffix, left, weigh(result, Read(s.target, s.subscripts)), over=points)
                wholes.append(made[suffix])
        elif index in s.reduction_indices:
            wholes.append(builder.combine(s, part, split, law.combine(s.name, result, read(index))))
        elif is_needed_whole(s, cut, program):
            wholes.append(s)
    builder.statements += [*blocks, *wholes]
    return builder.finish()


def is_needed_whole(s: Statement, cut: Mapping[str, str], program: Program) -> bool:
    """Whether anything but the statements `cut` needs what `s` computes."""
    return program.tensor(s.target).role != "temporary" or any(u.name not in cut for u in program.readers(s.target))
