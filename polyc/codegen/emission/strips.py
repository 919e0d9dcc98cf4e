"""Sums over segments of elements that data names: these are copied side by side for many entries before they are summed.

    before  ``for i { for p in ptr[i]:ptr[i + 1] { y[i] += v[p] * x[k[p]] } }``
    after   ``for p { t[p] = x[k[p]] } ; for i { vector p in ptr[i]:ptr[i + 1] { y[i] += v[p] * t[p] } }``

Loop distribution (Allen and Kennedy, "Automatic translation of Fortran programs to vector form", 1987).  The loop that copies
runs through the entries of many segments, so that no branch of it depends on how long each of them is, and sums take whole
vectors, of what is left one under a mask.  Where the segments of a block have more entries than a strip has room for, each
segment is copied by itself, strip by strip.  A lane adds up the same entries either way, so that a result does not depend on
where blocks begin, which threads decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce

from polyc.codegen.emission.checks import Run, any_fails
from polyc.codegen.emission.context import Context, State
from polyc.codegen.emission.expressions import certain_reads, eval_value
from polyc.codegen.writer.builder import Val, int_val
from polyc.ir.access import written_in
from polyc.ir.expr import Expr, Index, Read, children, index_names, int_const, minimum, reads, rewrite, substitute
from polyc.ir.loops import Buffer, Guard, Loop, Prefetch, Store, Update
from polyc.ir.types import F32, DType
from polyc.ir.walk import map_nodes, node_expressions
from polyc.machine import Level, Share
from polyc.records import dataclass, replace

MOST_SEGMENTS = 64
"""Segments of a block, at most: a long one among them has all of them summed with branches."""


@dataclass(frozen=True, slots=True)
class Strip:
    """A loop over a segment, the buffers for what it reads where data says, and the variable for the first entry in these."""

    loop: Loop
    buffers: Mapping[Read, str]
    origin: str
    lanes: int
    """Entries of a segment at once: a vector of 32 bits each, of 64 bits two, since how many of them a short segment takes
    should seldom be a question."""

    @property
    def copy(self) -> Loop:
        """The loop that fills the buffers."""
        stores = (Store(name, self._place, read) for read, name in self.buffers.items())
        return replace(self.loop, kind="serial", interleave=1, body=tuple(stores), registers=(), initial=())

    def copy_ahead(self, ahead: Expr) -> Loop:
        """The same by `lanes` entries, and with requests for what the loop reads along memory so far `ahead`."""
        var, copy = self.loop.var, self.copy
        lane = Index(f"{var}·lane")
        body = map_nodes(copy.body, lambda e: substitute(e, {var: Index(var) + lane}))
        read = dict.fromkeys(r for n in self.loop.body for e in node_expressions(n) for r in reads(e))
        requests = (Prefetch(r.tensor, (Index(var) + ahead,), 1) for r in read if r.subscripts == (Index(var),))
        lanes = Loop(lane.name, int_const(0), int_const(self.lanes), 1, "unroll", body, self.lanes)
        return replace(copy, step=self.lanes, body=(*requests, lanes))

    @property
    def sum(self) -> Loop:
        """The loop that reads them."""
        found = {read: Read(name, self._place) for read, name in self.buffers.items()}
        body = map_nodes(self.loop.body, lambda e: rewrite(e, lambda node: found.get(node) if isinstance(node, Read) else None))
        return replace(self.loop, lanes=self.lanes, interleave=1, body=body)

    def apart(self, size: int) -> Loop:
        """The same for one segment, in strips of `size` entries."""
        begin, end = Index(self.origin), minimum(Index(self.origin) + size, self.loop.upper)
        body = tuple(replace(n, lower=begin, upper=end, registers=(), initial=()) for n in (self.copy, self.sum))
        return replace(self.loop, var=self.origin, step=size, kind="serial", interleave=1, body=body)

    def is_at_most(self, length: int) -> Guard:
        """That a segment has no more entries."""
        return Guard(0, self.loop.upper - self.loop.lower, int_const(length + 1))

    @property
    def _place(self) -> tuple[Expr, ...]:
        return (Index(self.loop.var) - Index(self.origin),)


def find_strip(state: State, ctx: Context, around: Loop, loop: Loop, number: int) -> Strip | None:
    """What `loop`, over the segment that `around` counts, reads where data says and should find side by side.

    The loop adds up single elements, in any order; none of what it reads so is written meanwhile, or hangs on a condition."""
    if not state.target.copies_gathered or loop.kind != "vector" or loop.lanes != 1:
        return None
    written = state.nest.memory_of(written_in(around.body))
    found: dict[Read, None] = {}
    for node in loop.body:
        if not isinstance(node, Update) or node.buffer not in loop.registers:
            return None
        copied = dict.fromkeys(_gathered_reads(node.value, loop.var))
        if not certain_reads(node.value).issuperset(copied):
            return None
        found |= copied
    inside = {r for e in found for s in e.subscripts for r in reads(s)}
    is_fixed = index_names(*found) <= {loop.var, *ctx.env} and written.isdisjoint(r.tensor for r in (*found, *inside))
    is_in_memory = all(state.by_name[r.tensor].space != "register" for r in found)
    if not found or not is_fixed or not is_in_memory or not inside.isdisjoint(found):
        return None
    origin = f"{loop.var}·strip{number}"
    return Strip(loop, {read: f"{origin}.{n}" for n, read in enumerate(found)}, origin, state.target.lanes(F32.itemsize))


def _gathered_reads(expr: Expr, variable: str) -> Iterator[Read]:
    """Reads at places that are read for each value of a variable, but for those inside of such reads."""
    if isinstance(expr, Read) and any(variable in index_names(r) for e in expr.subscripts for r in reads(e)):
        yield expr
        return
    for child in children(expr):
        yield from _gathered_reads(child, variable)


def emit_strips(state: State, ctx: Context, run: Run, around: Loop, strips: Sequence[Strip], start: Val, stop: Val) -> None:
    """The segments from `start` to `stop`, which `around` counts; those of each strip are in order."""
    fn, size, lanes = state.fn, strip_size(state, strips), strips[0].lanes
    types = _types_of(state, strips)
    for name, t in types.items():
        state.types[name] = t
        state.by_name[name] = Buffer(name, t, (int_const(size),), (int_const(t.itemsize),), "thread")
        state.buffers[name] = fn.alloca(f"[{size * t.itemsize} x i8]", 64)
    last, inner, fits = fn.binary("sub", stop, int_val(1)), ctx, int_val(1, "i1")
    ends: list[tuple[Val, Val]] = []
    for s in strips:
        begin = eval_value(state, ctx.bind(around.var, start), s.loop.lower)
        end = eval_value(state, ctx.bind(around.var, last), s.loop.upper)
        fits = fn.binary("and", fits, fn.compare("icmp sle", fn.binary("sub", end, begin), int_val(size)))
        inner = inner.bind(s.origin, begin)
        ends.append((begin, end))

    def emit_together() -> None:
        for s, (begin, end) in zip(strips, ends, strict=True):
            count, ahead = fn.binary("sub", end, begin), Index(f"{s.origin}·count")
            middle = fn.binary("add", begin, fn.binary("and", count, int_val(-lanes)))
            with fn.when(fn.compare("icmp slt", begin, middle)):
                run(inner.bind(ahead.name, count), s.copy_ahead(ahead), begin, middle, 1)
            with fn.when(fn.compare("icmp slt", middle, end)):
                run(inner, s.copy, middle, end, 1)
        emit_for((2 * lanes, lanes, lanes // 2))  # of half a vector the rest would add nothing, in a step of its own

    def emit_for(lengths: Sequence[int]) -> None:
        """Sums without branches where no segment is longer than one of these lengths, the last one first; else for any."""
        *others, length = lengths
        sums = partial(emit_sums, min(length, lanes), length)
        longer = partial(emit_for, others) if others else partial(emit_sums, lanes, None)
        choose(state, is_any_longer(length), longer, sums)

    def is_any_longer(length: int) -> Val:
        return reduce(
            partial(fn.binary, "or"), (any_fails(state, ctx, around, (s.is_at_most(length),), start, stop) for s in strips)
        )

    def emit_sums(width: int, most: int | None) -> None:
        # Of short segments several together: each is a chain of additions, with a shuffle beside each of them.
        together = 1 if most is None else max(1, state.target.in_flight // 2)
        sums = {s.loop: replace(s.sum, lanes=width, max_trip=most) for s in strips}
        run(inner, _with_loops(around, sums), start, stop, together)

    choose(
        state,
        fits,
        emit_together,
        lambda: run(ctx, _with_loops(around, {s.loop: s.apart(size) for s in strips}), start, stop, 1),
    )
    for name in types:
        del state.buffers[name]


def count_segments(state: State, ctx: Context, around: Loop, strips: Sequence[Strip], lower: Val, upper: Val) -> Val:
    """Segments of a block, so many that their entries take up half of a strip on average."""
    fn, last = state.fn, state.fn.binary("sub", upper, int_val(1))
    entries = int_val(1)
    for s in strips:
        begin = eval_value(state, ctx.bind(around.var, lower), s.loop.lower)
        end = eval_value(state, ctx.bind(around.var, last), s.loop.upper)
        entries = fn.intrinsic("smax", entries, fn.binary("sub", end, begin))
    wanted = fn.binary("mul", fn.binary("sub", upper, lower), int_val(strip_size(state, strips) // 2))
    return fn.intrinsic("smin", fn.intrinsic("smax", fn.binary("sdiv", wanted, entries), int_val(1)), int_val(MOST_SEGMENTS))


def strip_size(state: State, strips: Sequence[Strip]) -> int:
    """Entries that each of these strips has room for."""
    lanes, bytes = strips[0].lanes, sum(t.itemsize for t in _types_of(state, strips).values())
    return max(1, state.target.room(Level.L1, Share.HALF) // bytes // lanes) * lanes


def _types_of(state: State, strips: Sequence[Strip]) -> dict[str, DType]:
    return {name: state.by_name[read.tensor].dtype for s in strips for read, name in s.buffers.items()}


def choose(state: State, condition: Val, *ways: Callable[[], None]) -> None:
    """Two ways to do the same."""
    fn = state.fn
    then, other, after = fn.new_block("then"), fn.new_block("else"), fn.new_block("endif")
    fn.branch_if(condition, then, other)
    for block, emit in zip((then, other), ways, strict=True):
        fn.place(block)
        with fn.scope():
            emit()
        fn.branch(after)
    fn.place(after)


def _with_loops(around: Loop, made: Mapping[Loop, Loop]) -> Loop:
    return replace(around, body=tuple(made.get(n, n) if isinstance(n, Loop) else n for n in around.body))
