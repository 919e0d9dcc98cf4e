"""The syntax tree of `.tc` text: what was written, with its place, before names and types mean anything.

Spans take no part in comparison, so two texts that differ in spaces and redundant parentheses have equal trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

from polyc.diagnostics import Source, Span
from polyc.records import dataclass


def _span() -> Any:
    return field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Number:
    """A literal; its text decides its type (a point or an exponent makes it float32)."""

    text: str
    span: Span = _span()

    @property
    def is_float(self) -> bool:
        return any(c in ".eE" for c in self.text)


@dataclass(frozen=True, slots=True)
class Name:
    """An index, a let, a size or a scalar tensor: semantics decides which."""

    name: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Extent:
    """``T.1``: the extent of dimension `dimension` of `tensor`."""

    tensor: str
    dimension: int
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Apply:
    """``name(args)``: a tensor read, a function or a conversion; or an operator, by its sign: ``-``, ``<=``, ``?:``."""

    name: str
    args: tuple[SyntaxExpr, ...]
    name_span: Span = _span()
    span: Span = _span()

    @property
    def is_operator(self) -> bool:
        return not self.name.isidentifier()


SyntaxExpr = Number | Name | Extent | Apply


def walk_syntax(*exprs: SyntaxExpr) -> Iterator[SyntaxExpr]:
    """All nodes of expressions, each before its operands, left to right; iterative, so that depth is no matter."""
    stack = list(reversed(exprs))
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, Apply):
            stack.extend(reversed(node.args))


@dataclass(frozen=True, slots=True)
class TypeSyntax:
    """A scalar type name and, for a tensor, its dimensions."""

    name: str
    dimensions: tuple[Name | Number, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter or a result; results may leave out the type."""

    name: str
    type: TypeSyntax | None
    name_span: Span = _span()
    format: str = ""
    """Of a sparse matrix, csr or csc; ragged."""


@dataclass(frozen=True, slots=True)
class RangeSyntax:
    """``index in lower:upper``."""

    index: str
    lower: SyntaxExpr
    upper: SyntaxExpr
    index_span: Span = _span()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class LetSyntax:
    """``name = value``."""

    name: str
    value: SyntaxExpr
    name_span: Span = _span()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ExistsSyntax:
    """``exists value``."""

    value: SyntaxExpr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ConditionSyntax:
    """A condition over indices and sizes, such as ``j <= i``."""

    value: SyntaxExpr
    span: Span = _span()


ClauseSyntax = RangeSyntax | LetSyntax | ExistsSyntax | ConditionSyntax


@dataclass(frozen=True, slots=True)
class SyntaxTarget:
    """One left side, ``name(subscripts)``."""

    name: str
    subscripts: tuple[SyntaxExpr, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class SyntaxStatement:
    """``targets op values where …``; `op` is the operator as written.

    ``O(i) += A(i, j)``, ``(v(i), p(i)) argmax=! X(i, j)`` (the greatest value and where it stands, or its place alone),
    ``(p, q) product=! (a(i), b(i))`` (reduced by a monoid of the text), ``(Q, K) = f(X)`` (the results of a call),
    ``n = until e(t) < eps`` (where a recurrence ends; the target has no name where the text gives none)."""

    targets: tuple[SyntaxTarget, ...]
    op: str
    values: tuple[SyntaxExpr, ...]
    where: tuple[ClauseSyntax, ...]
    op_span: Span = _span()
    span: Span = _span()
    is_call: bool = False
    """Whether the targets name whole tensors."""

    @property
    def target(self) -> str:
        """The name that the first target assigns."""
        return self.targets[0].name

    @property
    def subscripts(self) -> tuple[SyntaxExpr, ...]:
        """Those of the first target."""
        return self.targets[0].subscripts

    @property
    def value(self) -> SyntaxExpr:
        """The first value."""
        return self.values[0]

    @property
    def reduction(self) -> str:
        """``+`` of ``+=!``, ``argmax`` of ``argmax=!``, nothing of ``=``."""
        return self.op.rstrip("!").removesuffix("=")


@dataclass(frozen=True, slots=True)
class SyntaxMonoid:
    """``monoid name(parameters) -> (c = identity, …) { c = value … }``."""

    name: str
    parameters: tuple[Parameter, ...]
    identity: tuple[LetSyntax, ...]
    parts: tuple[LetSyntax, ...]
    name_span: Span = _span()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class SyntaxDef:
    """``def name(parameters) -> (returns) { statements }``."""

    name: str
    parameters: tuple[Parameter, ...]
    returns: tuple[Parameter, ...]
    statements: tuple[SyntaxStatement, ...]
    source: Source = field(compare=False, repr=False)
    name_span: Span = _span()
    span: Span = _span()
    monoids: tuple[SyntaxMonoid, ...] = ()
    """All monoids of the text."""
