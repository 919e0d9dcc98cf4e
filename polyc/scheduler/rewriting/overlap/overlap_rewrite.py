"""Tiles and their producers as statements: the rewriting of the program behind `overlap`, and the proof of its reads.

Before: ``R[y, x] = f(X)`` and ``Y[y, x] = R[y, x] + R[y + 2, x]``.
After:  ``R.tile[t, v, x] = f(X)`` at ``y = 32*t + v`` for ``v in 0:34``, and
``Y[32*t + v, x] = R.tile[t, v, x] + R.tile[t, v + 2, x]`` for ``v in 0:32``.
"""

from __future__ import annotations

from collections.abc import Collection

from polyc.diagnostics import CompileBudgetError
from polyc.ir.expr import Call, Expr, Index, Pad, Read, Select, ceil_div, ge, int_const, lt, rewrite, substitute
from polyc.ir.program import Program, Reduction, Statement
from polyc.ir.read_sites import collect_reads
from polyc.ir.simplify import form_expr, simplify
from polyc.poly import isl
from polyc.poly.domains import reads_within
from polyc.poly.extraction import place_inside
from polyc.poly.points import Points, points_of
from polyc.poly.ranges import Interval, Ranges
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.builder import ProgramBuilder
from polyc.scheduler.rewriting.overlap.overlap_boxes import Box, Boxes, Root, tile_name

QUOTA = 2_000_000
"""isl operations for the proof that a tile computes all that it reads."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Consumers, their producers in an order of readers before writers, tile sizes by index of the first consumer."""

    roots: tuple[Root, ...]
    producers: tuple[Statement, ...]
    sizes: dict[str, int]
    boxes: Boxes

    @property
    def statements(self) -> tuple[Statement, ...]:
        return (*(root.statement for root in self.roots), *self.producers)


def store_apart(program: Program, ranges: Ranges, s: Statement) -> tuple[Program, Ranges, Statement]:
    """Before: ``Y[e] += f``.  After: ``Y.sum[e] += f ; Y[e] = Y.sum[e]``; the store is returned too.

    A tile of the result is then written where it belongs when it is complete."""
    builder = ProgramBuilder(program, ranges)
    total = builder.add_temporary(s, "sum", ranges.tensors[s.target])
    # Elements that no point reduces into have their initial value: the store runs over the whole box.
    box = builder.box(builder.own[s.name].indices, s.left_indices)
    points = Points(box.indices, box.domain.intersect_params(ranges.context))
    store = builder.assign(f"{s.name}_store", s.target, s.subscripts, Read(total, s.subscripts), points, s)
    return *builder.replace([s], [replace(s, target=total), store]), store


def tile_cluster(program: Program, ranges: Ranges, cluster: Cluster) -> tuple[Program, Ranges] | None:
    """The program with the consumer of a cluster in tiles, and its producers computed for each tile.

    None where not all that a tile reads is proved to be computed for it."""
    maker = _Maker(ProgramBuilder(program, ranges), cluster)
    made = {s.name: maker.tile_statement(s) for s in cluster.statements}
    maker.builder.statements += [made.get(s.name, s) for s in program.statements]
    try:
        with isl.operation_quota(QUOTA, "the proof of overlapping tiles"):
            return maker.builder.finish() if maker.is_covered(made.values()) else None
    except CompileBudgetError:
        return None


