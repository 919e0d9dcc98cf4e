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

from polyc.diagnostics import Remark
from polyc.ir.expr import Const, Expr, Index, Pad, Read, index_names, int_const, rewrite, substitute, walk
from polyc.ir.program import Condition, Program, Statement, all_reads, element_names
from polyc.ir.simplify import linear_form, simplify_int
from polyc.poly.domains import box_domain, fills_box, is_box, project_domain
from polyc.poly.ranges import GuardedSubscript, Interval, Ranges, StatementRanges
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import loose_indices, trip_count

Pair = tuple[str, int]
"""A tensor version and the first of two neighbouring dimensions; or a statement and the position of the first index."""

Groups = dict[str, tuple[tuple[int, ...], ...]]
"""By tensor version: which original dimensions each dimension stands for."""


SHORT_ROW = 32
"""Elements of a row below which a vector wants neighbouring rows as well, shifted ones too."""


@dataclass(frozen=True, slots=True)
class Access:
    tensor: str
    subscripts: tuple[Expr, ...]
    pairs: Mapping[int, tuple[str, str]]
    """Where the subscripts of a dimension and the next are ``a + constant`` and ``b``: a and b."""
    may_shift: bool


def merge_indices(
    program: Program, ranges: Ranges, strides: Mapping[str, tuple[int | None, ...] | None]
) -> tuple[Program, Ranges, Groups, list[Remark]]:
    """The program over merged indices; `strides` are the known byte strides of arguments by version."""
    zeros = _unit_dimensions(program, ranges)
    merged, ranges, units, _ = rewrite_pairs(program, ranges, _unit_pairs(program, ranges, strides, zeros), zeros)
    strides = {
        name: known and tuple(known[g[-1]] for g in units.get(name, _groups(len(known), set())))
        for name, known in strides.items()
    }
    merged, ranges, groups, remarks = rewrite_pairs(merged, ranges, find_pairs(merged, ranges, strides))
    return merged, ranges, nest_groups(groups, units), remarks


def nest_groups(groups: Groups, inner: Groups) -> Groups:
    """What `groups` of dimensions that are `inner` groups themselves stand for."""
    nested = dict(groups)
    for name, own in inner.items():
        outer = groups.get(name, tuple((d,) for d in range(len(own))))
        nested[name] = tuple(tuple(d for k in g for d in own[k]) for g in outer)
    return nested


def rewrite_pairs(
    program: Program,
    ranges: Ranges,
    dims: set[Pair],
    zeros: Set[Pair] = frozenset(),
    keeping: Set[str] = frozenset(),
) -> tuple[Program, Ranges, Groups, list[Remark]]:
    """The program with the pairs `dims` of dimensions as one each; subscripts of the dimensions `zeros` are all 0.

    The statements `keeping` keep their indices, and compute the subscripts of what they write."""
    if not dims:
        return program, ranges, {}, []
    groups = {t.name: _groups(t.rank, {d for name, d in dims if name == t.name}) for t in program.tensors}
    statements, own = [], dict(ranges.statements)
    remarks = []
    for s in program.statements:
        if s.name in keeping:
            joined = _join_subscripts(s.subscripts, ranges.tensors[s.target], groups[s.target])
            statements.append(replace(s, subscripts=joined))
            continue
        new, new_ranges, names = _merge_statement(s, own[s.name], groups, zeros, ranges)
        statements.append(new)
        own[s.name] = new_ranges
        if names:
            remarks.append(Remark("passed", "merge", f"indices {', '.join(names)} run as one", s.name, s.span))
    tensors = tuple(
        t
        if t.shape is None or t.name not in ranges.tensors
        else replace(t, shape=_merge_extents(t.shape, ranges.tensors[t.name], groups[t.name]))
        for t in (replace(t, rank=len(groups[t.name])) for t in program.tensors)
    )
    intervals = {
        name: tuple(_merge_intervals([found[d] for d in g]) for g in groups[name]) for name, found in ranges.tensors.items()
    }
    merged = replace(program, statements=tuple(statements), tensors=tensors)
    changed = {name: g for name, g in groups.items() if any(len(part) > 1 for part in g)}
    return merged, replace(ranges, statements=own, tensors=intervals), changed, remarks


# -- which dimensions


