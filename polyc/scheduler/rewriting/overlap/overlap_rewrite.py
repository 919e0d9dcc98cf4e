"""Tiles and their producers as statements: the rewriting of the program behind `overlap`, and the proof of its reads.

Before: ``R[y, x] = f(X)`` and ``Y[y, x] = R[y, x] + R[y + 2, x]``.
After:  ``R.tile[t, v, x] = f(X)`` at ``y = 32*t + v`` for ``v in 0:34``, and
``Y[32*t + v, x] = R.tile[t, v, x] + R.tile[t, v + 2, x]`` for ``v in 0:32``.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyc.diagnostics import CompileBudgetError
from polyc.ir.expr import Call, Expr, Index, Pad, Read, Select, ceil_div, ge, int_const, lt, rewrite, substitute
from polyc.ir.program import Program, Reduction, Statement, Tensor
from polyc.ir.read_sites import collect_reads
from polyc.ir.simplify import simplify
from polyc.poly import isl
from polyc.poly.domains import box_domain, map_domain, project_domain, reads_within
from polyc.poly.extraction import place_inside
from polyc.poly.ranges import Interval, Ranges, StatementRanges
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.overlap.overlap_boxes import Box, Boxes, Root, form_expr, tile_name

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
    assert s.reduction is not None
    target = program.tensor(s.target)
    tensor = Tensor(f"{s.target}.sum", target.dtype, target.rank, None, "temporary", f"{target.base}.sum", s.span)
    total = replace(s, target=tensor.name)
    left = s.left_indices
    store = Statement(f"{s.name}_store", s.target, s.subscripts, left, Read(tensor.name, s.subscripts), None, (), s.span)
    own = ranges.statements[s.name]
    intervals = {i: own.indices[i] for i in left}
    # Elements that no point reduces into have their initial value: the store runs over the whole box.
    domain = box_domain(store.name, left, intervals, ranges.parameters).intersect_params(ranges.context)
    statements = tuple(x for st in program.statements for x in ((total, store) if st is s else (st,)))
    new = replace(program, statements=statements, tensors=(*program.tensors, tensor))
    new_ranges = replace(
        ranges,
        statements={**ranges.statements, store.name: StatementRanges(intervals, domain)},
        tensors={**ranges.tensors, tensor.name: ranges.tensors[s.target]},
    )
    return new, new_ranges, store


def tile_cluster(program: Program, ranges: Ranges, cluster: Cluster) -> tuple[Program, Ranges] | None:
    """The program with the consumer of a cluster in tiles, and its producers computed for each tile.

    None where not all that a tile reads is proved to be computed for it."""
    maker = _Maker(program, ranges, cluster)
    made: dict[str, Statement] = {}
    own = dict(ranges.statements)
    for s in cluster.statements:
        made[s.name], own[s.name] = maker.tile_statement(s)
    tensors = {name: i for name, i in ranges.tensors.items() if name not in cluster.boxes}
    tensors |= {maker.names[name]: maker.intervals(name) for name in cluster.boxes}
    new = replace(
        program,
        statements=tuple(made.get(s.name, s) for s in program.statements),
        tensors=tuple(maker.tile_tensor(t) if t.name in cluster.boxes else t for t in program.tensors),
    )
    new_ranges = replace(ranges, statements=own, tensors=tensors)
    try:
        with isl.operation_quota(QUOTA, "the proof of overlapping tiles"):
            return (new, new_ranges) if maker.is_covered(made, own) else None
    except CompileBudgetError:
        return None


class _Maker:
    def __init__(self, program: Program, ranges: Ranges, cluster: Cluster) -> None:
        self.program, self.ranges, self.cluster = program, ranges, cluster
        self.names = {name: f"{name}.tile" for name in cluster.boxes}
        first = cluster.roots[0]
        root = ranges.statements[first.statement.name].indices
        self.roots = {root.statement.name: root for root in cluster.roots}
        self.tiles: dict[str, Interval] = {}
        self.conditions: list[Expr] = []
        for i, size in cluster.sizes.items():
            extent = root[i].extent
            count = simplify(ceil_div(extent, size))
            t = Index(tile_name(i))
            self.tiles[t.name] = Interval(int_const(0), count)
            start = size * t
            self.conditions += [ge(t, 0), lt(start, extent)]

    # -- tensors
    def intervals(self, name: str) -> tuple[Interval, ...]:
        """Of the dimensions of a tile of tensor `name`: numbers of the tile, then its own that are more than a point."""
        own = zip(self.cluster.boxes[name], self.ranges.tensors[name], strict=True)
        places = (i if box is None else Interval(int_const(0), int_const(box.extent)) for box, i in own if not _is_point(box))
        return (*self.tiles.values(), *places)

    def tile_tensor(self, t: Tensor) -> Tensor:
        return replace(t, name=self.names[t.name], rank=len(self.intervals(t.name)), shape=None)

    # -- statements
    def tile_statement(self, s: Statement) -> tuple[Statement, StatementRanges]:
        own = self.ranges.statements[s.name]
        boxes = self._index_boxes(s)
        inner = {i: f"{i}.in" for i in boxes}
        while set(inner.values()) & set(s.indices):
            inner = {i: f"{name}_" for i, name in inner.items()}
        values: dict[str, Expr] = {}
        conditions, intervals = list(self.conditions), dict(self.tiles)
        for i in s.indices:
            box = boxes.get(i)
            if box is None:
                intervals[i] = own.indices[i]
                continue
            place = form_expr(box.lower)
            if not _is_point(box):
                local = Index(inner[i])
                conditions += [ge(local, 0), lt(local, box.extent)]
                intervals[local.name] = Interval(int_const(0), int_const(box.extent))
                place = place + local
            values[i] = simplify(place)
        indices = tuple(intervals)
        domain = map_domain(own.domain, s.name, indices, [values.get(i, Index(i)) for i in s.indices], conditions)
        value = self._redirect(substitute(self._expand_pads(s, s.value), values))
        reduction = s.reduction
        region = None
        if reduction is not None:
            reduction = Reduction(reduction.op, self._redirect(substitute(reduction.init, values)))
            region = self._region(s, inner, values, conditions)
        if s.name in self.roots:
            target, subscripts = s.target, tuple(simplify(substitute(e, values)) for e in s.subscripts)
        else:
            target = self.names[s.target]
            pairs = zip(s.subscripts, self.cluster.boxes[s.target], strict=True)
            named = [(e, box) for e, box in pairs if isinstance(e, Index) and not _is_point(box)]
            places = [e if box is None else Index(inner[e.name]) for e, box in named]
            subscripts = (*map(Index, self.tiles), *places)
        new = Statement(s.name, target, subscripts, indices, value, reduction, (), s.span)
        return new, StatementRanges(intervals, domain, (), region)

    def _region(self, s: Statement, inner: Mapping[str, str], values: Mapping[str, Expr], conditions: list[Expr]) -> isl.Set:
        """The elements of a tile that are elements of the whole tensor."""
        own = self.ranges.statements[s.name].indices
        box = box_domain(s.name, s.left_indices, own, self.ranges.parameters)
        pairs = zip(s.subscripts, self.cluster.boxes[s.target], strict=True)
        kept = [inner.get(e.name, e.name) for e, b in pairs if isinstance(e, Index) and not _is_point(b)]
        places = [values.get(i, Index(i)) for i in s.left_indices]
        return map_domain(box, f"init_{s.name}", (*self.tiles, *kept), places, conditions)

    def _index_boxes(self, s: Statement) -> dict[str, Box]:
        """Where each index runs inside a tile, for those that the tile confines."""
        if s.name in self.roots:
            moved = self.roots[s.name].moved(self.cluster.sizes, self.ranges)
            return {i: box for i, box in moved.items() if box is not None}
        pairs = zip(s.subscripts, self.cluster.boxes[s.target], strict=True)
        return {e.name: box for e, box in pairs if isinstance(e, Index) and box is not None}

    def _expand_pads(self, s: Statement, value: Expr) -> Expr:
        """``pad(R[…], v)`` of a tensor of the cluster, which is no whole tensor any more → ``inside ? R[…] : v``."""
        own = self.ranges.statements[s.name]
        affine = isl.Affine(own.domain.get_space(), {i: n for n, i in enumerate(s.indices)})

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
                    try:
                        if own.domain.is_subset(affine.condition(test)):
                            continue
                    except isl.NotAffine:
                        pass
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
    def is_covered(self, made: Mapping[str, Statement], own: Mapping[str, StatementRanges]) -> bool:
        """Whether every element that is read of a tile is one that the tile computes."""
        written = {s.target: self._written(s, own[s.name]) for s in made.values() if s.target in self.names.values()}
        for s in made.values():
            for site in collect_reads(s):
                name = site.read.tensor
                domain = own[s.name].domain.intersect_params(self.ranges.context)
                if name in written and not reads_within(site, domain, s.indices, written[name]):
                    return False
        return True

    def _written(self, s: Statement, own: StatementRanges) -> isl.Set:
        left = [e.name for e in s.subscripts if isinstance(e, Index)]
        if own.region is not None:  # what no point reduces into has its initial value
            return own.region.set_tuple_name(s.target)
        return project_domain(own.domain, s.indices, s.target, left)


def _is_point(box: Box | None) -> bool:
    """A box of one element needs no dimension: the tile says where it is."""
    return box is not None and box.extent == 1
