"""Operators that choose elements by their values, and caches that are written at positions that data gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, cast, constant, select
from polyc.ir.expr import identity_of
from polyc.ir.types import I32, I64, DType
from polyc.records import dataclass

MOST_RANKED = 1024
"""Elements among which each is compared with each, at most."""
FEWEST_SEARCHED = 48
"""Elements from which on they are searched for the next one `k` times, where that is less work."""
MOST_SEARCHED = 1 << 19
"""Elements that are looked at in all searches; a host that sorts is faster than more of them."""


@operator("TopK")
def top_k_1(b: Builder, x: Value, *, k: int, axis: int = -1) -> tuple[Value, Value]:
    return choose_greatest(b, x, k, axis, largest=True)


@operator("TopK", since=10)
def top_k_10(b: Builder, x: Value, k: Value, *, axis: int = -1) -> tuple[Value, Value]:
    return choose_greatest(b, x, _single(b, k), axis, largest=True)


@operator("TopK", since=11)
def top_k(b: Builder, x: Value, k: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Value, Value]:
    return choose_greatest(b, x, _single(b, k), axis, largest=bool(largest))


def _single(b: Builder, k: Value) -> int:
    if k.size != 1:
        b.refuse(f"{k.size} numbers of elements")
    return b.integers(k)[0]


def choose_greatest(b: Builder, x: Value, k: int, axis: int, *, largest: bool) -> tuple[Value, Value]:
    """The `k` greatest (or least) elements along an axis, in order, and where they stand; NaN counts as the greatest number,
    and of equal elements the first comes first."""
    axis = b.axis(axis, x.rank)
    n = x.shape[axis]
    if not 0 <= k <= n:
        b.refuse(f"{k} of {n} elements")
    if n >= FEWEST_SEARCHED and 2 * k <= n and _work(n, k, _block_size(n, k)) <= MOST_SEARCHED:
        return _search_greatest(b, x, k, axis, largest=largest)
    if n > MOST_RANKED:
        b.refuse(f"{k} of {n} elements, which are sorted on the host")
    return _rank_greatest(b, x, k, axis, largest=largest)


def _exceeds(u: Term, v: Term, *, largest: bool) -> Term:
    """Whether u comes before v by its value."""
    found = u > v if largest else u < v
    if not u.dtype.is_float:
        return found
    first, second = (u, v) if largest else (v, u)
    return found | ((first != first) & (second == second))


def _rank_greatest(b: Builder, x: Value, k: int, axis: int, *, largest: bool) -> tuple[Value, Value]:
    """An element's rank is the number of those that come before it."""
    n = x.shape[axis]

    def at(i: tuple[Term, ...], place: Term) -> Term:
        return x[(*i[:axis], place, *i[axis + 1 :])]

    def precedes(*i: Term) -> Term:
        *element, other = i
        u, v = at(tuple(element), other), x[tuple(element)]
        is_equal = ~_exceeds(v, u, largest=largest)
        is_before = _exceeds(u, v, largest=largest) | (is_equal & (other < element[axis]))
        return select(is_before, cast(other * 0 + 1, I32), 0)

    ranks = b.reduce("add", x.shape, (n,), I32, precedes)
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])

    def place(*i: Term) -> Term:
        *element, other = i
        rank = ranks[(*element[:axis], other, *element[axis + 1 :])]
        return select(cast(rank, I64) == element[axis], other, 0)

    places = b.reduce("add", shape, (n,), I64, place)
    return b.map(shape, x.dtype, lambda *i: at(i, places[i])), places


