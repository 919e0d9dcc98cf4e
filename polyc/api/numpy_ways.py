"""How NumPy computes an einsum: all indices at once in its own loops, or as products of two operands, which `numpy.matmul`
hands to a BLAS.

`plan_pairs` makes of an order of contraction what `numpy.einsum(optimize=True)` makes of it, but once for all calls with these
shapes, and with less copying: indices that both operands and the result have stay dimensions of their own, and products are
written where they belong.  Operands and results have one element type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from polyc.records import dataclass
from polyc.runtime.memory import make_allocator

Term = tuple[str, ...]
"""Names of the indices of an operand or a result."""
Path = tuple[tuple[int, ...], ...]
Way = Callable[[Sequence[np.ndarray]], np.ndarray]

LARGE_PRODUCT = 1 << 17
"""Multiplications from which on a call of a BLAS for each of many matrices is as fast as one for all of them."""
LARGEST_STEP = 1 << 24
"""Elements of the largest intermediate result of a path."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The letters of numbers that stand for indices, as NumPy gives them: an implicit output is in the order of numbers."""


def compute_at_once(terms: Sequence[Term], output: Term, sizes: Mapping[str, int], dtype: np.dtype) -> Way:
    """All indices in NumPy's own loops."""
    subscripts = format_subscripts(terms, output)
    allocate = make_allocator(tuple(sizes[x] for x in output), dtype)

    def run(operands: Sequence[np.ndarray]) -> np.ndarray:
        result = allocate()
        np.einsum(subscripts, *operands, out=result)
        return result

    return run


def format_subscripts(terms: Sequence[Term], output: Term) -> str:
    """Subscripts for NumPy with a letter for each name; ValueError beyond the letters that there are."""
    names = dict.fromkeys(name for term in terms for name in term)
    letters = dict(zip(names, LETTERS, strict=False))
    if len(names) > len(LETTERS):
        raise ValueError("more indices than letters")
    return ",".join("".join(letters[x] for x in term) for term in terms) + "->" + "".join(letters[x] for x in output)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a way costs: multiplications in a BLAS, steps of loops, bytes that are written, calls of NumPy's functions."""

    products: int = 0
    steps: int = 0
    moved: int = 0
    functions: int = 1

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.products + other.products,
            self.steps + other.steps,
            self.moved + other.moved,
            self.functions + other.functions,
        )


def plan_pairs(
    terms: Sequence[Term], output: Term, shapes: Sequence[tuple[int, ...]], path: Path, dtype: np.dtype
) -> tuple[Way, Cost]:
    """The product along `path`, whose steps are of two operands each wherever NumPy's functions for two are to be used."""
    left, left_shapes = list(terms), list(shapes)
    steps: list[tuple[tuple[int, ...], Way]] = []
    total = Cost(functions=0)
    for number, step in enumerate(path):
        positions = tuple(sorted(step, reverse=True))
        if not positions or len(set(step)) < len(step) or not all(0 <= p < len(left) for p in step):
            raise ValueError(f"step {number} of the path names no operands that are left")
        used = [left.pop(p) for p in positions][::-1]
        used_shapes = [left_shapes.pop(p) for p in positions][::-1]
        sizes = find_sizes(used, used_shapes)
        wanted = output if number == len(path) - 1 else None
        needed = set(output).union(*left)
        if len(used) == 2:
            way, made, cost = _plan_pair(used, wanted, needed, used_shapes, sizes, dtype)
        else:
            made = wanted if wanted is not None else tuple(x for x in sizes if x in needed)
            way, cost = compute_at_once(used, made, sizes, dtype), Cost(steps=math.prod(sizes.values()))
        steps.append((positions, way))
        left.append(made)
        left_shapes.append(tuple(sizes[x] for x in made))
        total += cost
    if len(left) != 1:
        raise ValueError("the path does not combine all operands")
    if len(steps) == 1 and len(terms) == 2:
        return steps[0][1], total

    def run(operands: Sequence[np.ndarray]) -> np.ndarray:
        arrays = list(operands)
        for positions, way in steps:
            arrays.append(way([arrays.pop(p) for p in positions][::-1]))
        return arrays[0]

    return run, total


