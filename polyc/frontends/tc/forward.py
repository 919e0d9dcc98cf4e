"""Tensors that are read before the text assigns them: allowed where a recurrence needs it, an error anywhere else.

``S(i) +=! L(i, k) * x(k) where k < i`` may stand above the statement that makes ``x`` from ``S``: order has no meaning but
through values.  Others may then read such a tensor there, too.  A statement that only stands too far up is still told so.
"""

from __future__ import annotations

from polyc.frontends.tc.syntax import (
    Apply,
    ConditionSyntax,
    ExistsSyntax,
    LetSyntax,
    Name,
    SyntaxCall,
    SyntaxCombination,
    SyntaxDef,
    SyntaxExpr,
    SyntaxSelection,
    SyntaxStatement,
    syntax_children,
)
from polyc.ir.components import reachable


def find_forward_reads(syntax: SyntaxDef) -> dict[str, int]:
    """Rank by name of the tensors that may be read above their first assignment."""
    first: dict[str, int] = {}
    calls = {
        t.name for s in syntax.statements if isinstance(s, (SyntaxCall, SyntaxSelection, SyntaxCombination)) for t in s.targets
    }
    own = [s for s in syntax.statements if isinstance(s, SyntaxStatement)]
    for position, s in enumerate(own):
        first.setdefault(s.target, position)
    first = {name: position for name, position in first.items() if name not in calls}
    parameters = {p.name for p in syntax.parameters}
    reads = [_names_read(s) & (first.keys() - parameters) for s in own]
    needs: dict[str, set[str]] = {}
    for s, names in zip(own, reads, strict=True):
        needs.setdefault(s.target, set()).update(names)
    allowed: dict[str, int] = {}
    refused: set[str] = set()
    for position, (s, names) in enumerate(zip(own, reads, strict=True)):
        for name in sorted(names):
            if first[name] < position:
                continue
            adds_to_itself = s.op != "=" and s.op.endswith("=") and name == s.target
            if adds_to_itself or _reads_itself_in_place(s, name):
                refused.add(name)
            elif s.target in reachable(name, needs):
                allowed[name] = len(own[first[name]].subscripts)
    return {name: rank for name, rank in allowed.items() if name not in refused}


def _expressions(s: SyntaxStatement) -> list[SyntaxExpr]:
    clauses = [c.value for c in s.where if isinstance(c, (LetSyntax, ExistsSyntax, ConditionSyntax))]
    return [s.value, *s.subscripts, *clauses]


def _nodes(s: SyntaxStatement) -> list[SyntaxExpr]:
    found: list[SyntaxExpr] = []
    stack = _expressions(s)
    while stack:
        node = stack.pop()
        found.append(node)
        stack.extend(syntax_children(node))
    return found


def _names_read(s: SyntaxStatement) -> set[str]:
    left = {e.name for e in s.subscripts if isinstance(e, Name)}
    lets = {c.name for c in s.where if isinstance(c, LetSyntax)}
    return {n.name for n in _nodes(s) if isinstance(n, Apply) or (isinstance(n, Name) and n.name not in left)} - lets


def _reads_itself_in_place(s: SyntaxStatement, name: str) -> bool:
    """Whether the statement reads the very element that it writes."""
    if name != s.target:
        return False
    reads = [n for n in _nodes(s) if isinstance(n, (Apply, Name)) and n.name == name]
    return any(isinstance(n, Name) or n.args == s.subscripts for n in reads)
