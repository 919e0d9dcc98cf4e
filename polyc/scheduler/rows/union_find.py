"""The fast path for rows without recurrences: classes of (statement, dimension) that must move together.

With one unit coefficient a statement, no shifts and coincidence required, a row is a choice of one dimension per statement
in which every dependence has distance 0.  The choices of a group are its classes; joining two groups only has to look at
the dependences between them, which keeps merging close to linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from polyc.code_limits import MAX_ITEMS
from polyc.scheduler.rows.groups import Choice, Group, Used
from polyc.scheduler.rows.model import Model
from polyc.scheduler.rows.objective import UnitRow, group_costs


class ClassFinder:
    """Finds rows of tier 1 and 2; see `groups.RowFinder`."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.adjacent: dict[str, list[tuple[str, frozenset[tuple[int, int]]]]] = {name: [] for name in model.statements}
        self.linked: dict[str, list[tuple[str, frozenset[tuple[int, int]]]]] = {name: [] for name in model.statements}
        self.self_pairs: dict[str, frozenset[tuple[int, int]]] = {}
        for edge in model.edges:
            if edge.source == edge.sink:
                self.self_pairs[edge.source] = edge.unit_pairs
            else:
                self._add(self.adjacent, edge.source, edge.sink, edge.unit_pairs)
        for link in model.links:
            self._add(self.linked, link.first, link.second, link.unit_pairs)

    @staticmethod
    def _add(
        table: dict[str, list[tuple[str, frozenset[tuple[int, int]]]]], a: str, b: str, pairs: frozenset[tuple[int, int]]
    ) -> None:
        table[a].append((b, pairs))
        table[b].append((a, frozenset((y, x) for x, y in pairs)))

    def find_whole(self, names: Sequence[str], used: Used, max_tier: int) -> Group | None:
        """The cheapest row that all of `names` can share, reached along dependences first, then along shared reads."""
        inside = set(names)
        parts: list[tuple[tuple[str, ...], list[UnitRow]]] = []
        seen: set[str] = set()
        for root in names:
            if root in seen:
                continue
            reached, rows = [root], self._own_rows(root, used)
            seen.add(root)
            for name in reached:  # grows while it is walked: breadth first
                for other, _ in self.adjacent[name]:
                    if other in inside and other not in seen:
                        seen.add(other)
                        rows = self._combine(reached, rows, [other], self._own_rows(other, used), self.adjacent)
                        reached.append(other)
                if not rows:
                    return None
            parts.append((tuple(reached), rows))
        while len(parts) > 1:
            first, rest = parts[0], parts[1:]
            partner = next((p for p in rest if self._are_linked(first[0], p[0])), None)
            if partner is None:
                return None
            rows = self._combine(first[0], first[1], partner[0], partner[1], self.linked)
            parts = [(first[0] + partner[0], rows), *(p for p in rest if p is not partner)]
        return self._best(tuple(names), parts[0][1], max_tier)

    def join(self, a: Group, b: Group, used: Used, max_tier: int) -> Group | None:
        """The cheapest row that two groups can share; only dependences (or else shared reads) between them are checked."""
        inside = set(b.names)
        has_edge = any(other in inside for name in a.names for other, _ in self.adjacent[name])
        table = self.adjacent if has_edge else self.linked
        rows = self._combine(a.names, a.candidates, b.names, b.candidates, table)
        return self._best(tuple(sorted((*a.names, *b.names), key=self._position)), rows, max_tier)

    def _position(self, name: str) -> int:
        return self.model.statements[name].position

    def _own_rows(self, name: str, used: Used) -> list[UnitRow]:
        own = self.self_pairs.get(name)
        free = self.model.statements[name].may_follow(used[name])
        return [{name: d} for d in free if own is None or (d, d) in own]

    def _are_linked(self, a: Iterable[str], b: Sequence[str]) -> bool:
        inside = set(b)
        return any(other in inside for name in a for other, _ in self.linked[name])

    def _combine(
        self,
        a: Sequence[str],
        a_rows: Sequence[UnitRow],
        b: Sequence[str],
        b_rows: Sequence[UnitRow],
        table: Mapping[str, list[tuple[str, frozenset[tuple[int, int]]]]],
    ) -> list[UnitRow]:
        small, large = (a, b) if len(a) <= len(b) else (b, a)
        inside = set(large)
        crossing = [(s, t, pairs) for s in small for t, pairs in table[s] if t in inside]
        small_rows, large_rows = (a_rows, b_rows) if small is a else (b_rows, a_rows)
        rows: list[UnitRow] = []
        if not crossing:
            return rows
        for x in small_rows:
            for y in large_rows:
                if all((x[s], y[t]) in pairs for s, t, pairs in crossing):
                    rows.append({**y, **x})
        return rows[:MAX_ITEMS]

    def _best(self, names: tuple[str, ...], rows: list[UnitRow], max_tier: int) -> Group | None:
        if not rows:
            return None
        costs = group_costs(self.model, names)
        statements = self.model.statements
        best: tuple[tuple[int, float], UnitRow] | None = None
        for row in rows:
            tier = 1 if all(d in statements[name].fixed for name, d in row.items()) else 2
            key = (tier, round(costs.row_total(row), 9))
            if tier <= max_tier and (best is None or key < best[0]):
                best = (key, row)
        if best is None:
            return None
        row = {name: best[1][name] for name in names}
        return Group(names, Choice(row, best[0][0], costs.row_contiguity(row), costs.largest), tuple(rows))
