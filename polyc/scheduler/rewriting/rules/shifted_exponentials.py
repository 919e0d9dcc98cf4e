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

from collections.abc import Collection, Mapping
from math import prod

from polyc.code_limits import TILE_ROWS
from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    Select,
    eq,
    identity_of,
    index_names,
    int_const,
    reads,
    rewrite,
    substitute,
    walk,
)
from polyc.ir.program import Program, Statement, all_reads
from polyc.machine import Level, Machine
from polyc.poly.ranges import Ranges
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import trip_count
from polyc.scheduler.rewriting.builder import ProgramBuilder, Split, change_groups
from polyc.scheduler.rewriting.rules.analysis import (
    covers,
    find_chain,
    is_factor,
    is_simple,
    linear_in,
    plain_place,
    redirect,
    replace_node,
)
from polyc.scheduler.traffic import find_level

READ_BLOCK, COMPUTED_BLOCK = 512, 256
"""Values of a block where the scores come from memory, and where they are computed."""

SHARING_ROWS = 2 * TILE_ROWS
"""Rows that read the same operands from which it is worth that several tiles read them in blocks."""

ROW_CACHES, TILE_CACHES = 1, 2
"""Second-level caches that a row read from memory fills where blocks pay, and that a tile of scores does: from there a second
pass over a row is cheaper than rescaling blocks."""


@dataclass(frozen=True, slots=True)
class _Exponential:
    """``exp(scale * (x - m) + …)`` in the value of `statement`, at its index `index`; `maximum` is the read of m."""

    statement: Statement
    node: Expr
    index: str
    maximum: Read
    scale: float


def block_exponentials(program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, list[Remark]]:
    """Long rows of exponentials go by blocks under a running maximum."""
    return change_groups("online-softmax", _rewrite, ([s] for s in program.statements), program, ranges, target)


def _is_maximum(s: Statement, program: Program, ranges: Ranges) -> bool:
    dtype = program.tensor(s.target).dtype
    return (
        s.reduction is not None
        and s.reduction.op == "max"
        and dtype.is_float
        and s.reduction.init == identity_of("max", dtype)
        and len(s.reduction_indices) == 1
        and is_simple(s, ranges)
        and len(program.writers()[s.target]) == 1
    )


def _rewrite(group: list[Statement], program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, str] | None:
    (leader,) = group
    if not _is_maximum(leader, program, ranges):
        return None
    (k,) = leader.reduction_indices
    exponentials = [e for s in program.statements if (e := _find_exponential(s, leader, k, program, ranges)) is not None]
    stored = {e.statement.target: e for e in exponentials if e.statement.reduction is None and e.node == e.statement.value}
    followers: list[tuple[Statement, _Exponential, Expr]] = []
    for s in program.statements:
        own = next((e for e in exponentials if e.statement is s), None)
        found = list(dict.fromkeys(r for r in reads(s.value) if r.tensor in stored))
        if own is not None and s.target not in stored:
            if not found and _is_follower(s, own.index, own.node, leader, ranges):
                followers.append((s, own, own.node))
            continue
        if len(found) == 1:
            (read,) = found
            e = stored[read.tensor]
            place = plain_place(read, e.statement.subscripts)
            if place is not None and _is_follower(s, place[e.index], read, leader, ranges):
                followers.append((s, e, read))
    if not followers:
        return None
    sums = {s.name for s, _, _ in followers}
    members = {leader.name: k, **{e.statement.name: e.index for _, e, _ in followers if not _stays(e.statement, sums, program)}}
    members |= {s.name: s.reduction_indices[0] for s, _, _ in followers}
    chain = find_chain(leader, k, members, program, ranges)
    if chain is None:
        return None
    is_long = _is_long(leader, k, bool(chain), program, ranges, target)
    if not is_long and not (chain and _streams_operands(_find_passes(followers, chain, program), program, ranges, target)):
        return None
    size = COMPUTED_BLOCK if chain else READ_BLOCK
    interval = ranges.statements[leader.name].indices[k]
    position = 0 if chain else len(leader.left_indices)
    built = _build(leader, k, followers, chain, Split(k, size, interval, position), program, ranges)
    return *built, f"maximum and sums of exponentials in blocks of {size}: {leader.target} scales them at the end"


