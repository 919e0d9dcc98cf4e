"""What is known of one definition of a text after the statements so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial

from polyc.diagnostics import Span
from polyc.frontends.core.builder import ProgramBuilder, Shape, Version
from polyc.frontends.core.extents import measure
from polyc.frontends.tc.scope import Scope
from polyc.frontends.tc.types import is_narrower
from polyc.frontends.tc.wording import narrowing
from polyc.ir.expr import Expr
from polyc.ir.program import Program
from polyc.ir.types import DType
from polyc.records import dataclass

ReadCallee = Callable[[str, Span], Program | None]
"""The Program of another definition of the text by name, for a call at that place; None where it has errors.  Raises `Fault`
for recursion."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """What the list of results declares."""

    dtype: DType
    shape: tuple[Expr, ...]


@dataclass(slots=True, eq=False)
class Definition(ProgramBuilder):
    """Names, versions and statements so far."""

    sizes: dict[str, Span] = field(default_factory=dict)
    parameters: dict[str, Span] = field(default_factory=dict)
    returns: dict[str, Annotation | None] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    forward: dict[str, Version] = field(default_factory=dict)
    """Tensors that may be read above their first assignment, as that will define them."""
    initial: dict[str, str] = field(default_factory=dict)
    """By result, the version that the caller's array holds before."""
    operators: frozenset[str] = frozenset()
    """Names of the definitions of the text."""
    read_callee: ReadCallee | None = None
    is_incomplete: bool = False
    """Whether it calls a definition that has errors, which are reported there."""
    starts: dict[str, DType] = field(default_factory=dict)
    """Element types of versions that literals start (``S(0) = 0``), as the other parts have shown."""
    typed: set[str] = field(default_factory=set)
    """Versions to which something else than literals has given their element type."""

    def declared_type(self, name: str) -> DType | None:
        annotation = self.returns.get(name)
        return None if annotation is None else annotation.dtype

    def declared_shape(self, name: str, rank: int) -> Shape:
        annotation = self.returns.get(name)
        return annotation.shape if annotation is not None and len(annotation.shape) == rank else None

    def kept_type(self, name: str, dtype: DType, span: Span | None = None) -> DType:
        kept = self.declared_type(name) or dtype
        if is_narrower(kept, dtype):
            raise narrowing(dtype, kept, span)
        return kept

    def scope(self) -> Scope:
        """What names mean in the next statement."""
        return Scope(
            self.reporter,
            self.sizes,
            {**self.forward, **self.current},
            self.names,
            operators=self.operators - self.names,
            integers=frozenset(self.integers),
            as_size=self.as_size,
            measure=partial(measure, self),
            matrices=self.compressed,
        )
