"""Sums whose vectors begin at cache lines: alignment peeling by one masked vector in front of them.

    before  ``vector for j in 0:N { unroll i < 4 { y[i] += A[i, j] * x[j] } }``, A beginning `lead` elements behind a line
    after   the same in vectors from ``j = -lead`` on, the first one under the mask ``0 <= j``

Where arrays of others begin is known at the call only, and a load of a whole line that begins anywhere else takes two lines.
Partial sums do not change: these are a ring of all lanes of all interleaved vectors, element j is added to number
``(j + lead) mod size``, so that each of them has the same elements in the same order wherever the array begins, and a tree
that adds halves to halves is the same for a ring that was turned.  That is how `accumulators` combines one or two vectors.
Figures: docs/decisions/0657.
"""

from __future__ import annotations

from functools import partial, reduce
from math import prod
from operator import mul

from polyc.code_limits import FEW, WORD
from polyc.codegen.emission.accesses import element_pointer
from polyc.codegen.emission.context import Context, Predicate, State, byte_offset
from polyc.codegen.emission.index_values import sum_terms
from polyc.codegen.emission.linear import Linear, add_linear, add_terms, constant_of, index_names, scale_linear, split_lane
from polyc.codegen.emission.unrolling import is_inline
from polyc.codegen.emission.vector_loops import Body, InOrder, constant_trip, emit_copies, emit_rest_of_ring, emit_vector
from polyc.codegen.writer.builder import Val, int_val
from polyc.ir.expr import Const, Expr, Index, Read, count_operations, ge, int_const, lt, reads, walk
from polyc.ir.loops import Buffer, Loop, Node, Update
from polyc.ir.simplify import simplify
from polyc.machine import Level, Machine, Share
from polyc.machine.costs import LoopCosts
from polyc.machine.memory import LINE
from polyc.records import dataclass

_Updates = list[tuple[Update, tuple[Loop, ...]]]


@dataclass(frozen=True, slots=True)
class _Stream:
    """Vectors of an array that a loop reads one behind the other along memory, in one or more rows."""

    buffer: Buffer
    first: Linear
    """Bytes from the beginning of the array to the first element of the first row."""
    apart: tuple[Linear, ...]
    """Bytes between rows."""


def emit_aligned(state: State, ctx: Context, loop: Loop, lower: Val, upper: Val, emit: Body, in_order: InOrder) -> None:
    """Emit a vector loop of at least one iteration (`emit_vector`), in vectors that begin at lines where that pays."""
    stream = _find_stream(state, ctx, loop, lower)
    if stream is None:
        emit_vector(state, ctx, loop, lower, upper, emit, in_order)
        return
    fn, lanes, width = state.fn, loop.lanes, loop.lanes * loop.interleave
    begin, end = Index(f"{loop.var}·begin"), Index(f"{loop.var}·end")
    lead = _count_lead(state, ctx, loop, stream, lower, upper)
    ctx = ctx.multiple(loop.var, 1).bind(begin.name, lower).bind(end.name, upper)
    inside = Predicate(lt(Index(loop.var), end), loop.var)
    behind = Predicate(ge(Index(loop.var), begin), loop.var)
    state.invalidate_all()
    with fn.when(fn.compare("icmp ne", lead, int_val(0))):
        emit(ctx.bind_lanes(loop.var, fn.binary("sub", lower, lead), lanes, loop.interleave - 1).under(behind, inside))
    state.invalidate_all()
    start = fn.binary("add", lower, fn.binary("and", fn.binary("sub", int_val(0), lead), int_val(lanes - 1)))
    stop = fn.binary("add", start, fn.binary("and", fn.binary("sub", upper, start), int_val(-width)))
    with fn.when(fn.compare("icmp slt", start, stop)):
        fn.counted_loop(start, stop, width, emit_copies(ctx, loop, loop.interleave, emit))
    state.invalidate_all()
    emit_rest_of_ring(state, ctx.under(inside), loop, fn.intrinsic("smax", start, stop), upper, emit)


def _count_lead(state: State, ctx: Context, loop: Loop, stream: _Stream, lower: Val, upper: Val) -> Val:
    """Elements from the beginning of a line to the first one of the stream; 0 where its rows do not lie whole lines apart, are
    short, or come from beyond the second-level cache."""
    fn, buffer, size, bits = state.fn, stream.buffer, _size_of(stream.buffer), int_val(LINE - 1)
    ctx = ctx.bind(loop.var, lower)
    useless = [fn.compare("icmp ne", fn.binary("and", sum_terms(state, ctx, b), bits), int_val(0)) for b in stream.apart]
    if constant_trip(loop) is None:
        useless.append(fn.compare("icmp slt", fn.binary("sub", upper, lower), int_val(FEW * loop.lanes)))
    if not isinstance(size, Const):
        useless.append(fn.compare("icmp sgt", state.evaluate(ctx, size), int_val(_room(state.target))))
    if useless:  # the same for all rows, so that LLVM moves it out of loops around
        bits = fn.select(reduce(partial(fn.binary, "or"), useless), int_val(0), bits)
    address = fn.convert("ptrtoint", element_pointer(state, ctx, buffer, stream.first), "i64")
    return fn.binary("lshr", fn.binary("and", address, bits), int_val(buffer.dtype.itemsize.bit_length() - 1))


