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

from collections.abc import Callable, Collection
from typing import Literal

from polyc.code_limits import FEW_VECTORS, LANE_PARTS, ROW_PARTS
from polyc.ir.access import Access, accesses_in
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
    operands_of,
    reads,
    rewrite,
    substitute,
)
from polyc.ir.facts import assume, hold
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Guard, If, Loop, Node, Prefetch, Update
from polyc.ir.simplify import simplify, simplify_value
from polyc.ir.walk import Body, Scope, loops_in, map_bodies, map_nodes, node_expressions, nodes_in, walk_nodes
from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Tiling:
    """What is known about tiles and the machine that runs them."""

    registers: frozenset[str] = frozenset()
    """Register buffers, which start anew with each part; neighbours that share one stay together."""
    shared: frozenset[str] = frozenset()
    """Buffers that may be the same memory as others."""
    has_masks: bool = True
    """Whether masks are no vectors."""
    in_flight: int = 8
    """Vectors of sums at once that rows of a part hold, if there are as many."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows (or lanes) of nests, at most `count`, that end at `end`; `size`: rows of a part."""

    end: Expr
    count: int
    size: int
    lanes: int

    def is_over(self, loop: Loop) -> bool:
        return _open_end(loop) == (self.end, self.count)


def run_in_parts(nests: Body, kind: Literal["unroll", "vector"], tiling: Tiling) -> Loop | None:
    """One loop over parts of the rows (`kind` unroll) or lanes (vector) of neighbouring nests with accumulators; None where
    these have no open end, or meet."""
    found = _find_rows(nests, kind, tiling)
    if found is None or (kind == "vector" and not tiling.has_masks and found.count <= FEW_VECTORS * found.lanes):
        return None
    loops = [n for n in walk_nodes(nests) if isinstance(n, Loop)]
    row = Index(f"{min(n.var for n in loops if found.is_over(n))}r")
    if any(n.var == row.name for n in loops):
        return None
    body = _narrow(nests, found, row, tiling.registers)
    if kind == "vector":
        body = _take_few_lanes(body, tiling) if tiling.has_masks else _take_all_lanes(body)
    return Loop(row.name, int_const(0), minimum(found.end, found.count), found.size, "serial", body)


def _take_few_lanes(nests: Body, tiling: Tiling) -> Body:
    """`nests`, and half of their vectors where so many have all lanes that are left."""
    found = _find_rows(nests, "vector", tiling)
    if found is None:
        return nests
    few = _take_few_lanes(_narrow(nests, found, int_const(0), tiling.registers), tiling)
    return (If(le(found.end, found.size), few, nests),)


def _take_all_lanes(nests: Body) -> Body:
    """`nests`, and without masks where all of their lanes are left."""
    ends = _expanded_ends(nests, "vector")
    if len(ends) != 1:
        return nests
    ((end, count, _),) = ends
    full = assume(nests, hold(ge(e, count) for e in operands_of(end, "min")))
    return (If(ge(end, count), full, nests),)