class _Maker:
    def __init__(self, builder: ProgramBuilder, cluster: Cluster) -> None:
        self.builder, self.ranges, self.cluster = builder, builder.ranges, cluster
        first = cluster.roots[0]
        root = builder.own[first.statement.name].indices
        self.roots = {root.statement.name: root for root in cluster.roots}
        self.tiles: dict[str, Interval] = {}
        self.conditions: list[Expr] = []
        for i, size in cluster.sizes.items():
            extent = root[i].extent
            t = Index(tile_name(i))
            self.tiles[t.name] = Interval(int_const(0), simplify(ceil_div(extent, size)))
            self.conditions += [ge(t, 0), lt(size * t, extent)]
        self.names = {t: builder.temporary(f"{t}.tile", self._shape(t), builder.tensor(t)) for t in cluster.boxes}
        tiles = {t: builder.tensor(name) for t, name in self.names.items()}
        builder.tensors = [tiles.get(t.name, t) for t in builder.program.tensors]

    def _shape(self, name: str) -> tuple[Interval, ...]:
        """Of the dimensions of a tile of tensor `name`: numbers of the tile, then its own that are more than a point."""
        own = zip(self.cluster.boxes[name], self.ranges.tensors[name], strict=True)
        places = (i if box is None else Interval(int_const(0), int_const(box.extent)) for box, i in own if not _is_point(box))
        return (*self.tiles.values(), *places)

    # -- statements
    def tile_statement(self, s: Statement) -> Statement:
        boxes = self._index_boxes(s)
        inner = {i: f"{i}.in" for i in boxes}
        while set(inner.values()) & set(s.indices):
            inner = {i: f"{name}_" for i, name in inner.items()}
        values: dict[str, Expr] = {}
        conditions, new = list(self.conditions), dict(self.tiles)
        for i, box in boxes.items():
            place = form_expr(box.lower)
            if not _is_point(box):
                local = Index(inner[i])
                conditions += [ge(local, 0), lt(local, box.extent)]
                new[local.name] = Interval(int_const(0), int_const(box.extent))
                place = place + local
            values[i] = simplify(place)
        order = (*self.tiles, *(inner.get(i, i) for i in s.indices if not _is_point(boxes.get(i))))
        points = self.builder.points(s).move(order, new, values, conditions)

        def change(expr: Expr) -> Expr:
            return self._redirect(substitute(expr, values))

        reduction, region = s.reduction, None
        target, subscripts = s.target, tuple(simplify(substitute(e, values)) for e in s.subscripts)
        if s.name not in self.roots:
            pairs = zip(s.subscripts, self.cluster.boxes[s.target], strict=True)
            kept = [inner.get(e.name, e.name) for e, box in pairs if isinstance(e, Index) and not _is_point(box)]
            target, subscripts = self.names[s.target], tuple(map(Index, (*self.tiles, *kept)))
            if reduction is not None:  # the elements of a tile that are elements of the whole tensor
                region = self.builder.elements(s).move((*self.tiles, *kept), new, values, conditions)
                reduction = Reduction(reduction.op, change(reduction.init))
        value = change(self._expand_pads(s, s.value))
        return self.builder.assign(s.name, target, subscripts, value, points, s, reduction, (), region)

    def _index_boxes(self, s: Statement) -> dict[str, Box]:
        """Where each index runs inside a tile, for those that the tile confines."""
        if s.name in self.roots:
            moved = self.roots[s.name].moved(self.cluster.sizes, self.ranges)
            return {i: box for i, box in moved.items() if box is not None}
        pairs = zip(s.subscripts, self.cluster.boxes[s.target], strict=True)
        return {e.name: box for e, box in pairs if isinstance(e, Index) and box is not None}

    def _expand_pads(self, s: Statement, value: Expr) -> Expr:
        """``pad(R[…], v)`` of a tensor of the cluster, which is no whole tensor any more → ``inside ? R[…] : v``."""
        points = points_of(s, self.ranges.statements[s.name])

        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Pad) or node.read.tensor not in self.names:
                return None
            condition: Expr | None = None
            inside: list[Expr] = []
            for sub, whole in zip(node.read.subscripts, self.ranges.tensors[node.read.tensor], strict=True):
                place = simplify(sub - whole.lower)
                if node.mode != "value":
                    moved = place_inside(place, whole.extent, node.mode)
                    inside.append(simplify(moved + whole.lower))
                for test in (ge(place, 0), lt(place, whole.extent)):
                    if not points.satisfy(test):
                        condition = test if condition is None else Call("and", (condition, test))
            if condition is None:
                return node.read
            other = node.value if node.mode == "value" else Read(node.read.tensor, tuple(inside), node.read.span)
            return Select(condition, node.read, other, node.span)

        return rewrite(value, rule)

    def _redirect(self, value: Expr) -> Expr:
        """Reads of whole tensors → reads of their tiles."""

        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Read) or node.tensor not in self.names:
                return None
            pairs = zip(node.subscripts, self.cluster.boxes[node.tensor], strict=True)
            places = [e if box is None else simplify(e - form_expr(box.lower)) for e, box in pairs if not _is_point(box)]
            return Read(self.names[node.tensor], (*map(Index, self.tiles), *places), node.span)

        return rewrite(value, rule)

    # -- the proof
    def is_covered(self, made: Collection[Statement]) -> bool:
        """Whether every element that is read of a tile is one that the tile computes: of a reduction, or gives its initial
        value."""
        written: dict[str, isl.Set] = {}
        for s in made:
            own = self.builder.own[s.name]
            if s.name not in self.roots:
                whole = self.builder.points(s).project(s.element_names).domain if own.region is None else own.region
                written[s.target] = whole.set_tuple_name(s.target)
        for s in made:
            domain = self.builder.own[s.name].domain.intersect_params(self.ranges.context)
            for site in collect_reads(s):
                name = site.read.tensor
                if name in written and not reads_within(site, domain, s.indices, written[name]):
                    return False
        return True


def _is_point(box: Box | None) -> bool:
    """A box of one element needs no dimension: the tile says where it is."""
    return box is not None and box.extent == 1
