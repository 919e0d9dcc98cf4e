"""`.tc` text -> Programs: the entry points of this front end."""

from __future__ import annotations

from polyc.diagnostics import Diagnostic, Span
from polyc.frontends.core.budget import find_excess_rank
from polyc.frontends.core.calls import check_depth, describe_recursion
from polyc.frontends.core.reports import raise_errors
from polyc.frontends.core.typos import find_lonely_indices
from polyc.frontends.tc.parser import parse_tc
from polyc.frontends.tc.semantics import check_definition
from polyc.frontends.tc.syntax import SyntaxDef
from polyc.ir.program import Program
from polyc.records import dataclass


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
    definitions = parse_tc(text, filename)
    reader = _Reader(definitions)
    programs: list[Program] = []
    findings: list[Diagnostic] = []
    defined: set[str] = set()
    for position, definition in enumerate(definitions):
        if definition.name in defined:
            message = f"{definition.name} is already defined as an operator of this text"
            findings.append(Diagnostic("semantic-already-defined", message, definition.name_span, "choose another name"))
        defined.add(definition.name)
        program, found = reader.check(position)
        findings += found
        if program is not None:
            programs.append(program)
            findings += find_excess_rank(program) or find_lonely_indices(program)
    findings = list(dict.fromkeys(findings))  # an index of a callee is found in all its callers
    raise_errors([f for f in findings if f.severity == "error"])
    return TcResult(tuple(programs), tuple(f for f in findings if f.severity == "warning"))


class _Reader:
    """The definitions of a text, each checked once, callees before their callers."""

    def __init__(self, definitions: tuple[SyntaxDef, ...]) -> None:
        self.definitions = definitions
        self.positions = {d.name: n for n, d in reversed(list(enumerate(definitions)))}
        self.checked: dict[int, tuple[Program | None, list[Diagnostic]]] = {}
        self.open: list[str] = []
        """Definitions that are being checked, each called by the one before."""

    def check(self, position: int) -> tuple[Program | None, list[Diagnostic]]:
        if position not in self.checked:
            definition = self.definitions[position]
            self.open.append(definition.name)
            self.checked[position] = check_definition(definition, frozenset(self.positions), self.read_callee)
            self.open.pop()
        return self.checked[position]

    def read_callee(self, name: str, place: Span) -> Program | None:
        """The Program of a definition that the one at hand calls."""
        if name in self.open:
            chain = [*self.open[self.open.index(name) :], name]
            raise describe_recursion(chain, "operators", "T(t) = f(T(t - 1))", place)
        check_depth(len(self.open))
        return self.check(self.positions[name])[0]


def read_tc(text: str, filename: str = "<string>") -> tuple[Program, ...]:
    """The Programs of `text`; as `read_tc_with_warnings` without the warnings."""
    return read_tc_with_warnings(text, filename).programs
