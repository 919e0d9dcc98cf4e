"""Filters of three taps with fewer products: Winograd's minimal filtering, in one dimension or two.

    before  ``O[k,p] += D[c,p+r] * F[k,c,r]``                                        3 taps r
    after   ``U[e,k,c] = sum of G[e,r] * F[k,c,r]``                                  4 points e
            ``V[e,c,t] = sum of BT[e,j] * D[c,2*t+j]``                               tiles t of 2 results
            ``M[e,k,t] += U[e,k,c] * V[e,c,t]``
            ``O[k,2*t+a] = sum of AT[a,e] * M[e,k,t]``                               a = 0, 1

Every result takes 2 products instead of 3 for each channel, in two dimensions 4 instead of 9.  The matrices are written out as
sums, a statement for each point.  What alone reads the results, element by element, is computed
with them.  It is a window wherever a left index and an index of the sum meet as ``p + r`` in one operand and r alone moves the
other; whether it pays is decided by estimated cycles of both forms: here where all extents are known, else by the sizes of a
call among versions of a kernel (`size_classes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil, inf, prod

from polyc.code_limits import MARGIN
from polyc.diagnostics import Remark
from polyc.ir.expr import Const, Expr, Index, Pad, Read, identity_of, int_const, mentions, padded_reads, reads, substitute
from polyc.ir.program import Program, Reduction, Statement
from polyc.ir.simplify import simplify, simplify_int
from polyc.ir.types import DType
from polyc.ir.weighted_sums import write_sum
from polyc.machine import Machine
from polyc.poly.domains import box_domain
from polyc.poly.ranges import Interval, Ranges, StatementRanges
from polyc.records import replace
from polyc.scheduler.contractions.choice import choose, estimate_cycles
from polyc.scheduler.contractions.contraction import find_contraction_in
from polyc.scheduler.rewriting.builder import ProgramBuilder
from polyc.scheduler.rewriting.reindexing import map_reads
from polyc.scheduler.rewriting.rules.analysis import find_elementwise_reader
from polyc.scheduler.rewriting.rules.tap_windows import RESULTS, TAPS, TapWindow, WindowFilter, add_number, find_filter

HALF = Fraction(1, 2)

DATA = (1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1)
FILTER = (1, 0, 0), (HALF, HALF, HALF), (HALF, -HALF, HALF), (0, 0, 1)
RESULT = (1, 1, 1, 0), (0, 1, -1, 1)
"""B^T, G and A^T of ``y = A^T ((G g) * (B^T d))``, for ``y[i] = sum over k of d[i + k] * g[k]``: interpolation at 0, 1, -1 and
infinity (Winograd, "Arithmetic Complexity of Computations", 1980; Lavin and Gray, "Fast Algorithms for Convolutional Neural
Networks", 2016, equation 6).  More points have powers as factors, which cost digits."""
N_POINTS = len(DATA)
ALL_POINTS = Interval(int_const(0), int_const(N_POINTS))

Matrix = Sequence[Sequence[Fraction | int]]


def filter_minimally(
    program: Program, ranges: Ranges, target: Machine, constants: Collection[str] = (), symbolic: bool = False
) -> tuple[Program, Ranges, list[Remark]]:
    """Minimal filtering (Winograd): filters of three taps take fewer products.

    `constants` are tensors that never change: filters of them are transformed once.  `symbolic`: whether sums over extents that
    are not known are rewritten as well, whatever is estimated."""
    remarks: list[Remark] = []
    for s in program.statements:
        found = find_filter(s, program, ranges) if s in program.statements else None
        if found is None or (found.is_symbolic and not symbolic):
            continue
        new, is_faster = _rewrite(found, program, ranges), True
        message = f"filter along {' and '.join(w.left for w in found.windows)} in tiles of {RESULTS}"
        if not found.is_symbolic:
            before = _estimate(program, ranges, s.name, target, constants)
            after = _estimate_filtered(found, *new, target, constants)
            message += f": about {after:.2g} cycles, as written {before:.2g}"
            is_faster = after <= MARGIN * before and before < inf  # what is no contraction has no estimate
        program, ranges = new if is_faster else (program, ranges)
        remarks.append(Remark("passed" if is_faster else "missed", "minimal-filtering", message, s.name, s.span))
    return program, ranges, remarks


def has_symbolic_filter(program: Program, ranges: Ranges) -> bool:
    """Whether there is a sum that `filter_minimally` rewrites for ``symbolic=True`` alone."""
    found = (find_filter(s, program, ranges) for s in program.statements)
    return any(f is not None and f.is_symbolic for f in found)


# -- the statements


def _rewrite(f: WindowFilter, program: Program, ranges: Ranges) -> tuple[Program, Ranges]:
    builder = ProgramBuilder(program, ranges)
    reader = find_elementwise_reader(f.s, program, ranges)
    made = {f.s.name: [*_transform_filter(f, builder), *_transform_data(f, builder), _multiply(f, builder)]}
    made.setdefault(reader[0].name if reader else f.s.name, []).extend(_transform_results(f, builder, reader))
    builder.statements += [n for s in program.statements for n in made.get(s.name, [s])]
    return builder.finish()


def _transform_filter(f: WindowFilter, builder: ProgramBuilder) -> list[Statement]:
    """``U[e…, …] = sum of G[e,r]… * taps`` at every combination of points."""

    @cache
    def tap(at: tuple[int, ...]) -> Expr:
        place = {i: e for w, n in zip(f.windows, at, strict=True) for i, e in w.tap_place(n).items()}
        return simplify(substitute(f.taps, place))

    return _at_points(f, "taps", len(f.windows), f.taps_indices, FILTER, tap, f.intervals(builder.ranges), builder)


def _transform_data(f: WindowFilter, builder: ProgramBuilder) -> list[Statement]:
    """``V[…, e…, …, t…] = sum of BT[e,j]… * data`` at every combination of points.

    In two dimensions of unknown size one after the other, ``R[e, …, t, x] = sum of BT[e,j] * data[…, 2*t+j, x]`` and
    ``V[d, e, …, t, u] = sum of BT[e,j] * R[d, …, t, 2*u+j]``: only the first meets borders, which are masks at run time."""

    @cache
    def element(at: tuple[int, ...]) -> Expr:
        return simplify(_data_at(f, {i: e for w, n in zip(f.windows, at, strict=True) for i, e in w.data_place(n).items()}))

    intervals, left = f.intervals(builder.ranges), [*f.data_outer, *f.data_inner]
    if len(f.windows) == 1 or all(isinstance(w.results, Const) for w in f.windows):
        return _at_points(f, "tiles", len(f.windows), left, DATA, element, intervals, builder)
    first, second = f.windows
    along = f"{second.left}.element"
    n_elements = simplify_int(RESULTS * second.n_tiles + (TAPS - 1))
    intervals |= {along: Interval(int_const(0), n_elements), first.point: ALL_POINTS}
    inner = [along if i == second.tile else i for i in left]
    at_element = second.data_place(0) | {second.left: simplify_int(Index(along) + second.lower)}

    def combine(at: tuple[int, ...]) -> Expr:
        return simplify(_data_at(f, first.data_place(at[0]) | at_element))

    def row(at: tuple[int, ...]) -> Expr:
        place = add_number(RESULTS * Index(second.tile), at[0])
        return Read(f.tensor("rows"), tuple(place if i == along else Index(i) for i in (first.point, *inner)))

    rows = _at_points(f, "rows", 1, inner, DATA, combine, intervals, builder)
    return rows + _at_points(f, "tiles", 1, left, DATA, row, intervals, builder, before=[first.point])


def _data_at(f: WindowFilter, place: Mapping[str, Expr]) -> Expr:
    """The data at a place of a tile; behind the last result there may be none, and 0 takes its place."""
    value = substitute(f.data, place)
    if all(w.is_full for w in f.windows) or padded_reads(value):
        return value
    return map_reads(value, lambda read: Pad(read, f.zero))


def _at_points(
    f: WindowFilter,
    suffix: str,
    n_dimensions: int,
    indices: Sequence[str],
    matrix: Matrix,
    at: Callable[[tuple[int, ...]], Expr],
    intervals: Mapping[str, Interval],
    builder: ProgramBuilder,
    before: Sequence[str] = (),
) -> list[Statement]:
    """A temporary ``[before, points, indices]``: a statement for each combination of points in so many dimensions, with the sum
    of what is `at` the columns of their rows in `matrix`."""
    shape = [*(intervals[i] for i in before), *[ALL_POINTS] * n_dimensions, *(intervals[i] for i in indices)]
    target, box = builder.add_temporary(f.s, suffix, shape), {i: intervals[i] for i in (*before, *indices)}
    made = []
    for points in product(range(N_POINTS), repeat=n_dimensions):
        name = "_".join([f"{f.s.name}_{suffix}", *map(str, points)])
        subscripts: list[Expr] = [*map(Index, before), *map(int_const, points), *map(Index, indices)]
        value = simplify(_sum([matrix[e] for e in points], at, f.dtype))
        made.append(builder.assign(name, target, subscripts, value, builder.box(box), f.s))
    return made


def _multiply(f: WindowFilter, builder: ProgramBuilder) -> Statement:
    """``M[…, e…, …] += U * V``"""
    points = [w.point for w in f.windows]
    data = Read(f.tensor("tiles"), tuple(map(Index, [*points, *f.data_outer, *f.data_inner])))
    taps = Read(f.tensor("taps"), tuple(map(Index, [*points, *f.taps_indices])))
    intervals = f.intervals(builder.ranges) | dict.fromkeys(points, ALL_POINTS)
    left, zero = [*points, *f.data_outer, *f.product_inner], Reduction("add", identity_of("add", f.dtype))
    return builder.define(f.s, "products", left, data * taps, f.channels, zero, intervals)


def _transform_results(
    f: WindowFilter, builder: ProgramBuilder, reader: tuple[Statement, Mapping[str, str]] | None
) -> list[Statement]:
    """``O[2*t+a…] = sum of AT[a,e]… * M`` for each result of a tile; with `reader`, what that makes of them."""
    return [
        _transform_result(f, at, counts, builder, reader)
        for at in product(range(RESULTS), repeat=len(f.windows))
        if int_const(0) not in (counts := {w.tile: w.n_tiles_from(a) for w, a in zip(f.windows, at, strict=True)}).values()
    ]


def _transform_result(
    f: WindowFilter,
    at: tuple[int, ...],
    counts: Mapping[str, Expr],
    builder: ProgramBuilder,
    reader: tuple[Statement, Mapping[str, str]] | None,
) -> Statement:
    """Result `at` of the tiles that have one: so many in each dimension."""
    made, tiles = f.s, {w.left: w.tile for w in f.windows}
    others = (*map(Index, f.data_outer), *map(Index, f.product_inner))
    products = f.tensor("products")
    value = _sum([RESULT[a] for a in at], lambda p: Read(products, (*map(int_const, p), *others)), f.dtype)
    place: dict[str, Expr] = {w.left: add_number(w.first, a) for w, a in zip(f.windows, at, strict=True)}
    assert made.reduction is not None
    if made.reduction.init != identity_of("add", f.dtype):
        value = substitute(made.reduction.init, place) + value
    if reader is not None:
        made, own = reader
        place = {own[i]: place.get(i, Index(tiles.get(i, i))) for i in f.s.element_names}
        value = map_reads(substitute(made.value, place), lambda _: value, f.s.target)
    subscripts = [simplify(substitute(e, place)) for e in made.subscripts]
    intervals = f.intervals(builder.ranges) | {i: Interval(int_const(0), n) for i, n in counts.items()}
    box, name = builder.box(intervals, [tiles.get(i, i) for i in f.s.element_names]), "_".join([f.s.name, *map(str, at)])
    return builder.assign(name, made.target, subscripts, simplify(value), box, f.s)


def _sum(rows: Matrix, at: Callable[[tuple[int, ...]], Expr], dtype: DType) -> Expr:
    """``sum over n… of rows[0][n0] * rows[1][n1] * … * at(n…)``, inner sums first, so that neighbours share them."""

    def over(k: int, later: tuple[int, ...]) -> Expr:
        return (
            at(later)
            if k < 0
            else write_sum({over(k - 1, (n, *later)): Fraction(c) for n, c in enumerate(rows[k]) if c}, dtype)
        )

    return over(len(rows) - 1, ())


# -- what it costs


def _estimate(program: Program, ranges: Ranges, name: str, target: Machine, constants: Collection[str]) -> float:
    """Cycles of a sum of products in a program."""
    c = find_contraction_in(program, ranges, name, target)
    return inf if c is None else estimate_cycles(c, choose(c, target, constants), target, constants)


def _estimate_filtered(f: WindowFilter, program: Program, ranges: Ranges, target: Machine, constants: Collection[str]) -> float:
    """Cycles of the same sum in the form that `_rewrite` gave the program."""
    is_bound = {r.tensor for r in reads(f.taps)} <= set(constants)
    row, n_rows = _one_row(f, program, ranges)
    cycles = n_rows * _estimate(program, row, f"{f.s.name}_products", target, {f.tensor("taps")} if is_bound else ())
    return cycles + _transform_cycles(f, target, is_bound)


def _one_row(f: WindowFilter, program: Program, ranges: Ranges) -> tuple[Ranges, int]:
    """`ranges` of the products of one row of tiles, and how many rows there are: the schedule lets the transformations and the
    products share the loops over them, so that the parts of a row stay in a cache."""
    made = next(s for s in program.statements if s.name == f"{f.s.name}_products")
    n_rows = prod(f.trips[i] for i in f.data_outer) * prod(_n_tiles(f, w) for w in f.windows[:-1])
    outer = {*f.data_outer, *(w.tile for w in f.windows[:-1])}
    of_all = ranges.statements[made.name].indices
    one = {i: Interval(x.lower, int_const(1)) if i in outer else x for i, x in of_all.items()}
    tensors = dict(ranges.tensors)
    for access in (Read(made.target, made.subscripts), *reads(made.value)):
        tensors[access.tensor] = tuple(one[e.name] for e in access.subscripts if isinstance(e, Index))
    own = StatementRanges(one, box_domain(made.name, made.indices, one, ranges.parameters))
    return replace(ranges, tensors=tensors, statements=ranges.statements | {made.name: own}), n_rows


def _n_tiles(f: WindowFilter, w: TapWindow) -> int:
    return ceil(f.trips[w.left] / RESULTS)


def _transform_cycles(f: WindowFilter, target: Machine, is_bound: bool) -> float:
    """Cycles of making the parts that are multiplied, and the results of them, and of reading a longer filter."""
    points = N_POINTS ** len(f.windows)
    tiles = prod(_n_tiles(f, w) for w in f.windows)
    slowness = max(1.0, 16 / (target.lanes(f.dtype.itemsize) * target.fma_per_cycle))
    count = {i: f.trips[i] for i in f.s.indices if all(i not in (w.left, w.tap) for w in f.windows)}
    data = prod(n for i, n in count.items() if mentions(f.data, i)) * tiles * points
    results = prod(n for i, n in count.items() if i in f.s.element_names) * tiles * points
    cycles = slowness * (target.filters.data * data + target.filters.results * results)
    moved = prod(f.trips[i] for i in f.taps_indices)
    cycles += (points - TAPS ** len(f.windows)) * moved * f.dtype.itemsize / target.filters.memory
    if not is_bound:
        cycles += target.filters.filter * moved * points
    return cycles
