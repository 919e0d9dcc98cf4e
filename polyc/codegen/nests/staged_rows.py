"""A block of a copy by way of a buffer: put together there, and streamed to the result from there, a line at a time.

Before: ``for e < 48 { for c < 24 { Y[e, c0 + c] = X[c0 + c, e] } }``, rows of Y that begin `off` elements behind a line.
After: ``for e < 48 { for c < 24 { B[e, 16 + c] = X[c0 + c, e] } }  for row < 48 { vector n < 16 { stream Y[row, c0 - off + n] =
B[row, 16 - off + n] } vector n < 16 { B[row, n] = B[row, n + 24] } }``.

A block writes `run` elements of each of its rows.  The lines that these complete are streamed; the part of a line behind them
stays in the buffer for the block that goes on with the row, or is written in the ordinary way where the row ends.
"""

from __future__ import annotations

from collections.abc import Callable

from polyc.code_limits import MAX_EXPANDED
from polyc.codegen.nests.alignment import past_line
from polyc.codegen.nests.copies import Block, sum_of, trip_count
from polyc.codegen.nests.partition import choose
from polyc.ir.access import with_values
from polyc.ir.expr import Const, Expr, Index, Read, eq, int_const, le, lt
from polyc.ir.loops import Buffer, If, Loop, Node, Store
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, make_nest
from polyc.machine.memory import LINE, PAGE
from polyc.records import dataclass, replace

ROW = "row"
"""The variable of loops over the rows of a block."""

Ask = Callable[[Expr, int, int], list[Body]]
"""The requests that part number k of n makes of what the next block reads, shared out in front of so many lines."""


