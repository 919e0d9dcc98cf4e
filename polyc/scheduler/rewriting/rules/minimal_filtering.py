"""Filters of three taps with fewer products: Winograd's minimal filtering, in one dimension or two.

    before  ``O[k,p] += D[c,p+r] * F[k,c,r]``                                        3 taps r
    after   ``U[e,k,c] = sum of G[e,r] * F[k,c,r]``                                  4 points e
            ``V[e,c,t] = sum of BT[e,j] * D[c,2*t+j]``                               tiles t of 2 results
            ``M[e,k,t] += U[e,k,c] * V[e,c,t]``
            ``O[k,2*t+a] = sum of AT[a,e] * M[e,k,t]``                               a = 0, 1

Every result takes 2 products instead of 3 for each channel, in two dimensions 4 instead of 9.  The matrices are those of
`toom_cook`, written out as sums, a statement for each point.  What alone reads the results, element by element, is computed
with them.  It is a window wherever a left index and an index of the sum meet as ``p + r`` in one operand and r alone moves the
other; whether it pays is decided by estimated cycles of both forms: here where all extents are known, else by the sizes of a
call among versions of a kernel (`size_classes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil, prod

from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Pad,
    Read,
    identity_of,
    int_const,
    reads,
    rewrite,
    simplify_int,
    substitute,
    walk,
)
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Reduction, Statement, Tensor
from polyc.ir.simplify import simplify
from polyc.ir.types import DType
from polyc.poly.domains import box_domain, is_box
from polyc.poly.ranges import Interval, Ranges, StatementRanges, estimate_extent
from polyc.poly.scop import extract_scop
from polyc.scheduler.contractions.choice import choose, estimate_cycles
from polyc.scheduler.contractions.contraction import find_contraction
from polyc.scheduler.rewriting.rules.blocks import Edit, all_reads, is_simple, plain_place, start_edit
from polyc.scheduler.rewriting.rules.toom_cook import Transforms, make_transforms
from polyc.target import Target

TAPS, POINTS = 3, (0, 1, -1)
"""Points beyond these have powers as factors, which cost digits."""

RESULTS = len(POINTS) + 2 - TAPS
"""Results of a tile, in each dimension."""

MINIMUM_PRODUCTS = 1 << 23
"""Products of the sum as written from which the time is worth the longer compilation."""

DATA_CYCLES, RESULT_CYCLES = 0.5, 0.3
"""Of transforming the data and the results, for each element of the parts that are multiplied (vectors of 16)."""

FILTER_CYCLES = 3.0
"""Of transforming the filter, for each element: its taps are consecutive, its results are not."""

MEMORY_BYTES = 4.0
"""Per cycle from memory: a filter has more points than taps, and in a model of many layers none stays in a cache."""

MARGIN = 0.9
"""Part of the estimate as written that the other one must not exceed: neither is more precise."""


@dataclass(frozen=True, slots=True)
class _Window:
    """``left + tap`` of the data, or ``left - tap``: `sign`.  `results`: how many values the left index has."""

    left: str
    tap: str
    sign: int
    results: Expr
    lower: Expr
    first_tap: Expr

    @property
    def tile(self) -> str:
        return f"{self.left}.tile"

    @property
    def point(self) -> str:
        return f"{self.tap}.point"

    @property
    def is_full(self) -> bool:
        """Whether the last tile is known to be whole."""
        return isinstance(self.results, Const) and int(self.results.value) % RESULTS == 0

    @property
    def n_tiles(self) -> Expr:
        return self.n_tiles_from(0)

    def n_tiles_from(self, n: int) -> Expr:
        """Tiles that have a result `n`."""
        return simplify_int(Call("floordiv", (_add(self.results, RESULTS - 1 - n), int_const(RESULTS))))

    @property
    def first(self) -> Expr:
        """The first result of a tile."""
        return simplify_int(Call("add", (Call("mul", (int_const(RESULTS), Index(self.tile))), self.lower)))

    def data_place(self, n: int) -> dict[str, Expr]:
        """Where element `n` of a tile lies in the data: values of the two indices."""
        last = simplify_int(Call("add", (self.first_tap, int_const(TAPS - 1))))
        return {self.left: _add(self.first, n), self.tap: self.first_tap if self.sign > 0 else last}

    def tap_place(self, n: int) -> dict[str, Expr]:
        """The tap that element ``a + n`` of a tile meets for result a."""
        return {self.tap: _add(self.first_tap, n if self.sign > 0 else TAPS - 1 - n)}


@dataclass(frozen=True, slots=True)
class _Filter:
    """A statement as a sum of products of `data` and `taps` over windows."""

    s: Statement
    data: Expr
    taps: Expr
    windows: tuple[_Window, ...]
    dtype: DType
    zero: Const
    """Of the type of the data."""
    trips: Mapping[str, int]
    """Values of each index: estimates where sizes are symbolic."""
    is_symbolic: bool
    """Whether some extents are not known."""

    @property
    def element(self) -> list[str]:
        """The left indices in the order of the subscripts."""
        return [e.name for e in self.s.subscripts if isinstance(e, Index)]

    @property
    def taps_indices(self) -> list[str]:
        """What moves the taps beside the windows, left indices last: vectors of the products read them in place."""
        moved = [i for i in self.s.indices if self.moves(self.taps, i) and all(i != w.tap for w in self.windows)]
        return sorted(moved, key=lambda i: i in self.s.left_indices)

    @property
    def data_outer(self) -> list[str]:
        """Left indices that move the data: those outside of the points, in the data and in the products."""
        return [i for i in self.element if self.moves(self.data, i) and all(i != w.left for w in self.windows)]

    @property
    def data_inner(self) -> list[str]:
        """Channels that move the data, and the tiles, in the order of the data's subscripts."""
        tiles = {w.left: w.tile for w in self.windows}
        inner = [i for i in self.channels if self.moves(self.data, i)] + list(tiles)
        place = {i: d for d, e in enumerate(reads(self.data)[0].subscripts) for i in index_coefficients(e) or {}}
        return [tiles.get(i, i) for i in sorted(inner, key=lambda i: place[i])]

    @property
    def product_inner(self) -> list[str]:
        """Left indices inside of the points: those that move the taps alone, and the tiles, in the order of the result."""
        tiles = {w.left: w.tile for w in self.windows}
        return [tiles.get(i, i) for i in self.element if i not in self.data_outer]

    @property
    def channels(self) -> list[str]:
        """Indices of the sum that stay."""
        return [i for i in self.s.reduction_indices if all(w.tap != i for w in self.windows)]

    def intervals(self, ranges: Ranges) -> dict[str, Interval]:
        """Of the indices, and of the tiles."""
        tiles = {w.tile: Interval(int_const(0), w.n_tiles) for w in self.windows}
        return ranges.statements[self.s.name].indices | tiles

    def moves(self, part: Expr, index: str) -> bool:
        return any(isinstance(node, Index) and node.name == index for node in walk(part))


