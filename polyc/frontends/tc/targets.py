"""Several results on the left of one statement: ``(v(i), p(i)) argmax=! …``."""

from __future__ import annotations

from collections.abc import Callable

from polyc.diagnostics import Span
from polyc.frontends.tc.definition import Definition, define_version
from polyc.frontends.tc.syntax import SyntaxCombination, SyntaxExpr, SyntaxSelection, SyntaxStatement, SyntaxTarget

CheckTarget = Callable[[Definition, str, Span, int | None], bool]
"""Reports what is wrong with assigning a name with so many subscripts."""


def check_targets(d: Definition, targets: tuple[SyntaxTarget, ...], check_target: CheckTarget) -> None:
    """Report targets that cannot be assigned, or are assigned twice."""
    names: set[str] = set()
    for target in targets:
        check_target(d, target.name, target.span, len(target.subscripts))
        if target.name in names:
            message = f"{target.name} is assigned twice by this statement"
            d.reporter.error("semantic-already-defined", message, target.span, "give each result a name of its own")
        names.add(target.name)


def define_unknown(d: Definition, s: SyntaxSelection | SyntaxCombination, op: str, value: SyntaxExpr) -> None:
    """After an error: the results have names all the same, so that what reads them is no error too."""
    for target in s.targets:
        if target.name not in d.parameters and target.name not in d.sizes:
            define_version(d, as_statement(s, target, op, value), None)


def as_statement(s: SyntaxSelection | SyntaxCombination, target: SyntaxTarget, op: str, value: SyntaxExpr) -> SyntaxStatement:
    """One result of `s` as if it were assigned alone."""
    return SyntaxStatement(target.name, target.subscripts, op, value, s.where, target.span, s.op_span, s.span)
