"""Sums of products of two operands, as access relations see them.

One mechanism for matrix products in every transposition, batched ones, convolutions and tensor contractions; it sees access
relations only.  The left indices fall into bundles by the operands that they move:

- columns move the *vector operand* alone, one of them is the vector index;
- rows move the *row operand* alone: they share the loads of the vector operand, up to two of them are unrolled;
- batch indices (and rows of overlapping windows) move both.

The rest are reduction indices.  What is chosen of them is in `choice`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from math import prod
from typing import Generic

from polyc.ir.expr import Const, Expr, Read, Select, Size, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program
from polyc.machine import Machine
from polyc.poly.domains import bound_together
from polyc.poly.extraction import extract_scop
from polyc.poly.ranges import Ranges, estimate_extent
from polyc.poly.scop import Scop, ScopStatement
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import held_left, index_trips, trip_count
from polyc.scheduler.amounts import A, Amount, Formula, N, largest, product
from polyc.scheduler.contractions.operands import Operand, find_operands, form_extent


@dataclass(frozen=True, slots=True)
class View:
    """An operand, the stride in elements of every index that moves it, the elements that it touches, and their size."""

    operand: Operand
    strides: dict[str, int]
    elements: int
    itemsize: int
    indices: frozenset[str]
    is_given: bool
    """Whether it is of known size and an argument, both operands, or for one batch more than the second-level cache holds:
    what another statement makes may else be kept near."""
    is_made: bool
    """Whether another statement makes it: long rows begin at a line."""

    @property
    def bytes(self) -> int:
        return self.elements * self.itemsize

    def moves(self, index: str) -> bool:
        return index in self.indices


@dataclass(frozen=True, slots=True)
class Contraction:
    """A reduction statement with exactly two operands, both linear in the indices."""

    s: ScopStatement
    trips: dict[str, int]
    views: tuple[View, View]
    result: dict[str, int]
    """Stride in elements of every left index in the result."""
    lanes: int
    itemsize: int
    left: tuple[str, ...]
    summed: tuple[str, ...]
    """Indices of the sum."""
    separate_left: tuple[str, ...]
    tested: frozenset[str]
    """Indices that a selection of the program itself asks for."""
    cut: frozenset[str]
    """Left indices that the sum is longer or shorter with, as in triangles: it ends within their tiles."""

    def columns(self, vector_view: View) -> list[str]:
        other = self.views[1 - self.views.index(vector_view)]
        return [i for i in self.left if vector_view.moves(i) and not other.moves(i)]

    def is_worth_a_copy(self, view: View, in_place: Collection[Read]) -> bool:
        """Whether elements of an operand are read often enough for a copy to be thought of."""
        return view.operand.read not in in_place and prod(self.trips.values()) >= 2 * view.elements

    def lies_together(self, view: View, n_bytes: int) -> bool:
        """Whether what each batch takes of an operand has no gaps in memory, and `n_bytes` at most."""
        size = 1
        for i, stride in sorted(((i, abs(stride)) for i, stride in view.strides.items()), key=lambda item: item[1]):
            if i in self.summed or not all(v.moves(i) for v in self.views):
                if stride != size:
                    return False
                size *= self.trips[i]
        return size * view.itemsize <= n_bytes

    @property
    def depth(self) -> int:
        return prod(self.trips[i] for i in self.summed)

    def has_known_trips(self, indices: Collection[str]) -> bool:
        """Whether code generation knows how often the loops over these indices run."""
        return all(isinstance(self.s.extents[i], Const) for i in indices)

    @property
    def form(self) -> Hashable:
        """All that a choice depends on: the same for contractions that are computed alike, whichever scop they stand in."""
        known = tuple(self.has_known_trips((i,)) for i in self.s.indices)
        views = tuple((v.operand, tuple(v.strides.items()), v.elements, v.itemsize, v.is_given, v.is_made) for v in self.views)
        lengths = self.s.indices, known, tuple(self.trips.items()), tuple(self.result.items()), self.lanes, self.itemsize
        return lengths, views, self.left, self.summed, self.separate_left, self.s.separate_left, self.tested, self.cut


@dataclass(frozen=True, slots=True)
class Measures(Generic[A]):
    """The lengths of a contraction that its cost depends on: numbers, or formulas over the sizes of a call."""

    trips: Mapping[str, A]
    elements: tuple[A, A]
    """Of each view."""
    strides: tuple[Mapping[str, A], Mapping[str, A]]
    """Of each view: elements between neighbours along an index, whichever way."""
    result: Mapping[str, A]
    """The same of the result."""


def measure(c: Contraction) -> Measures[float]:
    """The lengths of a contraction at its own sizes."""
    a, b = c.views
    apart = [{i: abs(n) for i, n in strides.items()} for strides in (a.strides, b.strides, c.result)]
    return Measures(c.trips, (a.elements, b.elements), (apart[0], apart[1]), apart[2])


def measure_call(c: Contraction, scop: Scop, shared: Collection[str] = ()) -> Measures[Amount]:
    """The lengths of a contraction at the sizes of any call, where arrays are in C order; indices `shared` have one value, and
    temporaries hold what is made for that one."""
    trips = {i: 1 if i in shared else n for i, n in call_trips(c.s).items()}

    def find_strides(tensor: str, subscripts: tuple[Expr, ...]) -> dict[str, Amount]:
        is_kept = scop.tensors[tensor].role != "temporary"
        extents: list[Amount] = []
        for subscript, extent in zip(subscripts, scop.tensors[tensor].shape, strict=True):
            is_long = is_kept or not any(i in shared for i in index_coefficients(subscript) or ())
            extents.append(Formula(extent).known if is_long else 1)
        return _strides(subscripts, extents, is_signed=False) or {}

    strides, elements = list[Mapping[str, Amount]](), list[Amount]()
    for v in c.views:
        read = v.operand.read
        strides.append(find_strides(read.tensor, read.subscripts))
        elements.append(product(form_extent(form, trips) for form in v.operand.forms))
    return Measures(trips, (elements[0], elements[1]), (strides[0], strides[1]), find_strides(c.s.target, c.s.subscripts))


def call_trips(s: ScopStatement) -> dict[str, Amount]:
    """Iterations of the loop over each index of a statement at the sizes of a call, at least 1 where that is an expression."""
    found: dict[str, Amount] = {i: Formula(e).known for i, e in s.extents.items()}
    return {i: n if isinstance(s.extents[i], Size) else largest(n, 1) for i, n in found.items()}


def find_contraction(
    s: ScopStatement, scop: Scop, target: Machine, sequential: frozenset[str] = frozenset()
) -> Contraction | None:
    """The statement as a contraction; None if it is none.  `sequential`: indices that no tile can hold."""
    left, summed = s.left, s.reduction_indices
    if s.op != "add" or not left or not summed or not s.writes_exactly or s.loaded_ranges:
        return None
    trips = {i: max(1, n) for i, n in index_trips(s).items()}
    operands = find_operands(s.origin.value, trips)
    if operands is None or len(operands) != 2:
        return None
    itemsize = scop.tensors[s.target].dtype.itemsize
    result = _strides(s.subscripts, _extents(s.target, scop))
    if result is None:
        return None
    views, is_squared = [], len({operand.read.tensor for operand in operands}) == 1
    for operand in operands:
        shape = _extents(operand.read.tensor, scop)
        strides = _strides(operand.read.subscripts, shape)
        if strides is None or not strides:
            return None
        elements = prod(form_extent(form, trips) for form in operand.forms)
        tensor = scop.tensors[operand.read.tensor]
        is_made = tensor.role == "temporary"
        batches = prod(trips[i] for i in left if all(i in o.indices for o in operands))
        is_far = is_squared or tensor.role == "input" or elements * tensor.dtype.itemsize > target.l2 * batches
        is_given = is_far and all(isinstance(e, Const) for e in tensor.shape)
        views.append(View(operand, strides, elements, tensor.dtype.itemsize, operand.indices, is_given, is_made))
    lanes = min(64, max(1, target.lanes(max(itemsize, *(v.itemsize for v in views)))))
    tested = frozenset(i for e in walk(s.origin.value) if isinstance(e, Select) for i in _names(e.condition))
    free = tuple(i for i in held_left(s) if i not in sequential)
    cut = frozenset(s.indices[d] for d in bound_together(s.domain, [s.indices.index(i) for i in summed])).intersection(left)
    return Contraction(s, trips, (views[0], views[1]), result, lanes, itemsize, left, summed, free, tested, cut)


def find_contraction_in(program: Program, ranges: Ranges, name: str, target: Machine) -> Contraction | None:
    """A statement of a program as a contraction, whatever else the program computes."""
    alone = tuple(s for s in program.statements if s.name == name)
    scop = extract_scop(replace(program, statements=alone), ranges)
    return find_contraction(scop.statement(name), scop, target)


def _extents(tensor: str, scop: Scop) -> list[int]:
    """Extents of a tensor, estimated where they are symbolic."""
    found = ((e, estimate_extent(e, scop.ranges.typical)) for e in scop.tensors[tensor].shape)
    return [max(1, trip_count(e) if n is None else n) for e, n in found]


def _strides(subscripts: tuple[Expr, ...], shape: Sequence[N], is_signed: bool = True) -> dict[str, N] | None:
    """Elements by which each index moves an access to an array in C order; None where that is not linear."""
    result: dict[str, N] = {}
    step: N = 1
    for subscript, extent in zip(reversed(subscripts), reversed(shape), strict=True):
        coefficients = index_coefficients(subscript)
        if coefficients is None:
            return None
        for i, c in coefficients.items():
            result[i] = result.get(i, 0) + (c if is_signed else abs(c)) * step
        step = step * extent
    return result


def _names(expr: Expr) -> Iterator[str]:
    return (node.name for node in walk(expr) if hasattr(node, "name"))
