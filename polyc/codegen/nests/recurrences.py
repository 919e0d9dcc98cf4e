"""Serial loops that read what they wrote one or a few iterations before: borders apart, the latest values in registers.

Before: ``for j in 0:n { S[j] = x[j] + (j > 0 ? S[j - 1] : 0) }``.  After: ``S[0] = x[0] + 0; S.last[1] = S[0];
for j in 1:n { S.last[0] = x[j] + S.last[1]; S[j] = S.last[0]; S.last[1] = S.last[0] }`` with ``S.last`` in registers: the way
from one iteration to the next is its arithmetic, without a store, a load and a branch.  Values are those of before.

Temporaries of which a window is kept (``S[j % 2]``, or one cell) are read from registers just so; branches at borders are cut
as conditions are.  A few vectors side by side (``for t { vector j at most 32 { S[t, j] = a[j] * S[t - 1, j] } }``) stay
in as many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from polyc.code_limits import MAX_CARRIED, MAX_NODES
from polyc.codegen.nests.buffers import row_major_strides
from polyc.ir.access import window_of, with_values
from polyc.ir.dependence import iterations_apart
from polyc.ir.expr import Call, Const, Expr, Index, Read, Select, int_const, lt, mentions, minimum, reads, rewrite, walk
from polyc.ir.facts import assume, comparisons_in, cut, hold, is_empty, straight_nodes
from polyc.ir.intervals import Interval, ranges_in
from polyc.ir.loops import Buffer, Guard, If, Loop, LoopNest, Node, Store, known_length
from polyc.ir.scans import match_recurrence
from polyc.ir.simplify import difference, growth, simplify
from polyc.ir.types import DType
from polyc.ir.walk import Body, Scope, rewrite_nest
from polyc.records import dataclass, replace

MOST_CASES = 2
"""Conditions that stay the same in a loop for which it is written twice."""

MOST_ELEMENTS = 8
"""Elements side by side that they are kept for, where these fill no vector."""


@dataclass(frozen=True, slots=True)
class _Carried:
    """What a store of a body writes is read up to `farthest` iterations later.

    `is_cell`: all iterations write one cell, which holds the value of this iteration from that store on."""

    store: Store
    register: Buffer
    distances: dict[Read, int] = field(hash=False)
    lane: tuple[Expr, ...] = ()
    """The variable of vectors side by side."""
    is_cell: bool = False

    @property
    def farthest(self) -> int:
        return max(self.distances.values())

    def last(self, distance: int) -> tuple[Expr, ...]:
        return (int_const(distance), *self.lane)


def carry_elements(nest: LoopNest) -> LoopNest:
    """The nest with the serial loops of recurrences cut at their borders, and registers for what they read again."""
    rewriter = _Rewriter({b.name: b for b in nest.buffers})
    changed = rewrite_nest(nest, rewriter.rewrite)
    return replace(changed, buffers=(*nest.buffers, *rewriter.registers))


class _Rewriter:
    def __init__(self, buffers: dict[str, Buffer]) -> None:
        self.buffers = buffers
        self.registers: list[Buffer] = []

    def rewrite(self, node: Node, scope: Scope) -> Body | None:
        match node:
            case Loop() if node.kind in ("serial", "scan") and self._is_recurrence(node):
                return self._split_cases(node, scope, MOST_CASES)
            case Loop() if node.kind == "serial" and (row := _only_vectors(node)) is not None:
                flat = replace(node, body=row.body)
                if self._is_recurrence(flat, row) and not any(mentions(test, row.var) for test in _index_tests(flat)):
                    return self._split_cases(flat, scope, MOST_CASES, row)
                return (node,)
            case Loop() if node.kind not in ("serial", "parallel"):
                return (node,)
        return None

    def _is_recurrence(self, loop: Loop, row: Loop | None = None) -> bool:
        """Whether it holds stores (and checks) only, of not too much, and something is read that an earlier iteration wrote."""
        if loop.step != 1 or loop.registers or loop.initial or not _is_straight(loop.body):
            return False
        size = sum(1 for s in _stores_of(loop) for e in (s.value, *s.subscripts) for _ in walk(e))
        return size <= MAX_NODES // MOST_CASES and bool(self._find_carried(loop, row))

    # -- borders -------------------------------------------------------------------------------------------------
    def _split_cases(self, loop: Loop, scope: Scope, left: int, row: Loop | None = None) -> Body:
        """The loop once for each outcome of conditions that stay the same in it; `row`: the vectors that hold its body."""
        for atom in dict.fromkeys(_index_tests(loop)) if left else ():
            if mentions(atom, loop.var):
                continue
            then, other = (
                self._split_cases(
                    replace(loop, body=assume(loop.body, hold([atom], outcome))), scope.under(atom, outcome), left - 1, row
                )
                for outcome in (True, False)
            )
            return (If(atom, then, other),)
        parts = (part.loop for part in cut(loop, _index_tests(loop), ranges_in(scope)))
        return tuple(new for part in parts if part.body for new in self._carry(part, scope, row))

    # -- registers -----------------------------------------------------------------------------------------------
    def _find_carried(self, loop: Loop, row: Loop | None = None) -> list[_Carried]:
        stores = list(_stores_of(loop))
        found: list[_Carried] = []
        for place, store in enumerate(stores):
            buffer = self.buffers[store.buffer]
            others = [s for n, s in enumerate(stores) if n != place]
            if (
                any(s.buffer == store.buffer and iterations_apart(s.subscripts, store.subscripts, loop.var) for s in others)
                or any(s.buffer in buffer.may_alias for s in others)
                or not self._is_followed(stores, place, loop.var)
            ):
                continue
            found_reads = dict.fromkeys(r for s in stores for r in reads(s.value) if r.tensor == store.buffer)
            distances = {r: d for r in found_reads if (d := _find_distance(store, r, loop.var)) is not None}
            is_cell = not any(mentions(e, loop.var) for e in store.subscripts)
            if is_cell and not any(r in distances for s in stores[: place + 1] for r in reads(s.value)):
                continue
            if distances:
                # Whole vectors: those of one step share no cell of a register with the next one's.
                whole = () if row is None else (-(-(row.max_trip or 1) // row.lanes) * row.lanes,)
                name = f"{store.buffer}.last{len(self.registers) + len(found)}"
                register = _register(name, buffer.dtype, max(distances.values()) + 1, *whole)
                lane = () if row is None else (Index(row.var),)
                found.append(_Carried(store, register, distances, lane, is_cell))
        return found

    def _is_followed(self, stores: list[Store], place: int, var: str) -> bool:
        """Whether it is known which iteration wrote what a read of the store's buffer finds."""
        store = stores[place]
        if any(growth(e, var) for e in store.subscripts):  # each iteration writes an element of its own
            return True
        if self.buffers[store.buffer].space not in ("shared", "thread"):
            return False
        if not any(mentions(e, var) for e in store.subscripts):  # one cell, for all that reads the buffer here
            return all(r.subscripts == store.subscripts for s in stores for r in reads(s.value) if r.tensor == store.buffer)
        steps = window_of(store, var)
        if not steps:
            return False
        for n, s in enumerate(stores):
            for r in reads(s.value):
                distance = _find_distance(store, r, var) if r.tensor == store.buffer else 1
                if distance is None and (n <= place or r.subscripts != store.subscripts):
                    return False  # not the element of an iteration near
                if distance is not None and (distance > steps or (distance == steps and n > place)):
                    return False
        return True

    def _carry(self, loop: Loop, scope: Scope, row: Loop | None = None) -> Body:
        carried = self._find_carried(loop, row) if not any(isinstance(n, If) for n in loop.body) else []
        trip = known_length(loop)
        if not carried or (trip is not None and trip <= 2 * MAX_CARRIED) or _is_scan(loop, carried, self.buffers):
            return (_inside(loop, row),)
        self.registers += [c.register for c in carried]
        self.buffers |= {c.register.name: c.register for c in carried}
        n = max(c.farthest for c in carried)
        start = simplify(loop.lower + n)
        first = replace(loop, kind="serial", lanes=1, upper=simplify(minimum(start, loop.upper)))
        before: list[Node] = []
        for c in carried:
            for d in range(1, c.farthest + 1):
                earlier = with_values(Read(c.store.buffer, c.store.subscripts), {loop.var: simplify(start - d)})
                before.append(Store(c.register.name, c.last(d), earlier, c.store.statement))
        ranges = ranges_in(scope.inside(loop))
        rest = self._carried_loop(replace(loop, kind="serial", lanes=1, lower=start), carried, ranges, row is None)
        main: Body = (*(before if row is None else [replace(row, body=tuple(before))]), _inside(rest, row))
        condition = simplify(lt(start, loop.upper))
        return (_inside(first, row), *(main if isinstance(condition, Const) else (If(condition, main),)))

    def _carried_loop(self, loop: Loop, carried: list[_Carried], ranges: Mapping[str, Interval], reads_early: bool) -> Loop:
        body: list[Node] = []
        by_store = {c.store: c for c in carried}
        done: set[str] = set()
        for store in loop.body:
            if not isinstance(store, Store):
                body.append(store)
                continue
            known = {
                r: Read(c.register.name, c.last(0 if c.is_cell and c.store.buffer in done else d))
                for c in carried
                for r, d in c.distances.items()
            }
            value = _with_reads(store.value, known)
            if reads_early:
                early, value = self._read_early(value, ranges, store)
                body += early
            if (own := by_store.get(store)) is not None:
                done.add(store.buffer)
                body.append(Store(own.register.name, own.last(0), value, store.statement))
                value = Read(own.register.name, own.last(0))
            body.append(replace(store, value=value))
        moved = ((c, d) for c in carried for d in range(c.farthest, 0, -1))
        body += (Store(c.register.name, c.last(d), Read(c.register.name, c.last(d - 1))) for c, d in moved)
        return replace(loop, body=tuple(body))

    def _read_early(self, value: Expr, ranges: Mapping[str, Interval], store: Store) -> tuple[list[Node], Expr]:
        """Reads that data decides on are made in any case where they are surely inside: a choice instead of a branch."""
        nodes: list[Node] = []
        known: dict[Read, Read] = {}
        for e in walk(value):
            if not isinstance(e, Select) or not reads(e.condition):
                continue
            for read in dict.fromkeys(r for arm in (e.then, e.other) for r in reads(arm)):
                buffer = self.buffers[read.tensor]
                if read in known or buffer.space == "register" or not _is_inside(read, buffer, ranges):
                    continue
                name = f"{read.tensor}.early{len(self.registers)}"
                self.buffers[name] = _register(name, buffer.dtype, 1)
                self.registers.append(self.buffers[name])
                known[read] = Read(name, (int_const(0),))
                nodes.append(Store(name, (int_const(0),), read, store.statement))
        return nodes, _with_reads(value, known)


