"""The Scop: domains and access relations of a Program, every index and every tensor shifted to start at 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import reduce

import islpy

from polyc.diagnostics import Span
from polyc.ir.expr import (
    Expr,
    Read,
)
from polyc.ir.linear import index_coefficients
from polyc.ir.loaded_ranges import LoadedRange, find_loaded_ranges
from polyc.ir.program import Program, Statement, element_names
from polyc.ir.segments import place_in_segment
from polyc.ir.types import DType
from polyc.poly.domains import find_start_steps
from polyc.poly.ranges import Ranges
from polyc.records import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class Access:
    """One read of a statement.  Over-approximated where a subscript depends on data or a condition is not affine."""

    read: Read
    tensor: str
    relation: islpy.Map  # [sizes] -> { S[i] -> T[e] }, restricted to the domain and to the tensor
    is_exact: bool


@dataclass(frozen=True, slots=True)
class ScopGuard:
    """``0 <= value < bound`` must hold where `condition` does; `message` as in `RuntimeGuard`."""

    value: Expr
    bound: Expr
    condition: Expr | None
    message: str
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class ScopStatement:
    """A statement in zero-based coordinates.  `init` is an expression over `elements`; None: not a reduction.

    `left` are the indices on the left side; `elements` name the coordinates of an element of the target, which are left
    indices where the subscript is that index alone.
    """

    name: str
    target: str
    indices: tuple[str, ...]
    subscripts: tuple[Expr, ...]
    value: Expr
    op: str | None
    init: Expr | None
    domain: islpy.Set  # [sizes] -> { S[indices] }
    write: islpy.Map  # [sizes] -> { S[indices] -> T[e] }
    writes_exactly: bool
    """False for a scatter: `write` is then the whole of each dimension whose subscript depends on data."""
    accesses: tuple[Access, ...]  # of `value` and of data-dependent left subscripts
    init_accesses: tuple[Access, ...]  # of `init`, over { init_S[elements] -> T[e] }
    init_domain: islpy.Set | None  # [sizes] -> { init_S[elements] }: the statement's region of the target
    extents: dict[str, Expr]
    guards: tuple[ScopGuard, ...]
    origin: Statement
    trips: dict[str, int] = field(default_factory=dict)
    """Estimates of `extents` over symbolic sizes, where `Ranges.typical` says enough."""
    _loaded: dict[str, LoadedRange] | None = field(init=False, repr=False, default=None)
    _starts: dict[str, int] | None = field(init=False, repr=False, default=None)
    _relations: tuple[dict[str, islpy.Map], dict[str, islpy.Map]] | None = field(init=False, repr=False, default=None)

    @property
    def is_reduction(self) -> bool:
        return self.op is not None

    @property
    def writes_parts(self) -> bool:
        """Whether it writes elements of a partition, each in its part: only where the condition of its value holds, which is a
        selection.  Elsewhere not even the identity is added.  Of sums those whose elements are the only positions in parts."""
        if self.op is None:
            return self.origin.reduction is not None
        found, summed = [(i, r.outer) for i, r in self.loaded_ranges.items() if r.is_partition], set(self.reduction_indices)
        return len(found) == 1 and found[0][0] not in summed and not summed.isdisjoint(found[0][1])

    @property
    def loaded_ranges(self) -> Mapping[str, LoadedRange]:
        """The indices that run between ends that data gives."""
        if self._loaded is None:
            op = "" if self.origin.reduction is None else self.origin.reduction.op
            found = find_loaded_ranges(op, self.value, self.indices, self.reduction_indices) if op else {}
            object.__setattr__(self, "_loaded", found)
        assert self._loaded is not None
        return self._loaded

    @property
    def start_steps(self) -> Mapping[str, int]:
        """The indices whose loops begin at multiples of others, in which steps: tiles that divide these begin there, too."""
        if self._starts is None:
            steps = find_start_steps(self.domain)
            object.__setattr__(self, "_starts", {self.indices[d]: step for d, step in steps.items() if step > 1})
        assert self._starts is not None
        return self._starts

    @property
    def read_relations(self) -> Mapping[str, islpy.Map]:
        """All reads of each tensor version in one relation ``[sizes] -> { S[i] -> T[e] }``, tensors by first appearance."""
        return self._find_relations()[0]

    @property
    def init_relations(self) -> Mapping[str, islpy.Map]:
        """The same of `init_accesses`."""
        return self._find_relations()[1]

    def _find_relations(self) -> tuple[dict[str, islpy.Map], dict[str, islpy.Map]]:
        """Coalesced here, since dependences and proofs compose them again and again: a stencil is one piece then, not many."""
        if self._relations is None:
            object.__setattr__(self, "_relations", (_unite(self.accesses), _unite(self.init_accesses)))
        assert self._relations is not None
        return self._relations

    @property
    def left(self) -> tuple[str, ...]:
        return self.origin.left_indices

    @property
    def separate_left(self) -> tuple[str, ...]:
        """Left indices in which no two instances of one element differ: each is alone in some subscript."""
        forms = [index_coefficients(e) for e in self.subscripts]
        alone = {i for form in forms if form is not None and len(form) == 1 for i in form}
        return tuple(i for i in self.left if i in alone)

    @property
    def elements(self) -> tuple[str, ...]:
        return element_names(self.target, self.subscripts)

    @property
    def reduction_indices(self) -> tuple[str, ...]:
        return self.origin.reduction_indices


def _unite(accesses: tuple[Access, ...]) -> dict[str, islpy.Map]:
    table: dict[str, list[islpy.Map]] = {}
    for access in accesses:
        table.setdefault(access.tensor, []).append(access.relation)
    return {tensor: reduce(islpy.Map.union, found).coalesce() if found[1:] else found[0] for tensor, found in table.items()}


@dataclass(frozen=True, slots=True)
class ScopTensor:
    """A tensor version with zero-based coordinates: `shape` over sizes; `lower` is where the user's index starts."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    lower: tuple[Expr, ...]
    role: str
    base: str


@dataclass(frozen=True, eq=False, slots=True)
class Scop:
    program: Program
    ranges: Ranges
    parameters: tuple[str, ...]
    context: islpy.Set  # [sizes] -> { : }
    statements: tuple[ScopStatement, ...]
    tensors: dict[str, ScopTensor]
    _by_name: dict[str, ScopStatement] = field(init=False, repr=False, default_factory=dict)

    def statement(self, name: str) -> ScopStatement:
        """The statement of this name.  Raises KeyError."""
        if not self._by_name:
            self._by_name.update((s.name, s) for s in reversed(self.statements))
        return self._by_name[name]

    def memory_shape(self, tensor: ScopTensor) -> tuple[Expr, ...]:
        """Extents of memory for a temporary: of one segment, which may be as long as any."""
        segments = self.ranges.segments
        return tensor.shape if segments is None else segments.longest(tensor.shape)

    def place_in_memory(self, tensor: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Where an element lies: of a result a segment has the part at its positions, or at its number."""
        t = self.tensors[tensor]
        if self.ranges.segments is None or t.role != "output":
            return subscripts
        return place_in_segment(subscripts, t.lower)
