"""One definition as it is read: the versions of its tensors, its statements, and what assignments to parts of a tensor mean."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from polyc.diagnostics import Source, Span
from polyc.frontends.core.integers import Integers, promote_integers, single_values
from polyc.frontends.core.reports import Reporter
from polyc.frontends.core.values import Fault, Value
from polyc.ir.custom_rules import Rule
from polyc.ir.expr import Expr, Index, Read, identity_of, index_names, reads
from polyc.ir.powers import BadPower, unroll_powers
from polyc.ir.program import (
    Compressed,
    Condition,
    Program,
    RangeClause,
    Reduction,
    Return,
    Role,
    Statement,
    Tensor,
    Where,
    element_names,
)
from polyc.ir.ragged import Ragged
from polyc.ir.read_sites import keep_reads
from polyc.ir.segments import fixed_indices, is_loaded
from polyc.ir.types import DType
from polyc.records import dataclass, replace

if TYPE_CHECKING:
    from polyc.frontends.core.endings import Ending

Shape = tuple[Expr, ...] | None
"""Extents, None where they are inferred."""


@dataclass(frozen=True, slots=True)
class Notation:
    """How a notation spells element types, converts values, and words what the laws of all notations refuse."""

    spell: Callable[[DType], str]
    convert: Callable[[Value, DType], Expr]
    """A value as an expression of that type; that it fits is checked before."""
    words: Mapping[str, str]
    """Messages and ways out that differ between notations, with places for what they name: ``{name}``, ``{rank}``, …."""

    def say(self, key: str, **named: object) -> str:
        return self.words[key].format(**named)


@dataclass(frozen=True, slots=True)
class Target:
    """A left side: the tensor's name, and int64 subscripts."""

    name: str
    subscripts: tuple[Expr, ...]
    span: Span

    @property
    def rank(self) -> int:
        return len(self.subscripts)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Both sides of a statement: values for the elements of targets, at points that `where` restricts.

    `left` are the indices of the left side, and `op` how the notation writes the reduction over the `others`."""

    targets: tuple[Target, ...]
    values: tuple[Value, ...]
    left: tuple[str, ...]
    others: tuple[str, ...]
    where: tuple[Where, ...]
    op: str
    span: Span
    op_span: Span | None = None

    @property
    def loose(self) -> tuple[str, ...]:
        """The indices over which only a reduction could have a meaning: several of their values go with one element."""
        fixed = fixed_indices(self.targets[0].subscripts, self.where) if self.others else set()
        return tuple(i for i in self.others if i not in fixed)

    def draft(self, value: Expr) -> Statement:
        """The statement without its target and reduction; what the text reads and `value` does not, it keeps in mind."""
        indices = (*self.left, *self.others)
        draft = Statement("", "", self.targets[0].subscripts, indices, value, None, self.where, self.span)
        unread = [e for v in self.values for e in v.unread]
        return keep_reads(draft, unread) if unread else draft


@dataclass(frozen=True, slots=True)
class Version:
    """The latest version of a tensor name.  `dtype` None: its statement had an error, and what reads it stays silent."""

    name: str
    dtype: DType | None
    rank: int | None
    is_weak: bool = False
    """Assigned from literals only: it takes the element type of what it meets, like the literals."""
    shape: Shape = None
    is_parameter: bool = False
    span: Span | None = None


class Interval(NamedTuple):
    """``lower <= x < lower + extent`` over sizes: `polyc.poly.ranges.Interval`, without the mathematics behind it."""

    lower: Expr
    extent: Expr


@dataclass(frozen=True, slots=True)
class CallResult:
    """A result of a call: the user's name of it, the callee, and the place of the name."""

    name: str
    callee: str
    span: Span


