"""Which statements the reference interpreter runs together, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from polyc.ir.expr import Read, walk
from polyc.ir.program import Exists, Program, RangeClause, Statement


@dataclass(frozen=True, slots=True)
class Component:
    """Tensor versions that need each other, with the statements that write them; one version where there is no recurrence."""

    versions: tuple[str, ...]
    statements: tuple[Statement, ...]
    is_recurrence: bool


def order_components(program: Program) -> list[Component]:
    """Components in topological order of their reads, source order breaking ties."""
    writers: dict[str, list[Statement]] = {}
    for s in program.statements:
        writers.setdefault(s.target, []).append(s)
    needs = {v: {r.tensor for s in group for r in reads_of_statement(s)} & writers.keys() for v, group in writers.items()}
    reach = {v: reachable(v, needs) for v in writers}
    remaining, done = list(writers), set[str]()
    ordered: list[Component] = []
    while remaining:
        first = next(v for v in remaining if all(u in done or v in reach[u] for u in reach[v]))
        versions = tuple(v for v in remaining if v == first or (v in reach[first] and first in reach[v]))
        statements = tuple(s for s in program.statements if s.target in versions)
        ordered.append(Component(versions, statements, first in reach[first]))
        done |= set(versions)
        remaining = [v for v in remaining if v not in done]
    return ordered


def reachable(start: str, needs: Mapping[str, set[str]]) -> set[str]:
    """Everything that `start` needs, over any number of steps."""
    found: set[str] = set()
    stack = [start]
    while stack:
        fresh = needs[stack.pop()] - found
        found |= fresh
        stack.extend(fresh)
    return found


def order_statements(program: Program) -> list[Statement]:
    """Statements after those whose tensors they read; source order breaks ties, and cycles where they begin."""
    writers: dict[str, set[str]] = {}
    for s in program.statements:
        writers.setdefault(s.target, set()).add(s.name)
    waiting = {
        s.name: {w for r in reads_of_statement(s) for w in writers.get(r.tensor, ())} - {s.name} for s in program.statements
    }
    remaining, done = list(program.statements), set[str]()
    ordered: list[Statement] = []
    while remaining:
        s = next((s for s in remaining if waiting[s.name] <= done), remaining[0])
        ordered.append(s)
        done.add(s.name)
        remaining.remove(s)
    return ordered


def reads_of_statement(statement: Statement) -> Iterator[Read]:
    roots = [statement.value, *statement.subscripts]
    if statement.reduction is not None:
        roots.append(statement.reduction.init)
    for clause in statement.where:
        if not isinstance(clause, RangeClause):
            roots.append(clause.value if isinstance(clause, Exists) else clause.condition)
    for root in roots:
        yield from (node for node in walk(root) if isinstance(node, Read))
