"""Source positions, remarks, warnings and errors, and how they are shown to a person.

Every value that a user wrote carries a `Span`; every error carries a code whose heading stands in
``docs/errors.md``.  Front ends collect several `Diagnostic` values and raise them together.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Literal

from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Source:
    """A text that a user wrote: a ``.tc`` file, a Python function, an einsum string."""

    text: str
    name: str = "<string>"
    first_line: int = 1
    """Line number of the first line of `text` inside the file `name`."""
    is_function: bool = field(default=False, compare=False)
    """Whether it is a decorated Python function, whose notation proposals are then written in (`in_notation`)."""


def in_notation(span: Span | None, text: str, function: str) -> str:
    """Which of two wordings fits the place: that for `.tc` text, or that for decorated functions."""
    return function if span is not None and span.source.is_function else text


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open character range ``[start, end)`` of a `Source`."""

    source: Source
    start: int
    end: int
    context: str = field(default="", compare=False)
    """Where a text that is read several times belongs to: ``k = 3`` in an unrolled loop, ``f called in line 9``."""

    def line_column(self) -> tuple[int, int]:
        """Line (in the file's numbering) and column, both counted from 1."""
        text = self.source.text
        return text.count("\n", 0, self.start) + self.source.first_line, self.start - (text.rfind("\n", 0, self.start) + 1) + 1

    def join(self, other: Span | None) -> Span:
        """The smallest span that covers both."""
        if other is None:
            return self
        return Span(self.source, min(self.start, other.start), max(self.end, other.end), self.context)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: `code` (heading of docs/errors.md), message in the user's words, place, way out."""

    code: str
    message: str
    span: Span | None = None
    help: str | None = None
    severity: Literal["error", "warning"] = "error"

    def render(self) -> str:
        """Message, ``--> file:line:column``, the excerpt with a caret, and one ``help:`` line."""
        lines = [f"{self.severity}[{self.code}]: {_shorten_words(self.message)}"]
        if self.span is not None:
            lines += _render_excerpt(self.span)
        if self.help:
            lines.append(f"  help: {_shorten_words(self.help)}")
        return "\n".join(lines)


_EXCERPT_WIDTH = 120
"""Characters of a source line that are shown; longer lines are cut around what is marked."""
_CONTEXT = 40
"""Characters before the mark that a cut line keeps."""


def _render_excerpt(span: Span) -> list[str]:
    line_number, column = span.line_column()
    text = span.source.text
    end = text.find("\n", span.start)
    before, line, start = "", text[span.start - column + 1 : end if end >= 0 else len(text)], column - 1
    width = max(1, min(span.end - span.start, len(line) - start))
    if len(line) > _EXCERPT_WIDTH:
        cut = max(0, min(start - _CONTEXT, len(line) - _EXCERPT_WIDTH))
        before, after = "…" if cut else "", "…" if cut + _EXCERPT_WIDTH < len(line) else ""
        line, start = line[cut : cut + _EXCERPT_WIDTH], start - cut
        width = max(1, min(width, len(line) - start))
    else:
        after = ""
    shown = "".join(c if c.isprintable() else " " for c in line)  # tabs, and what would move a terminal's cursor
    gap = " " * _display_width(before + shown[:start])
    gutter = len(str(line_number))
    return [
        f"{' ' * gutter}--> {span.source.name}:{line_number}:{column}",
        f"{' ' * gutter} |",
        f"{line_number} | {before}{shown}{after}".rstrip(),
        f"{' ' * gutter} | {gap}{'^' * max(1, _display_width(shown[start : start + width]))}",
    ]


def _display_width(text: str) -> int:
    """Columns of a terminal: letters of East Asian scripts take two, combining marks none."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _shorten_words(text: str) -> str:
    """`text` fit for one line of a terminal: words beyond any name's length lose their middle."""
    return re.sub(r"\S{121,}", lambda m: f"{m[0][:60]}…{m[0][-40:]}", text)


MOST_SHOWN = 100
"""Diagnostics of one error that are written out."""
DOUBTS = frozenset(("range-empty-sum", "range-cut"))
"""Codes of warnings about ranges that are hardly meant: `poly.doubts` finds them, and every process is told."""


def render_all(diagnostics: Sequence[Diagnostic]) -> str:
    """All of them one below the other, or the first ones and how many there are more."""
    shown = [d.render() for d in diagnostics[:MOST_SHOWN]]
    if len(diagnostics) > MOST_SHOWN:
        shown.append(f"… and {len(diagnostics) - MOST_SHOWN} more")
    return "\n".join(shown)


