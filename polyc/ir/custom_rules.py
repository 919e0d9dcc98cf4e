"""Derivatives that a user gives for a whole operator, as a part of the programs that call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from polyc.ir.expr import Expr, Index, Read, rewrite, substitute
from polyc.ir.program import Statement, Tensor, map_statement
from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Rule:
    """What stands for the derivative of the statements for `inside`: other `statements`, over `tensors` of their own.

    `inputs`, `results` and `inside` are versions of the program that has the rule; other names are those of `tensors`."""

    mode: Literal["vjp", "jvp"]
    name: str
    """The user's name of the operator, for messages."""
    inputs: tuple[str, ...]
    """Versions given for the inputs that have derivatives, in order."""
    results: tuple[str, ...]
    inside: tuple[str, ...]
    """Versions that are computed for the results, these included."""
    directions: tuple[str, ...]
    """What the statements read: cotangents of `results`, or tangents of `inputs`."""
    derived: tuple[str, ...]
    """What they make: cotangents of `inputs`, or tangents of `results`."""
    tensors: tuple[Tensor, ...]
    statements: tuple[Statement, ...]
    rules: tuple[Rule, ...] = ()
    """Those of operators that the statements call, for derivatives of this one."""


def rename_rule(rule: Rule, names: Mapping[str, str], change_size: Callable[[Expr], Expr] = lambda e: e) -> Rule:
    """The rule where its program is a part of another: tensors of both get these names (others keep theirs), and expressions
    over sizes are changed."""

    def name(old: str) -> str:
        return names.get(old, old)

    def change(expr: Expr) -> Expr:
        return change_size(rewrite(expr, lambda n: replace(n, tensor=name(n.tensor)) if isinstance(n, Read) else None))

    tensors = []
    for t in rule.tensors:
        shape = None if t.shape is None else tuple(map(change_size, t.shape))
        tensors.append(replace(t, name=name(t.name), shape=shape))
    return replace(
        rule,
        inputs=tuple(map(name, rule.inputs)),
        results=tuple(map(name, rule.results)),
        inside=tuple(map(name, rule.inside)),
        directions=tuple(map(name, rule.directions)),
        derived=tuple(map(name, rule.derived)),
        tensors=tuple(tensors),
        statements=tuple(_retarget(map_statement(s, change), name(s.target)) for s in rule.statements),
        rules=tuple(rename_rule(r, names, change_size) for r in rule.rules),
    )


def _retarget(s: Statement, target: str) -> Statement:
    """The statement for another version; elements are named after that in initial values."""
    changed = replace(s, target=target)
    if s.reduction is None:
        return changed
    renamed = {old: Index(new) for old, new in zip(s.element_names, changed.element_names, strict=True)}
    return replace(changed, reduction=replace(s.reduction, init=substitute(s.reduction.init, renamed)))
