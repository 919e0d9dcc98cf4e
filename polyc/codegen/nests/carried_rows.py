"""The rows of a block that is put together in a buffer, written in whole lines: what `carries` makes of a block.

A block writes `run` elements of each of many rows.  The lines that it completes are streamed; the part of a line behind them
stays in the buffer for the next block, or is written in the ordinary way where the row ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from polyc.codegen.nests.alignment import offset_of
from polyc.codegen.nests.copies import rebuild
from polyc.codegen.nests.staging import (
    digits,
    sum_of,
    trip_count,
)
from polyc.ir.access import with_values
from polyc.ir.expr import Const, Expr, Index, Read, eq, int_const, lt
from polyc.ir.loops import LINE, Buffer, If, Loop, Node, Prefetch, Store
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body
from polyc.records import dataclass, replace

ROW = "row"
"""The variable of loops over the rows of a block."""

EXPANDED = 16
"""Vectors of a row that are expanded."""


@dataclass(frozen=True, slots=True)
class Block:
    """What one iteration of a loop over blocks does: `n_rows` pieces of `run` elements."""

    loops: tuple[Loop, ...]
    store: Store
    run: int
    places: Mapping[str, int]
    rows: Mapping[str, int]
    n_rows: int
    distances: tuple[tuple[int, int], ...]
    """Of each loop over rows: the multiple of its variable in the number of the row, and bytes between two of its rows."""


Ask = Callable[[Expr], tuple[Prefetch, ...]]
"""Requests for the part of the next block that has a number, counted through the rows of a block (`cut_row`)."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Loops over the rows of a block: `n_rows` times something for row ``Index(row)``, which begins `off` elements behind a
    line."""

    block: Block
    carry: Buffer
    row: str
    element: str
    lanes: int
    line: int
    chunk: int
    n_chunks: int
    """Lines that are written with the requests of one part, and how many times that is a row."""
    buffers: Mapping[str, Buffer]
    subscripts: tuple[Expr, ...]
    off: Expr
    groups: tuple[Loop, ...]
    """Loops over groups of rows, of which each is put together and written at once."""
    first: Expr
    count: int
    """The first row of a group, and how many it has."""

    def each(self, *body: Node) -> Loop:
        upper = simplify(self.first + self.count)
        return Loop(self.row, self.first, upper, 1, "serial", body)

    def in_groups(self, *body: Node) -> Body:
        for loop in reversed(self.groups):
            body = (replace(loop, body=body),)
        return body

    def store(self, start: Expr, streamed: bool) -> Store:
        """The store of element ``Index(element)`` from the one of number `start` in the block on."""
        place = start + Index(self.element)
        *outer, last = self.subscripts
        value = Read(self.carry.name, (Index(self.row), simplify(place + self.line)))
        subscripts = (*outer, simplify(last + place))
        return replace(self.block.store, subscripts=subscripts, value=value, streamed=streamed)

    def part(self, start: Expr, length: Expr) -> Loop:
        """`length` elements, less than a line, in the ordinary way."""
        body = If(lt(Index(self.element), length), (self.store(start, False),))
        return Loop(self.element, int_const(0), int_const(self.line), 1, "vector", (body,), self.line, self.lanes)

    def lines(self, start: Expr, length: Expr, ask: Ask | None = None) -> Body:
        """Whole lines, streamed, with requests for lines of the next block between them."""
        if length == int_const(0):
            return ()
        count = int(length.value) // self.line if isinstance(length, Const) else 0
        if ask is not None and 0 < count <= self.chunk:
            return self.chunk_of_lines(start, count, ask(Index(self.row)))
        if ask is not None and count == self.chunk * self.n_chunks:
            group, size = f"{self.element}_0", self.chunk * self.line
            row = Index(self.row) * self.n_chunks
            asked = ask(simplify(row + Index(group) // size))
            body = self.chunk_of_lines(simplify(start + Index(group)), self.chunk, asked)
            return (Loop(group, int_const(0), length, size, "serial", body),)
        most = count * self.line if 0 < count * self.line <= EXPANDED * self.lanes else None
        return (Loop(self.element, int_const(0), length, 1, "vector", (self.store(start, True),), most, self.lanes),)

    def chunk_of_lines(self, start: Expr, count: int, asked: tuple[Prefetch, ...]) -> Body:
        """`count` lines, and a part of the requests in front of each."""
        made: list[Node] = []
        for n, requests in enumerate(_share_out(asked, count, self.buffers)):
            store = self.store(simplify(start + n * self.line), True)
            write = Loop(self.element, int_const(0), int_const(self.line), 1, "vector", (store,), self.line, self.lanes)
            made += [*requests, write]
        return tuple(made)

    def keep(self) -> Loop:
        """The last line's elements of the block become those in front of the next one."""
        at = (Index(self.row), Index(self.element) + self.block.run)
        store = Store(
            self.carry.name, (Index(self.row), Index(self.element)), Read(self.carry.name, at), self.block.store.statement
        )
        return Loop(self.element, int_const(0), int_const(self.line), 1, "vector", (store,), self.line, self.lanes)

    def lend(self) -> Loop:
        """The first line's elements of a row go behind the last ones of the row in front of it."""
        place = Index(self.element) + (self.line + self.block.run)
        own = Read(self.carry.name, (Index(self.row), Index(self.element) + self.line))
        row = Index(self.row) - 1
        store = Store(self.carry.name, (row, place), own, self.block.store.statement)
        return Loop(self.element, int_const(0), int_const(self.line), 1, "vector", (store,), self.line, self.lanes)


