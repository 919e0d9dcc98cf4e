"""How many statements a definition may have, and its tensors dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.diagnostics import Diagnostic, Span
from polyc.ir.program import Program

MAX_STATEMENTS = 4096
"""Compiling that many takes some ten seconds."""
MAX_DIMENSIONS = 64
"""NumPy's arrays have no more."""


def find_excess(name: str, places: Sequence[Span | None]) -> Diagnostic | None:
    """``budget-statements`` at the first statement that is too many, for the places of all statements of the definition."""
    if len(places) <= MAX_STATEMENTS:
        return None
    message = f"{name} has {len(places)} statements; the limit is {MAX_STATEMENTS}"
    help = "let an index stand for statements that differ in a number (T(k, i) = …), or compile the parts apart"
    return Diagnostic("budget-statements", message, places[MAX_STATEMENTS], help)


def find_excess_rank(program: Program) -> Diagnostic | None:
    """``budget-dimensions`` at the first tensor with too many dimensions."""
    for tensor in program.tensors:
        if tensor.rank > MAX_DIMENSIONS:
            message = f"{tensor.base} has {tensor.rank} dimensions; the limit is {MAX_DIMENSIONS}"
            return Diagnostic("budget-dimensions", message, tensor.span, "join dimensions that are always walked together")
    return None
