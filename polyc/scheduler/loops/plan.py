"""Turn the rows of a scheduler into planned loops: tile bands, sink point loops to the innermost nests.

Below the tile loops each statement (or group of statements that share one innermost band) keeps point loops of its own.
`band_tiles` decides the sizes of tiles, `nest` the loops inside of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from polyc.poly.rows import Band, Leaf, Node, Sequence, all_leaves, statements_of
from polyc.poly.tree import Plan, PlanLeaf, PlanLoop, make_sequence
from polyc.scheduler.loops.band_tiles import BandTiles
from polyc.scheduler.loops.member_view import MemberView, make_loop
from polyc.scheduler.loops.nest import NestPlanner, Point


class Planner:
    """Walks the bands from the outside; `plan` is the whole of it."""

    def __init__(self, view: MemberView) -> None:
        self.view = view
        self.bands = BandTiles(view)
        self.nests = NestPlanner(view, self.bands.columns)

    def plan(self, node: Node, points: tuple[Point, ...] = ()) -> Plan:
        match node:
            case Leaf():
                return self.nests.plan_nest([node.statement], (), points)
            case Sequence():
                if not points and all_leaves(node):
                    return make_sequence([PlanLeaf(n) for n in statements_of(node)])
                return make_sequence(self._plan_parts(node.children, points))
            case Band():
                return self._plan_band(node, points)

    def _plan_parts(self, parts: tuple[Node, ...], points: tuple[Point, ...]) -> list[Plan]:
        """The parts of a sequence below tiles.  Contractions that hold none of a tile's rows in registers go through these
        one after the other, together with the copies beside them: ``k by 6 { … ; k { pack ; h by 2 { init ; r { S } } } }``."""
        foreign = [tuple(p for p in points if self._is_foreign(part, p)) for part in parts]
        plans: list[Plan] = []
        for outside, run in groupby(range(len(parts)), key=lambda n: foreign[n]):
            inside = tuple(p for p in points if p not in outside)
            children = [self._plan_together([parts[n] for n in same], inside) for same in self._runs_of_writes(run, parts)]
            if not outside:
                plans += children
                continue
            plan = make_sequence(children)
            for p in reversed(outside):
                plan = make_loop(p.member, plan, "point", p.size)
            plans.append(plan)
        return plans

    def _runs_of_writes(self, run: Iterable[int], parts: tuple[Node, ...]) -> Iterator[list[int]]:
        """Parts in runs that share the loops over the points of a tile: statements that write elements of the same array by
        turns, of which each alone would write parts of its lines."""
        for target, numbers in groupby(run, key=lambda n: self._written(parts[n])):
            together = list(numbers)
            yield from [together] if target else [[n] for n in together]

    def _written(self, part: Node) -> str:
        """The tensor that a part of one statement without a sum writes; "" of other parts."""
        if not isinstance(part, Leaf) or part.statement.startswith("init_"):
            return ""
        s = self.view.statement(part.statement)
        return "" if s.is_reduction else s.target

    def _plan_together(self, parts: list[Node], points: tuple[Point, ...]) -> Plan:
        if len(parts) == 1:
            return self.plan(parts[0], points)
        return self.nests.plan_nest([n for part in parts for n in statements_of(part)], (), points)

    def _is_foreign(self, part: Node, point: Point) -> bool:
        """Whether tiles were chosen for all statements of a part without the rows of a tile around."""
        if point.member.kind != "P" or (isinstance(part, Leaf) and not part.statement.startswith("init_")):
            return False
        for name in statements_of(part):
            tile = self.view.tiles.get(name.removeprefix("init_"))
            if tile is None or name not in point.member.rows:
                return False
            index = self.view.index(point.member, name)
            is_alone = isinstance(part, Leaf) or not name.startswith("init_")
            if index is None or (is_alone and (tile.vector == index or tile.sizes.get(index, 1) > 1)):
                return False
        return True

    def _plan_band(self, band: Band, points: tuple[Point, ...]) -> Plan:
        if band.members[-1].apart is not None and not points and all_leaves(band.child):
            return self.nests.plan_apart(band.members, list(statements_of(band.child)))
        leaf = band.child.statement if isinstance(band.child, Leaf) else None
        is_blocked = leaf is not None and any(self.view.sums(p.member, leaf) for p in points)
        # What is left of the sum is ordered together with the block of the index that is cut.
        is_blocked = is_blocked and not all(self.view.sums(m, leaf or "") for m in band.members)
        if not is_blocked and all_leaves(band.child):
            return self.nests.plan_nest(list(statements_of(band.child)), band.members, points)
        tile = self.bands.wanted_tile(band) if self.view.options.tile else None
        sizes = {} if tile is None else self.bands.member_sizes(band, tile)
        # Tiles of outer bands were cut for heavier statements: inside of them this one cuts its own.
        finer = {n: w for n, p in enumerate(points) if tile is not None and (w := self.bands.finer(p, tile)) is not None}
        lines = self.bands.line_sizes(band, sizes) if self.view.options.tile else {}
        outer = [n for n in range(len(band.members)) if n not in sizes]
        tiled = [n for n in range(len(band.members)) if n in sizes]
        tiled.sort(key=lambda n: -sizes[n])  # the widest tile outermost: its panel is reused by the tiles inside
        cut = tuple(replace(p, size=finer.get(n, p.size)) for n, p in enumerate(points))
        of_lines = tuple(Point(band.members[n], size) for n, size in lines.items())
        new_points = cut + of_lines + tuple(Point(band.members[n], sizes[n]) for n in tiled)
        plan = self.plan(band.child, new_points)
        for n in reversed(finer):
            plan = replace(make_loop(points[n].member, plan, "tile", finer[n]), period=points[n].size)
        block = self.bands.block_size(band, sizes, tiled)
        for n in reversed(tiled):
            loop = make_loop(band.members[n], plan, "tile", sizes[n])
            if n == tiled[0] and block > sizes[n]:
                # The block's tiles innermost: its panel stays in the cache while the other tiles pass.
                continue
            plan = loop
        if tiled and block > sizes[tiled[0]]:
            n = tiled[0]
            plan = self._insert_below(
                plan, len(tiled) - 1, replace(make_loop(band.members[n], plan, "tile", sizes[n]), period=block)
            )
            plan = make_loop(band.members[n], plan, "tile", block)
        for n in reversed(outer):
            m = band.members[n]
            plan = make_loop(m, plan, "tile", lines[n]) if n in lines else make_loop(m, plan)
        return plan

    def _insert_below(self, plan: Plan, depth: int, loop: PlanLoop) -> Plan:
        """Put `loop` under the outermost `depth` loops of `plan`."""
        if depth == 0:
            return replace(loop, child=plan)
        assert isinstance(plan, PlanLoop)
        return replace(plan, child=self._insert_below(plan.child, depth - 1, loop))


def merge_bands(node: Node) -> Node:
    """Before: a band directly inside a band.  After: one band (all rows have distance zero, so it is permutable)."""
    match node:
        case Leaf():
            return node
        case Sequence():
            return Sequence(tuple(merge_bands(c) for c in node.children))
        case Band():
            child = merge_bands(node.child)
            if isinstance(child, Band) and all(m.kind != "S" for m in node.members + child.members):
                return Band(node.members + child.members, child.child)
            return Band(node.members, child)