def _only_vectors(loop: Loop) -> Loop | None:
    """The loop over a few vectors, or over a few elements one by one, that is all of the body, if there is one."""
    if len(loop.body) != 1 or not isinstance(row := loop.body[0], Loop):
        return None
    trip = row.max_trip if row.kind in ("vector", "unroll") and not row.registers and not row.initial else None
    most = MAX_CARRIED * row.lanes if row.kind == "vector" else MOST_ELEMENTS
    is_short = trip is not None and trip <= most
    bounds = (row.lower, row.upper) == (int_const(0), int_const(trip or 0))
    return row if is_short and bounds and row.body and all(isinstance(n, Store) for n in row.body) else None


def _inside(loop: Loop, row: Loop | None) -> Loop:
    return loop if row is None else replace(loop, body=(replace(row, body=loop.body),))


def _register(name: str, dtype: DType, *extents: int) -> Buffer:
    shape = tuple(map(int_const, extents))
    return Buffer(name, dtype, shape, row_major_strides(shape, dtype.itemsize), "register")


def _with_reads(value: Expr, known: Mapping[Read, Read]) -> Expr:
    return rewrite(value, lambda e: known.get(e) if isinstance(e, Read) else None)


def _is_straight(body: Body) -> bool:
    """Whether there are stores and checks only, some of them in branches that indices decide."""
    return all(isinstance(n, (Store, Guard)) or (isinstance(n, If) and not reads(n.condition)) for n in straight_nodes(body))


