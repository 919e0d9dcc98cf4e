"""Take the long rows of a step of a stencil in blocks of columns, so that rows wait in the first-level cache for the next ones.

Before: ``for i < 32 { A[1, i, 0] = A[0, i, 0] ; vector for j in 8:1299 { A[1, i, j] = A[0, i - 1, j] + A[0, i + 1, j] } }``.
After: ``for b in 8:1299 by 672 { for i < 32 { if (b == 8) { A[1, i, 0] = A[0, i, 0] } vector for j in b:min(b + 672, 1299)
{ A[1, i, j] = … } } }``: a row that is read for three rows of results is still near for the second and the third.

A block holds all that is done at its columns.  Blocks keep the order of two accesses to one element where the later one is made
at the same column or a later one, which is asked of all pairs of accesses, one of them a write.  Each element is computed by
the same operations (AMD, Zen 4, 32 KiB: 200 steps of Jacobi-2D over 1300 squared took 115 ms, and take 83).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from math import ceil

from polyc.ir.dependence import iterations_apart
from polyc.ir.expr import Const, Expr, Index, Read, eq, ge, int_const, mentions, minimum, operands_of, reads
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Store, known_length
from polyc.ir.simplify import difference, simplify
from polyc.ir.walk import Body, Scope, rewrite_nest
from polyc.machine import Level, Share
from polyc.records import dataclass, replace
from polyc.target import Target


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of what is done to a row: a vector loop, or a store alone where `loop` is None."""

    loop: Loop | None
    stores: tuple[Store, ...]
    shift: Expr
    """What the variable lacks to the column."""
    first: int
    end: int
    """Its columns."""

    @property
    def is_cut(self) -> bool:
        return self.loop is not None and self.loop.max_trip is None


