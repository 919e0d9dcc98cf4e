"""Ways out that several layers propose, each in the notation of the place it is about."""

from __future__ import annotations

from polyc.diagnostics import Span, in_notation


def help_range(span: Span | None, index: str, low: str = "0") -> str:
    """``where i in 0:N``, or ``with polyc.where(0 <= i < N)``."""
    return in_notation(span, f"where {index} in {low}:N", f"with polyc.where({low} <= {index} < N)")


def help_twice(span: Span | None) -> str:
    """Statements write one element."""
    if span is not None and " = " in span.context:  # rounds of a loop
        name, _, rest = span.source.text[span.start : span.end].partition("[")
        variable = span.context.rpartition(", ")[2].partition(" = ")[0]
        part = f"{name}[{variable}, {rest.partition(']')[0]}]"
        return f"parts that rounds of a loop assign are of one tensor: give each its own, {part} = ..., or restrict the indices"
    return f"statements that write parts of one tensor may not overlap: restrict the indices {_clause(span)}"


def help_joined(span: Span | None) -> str:
    """A reduction that reads its own tensor writes elements that another statement writes."""
    whole = in_notation(span, "x(i) = b(i) - s(i), with s(i) +=! L(i, j) * x(j)", "x[i] = b[i] - sum(L[i, j] * x[j])")
    return f"in a recurrence one statement gives an element: {whole}"


def help_repeated(span: Span | None) -> str:
    """Points of one statement write one element."""
    operator = in_notation(span, "+=!", "+=")
    return f"reduce with {operator} or another operator, or restrict the indices so that every element is written once"


def help_unwritten(span: Span | None) -> str:
    """Nothing writes an element."""
    whole = in_notation(span, "+=!", "T[i] += ...")
    select = in_notation(span, "c ? a : b", "a if c else b")
    return f"write it in a statement of its own, select with {select}, or start the tensor from a reduction such as {whole}"


def help_continued(span: Span | None) -> str:
    """A reduction that starts from the values before needs elements of them that are not there."""
    starts = in_notation(span, "+=! starts from zero", "T[i] = sum(...) starts from zero")
    return f"+= adds to the values before, and there are none: {starts}, in a recurrence, too"


def help_outside(span: Span | None, can_pad: bool = True) -> str:
    """A read leaves its tensor."""
    return f"restrict the indices {_clause(span)}" + ", or read with pad(..., value)" * can_pad


def help_safe(span: Span | None) -> str:
    """A read leaves its tensor at some sizes."""
    return f"restrict the indices {_clause(span)} to make the read safe for all sizes"


def help_start(span: Span | None, tensor: str) -> str:
    """A tensor into which data chooses has no extent."""
    assignment = f"{tensor}(k) = 0 where k in 0:K, and add with +="
    return (
        f"assign it first, {in_notation(span, assignment, f'with polyc.where(0 <= k < K): {tensor}[k] = 0, and add with +=')}"
    )


def _clause(span: Span | None) -> str:
    return in_notation(span, "in a where clause", "with polyc.where(...)")