def filter_minimally(
    program: Program, ranges: Ranges, target: Target, constants: Collection[str] = (), symbolic: bool = False
) -> tuple[Program, Ranges, list[Remark]]:
    """Sums over windows of three taps by fewer products, where that is estimated to be faster.

    `constants` are tensors that never change: filters of them are transformed once.  `symbolic`: whether sums over extents that
    are not known are rewritten as well, whatever is estimated."""
    remarks: list[Remark] = []
    for s in program.statements:
        found = _find_filter(s, program, ranges) if s in program.statements else None
        if found is None or (found.is_symbolic and not symbolic):
            continue
        new, new_ranges = _rewrite(found, program, ranges)
        names = " and ".join(w.left for w in found.windows)
        if found.is_symbolic:
            program, ranges = new, new_ranges
            remarks.append(Remark("passed", "minimal-filtering", f"filter along {names} in tiles of {RESULTS}", s.name, s.span))
            continue
        before = _estimate(program, ranges, s.name, target, constants)
        is_bound = {r.tensor for r in reads(found.taps)} <= set(constants)
        after = _estimate(new, new_ranges, _product_name(s), target, {_filter_tensor(s)} if is_bound else ())
        after += _transform_cycles(found, target, is_bound)
        message = f"filter along {names} in tiles of {RESULTS}: about {after:.2g} cycles, as written {before:.2g}"
        if before == float("inf") or after > MARGIN * before:  # what is no contraction has no estimate
            remarks.append(Remark("missed", "minimal-filtering", message, s.name, s.span))
            continue
        program, ranges = new, new_ranges
        remarks.append(Remark("passed", "minimal-filtering", message, s.name, s.span))
    return program, ranges, remarks


def has_symbolic_filter(program: Program, ranges: Ranges) -> bool:
    """Whether there is a sum that `filter_minimally` rewrites for ``symbolic=True`` alone."""
    found = (_find_filter(s, program, ranges) for s in program.statements)
    return any(f is not None and f.is_symbolic for f in found)


