"""What a front end finds: collected, so that all errors of a definition are raised at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field

from polyc.diagnostics import (
    CompileBudgetError,
    Diagnostic,
    PolycError,
    SemanticError,
    Span,
    SyntaxErrorInSource,
    UnsupportedError,
    merge_contexts,
)
from polyc.frontends.core.values import Fault, Reported
from polyc.records import dataclass


@dataclass(slots=True)
class Reporter:
    """Findings in the order in which they were made; the same one at the same place counts once."""

    found: dict[tuple[str, str, int, int, str], Diagnostic] = field(default_factory=dict)

    def add(self, *diagnostics: Diagnostic) -> None:
        for d in diagnostics:
            place = (d.span.start, d.span.end, d.span.context) if d.span else (-1, -1, "")
            self.found.setdefault((d.code, d.message, *place), d)

    def error(self, code: str, message: str, span: Span | None, help: str) -> None:
        self.add(Diagnostic(code, message, span, help))

    def warn(self, code: str, message: str, span: Span | None, help: str) -> None:
        self.add(Diagnostic(code, message, span, help, "warning"))

    def report(self, fault: Fault, span: Span) -> None:
        """A fault at its place, or else at `span`."""
        self.error(fault.code, fault.message, fault.span or span, fault.help)

    @contextmanager
    def catching(self, span: Span, is_whole: bool = False) -> Iterator[None]:
        """A block that ends where something in it is wrong, which is reported: at its place, or else at `span`; there in any
        case where `is_whole`."""
        try:
            yield
        except Fault as fault:
            self.error(fault.code, fault.message, span if is_whole else fault.span or span, fault.help)
        except Reported:
            pass

    @property
    def diagnostics(self) -> list[Diagnostic]:
        return list(self.found.values())

    @property
    def errors(self) -> list[Diagnostic]:
        return [d for d in self.found.values() if d.severity == "error"]

    @property
    def warnings(self) -> list[Diagnostic]:
        return list(merge_contexts([d for d in self.found.values() if d.severity == "warning"]))

    @property
    def n_errors(self) -> int:
        return len(self.errors) if self.found else 0


def raise_errors(errors: Sequence[Diagnostic]) -> None:
    """Raise all errors in the order of the text, as the class that fits them: a plain mistake outweighs what is merely not
    possible yet."""
    kinds = {e.code.split("-")[0] for e in errors}
    error: type[PolycError] = SemanticError
    if kinds == {"budget"}:
        error = CompileBudgetError
    elif kinds <= {"unsupported", "budget"}:
        error = UnsupportedError
    elif kinds == {"syntax"}:
        error = SyntaxErrorInSource
    if kinds:
        raise error(*sorted(errors, key=lambda d: d.span.start if d.span else 0))
