"""What names mean while a function is read: parameters, tensor versions, sizes, constants, indices."""

from __future__ import annotations

import ast
import numbers
from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from polyc.diagnostics import Span
from polyc.frontends.core.builder import ProgramBuilder, Version
from polyc.frontends.core.values import Value
from polyc.frontends.python.names import Index as IndexObject
from polyc.frontends.python.signature import Number
from polyc.frontends.python.source import FunctionText
from polyc.ir.program import Condition, Exists, RangeClause
from polyc.ir.types import I64, DType
from polyc.records import dataclass


class Retyped(Exception):
    """A version that was assigned from literals only turns out to hold `dtype`: the function is read again with that known.

    Where other literals say so, it `is_weak` still: 0 beside 0.5 is as 0.0."""

    def __init__(self, version: str, dtype: DType, is_weak: bool = False) -> None:
        self.version, self.hint = version, (dtype, is_weak)


@dataclass(frozen=True, slots=True)
class Clauses:
    """What the where blocks around a statement say; each part belongs to the statements that use all its indices."""

    ranges: dict[str, RangeClause] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    loaded: tuple[RangeClause, ...] = ()
    """Ranges of which a bound reads a tensor."""
    entries: tuple[Exists, ...] = ()
    """Elements of sparse matrices that are to be entries."""


@dataclass(slots=True, eq=False, kw_only=True)
class Scope(ProgramBuilder):
    """The state of one reading.  Names resolve as `polyc.frontends.python.reader.read_function` says."""

    text: FunctionText
    read_call: Callable[[ast.Call, Scope, int], Value]
    """`element_calls.read_element_call`: calls inside of expressions hold expressions themselves."""
    constants: dict[str, Number | None] = field(default_factory=dict)
    assigned_names: frozenset[str] = frozenset()
    """All names that the body assigns anywhere: reading one above its assignment is an error, not an index."""
    target: str | None = None
    """The name that the statement at hand assigns."""
    outer_names: frozenset[str] | None = None
    """Names that stand outside of reductions in the statement at hand; None where none may stand inside of an expression."""
    clauses: Clauses = field(default_factory=Clauses)
    """Those of the statement at hand."""
    n_reductions: int = 0
    """Reductions inside of expressions so far."""
    values: dict[str, Value] = field(default_factory=dict)
    """Names that stand for values: parameters of a function that is called on elements, and what it assigns."""
    components: dict[str, list[Value]] = field(default_factory=dict)
    """Parameters of a function that combines tuples, each with what stands for its parts."""
    element_function: str | None = None
    """The name of that function."""
    forward: dict[str, int] = field(default_factory=dict)
    """Rank by name of the tensors that may be read above their first assignment."""
    type_hints: dict[str, tuple[DType, bool]] = field(default_factory=dict)
    """Element types of versions whose first assignment is a literal, found in an earlier reading of the function; and whether
    they are weak still, as other literals say."""
    used_indices: dict[str, Span] = field(default_factory=dict)
    ambiguous: set[str] = field(default_factory=set)
    is_padded: bool = False
    """Whether the elements at hand may stand beside their tensors, inside of `pad`."""
    callers: tuple[FunctionText, ...] = ()
    """Functions that call this one, outermost first."""
    callee_programs: dict[Any, Any] = field(default_factory=dict)
    """What was read of called functions (`ReadResult`), by function, element types and constants."""
    rounds: int = 0
    """Bodies of loops unrolled so far."""
    loop_names: set[str] = field(default_factory=set)
    """Variables of loops that are over: Python would still find a number there."""
    step: str | None = None
    """The index of the loop with a break around what is read: a round is a step of a recurrence."""

    def inside(self, text: FunctionText) -> Scope:
        """The scope of a function that is read in place, on elements: it sees its parameters, its names, and numbers around."""
        nodes = [n for n in ast.walk(text.definition) if isinstance(n, ast.Name)]
        found = {n.id: text.lookup(n.id) for n in nodes}
        inner = Scope(self.reporter, self.notation, text=text, read_call=self.read_call, callers=(*self.callers, self.text))
        inner.assigned_names = frozenset(n.id for n in nodes if isinstance(n.ctx, ast.Store))
        numbers = {name: value for name, value in found.items() if isinstance(value, (int, float, np.number))}
        inner.constants = {name: n.item() if isinstance(n, np.generic) else n for name, n in numbers.items()}
        return inner

    def forward_version(self, name: str) -> Version | None:
        """The first version of a tensor that is assigned further down, as a recurrence may read it."""
        if name in self.current or name not in self.forward:
            return None
        hint, is_weak = self.type_hints.get(name, (I64, True))
        return Version(name, hint, self.forward[name], is_weak)

    def is_taken(self, name: str) -> bool:
        """Whether a name stands for something that no statement can assign."""
        version = self.current.get(name)
        return name in self.sizes or name in self.constants or (version is not None and version.is_parameter)

    def define_unknown(self, name: str | None) -> None:
        """After an error: the name is assigned all the same, so that what reads it is no error too."""
        if name is not None and not self.is_taken(name):
            self.current[name] = Version(name, None, None)

    def report(self, code: str, message: str, node: ast.AST | Span, help: str) -> None:
        self.reporter.error(code, message, node if isinstance(node, Span) else self.text.span(node), help)

    def index_name(self, node: ast.Name) -> str | None:
        """The index that a name stands for, None (after a report) where Python would find a number there.

        Only for names that are no parameter, tensor, size or constant.
        """
        found = self.text.lookup(node.id)
        name = node.id
        if isinstance(found, IndexObject):
            name = found.name
            if name in self.current or name in self.sizes or name in self.constants or name in self.assigned_names:
                message = f"{node.id} is the index {name!r}, but {name} also names something else here"
                self.report("semantic-already-defined", message, node, "rename the index or the other")
                return None
        elif name in self.loop_names:
            message = f"{name} could be an index, but Python would read the number that the loop above left in {name}"
            self.report("semantic-ambiguous-name", message, node, f"rename the index, or use polyc.indices({name!r})")
            return None
        elif isinstance(found, (numbers.Number, np.generic, np.ndarray)) and (
            isinstance(found, np.ndarray) or name not in self.text.subscript_names
        ):
            if name not in self.ambiguous:
                self.ambiguous.add(name)
                shown = "an array" if isinstance(found, np.ndarray) else repr(found)
                message = f"{name} could be an index, but Python would read {shown}, which {name} is outside the function"
                help = f"make it a compile-time constant (*, {name}=...), or rename the index, or use polyc.indices({name!r})"
                self.report("semantic-ambiguous-name", message, node, help)
            return None
        self.used_indices.setdefault(name, self.text.span(node))
        return name

    def is_index(self, name: str) -> bool:
        """May `name` be read as an index (by the order of resolution)?"""
        if name in self.current or name in self.assigned_names or name in self.sizes:
            return False
        return isinstance(self.text.lookup(name), IndexObject) or name not in self.constants