def find_ways(
    terms: Sequence[Term], output: Term, shapes: Sequence[tuple[int, ...]], dtype: np.dtype, path: Path | None = None
) -> tuple[list[tuple[str, Way, Cost]], int]:
    """The ways by name, and the multiplications of the cheapest one; `path` is the order of contraction where one is asked for.

    Raises ValueError for a path that leads nowhere, and for more indices than NumPy has letters."""
    sizes = find_sizes(terms, shapes)
    points = math.prod(sizes.values())
    ways = [("numpy.einsum", compute_at_once(terms, output, sizes, dtype), Cost(steps=points))]
    if len(terms) < 2:
        return ways, points
    run, cost = plan_pairs(terms, output, shapes, path or _find_path(terms, output, shapes, dtype), dtype)
    if len(terms) > 2 or cost.steps == 0:
        name = "numpy.matmul" if cost.products else "numpy.multiply" if cost.steps == 0 else "numpy.einsum, pair by pair"
        ways.append((name, run, cost))
    return ways, min(points, cost.products + cost.steps)


def _find_path(terms: Sequence[Term], output: Term, shapes: Sequence[tuple[int, ...]], dtype: np.dtype) -> Path:
    if len(terms) == 2:
        return ((0, 1),)
    zero = np.zeros((), dtype)
    operands = [np.broadcast_to(zero, shape) for shape in shapes]
    found = np.einsum_path(format_subscripts(terms, output), *operands, optimize=("greedy", LARGEST_STEP))[0][1:]
    return tuple(tuple(step) for step in found)


