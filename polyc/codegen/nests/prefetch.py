"""Software prefetching: the description of what is requested early, and what policies for it ask about accesses.

    before  ``for k { unroll i < 4 { vector j < 64 { C[i, j] += A[i, k] * B[k, j] } } }``
    after   ``for k { prefetch B[k + 16, 0], 256 bytes to L2 ; unroll i < 4 { … } }``,
            which is ``Ahead(B[k, 0], (k,), distance=16, size=256, level=2)`` in front of the body of `k`

Policies find accesses that hardware prefetchers do not follow, or memory that is idle, and say what is read there later
(`prefetch_accesses`, `prefetch_next`, `prefetch_blocks`, `staging`).  Where these are the rows of a block, each of several
places requests a part of them (`request_part`).  A prefetch means nothing and its address need not exist, so that it may stand
anywhere; only what its subscripts read is kept inside of its array here.  (T. C. Mowry, M. S. Lam, A. Gupta, Design and
evaluation of a compiler algorithm for prefetching, ASPLOS 1992.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Literal, NamedTuple

from polyc.codegen.nests.copies import digits
from polyc.ir.access import stride_of, with_values, written_in
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    Select,
    all_hold,
    ge,
    gt,
    index_names,
    int_const,
    lt,
    maximum,
    mentions,
    minimum,
    reads,
    rewrite,
    substitute,
    walk,
)
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Prefetch, Store, Update, do_bounds_depend, known_length
from polyc.ir.simplify import constant_of, product_of, simplify
from polyc.ir.walk import Body, Fact, Scope, nodes_in
from polyc.machine import Machine
from polyc.records import dataclass, replace

CacheLevel = Literal[1, 2]


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is requested: `size` bytes, `beyond` elements behind what `read` reads `distance` iterations of the innermost of the
    loops `along` later; into the cache `level`, if the sizes of the call pass the tests `when`.

    There are `n_rows` rows like that; `rows`: by how many of them each variable moves of those that tell which one it is."""

    read: Read
    along: tuple[Loop, ...]
    distance: int | Expr
    size: int
    level: CacheLevel = 1
    when: tuple[Expr, ...] = ()
    beyond: int | Expr = 0
    rows: Mapping[str, int] = field(default_factory=dict, hash=False)
    n_rows: int = 1


@dataclass(frozen=True, slots=True)
class Arrays:
    """The buffers of a nest, those arguments that it only reads, and the `large` ones of them: beyond the second-level cache,
    or of unknown size."""

    buffers: Mapping[str, Buffer]
    read_only: Mapping[str, Buffer]
    large: Mapping[str, Buffer]
    target: Machine


def arrays_of(nest: LoopNest, target: Machine) -> Arrays:
    written = nest.memory_of(written_in(nest.body))
    kept = {b.name: b for b in nest.buffers if b.space == "argument" and b.name not in written}
    return Arrays({b.name: b for b in nest.buffers}, kept, {n: b for n, b in kept.items() if is_large(b, target)}, target)


def is_large(buffer: Buffer, target: Machine) -> bool:
    size = constant_of(buffer.n_bytes)
    return size is None or size > target.l2


