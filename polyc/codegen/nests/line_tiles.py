"""Let tiles along the rows of a long result begin where its cache lines do, wherever the array begins.

Before: ``for (t = 0; t < 64; t++) { … { vector for (c < 64) { Y[i, 64 * t + c] = … } } }``, whose rows are streamed only if
``Y`` begins at a line.  After: ``for (t = …; t < 65; t++) { for (b = min(max(missing + 64 * (t - 1), 0), 4032); …) { … {
vector for (c < 64) { Y[i, b + c] = … } } } }``, where `missing` is the distance from the beginning of a row to that of its
next line.  The first tile and the last one overlap their neighbours: what both compute is the same.  Loops that may do so are
marked by the scheduler (`scheduler.row_tiles`).
"""

from __future__ import annotations

from polyc.codegen.nests.streams import find_written_once, is_whole_lines, offset_of
from polyc.ir.access import expressions_in, reads_in, written_in
from polyc.ir.expr import Const, Expr, Index, Read, int_const, maximum, mentions, minimum, rewrite, substitute
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import LINE, Buffer, Loop, Node, Store, Update
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, map_nodes, rewrite_nodes, walk_nodes
from polyc.records import replace
from polyc.target import Target


def begin_tiles_at_lines(body: Body, buffers: tuple[Buffer, ...], target: Target) -> tuple[Body, tuple[str, ...]]:
    """The nodes with such tiles moved, and the results whose offsets that needs."""
    wanted = set(find_written_once(body, buffers, target))
    by_name = {b.name: b for b in buffers}
    used: list[str] = []

    def move(node: Node, scope: Scope) -> Node | None:
        store = _row_store(node, wanted, by_name) if isinstance(node, Loop) and node.is_apart else None
        moved = _move(node, store, by_name) if isinstance(node, Loop) and store is not None else None
        if store is not None and moved is not None:
            used.append(store.buffer)
        return moved

    return (rewrite_nodes(body, move), tuple(dict.fromkeys(used))) if wanted else (body, ())


def _row_store(loop: Loop, wanted: set[str], buffers: dict[str, Buffer]) -> Store | None:
    """The store of a long result inside of a loop of whole tiles; None where tiles that overlap would change what is written,
    or rows do not lie whole lines apart."""
    written = {name for name in written_in(loop.body) if buffers[name].space == "argument"}
    aliases = written | {other for name in written for other in buffers[name].may_alias}
    if any(isinstance(n, Update) and n.buffer in written for n in walk_nodes(loop.body)):
        return None
    if any(r.tensor in aliases or written & {*buffers[r.tensor].may_alias} for r in reads_in(loop.body)):
        return None
    for node in walk_nodes(loop.body):
        if isinstance(node, Store) and node.buffer in wanted:
            buffer = buffers[node.buffer]
            step = (index_coefficients(node.subscripts[-1]) or {}).get(loop.var, 0) * buffer.dtype.itemsize
            if step > 0 and step % LINE == 0 and buffer.strides[-1] == int_const(buffer.dtype.itemsize):
                return node if all(map(is_whole_lines, buffer.strides[:-1])) else None
    return None


def _move(loop: Loop, store: Store, buffers: dict[str, Buffer]) -> Loop | None:
    """The loop with tiles that begin at lines; None where something else than places in arrays depends on the tile."""
    if loop.kind != "serial" or loop.step != 1 or loop.lower != int_const(0) or not isinstance(loop.upper, Const):
        return None
    moving = index_coefficients(store.subscripts[-1])
    assert moving is not None
    buffer, n_tiles, step = buffers[store.buffer], int(loop.upper.value), moving[loop.var]
    base = f"{loop.var}.base"
    body = _replace_tile(loop.body, loop.var, step, base)
    if n_tiles < 2 or body is None:
        return None
    size = int_const(buffer.dtype.itemsize)
    first = offset_of(store, buffer, dict.fromkeys(moving, int_const(0)))
    missing = -first % LINE // size
    place = missing + step * (Index(loop.var) - 1)
    begin = minimum(maximum(place, 0), step * (n_tiles - 1))
    inside = Loop(base, begin, begin + 1, 1, "serial", body)
    lower = 1 - minimum(missing, 1)
    return replace(loop, lower=lower, upper=int_const(n_tiles + 1), body=(inside,), is_apart=False)


def _replace_tile(body: Body, var: str, step: int, base: str) -> Body | None:
    """`body` with `base` for `step` times `var`; None where that is not how `var` is used."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Read):
            return None
        return Read(node.tensor, tuple(map(move, node.subscripts)))

    def move(subscript: Expr) -> Expr:
        coefficients = index_coefficients(subscript)
        times = (coefficients or {}).get(var, 0)
        if not times or times % step:
            return subscript
        rest = substitute(subscript, {var: int_const(0)})
        return simplify(rest + times // step * Index(base))

    moved = map_nodes(body, lambda e: rewrite(e, rule), lambda _, subscripts: tuple(map(move, subscripts)))
    return None if any(mentions(e, var) for e in expressions_in(moved)) else moved