def _search_greatest(b: Builder, x: Value, k: int, axis: int, *, largest: bool) -> tuple[Value, Value]:
    """Each is the greatest of those behind the one before.

    Where there are many, the greatest of each block comes first: the k greatest of all are in the k blocks whose greatest are,
    of equal ones the first."""
    n, number = x.shape[axis], x.dtype.computed
    outer = (*x.shape[:axis], *x.shape[axis + 1 :])
    last = float("nan") if number.is_float and not largest else _end(number, not largest)

    def at(o: Sequence[Term], place: Operand) -> Term:
        return x[(*o[:axis], place, *o[axis:])]

    size = _block_size(n, k)
    if size == 1:
        row = _Row(outer, (n,), n, lambda o, r: at(o, r[0]), lambda o, r: cast(r[0], I32))
    else:
        n_blocks = -(-n // size)
        heads = _find_heads(b, (*outer, n_blocks), number, n, size, at, largest=largest)
        chosen = _search(
            b,
            _Row(outer, (n_blocks,), n_blocks, lambda o, r: heads[(*o, *r)], lambda o, r: cast(r[0], I32)),
            k,
            number,
            largest=largest,
        )[1]

        def place(o: Sequence[Term], r: Sequence[Term]) -> Term:
            return chosen[(*o, r[0] + 1)] * size + cast(r[1], I32)

        def element(*i: Term) -> Term:
            position = cast(place(i[:-2], i[-2:]), I64)
            return select(position < n, at(i[:-2], position), constant(last, number))

        elements = b.map((*outer, k, size), number, element)
        row = _Row(outer, (k, size), n_blocks * size, lambda o, r: elements[(*o, *r)], place)
    found, places = _search(b, row, k, number, largest=largest)
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])

    def result(source: Value, dtype: DType) -> Value:
        return b.map(shape, dtype, lambda *i: cast(source[(*i[:axis], *i[axis + 1 :], i[axis] + 1)], dtype.computed))

    return result(found, x.dtype), result(places, I64)


def _end(dtype: DType, is_high: bool) -> int | float:
    """The greatest number of a type, or the least."""
    value = identity_of("min" if is_high else "max", dtype).value
    assert isinstance(value, (int, float))
    return value


