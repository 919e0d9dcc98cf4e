"""What may stand on the left: which names can be assigned, alone and beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.diagnostics import Span
from polyc.frontends.tc.definition import Definition
from polyc.frontends.tc.scope import check_not_builtin
from polyc.frontends.tc.syntax import SyntaxStatement
from polyc.ir.program import Tensor


def check_target(d: Definition, name: str, span: Span, rank: int | None) -> bool:
    """Whether a name may be assigned; `rank` None where that is not known yet."""
    if not check_not_builtin(d.reporter, name, span):
        return False
    if name in d.parameters:
        message = f"TC inputs are immutable: {name} is a parameter"
        d.reporter.error("semantic-immutable-input", message, span, f"assign another name and return it, such as {name}_out")
        return False
    if name in d.sizes:
        d.reporter.error("semantic-already-defined", f"{name} is already defined as a size", span, "choose another name")
        return False
    annotation = d.returns.get(name)
    if annotation is not None and rank is not None and len(annotation.shape) != rank:
        wanted = len(annotation.shape)
        message = f"tensor defined with {rank} dimensions but declared as an output with {wanted} dimensions"
        d.reporter.error("semantic-rank", message, span, "make the annotation and the left side agree")
    return True


def check_targets(d: Definition, s: SyntaxStatement, results: Sequence[Tensor | None] = ()) -> list[bool]:
    """For each target of a statement whether it may be assigned; `results` are those of a call."""
    good: list[bool] = []
    names: set[str] = set()
    for position, target in enumerate(s.targets):
        result = results[position] if s.is_call else None
        rank = None if s.is_call and result is None else len(target.subscripts) if result is None else result.rank
        if target.name in names:
            message = f"{target.name} is assigned twice by this {'call' if s.is_call else 'statement'}"
            d.reporter.error("semantic-already-defined", message, target.span, "give each result a name of its own")
        names.add(target.name)
        good.append(check_target(d, target.name, target.span, rank))
    return good


def define_unknown(d: Definition, s: SyntaxStatement) -> None:
    """After an error: the results have names all the same, so that what reads them is no error too."""
    for target in s.targets:
        if target.name not in d.parameters and target.name not in d.sizes:
            d.define(target.name, len(target.subscripts), target.span, None)