@dataclass(slots=True, eq=False)
class ProgramBuilder:
    """What is known of a definition after the statements so far."""

    reporter: Reporter
    notation: Notation
    sizes: Collection[str] = ()
    current: dict[str, Version] = field(default_factory=dict)
    """The latest version of each name, parameters included."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """All versions by their own names."""
    statements: list[Statement] = field(default_factory=list)
    written: list[Statement] = field(default_factory=list)
    """The statements as they stand in the definition, before powers of indices were unrolled."""
    writers: dict[str, list[Statement]] = field(default_factory=dict)
    """Statements by the version that they write."""
    compressed: dict[str, Compressed | Ragged] = field(default_factory=dict)
    """Versions that are matrices in compressed rows; statements that read them are written out (`core/compressed.py`)."""
    result_formats: dict[str, str] = field(default_factory=dict)
    """How results are declared: csr or csc, or "" for dense."""
    n_versions: dict[str, int] = field(default_factory=dict)
    n_calls: int = 0
    intervals: dict[str, tuple[Interval, ...]] = field(default_factory=dict)
    """Versions whose ranges a call has needed, so that no more parts may be assigned."""
    callees: dict[int, tuple[Program, dict[str, tuple[Interval, ...]]]] = field(default_factory=dict)
    """Ranges of called programs, by identity."""
    made: dict[str, str] = field(default_factory=dict)
    """Callee by version that a call has made."""
    results: dict[str, CallResult] = field(default_factory=dict)
    """By version, the results of calls that have a name."""
    rules: list[Rule] = field(default_factory=list)
    """Derivatives of the user's own that callees have."""
    endings: list[Ending] = field(default_factory=list)
    """Recurrences that end where a condition holds."""

    @property
    def size_symbols(self) -> tuple[str, ...]:
        """The sizes, and the numbers of entries of matrices."""
        return *self.sizes, *dict.fromkeys(m.n_entries.name for m in self.compressed.values() if not m.owner)

    # -- integer parameters
    @property
    def integers(self) -> tuple[str, ...]:
        """Scalar integer parameters, in order: those that may become sizes."""
        found = (v for v in self.current.values() if v.is_parameter and v.rank == 0)
        return tuple(v.name for v in found if v.dtype is not None and v.dtype.is_integer)

    def as_size(self, expr: Expr) -> Expr:
        """An i64 expression where sizes stand (a bound, a left subscript), with sizes for integer parameters."""
        return Integers(self.integers, single_values(self.statements)).as_size(expr) if reads(expr) else expr

    # -- versions and statements
    def next_version(self, name: str) -> str:
        """The name of the version that the next assignment to `name` makes."""
        count = self.n_versions.get(name, 0)
        return f"{name}.{count}" if count else name

    def declared_shape(self, name: str, rank: int) -> Shape:
        """The extents that the definition declares for a result."""
        return None

    def declared_type(self, name: str) -> DType | None:
        """The element type that it declares."""
        return None

    def kept_type(self, name: str, dtype: DType, span: Span | None = None) -> DType:
        """The element type of what is given values of `dtype`: the declared one.  Raises `Fault` where that is narrower."""
        return self.declared_type(name) or dtype

    def add_tensor(
        self, version: str, dtype: DType, rank: int, base: str, span: Span | None, shape: Shape = None, role: Role = "temporary"
    ) -> None:
        """A version that no name stands for yet."""
        self.tensors[version] = Tensor(version, dtype, rank, shape, role, base, span)

    def define(self, name: str, rank: int, span: Span, dtype: DType | None, is_weak: bool = False, shape: Shape = None) -> str:
        """A new version of a name, now its current one; without a type after an error.  `shape`: where none is declared."""
        version, shape = self.next_version(name), self.declared_shape(name, rank) or shape
        if dtype is not None:
            self.add_tensor(version, dtype, rank, name, span, shape)
        self.rename(name, Version(version, dtype, rank, is_weak, shape, False, span))
        return version

    def rename(self, name: str, version: Version) -> None:
        """Let `name` stand for a version that has a name of its own."""
        self.n_versions[name] = self.n_versions.get(name, 0) + 1
        self.current[name] = version

    def add(self, *statements: Statement) -> None:
        self.written += statements
        for given in statements:
            try:
                if self.compressed:
                    from polyc.frontends.core.compressed import refuse_reads

                    refuse_reads(self, given)
                copies = unroll_powers(given, self.tensors)
            except BadPower as bad:
                message = "a power in this statement is no whole number of 64 bits"
                help = "give the index in it a range from 0 on, such as 0 to 61 for powers of 2"
                self.reporter.error("type-literal", message, bad.statement.span, help)
                continue
            except Fault as fault:
                self.reporter.error(fault.code, fault.message, fault.span or given.span, fault.help)
                continue
            for s in copies:
                self.statements.append(s)
                self.writers.setdefault(s.target, []).append(s)

    # -- assignments
    def is_assigned(self, name: str) -> bool:
        """Whether statements above write the current version of `name`."""
        version = self.current[name].name if name in self.current else ""
        return version in self.writers or (version in self.compressed and self.compressed[version].data in self.writers)

    def joins_version(self, target: Target, draft: Statement) -> bool:
        """Whether an assignment to a part of a tensor belongs to the version that the statements above write.

        It does where it assigns a part, or continues a tensor of which only parts are assigned by reading other elements of it,
        unless it assigns the same part again.  Raises `Fault` where that version can have no more parts."""
        previous = self.current.get(target.name)
        if previous is None or previous.dtype is None or previous.name not in self.writers:  # an unknown type: reported already
            return False
        writers, is_made = self.writers[previous.name], previous.name in self.made
        recurs = not is_made and all(w.writes_part for w in writers) and _reads_others(previous.name, draft)
        if not (draft.writes_part or recurs) or (len(writers) == 1 and is_same_part(writers[0], draft)):
            return False
        rank, found = previous.rank or 0, len(draft.subscripts)
        if rank != found:
            ranks = {"name": target.name, "rank": count_dimensions(rank), "found": count_dimensions(found)}
            message, help = self.notation.say("part-rank", **ranks), self.notation.say("part-rank-help", **ranks)
            raise Fault("semantic-rank", message, help, target.span)
        if previous.name in self.intervals:
            if is_made:
                message = f"{target.name} is the result of a call, which has assigned all of it"
                raise Fault("semantic-call-part", message, self.notation.say("part-of-result", name=target.name), target.span)
            message = (
                f"{target.name} is given to a call above, or its extents are used there, and this assigns another part of it"
            )
            raise Fault("semantic-call-part", message, f"assign all parts of {target.name} above that", target.span)
        return True

    def continues_recurrence(self, target: Target, draft: Statement) -> bool:
        """Whether a reduction into a part of a tensor reads other elements of it, of which only parts are assigned: those that
        it writes have no values yet to start from."""
        previous = self.current.get(target.name)
        writers = self.writers.get(previous.name, ()) if previous is not None and previous.name not in self.made else ()
        if previous is None or not writers or not draft.writes_part or not all(w.writes_part for w in writers):
            return False
        return _reads_others(previous.name, draft) and not any(is_same_part(w, draft) for w in writers)

    def read_previous(self, target: Target, previous: Version) -> Value:
        """The element of the version before that a reduction into `target` starts from."""
        assert previous.dtype is not None
        names = element_names(self.next_version(target.name), target.subscripts)
        element = tuple(Index(n, e.span) for n, e in zip(names, target.subscripts, strict=True))
        return Value(Read(previous.name, element, target.span), previous.dtype, previous.is_weak)

    def add_assignment(
        self, draft: Statement, target: Target, value: Value, op: str | None, init: Expr | None, joins: bool
    ) -> str:
        """Add ``target = value``, or ``op=`` from `init` or the identity of `op`; the version that it writes.

        A reduction without reduced indices stays one where points are left out: elements without any have the identity.
        A sum over a matrix in compressed rows is written out; where that is not possible it is reported."""
        given, stored, shape = draft, None, None
        if self.compressed:
            from polyc.frontends.core.compressed import define_entries, expand_reads  # only now: other programs do without

            try:
                draft, target, value, init, stored, op, shape = expand_reads(self, draft, target, value, op, init)
            except Fault as fault:
                self.reporter.report(fault, target.span)
                return self.current[target.name].name if joins else self.define(target.name, target.rank, target.span, None)
        reduction = None
        if op is not None and (init is not None or restricts_points(draft) or set(draft.indices) != set(draft.left_indices)):
            reduction = Reduction(op, identity_of(op, value.dtype) if init is None else init)
        version = (
            define_entries(self, stored, target, value)
            if stored is not None
            else self.current[target.name].name
            if joins
            else self.define(target.name, target.rank, target.span, value.dtype, value.weak, shape)
        )
        self.add(replace(draft, target=version, value=self.notation.convert(value, value.dtype), reduction=reduction))
        if draft is not given:
            self.written[-1] = given
        return version

    # -- the program
    def add_parameter(self, tensor: Tensor, is_weak: bool = False, format: str = "") -> None:
        """A parameter; `format`: that of csr, csc, ragged (`core/compressed.py`, `core/ragged.py`) or ""."""
        name = tensor.name
        if format:
            from polyc.frontends.core.compressed import declare_matrix
            from polyc.frontends.core.ragged import declare_ragged

            try:
                if format == "ragged":
                    declare_ragged(self, tensor)
                else:
                    declare_matrix(self, tensor, ("csr", "csc").index(format))
            except Fault as fault:
                self.reporter.error(fault.code, fault.message, fault.span, fault.help)
                self.current[name] = Version(name, None, None, is_parameter=True)
                return
        self.tensors[name] = tensor
        self.current[name] = Version(name, tensor.dtype, tensor.rank, is_weak, tensor.shape, True, tensor.span)

    def build(self, name: str, parameters: Collection[str], returns: tuple[Return, ...], source: Source | None) -> Program:
        """All of it, with the versions that are returned as outputs."""
        given = returns
        held = {n: m for n, m in self.compressed.items() if m.owner}
        found = ((r, held.get(r.version)) for r in returns)
        returns = tuple(r if m is None else replace(r, version=m.data, pattern=m.owner, axis=m.axis) for r, m in found)
        last = {r.version for r in returns}
        statements, tensors = self.statements, self.tensors
        if self.endings:
            from polyc.frontends.core.last_steps import keep_last_steps

            statements, tensors = keep_last_steps(self, last)
        program = Program(
            name=name,
            sizes=tuple(self.sizes),
            tensors=tuple(replace(t, role="output") if t.name in last else t for t in tensors.values()),
            parameters=tuple(parameters),
            returns=returns,
            statements=tuple(replace(s, name=f"S{n}") for n, s in enumerate(statements)),
            source=source,
            rules=tuple(self.rules),
        )
        if self.compressed:
            from polyc.frontends.core.compressed import check_returned, split_matrices

            check_returned(self, given)

            program = split_matrices(program, self.compressed, self.size_symbols)
        return promote_integers(program, self.integers)