def _find_rows(nests: Body, kind: Literal["unroll", "vector"], tiling: Tiling) -> _Rows | None:
    """The rows or lanes of nests that may run a part at a time: each writes elements of its own, and reads no other's."""
    ends = _expanded_ends(nests, kind)
    inside = list(walk_nodes(nests))
    loops = [n for n in inside if isinstance(n, Loop)]
    if len(ends) != 1 or not any(n.registers for n in loops):
        return None
    ((end, count, lanes),) = ends
    found = _Rows(end, count, -(-count // ROW_PARTS) if kind == "unroll" else lanes * -(-count // (lanes * LANE_PARTS)), lanes)
    if kind == "unroll" and _share_vectors(nests, found):
        n_vectors = max((-(-(n.max_trip or 1) // n.lanes) for n in loops if n.kind == "vector"), default=1)
        found = replace(found, size=max(found.size, -(-tiling.in_flight // n_vectors)))
    if found.size >= count or mentions(end, *(n.var for n in loops)):
        return None
    if any(isinstance(n, Prefetch) for n in inside) or any(n.kind == "parallel" for n in loops):
        return None
    if any(_is_check_of_rows(n, scope, found) for n, scope in nodes_in(nests)):
        return None
    accesses = list(accesses_in(nests))
    written = {a.buffer for a in accesses if a.is_write}
    read = {a.buffer for a in accesses if not a.is_write} - tiling.registers
    if not written.isdisjoint(tiling.shared | read):
        return None
    return found if all(_is_row_of_its_own(a, found) for a in accesses if a.is_write) else None


def _is_check_of_rows(node: Node, scope: Scope, found: _Rows) -> bool:
    rows = [loop.var for loop in scope.loops if found.is_over(loop)]
    return isinstance(node, Guard) and any(mentions(e, *rows) for e in node_expressions(node))


def _is_row_of_its_own(write: Access, found: _Rows) -> bool:
    row = next((loop.var for loop in write.scope.loops if found.is_over(loop)), None)
    others = {loop.var for loop in write.scope.loops} - {row}
    forms = [index_coefficients(e) for e in write.subscripts]
    return any(form is not None and row in form and others.isdisjoint(form) for form in forms)


def _share_vectors(nests: Body, found: _Rows) -> bool:
    """Whether rows read the same vectors; where each reads its own, those that are dropped would be read, too."""
    for n, scope in nodes_in(nests):
        if isinstance(n, Update):
            rows = [loop.var for loop in scope.loops if loop.kind == "unroll" and found.is_over(loop)]
            lanes = [loop.var for loop in scope.loops if loop.kind == "vector"]
            if any({*rows[-1:], *lanes[-1:]} <= index_names(r) for r in reads(n.value) if rows and lanes):
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


def _expanded_ends(nests: Body, kind: str) -> list[tuple[Expr, int, int]]:
    """Open ends of the outermost expanded loops of this kind, the most iterations, and their lanes."""

    def end_of(loop: Loop) -> tuple[Expr, int] | None:
        end = _open_end(loop) if loop.kind == kind else None
        return end if end is not None and end[1] == loop.max_trip else None

    found = ((n, scope) for n, scope in nodes_in(nests) if isinstance(n, Loop) and not any(map(end_of, scope.loops)))
    return list(dict.fromkeys((*end, n.lanes) for n, _ in found if (end := end_of(n)) is not None))


def _narrow(nests: Body, found: _Rows, first: Expr, registers: Collection[str]) -> Body:
    """The nests over one part of the rows, from `first` on; register buffers hold these alone."""

    start: dict[str, Expr] = {first.name: int_const(0)} if isinstance(first, Index) else {}

    def unshifted(buffer: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(simplify(substitute(e, start)) for e in subscripts) if buffer in registers else subscripts

    def shift(expr: Expr, rows: Collection[str], tidy: Callable[[Expr], Expr] = simplify) -> Expr:
        shifted = substitute(expr, {row: first + Index(row) for row in rows})
        return tidy(
            rewrite(shifted, lambda e: Read(e.tensor, unshifted(e.tensor, e.subscripts)) if isinstance(e, Read) else None)
        )

    def visit(node: Node) -> Node:
        if not isinstance(node, Loop):
            return map_bodies(node, lambda body: tuple(map(visit, body)))
        rows = {n.var for n in loops_in((node,)) if found.is_over(n)}
        starts = tuple(
            replace(i, value=shift(i.value, rows, simplify_value), nest=tuple(map(visit, i.nest))) for i in node.initial
        )
        if not found.is_over(node):
            return replace(node, body=tuple(map(visit, node.body)), initial=starts)
        own = (node.var,)
        body = map_nodes(node.body, lambda e: shift(e, own), unshifted, stored=lambda e: shift(e, own, simplify_value))
        trip = None if node.max_trip is None else found.size
        return replace(node, upper=_end_of_part(node, found, first), max_trip=trip, body=body, initial=starts)

    return tuple(map(visit, nests))


def _end_of_part(loop: Loop, found: _Rows, first: Expr) -> Expr:
    rest, most = simplify(found.end - first), simplify(found.count - first)
    if not found.count % found.size:
        return minimum(rest, found.size)
    # Of lanes an open end again: fewer may be left than the part has.
    return minimum(rest, most, found.size) if loop.kind == "vector" else minimum(rest, minimum(most, found.size))
