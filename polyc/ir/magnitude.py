"""Constants of index arithmetic that 64 bits cannot hold: refused by name before anything computes with them."""

from __future__ import annotations

from collections.abc import Iterator

from polyc.diagnostics import Diagnostic, RangeError, Span
from polyc.ir.expr import Call, Const, Expr, Read, children, walk
from polyc.ir.operators import OPERATORS
from polyc.ir.program import Condition, Exists, Program, RangeClause, Statement
from polyc.ir.types import I64

_LIMIT = 1 << 62


def check_magnitudes(program: Program) -> None:
    """Raise `RangeError` (``range-too-large``) where a subscript, bound or comparison has constants beyond 2**62."""
    found = []
    for s in program.statements:
        for expr, span in _index_expressions(s):
            reach = _reach(expr)
            if reach >= _LIMIT:
                message = f"the constants of this index expression multiply to {reach}, but indices have 64 bits"
                found.append(Diagnostic("range-too-large", message, span or s.span, "use smaller constants"))
    if found:
        raise RangeError(*found)


def _index_expressions(s: Statement) -> Iterator[tuple[Expr, Span | None]]:
    roots = [s.value]
    for clause in s.where:
        match clause:
            case RangeClause():
                yield clause.lower, clause.lower.span
                yield clause.upper, clause.upper.span
            case Condition():
                roots.append(clause.condition)
            case Exists():
                roots.append(clause.value)
    for sub in s.subscripts:
        yield sub, sub.span
    for root in roots:
        for node in walk(root):
            if isinstance(node, Read):
                for sub in node.subscripts:
                    yield sub, sub.span
            elif isinstance(node, Call) and OPERATORS[node.op].result == "bool":  # what bounds proofs conclude from
                yield node, node.span


def _reach(expr: Expr) -> int:
    """The largest constant or coefficient that folding could produce: indices and sizes count as 1."""
    match expr:
        case Const():
            return abs(int(expr.value)) if expr.dtype == I64 else 1
        case Read():
            return 1
        case Call("mul", (a, b)):
            return _reach(a) * _reach(b)
        case Call("add" | "sub", (a, b)):
            return _reach(a) + _reach(b)
    return max((_reach(child) for child in children(expr)), default=1)
