"""What reductions by monoids of the user do not take."""

from __future__ import annotations

from polyc.diagnostics import Diagnostic
from polyc.ir.program import Statement


def describe_monoid_recurrence(s: Statement) -> Diagnostic:
    """The error where a user's monoid combines what depends on its result."""
    assert s.reduction is not None
    assert s.reduction.monoid is not None
    message = f"{s.reduction.monoid.name} combines values that depend on its own result"
    help = "write the recurrence out, element by element, or combine what is computed before"
    return Diagnostic("unsupported-monoid-recurrence", message, s.span, help)
