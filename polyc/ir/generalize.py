"""Programs that differ in numbers only → one program for any such numbers.

`take_numbers` splits a program into its form, with every whole number taken out, and the numbers in order.  From the numbers of
some programs of one form, `generalize` finds which vary, and gives each that varies on its own a size symbol; the others follow
from one of these by a factor and an offset.  What follows is a conjecture until `Generalized.sizes_of` has compared it
with the numbers of the program at hand: it gives sizes only where the general program, with these sizes, *is* that program.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

from polyc.ir.expr import Call, Cast, Const, Expr, Size, int_const, rewrite
from polyc.ir.program import Program, map_expressions
from polyc.ir.traced import combine, is_same, is_traced, plain, weight, whole
from polyc.ir.types import I64
from polyc.records import dataclass, replace

EXACT_FLOATS = 1 << 24
"""Whole numbers up to which every floating-point type with arithmetic has them exactly."""

Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Follows:
    """A number: the sum of ``factor * size`` over `terms` (positions in `Generalized.names`, and factors) and `offset`."""

    terms: tuple[tuple[int, int], ...]
    offset: int

    @property
    def is_size(self) -> bool:
        return len(self.terms) == 1 and self.terms[0][1] == 1 and self.offset == 0

    def at(self, sizes: Sequence[int]) -> int:
        """The number for these sizes."""
        return sum((factor * sizes[k] for k, factor in self.terms), self.offset)


@dataclass(frozen=True, slots=True)
class Generalized:
    """A program with size symbols `names`, and what each of its numbers is: itself, or what follows from a size."""

    program: Program
    names: tuple[str, ...]
    numbers: tuple[int | Follows, ...]

    def sizes_of(self, numbers: Numbers) -> dict[str, int] | None:
        """The sizes for which this is the program with these numbers; None where it is for none."""
        sizes: list[int] = [0] * len(self.names)
        for own, given in zip(self.numbers, numbers, strict=True):
            if isinstance(own, Follows) and own.is_size:
                sizes[own.terms[0][0]] = given
        if any(n < 1 for n in sizes):
            return None
        for own, given in zip(self.numbers, numbers, strict=True):
            value = own if isinstance(own, int) else own.at(sizes)
            if not is_same(value, given):
                return None
        return dict(zip(self.names, sizes, strict=True))


def take_numbers(program: Program) -> tuple[Program, Numbers]:
    """The form of a program, and its whole numbers; programs of one form with equal numbers are equal."""
    numbers: list[int] = []

    def take(node: Expr) -> Expr | None:
        if _is_whole(node):
            assert isinstance(node, Const)
            numbers.append(whole(node.value))
            taken = replace(node, value=0)
            return taken if node.dtype == I64 else Call("tuple", (taken,))  # not the literal 0.0, which stays
        return None

    form = map_expressions(program, lambda e: rewrite(e, take))
    return form, tuple(numbers)


def _is_whole(node: Expr) -> bool:
    """Integers of subscripts and extents, and floating-point numbers that may come from them (the count of a mean)."""
    if not isinstance(node, Const):
        return False
    if node.dtype == I64:
        return True
    if not node.dtype.is_float or not 1 <= node.value <= EXACT_FLOATS:
        return False
    return is_traced(node.value) or float(node.value).is_integer()


def generalize(program: Program, samples: Sequence[Numbers]) -> Generalized | None:
    """A program for any sizes of which `program` is one, and so are those of the same form with the numbers of `samples`.

    None where nothing varies, or where a number that varies on its own is not positive, as sizes are."""
    columns = list(zip(*samples, strict=True))
    varying = sorted({c for c in columns if len(set(c)) > 1}, key=lambda c: (sum(map(abs, c)), c))
    if not varying or program.sizes:
        return None
    free: list[tuple[int, ...]] = []
    found: dict[tuple[int, ...], Follows] = {}
    for column in varying:  # small ones first: what they are a divisor of follows from them
        follows = next((f for k, other in enumerate(free) if (f := _relate(k, other, column)) is not None), None)
        if follows is None:
            if min(column) < 1:
                return None
            follows = Follows(((len(free), 1),), 0)
            free.append(column)
        found[column] = follows
    return _put_sizes(program, tuple(found[c] if c in found else c[0] for c in columns), len(free))


def generalize_traced(program: Program, numbers: Sequence[int]) -> Generalized | None:
    """A program for any sizes from one with these numbers, of which some are traced: how they are computed tells which follow
    from others.  None where none is traced, or where one on its own is not positive."""
    varying = sorted((n for n in numbers if is_traced(n)), key=lambda n: (weight(n), plain(n)))
    if not varying or program.sizes:
        return None
    free: list[int] = []
    found: dict[int, Follows] = {}
    for n in varying:
        combined = combine(free, n)
        if combined is None:
            if plain(n) < 1:
                return None
            combined = ((len(free), 1),), 0
            free.append(n)
        found[id(n)] = Follows(*combined)
    return _put_sizes(program, tuple(found[id(n)] if is_traced(n) else n for n in numbers), len(free))


def _put_sizes(program: Program, numbers: tuple[int | Follows, ...], n_sizes: int) -> Generalized:
    """`program` with sizes in place of the numbers that follow from them."""
    names = tuple(f"n{k}" for k in range(n_sizes))
    rest = iter(numbers)

    def put(node: Expr) -> Expr | None:
        if not _is_whole(node):
            return None
        assert isinstance(node, Const)
        number = next(rest)
        if isinstance(number, int):
            return None
        parts: list[Expr] = []
        for position, factor in number.terms:
            size: Expr = Size(names[position])
            parts.append(size if factor == 1 else factor * size)
        if number.offset:
            parts.append(int_const(number.offset))
        size = reduce(add, parts)
        return size if node.dtype == I64 else Cast(size, node.dtype)

    made = map_expressions(program, lambda e: rewrite(e, put))
    return Generalized(replace(made, sizes=names), names, numbers)


def _relate(position: int, size: tuple[int, ...], column: tuple[int, ...]) -> Follows | None:
    """`column` as a multiple of `size` and an offset, where all samples agree."""
    for k, other in enumerate(size):
        if other != size[0]:
            factor, rest = divmod(column[k] - column[0], other - size[0])
            offset = column[0] - factor * size[0]
            fits = rest == 0 and factor != 0 and all(factor * n + offset == c for n, c in zip(size, column, strict=True))
            return Follows(((position, factor),), offset) if fits else None
    return None