def find_sizes(terms: Sequence[Term], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """The extent of each index; 1 gives way to any other."""
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for name, extent in zip(term, shape, strict=True):
            if sizes.get(name, 1) == 1:
                sizes[name] = extent
    return sizes


def _plan_pair(
    terms: Sequence[Term],
    output: Term | None,
    needed: set[str],
    shapes: Sequence[tuple[int, ...]],
    sizes: Mapping[str, int],
    dtype: np.dtype,
) -> tuple[Way, Term, Cost]:
    """A product of two operands, the indices of its result (`output` where that is given), and what it costs."""
    first, second = (_Operand.of(t, s, o, needed) for t, s, o in zip(terms, shapes, reversed(terms), strict=True))
    a, b = first.kept, second.kept
    summed = [x for x in (a if len(a) >= len(b) else b) if x in a and x in b and x not in needed]
    if output is None:
        left = [x for x in sizes if x in needed]
        output = tuple(sorted(left, key=lambda x: (x in a) + (x in b) * 2 if (x in a) != (x in b) else 0))
    points = math.prod(sizes[x] for x in {*a, *b})
    shape = tuple(sizes[x] for x in output)
    dense = [x for x in output if x in a or x in b]  # without extents of 1
    own = first.cost(dtype) + second.cost(dtype)
    if not summed:
        return _multiply(first, second, dense, shape, dtype), output, own + Cost(moved=math.prod(shape) * dtype.itemsize)
    if dtype.kind not in "fc":
        return compute_at_once(terms, output, sizes, dtype), output, Cost(steps=math.prod(sizes.values()))
    way, moved = _multiply_matrices(first, second, summed, dense, shape, sizes, dtype)
    return way, output, own + Cost(products=points, moved=moved * dtype.itemsize)


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand of a product: every index once, without extents of 1 and without indices that only it has."""

    term: Term
    shape: tuple[int, ...]
    kept: Term
    subscripts: str | None
    """What NumPy takes diagonals and sums by first."""

    @classmethod
    def of(cls, term: Term, shape: tuple[int, ...], other: Term, needed: set[str]) -> _Operand:
        sizes = dict(zip(term, shape, strict=True))
        seen = tuple(dict.fromkeys(term))
        kept = tuple(x for x in seen if x in other or x in needed)
        subscripts = None if kept == term else format_subscripts([term], kept)
        return cls(term, tuple(sizes[x] for x in kept), tuple(x for x in kept if sizes[x] != 1), subscripts)

    def cost(self, dtype: np.dtype) -> Cost:
        return Cost(functions=0) if self.subscripts is None else Cost(moved=math.prod(self.shape) * dtype.itemsize)

    def take(self, array: np.ndarray, order: Sequence[str]) -> np.ndarray:
        """`array` with the dimensions `order`, an extent of 1 for what it does not have."""
        if self.subscripts is not None:
            array = np.asarray(np.einsum(self.subscripts, array))
        if len(self.kept) < array.ndim:
            array = array.reshape([n for n in array.shape if n != 1])
        axes = [self.kept.index(x) for x in order if x in self.kept]
        if axes != list(range(len(axes))):
            array = array.transpose(axes)
        if len(axes) < len(order):
            array = array[tuple(slice(None) if x in self.kept else None for x in order)]
        return array


def _multiply(a: _Operand, b: _Operand, dense: Sequence[str], shape: tuple[int, ...], dtype: np.dtype) -> Way:
    allocate = make_allocator(shape, dtype)
    squeezed = tuple(n for n in shape if n != 1)

    def run(operands: Sequence[np.ndarray]) -> np.ndarray:
        result = allocate()
        with np.errstate(all="ignore"):
            np.multiply(a.take(operands[0], dense), b.take(operands[1], dense), out=result.reshape(squeezed))
        return result

    return run


def _multiply_matrices(
    a: _Operand,
    b: _Operand,
    summed: list[str],
    dense: list[str],
    shape: tuple[int, ...],
    sizes: Mapping[str, int],
    dtype: np.dtype,
) -> tuple[Way, int]:
    """A matrix product for each value of the indices that both operands and the result have; and how many elements are copied
    on the way."""
    is_swapped = bool(dense) and dense[-1] in a.kept  # rows of the product are rows of the result
    left, right = (b, a) if is_swapped else (a, b)
    batch = [x for x in dense if x in left.kept and x in right.kept]
    rows = [x for x in dense if x in left.kept and x not in batch]
    columns = [x for x in dense if x in right.kept and x not in batch]
    few = _last_run(rows, dense), _last_run(columns, dense)
    is_written = not columns or dense[-1] == columns[-1]
    is_direct = is_written and few == (rows, columns)
    if is_written and not is_direct and math.prod(sizes[x] for x in (*few[0], *few[1], *summed)) >= LARGE_PRODUCT:
        (rows, columns), is_direct = few, True
        batch = [x for x in dense if x not in rows and x not in columns]
    n_rows, n_columns, n_summed = (math.prod(sizes[x] for x in group) for group in (rows, columns, summed))
    left_outer, right_outer = (tuple(sizes[x] if x in o.kept else 1 for x in batch) for o in (left, right))
    order = [*batch, *rows, *columns]
    back = [order.index(x) for x in dense]
    # The dimensions of the result with rows and columns fused, in its own order.
    groups = [x for x in dense if x in batch or x in rows[:1] or x in columns[:1]]
    extents = {**sizes, **dict.fromkeys(rows[:1], n_rows), **dict.fromkeys(columns[:1], n_columns)}
    fused = tuple(extents[x] for x in groups)
    axes = [groups.index(x) for x in (*batch, *rows[:1], *columns[:1])]
    product_shape = (*(sizes[x] for x in batch), n_rows, n_columns)
    full, squeezed = (tuple(sizes[x] for x in part) for part in (order, dense))
    allocate = make_allocator(shape, dtype)

    def run(operands: Sequence[np.ndarray]) -> np.ndarray:
        x, y = operands if not is_swapped else operands[::-1]
        x = _for_blas(left.take(x, [*batch, *rows, *summed]).reshape(*left_outer, n_rows, n_summed))
        y = _for_blas(right.take(y, [*batch, *summed, *columns]).reshape(*right_outer, n_summed, n_columns))
        result = allocate()
        with np.errstate(all="ignore"):
            if is_direct:
                np.matmul(x, y, out=result.reshape(fused).transpose(axes).reshape(product_shape))
            else:
                result.reshape(squeezed)[...] = np.matmul(x, y).reshape(full).transpose(back)
        return result

    moved = 0 if is_direct else math.prod(shape)
    return run, moved


def _last_run(part: list[str], whole: Sequence[str]) -> list[str]:
    """The last of `part` that stand in one piece in `whole`."""
    start = len(part) - 1
    while start > 0 and whole.index(part[start - 1]) == whole.index(part[start]) - 1:
        start -= 1
    return part[max(0, start) :]


def _for_blas(array: np.ndarray) -> np.ndarray:
    """`array` where its matrices are such as a BLAS takes, rows or columns without gaps between elements; else a copy."""
    size, (n, m), (by_row, by_column) = array.itemsize, array.shape[-2:], array.strides[-2:]
    in_rows = (by_column == size or m == 1) and (by_row >= m * size or n == 1)
    in_columns = (by_row == size or n == 1) and (by_column >= n * size or m == 1)
    return array if (in_rows or in_columns) and array.flags.aligned else np.ascontiguousarray(array)
