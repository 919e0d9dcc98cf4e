"""Rows of unit coefficients by integer linear programming: the oracle for `rows.union_find`, which is faster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from polyc.scheduler.rows.coincidence import Equation
from polyc.scheduler.rows.groups import Choice, Group, RowFinder, Used
from polyc.scheduler.rows.model import Edge, Link, Model
from polyc.scheduler.rows.objective import group_costs
from polyc.scheduler.rows.solver import Budget, Problem, solve
from polyc.scheduler.rows.union_find import ClassFinder


def integer_programs(budget: Budget | None = None) -> Callable[[Model], RowFinder]:
    """For `schedule_statements`: rows by HiGHS; what is over `budget` is not fused."""
    return lambda model: IlpFinder(model, budget or Budget())


class IlpFinder:
    """Finds rows of tier 1 and 2 with HiGHS; see `groups.RowFinder`.  One binary per statement and unused dimension."""

    def __init__(self, model: Model, budget: Budget) -> None:
        self.model = model
        self.budget = budget
        self.fallback = ClassFinder(model)

    def find_whole(self, names: Sequence[str], used: Used, max_tier: int) -> Group | None:
        if len(names) == 1 and self.budget.n_solves >= self.budget.max_solves:
            return self.fallback.find_whole(names, used, max_tier)
        links = self._connecting_links(names)
        return None if links is None else self._find(names, used, max_tier, links)

    def join(self, a: Group, b: Group, used: Used, max_tier: int) -> Group | None:
        names = tuple(sorted((*a.names, *b.names), key=lambda name: self.model.statements[name].position))
        links = self._connecting_links(names)
        return None if links is None else self._find(names, used, max_tier, links)

    def _connecting_links(self, names: Sequence[str]) -> list[Link] | None:
        """Shared reads that hold together what dependences leave apart; None where even they do not."""
        parts = {name: n for n, name in enumerate(names)}

        def merge(a: str, b: str) -> None:
            old, new = parts[b], parts[a]
            for name, part in parts.items():
                if part == old:
                    parts[name] = new

        for edge in self._edges_within(names):
            merge(edge.source, edge.sink)
        chosen: list[Link] = []
        while len(set(parts.values())) > 1:
            first = parts[names[0]]
            outside = [p for p in dict.fromkeys(parts[name] for name in names) if p != first]
            for part in outside:
                found = [k for k in self._links_within(names) if {parts[k.first], parts[k.second]} == {first, part}]
                if found:
                    chosen += found
                    merge(names[0], next(name for name in names if parts[name] == part))
                    break
            else:
                return None
        return chosen

    def _edges_within(self, names: Iterable[str]) -> list[Edge]:
        inside = set(names)
        return [e for e in self.model.edges if e.source in inside and e.sink in inside]

    def _links_within(self, names: Iterable[str]) -> list[Link]:
        inside = set(names)
        return [k for k in self.model.links if k.first in inside and k.second in inside]

    def _find(self, names: Sequence[str], used: Used, max_tier: int, links: list[Link]) -> Group | None:
        for tier in range(1, max_tier + 1):
            row = self._solve(names, used, tier, links)
            if row is not None:
                costs = group_costs(self.model, names)
                return Group(tuple(names), Choice(row, tier, costs.row_contiguity(row), costs.largest))
        return None

    def _solve(self, names: Sequence[str], used: Used, tier: int, links: list[Link]) -> dict[str, int] | None:
        """Minimise the costs subject to: one unused dimension per statement, every dependence at distance 0.

        In tier 1 the instances of one element of a reduction are at distance 0 too, so reductions stay inside a thread."""
        costs = group_costs(self.model, names)
        problem = Problem()
        variables: dict[tuple[str, int], int] = {}
        for name in names:
            free = self.model.statements[name].may_follow(used[name])
            for d in free:
                variables[name, d] = problem.add_variable(costs.total[name][d], 0, 1)
            problem.add_row(1, 1, [(variables[name, d], 1) for d in free])

        def add(equations: Iterable[Equation], source: str, sink: str) -> None:
            for equation in equations:
                keys = [((sink if side else source, d), factor) for (side, d), factor in equation]
                problem.add_row(0, 0, [(variables[key], factor) for key, factor in keys if key in variables])

        for edge in self._edges_within(names):
            add(edge.equations, edge.source, edge.sink)
        for link in links:
            add([(((0, a), -1), ((1, b), 1)) for a, b in sorted(link.unit_pairs)], link.first, link.second)
        if tier == 1:
            for name in names:
                add(self.model.statements[name].own_equations, name, name)
        values = solve(problem, self.budget)
        if values is None:
            return None
        row = {name: d for (name, d), variable in variables.items() if values[variable] == 1}
        return row if self._is_exact(names, row, tier) else None

    def _is_exact(self, names: Sequence[str], row: dict[str, int], tier: int) -> bool:
        """The solver works with tolerances; this does not."""
        if set(row) != set(names):
            return False
        if tier == 1 and any(d not in self.model.statements[name].fixed for name, d in row.items()):
            return False
        return all((row[e.source], row[e.sink]) in e.unit_pairs for e in self._edges_within(names))
