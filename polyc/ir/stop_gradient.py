"""``stop_gradient(e)``: the value e, which derivatives take for a constant; ``once_differentiable(e)``: the value e, which is
part of a derivative and has none itself.  Nothing below the derivatives knows them."""

from __future__ import annotations

from polyc.ir.expr import Call, Expr, rewrite, walk
from polyc.ir.program import Program, map_expressions, statement_expressions


def drop_stops(program: Program) -> Program:
    """The program with the operand in the place of each of them; the very same one where there is none."""
    if not any(_is_stop(n) for s in program.statements for e in statement_expressions(s) for n in walk(e)):
        return program
    return map_expressions(program, lambda e: rewrite(e, lambda n: n.args[0] if isinstance(n, Call) and _is_stop(n) else None))


def _is_stop(node: Expr) -> bool:
    return isinstance(node, Call) and node.op in ("stop_gradient", "once_differentiable")