@dataclass(frozen=True, slots=True)
class _Access:
    buffer: str
    subscripts: tuple[Expr, ...]
    is_write: bool
    distance: int
    """Columns from that of the iteration to the one that is accessed."""
    piece: int


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Blocks of `size` columns from `begin` on; the first one has all columns before as well, the last one all behind."""

    block: Index
    begin: int
    size: int
    end: int

    def is_first(self, piece: _Piece) -> bool:
        return piece.end <= self.begin + self.size

    def is_last(self, piece: _Piece) -> bool:
        return piece.first >= self.end - ((self.end - self.begin - 1) % self.size + 1)

    @property
    def first_test(self) -> Expr:
        return eq(self.block, self.begin)

    @property
    def last_test(self) -> Expr:
        return ge(self.block, self.end - self.size)

    def front_of(self, piece: _Piece) -> Loop:
        """The columns before the first block."""
        assert piece.loop is not None
        return replace(piece.loop, upper=simplify(self.begin - piece.shift), interleave=1)

    def part_of(self, piece: _Piece) -> Loop:
        """The columns of a block."""
        assert piece.loop is not None
        behind: Expr = self.block + self.size
        if piece.end < self.end or (self.end - self.begin) % self.size:
            behind = minimum(behind, piece.end)
        lower, upper = (simplify(e - piece.shift) for e in (self.block, behind))
        return replace(piece.loop, lower=lower, upper=upper)


def block_columns(nest: LoopNest, target: Target) -> LoopNest:
    """The nest with the loops over long rows that are read again by the next ones cut into blocks of columns."""
    buffers = {b.name: b for b in nest.buffers if b.space != "register" and not b.may_alias}

    def cut(node: Node, scope: Scope) -> Node | None:
        return _cut_rows(node, buffers, target) if isinstance(node, Loop) else None

    return rewrite_nest(nest, cut)


def _cut_rows(row: Loop, buffers: Mapping[str, Buffer], target: Target) -> Loop | None:
    """The loop over rows inside of one over blocks of columns; None where nothing is gained, or the order matters."""
    if row.kind != "serial" or row.step != 1 or row.registers or row.initial:
        return None
    pieces = list(_find_pieces(row.body, row.var))
    cut = [p for p in pieces if p is not None and p.is_cut]
    if not cut or len(cut) < sum(p is None or p.is_cut for p in pieces):
        return None
    known = [p for p in pieces if p is not None]
    found = _find_accesses(known, buffers)
    if found is None:
        return None
    begin, end = max(p.first for p in cut), max(p.end for p in cut)
    size = _block_size(row, cut, end - begin, found, buffers, target)
    blocks = _Blocks(Index(f"{row.var}b"), begin, size, end)
    if not size or any(not (p.is_cut or blocks.is_first(p) or blocks.is_last(p)) for p in known):
        return None
    if not all(_keeps_order(a, b, row.var) for a, b in combinations(found, 2)):
        return None
    body = _take_block(row.body, row.var, blocks)
    return Loop(blocks.block.name, int_const(begin), int_const(end), size, "serial", (replace(row, body=body),))


# -- what a row is made of


def _find_pieces(body: Body, row: str) -> Iterator[_Piece | None]:
    """Pieces in their order; None for what is not stores, or vectors of them, at known columns."""
    for node in body:
        match node:
            case If():
                yield from (None,) if list(reads(node.condition)) else ()
                yield from _find_pieces((*node.body, *node.orelse), row)
            case Store() | Loop():
                yield _describe(node, row)
            case _:
                yield None


def _describe(node: Store | Loop, row: str) -> _Piece | None:
    if isinstance(node, Store):
        column = simplify(node.subscripts[-1]) if node.subscripts else None
        if not isinstance(column, Const):
            return None
        return _Piece(None, (node,), int_const(0), int(column.value), int(column.value) + 1)
    stores = tuple(n for n in node.body if isinstance(n, Store))
    if node.kind != "vector" or node.registers or node.initial or not stores or len(stores) < len(node.body):
        return None
    if not stores[0].subscripts:
        return None
    shift = simplify(stores[0].subscripts[-1] - Index(node.var))
    first, end = (simplify(bound + shift) for bound in (node.lower, node.upper))
    if isinstance(first, Const) and isinstance(end, Const) and not _moves(shift, node.var, row):
        return _Piece(node, stores, shift, int(first.value), int(end.value))
    return None


def _find_accesses(pieces: list[_Piece], buffers: Mapping[str, Buffer]) -> list[_Access] | None:
    """What the pieces write and read along rows; None where an element of what is written may be at any distance from the
    column of its iteration."""
    found: list[_Access] = []
    written = {store.buffer for piece in pieces for store in piece.stores}
    for n, piece in enumerate(pieces):
        var = piece.loop.var if piece.loop else ""
        column = simplify(Index(var) + piece.shift) if piece.loop else int_const(piece.first)
        for store in piece.stores:
            for k, access in enumerate((Read(store.buffer, store.subscripts), *dict.fromkeys(reads(store.value)))):
                buffer = buffers.get(access.tensor)
                if buffer is None:
                    return None
                distance = _distance(access, column, var) if _has_rows(buffer) else None
                if distance is not None:
                    found.append(_Access(access.tensor, access.subscripts, k == 0, distance, n))
                elif access.tensor in written:
                    return None
    return found


def _has_rows(buffer: Buffer) -> bool:
    """Whether elements follow each other along the last dimension."""
    return bool(buffer.strides) and buffer.strides[-1] == int_const(buffer.dtype.itemsize)


def _distance(access: Read, column: Expr, var: str) -> int | None:
    """Columns from one to the element that is accessed, where its row does not change with `var`."""
    return None if any(_moves(e, var) for e in access.subscripts[:-1]) else difference(access.subscripts[-1], column)


def _moves(expr: Expr, *variables: str) -> bool:
    """Whether an expression changes with one of the variables, or with data."""
    return bool(reads(expr)) or mentions(expr, *variables)


# -- whether it pays


def _block_size(
    row: Loop, cut: list[_Piece], width: int, accesses: list[_Access], buffers: Mapping[str, Buffer], target: Target
) -> int:
    """Columns of a block; 0 where whole rows stay in the first-level cache, are read once, or come from far away."""
    rows: list[_Access] = []
    streams: list[_Access] = []
    for access in accesses:
        met = [_rows_apart(access, other, row.var) for other in rows]
        if (0,) in met:
            continue
        if not any(met):
            streams.append(access)
        rows.append(access)
    written = {a.buffer for a in accesses if a.is_write}
    if len(streams) == len(rows) or not any(a.buffer in written and not a.is_write for a in accesses):
        return 0
    n_rows = _most_rows(row)
    per_column, per_row = (sum(buffers[a.buffer].dtype.itemsize for a in group) for group in (rows, streams))
    if n_rows is None or target.fits(width * per_column, Level.L1, Share.MOST):
        return 0
    if not target.fits(n_rows * width * per_row, Level.L2, Share.ALL):
        return 0
    unit = max(p.loop.lanes * p.loop.interleave for p in cut if p.loop)
    n_blocks = ceil(width * per_column / target.room(Level.L1, Share.MOST))
    size = ceil(width / n_blocks / unit) * unit
    return size if size * max(buffers[a.buffer].dtype.itemsize for a in rows) >= target.prefetchers.run and size < width else 0


def _most_rows(row: Loop) -> int | None:
    """Iterations of the loop over rows at most."""
    known = known_length(row)
    if known is None and any(e == int_const(0) for e in operands_of(row.lower, "max")):
        return min((int(e.value) for e in operands_of(row.upper, "min") if isinstance(e, Const)), default=None)
    return known


# -- whether the order may change


def _keeps_order(a: _Access, b: _Access, row: str) -> bool:
    """Whether blocks keep the order of two accesses, `b` not in a piece before, where they are to the same element."""
    if a.buffer != b.buffer or not (a.is_write or b.is_write):
        return True
    apart = _rows_apart(a, b, row)
    columns_later = a.distance - b.distance
    if apart is None:
        return columns_later == 0
    if not apart:
        return True
    (rows_later,) = apart
    if rows_later:
        return columns_later >= 0 if rows_later > 0 else columns_later <= 0
    return columns_later >= 0 or a.piece == b.piece


def _rows_apart(a: _Access, b: _Access, row: str) -> tuple[int, ...] | None:
    """By how many rows the iteration of `b` is later than that of `a` if both access one element of a buffer; nothing where
    they never do, None where it may be any number."""
    apart = iterations_apart(a.subscripts[:-1], b.subscripts[:-1], row) if a.buffer == b.buffer else None
    if apart is None:
        return ()
    rows_later, most = apart
    return (rows_later,) if rows_later is not None and rows_later == most else None


# -- blocks


def _take_block(body: Body, row: str, blocks: _Blocks) -> Body:
    """What is done to a row in one block."""
    result: list[Node] = []
    for node in body:
        if isinstance(node, If):
            arms = (_take_block(arm, row, blocks) for arm in (node.body, node.orelse))
            result.append(If(node.condition, *arms))
            continue
        assert isinstance(node, (Store, Loop))
        piece = _describe(node, row)
        assert piece is not None
        if not piece.is_cut or piece.first < blocks.begin:
            front = blocks.front_of(piece) if piece.is_cut else node
            condition = blocks.first_test if piece.is_cut or blocks.is_first(piece) else blocks.last_test
            before = result.pop() if result and isinstance(result[-1], If) and result[-1].condition == condition else None
            inside = before.body if isinstance(before, If) else ()
            result.append(If(condition, (*inside, front)))
        if piece.is_cut:
            result.append(blocks.part_of(piece))
    return tuple(result)
