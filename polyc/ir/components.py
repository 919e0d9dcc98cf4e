"""Which statements the reference interpreter runs together, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from polyc.ir.expr import Read, Size, walk
from polyc.ir.graphs import find_components
from polyc.ir.program import Exists, Program, RangeClause, Statement, integer_parameters
from polyc.records import dataclass


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
    found = find_components(list(writers), [(u, v) for v, group in needs.items() for u in group])
    by_target = [[s for v in versions for s in writers[v]] for versions in found]
    position = {s.name: n for n, s in enumerate(program.statements)}
    return [
        Component(tuple(versions), tuple(sorted(group, key=lambda s: position[s.name])), is_recurrence(versions, needs))
        for versions, group in zip(found, by_target, strict=True)
    ]


def is_recurrence(versions: Sequence[str], needs: Mapping[str, Set[str]]) -> bool:
    """Whether the versions of a component need themselves."""
    return len(versions) > 1 or versions[0] in needs[versions[0]]


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
        if isinstance(clause, RangeClause):
            roots += [clause.lower, clause.upper]
        else:
            roots.append(clause.value if isinstance(clause, Exists) else clause.condition)
    for root in roots:
        yield from (node for node in walk(root) if isinstance(node, Read))


def find_step_counts(program: Program) -> frozenset[str]:
    """Numbers that a call gives which bound indices on the left of recurrences: how many steps these take."""
    numbers = frozenset(integer_parameters(program))
    found: set[str] = set()
    for component in order_components(program) if numbers else ():
        for s in component.statements if component.is_recurrence else ():
            bounds = [c.upper for c in s.where if isinstance(c, RangeClause) and c.index in s.left_indices]
            found |= {n.name for e in bounds for n in walk(e) if isinstance(n, Size)} & numbers
    return frozenset(found)
