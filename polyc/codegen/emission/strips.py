"""Sums over segments of elements that data names: terms are computed side by side for many entries before they are summed.

    before  ``for i { for p in ptr[i]:ptr[i + 1] { y[i] += v[p] * x[k[p]] } }``
    after   ``vector p { t[p] = v[p] * x[k[p]] } ; for i { vector p in ptr[i]:ptr[i + 1] { y[i] += t[p] } }``

Loop distribution (Allen and Kennedy, "Automatic translation of Fortran programs to vector form", 1987), with the terms expanded
to an array.  The loop that computes them runs through the entries of many segments, so that no branch of it depends on how long
each of them is, and sums take whole vectors, of what is left one under a mask.  Where the segments of a block have more entries
than a strip has room for, each segment is treated by itself, strip by strip.  A lane adds up the same entries either way, so
that a result does not depend on where blocks begin, which threads decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce

from polyc.codegen.emission.checks import Run, any_fails
from polyc.codegen.emission.context import Context, State
from polyc.codegen.emission.expressions import certain_reads, eval_value
from polyc.codegen.writer.builder import Val, int_val
from polyc.ir.access import written_in
from polyc.ir.expr import Expr, Index, Read, children, index_names, int_const, minimum, reads, replace_terms, type_of
from polyc.ir.loops import Buffer, Guard, Loop, Prefetch, Store, Update
from polyc.ir.types import F32, DType
from polyc.ir.walk import map_nodes
from polyc.machine import Level, Share
from polyc.records import dataclass, replace

MOST_SEGMENTS = 64
"""Segments of a block, at most: a long one among them has all of them summed with branches."""


@dataclass(frozen=True, slots=True)
class Strip:
    """A loop over a segment, buffers for terms in it of elements that data names, and the variable for their first entry."""

    loop: Loop
    buffers: Mapping[Expr, str]
    origin: str
    lanes: int
    """Entries of a segment at once: a vector of 32 bits each, of 64 bits two, since how many of them a short segment takes
    should seldom be a question."""

    def fill(self, end: Expr, ahead: Expr | None = None) -> Loop:
        """The loop that fills the buffers, up to the entry `end`; with requests for what it reads along memory `ahead`."""
        var = Index(self.loop.var)
        stores = (Store(name, self._place, term) for term, name in self.buffers.items())
        read = dict.fromkeys(r for term in self.buffers for r in reads(term) if r.subscripts == (var,))
        requests = () if ahead is None else (Prefetch(r.tensor, (var + ahead,), 1) for r in read)
        body, begin = (*requests, *stores), Index(self.origin)
        return replace(self.loop, lower=begin, upper=end, lanes=self.lanes, interleave=1, body=body, registers=(), initial=())

    def filled(self, size: int, end: Expr, ahead: Expr) -> Loop:
        """The same as the body of a loop over the origins of strips of `size` entries."""
        return replace(self._over_strips(size, (self.fill(end, ahead),)), registers=(), initial=())

    @property
    def sum(self) -> Loop:
        """The loop that reads them."""
        found: dict[Expr, Expr] = {term: Read(name, self._place) for term, name in self.buffers.items()}
        body = map_nodes(self.loop.body, lambda e: replace_terms(e, found))
        return replace(self.loop, lanes=self.lanes, interleave=1, body=body)

    def apart(self, size: int) -> Loop:
        """Both for one segment, in strips of `size` entries."""
        begin, end = Index(self.origin), minimum(Index(self.origin) + size, self.loop.upper)
        sum = replace(self.sum, lower=begin, upper=end, registers=(), initial=())
        return self._over_strips(size, (self.fill(end), sum))

    def _over_strips(self, size: int, body: tuple[Loop, ...]) -> Loop:
        return replace(self.loop, var=self.origin, step=size, kind="serial", interleave=1, body=body)

    def is_at_most(self, length: int) -> Guard:
        """That a segment has no more entries."""
        return Guard(0, self.loop.upper - self.loop.lower, int_const(length + 1))

    @property
    def _place(self) -> tuple[Expr, ...]:
        return (Index(self.loop.var) - Index(self.origin),)


def find_strip(state: State, ctx: Context, around: Loop, loop: Loop, number: int) -> Strip | None:
    """What `loop`, over the segment that `around` counts, computes of elements that data names and should find side by side.

    The loop adds up single elements, in any order; none of what terms read is written meanwhile, or hangs on a condition."""
    if not state.target.copies_gathered or loop.kind != "vector" or loop.lanes != 1:
        return None
    written = state.nest.memory_of(written_in(around.body))
    fixed = {loop.var, *ctx.env}

    def is_term(expr: Expr) -> bool:
        buffers = [state.by_name[r.tensor] for r in reads(expr)]
        return index_names(expr) <= fixed and all(b.name not in written and b.space != "register" for b in buffers)

    found: dict[Expr, None] = {}
    for node in loop.body:
        if not isinstance(node, Update) or node.buffer not in loop.registers:
            return None
        terms = dict.fromkeys(_terms(node.value, loop.var, is_term))
        if not all(map(is_term, terms)) or not certain_reads(node.value).issuperset(_gathered_reads(node.value, loop.var)):
            return None
        found |= terms
    if not found:
        return None
    origin = f"{loop.var}·strip{number}"
    return Strip(loop, {term: f"{origin}.{n}" for n, term in enumerate(found)}, origin, state.target.lanes(F32.itemsize))


def _gathered_reads(expr: Expr, variable: str) -> list[Read]:
    """Reads at places that are read for each value of a variable."""
    return [r for r in reads(expr) if any(variable in index_names(place) for e in r.subscripts for place in reads(e))]


def _terms(expr: Expr, variable: str, is_term: Callable[[Expr], bool]) -> Iterator[Expr]:
    """The largest terms around reads at places that are read, or these reads where they are part of none."""
    gathered = _gathered_reads(expr, variable)
    if gathered and (is_term(expr) or expr in gathered):
        yield expr
    elif gathered:
        for child in children(expr):
            yield from _terms(child, variable, is_term)


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
            stop, ahead = Index(f"{s.origin}·stop"), Index(f"{s.origin}·ahead")
            around_fill = inner.bind(stop.name, end).bind(ahead.name, fn.binary("sub", end, begin))
            with fn.when(fn.compare("icmp slt", begin, end)):
                run(around_fill, s.filled(size, stop, ahead), begin, end, 1)
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
    """Segments of a block, so many that their entries take up a sixteenth of the first-level cache on average: what these are
    combined with should stay there, too, and most of what is longer still fits a strip."""
    fn, last = state.fn, state.fn.binary("sub", upper, int_val(1))
    entries = int_val(1)
    for s in strips:
        begin = eval_value(state, ctx.bind(around.var, lower), s.loop.lower)
        end = eval_value(state, ctx.bind(around.var, last), s.loop.upper)
        entries = fn.intrinsic("smax", entries, fn.binary("sub", end, begin))
    most = max(1, strip_size(state, strips, Share.EIGHTH) // 2)
    wanted = fn.binary("mul", fn.binary("sub", upper, lower), int_val(most))
    return fn.intrinsic("smin", fn.intrinsic("smax", fn.binary("sdiv", wanted, entries), int_val(1)), int_val(MOST_SEGMENTS))


def strip_size(state: State, strips: Sequence[Strip], share: Share = Share.HALF) -> int:
    """Entries that each of these strips has room for in this share of the first-level cache."""
    lanes, bytes = strips[0].lanes, sum(t.itemsize for t in _types_of(state, strips).values())
    return max(1, state.target.room(Level.L1, share) // bytes // lanes) * lanes


def _types_of(state: State, strips: Sequence[Strip]) -> dict[str, DType]:
    return {name: type_of(term, state.types) for s in strips for term, name in s.buffers.items()}


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
