"""Take the rows that are read side by side from far apart, so that each of them goes on where the last one ended.

Before: ``for i < N by 4 { vector j { unroll r < 4 { y[i + r] += A[i + r, j] * x[j] } } }``.
After: ``for i < N // 4 { vector j { unroll r < 4 { y[i + r*(N // 4)] += A[i + r*(N // 4), j] * x[j] } } }`` and the rows that
are left.

A processor's prefetcher finds out anew where every stream goes, at its beginning and at each page.  Neighbouring rows in
registers begin a stream for every row, and several in one page where rows are short; rows far apart are as many streams as
there are registers, each of them as long as the array (C, AMD Zen 4, four rows of f64 beyond the second-level cache: rows of
1 KiB 10 → 33 GB/s, of 4 KiB 21 → 35, of 10 KiB 30 → 43, of 16 KiB 26 → 38, of 32 KiB 26 → 28; in the second-level cache the
same).

Passes over several arrays that stand one behind the other become one pass over fewer rows of each, as many streams as before
(two matrices of f64, four rows of each in turn and two of each at once: rows of 10 KiB 41 → 48 GB/s, of 16 KiB 30 → 33).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import combinations_with_replacement

from polyc.codegen.nests.prefetch import is_large
from polyc.ir.access import reads_in, stride_of, writes_in, written_in
from polyc.ir.dependence import iterations_apart
from polyc.ir.expr import (
    Const,
    Expr,
    Index,
    Read,
    all_hold,
    children,
    ge,
    int_const,
    mentions,
    operands_of,
    reads,
    rewrite,
    substitute,
)
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, If, Loop, Node, Store, Update
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, map_bodies, map_nodes, nodes_in, rewrite_nodes, walk_nodes
from polyc.machine import Machine
from polyc.records import dataclass, replace

LEAST_ROWS = 4
"""Rows of a stream, one behind the other, from which it is worth its own: 16 of 16 KiB in four streams took 0.8 of the time."""

SLACK = 8
"""Part of a row that may lie between its end and the next one."""

_ROW = "·row"


@dataclass(frozen=True, slots=True)
class _Access:
    """An element that an iteration touches, its row in the block called `_ROW`."""

    buffer: str
    subscripts: tuple[Expr, ...]
    kind: str
    """What is done to it: "read", "store", "initial", or the operator of an update."""


@dataclass(slots=True)
class _Body:
    """What stands in a loop over blocks of rows."""

    loop: Loop
    ends: tuple[Expr, ...]
    """The least of these ends the loop."""
    buffers: Mapping[str, Buffer]
    large: frozenset[str]
    places: frozenset[tuple[str, int]]
    """Dimensions of private buffers that tell the place of a row in its block."""
    target: Machine
    reassociate: bool
    inner: set[str] = field(default_factory=set)
    accesses: list[_Access] = field(default_factory=list)
    has_streams: bool = False
    is_open: bool = False
    """Whether rows of a block are left out behind the end."""


def take_rows_from_afar(body: Body, buffers: tuple[Buffer, ...], target: Machine, reassociate: bool) -> Body:
    """The same nodes, with the rows of large arrays that one pass reads side by side as far apart as their loop goes.

    `reassociate`: whether what all rows add to may be added up in another order."""
    by_name = {b.name: b for b in buffers}
    large = frozenset(b.name for b in buffers if b.space == "argument" and is_large(b, target))

    def spread(node: Node, scope: Scope) -> Body | None:
        return _spread(node, by_name, large, target, reassociate) if isinstance(node, Loop) else None

    return rewrite_nodes(body, spread) if large else body


def _spread(
    loop: Loop, buffers: Mapping[str, Buffer], large: frozenset[str], target: Machine, reassociate: bool
) -> Body | None:
    """The loop over blocks whose rows are as far apart as can be, and what runs the rest; None where it stays as it is."""
    is_plain = loop.kind in ("serial", "parallel") and not loop.registers and not loop.initial and loop.stream is None
    if not is_plain or loop.step == 1 or loop.lower != int_const(0):
        return None
    ends = tuple(operands_of(loop.upper, "min"))
    found = _Body(loop, ends, buffers, large, _find_places(loop.body, loop, buffers), target, reassociate)
    if not all(_look(n, (), None, found) for n in loop.body) or not found.has_streams or not _is_free(found):
        return None
    body, n_passes = _join_passes(loop.body, found)
    n_rows = max(1, loop.step // n_passes)
    known = [int(e.value) for e in ends if isinstance(e, Const)]
    others = [e for e in ends if not isinstance(e, Const)]
    if not known:
        if len(ends) > 1 or not found.is_open:
            return None
        distance = simplify(ends[0] // n_rows)
        rest = (_take_rest(found, body, n_rows, distance, 1),) if n_rows > 1 else ()
        return _take_blocks(found, body, n_rows, distance), *rest
    n_blocks, n_left = divmod(min(known), n_rows)
    if min(known) // loop.step < LEAST_ROWS or (min(known) % loop.step and (others or not found.is_open)):
        return None
    blocks = _take_blocks(found, body, n_rows, int_const(n_blocks))
    if others:
        return (If(all_hold([ge(e, min(known)) for e in others]), (blocks,), (loop,)),)
    return (blocks, _take_rest(found, body, n_rows, int_const(n_blocks), n_left)) if n_left else (blocks,)


# -- what stands in the loop


def _look(node: Node, rows: tuple[str, ...], vector: Loop | None, found: _Body) -> bool:
    """Whether `node` names its rows by the loop and an expanded one inside of as many; notes what it touches.

    `rows`: the variable of that expanded loop, if it is around; `vector`: the vector loop around."""
    variables = (found.loop.var, *rows)
    match node:
        case Store() | Update():
            kind = node.op if isinstance(node, Update) else "store"
            return _note(Read(node.buffer, node.subscripts), kind, rows, vector, found) and _look_at(
                node.value, rows, vector, found
            )
        case If():
            inside = all(_look(n, rows, vector, found) for n in node.body + node.orelse)
            return inside and _look_at(node.condition, rows, vector, found)
        case Loop():
            found.inner.add(node.var)
            if _is_over_rows(node, found.loop) or _is_over_places(node, found):
                if rows or not _ends_alike(node, found):
                    return False
                rows = (node.var,)
            elif any(mentions(e, v) for e in (node.lower, node.upper) for v in variables):
                return False
            elif node.kind == "vector":
                vector = node
            for start in node.initial:
                if not start.nest:
                    return False
                found.accesses.append(_Access(start.buffer, (), "initial"))
                held = (*rows, *(n.var for n in _loops_in(node.body) if _is_over_rows(n, found.loop)))
                if not _look_at(start.value, held, vector, found):
                    return False
                if not all(_look(n, rows, vector, found) for n in start.nest):
                    return False
            return all(_look(n, rows, vector, found) for n in node.body)
    return False


def _is_over_rows(inner: Loop, loop: Loop) -> bool:
    """Whether an expanded loop inside of `loop` runs over the rows of a block."""
    if not inner.is_expanded or inner.max_trip != loop.step:
        return False
    names = {loop.var, inner.var}
    return any(names <= _indices(s) for access in _accesses(inner) for s in access.subscripts)


def _is_over_places(inner: Loop, found: _Body) -> bool:
    """Whether an expanded loop names places in a block of private buffers, and nothing else."""
    if not inner.is_expanded or inner.max_trip != found.loop.step:
        return False
    named = [a for a in _accesses(inner) if any(mentions(s, inner.var) for s in a.subscripts)]
    return bool(named) and all(
        any(s == Index(inner.var) and (a.tensor, d) in found.places for d, s in enumerate(a.subscripts)) for a in named
    )


def _find_places(body: Body, loop: Loop, buffers: Mapping[str, Buffer]) -> frozenset[tuple[str, int]]:
    """Dimensions of private buffers in which the loops over rows name their elements."""
    return frozenset(
        (access.tensor, d)
        for inner in _loops_in(body)
        if _is_over_rows(inner, loop)
        for access in _accesses(inner)
        if buffers[access.tensor].space in ("thread", "register")
        for d, subscript in enumerate(access.subscripts)
        if subscript == Index(inner.var)
    )


def _accesses(loop: Loop) -> Iterator[Read]:
    for node in writes_in(loop.body):
        yield Read(node.buffer, node.subscripts)
        yield from reads(node.value)


def _loops_in(body: Body) -> Iterator[Loop]:
    return (node for node, _ in nodes_in(body) if isinstance(node, Loop))


def _ends_alike(inner: Loop, found: _Body) -> bool:
    """Whether the rows of a block end with the block, or where the loop over blocks ends."""
    ends = {simplify(e - Index(found.loop.var)) for e in found.ends}
    mine = [simplify(e) for e in operands_of(inner.upper, "min") if e != int_const(found.loop.step)]
    found.is_open = found.is_open or bool(mine)
    return ends.issuperset(mine)


def _look_at(expr: Expr, rows: tuple[str, ...], vector: Loop | None, found: _Body) -> bool:
    match expr:
        case Read():
            return _note(expr, "read", rows, vector, found)
        case Index():
            return expr.name != found.loop.var and expr.name not in rows
    return all(_look_at(e, rows, vector, found) for e in children(expr))


def _note(read: Read, kind: str, rows: tuple[str, ...], vector: Loop | None, found: _Body) -> bool:
    """Note an access; whether each of its subscripts names a row of the loop, a place in the block, or neither."""
    subscripts = []
    for subscript in read.subscripts:
        coefficients = index_coefficients(subscript)
        if coefficients is None:
            return False
        mine = [v for v in rows if v in coefficients]
        if found.loop.var in coefficients and [coefficients[v] for v in mine] != [coefficients[found.loop.var]]:
            return False
        subscripts.append(simplify(substitute(subscript, {v: Index(_ROW) for v in mine})))
    found.accesses.append(_Access(read.tensor, tuple(subscripts), kind))
    if kind == "read" and read.tensor in found.large and vector is not None:
        found.has_streams = found.has_streams or _goes_on(read, vector, found)
    return True


def _goes_on(read: Read, vector: Loop, found: _Body) -> bool:
    """Whether `read` goes along memory in `vector`, and from the end of a row to the next one."""
    buffer = found.buffers[read.tensor]
    size = buffer.dtype.itemsize
    if stride_of(read, buffer, vector.var) != size or not any(mentions(s, found.loop.var) for s in read.subscripts):
        return False
    step = stride_of(read, buffer, found.loop.var)
    pieces = [int(e.value) * size for e in operands_of(vector.upper, "min") if isinstance(e, Const)]
    if vector.lower != int_const(0):
        return False
    if not pieces:
        return True  # whole rows, of any length
    return step is not None and step <= found.target.prefetchers.long_run and 0 <= step - min(pieces) <= min(pieces) // SLACK


def _is_free(found: _Body) -> bool:
    """Whether the rows may run in any order, and at any place of a block."""
    touched: dict[str, list[_Access]] = {}
    for access in found.accesses:
        touched.setdefault(access.buffer, []).append(access)
    for name, accesses in touched.items():
        buffer = found.buffers[name]
        if all(a.kind == "read" for a in accesses):
            if any(_ROW in _indices(s) and found.loop.var not in _indices(s) for a in accesses for s in a.subscripts):
                return False
            continue
        if any(other != name and (other in buffer.may_alias or name in found.buffers[other].may_alias) for other in touched):
            return False
        may_reorder = found.reassociate or buffer.dtype.is_integer
        if not (
            (may_reorder and _is_sum(accesses, found))
            or _has_own_rows(accesses, found)
            or _has_own_places(buffer, accesses, found)
        ):
            return False
    return True


def _indices(expr: Expr) -> set[str]:
    return set(index_coefficients(expr) or ())


def _is_sum(accesses: list[_Access], found: _Body) -> bool:
    """Whether all rows only add to the same elements."""
    (kind, *others) = {a.kind for a in accesses}
    mine = {_ROW, found.loop.var}
    return (
        not others
        and kind not in ("store", "initial")
        and all(mine.isdisjoint(_indices(s)) for a in accesses for s in a.subscripts)
    )


def _has_own_rows(accesses: list[_Access], found: _Body) -> bool:
    """Whether no row accesses what another one writes, by the subscripts that tell it whatever loops inside do."""
    own = [a for a in accesses if a.kind != "initial"]
    told = [d for d in range(len(own[0].subscripts)) if all(found.inner.isdisjoint(_indices(a.subscripts[d])) for a in own)]
    rows = [(a.kind, [substitute(a.subscripts[d], {_ROW: int_const(0)}) for d in told]) for a in own]
    return all(
        iterations_apart(x, y, found.loop.var) in (None, (0, 0))
        for (one, x), (other, y) in combinations_with_replacement(rows, 2)
        if (one, other) != ("read", "read")
    )


def _has_own_places(buffer: Buffer, accesses: list[_Access], found: _Body) -> bool:
    """Whether each place in a block has elements of its own, which no other block needs."""
    elements = [a.subscripts for a in accesses if a.kind != "initial"]
    if not any(all(e[d] == Index(_ROW) for e in elements) for d in range(len(buffer.shape))):
        return False
    if found.loop.kind == "parallel":  # its iterations need nothing of each other
        return buffer.space in ("thread", "register")
    return buffer.space == "register" and accesses[0].kind == "initial" and len(set(elements)) == 1


# -- the loops that take its place


def _join_passes(body: Body, found: _Body) -> tuple[Body, int]:
    """`body` with passes over other arrays, one behind the other, in one loop, and the most that are in one.

    As many streams as rows are in a block are left that way: of fewer rows, from more arrays."""
    joined: list[Node] = []
    most = n_passes = 1
    for node in body:
        if joined and (both := _join(joined[-1], node, found)) is not None:
            joined[-1] = both
            n_passes += 1
        else:
            joined.append(node)
            n_passes = 1
        most = max(most, n_passes)
    return (tuple(joined), most) if most <= found.loop.step else (body, 1)


def _join(first: Node, second: Node, found: _Body) -> Loop | None:
    """One pass for two that read streams of their own, and need nothing of each other."""
    if not isinstance(first, Loop) or not isinstance(second, Loop) or first.is_expanded or first.kind != "vector":
        return None
    if replace(second, body=first.body, registers=first.registers, initial=first.initial) != first:
        return None
    touched = [{a.tensor for a in _accesses(n)} | {i.buffer for i in n.initial} for n in (first, second)]
    streams = [_streams(n, found) for n in (first, second)]
    if not first.registers or not second.registers or not all(streams) or streams[0] & streams[1]:
        return None
    written = [written_in(loop.body) for loop in (first, second)]
    if written[0] & touched[1] or written[1] & touched[0] or any(reads(i.value) for i in second.initial):
        return None
    registers, initial = (*first.registers, *second.registers), (*first.initial, *second.initial)
    return replace(first, body=(*first.body, *second.body), registers=registers, initial=initial)


def _streams(vector: Loop, found: _Body) -> set[str]:
    return {r.tensor for r in reads_in(vector.body) if r.tensor in found.large and _goes_on(r, vector, found)}


def _take_blocks(found: _Body, body: Body, n_rows: int, distance: Expr) -> Loop:
    """Whole blocks of rows that are `distance` apart."""
    return replace(found.loop, upper=distance, step=1, max_trip=None, body=_rewrite(body, found, n_rows, distance))


def _take_rest(found: _Body, body: Body, n_rows: int, distance: Expr, n_left: int) -> Loop:
    """The rows behind blocks of `n_rows`, `n_left` at a time."""
    first, rest = simplify(n_rows * distance), _rewrite(body, found, n_left, int_const(1))
    return Loop(found.loop.var, first, found.loop.upper, n_left, "serial", rest)


def _rewrite(body: Body, found: _Body, n_rows: int, distance: Expr) -> Body:
    """`body` with `n_rows` rows in a block, `distance` apart."""
    names = {n.var for n in walk_nodes(body) if isinstance(n, Loop) and _is_over_rows(n, found.loop)}
    rows = {name: distance * Index(name) for name in names}

    def place(buffer: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(simplify(substitute(s, rows)) if mentions(s, found.loop.var) else s for s in subscripts)

    def value(e: Expr) -> Expr:
        return rewrite(e, lambda r: replace(r, subscripts=place(r.tensor, r.subscripts)) if isinstance(r, Read) else None)

    def resize(node: Node) -> Node:
        if isinstance(node, Loop):
            initial = tuple(replace(i, nest=tuple(map(resize, i.nest))) for i in node.initial)
            if _is_over_rows(node, found.loop):
                node = replace(node, kind="unroll", lanes=1, interleave=1, upper=int_const(n_rows), max_trip=n_rows)
            elif _is_over_places(node, found):
                node = replace(node, upper=int_const(n_rows), max_trip=n_rows)
            node = replace(node, initial=initial)
        return map_bodies(node, lambda inside: tuple(map(resize, inside)))

    return map_nodes(tuple(map(resize, body)), value, place)
