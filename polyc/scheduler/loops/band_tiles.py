"""Tiles of the bands around innermost nests: sizes that the heaviest statement below wants, and blocks for the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, prod

from polyc.code_limits import MUCH
from polyc.ir.expr import Const
from polyc.machine import Level, Share
from polyc.poly.rows import Band, Leaf, Member, Node, all_leaves, statements_of
from polyc.poly.rows import Sequence as Nodes
from polyc.poly.scop import ScopStatement
from polyc.scheduler.accesses import access_motions, index_trips, statement_work
from polyc.scheduler.loops.member_view import MemberView
from polyc.scheduler.loops.nest import Point
from polyc.scheduler.tiling import RegisterTile


class BandTiles:
    """Sizes of tiles, band after band from the outside."""

    def __init__(self, view: MemberView) -> None:
        self.view = view
        self.columns: dict[int, int] = {}
        """Members (their ids) over few columns that walk along a sequential loop, and how many."""

    def wanted_tile(self, band: Band) -> tuple[ScopStatement, RegisterTile] | None:
        """The heaviest reduction below that wants a tile, and the tile; None where a much heavier one wants none."""
        best: tuple[int, ScopStatement, RegisterTile] | None = None
        heaviest = 0
        for group, own in _innermost_groups(band.child):
            statements = [self.view.statement(n) for n in group if not n.startswith("init_")]
            reductions = [s for s in statements if s.is_reduction]
            if not reductions:
                columns = self._wanted_columns(band, own, statements)
                work = sum(statement_work(s) for s in statements)
                if columns is not None and (best is None or work > best[0]):
                    best = work, *columns
                continue
            tile = self._group_tile((*band.members, *own), statements, reductions)
            work = sum(statement_work(s) for s in statements)
            heaviest = max(heaviest, work)
            if self.member_sizes(band, (reductions[0], tile)) and (best is None or work > best[0]):
                best = work, reductions[0], tile
        return None if best is None or best[0] * MUCH < heaviest else best[1:]

    def member_sizes(self, band: Band, tile: tuple[ScopStatement, RegisterTile]) -> dict[int, int]:
        """Tile sizes by member position."""
        s, wanted = tile
        sizes: dict[int, int] = {}
        for n, member in enumerate(band.members):
            index = self.view.index(member, s.name) if member.kind != "S" and s.name in member.rows else None
            if index is not None and wanted.sizes.get(index, 0) > 1:
                sizes[n] = wanted.sizes[index]
        return sizes

    def line_sizes(self, band: Band, sizes: Mapping[int, int]) -> dict[int, int]:
        """Elements of a cache line by member position, for members without a tile (`sizes`) along which a statement writes rows
        of memory that a contraction makes across them: ``a by 16 { b by 64 { a { T } ; b, a { Z[b, a] = T[a, b] } } }``."""
        names = [n for n in statements_of(band.child) if not n.startswith("init_")]
        made = {self.view.statement(n).target for n in names if n in self.view.tiles}
        found: dict[int, int] = {}
        for s in (self.view.statement(n) for n in names if n not in self.view.tiles):
            write, *read = access_motions(s)
            for n, member in enumerate(band.members):
                index = self.view.index(member, s.name) if member.kind == "P" and n not in sizes else None
                if index is None or write.motion(index) != "unit" or index_trips(s)[index] < 2:
                    continue
                across = (r for r in read if r.tensor in made and r.motion(index) == "strided")
                if any(r.motion(i) == "unit" for r in across for i in s.left):
                    found[n] = self.view.target.cache_line // self.view.scop.tensors[s.target].dtype.itemsize
        return found

    def finer(self, p: Point, tile: tuple[ScopStatement, RegisterTile]) -> int | None:
        """The size that a statement has inside of a larger tile of an outer band, which it divides; None where it cuts none.

        Pieces that tiles do not divide would begin at other places in each of them, and be found by divisions."""
        s, wanted = tile
        index = self.view.index(p.member, s.name) if p.member.kind == "P" and s.name in p.member.rows else None
        size = wanted.sizes.get(index or "", 0)
        return max((n for n in range(2, size + 1) if p.size % n == 0), default=None) if size < p.size else None

    def _wanted_columns(
        self, band: Band, own: tuple[Member, ...], statements: list[ScopStatement]
    ) -> tuple[ScopStatement, RegisterTile] | None:
        """Before: ``P:j { S:i … }`` where j runs along rows of memory.  After: ``P:j by tile { S:i { vector j … } }``."""
        if not self.view.options.vectorize or not _walks_in_order(band.child):
            return None
        found = (self._columns_along(member, band, own, statements) for member in band.members)
        return next((tile for tile in found if tile is not None), None)

    def _columns_along(
        self, member: Member, band: Band, own: tuple[Member, ...], statements: list[ScopStatement]
    ) -> tuple[ScopStatement, RegisterTile] | None:
        """The tile of `member` for loops that run in order inside of it, if neighbours of all accesses lie along it; `own`: the
        loops of these statements alone."""
        indices = [(s, self.view.index(member, s.name)) for s in statements]
        if member.kind != "P" or any(i is None for _, i in indices):
            return None
        motions = [m.motion(i) for s, i in indices if i is not None for m in access_motions(s)]
        if "unit" not in motions or "strided" in motions:
            return None
        trips = min(index_trips(s)[i] for s, i in indices if i is not None)
        lanes = self.view.lanes(statements)
        s, index = indices[-1]
        if index is None or lanes <= 1 or trips <= 1:
            return None
        if self._is_read_again(band, statements):
            target = self.view.target
            size, tiles = target.rows.computed, self._tiles_for_threads(member, band, statements, target.threads.parts_per_core)
            while tiles > 1 and size > 2 * lanes and trips < tiles * size:
                size //= 2
        else:
            tiles = self._tiles_for_threads(member, band, statements, self.view.target.cores)
            size = self._width_of_columns(statements, trips, lanes, tiles, self._column_bytes(member, own, statements))
        if trips <= size:
            # A few columns are one tile: each by itself would pass over as many cache lines as all of them.
            self.columns[id(member)] = size = trips
        return s, RegisterTile(index, lanes, {index: size})

    def _is_read_again(self, band: Band, statements: list[ScopStatement]) -> bool:
        """Whether other loops below the same band that are as long have a tensor in common with this one, which one of them
        writes."""
        names, points = {s.name for s in statements}, max(prod(index_trips(s).values()) for s in statements)
        others = [self.view.statement(n) for n in statements_of(band.child) if n not in names and not n.startswith("init_")]
        long = [s for s in others if 2 * prod(index_trips(s).values()) > points]
        mine, theirs = ([m for s in group for m in access_motions(s)] for group in (statements, long))
        return any(a.tensor == b.tensor and (a.is_write or b.is_write) for a in mine for b in theirs)

    def _tiles_for_threads(self, member: Member, band: Band, statements: list[ScopStatement], wanted: int) -> int:
        """Tiles that threads can share: fewer where other members of the band are parallel, or where there is little to do."""
        work = sum(statement_work(s) for s in statements)
        s, iterations = statements[0], 1
        for other in band.members:
            index = (
                self.view.index(other, s.name) if other is not member and other.kind == "P" and s.name in other.rows else None
            )
            iterations *= index_trips(s)[index] if index is not None else 1
        return min(-(-wanted // max(iterations, 1)), work // (2 * self.view.target.threads.least_work))

    def _column_bytes(self, member: Member, own: tuple[Member, ...], statements: list[ScopStatement]) -> int:
        """Bytes of a column of `member` that each step passes over, where loops inside of a step run over blocks of rows."""
        found: dict[str, int] = {}
        for s in statements:
            column, rows = self.view.index(member, s.name), {self.view.index(m, s.name) for m in own if m.kind != "S"}
            for m in access_motions(s):
                names = {i for names in m.named for i in names}
                size = prod(index_trips(s)[i] for i in names & rows if i is not None)
                if column in names and names & rows:
                    found[m.tensor] = max(found.get(m.tensor, 0), size * self.view.scop.tensors[m.tensor].dtype.itemsize)
        return sum(found.values())

    def _width_of_columns(self, statements: list[ScopStatement], trips: int, lanes: int, most: int, column: int) -> int:
        """Columns that walk along a sequential loop together: those of a tile stay in half of the second-level cache from one
        row to the next, and threads share up to `most` tiles, as far as rows stay long or arithmetic takes most of the time."""
        target, tensors = self.view.target, self.view.scop.tensors
        touched = {m.tensor for s in statements for m in access_motions(s) if m.coefficients}
        per_column = sum(tensors[t].dtype.itemsize for t in touched)
        points = prod(index_trips(statements[0]).values())
        operations = target.loops.operation * sum(statement_work(s) for s in statements) / points / lanes
        waiting = 0.0
        if points * per_column > target.l2:
            waiting = 1 / (1 + operations / (target.loops.far_byte * per_column))

        def cost(tiles: int) -> float:
            width = trips * per_column / len(touched) / tiles
            return (1 + waiting * target.prefetchers.narrow_row / width) * (1 + target.threads.idle * (1 / tiles - 1))

        tiles = min(range(1, max(1, most) + 1), key=cost)
        most_columns = target.room(Level.L2, Share.QUARTER) // per_column, target.room(Level.L2, Share.HALF) // max(1, column)
        widest = max(lanes, min(most_columns))
        if trips > tiles * widest:
            tiles *= -(-trips // (tiles * widest))
        return trips if tiles == 1 else -(-trips // (tiles * lanes)) * lanes

    def _group_tile(
        self, members: Sequence[Member], statements: list[ScopStatement], reductions: list[ScopStatement]
    ) -> RegisterTile:
        lanes = self.view.lanes(statements)
        tile = self.view.tile(reductions[0], lanes)
        if len(statements) == 1:
            return tile
        # Statements that share a pass: the vector's loop is worth a tile where it runs along a left index of all.
        along = next((m for m in members if tile.vector and self.view.index(m, reductions[0].name) == tile.vector), None)
        if tile.vector is None or along is None or any(self.view.index(along, s.name) not in s.left for s in statements):
            # Rows are where it is summed over by all: each of them shares what it reads with the others.
            rows = self.view.shared_rows(statements, members)
            return RegisterTile(tile.vector, lanes, {i: n for m, n in rows if (i := self.view.index(m, reductions[0].name))})
        size = tile.sizes[tile.vector]
        if not tile.streamed:  # the accumulators of all statements stay in registers
            most = (self.view.target.n_registers - self.view.target.spare_registers) // (2 * len(statements))
            size = min(size, max(1, most) * lanes)
        if tile.streamed:  # the accumulators of all statements stay in the first-level cache
            size = min(size, max(1, self.view.target.rows.streamed // len(statements)) * lanes)
        return RegisterTile(tile.vector, lanes, {tile.vector: size})

    def block_size(self, band: Band, sizes: dict[int, int], tiled: list[int]) -> int:
        """How many iterations of the outermost tiled member run inside of the other ones: as many as keep what they read in
        half of the L2 cache; less where that is for the sake of the result's memory alone.  Of sums of any length the call says
        how many (`codegen`'s `block_sizes`)."""
        if len(tiled) < 2:
            return 0
        member, largest, row_size = band.members[tiled[0]], 0, 0
        is_any_sum = False
        for name in member.rows:
            if name.startswith("init_"):
                continue
            s, index = self.view.statement(name), self.view.index(member, name)
            trips = index_trips(s)
            for m in access_motions(s):
                if index is None or m.motion(index) == "invariant":
                    continue
                if m.is_write:
                    if m.motion(index) == "unit" and self._is_long_result(s):
                        row_size = self.view.scop.tensors[m.tensor].dtype.itemsize
                elif s.is_reduction:
                    per_step = self.view.scop.tensors[m.tensor].dtype.itemsize
                    for i in s.reduction_indices:
                        if m.motion(i) != "invariant":
                            per_step *= trips[i]
                            is_any_sum |= not isinstance(s.extents[i], Const)
                    largest = max(largest, per_step)
        if not largest:
            return 0
        size = sizes[tiled[0]]
        if not self.view.target.fits(largest * size, Level.L1, Share.HALF) or (is_any_sum and not row_size):
            return max(1, self.view.target.room(Level.L2, Share.HALF) // largest // size) * size
        if row_size:
            longest = self.view.target.memory.page // row_size if is_any_sum else inf
            return int(max(1, min(longest, self.view.target.room(Level.L2, Share.EIGHTH) // largest) // size)) * size
        return 0  # one tile's panel stays in the first-level cache: it stays, the other tiles pass

    def _is_long_result(self, s: ScopStatement) -> bool:
        """Whether a statement writes more than half of the second-level cache of a tensor that is no temporary, or may."""
        tensor, trips = self.view.scop.tensors[s.target], index_trips(s)
        is_known = all(isinstance(s.extents[i], Const) for i in s.left)
        size = tensor.dtype.itemsize * prod(trips[i] for i in s.left)
        return tensor.role != "temporary" and (not self.view.target.fits(size, Level.L2, Share.HALF) or not is_known)


def _walks_in_order(node: Node) -> bool:
    """Whether there is a sequential loop below, in which a vector loop would run innermost."""
    match node:
        case Leaf():
            return False
        case Nodes():
            return any(_walks_in_order(c) for c in node.children)
        case Band():
            return all(m.kind == "S" for m in node.members)


def _innermost_groups(node: Node) -> list[tuple[list[str], tuple[Member, ...]]]:
    """Groups of statements that will share a nest, and the loops that are theirs alone: a leaf, or the leaves of one innermost
    band."""
    match node:
        case Leaf():
            return [([node.statement], ())]
        case Band() if all_leaves(node.child):
            return [(list(statements_of(node.child)), node.members)]
        case Band():
            return _innermost_groups(node.child)
        case Nodes():
            return [g for child in node.children for g in _innermost_groups(child)]
