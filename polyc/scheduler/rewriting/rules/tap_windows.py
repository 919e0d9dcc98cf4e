"""Filters: sums of products over windows of three taps, where a left index and an index of the sum meet as ``p + r``."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from polyc.ir.expr import Call, Const, Expr, Index, identity_of, index_names, int_const, mentions, reads
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement
from polyc.ir.simplify import simplify_int
from polyc.ir.types import DType
from polyc.poly.footprints import tile_name
from polyc.poly.ranges import Interval, Ranges, StatementRanges
from polyc.records import dataclass
from polyc.scheduler.rewriting.rules.analysis import is_whole_box
from polyc.scheduler.rewriting.rules.operands import find_operand

TAPS, RESULTS = 3, 2
"""Of a tile, in each dimension."""

MINIMUM_PRODUCTS = 1 << 23
"""Products of the sum as written from which the time is worth the longer compilation."""


@dataclass(frozen=True, slots=True)
class TapWindow:
    """``left + tap`` of the data, or ``left - tap``: `sign`.  `results`: how many values the left index has."""

    left: str
    tap: str
    sign: int
    results: Expr
    lower: Expr
    first_tap: Expr

    @property
    def tile(self) -> str:
        return tile_name(self.left)

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
        return simplify_int(add_number(self.results, RESULTS - 1 - n) // RESULTS)

    @property
    def first(self) -> Expr:
        """The first result of a tile."""
        return simplify_int(RESULTS * Index(self.tile) + self.lower)

    def data_place(self, n: int) -> dict[str, Expr]:
        """Where element `n` of a tile lies in the data: values of the two indices."""
        last = simplify_int(self.first_tap + (TAPS - 1))
        return {self.left: add_number(self.first, n), self.tap: self.first_tap if self.sign > 0 else last}

    def tap_place(self, n: int) -> dict[str, Expr]:
        """The tap that element ``a + n`` of a tile meets for result a."""
        return {self.tap: add_number(self.first_tap, n if self.sign > 0 else TAPS - 1 - n)}


@dataclass(frozen=True, slots=True)
class WindowFilter:
    """A statement as a sum of products of `data` and `taps` over windows."""

    s: Statement
    data: Expr
    taps: Expr
    windows: tuple[TapWindow, ...]
    dtype: DType
    zero: Const
    """Of the type of the data."""
    trips: Mapping[str, int]
    """Values of each index: estimates where sizes are symbolic."""
    is_symbolic: bool
    """Whether some extents are not known."""

    @property
    def tiles(self) -> dict[str, str]:
        """The index that counts the tiles of each left index that has some."""
        return {w.left: w.tile for w in self.windows}

    @property
    def channels(self) -> list[str]:
        """Indices of the sum that stay."""
        return [i for i in self.s.reduction_indices if all(w.tap != i for w in self.windows)]

    @property
    def taps_indices(self) -> list[str]:
        """What moves the taps beside the windows, left indices last: vectors of the products read them in place."""
        moved = [i for i in self.s.indices if mentions(self.taps, i) and all(i != w.tap for w in self.windows)]
        return sorted(moved, key=lambda i: i in self.s.left_indices)

    @property
    def data_outer(self) -> list[str]:
        """Left indices that move the data: those outside of the points, in the data and in the products."""
        return [i for i in self.s.element_names if mentions(self.data, i) and i not in self.tiles]

    @property
    def data_inner(self) -> list[str]:
        """Channels that move the data, and the tiles, in the order of the data's subscripts."""
        inner = [*(i for i in self.channels if mentions(self.data, i)), *self.tiles]
        place = {i: d for d, e in enumerate(reads(self.data)[0].subscripts) for i in index_coefficients(e) or {}}
        return [self.tiles.get(i, i) for i in sorted(inner, key=lambda i: place[i])]

    @property
    def product_inner(self) -> list[str]:
        """Left indices inside of the points: those that move the taps alone, and the tiles, in the order of the result."""
        return [self.tiles.get(i, i) for i in self.s.element_names if i not in self.data_outer]

    def tensor(self, suffix: str) -> str:
        """A temporary that the sum is taken apart into: ``taps``, ``tiles`` or ``products``."""
        return f"{self.s.target}.{suffix}"

    def intervals(self, ranges: Ranges) -> dict[str, Interval]:
        """Of the indices, and of the tiles."""
        tiles = {w.tile: Interval(int_const(0), w.n_tiles) for w in self.windows}
        return ranges.statements[self.s.name].indices | tiles


def find_filter(s: Statement, program: Program, ranges: Ranges) -> WindowFilter | None:
    """The sum as a filter along one or two windows, the last ones, if it is one that is long enough."""
    own, dtype = ranges.statements[s.name], program.tensor(s.target).dtype
    if s.reduction is None or s.reduction.op != "add" or not dtype.is_float or not is_whole_box(s, program, ranges):
        return None
    trips = {i: n for i, n in ranges.trips(s.name).items() if n is not None}
    is_symbolic = any(not isinstance(interval.extent, Const) for interval in own.indices.values())
    if len(trips) != len(own.indices) or (not is_symbolic and prod(trips.values()) < MINIMUM_PRODUCTS):
        return None
    factors = s.value.args if isinstance(s.value, Call) and s.value.op == "mul" else ()
    for data, taps in zip(factors, factors[::-1], strict=True):
        windows = tuple(_find_windows(s, data, taps, trips, own))[-2:]
        if windows:
            zero = identity_of("add", program.tensor(reads(data)[0].tensor).dtype)
            found = WindowFilter(s, data, taps, windows, dtype, zero, trips, is_symbolic)
            if found.channels:
                return found
    return None


def _find_windows(s: Statement, data: Expr, taps: Expr, trips: Mapping[str, int], own: StatementRanges) -> list[TapWindow]:
    """The windows of `data`, if that is one read, perhaps padded or converted, and subscripts of `taps` are linear."""
    operand, by_taps = find_operand(data), index_names(taps)
    if operand is None or not reads(taps) or any(index_coefficients(e) is None for r in reads(taps) for e in r.subscripts):
        return []
    is_filled = operand.pad is None or (operand.pad.mode == "value" and isinstance(operand.pad.value, Const))
    found = []
    for form in operand.steps:
        left = [i for i, c in form.items() if i in s.left_indices and c == 1 and i not in by_taps]
        tap = [i for i, c in form.items() if i in s.reduction_indices and abs(c) == 1 and i in by_taps]
        if len(form) != 2 or len(left) != 1 or len(tap) != 1 or own.indices[tap[0]].extent != int_const(TAPS):
            continue
        outer = own.indices[left[0]]
        window = TapWindow(left[0], tap[0], form[tap[0]], outer.extent, outer.lower, own.indices[tap[0]].lower)
        is_long = trips[left[0]] >= RESULTS or not isinstance(outer.extent, Const)
        is_alone = sum(1 for f in operand.steps for i in f if i in form) == 2
        if is_long and is_alone and (window.is_full or is_filled):
            found.append(window)
    return found


def add_number(expr: Expr, n: int) -> Expr:
    return simplify_int(expr + n)
