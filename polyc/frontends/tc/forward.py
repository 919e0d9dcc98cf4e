"""The assignments of a definition, as `polyc.frontends.core.forward` asks for them."""

from __future__ import annotations

from polyc.frontends.core.forward import Event
from polyc.frontends.tc.syntax import Apply, LetSyntax, Name, RangeSyntax, SyntaxStatement, walk_syntax


def describe_assignment(s: SyntaxStatement) -> Event:
    """What a statement writes and reads."""
    clauses = [c.value for c in s.where if not isinstance(c, RangeSyntax)]
    nodes = list(walk_syntax(s.value, *s.subscripts, *clauses))
    left = {e.name for e in s.subscripts if isinstance(e, Name)}
    lets = {c.name for c in s.where if isinstance(c, LetSyntax)}
    read = {n.name for n in nodes if isinstance(n, Apply) or (isinstance(n, Name) and n.name not in left)}
    own = [n for n in nodes if isinstance(n, (Apply, Name)) and n.name == s.target]
    needs_itself = s.op.endswith("=") and s.op != "="  # it adds to itself
    needs_itself |= any(isinstance(n, Name) or n.args == s.subscripts for n in own)
    return Event(s.target, len(s.subscripts), frozenset(read - lets), needs_itself)
