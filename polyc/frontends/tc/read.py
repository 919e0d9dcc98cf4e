"""`.tc` text -> Programs: the entry points of this front end."""

from __future__ import annotations

from dataclasses import dataclass

from polyc.diagnostics import CompileBudgetError, Diagnostic, PolycError, SemanticError, UnsupportedError
from polyc.frontends.tc.parser import parse_tc
from polyc.frontends.tc.semantics import check_definition
from polyc.frontends.typos import find_lonely_indices
from polyc.ir.program import Program


@dataclass(frozen=True, slots=True)
class TcResult:
    """One Program per definition, in order, and the warnings of all."""

    programs: tuple[Program, ...]
    warnings: tuple[Diagnostic, ...]


def read_tc_with_warnings(text: str, filename: str = "<string>") -> TcResult:
    """Parse and check `text`.

    Raises `SyntaxErrorInSource`, or `SemanticError` with all errors of all definitions (`UnsupportedError` or
    `CompileBudgetError` where nothing else is wrong).
    """
    programs: list[Program] = []
    findings: list[Diagnostic] = []
    defined: set[str] = set()
    for definition in parse_tc(text, filename):
        if definition.name in defined:
            message = f"{definition.name} is already defined as an operator of this text"
            findings.append(Diagnostic("semantic-already-defined", message, definition.name_span, "choose another name"))
        defined.add(definition.name)
        program, found = check_definition(definition)
        findings += found
        if program is not None:
            programs.append(program)
            findings += find_lonely_indices(program)
    errors = tuple(f for f in findings if f.severity == "error")
    if errors:
        raise _choose_error(errors)(*errors)
    return TcResult(tuple(programs), tuple(f for f in findings if f.severity == "warning"))


def read_tc(text: str, filename: str = "<string>") -> tuple[Program, ...]:
    """The Programs of `text`; as `read_tc_with_warnings` without the warnings."""
    return read_tc_with_warnings(text, filename).programs


def _choose_error(errors: tuple[Diagnostic, ...]) -> type[PolycError]:
    """The class that fits all: a plain mistake outweighs what is merely not possible yet."""
    kinds = {e.code.split("-")[0] for e in errors}
    if kinds == {"budget"}:
        return CompileBudgetError
    if kinds <= {"unsupported", "budget"}:
        return UnsupportedError
    return SemanticError
