"""Merge neighbouring indices that always walk contiguous memory together.

Before: ``O[n, c, h, w] = X[n, c, h, w] * g[c]``.  After: ``O[n, c, hw] = X[n, c, hw] * g[c]``.  A vector then runs over the
whole image instead of one short row.  Two indices are merged in all statements and tensors at once: every access has both,
side by side and over the full extents, or neither; the tensors' memory must be contiguous across the two dimensions.  The
extent of the first may be symbolic (the batch in front of constant rows); a product of two symbolic ones is no affine extent.

Where the second one is as short as the channels of a pixel, the first may be shifted and cover a part:
``X[y, x + 1, c]`` over three channels becomes ``X[y, xc + 3]``.

A dimension of one element merges with any neighbour, and an index that walks such dimensions only is gone:
``O[n, k, 0, 0] += X[n, c, 0, 0] * F[k, c]`` reads X along its memory then, as ``X[n, c]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import pairwise

from polyc.code_limits import LONG_ROW
from polyc.diagnostics import Remark
from polyc.ir.expr import Const, Expr, Index, Read, int_const, padded_reads, reads, substitute
from polyc.ir.program import Program, Statement, all_reads, map_statement
from polyc.ir.simplify import linear_form, simplify, simplify_int
from polyc.poly.domains import box_domain, fills_box
from polyc.poly.ranges import GuardedSubscript, Interval, Ranges, StatementRanges
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import loose_indices, trip_count
from polyc.scheduler.rewriting.reindexing import Groups, drop_dimensions, join_intervals, map_reads, relayout

Pair = tuple[str, int]
"""A tensor version and the first of two neighbouring dimensions; or a statement and the position of the first index."""

ByteStrides = Mapping[str, tuple[int | None, ...] | None]
"""Known strides of arguments by version."""


@dataclass(frozen=True, slots=True)
class Access:
    tensor: str
    subscripts: tuple[Expr, ...]
    pairs: Mapping[int, tuple[str, str]]
    """Where the subscripts of a dimension and the next are ``a + constant`` and ``b``: a and b."""
    may_shift: bool


def merge_indices(program: Program, ranges: Ranges, strides: ByteStrides) -> tuple[Program, Ranges, Groups, list[Remark]]:
    """The program over merged indices."""
    program, ranges, units = _drop_unit_dimensions(program, ranges, strides)
    strides = {name: tuple(own[g[-1]] for g in units[name]) if own and name in units else own for name, own in strides.items()}
    program, ranges, groups, remarks = rewrite_pairs(program, ranges, find_pairs(program, ranges, strides))
    return program, ranges, nest_groups(groups, units), remarks


def nest_groups(groups: Groups, inner: Groups) -> Groups:
    """What `groups` of dimensions that are `inner` groups themselves stand for."""
    nested = dict(groups)
    for name, own in inner.items():
        outer = groups.get(name, tuple((d,) for d in range(len(own))))
        nested[name] = tuple(tuple(d for k in g for d in own[k]) for g in outer)
    return nested


def rewrite_pairs(
    program: Program, ranges: Ranges, dims: set[Pair], keeping: Set[str] = frozenset()
) -> tuple[Program, Ranges, Groups, list[Remark]]:
    """The program with the pairs `dims` of dimensions as one each.

    The statements `keeping` keep their indices, and compute the subscripts of what they write."""
    groups, remarks = _group(program, dims), []
    new, new_ranges = relayout(program, ranges, groups)
    statements, own = list(new.statements), dict(new_ranges.statements)
    for n, s in enumerate(program.statements):
        pairs = dict(p for a in accesses_of(s) for d, p in a.pairs.items() if (a.tensor, d) in dims)
        if pairs and s.name not in keeping:
            statements[n], own[s.name], names = _run_as_one(statements[n], own[s.name], pairs, ranges)
            remarks.append(Remark("passed", "merge", f"indices {', '.join(names)} run as one", s.name, s.span))
    return replace(new, statements=tuple(statements)), replace(new_ranges, statements=own), groups, remarks


def _run_as_one(
    s: Statement, own: StatementRanges, following: Mapping[str, str], ranges: Ranges
) -> tuple[Statement, StatementRanges, list[str]]:
    """A statement with one index in the place of each row of indices, which are `following` each other in all subscripts, and
    the names of those."""
    merged, place, intervals = dict[str, str](), dict[str, Expr](), dict(own.indices)
    for first in following.keys() - following.values():
        row = [first]
        outer: Expr = int_const(0)
        while row[-1] in following:
            extent = own.indices[following[row[-1]]].extent
            outer = simplify_int((outer + Index(row[-1])) * extent)
            row.append(following[row[-1]])
        name = ".".join(row)
        merged |= dict.fromkeys(row, name)
        place[row[-1]] = Index(name) - outer  # takes the others out of linear subscripts
        intervals[name] = join_intervals([own.indices[i] for i in row])

    def move(read: Read) -> Read:
        moved = zip(read.subscripts, (substitute(e, place) for e in read.subscripts), strict=True)
        return replace(read, subscripts=tuple(old if new == old else simplify(new) for old, new in moved))

    indices = tuple(dict.fromkeys(merged.get(i, i) for i in s.indices))
    domain = box_domain(s.name, indices, intervals, ranges.parameters).intersect_params(own.domain.params())
    new = map_statement(s, lambda e: map_reads(e, move))
    # Where clauses say no more than the intervals here, and speak of indices that are gone.
    new = replace(new, subscripts=move(Read(s.target, new.subscripts)).subscripts, indices=indices, where=())
    return new, StatementRanges({i: intervals[i] for i in indices}, domain), sorted(set(merged.values()))


def _drop_unit_dimensions(program: Program, ranges: Ranges, strides: ByteStrides) -> tuple[Program, Ranges, Groups]:
    """The program without dimensions of one element, each in one group with a neighbour, and without the indices that walked
    them only."""
    units = _unit_dimensions(program, ranges)
    groups = _group(program, _unit_pairs(program, ranges, strides, units))
    kept = {name: [(next((d for d in g if (name, d) not in units), g[0]),) for g in own] for name, own in groups.items()}
    return *drop_dimensions(program, ranges, kept), groups


# -- which dimensions


def accesses_of(s: Statement, guards: Sequence[GuardedSubscript] = ()) -> list[Access]:
    """Accesses of a statement, the write first, and the reads that it guards: its value may do without them."""
    found = [Read(s.target, s.subscripts), *(g.read for g in guards), *all_reads(s)]
    pairs = [{d: p for d, two in enumerate(pairwise(r.subscripts)) if (p := _pair(*two)) is not None} for r in found]
    may_shift = (s.reduction is None, *[True] * (len(found) - 1))
    return [Access(r.tensor, r.subscripts, p, shift) for r, p, shift in zip(found, pairs, may_shift, strict=True)]


def find_pairs(program: Program, ranges: Ranges, strides: ByteStrides, keeping: Set[str] = frozenset()) -> set[Pair]:
    """Dimension pairs that all accesses use together: the greatest set that is consistent.

    What the statements `keeping` write may be read so, though they do not use the pair together themselves."""
    dims = _contiguous_pairs(program, ranges, strides)
    statements = [(s, own := ranges.statements[s.name], accesses_of(s, own.guards)) for s in program.statements]
    while bad := set[Pair]().union(*(uses_of_pairs(*each, dims, ranges, each[0].name in keeping)[1] for each in statements)):
        dims -= bad
    return dims


def uses_of_pairs(
    s: Statement, own: StatementRanges, accesses: list[Access], dims: Set[Pair], ranges: Ranges, is_keeping: bool = False
) -> tuple[set[tuple[str, str]], set[Pair]]:
    """Pairs of indices of a statement that stand side by side, in pairs `dims` of dimensions, wherever one of them stands; and
    those of `dims` that it uses otherwise, but for its write if it `is_keeping` its indices."""
    allowed = _statement_pairs(s, own, accesses, dims, ranges)
    used = ((a, d) for a in accesses[is_keeping:] for d in range(len(a.subscripts) - 1) if (a.tensor, d) in dims)
    return allowed, {(a.tensor, d) for a, d in used if a.pairs.get(d) not in allowed}


def connected_pairs(program: Program, dims: Set[Pair], tensors: Set[str], keeping: Set[str]) -> set[Pair]:
    """Those of the pairs `dims` that `tensors` have, and what has to be one with them."""
    found = {pair for pair in dims if pair[0] in tensors}
    accesses = [(s.name, a) for s in program.statements for a in accesses_of(s)[s.name in keeping :]]
    uses = [(name, pair, (a.tensor, d)) for name, a in accesses for d, pair in a.pairs.items()]
    while True:
        together = {(name, pair) for name, pair, dim in uses if dim in found}
        more = {dim for name, pair, dim in uses if (name, pair) in together and dim in dims}
        if more <= found:
            return found
        found |= more


def _contiguous_pairs(program: Program, ranges: Ranges, strides: ByteStrides) -> set[Pair]:
    told = {r.tensor for check in ranges.data_checks for r in reads(check.violated)}  # as the caller gives it
    return {
        (t.name, d)
        for t in program.tensors
        if t.name in ranges.tensors and t.name not in told
        for d in range(t.rank - 1)
        if _is_contiguous(ranges.tensors[t.name], d, strides.get(t.name), t.dtype.itemsize, t.role)
    }


def _unit_dimensions(program: Program, ranges: Ranges) -> set[Pair]:
    """Dimensions of one element that every access meets with 0, or with an index that is 0."""
    one = Interval(int_const(0), int_const(1))
    units = {(name, d) for name, intervals in ranges.tensors.items() for d, i in enumerate(intervals) if i == one}
    for s in program.statements if units else ():
        own, guards = ranges.statements[s.name].indices, ranges.statements[s.name].guards
        zeros = [] if guards else [Index(i) for i in s.left_indices if own[i] == one]
        if guards:  # they read with subscripts of their own
            touched = {access.tensor for access in accesses_of(s, guards)}
            units = {(name, d) for name, d in units if name not in touched}
        for access in accesses_of(s):
            units -= {(access.tensor, d) for d, e in enumerate(access.subscripts) if e != int_const(0) and e not in zeros}
    return units


def _unit_pairs(program: Program, ranges: Ranges, strides: ByteStrides, units: Set[Pair]) -> set[Pair]:
    """Each of these dimensions with the one behind it; the last ones with those in front of them."""
    found: set[Pair] = set()
    for name, d in _contiguous_pairs(program, ranges, strides) if units else ():
        behind = range(d + 1, len(ranges.tensors[name]))
        if (name, d) in units or all((name, k) in units for k in behind):
            found.add((name, d))
    return found


def _is_contiguous(
    intervals: tuple[Interval, ...], d: int, strides: tuple[int | None, ...] | None, itemsize: int, role: str
) -> bool:
    first, second = intervals[d], intervals[d + 1]
    if first.lower != int_const(0) or second.lower != int_const(0) or not isinstance(second.extent, Const):
        return False
    if not isinstance(first.extent, Const) and int(second.extent.value) < 1:
        return False
    if role == "temporary":
        return True
    if strides is None or strides[d] is None or strides[d + 1] is None:
        return False
    return strides[d] == int(second.extent.value) * int(strides[d + 1] or 0)


def _statement_pairs(
    s: Statement, own: StatementRanges, accesses: list[Access], dims: Set[Pair], ranges: Ranges
) -> set[tuple[str, str]]:
    """Pairs of indices of a statement that stand side by side wherever one of them stands."""
    if own.guards or not fills_box(own.domain, own.indices, s.indices):
        return set()
    computed = [s.value] if s.reduction is None else [s.value, s.reduction.init]
    if padded_reads(*computed):
        return set()
    loose, left = {i for e in computed for i in loose_indices(e)}, set(s.left_indices)
    found: set[tuple[str, str]] = set()
    for a, b in {pair for access in accesses for pair in access.pairs.values()}:
        if a == b or not {a, b} <= own.indices.keys():  # coordinates of an element, in the initial value
            continue
        if a in loose or b in loose or (a in left) != (b in left):
            continue
        for access in accesses:
            places = [d for d, e in enumerate(access.subscripts) if _mentions(e, a) or _mentions(e, b)]
            if places and not _is_together(a, b, access, places, own, dims, ranges):
                break
        else:
            found.add((a, b))
    return found


def _pair(first: Expr, second: Expr) -> tuple[str, str] | None:
    shifted = _shifted_index(first)
    return (shifted[0], second.name) if shifted is not None and isinstance(second, Index) else None


def _shifted_index(subscript: Expr) -> tuple[str, int] | None:
    """``a + 2`` as (a, 2)."""
    form = linear_form(subscript)
    if form is None:
        return None
    terms = [term for term in form if term != 1]
    return (terms[0].name, form.get(1, 0)) if len(terms) == 1 and isinstance(terms[0], Index) and form[terms[0]] == 1 else None


def _is_together(
    a: str, b: str, access: Access, places: list[int], own: StatementRanges, dims: Set[Pair], ranges: Ranges
) -> bool:
    """Whether an access has both indices side by side, and over so much of the tensor that they can run as one."""
    d = places[0]
    if places != [d, d + 1] or access.pairs.get(d) != (a, b) or (access.tensor, d) not in dims:
        return False
    first, second = ranges.tensors[access.tensor][d : d + 2]
    is_whole = access.subscripts[d] == Index(a)
    if own.indices[b] != second or (is_whole and own.indices[a] == first):
        return own.indices[b] == second
    known = (own.indices[a].lower, own.indices[a].extent, second.extent)
    return all(isinstance(e, Const) for e in known) and trip_count(second.extent) <= LONG_ROW and (is_whole or access.may_shift)


def _mentions(subscript: Expr, index: str) -> bool:
    """Whether it depends on the index itself: what it reads is an access of its own."""
    return index in loose_indices(subscript)


def _group(program: Program, dims: set[Pair]) -> Groups:
    """The dimensions that are one each, of tensors that have pairs `dims` of such."""
    groups: Groups = {}
    for t in program.tensors:
        found: list[tuple[int, ...]] = []
        for d in range(t.rank):
            found[-1:] = [(*found[-1], d)] if (t.name, d - 1) in dims else [*found[-1:], (d,)]
        if len(found) < t.rank:
            groups[t.name] = tuple(found)
    return groups
