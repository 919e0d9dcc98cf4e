"""The Program: statements in Einstein form, single-assignment.  The whole high-level IR is on this page and `expr`.

Every element of every *version* of a tensor is defined once; order has no meaning but through values.  The front ends
rename a second assignment to a name into a new version (``O``, ``O.1``, ``O.2``; the caller's own content of an
accumulated output is the version ``O.in``).  A Program holds no inferred ranges: those are `polyc.poly.infer.Ranges`.

A reduction statement means: ``target[e] = init(e) op value op value op …`` over all points of the iteration
space whose left subscripts are the element e; elements written by no point (an empty reduction range) get `init`.
The iteration space is the box of the ranges without the points that a `Condition` (or a bound over other indices) excludes.

Several statements may write one version, each its own *region*: an assignment the elements of its points, a reduction those
of the whole box of its indices (conditions aside).  Regions do not overlap and cover the version.  A statement that writes a
version alone and reduces has the whole version as its region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import chain, count
from typing import Any, Literal

from polyc.diagnostics import Source, Span, in_context
from polyc.ir.expr import Call, Const, Expr, Index, Read, Size, reads, rewrite, substitute, walk
from polyc.ir.ragged import Ragged
from polyc.ir.types import I64, DType
from polyc.records import dataclass, replace


def _span() -> Span | None:
    return field(default=None, compare=False, repr=False)  # type: ignore[return-value]


Role = Literal["input", "accumulated", "output", "temporary"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One version of a tensor.

    `shape` holds declared extents (expressions over sizes) or is None where range inference finds them.
    Roles: ``input`` (a parameter), ``accumulated`` (what the caller's ``out`` holds before the call, named ``X.in``),
    ``output`` (the last version of a returned name), ``temporary`` (everything else).
    """

    name: str
    dtype: DType
    rank: int
    shape: tuple[Expr, ...] | None
    role: Role
    base: str
    """The user's name of it: the same for all versions."""
    span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class RangeClause:
    """``lower <= index < upper`` given by the user; the bounds are expressions over sizes and other indices.

    They may read integer tensors (`ir.segments`): the range is then as if that bound were not there, and points beyond it are
    left out."""

    index: str
    lower: Expr
    upper: Expr
    span: Span | None = _span()

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.lower, self.upper


@dataclass(frozen=True, slots=True)
class Condition:
    """A boolean expression over indices and sizes that restricts the iteration space (``where j <= i``)."""

    condition: Expr
    span: Span | None = _span()

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.condition,)


@dataclass(frozen=True, slots=True)
class Exists:
    """An expression whose reads take part in range inference and in nothing else."""

    value: Expr
    span: Span | None = _span()

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.value,)


Where = RangeClause | Condition | Exists