def _stays(s: Statement, sums: Collection[str], program: Program) -> bool:
    """Whether anything but `sums` needs the exponentials that `s` stores, and so all of what they are made of."""
    users = [u for u in program.statements if u.name not in sums and any(r.tensor == s.target for r in all_reads(u))]
    return bool(users) or program.tensor(s.target).role != "temporary"


def _find_exponential(s: Statement, leader: Statement, k: str, program: Program, ranges: Ranges) -> _Exponential | None:
    """The one exponential of the leader's values under the leader's result that `s` computes; None for any other use of it."""
    uses = [r for r in all_reads(s) if r.tensor == leader.target]
    if not uses or len(set(uses)) != 1 or not is_simple(s, ranges) or s.name == leader.name:
        return None
    place = plain_place(uses[0], leader.subscripts)
    nodes = [
        n for n in dict.fromkeys(walk(s.value)) if isinstance(n, Call) and n.op in ("exp", "exp_below") and uses[0] in reads(n)
    ]
    if (
        place is None
        or len(nodes) != 1
        or sum(n == uses[0] for n in walk(s.value)) != sum(n == uses[0] for n in walk(nodes[0]))
    ):
        return None
    argument = nodes[0].args[0]
    for index in s.indices:
        if index in place.values():
            continue
        whole = {**place, k: index}
        score = substitute(leader.value, {i: Index(n) for i, n in whole.items()})
        form = linear_in(argument, score, uses[0])
        if form is None or form[0] != -form[1] or form[0] <= 0 or _adds_along(argument, (score, uses[0]), index):
            continue
        same = ranges.statements[s.name].indices[index] == ranges.statements[leader.name].indices[k]
        if same and covers(s, leader, whole, ranges):
            return _Exponential(s, nodes[0], index, uses[0], form[0])
    return None


def _adds_along(argument: Expr, known: tuple[Expr, ...], index: str) -> bool:
    """Whether what is added to `known` moves with the index: it may be too large for a block of small values."""
    rest = rewrite(argument, lambda node: int_const(0) if node in known else None)
    return any(node == Index(index) for node in walk(rest))


def _is_follower(s: Statement, index: str, factor: Expr, leader: Statement, ranges: Ranges) -> bool:
    """Whether `s` sums over `index` products of which `factor` is one, the maximum standing nowhere else."""
    if s.reduction is None or s.reduction.op != "add" or s.reduction_indices != (index,) or not is_simple(s, ranges):
        return False
    if ranges.statements[s.name].indices[index] != ranges.statements[leader.name].indices[leader.reduction_indices[0]]:
        return False
    outside = [r for r in all_reads(s) if r.tensor == leader.target and r not in reads(factor)]
    return is_factor(s.value, factor) and not outside


def _is_long(leader: Statement, k: str, is_computed: bool, program: Program, ranges: Ranges, target: Machine) -> bool:
    """Whether scores and exponentials of a row leave the cache that they would stay in."""
    trips = _trips(leader, ranges)
    row = 2 * trips[k] * program.tensor(leader.target).dtype.itemsize
    rows = min(TILE_ROWS, prod(trips[i] for i in leader.left_indices))
    if is_computed:
        return row * rows > TILE_CACHES * target.l2
    # Maxima of columns go along rows as they are: nothing of a block would stay.
    is_row = all(not r.subscripts or r.subscripts[-1] == Index(k) for r in reads(leader.value))
    return is_row and row > ROW_CACHES * target.l2


def _find_passes(
    followers: list[tuple[Statement, _Exponential, Expr]], chain: Mapping[str, int], program: Program
) -> list[tuple[Statement, str, set[str]]]:
    """Statements that pass along computed rows of scores: each with its index along a row, and those that say where in one."""
    found = [
        (s, e.name, index_names(*s.subscripts))
        for s in program.statements
        if s.target in chain and isinstance(e := s.subscripts[chain[s.target]], Index)
    ]
    return found + [(s, s.reduction_indices[0], index_names(factor)) for s, _, factor in followers]