def far_tests(buffer: Buffer, target: Machine) -> tuple[Expr, ...]:
    """The test whether a call's array lies beyond the second-level cache; none where its size is known."""
    count = product_of(buffer.shape)
    return (gt(count, target.l2 // buffer.dtype.itemsize),) if constant_of(count) is None else ()


# -- requests


def request(ahead: Ahead, arrays: Arrays) -> Prefetch | If:
    """The node that requests it."""
    place = with_values(ahead.read, step_ahead(ahead.along, ahead.distance))
    place = _clamp_reads(place, arrays, ahead.along)
    if ahead.beyond != 0:
        place = _move_along(place, arrays, ahead.beyond)
    node = Prefetch(place.tensor, place.subscripts, ahead.size, ahead.level)
    tests = [*_have_elements(place, arrays), *ahead.when]
    return If(all_hold(tests), (node,)) if tests else node


def request_part(ahead: Ahead, part: tuple[Expr, int], name: str, arrays: Arrays) -> Body:
    """The requests that part number k of n makes, which `part` says: for whole rows in a loop called `name`, or where there are
    more parts than rows, for a piece of one."""
    number, n_parts = part
    itemsize = arrays.buffers[ahead.read.tensor].dtype.itemsize
    n_pieces = max(1, min(n_parts // ahead.n_rows, ahead.size // arrays.target.cache_line))
    n, piece = ahead.n_rows * n_pieces, math.ceil(ahead.size / itemsize / n_pieces)
    share, size = math.ceil(n / n_parts), ahead.size if n_pieces == 1 else piece * itemsize
    place = number * share + Index(name) if share > 1 else number * n // n_parts
    there = with_values(ahead.read, digits(simplify(place // n_pieces), ahead.rows))
    column = place % n_pieces if ahead.n_rows > 1 else place
    one = request(replace(ahead, read=there, size=size, when=(), beyond=simplify(ahead.beyond + column * piece)), arrays)
    if share == 1 and not ahead.when:
        return (one,)
    count = int_const(share) if not ahead.when else Select(all_hold(ahead.when), int_const(share), int_const(0))
    return (Loop(name, int_const(0), count, 1, "serial", (one,)),)


def new_reads(found: Iterable[Read], around: tuple[Loop, ...]) -> list[Read]:
    """Of a window that moves on along one of the loops `around` the reads that none is of the iteration before; else all."""
    known = dict.fromkeys(with_values(read, {}) for read in found)
    for loop in reversed(around):
        moved = {loop.var: Index(loop.var) + loop.step}
        new = [read for read in known if with_values(read, moved) not in known]
        if 0 < len(new) < len(known):
            return new
    return list(known)


def step_ahead(loops: tuple[Loop, ...], distance: int | Expr) -> dict[str, Expr]:
    """The variables of `loops` (outermost first) `distance` iterations of the innermost one later, counted by an odometer.

    A distance that the call knows is counted along the innermost loop alone."""
    if not isinstance(distance, int):
        return {loops[-1].var: Index(loops[-1].var) + distance * loops[-1].step}
    result: dict[str, Expr] = {}
    carry: Expr | None = None
    places: list[Loop] = []
    for n in reversed(range(len(loops))):
        loop, whole = loops[n], 0
        if n and _is_place(loop, loops[n - 1]):
            places.append(loop)
            continue
        turn = simplify(loop.upper - loop.lower)
        is_last = n == 0 or do_bounds_depend((loop,), *(around.var for around in loops[:n]))
        if isinstance(turn, Const) and turn.value and not is_last:
            trip = -(-int(turn.value) // loop.step)
            turn = int_const(trip * loop.step)
            # As many iterations of the loop around cost no test of where this one ends.
            whole, distance = (round(distance / trip), 0) if distance >= trip * 0.75 else divmod(distance, trip)
        elif loop.step > 1:
            trips = simplify(turn + (loop.step - 1)) // loop.step
            turn = simplify(trips * loop.step)
        later = simplify(Index(loop.var) + distance * loop.step)
        if carry is not None:
            later = Select(carry, simplify(later + loop.step), later)
        if is_last or later == Index(loop.var):
            result[loop.var] = later
        else:
            wrapped = simplify(later - turn) if distance else loop.lower
            result[loop.var] = Select(lt(later, loop.upper), later, wrapped)
            carry = ge(later, loop.upper)
        distance = whole
        if is_last or (carry is None and not distance):
            break
    for place in reversed(places):
        result[place.var] = simplify(substitute(place.lower, result))
    return result


def _is_place(loop: Loop, around: Loop) -> bool:
    """Whether a loop of one iteration names where a tile of the loop `around` begins (`alignment.overlap`)."""
    divided = (e for e in walk(loop.lower) if isinstance(e, Call) and e.op in ("floordiv", "mod"))
    is_clamped = mentions(loop.lower, around.var) and not any(mentions(e, around.var) for e in divided)
    return known_length(loop) == loop.step and is_clamped


def _move_along(read: Read, arrays: Arrays, distance: int | Expr) -> Read:
    """What lies `distance` elements behind, in the dimension along memory."""
    buffer, subscripts = arrays.buffers[read.tensor], list(read.subscripts)
    along = [d for d, stride in enumerate(buffer.strides) if stride == int_const(buffer.dtype.itemsize)]
    d = along[-1] if along else -1
    subscripts[d] = simplify(subscripts[d] + distance)
    return replace(read, subscripts=tuple(subscripts))


def _clamp_reads(read: Read, arrays: Arrays, loops: tuple[Loop, ...]) -> Read:
    """Reads in the subscripts of `read`, kept inside their arrays wherever the loops are; what they name may be anywhere."""
    inside = {(Index(n.var), n.upper) for n in loops if isinstance(n.lower, Const) and n.lower.value >= 0}

    def clamp(node: Expr) -> Expr | None:
        match node:
            case Call("min", (Call("max", (value, Const(0))), _)) if reads(value):
                return value
        if not isinstance(node, Read):
            return None
        shape = arrays.buffers[node.tensor].shape
        pairs = zip(node.subscripts, shape, strict=True)
        return replace(
            node, subscripts=tuple(s if (s, e) in inside else maximum(minimum(s, simplify(e - 1)), 0) for s, e in pairs)
        )

    return replace(read, subscripts=tuple(rewrite(s, clamp) for s in read.subscripts))


def _have_elements(read: Read, arrays: Arrays) -> list[Expr]:
    """That the arrays which the subscripts of `read` read are not empty, where that is not known."""
    extents = (e for s in read.subscripts for r in reads(s) for e in arrays.buffers[r.tensor].shape)
    return [lt(0, e) for e in dict.fromkeys(extents) if (constant_of(e) or 0) <= 0]


# -- analysis


class Site(NamedTuple):
    """A read, what uses it, and the scope of that."""

    read: Read
    use: Store | Update
    scope: Scope

    @property
    def vector(self) -> Loop:
        return self.scope.loops[-1]

    @property
    def is_full(self) -> bool:
        """Whether it is in the first of the versions of a tile."""
        return all(step.outcome for step in self.scope.path if isinstance(step, Fact))

    def is_along(self, arrays: Arrays) -> bool:
        """Whether vectors read along memory."""
        buffer = arrays.buffers[self.read.tensor]
        is_vector = bool(self.scope.loops) and self.vector.kind == "vector"
        return is_vector and stride_of(self.read, buffer, self.vector.var) == buffer.dtype.itemsize


def read_sites(body: Body) -> Iterator[Site]:
    """What the stores and updates of a body read, each read of a node once."""
    for node, scope in nodes_in(body):
        if isinstance(node, (Store, Update)):
            yield from (Site(read, node, scope) for read in dict.fromkeys(reads(node.value)))


def run_bytes(buffer: Buffer, read: Read, inner: tuple[Loop, ...]) -> int | None:
    """Bytes of the contiguous piece that a read touches in all iterations of the `inner` loops; None where it is scattered."""
    moving = {loop.var: loop for loop in inner}
    size = buffer.dtype.itemsize
    for subscript, stride in zip(read.subscripts, buffer.strides, strict=True):
        names = index_names(subscript) & moving.keys()
        if not names:
            continue
        coefficients = index_coefficients(subscript)
        if coefficients is None or not isinstance(stride, Const) or int(stride.value) != buffer.dtype.itemsize:
            return None
        size += sum(abs(coefficients[name]) * _reach(moving[name]) * buffer.dtype.itemsize for name in names)
    return size


def _reach(loop: Loop) -> int:
    """The distance from the first to the last value of a loop; where that is not known, as if a row were worth prefetching to
    its end.

    Vectors that end the loop under a mask wait for the cache lines of their inactive lanes, too."""
    trip = known_length(loop)
    if trip is None:
        trip = loop.max_trip or 64
    elif (rest := trip % loop.lanes) & (rest - 1):
        trip += loop.lanes - rest
    return max(0, trip - 1) // loop.step * loop.step