def _block_size(n: int, k: int) -> int:
    """Elements of a block, for which there is least to search; 1 where it is no less than without."""
    size = 16 * max(1, round((n / max(k, 1)) ** 0.5 / 16))
    return size if k <= -(-n // size) and 2 * _work(n, k, size) <= _work(n, k, 1) else 1


def _work(n: int, k: int, size: int) -> int:
    """Elements that are looked at."""
    return n * k if size == 1 else n + k * (-(-n // size) + k * size)


def _find_heads(
    b: Builder, shape: Sequence[int], dtype: DType, n: int, size: int, at: Callable[..., Term], *, largest: bool
) -> Value:
    """The first of each block of `size` elements, by value."""

    def element(*i: Term) -> Term:
        return at(i[:-2], i[-2] * size + i[-1])

    def is_there(*i: Term) -> Term:
        return i[-2] * size + i[-1] < n

    where = is_there if n % size else None
    if largest or not dtype.is_float:
        return b.reduce("max" if largest else "min", shape, (size,), dtype, element, where=where)
    high = constant(_end(dtype, True), dtype)

    def number(*i: Term) -> Term:
        value = element(*i)
        return select(value == value, value, high)

    def has_number(*i: Term) -> Term:
        value = element(*i)
        return select(value == value, constant(1, I32), 0)

    least = b.reduce("min", shape, (size,), dtype, number, where=where)
    some = b.reduce("max", shape, (size,), I32, has_number, where=where)
    return b.map(shape, dtype, lambda *i: select(some[i] > 0, least[i], constant(float("nan"), dtype)))


@dataclass(frozen=True, slots=True)
class _Row:
    """Elements to search, for each point o of `outer`: for r in `box`, `value(o, r)` at `place(o, r)`, which is less than
    `n` for those that are to be found."""

    outer: tuple[int, ...]
    box: tuple[int, ...]
    n: int
    value: Callable[[Sequence[Term], Sequence[Term]], Term]
    place: Callable[[Sequence[Term], Sequence[Term]], Term]


def _search(b: Builder, row: _Row, k: int, number: DType, *, largest: bool) -> tuple[Value, Value]:
    """Values and places of the k greatest, behind a number that precedes all, at -1.

    NaN that comes last is told from the greatest number by its place, to which `n` is added."""
    n, depth = row.n, len(row.outer)
    first = float("nan") if number.is_float and largest else _end(number, largest)
    found, places = b.declare((*row.outer, k + 1), number), b.declare((*row.outer, k + 1), I32)
    has_nan_last = number.is_float and not largest

    def split(i: Sequence[Term]) -> tuple[Sequence[Term], Term, Term, Term]:
        """The point of `outer`, the number of what is searched, and the element there is."""
        o, t, r = i[:depth], i[depth], i[depth + 1 :]
        return o, t, row.value(o, r), row.place(o, r)

    def is_left(*i: Term) -> Term:
        """Whether an element comes behind what was found before."""
        o, t, value, place = split(i)
        before = found[(*o, t)]
        is_behind = ~_exceeds(value, before, largest=largest) & (place > places[(*o, t)])
        return _exceeds(before, value, largest=largest) | is_behind

    def candidate(*i: Term) -> Term:
        _, _, value, _ = split(i)
        fits = is_left(*i)
        if has_nan_last:
            fits = fits & (value == value)
        return select(fits, value, constant(_end(number, not largest), number))

    best = b.reduce("max" if largest else "min", (*row.outer, k), row.box, number, candidate)

    def position(*i: Term) -> Term:
        o, t, value, place = split(i)
        wanted = best[(*o, t)]
        same = value == wanted
        if number.is_float and largest:
            same = same | ((value != value) & (wanted != wanted))
        other: Operand = 2 * n
        if has_nan_last:
            other = select(is_left(*i) & (value != value), place + n, constant(2 * n, I32))
        return select(is_left(*i) & same, place, other)

    where = b.reduce("min", (*row.outer, k), row.box, I32, position)

    def value_of(*i: Term) -> Term:
        return select(where[i] < n, best[i], constant(float("nan"), number)) if has_nan_last else best[i]

    ends = (*row.outer, 1), (*row.outer, k)
    b.write(found, ends[0], lambda *i: (*i[:-1], 0), lambda *i: constant(first, number))
    b.write(found, ends[1], lambda *i: (*i[:-1], i[-1] + 1), value_of)
    b.write(places, ends[0], lambda *i: (*i[:-1], 0), lambda *i: constant(-1, I32))
    b.write(places, ends[1], lambda *i: (*i[:-1], i[-1] + 1), lambda *i: select(where[i] < n, where[i], where[i] - n))
    return found, places


@operator("TensorScatter")
def tensor_scatter(
    b: Builder, past: Value, update: Value, write_indices: Value | None = None, *, axis: int = -2, mode: str = "linear"
) -> Value:
    """The cache with `update` in place from a position on that is given for each batch; behind the end of a circular one comes
    its beginning."""
    axis = b.axis(axis, past.rank)
    if past.dtype != update.dtype or axis == 0 or past.rank != update.rank:
        b.refuse(f"an update of type {update.dtype.label} and shape {update.shape} along axis {axis}")
    n_new, n = update.shape[axis], past.shape[axis]

    def element(*i: Term) -> Operand:
        start: Operand = 0 if write_indices is None else cast(write_indices[i[0]], I64)
        position = i[axis] - start
        if mode == "circular":
            position = position % n
        is_new = (position >= 0) & (position < n_new)
        return select(is_new, update[(*i[:axis], position, *i[axis + 1 :])], past[i])

    return b.map(past.shape, past.dtype, element)


@operator("OptionalHasElement")
def optional_has_element(b: Builder, x: Value | None = None) -> Value:
    """Whether there is one: a tensor always is."""
    return b.array(np.array(x is not None))


@operator("OptionalGetElement")
def optional_get_element(b: Builder, x: Value) -> Value:
    return x