# -- what is a filter


def _find_filter(s: Statement, program: Program, ranges: Ranges) -> _Filter | None:
    own, dtype = ranges.statements[s.name], program.tensor(s.target).dtype
    if s.reduction is None or s.reduction.op != "add" or not dtype.is_float or not is_simple(s, ranges):
        return None
    if len(program.writers()[s.target]) != 1 or not is_box(own.domain, own.indices, s.indices):
        return None
    estimates = {i: estimate_extent(interval.extent, ranges.typical) for i, interval in own.indices.items()}
    trips = {i: n for i, n in estimates.items() if n is not None}
    is_symbolic = any(not isinstance(interval.extent, Const) for interval in own.indices.values())
    if len(trips) != len(estimates) or (not is_symbolic and prod(trips.values()) < MINIMUM_PRODUCTS):
        return None
    match s.value:
        case Call(op="mul", args=(a, b)):
            for data, taps in ((a, b), (b, a)):
                windows = tuple(_find_windows(s, data, taps, trips, own))[:2]
                if not windows:
                    continue
                zero = identity_of("add", program.tensor(reads(data)[0].tensor).dtype)
                found = _Filter(s, data, taps, windows, dtype, zero, trips, is_symbolic)
                if found.channels:
                    return found
    return None


def _find_windows(s: Statement, data: Expr, taps: Expr, trips: Mapping[str, int], own: StatementRanges) -> list[_Window]:
    """The windows of `data`, if that is one read, perhaps padded or converted, and subscripts of `taps` are linear."""
    inner = data.value if isinstance(data, Cast) else data
    read = inner.read if isinstance(inner, Pad) else inner
    is_filled = not isinstance(inner, Pad) or (inner.mode == "value" and isinstance(inner.value, Const))
    if not isinstance(read, Read) or any(index_coefficients(e) is None for e in read.subscripts):
        return []
    if not reads(taps) or any(index_coefficients(e) is None for r in reads(taps) for e in r.subscripts):
        return []
    forms = [index_coefficients(e) or {} for e in read.subscripts]
    moved_by_taps = {node.name for node in walk(taps) if isinstance(node, Index)}

    def is_long(index: str) -> bool:
        return trips[index] >= RESULTS or not isinstance(own.indices[index].extent, Const)

    found = []
    for form in forms:
        left = [i for i, c in form.items() if i in s.left_indices and c == 1 and i not in moved_by_taps and is_long(i)]
        tap = [
            i for i, c in form.items() if i in s.reduction_indices and abs(c) == 1 and own.indices[i].extent == int_const(TAPS)
        ]
        if len(form) != 2 or len(left) != 1 or len(tap) != 1 or tap[0] not in moved_by_taps:
            continue
        outer, first_tap = own.indices[left[0]], own.indices[tap[0]].lower
        window = _Window(left[0], tap[0], form[tap[0]], outer.extent, outer.lower, first_tap)
        if sum(1 for f in forms for i in f if i in form) == 2 and (window.is_full or is_filled):
            found.append(window)
    return found


# -- the statements


def _rewrite(f: _Filter, program: Program, ranges: Ranges) -> tuple[Program, Ranges]:
    edit = start_edit(program, ranges)
    t = make_transforms(RESULTS, TAPS, POINTS)
    readers = [s for s in program.statements if any(r.tensor == f.s.target for r in all_reads(s))]
    reader = readers[0] if len(readers) == 1 and _is_elementwise(readers[0], f, program, ranges) else None
    for s in program.statements:
        if s is f.s:
            edit.statements += [*_transform_filter(f, t, edit), *_transform_data(f, t, edit), _multiply(f, t, edit)]
            edit.statements += [] if reader else _transform_results(f, t, edit, None)
        elif s is reader:
            edit.statements += _transform_results(f, t, edit, reader)
        else:
            edit.statements.append(s)
    return edit.finish()


def _transform_filter(f: _Filter, t: Transforms, edit: Edit) -> list[Statement]:
    """``U[e…, …] = sum of G[e,r]… * taps`` at every combination of points."""

    @cache
    def tap(at: tuple[int, ...]) -> Expr:
        place = {i: e for w, n in zip(f.windows, at, strict=True) for i, e in w.tap_place(n).items()}
        return simplify(substitute(f.taps, place))

    def value(points: Sequence[int]) -> Expr:
        return _sum([t.filter[e] for e in points], tap, f.dtype)

    return _at_points(_filter_tensor(f.s), f"{f.s.name}_taps", [], f.taps_indices, value, f, t, edit)


