"""Tiles and their producers as statements: the rewriting of the program behind `overlap`, and the proof of its reads.

Before: ``R[y, x] = f(X)`` and ``Y[y, x] = R[y, x] + R[y + 2, x]``.
After:  ``R.tile[t, v, x] = f(X)`` at ``y = 32*t + v`` for ``v in 0:34``, and
``Y[32*t + v, x] = R.tile[t, v, x] + R.tile[t, v + 2, x]`` for ``v in 0:32``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from polyc.diagnostics import CompileBudgetError
from polyc.ir.expr import Expr, Index, Pad, Read, ceil_div, ge, int_const, lt, rewrite, substitute
from polyc.ir.program import Program, Reduction, Statement
from polyc.ir.read_sites import collect_reads
from polyc.ir.simplify import form_expr, simplify
from polyc.poly import isl
from polyc.poly.domains import reads_within
from polyc.poly.extraction import write_out_pad
from polyc.poly.footprints import Box, Boxes, index_boxes, root_boxes, tile_name
from polyc.poly.points import Points, points_of
from polyc.poly.ranges import GuardedSubscript, Interval, Ranges
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.builder import ProgramBuilder
from polyc.scheduler.rewriting.overlap.costs import Estimate
from polyc.scheduler.rewriting.reindexing import map_reads

QUOTA = 2_000_000
"""isl operations for the proof that a tile computes all that it reads."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Consumers, their producers in an order of readers before writers, tile sizes by index of the first consumer."""

    roots: tuple[Statement, ...]
    producers: tuple[Statement, ...]
    sizes: Mapping[str, int]
    boxes: Boxes
    estimate: Estimate

    @property
    def statements(self) -> tuple[Statement, ...]:
        return (*self.roots, *self.producers)

    @property
    def gain(self) -> float:
        return self.estimate.whole - self.estimate.tiled


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
    guarded = (g for s in cluster.statements for g in ranges.statements[s.name].guards if g.read.tensor in cluster.boxes)
    if any(cluster.boxes[g.read.tensor][g.dimension] is not None for g in guarded):
        return None  # only data tells whether a tensor that a tile has a part of is empty
    maker = _Maker(ProgramBuilder(program, ranges), cluster)
    made = {s.name: maker.tile_statement(s) for s in cluster.statements}
    # Parts of a tensor that write between the elements which a tile reads are gone.
    parts = {n for n, s in made.items() if n not in maker.roots and not s.has_plain_left}
    gone = {n for n in parts if maker.builder.own[n].domain.is_empty()}
    maker.builder.statements += [made.get(s.name, s) for s in program.statements if s.name not in gone]
    try:
        with isl.operation_quota(QUOTA, "the proof of overlapping tiles"):
            return maker.builder.finish() if maker.is_covered([s for n, s in made.items() if n not in gone]) else None
    except CompileBudgetError:
        return None