def merge_contexts(diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """What is found at one place of a text that is read several times (in rounds of a loop, in calls) is told once: that of
    the first, its context, and how many there are more."""
    contexts: dict[tuple[str, str, Span], dict[str, list[str]]] = {}
    for d in diagnostics:
        if d.span is not None and d.span.context:
            contexts.setdefault((d.code, d.severity, d.span), {}).setdefault(d.span.context, []).append(d.message)
    if not contexts:
        return tuple(diagnostics)
    merged: list[Diagnostic] = []
    for d in diagnostics:
        if d.span is None or not d.span.context:
            merged.append(d)
            continue
        messages = contexts[d.code, d.severity, d.span]
        first, n_more = next(iter(messages)), len(messages) - 1
        if d.span.context != first:
            continue
        times = "once" if n_more == 1 else f"{n_more} times"
        more = f", and {times} more" if n_more else ""
        is_always = n_more > 0 and all(d.message in found for found in messages.values())
        message = d.message if is_always else f"{d.message} (with {first}{more})"
        merged.append(replace(d, message=message, span=replace(d.span, context="")))
    return tuple(merged)


def suggest_name(name: str, known: Iterable[str]) -> str | None:
    """``did you mean …?`` for a near miss (other case, swapped or missing letters), else None."""
    folded, by_fold = str(name)[:80].casefold(), {k.casefold(): k for k in known}
    if folded in by_fold:
        return f"did you mean {by_fold[folded]}?"
    import difflib

    close = difflib.get_close_matches(folded, by_fold, n=1) if len(folded) > 1 else []  # every letter is near every other
    return f"did you mean {by_fold[close[0]]}?" if close else None


class PolycError(Exception):
    """Base of all errors that polyc raises for something a user did.  `str()` is the full rendering."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        self.diagnostics = merge_contexts(diagnostics)
        super().__init__(render_all(self.diagnostics))

    def __reduce__(self) -> tuple[type[PolycError], tuple[Diagnostic, ...]]:
        return type(self), self.diagnostics  # `args` hold the rendering, which cannot make the error again in another process

    @property
    def code(self) -> str:
        return self.diagnostics[0].code if self.diagnostics else "internal"


class SyntaxErrorInSource(PolycError, SyntaxError):
    """The text is not in the language.  Codes ``syntax-*``."""

    def __str__(self) -> str:
        return render_all(self.diagnostics)


class SemanticError(PolycError, ValueError):
    """Names, types or index usage are wrong.  Codes ``semantic-*``, ``type-*``."""


class RangeError(PolycError, ValueError):
    """Ranges of indices cannot be inferred or do not fit.  Codes ``range-*``."""


class ArgumentError(PolycError, ValueError):
    """An array or size given at a call does not fit.  Codes ``argument-*``."""


class ArgumentOverflowError(ArgumentError, OverflowError):
    """A Python number given at a call does not fit the element type that it meets.  Code ``argument-number``."""


class ArgumentTypeError(PolycError, TypeError):
    """An argument has the wrong dtype or is no array.  Codes ``argument-type-*``."""


class BoundsError(PolycError, IndexError):
    """A data-dependent subscript left its array at run time.  Code ``bounds-*``."""


class UnsupportedError(PolycError, NotImplementedError):
    """Understood, but this version of polyc cannot do it.  Codes ``unsupported-*``."""


class CompileBudgetError(PolycError, RuntimeError):
    """The request exceeds a compile-time budget on every rung of the ladder.  Codes ``budget-*``."""


class InternalError(PolycError, RuntimeError):
    """A bug in polyc: please report it.  Codes ``internal-*``."""


class PolycWarning(UserWarning):
    """A warning with a code (first word in brackets of its text)."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic
        self.code = diagnostic.code
        super().__init__(diagnostic)

    def __str__(self) -> str:
        return self.diagnostic.render()


@dataclass(frozen=True, slots=True)
class Remark:
    """What a pass did (`passed`), could not do (`missed`) or found (`analysis`), and the number that decided."""

    kind: Literal["passed", "missed", "analysis"]
    pass_name: str
    message: str
    statement: str | None = None
    span: Span | None = field(default=None, compare=False)

    def __str__(self) -> str:
        where = f" [{self.statement}]" if self.statement else ""
        return f"{self.kind:8} {self.pass_name}{where}: {self.message}"


def user_stacklevel() -> int:
    """`stacklevel` for `warnings.warn` in the caller of this function, so that the warning points outside polyc."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "polyc":
        level, frame = level + 1, frame.f_back
    return level