def reduced_indices(values: Iterable[Value], left: Collection[str]) -> tuple[str, ...]:
    """Indices of the values that are not on the left side, by first appearance."""
    return tuple(n for n in dict.fromkeys(n for v in values for n in v.index_names) if n not in left)


def count_dimensions(rank: int) -> str:
    """``1 dimension``."""
    return f"{rank} dimension{'s' * (rank != 1)}"


def is_same_part(a: Statement, b: Statement) -> bool:
    """Whether two statements write the same elements by their text."""
    return a.subscripts == b.subscripts and _left_clauses(a) == _left_clauses(b)


def restricts_points(s: Statement) -> bool:
    """Whether the clauses leave out points of the box of the ranges, or the left side elements."""
    bounds = [b for w in s.where if isinstance(w, RangeClause) for b in (w.lower, w.upper)]
    is_cut = any(index_names(bound) or is_loaded(bound) for bound in bounds)
    return any(isinstance(w, Condition) for w in s.where) or is_cut or not s.has_plain_left


def _reads_others(version: str, draft: Statement) -> bool:
    return any(r.tensor == version and r.subscripts != draft.subscripts for r in reads(draft.value))


def _left_clauses(s: Statement) -> list[Where]:
    left = set(s.left_indices)
    return [w for w in s.where if isinstance(w, Condition) or (isinstance(w, RangeClause) and w.index in left)]