def _find_stream(state: State, ctx: Context, loop: Loop, lower: Val) -> _Stream | None:
    """The stream that most loads of a loop read, if it may begin anywhere; None where vectors stay where they are."""
    trip = constant_trip(loop)
    if not state.target.has_masks or loop.interleave > 2 or reads(loop.upper) or (trip is not None and trip < FEW * loop.lanes):
        return None
    updates = _find_updates(loop.body, ())
    if updates is None or any(u.buffer not in state.held or _moves(u, loop.var) for u, _ in updates):
        return None
    rows: dict[str, list[Linear]] = {}
    for update, around in updates:
        inner = ctx.bind_lanes(loop.var, lower, loop.lanes)
        for copies in around:
            inner = inner.bind(copies.var, Val("%", "i64"))
        for read in reads(update.value):
            found = _rows_of(state, inner, read, around)
            if found is None:
                return None
            kept = rows.setdefault(read.tensor, [])
            kept += [row for row in found if row not in kept]
    most, n_loads = max(rows, key=lambda name: len(rows[name]), default=""), sum(map(len, rows.values()))
    if not most or 2 * len(rows[most]) <= n_loads or not _wait_for_loads(updates, n_loads, state.target.loops):
        return None
    buffer, (first, *others) = state.by_name[most], rows[most]
    itemsize = buffer.dtype.itemsize
    if buffer.space != "argument" or itemsize < WORD or itemsize * loop.lanes != LINE or _is_far(buffer, state.target):
        return None
    apart = [difference for row in others if (difference := add_linear(row, scale_linear(first, -1)))]
    known = [n for n in map(constant_of, apart) if n is not None]
    if any(n % LINE for n in known):
        return None
    return _Stream(buffer, first, tuple(d for d in apart if constant_of(d) is None))


def _is_far(buffer: Buffer, target: Machine) -> bool:
    """Whether an array is surely beyond the second-level cache: from there a load that takes two lines asks for the next one
    ahead, and nothing is gained."""
    size = _size_of(buffer)
    return isinstance(size, Const) and int(size.value) > _room(target)


def _room(target: Machine) -> int:
    return target.room(Level.L2, Share.ALL)


def _size_of(buffer: Buffer) -> Expr:
    """Bytes of all elements."""
    return simplify(reduce(mul, buffer.shape, int_const(buffer.dtype.itemsize)))


def _wait_for_loads(updates: _Updates, n_loads: int, costs: LoopCosts) -> bool:
    """Whether loads, where each takes two lines, take longer than arithmetic."""
    if any(is_inline(e) for u, _ in updates for e in walk(u.value)):
        return False
    n_operations = sum(max(1, count_operations(u.value)) * prod(constant_trip(n) or 0 for n in around) for u, around in updates)
    return costs.straddling_load * n_loads > costs.operation * n_operations


def _find_updates(body: tuple[Node, ...], around: tuple[Loop, ...]) -> _Updates | None:
    """The sums and products of a body, and the unrolled loops around each; None where it does anything else."""
    found: _Updates = []
    for node in body:
        match node:
            case Update(op="add" | "mul"):
                found.append((node, around))
            case Loop(kind="unroll", registers=(), initial=()) if constant_trip(node) is not None:
                inner = _find_updates(node.body, (*around, node))
                if inner is None:
                    return None
                found += inner
            case _:
                return None
    return found


def _moves(update: Update, variable: str) -> bool:
    """Whether the target of an update depends on a loop."""
    return any(variable in index_names(s) for s in update.subscripts)


def _rows_of(state: State, ctx: Context, read: Read, around: tuple[Loop, ...]) -> list[Linear] | None:
    """Where the rows begin that the copies of a read take vectors of; none where all lanes read one element.  None where lanes
    do not lie side by side in memory, and where data says where."""
    buffer = state.by_name[read.tensor]
    split = split_lane(byte_offset(ctx, buffer, read.subscripts), ctx.lane)
    step = None if split is None else constant_of(split[1])
    if split is None or step not in (0, buffer.dtype.itemsize) or buffer.space == "register":
        return None
    copied = {loop.var for loop in around}
    if any(reads(a) or (copied & index_names(a) and not isinstance(a, Index)) for atoms in split[0] for a in atoms):
        return None
    rows = [split[0]] if step else []
    for loop in around:
        n_copies = constant_trip(loop) or 0
        rows = [row for start in rows for row in _copies(start, Index(loop.var), n_copies)]
    return rows


def _copies(row: Linear, variable: Index, n_copies: int) -> list[Linear]:
    """A row for each value of an unrolled loop's variable, or one for all where it does not depend on it."""
    moved: Linear = {tuple(a for a in atoms if a != variable): c for atoms, c in row.items() if variable in atoms}
    fixed: Linear = {atoms: c for atoms, c in row.items() if variable not in atoms}
    if not moved:
        return [fixed]
    copies = []
    for n in range(n_copies):
        copy = dict(fixed)
        if n:
            add_terms(copy, moved, n)
        copies.append(copy)
    return copies