def _transform_data(f: _Filter, t: Transforms, edit: Edit) -> list[Statement]:
    """``V[…, e…, …, t…] = sum of BT[e,j]… * data`` at every combination of points.

    In two dimensions of unknown size one after the other, ``R[e, …, t, x] = sum of BT[e,j] * data[…, 2*t+j, x]`` and
    ``V[d, e, …, t, u] = sum of BT[e,j] * R[d, …, t, 2*u+j]``: only the first meets borders, which are masks at run time."""

    @cache
    def element(at: tuple[int, ...]) -> Expr:
        return simplify(_data_at(f, at))

    if len(f.windows) == 1 or all(isinstance(w.results, Const) for w in f.windows):

        def value(points: Sequence[int]) -> Expr:
            return _sum([t.data[e] for e in points], element, f.dtype)

        return _at_points(_data_tensor(f.s), f"{f.s.name}_tiles", f.data_outer, f.data_inner, value, f, t, edit)
    first, second = f.windows
    rows, along = f"{f.s.target}.rows", f"{second.left}.element"
    points = Interval(int_const(0), int_const(t.n_points))
    n_elements = simplify_int(Call("add", (Call("mul", (int_const(RESULTS), second.n_tiles)), int_const(TAPS - 1))))
    intervals = f.intervals(edit.ranges) | {along: Interval(int_const(0), n_elements), first.point: points}
    inner = [*f.data_outer, *(along if i == second.tile else i for i in f.data_inner)]
    edit.tensors.append(Tensor(rows, f.dtype, 1 + len(inner), None, "temporary", rows, f.s.span))
    edit.intervals[rows] = (points, *(intervals[i] for i in inner))
    edit.tensors.append(
        Tensor(
            _data_tensor(f.s),
            f.dtype,
            2 + len(f.data_outer) + len(f.data_inner),
            None,
            "temporary",
            _data_tensor(f.s),
            f.s.span,
        )
    )
    edit.intervals[_data_tensor(f.s)] = (points, points, *(intervals[i] for i in (*f.data_outer, *f.data_inner)))
    at_element = second.data_place(0) | {second.left: simplify_int(Call("add", (Index(along), second.lower)))}

    def combine(at: tuple[int, ...]) -> Expr:
        return simplify(_data_at_place(f, first.data_place(at[0]) | at_element))

    def row(at: tuple[int, ...]) -> Expr:
        place = _add(Call("mul", (int_const(RESULTS), Index(second.tile))), at[0])
        return Read(rows, tuple(place if i == along else Index(i) for i in (first.point, *inner)))

    made = []
    for e in range(t.n_points):
        subscripts: tuple[Expr, ...] = (int_const(e), *map(Index, inner))
        total = _sum([t.data[e]], combine, f.dtype)
        made.append(_assign(f"{f.s.name}_rows_{e}", rows, subscripts, inner, total, intervals, f, edit))
    left = [first.point, *f.data_outer, *f.data_inner]
    for e in range(t.n_points):
        subscripts = (Index(first.point), int_const(e), *map(Index, left[1:]))
        total = _sum([t.data[e]], row, f.dtype)
        made.append(_assign(f"{f.s.name}_tiles_{e}", _data_tensor(f.s), subscripts, left, total, intervals, f, edit))
    return made


def _data_at(f: _Filter, at: Sequence[int]) -> Expr:
    """Element `at` of a tile; behind the last result there may be none, and 0 takes its place."""
    return _data_at_place(f, {i: e for w, n in zip(f.windows, at, strict=True) for i, e in w.data_place(n).items()})


def _data_at_place(f: _Filter, place: Mapping[str, Expr]) -> Expr:
    value = substitute(f.data, place)
    if all(w.is_full for w in f.windows) or any(isinstance(node, Pad) for node in walk(value)):
        return value
    return rewrite(value, lambda node: Pad(node, f.zero) if isinstance(node, Read) else None)


