"""What is known of one definition after the statements so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from polyc.diagnostics import Span
from polyc.frontends.calls import CallResult, Interval
from polyc.frontends.tc.scope import Reporter, Scope, TensorEntry
from polyc.frontends.tc.syntax import SyntaxStatement
from polyc.ir.expr import Expr
from polyc.ir.program import Program, Role, Statement, Tensor
from polyc.ir.types import DType
from polyc.records import dataclass

ReadCallee = Callable[[str], Program | None]
"""The Program of another definition of the text by name; None where it has errors.  Raises `CallFault` for recursion."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """What the list of results declares."""

    dtype: DType | None
    rank: int
    shape: tuple[Expr, ...]


@dataclass(slots=True)
class Definition:
    """Names, versions and statements so far."""

    reporter: Reporter
    sizes: dict[str, Span] = field(default_factory=dict)
    parameters: dict[str, Span] = field(default_factory=dict)
    returns: dict[str, Annotation | None] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    forward: dict[str, TensorEntry] = field(default_factory=dict)
    """Tensors that may be read above their first assignment, as that will define them."""
    current: dict[str, TensorEntry] = field(default_factory=dict)
    n_versions: dict[str, int] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    initial: dict[str, str] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    operators: frozenset[str] = frozenset()
    """Names of the definitions of the text."""
    read_callee: ReadCallee | None = None
    n_calls: int = 0
    intervals: dict[str, tuple[Interval, ...]] = field(default_factory=dict)
    """Versions whose ranges a call has needed, so that no more parts may be assigned."""
    callees: dict[int, tuple[Program, dict[str, tuple[Interval, ...]]]] = field(default_factory=dict)
    is_incomplete: bool = False
    """Whether it calls a definition that has errors, which are reported there."""
    made: dict[str, str] = field(default_factory=dict)
    """Callee by version that a call has made."""
    results: dict[str, CallResult] = field(default_factory=dict)
    """By version, the results of calls."""
    starts: dict[str, DType] = field(default_factory=dict)
    """Element types of versions that literals start (``S(0) = 0``), as the other parts have shown."""
    typed: set[str] = field(default_factory=set)
    """Versions to which something else than literals has given their element type."""


def next_version(d: Definition, name: str) -> str:
    """The name of the version that the next assignment to `name` makes."""
    count = d.n_versions.get(name, 0)
    return f"{name}.{count}" if count else name


def make_scope(d: Definition) -> Scope:
    """What names mean in the next statement."""
    return Scope(d.reporter, d.sizes, {**d.forward, **d.current}, d.names, operators=d.operators - d.names)


def define_version(d: Definition, s: SyntaxStatement, dtype: DType | None) -> str:
    """The version that a statement makes, now the current one of its name."""
    version = next_version(d, s.target)
    if s.target not in d.parameters:
        d.n_versions[s.target] = d.n_versions.get(s.target, 0) + 1
        d.current[s.target] = add_tensor(d, version, s, dtype, "temporary")
    return version


def add_tensor(d: Definition, version: str, s: SyntaxStatement, dtype: DType | None, role: Role) -> TensorEntry:
    """Declare a version of the target of a statement."""
    annotation, rank = d.returns.get(s.target), len(s.subscripts)
    shape = annotation.shape if annotation is not None and annotation.rank == rank else None
    if dtype is not None:
        d.tensors[version] = Tensor(version, dtype, rank, shape, role, s.target, s.target_span)
    return TensorEntry(version, dtype, rank, shape)
