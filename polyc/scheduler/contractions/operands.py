"""The operands of a sum of products as access relations see them: which part of the value belongs to one read, and along
which linear forms of the indices its elements lie.

``A[i, k] * exp(X[c, h + r - 1])`` has the operands ``A[i, k]`` over the forms i and k, and ``exp(X[c, h + r - 1])`` over c
and h + r.  An operand that is copied has one dimension for each form, so that elementwise functions and borders of padding
are computed once per element, and overlapping windows are stored once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import gcd

from polyc.ir.expr import Expr, Index, Pad, Read, children, int_const, reads, rewrite, substitute, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.simplify import simplify_int
from polyc.poly.ranges import Interval
from polyc.records import dataclass
from polyc.scheduler.amounts import N, total

Form = tuple[tuple[str, int], ...]
"""A linear form: index and coefficient, in the order of appearance, coefficients without a common divisor."""


@dataclass(frozen=True, slots=True)
class Operand:
    """`expr`: the largest part of a value that depends on no other read than `read`; `forms` in the order of dimensions."""

    expr: Expr
    read: Read
    forms: tuple[Form, ...]
    indices: frozenset[str] = field(init=False, compare=False)
    is_padded: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:  # asked for every tile that is tried
        object.__setattr__(self, "indices", frozenset(i for form in self.forms for i, _ in form))
        object.__setattr__(self, "is_padded", any(isinstance(node, Pad) for node in walk(self.expr)))

    @property
    def lies_like_a_copy(self) -> bool:
        """Whether a copy with one dimension for each form, in their order, has the layout of the array itself: that of windows,
        of which no dimension is exchanged with others."""
        if self.expr != self.read or all(len(form) == 1 for form in self.forms):
            return False
        return [index_coefficients(s) for s in self.read.subscripts] == [dict(form) for form in self.forms]

    def lane_step(self, vector: str) -> int:
        """Elements between lanes in a copy whose last dimension is the form of `vector`."""
        return next((abs(step) for form in self.forms for i, step in form if i == vector), 1)

    def is_plain(self, index: str) -> bool:
        """Whether `index` moves the operand along a dimension of its own."""
        return [form for form in self.forms if any(i == index for i, _ in form)] == [((index, 1),)]


def find_operands(value: Expr, trips: Mapping[str, int]) -> list[Operand] | None:
    """The operands of a value, left to right; None where a subscript is not linear in the indices.

    `trips`: iterations of every index.  Windows that do not overlap are no windows: their indices count one by one."""
    parts: dict[Read, Expr] = {}
    if not _collect(value, parts):
        return None
    found = []
    for read, expr in parts.items():
        forms = _forms(read, trips)
        if forms is None:
            return None
        loose = _loose_indices(expr)
        if any(((i, 1),) not in forms for i in loose):
            expr = next((n for n in walk(expr) if isinstance(n, Pad) and n.read == read), read)
        found.append(Operand(expr, read, forms))
    return found


def _collect(expr: Expr, parts: dict[Read, Expr]) -> bool:
    found = dict.fromkeys(reads(expr))
    if not found:
        return True
    if len(found) == 1:
        (read,) = found
        if read in parts and parts[read] != expr:  # used in two ways: only the read itself is common to both
            expr = read
        parts[read] = expr
        return True
    if isinstance(expr, (Read, Pad)):
        return False  # a subscript or a border value reads
    return all(_collect(child, parts) for child in children(expr))


def _forms(read: Read, trips: Mapping[str, int]) -> tuple[Form, ...] | None:
    found: dict[Form, None] = {}
    for subscript in read.subscripts:
        coefficients = index_coefficients(subscript)
        if coefficients is None:
            return None
        if _is_injective(coefficients, trips):
            found.update(dict.fromkeys(((i, 1),) for i in coefficients))
        else:
            found[_normalize(coefficients)[0]] = None
    return tuple(found)


def _is_injective(coefficients: Mapping[str, int], trips: Mapping[str, int]) -> bool:
    """Whether different values of the indices surely make different sums: each step is longer than all smaller ones reach."""
    reach = 0
    moving = {i: c for i, c in coefficients.items() if trips[i] > 1}
    for i, c in sorted(moving.items(), key=lambda item: abs(item[1])):
        if abs(c) <= reach:
            return False
        reach += abs(c) * (max(1, trips[i]) - 1)
    return True


def _normalize(coefficients: Mapping[str, int]) -> tuple[Form, int]:
    """The form and what it has to be multiplied with."""
    divisor = gcd(*coefficients.values())
    return tuple((i, c // divisor) for i, c in coefficients.items()), divisor


def _loose_indices(expr: Expr) -> set[str]:
    """Indices used outside of the subscripts of reads."""
    if isinstance(expr, Read):
        return set()
    if isinstance(expr, Index):
        return {expr.name}
    return {i for child in children(expr) for i in _loose_indices(child)}


def form_expr(form: Form) -> Expr:
    """``h + 2 * r``"""
    result: Expr | None = None
    for i, c in form:
        term: Expr = Index(i) if c == 1 else c * Index(i)
        result = term if result is None else result + term
    assert result is not None
    return result


def form_name(form: Form) -> str:
    """A name for an index that runs over a form: the index itself where the form is no more."""
    return ".".join(i if c == 1 else f"{i}.{'m' if c < 0 else ''}{abs(c)}" for i, c in form)


def form_interval(form: Form, intervals: Mapping[str, Interval]) -> Interval:
    """The values of a form over the box of its indices."""
    lower: Expr = int_const(0)
    extent: Expr = int_const(1)
    for i, c in form:
        own = intervals[i]
        last = own.extent - 1
        start = own.lower if c > 0 else own.lower + last
        lower = lower + c * start
        extent = extent + abs(c) * last
    return Interval(simplify_int(lower), simplify_int(extent))


def form_extent(form: Form, trips: Mapping[str, N]) -> N:
    """The values that a form reaches over and with those between them; `trips` are at least 1."""
    if len(form) == 1 and abs(form[0][1]) == 1:
        return trips[form[0][0]]
    return 1 + total(abs(c) * (trips[i] - 1) for i, c in form)


def over_forms(operand: Operand) -> Expr:
    """The operand as an expression over one index per form, named by `form_name`."""

    def subscript(expr: Expr) -> Expr:
        coefficients = index_coefficients(expr)
        assert coefficients is not None
        if all(((i, 1),) in operand.forms for i in coefficients):
            return expr
        form, factor = _normalize(coefficients)
        place: Expr = Index(form_name(form))
        if factor != 1:
            place = factor * place
        rest = substitute(expr, dict.fromkeys(coefficients, int_const(0)))
        return simplify_int(place + rest)

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Read):
            return Read(node.tensor, tuple(map(subscript, node.subscripts)), node.span)
        return None

    return rewrite(operand.expr, rule)
