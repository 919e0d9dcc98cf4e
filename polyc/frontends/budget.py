"""How many statements a definition may have."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.diagnostics import Diagnostic, Span

MAX_STATEMENTS = 4096
"""Compiling that many takes some ten seconds."""


def find_excess(name: str, places: Sequence[Span | None]) -> Diagnostic | None:
    """``budget-statements`` at the first statement that is too many, for the places of all statements of the definition."""
    if len(places) <= MAX_STATEMENTS:
        return None
    message = f"{name} has {len(places)} statements; the limit is {MAX_STATEMENTS}"
    help = "let an index stand for statements that differ in a number (T(k, i) = …), or compile the parts apart"
    return Diagnostic("budget-statements", message, places[MAX_STATEMENTS], help)