def _index_tests(loop: Loop) -> Iterator[Call]:
    """Comparisons of indices in selections, and in the conditions of checks."""
    for node in straight_nodes(loop.body):
        if isinstance(node, (If, Guard)) and node.condition is not None:
            yield from comparisons_in(node.condition)
        for e in walk(node.value) if isinstance(node, Store) else ():
            if isinstance(e, Select):
                yield from comparisons_in(e.condition)


def _stores_of(loop: Loop) -> Iterator[Store]:
    return (node for node in straight_nodes(loop.body) if isinstance(node, Store))


def _find_distance(store: Store, read: Read, var: str) -> int | None:
    """How many iterations before the element of `read` was written, if that is a small number above 0."""
    if store.subscripts == read.subscripts and not any(mentions(e, var) for e in store.subscripts):
        return 1
    written, found = zip(*map(_unfold, store.subscripts, read.subscripts), strict=True)
    first, last = iterations_apart(written, found, var) or (None, None)
    if first is None or first != last or not 1 <= first <= MAX_CARRIED:
        return None
    then = with_values(Read(store.buffer, written), {var: Index(var) - first}).subscripts
    return first if all(difference(a, b) == 0 for a, b in zip(then, found, strict=True)) else None  # that very element


def _unfold(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Two subscripts, those in one window before they are folded."""
    match a, b:
        case Call("mod", (x, Const(m))), Call("mod", (y, Const(n))) if m == n:
            return x, y
    return a, b


def _is_scan(loop: Loop, carried: list[_Carried], buffers: dict[str, Buffer]) -> bool:
    """Whether a loop that may run as a scan has the form of one."""
    if loop.kind != "scan" or len(loop.body) != 1 or len(carried) != 1:
        return False
    (store,), own = _stores_of(loop), carried[0]
    first, second, *others = (next((r for r, d in own.distances.items() if d == n), None) for n in range(1, MAX_CARRIED + 1))
    if first is None or any(r is not None for r in others):
        return False
    return match_recurrence(store.value, first, second, buffers[store.buffer].dtype, loop.var) is not None


def _is_inside(read: Read, buffer: Buffer, ranges: Mapping[str, Interval]) -> bool:
    """Whether the element exists for all values of the indices."""
    places = zip(read.subscripts, buffer.shape, strict=True)
    return all(is_empty(s, int_const(0), ranges) and is_empty(e, s + 1, ranges) for s, e in places)