def accesses_of(s: Statement, guards: Sequence[GuardedSubscript] = ()) -> list[Access]:
    """Accesses of a statement, the write first, and the reads that it guards: its value may do without them."""
    found = [Read(s.target, s.subscripts), *(g.read for g in guards), *all_reads(s)]
    pairs = [{d: p for d in range(len(r.subscripts) - 1) if (p := _pair(*r.subscripts[d : d + 2])) is not None} for r in found]
    return [
        Access(r.tensor, r.subscripts, p, n > 0 or s.reduction is None)
        for n, (r, p) in enumerate(zip(found, pairs, strict=True))
    ]


def find_pairs(
    program: Program,
    ranges: Ranges,
    strides: Mapping[str, tuple[int | None, ...] | None],
    keeping: Set[str] = frozenset(),
) -> set[Pair]:
    """Dimension pairs that all accesses use together: the greatest set that is consistent.

    What the statements `keeping` write may be read so, though they do not use the pair together themselves."""
    dims = _contiguous_pairs(program, ranges, strides)
    by_statement = {s.name: accesses_of(s, ranges.statements[s.name].guards) for s in program.statements}
    while dims:
        bad: set[Pair] = set()
        for s in program.statements:
            _, misused = uses_of_pairs(s, ranges.statements[s.name], by_statement[s.name], dims, ranges, s.name in keeping)
            bad |= misused
        if not bad:
            break
        dims -= bad
    return dims


