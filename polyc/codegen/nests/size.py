"""How much code a loop nest expands to: a deterministic budget, checked before LLVM sees anything."""

from __future__ import annotations

from polyc.code_limits import MAX_OPERATIONS
from polyc.diagnostics import CompileBudgetError, Diagnostic
from polyc.ir.expr import walk
from polyc.ir.loops import If, Loop, LoopNest, Node
from polyc.ir.walk import node_expressions


def check_code_size(nest: LoopNest) -> LoopNest:
    """The nest itself; raises `CompileBudgetError` where unrolling would make too much code."""
    size = sum(_size(node) for node in nest.body)
    if size > MAX_OPERATIONS:
        message = f"{nest.name} would expand to {size} operations, more than {MAX_OPERATIONS}"
        raise CompileBudgetError(Diagnostic("budget-code", message, help="split the operator into smaller ones"))
    return nest


def _size(node: Node) -> int:
    match node:
        case If():
            return sum(map(_size, node.body)) + sum(map(_size, node.orelse))
        case Loop():
            inner = sum(map(_size, node.body)) + sum(_size(n) for i in node.initial for n in i.nest)
            if node.kind in ("unroll", "vector") and node.max_trip is not None:
                return inner * -(-node.max_trip // node.lanes)
            return inner * (node.interleave + 2 if node.kind == "vector" else 1)
    return sum(1 for e in node_expressions(node) for _ in walk(e))
