"""How many statements a definition may have, and its tensors dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.diagnostics import Diagnostic, Span
from polyc.ir.program import Program

MAX_STATEMENTS = 4096
"""Compiling that many takes some ten seconds."""
MAX_DIMENSIONS = 64
"""NumPy's arrays have no more."""


def find_excess(name: str, places: Sequence[Span | None]) -> list[Diagnostic]:
    """``budget-statements`` at the first statement that is too many, for the places of all statements of the definition."""
    message = f"{name} has {len(places)} statements; the limit is {MAX_STATEMENTS}"
    help = "let an index stand for statements that differ in a number (T(k, i) = …), or compile the parts apart"
    return [Diagnostic("budget-statements", message, place, help) for place in places[MAX_STATEMENTS : MAX_STATEMENTS + 1]]


def find_excess_rank(program: Program) -> list[Diagnostic]:
    """``budget-dimensions`` at the first tensor with too many dimensions."""
    message, help = "{} has {} dimensions; the limit is {}", "join dimensions that are always walked together"
    bad = [t for t in program.tensors if t.rank > MAX_DIMENSIONS][:1]
    return [Diagnostic("budget-dimensions", message.format(t.base, t.rank, MAX_DIMENSIONS), t.span, help) for t in bad]
