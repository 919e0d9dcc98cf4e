"""Sums of exponentials under their maximum: long rows in blocks, each under its own maximum.

    before  ``m[i] max= x[i,k];  l[i] += exp(x[i,k] - m[i]);  o[i,j] += exp(x[i,k] - m[i]) * v[k,j]``
    after   the same over blocks of k, with the maximum ``m'[c,i]`` of the block; then
            ``m[i] max= m'[c,i];  w[c,i] = exp(m'[c,i] - m[i]);  l[i] += l'[c,i] * w[c,i];  o[i,j] += o'[c,i,j] * w[c,i]``

What a block needs (its scores, its exponentials) is read or computed once and stays in a cache; scores that are temporaries are
never stored for a whole row.  Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, have the sum; Dao et
al., "FlashAttention", 2022, the weighted sums.  Their running maximum would make blocks wait for each other: combining blocks
at the end does not, and its order depends on sizes alone.

A block of nothing but -inf has the sum 0, not NaN: its exponentials are taken from 0 instead of its maximum.  In a row of
nothing but -inf the weights are exp(-inf + inf): NaN, as the formula says.  NaN and +inf spread over the row as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod

from polyc.code_limits import MINIMUM_REUSE, TILE_ROWS
from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Const, Expr, Index, Read, Select, eq, index_names, int_const, reads, rewrite, walk
from polyc.ir.program import Program, Statement
from polyc.ir.scales import is_factor
from polyc.ir.types import DType
from polyc.machine import Level, Machine
from polyc.poly.ranges import Ranges
from polyc.records import dataclass
from polyc.scheduler.accesses import trip_count
from polyc.scheduler.rewriting.builder import Split, change_groups
from polyc.scheduler.rewriting.rules.analysis import find_chain, is_simple
from polyc.scheduler.rewriting.rules.dependent_reductions import (
    Dependence,
    Law,
    block_reductions,
    find_dependences,
    find_deviations,
    is_maximum,
    is_needed_whole,
    reduced_at,
)
from polyc.scheduler.traffic import find_level

_EXPONENTIALS = ("exp", "exp_below")


@dataclass(frozen=True, slots=True)
class Exponential:
    """``exp(scale * (x - m) + …)``, a factor of what a statement sums over `index`."""

    sum: Dependence
    index: str
    scale: float
    element: set[str]
    """Indices that the exponential moves with."""
    stored: Mapping[str, str]
    """The statement that stores it, if one does, and its index for `index`."""


def block_exponentials(program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, list[Remark]]:
    """Long rows of exponentials go by blocks under a running maximum."""
    return change_groups("online-softmax", _rewrite, ([s] for s in program.statements), program, ranges, target)


def _rewrite(group: list[Statement], program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, str] | None:
    (leader,) = group
    if not is_maximum(leader, program) or len(leader.reduction_indices) != 1 or not is_simple(leader, ranges):
        return None
    if len(program.writers()[leader.target]) != 1:
        return None
    sums = find_dependences(leader, program, ranges)
    found = [e for d in sums if (e := find_exponential(d, leader, program, ranges)) is not None]
    by_name, (k,) = {s.name: s for s in program.statements}, leader.reduction_indices
    scaled = {by_name[name].target for e in found for name in e.stored}
    found = [e for e in found if scaled.isdisjoint(r.tensor for r in reads(e.sum.value))]  # each has one factor that is
    if not found:
        return None
    cut = {leader.name: k} | {e.sum.statement.name: e.index for e in found}
    stored = {name: index for e in found for name, index in e.stored.items()}
    members = cut | {name: i for name, i in stored.items() if not is_needed_whole(by_name[name], cut, program)}
    chain = find_chain(leader, k, members, program, ranges)
    if chain is None:
        return None
    is_long = _is_long(leader, k, bool(chain), program, ranges, target)
    if not is_long and not (chain and _streams_operands(_find_passes(found, chain, program), program, ranges, target)):
        return None
    size = target.rows.computed if chain else target.rows.read
    split = Split(k, size, ranges.statements[leader.name].indices[k], 0 if chain else len(leader.left_indices))
    cut |= stored | {s.name: s.left_indices[chain[s.target]] for s in program.statements if s.target in chain}
    chain |= {by_name[name].target: by_name[name].left_indices.index(i) for name, i in stored.items()}
    law = _make_law(found, program.tensor(leader.target).dtype)
    built = block_reductions(leader, split, cut, chain, law, program, ranges)
    return *built, f"maximum and sums of exponentials in blocks of {size}: {leader.target} scales them at the end"


def find_exponential(d: Dependence, leader: Statement, program: Program, ranges: Ranges) -> Exponential | None:
    """The exponential of the leader's values under the leader's result, if products with it are summed, and m is nowhere
    else."""
    s, own, interval = d.statement, ranges.statements, ranges.statements[leader.name].indices[leader.reduction_indices[0]]
    nodes = [n for n in dict.fromkeys(walk(d.value)) if isinstance(n, Call) and n.op in _EXPONENTIALS and d.use in reads(n)]
    if len(nodes) != 1 or not is_factor(d.value, nodes[0]) or len(s.reduction_indices) != 1:
        return None
    (node,), (index,) = nodes, s.reduction_indices
    inside = {name: next((i for i, n in place.items() if n == index), "") for name, place in d.between.items()}
    is_whole = all(own[name].indices.get(i) == interval for name, i in {**inside, s.name: index}.items())
    if not is_whole or sum(n == d.use for n in walk(d.value)) != sum(n == d.use for n in walk(node)):
        return None
    for place, scale in find_deviations(node.args[0], s, leader, d.use, ranges, with_rest=True):
        if place[leader.reduction_indices[0]] == index:
            if _adds_along(node.args[0], (reduced_at(leader, place), d.use), index):
                continue
            tensors = {t.target for t in program.statements if t.name in inside}
            stored = [r for r in reads(s.value) if r.tensor in tensors]
            return Exponential(d, index, scale, index_names(*stored) if stored else index_names(node), inside)
    return None


def _adds_along(argument: Expr, known: tuple[Expr, ...], index: str) -> bool:
    """Whether what is added to `known` moves with the index: it may be too large for a block of small values."""
    rest = rewrite(argument, lambda node: int_const(0) if node in known else None)
    return any(node == Index(index) for node in walk(rest))


def _is_long(leader: Statement, k: str, is_computed: bool, program: Program, ranges: Ranges, target: Machine) -> bool:
    """Whether scores and exponentials of a row leave the cache that they would stay in."""
    trips = _trips(leader, ranges)
    row = 2 * trips[k] * program.tensor(leader.target).dtype.itemsize
    rows = min(TILE_ROWS, prod(trips[i] for i in leader.left_indices))
    if is_computed:
        return row * rows > target.rows.held_computed * target.l2
    # Maxima of columns go along rows as they are: nothing of a block would stay.
    is_row = all(not r.subscripts or r.subscripts[-1] == Index(k) for r in reads(leader.value))
    return is_row and row > target.rows.held_read * target.l2


def _find_passes(
    exponentials: list[Exponential], chain: Mapping[str, int], program: Program
) -> list[tuple[Statement, str, set[str]]]:
    """Statements that pass along computed rows of scores: each with its index along a row, and those that say where in one."""
    found = [(s, s.left_indices[chain[s.target]], index_names(*s.subscripts)) for s in program.statements if s.target in chain]
    return found + [(e.sum.statement, e.index, e.element) for e in exponentials]


def _streams_operands(passes: list[tuple[Statement, str, set[str]]], program: Program, ranges: Ranges, target: Machine) -> bool:
    """Whether several statements read what many rows share, each few of these all along their row, and it leaves the
    second-level cache together: in blocks more rows can read one after the other.  One statement alone reads it once anyway."""
    found: dict[str, int] = {}
    for s, index, element in passes:
        trips = _trips(s, ranges)
        for r in dict.fromkeys(reads(s.value)):
            names = index_names(*r.subscripts)
            if index in names and prod(trips[i] for i in element - names) > MINIMUM_REUSE:
                own = prod(trips[i] for i in names if i == index or i not in element)
                found[s.name] = found.get(s.name, 0) + program.tensor(r.tensor).dtype.itemsize * own
    return len(found) > 1 and find_level(sum(found.values()), target) > Level.L2


def _trips(s: Statement, ranges: Ranges) -> dict[str, int]:
    """Iterations of the indices of a statement, about."""
    own = ranges.statements[s.name].indices
    return {i: trip_count(own[i].extent) if n is None else n for i, n in ranges.trips(s.name).items()}


def _make_law(exponentials: list[Exponential], dtype: DType) -> Law:
    """Sums of exponentials are multiplied by those of the differences of maxima."""
    scales = list(dict.fromkeys(e.scale for e in exponentials))
    by_name = {e.sum.statement.name: e for e in exponentials}

    def refer(maximum: Read) -> Expr:
        return Select(eq(maximum, Const(float("-inf"), dtype)), Const(0.0, dtype), maximum)

    def weigh(part: Expr, whole: Expr, scale: float) -> Expr:
        difference = part - whole
        return Call("exp", (Const(scale, dtype) * difference if scale != 1 else difference,))

    def combine(name: str, part: Read, read: Callable[[str, Read], Read]) -> Expr:
        e = by_name[name]
        return part * read(f"weight{scales.index(e.scale)}", e.sum.use)

    return Law(refer, {f"weight{n}": partial(weigh, scale=scale) for n, scale in enumerate(scales)}, combine)