def _streams_operands(passes: list[tuple[Statement, str, set[str]]], program: Program, ranges: Ranges, target: Machine) -> bool:
    """Whether several statements read what many rows share, each few of these all along their row, and it leaves the
    second-level cache together: in blocks more rows can read one after the other.  One statement alone reads it once anyway."""
    found: dict[str, int] = {}
    for s, index, element in passes:
        trips = _trips(s, ranges)
        for r in dict.fromkeys(reads(s.value)):
            names = index_names(*r.subscripts)
            if index in names and prod(trips[i] for i in element - names) > SHARING_ROWS:
                own = prod(trips[i] for i in names if i == index or i not in element)
                found[s.name] = found.get(s.name, 0) + program.tensor(r.tensor).dtype.itemsize * own
    return len(found) > 1 and find_level(sum(found.values()), target) > Level.L2


def _trips(s: Statement, ranges: Ranges) -> dict[str, int]:
    """Iterations of the indices of a statement, about."""
    own = ranges.statements[s.name].indices
    return {i: trip_count(own[i].extent) if n is None else n for i, n in ranges.trips(s.name).items()}


def _build(
    leader: Statement,
    k: str,
    followers: list[tuple[Statement, _Exponential, Expr]],
    chain: dict[str, int],
    split: Split,
    program: Program,
    ranges: Ranges,
) -> tuple[Program, Ranges]:
    builder = ProgramBuilder(program, ranges)
    dtype = program.tensor(leader.target).dtype
    exponentials = {e.statement.name: e for _, e, _ in followers}
    sums = {s.name: (e, factor) for s, e, factor in followers}
    scales = list(dict.fromkeys(e.scale for e in exponentials.values()))
    blocks: list[Statement] = []
    wholes: list[Statement] = []

    def blocked(s: Statement, index: str, value: Expr) -> Statement:
        blocks.append(builder.block(replace(s, value=redirect(value, chain, index, split)), split, index))
        return blocks[-1]

    def local(e: _Exponential) -> Expr:
        shift = Read(f"{leader.target}.shift", split.element(e.maximum.subscripts, e.index))
        return replace_node(e.node, e.maximum, shift)

    for s in program.statements:
        if s.target in chain:
            subscript = s.subscripts[chain[s.target]]
            assert isinstance(subscript, Index)
            blocked(s, subscript.name, s.value)
        elif s is leader:
            part = blocked(s, k, s.value)
            left, points, result = part.left_indices, builder.points(part), Read(part.target, part.subscripts)
            finite = Select(eq(result, Const(float("-inf"), dtype)), Const(0.0, dtype), result)
            blocks.append(builder.define(s, "shift", left, finite, over=points))
            wholes.append(builder.combine(s, part, split))
            difference = result - Read(s.target, s.subscripts)
            for n, scale in enumerate(scales):
                scaled = Call("exp", (Const(scale, dtype) * difference if scale != 1 else difference,))
                wholes.append(builder.define(s, f"weight{n}", left, scaled, over=points))
        elif s.name in sums:
            e, factor = sums[s.name]
            index, at = s.reduction_indices[0], e.maximum.subscripts
            if e.statement.name == s.name:
                new = local(e)
            else:
                assert isinstance(factor, Read)
                new = Read(f"{factor.tensor}.block", split.element(factor.subscripts, index), factor.span)
                place = plain_place(factor, e.statement.subscripts) or {}
                at = tuple(substitute(x, {i: Index(j) for i, j in place.items()}) for x in at)
            part = blocked(s, index, replace_node(s.value, factor, new))
            weight = Read(f"{leader.target}.weight{scales.index(e.scale)}", split.element(at, index))
            wholes.append(builder.combine(s, part, split, Read(part.target, part.subscripts) * weight))
        else:
            if s.name in exponentials:
                blocked(s, exponentials[s.name].index, local(exponentials[s.name]))
                if not _stays(s, sums, program):
                    continue
            wholes.append(s)
    builder.statements += [*blocks, *wholes]
    return builder.finish()