def uses_of_pairs(
    s: Statement,
    own: StatementRanges,
    accesses: list[Access],
    dims: Set[Pair],
    ranges: Ranges,
    is_keeping: bool = False,
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


def _contiguous_pairs(program: Program, ranges: Ranges, strides: Mapping[str, tuple[int | None, ...] | None]) -> set[Pair]:
    return {
        (t.name, d)
        for t in program.tensors
        if t.name in ranges.tensors
        for d in range(t.rank - 1)
        if _is_contiguous(ranges.tensors[t.name], d, strides.get(t.name), t.dtype.itemsize, t.role)
    }


def _unit_dimensions(program: Program, ranges: Ranges) -> set[Pair]:
    """Dimensions of one element that every access meets with 0, or with an index that is 0."""
    one = Interval(int_const(0), int_const(1))
    units = {(name, d) for name, intervals in ranges.tensors.items() for d, i in enumerate(intervals) if i == one}
    for s in program.statements if units else ():
        zeros = _unit_indices(s, ranges.statements[s.name])
        guards = ranges.statements[s.name].guards
        if guards:  # they read with subscripts of their own
            touched = {access.tensor for access in accesses_of(s, guards)}
            units = {(name, d) for name, d in units if name not in touched}
        for access in accesses_of(s):
            units -= {(access.tensor, d) for d, e in enumerate(access.subscripts) if e != int_const(0) and e not in zeros}
    return units


def _unit_pairs(
    program: Program, ranges: Ranges, strides: Mapping[str, tuple[int | None, ...] | None], units: Set[Pair]
) -> set[Pair]:
    """Each of these dimensions with the one behind it; the last ones with those in front of them."""
    found: set[Pair] = set()
    for name, d in _contiguous_pairs(program, ranges, strides) if units else ():
        behind = range(d + 1, len(ranges.tensors[name]))
        if (name, d) in units or all((name, k) in units for k in behind):
            found.add((name, d))
    return found


def _unit_indices(s: Statement, own: StatementRanges) -> set[Expr]:
    """Left indices that are 0; none where reads are guarded."""
    one = Interval(int_const(0), int_const(1))
    return set() if own.guards else {Index(i) for i in s.left_indices if own.indices[i] == one}


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
    if any(isinstance(node, Pad) for e in computed for node in walk(e)):
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
    return (
        all(isinstance(e, Const) for e in known) and trip_count(second.extent) <= SHORT_ROW and (is_whole or access.may_shift)
    )


def _mentions(subscript: Expr, index: str) -> bool:
    """Whether it depends on the index itself: what it reads is an access of its own."""
    return index in loose_indices(subscript)


# -- rewriting


def _groups(rank: int, merged: set[int]) -> tuple[tuple[int, ...], ...]:
    groups: list[list[int]] = []
    for d in range(rank):
        if d and d - 1 in merged:
            groups[-1].append(d)
        else:
            groups.append([d])
    return tuple(map(tuple, groups))


def _merge_extents(
    shape: tuple[Expr, ...], intervals: tuple[Interval, ...], groups: tuple[tuple[int, ...], ...]
) -> tuple[Expr, ...]:
    return tuple(shape[g[0]] if len(g) == 1 else _merge_intervals([intervals[d] for d in g]).extent for g in groups)


def _join_subscripts(
    subscripts: tuple[Expr, ...], intervals: tuple[Interval, ...], groups: tuple[tuple[int, ...], ...]
) -> tuple[Expr, ...]:
    """``h, w`` as ``56*h + w``, for each group of dimensions."""
    joined = []
    for g in groups:
        whole = subscripts[g[0]]
        for d in g[1:]:
            row = intervals[d].extent
            whole = simplify_int(row * whole + subscripts[d])
        joined.append(whole)
    return tuple(joined)


def _product(extents: list[Expr]) -> int:
    result = 1
    for e in extents:
        assert isinstance(e, Const)
        result *= int(e.value)
    return result


def _merge_intervals(intervals: list[Interval]) -> Interval:
    if len(intervals) == 1:
        return intervals[0]
    row = int_const(_product([i.extent for i in intervals[1:]]))
    lower, extent = (simplify_int(row * e) for e in (intervals[0].lower, intervals[0].extent))
    return Interval(lower, extent)


def _merge_statement(
    s: Statement,
    own: StatementRanges,
    groups: Mapping[str, tuple[tuple[int, ...], ...]],
    zeros: Set[Pair],
    ranges: Ranges,
) -> tuple[Statement, StatementRanges, list[str]]:
    merged: dict[str, str] = {}
    parts: dict[str, list[str]] = {}

    def wide(tensor: str, group: tuple[int, ...]) -> tuple[int, ...]:
        """The dimensions of a group whose subscripts say something; the first where none does."""
        return tuple(d for d in group if (tensor, d) not in zeros) or group[:1]

    def collect(tensor: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        result: list[Expr] = []
        for group in groups[tensor]:
            dims = wide(tensor, group) if len(group) > 1 else group
            if len(dims) == 1:
                result.append(subscripts[dims[0]])
                continue
            shifted = [_shifted_index(subscripts[d]) for d in dims]
            names = [found[0] for found in shifted if found is not None]
            assert len(names) == len(dims)
            joined = ".".join(names)
            merged.update(dict.fromkeys(names, joined))
            parts[joined] = names
            row = _product([ranges.tensors[tensor][d].extent for d in dims[1:]])
            shift = shifted[0][1] * row if shifted[0] is not None else 0
            result.append(simplify_int(Index(joined) + shift))
        return tuple(result)

    def rule(node: Expr) -> Expr | None:
        return Read(node.tensor, collect(node.tensor, node.subscripts), node.span) if isinstance(node, Read) else None

    subscripts = collect(s.target, tuple(rewrite(e, rule) for e in s.subscripts))
    left = index_names(*subscripts)
    gone: dict[str, Expr] = {i: int_const(0) for i in s.left_indices if merged.get(i, i) not in left}
    value = substitute(rewrite(s.value, rule), gone)
    reduction = s.reduction
    if reduction is not None:
        # Coordinates without an index of their own are called by their dimension, which may be another one now.
        dims = [wide(s.target, group) for group in groups[s.target]]
        names = zip(dims, element_names(s.target, subscripts), strict=True)
        renamed: dict[str, Expr] = {s.element_names[d[0]]: Index(new) for d, new in names if len(d) == 1}
        # Those of dimensions that are gone are 0.
        lost = {s.element_names[e]: int_const(0) for g, d in zip(groups[s.target], dims, strict=True) for e in g if e not in d}
        reduction = replace(reduction, init=substitute(rewrite(reduction.init, rule), {**gone, **lost, **renamed}))
    if not merged and not gone:
        return replace(s, subscripts=subscripts, value=value, reduction=reduction), own, []
    indices = tuple(dict.fromkeys(merged.get(i, i) for i in s.indices if i not in gone))
    intervals = {i: _merge_intervals([own.indices[o] for o in parts.get(i, [i])]) for i in indices}
    if not merged and not is_box(own.domain, own.indices, s.indices):
        where = tuple(replace(c, condition=substitute(c.condition, gone)) for c in s.where if isinstance(c, Condition))
        new = replace(s, subscripts=subscripts, indices=indices, value=value, reduction=reduction, where=where)
        domain = project_domain(own.domain, s.indices, s.name, indices)
        return new, StatementRanges(intervals, domain), []
    # Where clauses say no more than the intervals here, and speak of indices that are gone.
    new = replace(s, subscripts=subscripts, indices=indices, value=value, reduction=reduction, where=())
    domain = box_domain(s.name, indices, intervals, ranges.parameters).intersect_params(own.domain.params())
    return new, StatementRanges(intervals, domain), sorted(set(merged.values()))