class _Maker:
    def __init__(self, builder: ProgramBuilder, cluster: Cluster) -> None:
        self.builder, self.ranges, self.boxes = builder, builder.ranges, cluster.boxes
        self.roots = root_boxes(cluster.roots, cluster.sizes, self.ranges)
        first = self.ranges.statements[cluster.roots[0].name].indices
        self.tiles: dict[str, Interval] = {}
        self.conditions: list[Expr] = []
        for i, size in cluster.sizes.items():
            t, extent = Index(tile_name(i)), first[i].extent
            self.tiles[t.name] = Interval(int_const(0), simplify(ceil_div(extent, size)))
            self.conditions += [ge(t, 0), lt(size * t, extent)]
        self.names = {t: builder.temporary(tile_name(t), self._shape(t), builder.tensor(t)) for t in cluster.boxes}
        tiles = {t: builder.tensor(name) for t, name in self.names.items()}
        builder.tensors = [tiles.get(t.name, t) for t in builder.program.tensors]

    def _kept(self, tensor: str, parts: Iterable[T]) -> list[tuple[T, Box | None]]:
        """What stands at the dimensions of a tensor that its tiles have, with the boxes there: a box of one element needs no
        dimension, as the tile says where it is."""
        return [(x, box) for x, box in zip(parts, self.boxes[tensor], strict=True) if box is None or box.extent != 1]

    def _inside(self, tensor: str, subscripts: Iterable[Expr]) -> list[Expr]:
        """Subscripts of a whole tensor as places in its tile."""
        return [e if box is None else simplify(e - form_expr(box.lower)) for e, box in self._kept(tensor, subscripts)]

    def _shape(self, name: str) -> tuple[Interval, ...]:
        """Of the dimensions of a tile of tensor `name`: numbers of the tile, then its own."""
        own = self._kept(name, self.ranges.tensors[name])
        return (*self.tiles.values(), *(i if box is None else box.interval for i, box in own))

    # -- statements
    def tile_statement(self, s: Statement) -> Statement:
        boxes = index_boxes(s, self.roots, self.boxes)
        inner = {i: f"{i}.in" for i in boxes}
        while set(inner.values()) & set(s.indices):
            inner = {i: f"{name}_" for i, name in inner.items()}
        values: dict[str, Expr] = {}
        conditions, new = list(self.conditions), dict(self.tiles)
        for i, box in boxes.items():
            values[i] = form_expr(box.lower)
            if box.extent != 1:
                local, new[inner[i]] = Index(inner[i]), box.interval
                conditions += [ge(local, 0), lt(local, box.extent)]
                values[i] = simplify(values[i] + local)
        order = (*self.tiles, *(inner.get(i, i) for i in s.indices if i not in boxes or boxes[i].extent != 1))
        reduction, region = s.reduction, None
        target, subscripts = s.target, tuple(simplify(substitute(e, values)) for e in s.subscripts)
        if s.name not in self.roots:
            if not s.has_plain_left:  # a part of the tensor: what it writes into this tile
                boxed = [(e, form_expr(box.lower), box) for e, box in zip(subscripts, self.boxes[s.target], strict=True) if box]
                conditions += [c for e, lower, box in boxed for c in (ge(e, lower), lt(e, lower + box.extent))]
            target, subscripts = self.names[s.target], (*map(Index, self.tiles), *self._inside(s.target, subscripts))
            if reduction is not None:  # the elements of a tile that are elements of the whole tensor
                names = [e.name for e in subscripts if isinstance(e, Index)]
                region = self.builder.elements(s).move(names, new, values, conditions)
                reduction = Reduction(reduction.op, self._redirect(substitute(reduction.init, values)))
        points = self.builder.points(s).move(order, new, values, conditions)
        value = self._redirect(substitute(self._expand_pads(s), values))
        guards = tuple(self._move_guard(g, values) for g in self.ranges.statements[s.name].guards)
        return self.builder.assign(s.name, target, subscripts, value, points, s, reduction, guards, region)

    def _move_guard(self, g: GuardedSubscript, values: Mapping[str, Expr]) -> GuardedSubscript:
        """The guard of a read in a tile: the user is shown the dimension of the whole tensor."""
        moved, boxes = g.map(lambda e: self._redirect(substitute(e, values))), self.boxes.get(g.read.tensor)
        if boxes is None:
            return moved
        shown = g.shown or (self.builder.tensor(self.names[g.read.tensor]).base, g.dimension)
        kept = self._kept(g.read.tensor, range(len(boxes)))
        number = len(self.tiles) + next(n for n, (d, _) in enumerate(kept) if d == g.dimension)
        return replace(moved, dimension=number, shown=shown)

    def _expand_pads(self, s: Statement) -> Expr:
        """``pad(R[…], v)`` of a tensor of the cluster, which is no whole tensor any more → ``inside ? R[…] : v``."""
        points = points_of(s, self.ranges.statements[s.name])

        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Pad) or node.read.tensor not in self.names:
                return None
            return write_out_pad(node, self.ranges.tensors[node.read.tensor], points.satisfy, is_in_tile=True)

        return rewrite(s.value, rule)

    def _redirect(self, value: Expr) -> Expr:
        """Reads of whole tensors → reads of their tiles."""

        def move(read: Read) -> Expr:
            if read.tensor not in self.names:
                return read
            places = self._inside(read.tensor, read.subscripts)
            return Read(self.names[read.tensor], (*map(Index, self.tiles), *places), read.span)

        return map_reads(value, move)

    # -- the proof
    def is_covered(self, made: Collection[Statement]) -> bool:
        """Whether every element that is read of a tile is one that the tile computes: of a reduction, or gives its initial
        value."""
        own, written = self.builder.own, dict[str, isl.Set]()
        for s in (s for s in made if s.name not in self.roots):
            points, region = self.builder.points(s), own[s.name].region
            if region is None and s.has_plain_left:
                region = points.project(s.element_names).domain
            part = points.access(s.target, s.subscripts).range() if region is None else region.set_tuple_name(s.target)
            written[s.target] = written[s.target].union(part) if s.target in written else part
        for s in made:
            domain = own[s.name].domain.intersect_params(self.ranges.context)
            sites = (site for site in collect_reads(s) if site.read.tensor in written)
            if not all(reads_within(site, domain, s.indices, written[site.read.tensor]) for site in sites):
                return False
        return True