def _at_points(
    target: str,
    name: str,
    outer: Sequence[str],
    inner: Sequence[str],
    value: Callable[[Sequence[int]], Expr],
    f: _Filter,
    t: Transforms,
    edit: Edit,
) -> list[Statement]:
    """``target[outer, points, inner] = value(points)``, a statement for each combination of points."""
    points = Interval(int_const(0), int_const(t.n_points))
    intervals = f.intervals(edit.ranges)
    between = [points] * len(f.windows)
    edit.tensors.append(Tensor(target, f.dtype, len(between) + len(outer) + len(inner), None, "temporary", target, f.s.span))
    edit.intervals[target] = (*between, *(intervals[i] for i in outer), *(intervals[i] for i in inner))
    made = []
    for at in product(range(t.n_points), repeat=len(f.windows)):
        subscripts: tuple[Expr, ...] = (*map(int_const, at), *map(Index, outer), *map(Index, inner))
        own = "_".join([name, *map(str, at)])
        made.append(_assign(own, target, subscripts, [*outer, *inner], value(at), intervals, f, edit))
    return made


def _multiply(f: _Filter, t: Transforms, edit: Edit) -> Statement:
    """``M[…, e…, …] += U * V``"""
    s, points, name = f.s, [w.point for w in f.windows], _product_name(f.s)
    left = [*points, *f.data_outer, *f.product_inner]
    data = Read(_data_tensor(s), tuple(map(Index, [*points, *f.data_outer, *f.data_inner])))
    taps = Read(_filter_tensor(s), tuple(map(Index, [*points, *f.taps_indices])))
    intervals = f.intervals(edit.ranges)
    intervals |= dict.fromkeys(points, Interval(int_const(0), int_const(t.n_points)))
    edit.tensors.append(Tensor(_product_tensor(s), f.dtype, len(left), None, "temporary", _product_tensor(s), s.span))
    edit.intervals[_product_tensor(s)] = tuple(intervals[i] for i in left)
    value = Call("mul", (data, taps))
    made = _assign(name, _product_tensor(s), tuple(map(Index, left)), [*left, *f.channels], value, intervals, f, edit)
    return replace(made, reduction=Reduction("add", identity_of("add", f.dtype)))


def _transform_results(f: _Filter, t: Transforms, edit: Edit, reader: Statement | None) -> list[Statement]:
    """``O[2*t+a…] = sum of AT[a,e]… * M`` for each result of a tile; with `reader`, what that makes of them."""
    s = f.s
    assert s.reduction is not None
    tiles = {w.left: w.tile for w in f.windows}
    indices = [tiles.get(i, i) for i in f.element]
    made = []
    for at in product(range(RESULTS), repeat=len(f.windows)):
        counts = {w.tile: w.n_tiles_from(a) for w, a in zip(f.windows, at, strict=True)}
        if int_const(0) in counts.values():
            continue
        value = _sum([t.result[a] for a in at], lambda points: _product_at(f, points), f.dtype)
        place: dict[str, Expr] = {w.left: _add(w.first, a) for w, a in zip(f.windows, at, strict=True)}
        if s.reduction.init != identity_of("add", f.dtype):
            value = Call("add", (substitute(s.reduction.init, place), value))
        target, left = s.target, s.subscripts
        if reader is not None:
            own = _place_in(reader, f)
            place = {own[i]: place.get(i, Index(tiles.get(i, i))) for i in f.element}
            target, left = reader.target, reader.subscripts
            value = _replace_reads(substitute(reader.value, place), s.target, value)
        subscripts = tuple(substitute(e, place) for e in left)
        intervals = f.intervals(edit.ranges) | {i: Interval(int_const(0), n) for i, n in counts.items()}
        name = "_".join([s.name, *map(str, at)])
        made.append(_assign(name, target, subscripts, indices, value, intervals, f, edit))
    return made


def _product_at(f: _Filter, points: Sequence[int]) -> Expr:
    return Read(_product_tensor(f.s), (*map(int_const, points), *map(Index, f.data_outer), *map(Index, f.product_inner)))


def _is_elementwise(reader: Statement, f: _Filter, program: Program, ranges: Ranges) -> bool:
    """Whether a statement makes each of its elements from the same element of the filter's results, which nobody else wants."""
    own = ranges.statements[reader.name]
    if reader.reduction is not None or not is_simple(reader, ranges) or program.tensor(f.s.target).role != "temporary":
        return False
    if len(program.writers()[reader.target]) != 1 or not is_box(own.domain, own.indices, reader.indices):
        return False
    found = dict.fromkeys(r for r in reads(reader.value) if r.tensor == f.s.target)
    padded = any(isinstance(node, Pad) and node.read.tensor == f.s.target for node in walk(reader.value))
    if len(found) != 1 or padded or plain_place(next(iter(found)), f.s.subscripts) is None:
        return False
    place, theirs = _place_in(reader, f), ranges.statements[f.s.name].indices
    return set(place.values()) == set(reader.indices) and all(own.indices[n] == theirs[i] for i, n in place.items())