def cut_row(n_lines: int) -> tuple[int, int]:
    """Lines of a row that are written one after the other, no more than can be expanded, and how many times that is a row."""
    chunk = max(n for n in range(1, max(1, min(n_lines, EXPANDED)) + 1) if n_lines % n == 0)
    return chunk, n_lines // chunk


def _share_out(asked: tuple[Prefetch, ...], n: int, buffers: Mapping[str, Buffer]) -> list[list[Prefetch]]:
    """The lines of `asked` in `n` parts one after the other; twice where that is a line for each part.

    Some requests are lost: `abcde → caebd` took 3.2 to 3.5 ms instead of 4.0 to 4.3, where a copy took 2.4 (AMD, Zen 4).  Where
    they are more than the lines that are written, as in `dbeac`, twice as many took a tenth longer."""
    lines: list[Prefetch] = []
    for prefetch in asked:
        *outer, last = prefetch.subscripts
        for begin in range(0, prefetch.size, LINE):
            place = simplify(last + begin // buffers[prefetch.buffer].dtype.itemsize)
            lines.append(replace(prefetch, subscripts=(*outer, place), size=min(LINE, prefetch.size - begin)))
    times = 2 if len(lines) == n else 1
    return [lines[len(lines) * k // n : len(lines) * (k + 1) // n] * times for k in range(n)]


def _rows_of(block: Block, buffers: Mapping[str, Buffer], carry: Buffer) -> tuple[Loop, _Rows]:
    """The nest that puts a block together, and what writes its rows."""
    buffer = buffers[block.store.buffer]
    size = buffer.dtype.itemsize
    line = LINE // size
    vector = next(n for n in block.loops if n.kind == "vector")
    row, element = ROW, f"{vector.var}_run"
    place = simplify(sum_of(block.places) + line)
    put = replace(block.store, buffer=carry.name, subscripts=(sum_of(block.rows), place))
    begin: dict[str, Expr] = {n.var: int_const(0) for n in block.loops} | digits(Index(row), block.rows)
    start = with_values(block.store, begin)
    subscripts, first = start.subscripts, offset_of(start, buffer, {})
    off = simplify(first % LINE // size)
    along = next((n for n in block.loops if block.rows.get(n.var) == 1), None)
    cuts = cut_row(block.run // line)
    rows = _Rows(
        block, carry, row, element, vector.lanes, line, *cuts, buffers, subscripts, off, (), int_const(0), block.n_rows
    )
    trip = 0 if along is None else trip_count(along)
    if along is None or trip % line or trip == line:
        return rebuild(list(block.loops), put), rows
    name = f"{along.var}_rows"
    names: dict[str, Expr] = {along.var: Index(name) + Index(along.var)}
    put = with_values(put, names)
    few = replace(along, upper=int_const(line), max_trip=None if along.max_trip is None else line)
    others = [n for n in block.loops if n.var in block.rows and n is not along]
    first = sum_of({**{n.var: block.rows[n.var] for n in others}, name: 1})
    groups = (*others, Loop(name, int_const(0), int_const(trip), line, "serial", ()))
    inner = [few if n is along else n for n in block.loops if n is along or n.var not in block.rows]
    return rebuild(inner, put), replace(rows, groups=groups, first=first, count=line)


def carry_block(
    block: Block,
    buffers: Mapping[str, Buffer],
    carry: Buffer,
    ask: Ask,
    is_first: Expr,
    is_last: Expr | None,
    n_together: int,
) -> Body:
    """A block of whole lines; `is_last` where the rows may end with it.  Of `n_together` rows that follow each other, each ends
    with the line in which the next one begins."""
    put, rows = _rows_of(block, buffers, carry)
    missing = simplify(rows.line - rows.off)
    is_aligned, length = eq(rows.off, 0), int_const(block.run)
    number = Index(ROW) % n_together
    head: Node = rows.part(int_const(0), missing)
    if n_together > 1:
        head = If(lt(0, number), (rows.lend(),), (head,))
    begun = If(
        is_aligned, rows.lines(int_const(0), length, ask), (head, *rows.lines(missing, int_const(block.run - rows.line), ask))
    )
    back = simplify(-rows.off)
    write = If(is_first, (rows.each(begun, rows.keep()),), (rows.each(*rows.lines(back, length, ask), rows.keep()),))
    if is_last is None:
        return rows.in_groups(put, write)
    end = simplify(length - rows.off)
    tail: Node = rows.part(end, rows.off)
    if n_together > 1:
        joint = If(lt(0, rows.off), rows.lines(end, int_const(rows.line)))
        tail = If(lt(number, n_together - 1), (joint,), (tail,))
    return rows.in_groups(put, write, If(is_last, (rows.each(tail),)))


def end_rows(block: Block, buffers: Mapping[str, Buffer], carry: Buffer, asked: tuple[Prefetch, ...]) -> Body:
    """The last block of rows, of any length."""
    put, rows = _rows_of(block, buffers, carry)
    there = rows.off + block.run
    whole = there // rows.line * rows.line
    back = simplify(-rows.off)
    tail = rows.part(whole - rows.off, there % rows.line)
    return rows.in_groups(put, rows.each(*asked, *rows.lines(back, whole), tail))
