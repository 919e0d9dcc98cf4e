"""Bounds of ranges that read tensors, and what a statement may leave out because of them."""

from __future__ import annotations

from polyc.diagnostics import in_notation
from polyc.frontends.core.values import Fault
from polyc.ir.expr import Expr, Pad, Read, walk
from polyc.ir.segments import is_loaded


def check_bound(bound: Expr) -> None:
    """Raise `Fault` where a bound reads at places that only data tells, or beside its tensor."""
    for node in walk(bound):
        if isinstance(node, Pad):
            select = in_notation(node.span, "i == 0 ? 0 : ptr(i - 1)", "0 if i == 0 else ptr[i - 1]")
            help = f"choose what stands for the missing element: {select}"
            raise Fault("semantic-read-in-bound", "a bound of a range reads inside of its tensor only", help, node.span)
        if isinstance(node, Read) and any(is_loaded(e) for e in node.subscripts):
            message = "a bound of a range is read at indices and sizes, and this place depends on data"
            help = "give the operator a tensor that holds the bounds in the order of the index"
            raise Fault("semantic-read-in-bound", message, help, node.span)
