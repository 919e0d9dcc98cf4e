"""Which statements share a loop: one dimension at a time, distributing components and merging neighbours.

The order of decisions of reference [ilp]: a whole connected set that is truly parallel gets one row if that costs no more
than rows apart; otherwise components join the earliest group that a tier limit and a contiguity limit allow, then whole
groups merge in pairs.  The tier limit, tier(A + B) <= max(tier A, tier B), says that a statement that still owns a truly
parallel dimension does not give it up to run inside another one's reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from functools import partial
from itertools import islice

from polyc.code_limits import MAX_ITEMS, MUCH
from polyc.ir.graphs import find_components
from polyc.machine import Machine
from polyc.poly.farkas import Piece, coincides, longest_distance, not_carried, respects
from polyc.poly.rows import Band, Kind, Leaf, Member, Node, Row
from polyc.poly.rows import Sequence as SequenceNode
from polyc.records import replace
from polyc.scheduler.rows.carried import has_no_more_sums, is_carried, passed_tensors
from polyc.scheduler.rows.coincidence import pivot_columns
from polyc.scheduler.rows.groups import IN_ORDER, KINDS, Group, NoRow, RowFinder, Used, group_graph, has_detour, sort_groups
from polyc.scheduler.rows.kept_steps import keep_fewer
from polyc.scheduler.rows.model import Model
from polyc.scheduler.rows.objective import TOLERANCE, fusion_gain
from polyc.scheduler.rows.recurrence import (
    SequentialRows,
    align_row,
    edges_of_pieces,
    find_sequential_row,
    find_shifted_row,
)
from polyc.scheduler.rows.solver import Budget
from polyc.scheduler.rows.steps import align_steps, find_borders, find_sharing, find_steps, find_stored, is_recurrence, sums_up


class Merger:
    """Schedules groups of statements over one model with one way of finding rows."""

    def __init__(
        self,
        model: Model,
        make_finder: Callable[[Model], RowFinder],
        pieces: tuple[Piece, ...],
        budget: Budget,
        most_together: int = MAX_ITEMS,
        target: Machine | None = None,
    ) -> None:
        self.model = model
        self.make_finder = make_finder
        self.finder = make_finder(model)
        self.pieces = pieces
        self.budget = budget
        self.most_together = most_together
        self.target = target
        self.successors: dict[str, set[str]] = {name: set() for name in model.statements}
        self.related: dict[str, set[str]] = {name: set() for name in model.statements}
        self.linked: dict[str, set[str]] = {name: set() for name in model.statements}
        for edge in model.edges:
            self.successors[edge.source].add(edge.sink)
            self.related[edge.source].add(edge.sink)
            self.related[edge.sink].add(edge.source)
        for link in model.links:
            self.linked[link.first].add(link.second)
            self.linked[link.second].add(link.first)
        self.steps = find_steps(model, self.successors) if most_together > 1 else []
        self.rows_of_steps: dict[frozenset[str], dict[str, Row]] = {}
        self.rows_found: dict[Hashable, SequentialRows] = {}

    def schedule(self, names: Sequence[str], used: Used, members: tuple[Member, ...] = ()) -> Node:
        """The tree below a band with `members` so far.  Raises `NoRow`."""
        if all(not self._has_rows_left(name, used) for name in names):
            return _close(members, [Leaf(name) for name in self._order_leaves(names)])
        components = self._join_steps(names, used)
        singles = [self._single(tuple(part), used) for part in components]
        if len(singles) == 1:
            return self._descend(singles[0], used, members)
        whole = self._try_whole(names, singles, used)
        if whole is not None:
            return self._descend(whole, used, members)
        groups = self._merge_pairs(self._merge_greedily(singles, used), used)
        if len(groups) == 1:
            return self._descend(groups[0], used, members)
        return _close(members, [self.schedule(group.names, used) for group in groups])

    def _order_leaves(self, names: Sequence[str]) -> list[str]:
        """Statements without rows left run at the same time but for their order in the text: a cycle has none."""
        components = self._components(names)
        for part in components:
            if len(part) > 1 or part[0] in self.successors[part[0]]:
                raise NoRow(tuple(part))
        return [name for part in components for name in part]

    def _has_rows_left(self, name: str, used: Used) -> bool:
        return len(used[name]) < self.model.statements[name].n_dims

    def _components(self, names: Sequence[str], extra: Sequence[tuple[str, str]] = ()) -> list[list[str]]:
        ordered = sorted(names, key=self._position)
        inside = set(names)
        edges = [(a, b) for a in ordered for b in sorted(self.successors[a] & inside)]
        return find_components(ordered, [*edges, *extra])

    def _join_steps(self, names: Sequence[str], used: Used) -> list[list[str]]:
        """The components, a recurrence in one with what reads its steps if they can run in one loop over steps."""
        extra: list[tuple[str, str]] = []
        for steps in self.steps:
            inside = [name for name in steps.dimensions if name in names and steps.dimensions[name] not in used[name]]
            if len(inside) < len(steps.dimensions) or self._find_row_of_steps(inside) is None:
                continue
            if any(used.values()) or self.finder.find_whole(inside, used, 1) is not None:  # a loop around them is parallel
                extra += [(name, steps.writer) for name in inside if name != steps.writer]
        components = self._components(names, extra)
        taken: set[str] = set()
        for part in [p for p in components if self.most_together > 1 and is_recurrence(p, self.successors)]:
            others = [p for p in components if part[0] not in p]
            own = None if taken & {*part} else self._find_own_steps(part, others, used)
            if own is None:
                continue
            share_steps = partial(self._share_steps, own, used)
            if following := find_sharing(self.model, part, others, self.successors, share_steps):
                taken |= following
                extra += [pair for name in sorted(following) for pair in ((name, part[0]), (part[0], name))]
                components = self._components(names, extra)
        return components

    def _find_own_steps(self, names: Sequence[str], others: Sequence[Sequence[str]], used: Used) -> dict[str, int] | None:
        """The dimensions over which a component hands on states step by step; None if it has a parallel row or one loop, or is
        tiled over steps, or no other component needs more than the last states or makes a part of them."""
        n_loops = max(self.model.statements[name].n_dims - len(used[name]) for name in names)
        is_wanted = find_stored(self.model, {*names}) or find_borders(self.model, {*names}, others, self.successors)
        if not is_wanted or (n_loops < 2 and not any(used[name] for name in names)):
            return None
        if n_loops > 1 and self.finder.find_whole(names, used, 2) is not None:
            return None
        rows = self._find_rows(tuple(names), used)
        if not rows.members or rows.is_tiled:
            return None
        moved = {name: [d for d, c in enumerate(row.coefficients) if c] for name, row in rows.members[0].rows.items()}
        is_plain = all(len(dims) <= 1 for dims in moved.values())
        return {name: d for name, dims in moved.items() for d in dims} if is_plain else None

    def _share_steps(self, own: Mapping[str, int], used: Used, names: Set[str], moving: Set[str]) -> bool:
        """Whether a recurrence with its `own` steps, and what follows it a few of them later, share a loop over them, which the
        `moving` ones all go along with."""
        statements = self.model.statements
        dims = {name: statements[name].n_dims for name in sorted(names, key=self._position)}
        steps = align_steps(self.model, names, own)
        following = {name: d for name, d in steps.items() if name not in own}
        alone = tuple(sorted(moving, key=self._position))
        if self.finder.find_whole(alone, used, 2) is None and self._find_rows(alone, used).is_tiled:
            return False  # tiles over steps save more traffic than what it would take in its place
        is_free = all(
            d not in used[n] and (d in statements[n].fixed or sums_up(self.model, n, own.keys())) for n, d in following.items()
        )
        is_left = any(self._has_rows_left(name, used) for name in moving - steps.keys())
        if is_left or not is_free or len(dims) > self.most_together:
            return False
        band = self._pieces_of(dims)
        others = {name: [_unit_row(d, n) for d in range(n) if d != steps.get(name)] for name, n in dims.items()}
        rows = find_shifted_row(dims, band, band, others, self.budget, moving=steps)
        rows = rows if rows is None or is_recurrence([*moving], self.successors) else align_row(rows, band)
        if rows is None:
            return False
        # Points that run their steps apart keep values in registers, which those of other steps would not let them.
        if any(used.values()) and len({rows[name].constant for name in own}) > 1:
            return False
        latest = {name: statements[name].extents[d] // MUCH for name, d in following.items()}
        if any(longest_distance(rows, p) > latest[p.sink] for p in band if p.sink in latest):
            return False
        self.rows_of_steps[frozenset(names)] = rows
        return True

    def _rows_used(self, dims: Mapping[str, int], used: Used) -> dict[str, list[Row]]:
        return {name: [_unit_row(d, n) for d in sorted(used[name])] for name, n in dims.items()}

    def _find_row_of_steps(self, names: Sequence[str]) -> dict[str, Row] | None:
        steps = next((s for s in self.steps if s.dimensions.keys() == set(names)), None)
        if steps is None:
            return self.rows_of_steps.get(frozenset(names))
        rows = {name: _unit_row(d, self.model.statements[name].n_dims) for name, d in steps.dimensions.items()}
        return rows if all(respects(rows, piece) for piece in self._pieces_of(rows)) else None

    def _position(self, name: str) -> int:
        return self.model.statements[name].position

    def _single(self, names: tuple[str, ...], used: Used) -> Group:
        left = [self._has_rows_left(name, used) for name in names]
        if not any(left):
            return Group(names, None)
        tier = 1 if self._find_row_of_steps(names) is not None else 2
        group = self.finder.find_whole(names, used, tier) if all(left) else None
        return group or Group(names, None, is_recurrence=True)

    def _descend(self, group: Group, used: Used, members: tuple[Member, ...]) -> Node:
        """Put the group's row into the current band (rows without dependences across them permute) and go on below."""
        if group.is_recurrence:
            return self._extend_recurrence(group.names, used, members)
        if group.choice is None:
            return self.schedule(group.names, used, members)
        row, statements = group.choice.row, self.model.statements
        rows = {n: _unit_row(row[n], statements[n].n_dims) for n in group.names}
        inner = {**used, **{name: used[name] | {row[name]} for name in group.names}}
        return self.schedule(group.names, inner, (*members, Member(KINDS[group.choice.tier], rows)))

    def _extend_recurrence(self, names: tuple[str, ...], used: Used, members: tuple[Member, ...]) -> Node:
        """Sequential rows for one component: a permutable band down to the last dimension if there is one, else its first row
        and, in a new band without the dependences that row carries, whatever is then possible."""
        steps = self._find_row_of_steps(names)
        if steps is not None:
            kind = self._kind(steps, self._pieces_of(names))
            return self._below_first_row(names, used, members, Member(kind, steps, kind))
        rows = self._find_rows(names, used)
        if not rows.members:
            raise NoRow(names)
        if not rows.is_band:
            return self._below_first_row(names, used, members, rows.members[0])
        found, before_last = [*rows.members], rows.pending[-1]
        if len(found) > 1 and found[-1].kind_inside != "P":
            found[-2:], before_last = self._turn_parallel_inside(found[-2], found[-1], *rows.pending[-2:])
        if len(names) > 1 and len(found) > 1:
            order = self._order_apart(names, found[-1].rows, before_last)
            if order is not None:
                found[-1] = replace(found[-1], apart=order)
                return _close((*members, *found), [Leaf(name) for name in order])
        return _close((*members, *found), [self._with_pieces(names, rows.remaining).schedule(names, rows.used)])

    def _find_rows(self, names: tuple[str, ...], used: Used) -> SequentialRows:
        """Rows of one permutable band for one component, as many as there are."""
        asked = names, *(used[name] for name in names)
        if asked in self.rows_found:
            return self.rows_found[asked]
        dims = {name: self.model.statements[name].n_dims for name in names}
        earlier = self._rows_used(dims, used)
        band = remaining = self._pieces_of(names)
        pending: list[list[Piece]] = []
        found: list[Member] = []
        inner: dict[str, frozenset[int]] = dict(used)
        moving = [name for name in names if self._has_rows_left(name, used)]  # the others are points of the first row
        while moving and all(len(inner[name]) < dims[name] for name in moving):
            rows = find_sequential_row(dims, band, remaining, earlier, self.budget, self.model)
            if rows is None:
                break
            found.append(Member(self._kind(rows, band), rows, self._kind(rows, remaining)))
            for name, row in rows.items():
                earlier[name].append(row)
                # The rows so far take the places of these indices, and the others stay independent of them.
                inner[name] = frozenset(pivot_columns([list(r.coefficients) for r in earlier[name]], dims[name]))
            pending.append(remaining)
            remaining = [rest for piece in remaining if (rest := not_carried(rows, piece)) is not None]
        is_band = len(names) == 1 or (len(moving) == len(names) and all(len(inner[name]) == dims[name] for name in names))
        if found and not is_band and not any(used.values()):
            first = keep_fewer(self.model, dims, found[0].rows, band, self.budget)
            found = [Member(self._kind(first, band), first, self._kind(first, band))]
        rows_found = SequentialRows(tuple(found), pending, remaining, inner, is_band)
        return self.rows_found.setdefault(asked, rows_found)

    def _turn_parallel_inside(
        self, outer: Member, inner: Member, around: list[Piece], between: list[Piece]
    ) -> tuple[list[Member], list[Piece]]:
        """Two members of a band, in the order that makes the inner one parallel if one does, and the dependences inside the
        outer one; `around` are those inside the loops around both, `between` those that `outer` leaves of them."""
        rest = [left for piece in around if (left := not_carried(inner.rows, piece)) is not None]
        kind = self._kind(outer.rows, rest)
        if kind != "P":
            return [outer, inner], between
        turned = replace(inner, inner=self._kind(inner.rows, around))
        return [turned, replace(outer, inner=kind)], rest

    def _order_apart(self, names: Sequence[str], rows: Mapping[str, Row], pieces: list[Piece]) -> dict[str, Kind] | None:
        """Statements in the order in which each may run in a loop of its own, where `pieces` are the dependences inside the
        loops around; None where some need each other, and where no loop becomes parallel by that."""
        if any(len(self.model.statements[name].fixed) < self.model.statements[name].n_dims for name in names):
            return None  # initial values of reductions have a place above their loops
        edges = [(p.source, p.sink) for p in pieces if p.source != p.sink]
        components = find_components(sorted(names, key=self._position), edges)
        if any(len(part) > 1 for part in components):
            return None
        kinds: dict[str, Kind] = {}
        for (name,) in components:
            own = [p for p in pieces if p.source == p.sink == name]
            kinds[name] = "P" if all(coincides(rows, p) for p in own) else "S"
        together = all(coincides(rows, p) for p in pieces)
        return None if together or "P" not in kinds.values() else kinds

    def _below_first_row(self, names: tuple[str, ...], used: Used, members: tuple[Member, ...], first: Member) -> Node:
        rest = [left for piece in self._pieces_of(names) if (left := not_carried(first.rows, piece)) is not None]
        inner = {**used}
        for name, row in first.rows.items():
            fresh = (d for d, c in enumerate(row.coefficients) if c and d not in used[name])
            inner[name] = used[name] | set(islice(fresh, 1))
        return _close((*members, first), [self._with_pieces(names, rest).schedule(names, inner)])

    def _pieces_of(self, names: Collection[str]) -> list[Piece]:
        return [p for p in self.pieces if p.source in names and p.sink in names]

    def _with_pieces(self, names: tuple[str, ...], pieces: list[Piece]) -> Merger:
        """The same statements with what is left of their dependences."""
        model = replace(self.model, edges=edges_of_pieces(pieces))
        return Merger(model, self.make_finder, tuple(pieces), self.budget, self.most_together, self.target)

    def _kind(self, rows: Mapping[str, Row], band: list[Piece]) -> Kind:
        """Members of a band may change places, so what counts is all dependences of the band, carried by others or not."""
        if not all(coincides(rows, piece) for piece in band):
            return "S"
        statements = self.model.statements
        moved = {name: {d for d, c in enumerate(row.coefficients) if c} for name, row in rows.items()}
        return "P" if all(dims <= statements[name].fixed for name, dims in moved.items()) else "R"

    def _try_whole(self, names: Sequence[str], singles: list[Group], used: Used) -> Group | None:
        choices = [group.choice for group in singles]
        if any(choice is None or choice.tier != 1 for choice in choices):
            return None
        if len(names) > self.most_together:
            return None
        whole = self.finder.find_whole(tuple(sorted(names, key=self._position)), used, 1)
        if whole is None or whole.choice is None:
            return None
        apart = sum(choice.contiguity for choice in choices if choice is not None)
        return whole if whole.choice.contiguity <= apart + TOLERANCE * whole.choice.largest else None

    def _try_merge(self, a: Group, b: Group, used: Used) -> Group | None:
        if len(a.names) + len(b.names) > self.most_together:
            return None
        if a.is_recurrence or b.is_recurrence:
            return self._try_merge_recurrence(a, b, used)
        if a.choice is None or b.choice is None:
            return None
        inside = set(b.names)
        if not any(self.related[name] & inside for name in a.names) and (
            a.choice.tier != b.choice.tier or not any(self.linked[name] & inside for name in a.names)
        ):
            return None
        joined = self.finder.join(a, b, used, max(a.choice.tier, b.choice.tier))
        if joined is None or joined.choice is None or IN_ORDER in (a.choice.tier, b.choice.tier):
            return self._carry_sums(a, b, used)
        limit = a.choice.contiguity + b.choice.contiguity + TOLERANCE * joined.choice.largest
        if joined.choice.contiguity <= limit:
            return joined
        return joined if joined.choice.contiguity <= limit + fusion_gain(self.model, joined.names, (a.names, b.names)) else None

    def _carry_sums(self, a: Group, b: Group, used: Used) -> Group | None:
        """Below a loop that all share: both groups in order along what sums add up, where storing that costs more.  Other sums
        and terms of the same follow, as they come to be merged."""
        passed = passed_tensors(a, b, self.model)
        together = {*a.names, *b.names}.union(*(self.model.readers[t] for t in passed))
        if self.target is None or not passed or not all(used[name] for name in together):
            return None
        whole = self.finder.find_whole(tuple(sorted(together, key=self._position)), used, 2)
        joined = None if whole is None else self.finder.join(a, b, used, 2)
        if whole is None or joined is None or joined.choice is None:
            return None
        is_free = has_no_more_sums(joined, a, b, self.model)
        if not is_free and not is_carried(whole, passed, used, self.model, self.target):
            return None
        return replace(joined, choice=replace(joined.choice, tier=IN_ORDER))

    def _try_merge_recurrence(self, a: Group, b: Group, used: Used) -> Group | None:
        """A scan takes in its elementwise neighbours below a parallel loop: it costs no parallelism then.

        Outside of such loops recurrences along one dimension take in each other where one of them is no scan: the processor
        waits for its steps, and does those of the other one meanwhile."""
        names = tuple(sorted((*a.names, *b.names), key=self._position))
        waits = any(g.is_recurrence and not all(self.model.statements[n].is_scan for n in g.names) for g in (a, b))
        is_outermost = not any(used[n] for n in names)
        if is_outermost and not (waits and a.is_recurrence and b.is_recurrence):
            return None
        left: dict[str, int] = {}
        for name in names:
            s = self.model.statements[name]
            free = [d for d in range(s.n_dims) if d not in used[name]]
            if len(free) != 1 or bool(used[name]) == is_outermost or len(s.fixed) != s.n_dims:
                return None
            left[name] = free[0]
        first, second = set(a.names), set(b.names)
        crossing = [
            e for e in self.model.edges if (e.source in first and e.sink in second) or (e.source in second and e.sink in first)
        ]
        if not crossing or not all(is_outermost or (left[e.source], left[e.sink]) in e.unit_pairs for e in crossing):
            return None
        # One that walks forwards and one that walks backwards have no loop in common.
        pieces = self._pieces_of(names)
        dims = {name: self.model.statements[name].n_dims for name in names}
        if find_sequential_row(dims, pieces, pieces, self._rows_used(dims, used), self.budget) is None:
            return None
        return Group(names, None, is_recurrence=True)

    def _merge_greedily(self, singles: list[Group], used: Used) -> list[Group]:
        """Components in topological order, each into the earliest group that follows all it needs and accepts it."""
        groups: list[Group] = []
        place: dict[str, int] = {}
        before: dict[str, set[str]] = {}
        for source, sinks in self.successors.items():
            for sink in sinks:
                before.setdefault(sink, set()).add(source)
        for single in singles:
            needed = [place[p] for name in single.names for p in before.get(name, ()) if p in place]
            near = {place[p] for name in single.names for p in self.related[name] | self.linked[name] if p in place}
            earliest = max(needed, default=0)
            position = len(groups)
            for n in sorted(n for n in near if n >= earliest):
                joined = self._try_merge(groups[n], single, used)
                if joined is not None:
                    groups[n], position = joined, n
                    break
            else:
                groups.append(single)
            for name in single.names:
                place[name] = position
        return groups

    def _merge_pairs(self, groups: list[Group], used: Used) -> list[Group]:
        """Merge whole groups while some pair accepts and no dependence leads from one to the other through a third."""
        refused: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
        groups = sort_groups(groups, self.successors, self._position)
        changed = True
        while changed and len(groups) > 1:
            changed = False
            place = {name: n for n, group in enumerate(groups) for name in group.names}
            following = group_graph(groups, place, self.successors)
            for i, group in enumerate(groups):
                near = {place[p] for name in group.names for p in self.related[name] | self.linked[name] if p in place}
                for j in sorted(n for n in near if n > i):
                    key = (group.names, groups[j].names)
                    if key in refused or has_detour(following, i, j):
                        continue
                    joined = self._try_merge(group, groups[j], used)
                    if joined is None:
                        refused.add(key)
                        continue
                    rest = [*(g for n, g in enumerate(groups) if n not in (i, j)), joined]
                    groups = sort_groups(rest, self.successors, self._position)
                    changed = True
                    break
                if changed:
                    break
        return groups


def _unit_row(d: int, n_dims: int) -> Row:
    return Row(tuple(int(e == d) for e in range(n_dims)))


def _close(members: tuple[Member, ...], children: list[Node]) -> Node:
    flat: list[Node] = []
    for child in children:
        flat.extend(child.children if isinstance(child, SequenceNode) else (child,))
    node: Node = flat[0] if len(flat) == 1 else SequenceNode(tuple(flat))
    return Band(members, node) if members else node