@dataclass(frozen=True, slots=True)
class Monoid:
    """A user's way to combine tuples of numbers.  That it is associative and commutative is the user's promise.

    `results[k]` is component k of ``left ∘ right``: an expression over reads of rank 0, ``left.0``, …, ``right.0``, ….
    """

    name: str
    identity: tuple[Const, ...]
    results: tuple[Expr, ...]

    @property
    def types(self) -> dict[str, DType]:
        """Element types of the operands."""
        return {f"{side}.{k}": c.dtype for side in ("left", "right") for k, c in enumerate(self.identity)}

    def combine(self, left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
        """The components of ``left ∘ right``."""
        values = {f"{side}.{k}": e for side, es in (("left", left), ("right", right)) for k, e in enumerate(es)}
        return tuple(rewrite(r, lambda node: values[node.tensor] if isinstance(node, Read) else None) for r in self.results)


@dataclass(frozen=True, slots=True)
class Reduction:
    """A commutative monoid of `expr.MONOIDS` and the initial value: an expression over `Statement.element_names`.

    With `monoid` (`op` is then "combine") the target is one `component` of what the user's monoid makes of tuples; the initial
    value is its identity, and the statement's value a call of "tuple": this component first, the others in order behind it.
    """

    op: str
    init: Expr
    monoid: Monoid | None = None
    component: int = 0
    once: bool = False
    """Whether each element gets one value and beside it identities alone, as the call checks of data (`ir.segments`)."""


def order_components(values: Sequence[Expr], component: int) -> tuple[Expr, ...]:
    """The operands of "tuple" for one component."""
    return (values[component], *values[:component], *values[component + 1 :])


def tuple_components(s: Statement) -> tuple[Expr, ...]:
    """The components, in order, that a statement with a user's monoid combines."""
    assert s.reduction is not None
    assert isinstance(s.value, Call)
    own, *others = s.value.args
    k = s.reduction.component
    return (*others[:k], own, *others[k:])


@dataclass(frozen=True, slots=True)
class Statement:
    """``target[subscripts] = value`` or, with `reduction`, ``target[subscripts] op= value``.

    `indices` are the iteration indices: those of the left side in order, then the others by first appearance in `value`.
    `subscripts` are expressions over indices: ``O[2 * i]``, ``O[0]``, or data-dependent for a scatter.
    """

    name: str
    target: str
    subscripts: tuple[Expr, ...]
    indices: tuple[str, ...]
    value: Expr
    reduction: Reduction | None = None
    where: tuple[Where, ...] = ()
    span: Span | None = _span()

    @property
    def left_indices(self) -> tuple[str, ...]:
        """Indices that stand on the left side, in the order of `indices`."""
        present = {sub.name for sub in self.subscripts if isinstance(sub, Index)}
        for sub in self.subscripts:
            if not isinstance(sub, Index):
                present.update(node.name for node in walk(sub) if isinstance(node, Index))
        return tuple(i for i in self.indices if i in present)

    @property
    def element_names(self) -> tuple[str, ...]:
        """Names of an element's coordinates in the initial value of the reduction (see `element_names`)."""
        return element_names(self.target, self.subscripts)

    @property
    def has_plain_left(self) -> bool:
        """Whether the left subscripts are distinct indices, so that the element is those indices."""
        return all(isinstance(e, Index) for e in self.subscripts) and len(set(self.subscripts)) == len(self.subscripts)

    @property
    def writes_part(self) -> bool:
        """Whether the left side says that only some elements are written: computed subscripts, ranges, or conditions."""
        left = set(self.left_indices)
        spoken = [w.index for w in self.where if isinstance(w, RangeClause)]
        spoken += [n.name for w in self.where if isinstance(w, Condition) for n in walk(w.condition) if isinstance(n, Index)]
        return not self.has_plain_left or not left.isdisjoint(spoken)

    @property
    def reduction_indices(self) -> tuple[str, ...]:
        left = set(self.left_indices)
        return tuple(i for i in self.indices if i not in left)


def element_names(target: str, subscripts: tuple[Expr, ...]) -> tuple[str, ...]:
    """A name for each coordinate of an element of `target`: the index that stands there alone, else ``target.dN``."""
    names: list[str] = []
    for d, subscript in enumerate(subscripts):
        is_new = isinstance(subscript, Index) and subscript.name not in names
        names.append(subscript.name if is_new and isinstance(subscript, Index) else f"{target}.d{d}")
    return tuple(names)


@dataclass(frozen=True, slots=True)
class Return:
    """A result: the user's name, the version returned, and for an accumulated one the version that `out` holds at entry."""

    name: str
    version: str
    initial: str | None = None
    pattern: str | None = field(default=None, compare=False, repr=False)
    """Of a sparse (ragged) result, the one among `Program.compressed` that has an entry (position) for each of its elements."""
    axis: int = field(default=0, compare=False, repr=False)
    """Of a ragged result, the dimension along which lengths vary."""


@dataclass(frozen=True, slots=True)
class Compressed:
    """A sparse matrix that a call gives as one argument and a program reads as three arrays: compressed rows or columns.

    With `axis` 0 (CSR) the entries of row i are those of `data` from `indptr`[i] to before `indptr`[i + 1], and `indices` holds
    their columns; with 1 (CSC) rows and columns change places."""

    name: str
    shape: tuple[Expr, ...]
    """Rows and columns, over sizes; no array has as many elements as there are of those that are not compressed."""
    span: Span | None = _span()
    axis: int = 0
    owner: str = ""
    """The parameter that has the same pattern, where this is a matrix that the program computes: only `data` is its own."""

    @property
    def pattern(self) -> str:
        """The parameter whose subscripts say where the entries stand."""
        return self.owner or self.name

    @property
    def data(self) -> str:
        return f"{self.name}.data"

    @property
    def indices(self) -> str:
        return f"{self.pattern}.indices"

    @property
    def indptr(self) -> str:
        return f"{self.pattern}.indptr"

    @property
    def row(self) -> str:
        """The tensor with the row (column) of each entry, as int32, where a program computes that."""
        return f"{self.pattern}.row"

    @property
    def format(self) -> str:
        return ("csr", "csc")[self.axis]

    @property
    def parts(self) -> tuple[str, str, str]:
        """The parameters of the program, in order."""
        return self.data, self.indices, self.indptr

    @property
    def subscripts(self) -> tuple[str, str]:
        """Those that hold places of entries and ends of rows, in the integers that a call chooses."""
        return self.indices, self.indptr

    @property
    def n_entries(self) -> Size:
        """The length of the first two, as a size."""
        return Size(f"{self.pattern}.nnz", self.span)

    @property
    def lengths(self) -> tuple[Expr, Expr, Expr]:
        """Of the parts."""
        rows, one = self.shape[self.axis], Const(1, I64)
        n_ends = Const(int(rows.value) + 1, I64, rows.span) if isinstance(rows, Const) else Call("add", (rows, one), self.span)
        return self.n_entries, self.n_entries, n_ends

    @property
    def part_shapes(self) -> tuple[tuple[Expr, ...], ...]:
        return tuple((length,) for length in self.lengths)


@dataclass(frozen=True, slots=True)
class Program:
    """A whole operator.  `sizes` by first appearance in the parameters; `parameters` are input tensors in source order."""

    name: str
    sizes: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    parameters: tuple[str, ...]
    returns: tuple[Return, ...]
    statements: tuple[Statement, ...]
    defined_sizes: tuple[tuple[str, Expr], ...] = ()
    """Symbols for non-affine sizes (``N*N``), each with the host expression over `sizes` that gives its value."""
    source: Source | None = field(default=None, compare=False, repr=False)
    compressed: tuple[Compressed | Ragged, ...] = field(default=(), compare=False, repr=False)
    """Which parameters a call gives together; the statements mean the same without it."""
    rules: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    """Derivatives of the user's own for parts of it (`ir.custom_rules.Rule`)."""
    _by_name: dict[str, Tensor] = field(init=False, compare=False, repr=False, default_factory=dict)
    """Filled at the first question, as programs of hundreds of statements ask for every tensor many times."""
    _types: dict[str, DType] = field(init=False, compare=False, repr=False, default_factory=dict)
    """Likewise."""

    def __str__(self) -> str:
        from polyc.ir.text import format_program

        return format_program(self)

    def tensor(self, name: str) -> Tensor:
        """The tensor version of this name.  Raises KeyError."""
        if not self._by_name:
            self._by_name.update((t.name, t) for t in reversed(self.tensors))
        return self._by_name[name]

    @property
    def types(self) -> dict[str, DType]:
        """Element type of every tensor version by name; not to be changed."""
        if not self._types:
            self._types.update((t.name, t.dtype) for t in self.tensors)
        return self._types

    def writers(self) -> dict[str, list[Statement]]:
        """Statements by the version they write."""
        table: dict[str, list[Statement]] = {}
        for s in self.statements:
            table.setdefault(s.target, []).append(s)
        return table

    def readers(self, tensor: str) -> list[Statement]:
        """Statements that read a version, in their values or elsewhere."""
        return [s for s in self.statements if any(r.tensor == tensor for r in all_reads(s))]

    def made_from(self, tensor: str) -> set[str]:
        """A tensor, and all that is computed from it, directly or not."""
        read = {s.name: {r.tensor for r in all_reads(s)} for s in self.statements}
        made, is_new = {tensor}, True
        while is_new:
            more = {s.target for s in self.statements if read[s.name] & made} - made
            made, is_new = made | more, bool(more)
        return made

    def free_name(self, wanted: str) -> str:
        """`wanted`, with a number behind it where a statement or a tensor has that name."""
        taken = {s.name for s in self.statements} | {t.name for t in self.tensors}
        return next(n for n in chain([wanted], (f"{wanted}{k}" for k in count(2))) if n not in taken)


def all_reads(s: Statement) -> list[Read]:
    """What the left side, the value, the initial value and the bounds of ranges read."""
    own = [*s.subscripts, s.value] + ([] if s.reduction is None else [s.reduction.init])
    own += [bound for w in s.where if isinstance(w, RangeClause) for bound in (w.lower, w.upper)]
    return [read for e in own for read in reads(e)]


def specialize_sizes(program: Program, sizes: Mapping[str, Expr]) -> Program:
    """Replace size symbols by expressions (constants); the names stay in `sizes`, as the entry point still takes them."""
    return map_expressions(program, lambda e: substitute(e, {}, sizes))


def map_expressions(program: Program, change: Callable[[Expr], Expr]) -> Program:
    """The program with `change` applied to every expression, extents included, in an order that the program alone decides."""
    tensors = (replace(t, shape=None if t.shape is None else tuple(map(change, t.shape))) for t in program.tensors)
    return replace(program, tensors=tuple(tensors), statements=tuple(map_statement(s, change) for s in program.statements))


def map_statement(s: Statement, change: Callable[[Expr], Expr]) -> Statement:
    """The statement with `change` applied to its subscripts, value, initial value, ranges and conditions, in this order."""

    def change_where(clause: Where) -> Where:
        match clause:
            case RangeClause():
                return replace(clause, lower=change(clause.lower), upper=change(clause.upper))
            case Condition():
                return replace(clause, condition=change(clause.condition))
            case Exists():
                return replace(clause, value=change(clause.value))

    return replace(
        s,
        subscripts=tuple(map(change, s.subscripts)),
        value=change(s.value),
        reduction=None if s.reduction is None else replace(s.reduction, init=change(s.reduction.init)),
        where=tuple(map(change_where, s.where)),
    )


def place_statement(s: Statement, context: str) -> Statement:
    """The statement with `context` in the places of its parts (see `polyc.diagnostics.Span`)."""

    def rule(node: Expr) -> Expr | None:
        return replace(node, span=in_context(node.span, context)) if isinstance(node, (Read, Index, Call)) else None

    placed = map_statement(s, lambda e: rewrite(e, rule))
    where = tuple(replace(w, span=in_context(w.span, context)) for w in placed.where)
    return replace(placed, where=where, span=in_context(s.span, context))


def statement_expressions(s: Statement) -> list[Expr]:
    """The value, the left subscripts, the initial value and what the where clauses say."""
    init = [] if s.reduction is None else [s.reduction.init]
    return [s.value, *s.subscripts, *init, *(e for w in s.where for e in w.expressions)]


def statement_reads(s: Statement) -> list[Read]:
    """The reads of all of them."""
    return [r for e in statement_expressions(s) for r in reads(e)]


def integer_parameters(program: Program) -> tuple[str, ...]:
    """Parameters without dimensions that are sizes as well: their value is the number that a call gives."""
    both = [program.tensor(n) for n in program.parameters if n in program.sizes]
    return tuple(t.name for t in both if t.rank == 0 and t.dtype.is_integer)


def call_parameters(program: Program) -> tuple[str, ...]:
    """What a call gives: the parameters, with a matrix in compressed rows for its parts."""
    owners = {part: m.name for m in program.compressed for part in m.parts}
    return tuple(dict.fromkeys(owners.get(p, p) for p in program.parameters))


def find_numbers(program: Program) -> frozenset[str]:
    """Those sizes, and sizes that are computed from them."""
    found = set(integer_parameters(program))
    for name, expr in program.defined_sizes if found else ():
        if any(isinstance(node, Size) and node.name in found for node in walk(expr)):
            found.add(name)
    return frozenset(found)


def find_sizes(statements: Iterable[Statement], tensors: Iterable[Tensor]) -> set[str]:
    """The size symbols that statements and shapes are made of."""
    roots = [e for t in tensors for e in t.shape or ()] + [e for s in statements for e in statement_expressions(s)]
    return {node.name for e in roots for node in walk(e) if isinstance(node, Size)}
