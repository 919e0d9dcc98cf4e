"""The last rows or lanes of a tile, a few at a time, instead of all that a tile has, of which most are dropped.

Before: ``for k { unroll i < min(M - c, 12) { vector j { H[c + i, j] += … } } }``, of which 12 rows are computed.
After: ``for r = 0, 4, … < min(M - c, 12) { for k { unroll i < min(M - c - r, 4) { vector j { H[c + r + i, j] += … } } } }``.
Loops around the sum whose ends rows have nothing to do with stay inside of a part.
With lanes it is the same, by half of the vectors, and where a part has no more lanes than half of these hold, by as many:
``for r = 0, 32 < min(N - c, 64) { if (N - c - r <= 16) for k { vector j < min(N - c - r, 16) … } else … }``.
Where masks are vectors, a tile of few vectors has registers for them; parts of others run without where they have all lanes:
``for r = 0, 16 < min(N - c, 24) { if (N - c - r >= 16) for k { vector j < 16 … } else … }``.

Rows (or lanes) must not meet: what a nest writes lies in a row of its own, and it reads nothing that it writes in another one.
Each element is computed by the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import field
from typing import Literal

from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    ge,
    index_names,
    int_const,
    le,
    mentions,
    minimum,
    reads,
    rewrite,
    substitute,
)
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import If, Loop, Node, Store, Update
from polyc.ir.simplify import simplify, simplify_value
from polyc.ir.walk import TOP, Body, Scope, map_bodies, node_expressions, nodes_in, walk_nodes
from polyc.records import dataclass, replace

ROW_PARTS, LANE_PARTS = 3, 2
"""Parts of a tile's rows and vectors: fewer at a time leave arithmetic units idle, of more at a time more are dropped, and each
part reads all vectors of the other operand anew."""

IN_FLIGHT = 8
"""Sums at once for which arithmetic units wait for none (a latency of 4 cycles, two units): parts of fewer take as long."""

FEW_VECTORS = 2
"""Vectors of a tile beside which there are registers for masks of as many, where these are vectors."""


def run_in_parts(
    nests: Body,
    kind: Literal["unroll", "vector"],
    registers: Collection[str],
    shared: Collection[str],
    has_masks: bool = True,
    in_flight: int = IN_FLIGHT,
) -> tuple[Loop] | None:
    """One loop over parts of the rows (`kind` unroll) or lanes (vector) of neighbouring nests with accumulators; None where
    these have no open end, or meet.

    `registers`: register buffers, which start anew with each part.  `shared`: buffers that may be the same memory as others.
    `has_masks`: whether masks are no vectors.  `in_flight`: vectors of sums at once that rows of a part hold, if there are as
    many."""
    found = _find_rows(nests, kind, registers, shared, in_flight)
    if found is None or (kind == "vector" and not has_masks and found.count <= FEW_VECTORS * found.lanes):
        return None
    row = Index(f"{min(found.rows)}r")
    if row.name in found.inner or mentions(found.end, *found.inner):
        return None
    part = _Part(row, found.end, found.count, found.size, frozenset(registers))
    body = tuple(_narrow(node, part, None) for node in nests)
    if kind == "vector":
        body = _take_few_lanes(body, registers, shared) if has_masks else _take_all_lanes(body)
    return (Loop(row.name, int_const(0), minimum(found.end, found.count), found.size, "serial", body),)


def _take_few_lanes(nests: Body, registers: Collection[str], shared: Collection[str]) -> Body:
    """`nests`, and half of their vectors where so many have all lanes that are left."""
    found = _find_rows(nests, "vector", registers, shared)
    if found is None or mentions(found.end, *found.inner):
        return nests
    part = _Part(int_const(0), found.end, found.count, found.size, frozenset(registers))
    few = _take_few_lanes(tuple(_narrow(node, part, None) for node in nests), registers, shared)
    return (If(le(found.end, found.size), few, nests),)


def _take_all_lanes(nests: Body) -> Body:
    """`nests`, and without masks where all of their lanes are left."""
    ends = list(dict.fromkeys(e for node in nests for e in _expanded_ends(node, "vector")))
    if len(ends) != 1:
        return nests
    ((end, count, _),) = ends
    return (If(ge(end, count), tuple(_take_all(node, end, count) for node in nests), nests),)


def _take_all(node: Node, end: Expr, count: int) -> Node:
    """`node` with `count` iterations of each loop to ``min(end, count)``."""

    def each(nodes: Body) -> Body:
        return tuple(_take_all(n, end, count) for n in nodes)

    node = map_bodies(node, each)
    if not isinstance(node, Loop):
        return node
    upper = int_const(count) if _open_end(node) == (end, count) else node.upper
    return replace(node, upper=upper, initial=tuple(replace(i, nest=each(i.nest)) for i in node.initial))


def _find_rows(
    nests: Body,
    kind: Literal["unroll", "vector"],
    registers: Collection[str],
    shared: Collection[str],
    in_flight: int = IN_FLIGHT,
) -> _Rows | None:
    """The rows or lanes of nests that may run a part at a time."""
    ends = list(dict.fromkeys(e for node in nests for e in _expanded_ends(node, kind)))
    if len(ends) != 1 or not any(isinstance(n, Loop) and n.registers for n in walk_nodes(nests)):
        return None
    ((end, count, lanes),) = ends
    size = -(-count // ROW_PARTS) if kind == "unroll" else lanes * -(-count // (lanes * LANE_PARTS))
    found = _Rows(end, count, size, lanes)
    if kind == "unroll" and all(_share_vectors(n, found) for n in nests):
        found.size = max(found.size, -(-in_flight // max(map(_n_vectors, nests))))
    if found.size >= count or not _collect(nests, TOP, found) or found.writes & set(shared):
        return None
    if any(r.tensor in found.writes and r.tensor not in registers for r in found.reads):
        return None
    return found


def _share_vectors(node: Node, found: _Rows) -> bool:
    """Whether rows read the same vectors; where each reads its own, those that are dropped would be read, too."""
    for n, scope in nodes_in((node,)):
        if isinstance(n, Update):
            rows = [loop.var for loop in scope.loops if loop.kind == "unroll" and _open_end(loop) == (found.end, found.count)]
            lanes = [loop.var for loop in scope.loops if loop.kind == "vector"]
            if any({*rows[-1:], *lanes[-1:]} <= index_names(r) for r in reads(n.value) if rows and lanes):
                return False
    return True


def _n_vectors(node: Node) -> int:
    """Vectors of a row: what its expanded vector loops hold at most."""
    loops = [n for n in walk_nodes((node,)) if isinstance(n, Loop) and n.kind == "vector"]
    return max((-(-(n.max_trip or 1) // n.lanes) for n in loops), default=1)


@dataclass(slots=True)
class _Rows:
    """What nests do whose row loops, over at most `count` rows, end at `end`; `size`: rows of a part."""

    end: Expr
    count: int
    size: int
    lanes: int
    rows: set[str] = field(default_factory=set)
    """Variables of row loops."""
    inner: set[str] = field(default_factory=set)
    """Variables of all loops."""
    writes: set[str] = field(default_factory=set)
    reads: list[Read] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    row: Expr
    """The first row of the part."""
    end: Expr
    count: int
    size: int
    registers: frozenset[str]


def _collect(nests: Body, around: Scope, found: _Rows) -> bool:
    """Note what nests do; False where that is more than rows that do not meet."""
    for node, scope in nodes_in(nests, around):
        rows = [loop.var for loop in scope.loops if _open_end(loop) == (found.end, found.count)]
        match node:
            case Store() | Update():
                if not rows or not _is_row_of_its_own(node, rows[0], tuple(loop.var for loop in scope.loops)):
                    return False
                found.writes.add(node.buffer)
                found.reads += [r for e in node_expressions(node) for r in reads(e)]
            case If():
                found.reads += reads(node.condition)
            case Loop() if node.kind != "parallel":
                if not rows and _open_end(node) == (found.end, found.count):
                    found.rows.add(node.var)
                found.inner.add(node.var)
                if not all(_collect(start.nest, scope, found) for start in node.initial):
                    return False
            case _:
                return False
    return True


def _open_end(loop: Loop) -> tuple[Expr, int] | None:
    """`end` and `count` of a loop to ``min(end, count)``."""
    if loop.lower != int_const(0) or loop.step != 1:
        return None
    match loop.upper:
        case Call("min", (Const(value), end)) | Call("min", (end, Const(value))) if not isinstance(end, Const):
            return end, int(value)
    return None


def _expanded_ends(node: Node, kind: str) -> Iterator[tuple[Expr, int, int]]:
    """Open ends of the outermost expanded loops of this kind, the most iterations, and their lanes."""

    def end_of(loop: Loop) -> tuple[Expr, int] | None:
        end = _open_end(loop) if loop.kind == kind else None
        return end if end is not None and end[1] == loop.max_trip else None

    for n, scope in nodes_in((node,)):
        if isinstance(n, Loop) and (end := end_of(n)) is not None and not any(map(end_of, scope.loops)):
            yield (*end, n.lanes)


def _is_row_of_its_own(node: Store | Update, row: str, inner: tuple[str, ...]) -> bool:
    for subscript in node.subscripts:
        coefficients = index_coefficients(subscript)
        if coefficients is not None and row in coefficients and not any(v in coefficients for v in inner if v != row):
            return True
    return False


def _narrow(node: Node, part: _Part, row: str | None) -> Node:
    """`node` over the rows of one part; `row`: the variable of the row loop around."""

    def each(nodes: Body, row: str | None) -> Body:
        return tuple(_narrow(n, part, row) for n in nodes)

    match node:
        case Store() | Update():
            subscripts = node.subscripts
            if node.buffer not in part.registers:
                subscripts = tuple(_shift(e, part, row) for e in subscripts)
            return replace(node, subscripts=subscripts, value=_shift(node.value, part, row, simplify_value))
        case If():
            return replace(
                node, condition=_shift(node.condition, part, row), body=each(node.body, row), orelse=each(node.orelse, row)
            )
        case Loop():
            rows = set(_row_variables(node, part)) if row is None else {row}
            initial = tuple(replace(i, value=_shift_all(i.value, part, rows), nest=each(i.nest, row)) for i in node.initial)
            if row is None and _open_end(node) == (part.end, part.count):
                ends = [part.end] if part.count % part.size == 0 else [part.end, int_const(part.count)]
                rest = [simplify(end - part.row) for end in ends]
                if node.kind == "vector":  # an open end again: fewer lanes may be left than the part has
                    rest = [minimum(*rest)]
                bound: Expr = int_const(part.size)
                for end in reversed(rest):
                    bound = minimum(end, bound)
                trip = None if node.max_trip is None else part.size
                return replace(node, upper=bound, max_trip=trip, body=each(node.body, node.var), initial=initial)
            lower, upper = _shift(node.lower, part, row), _shift(node.upper, part, row)
            return replace(node, lower=lower, upper=upper, body=each(node.body, row), initial=initial)
    return node


def _shift(expr: Expr, part: _Part, row: str | None, tidy: Callable[[Expr], Expr] = simplify) -> Expr:
    """`expr` with the rows of the part, simplified by `tidy`; register buffers hold these alone."""
    if row is None:
        return expr
    shifted = substitute(expr, {row: part.row + Index(row)})
    first = {part.row.name: int_const(0)} if isinstance(part.row, Index) else {}

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Read) and node.tensor in part.registers:
            return Read(node.tensor, tuple(substitute(e, first) for e in node.subscripts))
        return None

    return tidy(rewrite(shifted, rule))


def _shift_all(value: Expr, part: _Part, rows: Collection[str]) -> Expr:
    """An initial value, which is over the variables of the loops inside."""
    for row in rows:
        value = _shift(value, part, row, simplify_value)
    return value


def _row_variables(node: Node, part: _Part) -> Iterator[str]:
    return (n.var for n, _ in nodes_in((node,)) if isinstance(n, Loop) and _open_end(n) == (part.end, part.count))