def _place_in(reader: Statement, f: _Filter) -> dict[str, str]:
    """Index of the filter's result → index of the statement that reads it there."""
    read = next(r for r in reads(reader.value) if r.tensor == f.s.target)
    return plain_place(read, f.s.subscripts) or {}


def _replace_reads(expr: Expr, tensor: str, value: Expr) -> Expr:
    return rewrite(expr, lambda node: value if isinstance(node, Read) and node.tensor == tensor else None)


def _assign(
    name: str,
    target: str,
    subscripts: tuple[Expr, ...],
    indices: Sequence[str],
    value: Expr,
    intervals: Mapping[str, Interval],
    f: _Filter,
    edit: Edit,
) -> Statement:
    """A statement over a box, with its ranges."""
    own = {i: intervals[i] for i in indices}
    edit.own[name] = StatementRanges(own, box_domain(name, indices, own, edit.ranges.parameters))
    return Statement(name, target, tuple(map(simplify, subscripts)), tuple(indices), simplify(value), None, (), f.s.span)


def _sum(rows: Sequence[Sequence[Fraction]], at: Callable[[tuple[int, ...]], Expr], dtype: DType) -> Expr:
    """``sum over n… of rows[0][n0] * rows[1][n1] * … * at(n…)``, inner sums first, so that neighbours share them."""

    def over(k: int, later: tuple[int, ...]) -> Expr:
        if k < 0:
            return at(later)
        terms = [(c, over(k - 1, (n, *later))) for n, c in enumerate(rows[k]) if c]
        terms.sort(key=lambda term: term[0] < 0)  # a sum begins with what is added
        sizes = {abs(c) for c, _ in terms}
        common = sizes.pop() if len(sizes) == 1 else Fraction(1)
        total: Expr | None = None
        for c, term in terms:
            scaled = _scale(term, abs(c) / common, dtype)
            if total is None:
                total = scaled if c > 0 else Call("neg", (scaled,))
            else:
                total = Call("add" if c > 0 else "sub", (total, scaled))
        assert total is not None
        return _scale(total, common, dtype)

    return over(len(rows) - 1, ())


def _scale(expr: Expr, factor: Fraction, dtype: DType) -> Expr:
    return expr if factor == 1 else Call("mul", (Const(float(factor), dtype), expr))


def _add(expr: Expr, n: int) -> Expr:
    return simplify_int(Call("add", (expr, int_const(n))))


def _filter_tensor(s: Statement) -> str:
    return f"{s.target}.taps"


def _data_tensor(s: Statement) -> str:
    return f"{s.target}.tiles"


def _product_tensor(s: Statement) -> str:
    return f"{s.target}.products"


def _product_name(s: Statement) -> str:
    return f"{s.name}_products"


# -- what it costs


def _estimate(program: Program, ranges: Ranges, name: str, target: Target, constants: Collection[str]) -> float:
    """Cycles of a sum of products in a program."""
    alone = tuple(s for s in program.statements if s.name == name)
    scop = extract_scop(replace(program, statements=alone), ranges)
    contraction = find_contraction(scop.statement(name), scop, target)
    if contraction is None:
        return float("inf")
    return estimate_cycles(contraction, choose(contraction, target, constants), target, constants)


def _transform_cycles(f: _Filter, target: Target, is_bound: bool) -> float:
    """Cycles of making the parts that are multiplied, and the results of them, and of reading a longer filter."""
    points = (TAPS + RESULTS - 1) ** len(f.windows)
    tiles = prod(ceil(f.trips[w.left] / RESULTS) for w in f.windows)
    of_vector = 16 / target.lanes(f.dtype.itemsize)
    count = {i: f.trips[i] for i in f.s.indices if all(i not in (w.left, w.tap) for w in f.windows)}
    data = prod(n for i, n in count.items() if f.moves(f.data, i)) * tiles * points
    results = prod(n for i, n in count.items() if i in f.element) * tiles * points
    cycles = of_vector * (DATA_CYCLES * data + RESULT_CYCLES * results)
    moved = prod(f.trips[i] for i in f.taps_indices)
    cycles += (points - TAPS ** len(f.windows)) * moved * f.dtype.itemsize / MEMORY_BYTES
    if not is_bound:
        cycles += FILTER_CYCLES * moved * points
    return cycles