def make_buffer(name: str, buffer: Buffer, n_rows: int, length: int) -> Buffer:
    """A thread's own rows for parts of `buffer`, which begin at lines, and not all in the same sets of a cache."""
    size = buffer.dtype.itemsize
    row = -(-length * size // LINE) * LINE
    row += LINE if row % (PAGE // 2) == 0 else 0
    return Buffer(name, buffer.dtype, (int_const(n_rows), int_const(length)), (int_const(row), int_const(size)), "thread")


@dataclass(frozen=True, slots=True)
class _Rows:
    """Loops over the rows of a block: something for row ``Index(ROW)``, which begins `off` elements behind a line."""

    block: Block
    stage: str
    element: str
    line: int
    front: int
    """Elements of a row of the buffer in front of those of the block: what the one before has left."""
    off: Expr
    groups: tuple[Loop, ...] = ()
    """Loops over groups of rows, of which each is put together and written at once."""
    first: Expr = int_const(0)
    count: int = 0
    """The first row of a group, and how many it has."""

    def each(self, *body: Node) -> Loop:
        return Loop(ROW, self.first, simplify(self.first + self.count), 1, "serial", body)

    def move(self, store: Store, length: Expr, at_once: bool = True) -> Loop:
        """`store` for `length` elements, with vectors that are expanded `at_once` where that is known."""
        most = int(length.value) if at_once and isinstance(length, Const) else None
        return Loop(self.element, int_const(0), length, 1, "vector", (store,), most, self.block.vector.lanes)

    def write(self, start: Expr, streamed: bool) -> Store:
        """The store of element ``Index(element)`` from the one of number `start` in the block on."""
        place = start + Index(self.element)
        value = Read(self.stage, (Index(ROW), simplify(place + self.front)))
        subscripts = self.block.place_of(Index(ROW), place)
        return replace(self.block.store, subscripts=subscripts, value=value, streamed=streamed)

    def copy(self, to: int, row: Expr, begin: int) -> Loop:
        """A line of this row of the buffer, from element `begin` on, to element `to` of `row`."""
        there, here = (simplify(Index(self.element) + n) for n in (to, begin))
        value = Read(self.stage, (Index(ROW), here))
        return self.move(Store(self.stage, (row, there), value, self.block.store.statement), int_const(self.line))

    def part(self, start: Expr, length: Expr) -> Loop:
        """`length` elements, less than a line, in the ordinary way."""
        return self.move(self.write(start, False), length)

    def lines(self, start: Expr, count: int, ask: Ask | None = None) -> Body:
        """`count` lines, streamed; where there is an `ask`, each behind requests for as much of the next block."""
        if ask is None or count <= 0:
            is_short = count * self.line <= MAX_EXPANDED * self.block.vector.lanes
            return (self.move(self.write(start, True), int_const(count * self.line), is_short),) if count > 0 else ()

        def one(n: Expr, asked: Body) -> Body:
            return (*asked, self.move(self.write(simplify(start + n * self.line), True), int_const(self.line)))

        if count > MAX_EXPANDED:
            n, n_lines = Index(f"{self.element}_0"), self.block.run // self.line
            (asked,) = ask(simplify(Index(ROW) * n_lines + n), self.block.n_rows * n_lines, 1)
            return (Loop(n.name, int_const(0), int_const(count), 1, "serial", one(n, asked)),)
        lines = ask(Index(ROW), self.block.n_rows, count)
        return tuple(node for n, asked in enumerate(lines) for node in one(int_const(n), asked))


def _rows_of(block: Block, stage: str, is_whole: bool) -> tuple[Body, _Rows]:
    """The nest that puts a block together in the buffer, and what writes its rows; `is_whole`: whether these begin and end with
    the block."""
    line = LINE // block.result.dtype.itemsize
    front = 0 if is_whole else line
    put = replace(block.store, buffer=stage, subscripts=(sum_of(block.rows), simplify(sum_of(block.places) + front)))
    begin = replace(block.store, subscripts=block.place_of(Index(ROW), int_const(0)))
    off = simplify(past_line(begin, block.result, {}))
    rows = _Rows(block, stage, f"{block.vector.var}_run", line, front, off, count=block.n_rows)
    along = next((n for n in block.loops if (block.places if is_whole else block.rows).get(n.var) == 1), None)
    trip, size = 0 if along is None else trip_count(along), block.vector.lanes if is_whole else line
    if along is None or trip % size or trip == size:
        return make_nest(block.loops, (put,)), rows
    name = f"{along.var}_rows"
    put = with_values(put, {along.var: Index(name) + Index(along.var)})
    few = replace(along, upper=int_const(size), max_trip=None if along.max_trip is None and not is_whole else size)
    group = Loop(name, int_const(0), int_const(trip), size, "serial", ())
    others = [n for n in block.loops if n is not along]
    if is_whole:  # a vector of rows of what is read at a time, to their end
        return make_nest([*others[:-1], group, *others[-1:], few], (put,)), rows
    # As many rows of the buffer at a time as fill lines of what is read.
    groups = (*(n for n in others if n.var in block.rows), group)
    first = sum_of({n.var: block.rows[n.var] for n in groups[:-1]} | {name: 1})
    inner = [few if n is along else n for n in block.loops if n is along or n.var not in block.rows]
    return make_nest(inner, (put,)), replace(rows, groups=groups, first=first, count=size)


def write_rows(block: Block, stage: str, ask: Ask, is_first: Expr | bool, is_last: Expr | bool, n_together: int = 1) -> Body:
    """The block by way of the buffer `stage`, with requests for the next one while this one is written.

    `is_first`, `is_last`: whether rows begin, and end, with this block.  Of `n_together` rows that follow each other in memory,
    and are whole lines then, each ends with the line in which the next one begins."""
    put, rows = _rows_of(block, stage, is_first is True and is_last is True)
    line, off, number = rows.line, rows.off, Index(ROW) % n_together
    n_lines, over = divmod(block.run, line)
    missing, joined = simplify(line - off), simplify(off + over)
    end = simplify(n_lines * line - off)
    # Behind the last of `n_lines` there may be one more where a block is no whole lines.
    more: Body = (If(le(line, joined), rows.lines(end, 1)),) if over else ()
    end, left = (simplify(end + joined // line * line), simplify(joined % line)) if over else (end, off)
    head: Node = rows.part(int_const(0), missing)
    tail: Node = rows.part(end, left)
    if n_together > 1:  # the first line of a row goes behind the last elements of the row in front of it
        lend = rows.copy(line + block.run, Index(ROW) - 1, line)
        head = If(lt(0, number), (lend,), (head,))
        tail = If(lt(number, n_together - 1), (If(lt(0, off), rows.lines(end, 1)),), (tail,))
    begun = If(eq(off, 0), rows.lines(int_const(0), n_lines, ask), (head, *rows.lines(missing, n_lines - 1, ask)))
    carried = rows.lines(simplify(-off), n_lines, ask) or ask(Index(ROW), block.n_rows, 1)[0]
    behind: Body = (*more, tail if is_last is True else rows.copy(0, Index(ROW), block.run))
    body = choose(is_first, (rows.each(begun, *behind),), (rows.each(*carried, *behind),))
    ending = choose(is_last, (rows.each(tail),)) if is_last is not True else ()
    return make_nest(rows.groups, (*put, *body, *ending))
