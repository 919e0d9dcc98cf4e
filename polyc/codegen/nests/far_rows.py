"""Take the rows that are read side by side from far apart, so that each of them goes on where the last one ended.

Before: ``for i < N by 4 { vector j { unroll r < 4 { y[i + r] += A[i + r, j] * x[j] } } }``.
After: ``for i < N // 4 { vector j { unroll r < 4 { y[i + r*(N // 4)] += A[i + r*(N // 4), j] * x[j] } } }`` and the rows that
are left.

A processor's prefetcher finds out anew where every stream goes, at its beginning and at each page.  Neighbouring rows in
registers begin a stream for every row, and several in one page where rows are short; rows far apart are as many streams as
there are registers, each of them as long as the array.  Figures: docs/fusion.md.

Passes over several arrays that stand one behind the other become one pass over fewer rows of each, as many streams as before.

Legal where rows need nothing of each other: with the number of a row in the place of ``i + r``, no dependence goes from one
row to another, but for sums that may be added up in any order, and for buffers that hold something for each row of a block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from polyc.code_limits import FEW
from polyc.codegen.nests.prefetch import is_large
from polyc.ir.access import Access, accesses_in, stride_of, touched_in, written_in
from polyc.ir.dependence import carries_dependence
from polyc.ir.expr import Expr, Index, Read, all_hold, ge, index_names, int_const, mentions, operands_of, rewrite, substitute
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Store, Update
from polyc.ir.simplify import constant_of, least_constant, simplify
from polyc.ir.walk import Body, Scope, map_bodies, map_places, nodes_in, rewrite_nest, walk_nodes
from polyc.machine import Machine
from polyc.records import dataclass, replace

SLACK = 8
"""Part of a row that may lie between its end and the next one."""

_ROW, _PLACE = "·row", "·place"
"""What stands for the number of a row, and for its place in a block."""


def take_rows_from_afar(nest: LoopNest, target: Machine, reassociate: bool) -> LoopNest:
    """The nest with the rows of large arrays that one pass reads side by side as far apart as their loop goes.

    `reassociate`: whether what all rows add to may be added up in another order."""
    by_name = {b.name: b for b in nest.buffers}
    large = frozenset(b.name for b in nest.buffers if b.space == "argument" and is_large(b, target))

    def spread(node: Node, scope: Scope) -> Body | None:
        match node:
            case Loop(kind="serial" | "parallel", registers=(), initial=(), stream=None) if node.step > 1:
                is_whole = node.lower == int_const(0)
                return _spread(_Blocks(node, by_name, large, target), reassociate) if is_whole else None
        return None

    return rewrite_nest(nest, spread) if large else nest


@dataclass(slots=True)
class _Blocks:
    """A loop over blocks of rows."""

    loop: Loop
    buffers: Mapping[str, Buffer]
    large: frozenset[str]
    target: Machine
    places: set[tuple[str, int]] = field(default_factory=set)
    """Dimensions of private buffers that tell the place of a row in its block."""
    rows: dict[int, Loop] = field(default_factory=dict)
    """The expanded loops inside, over the rows of a block or their places in private buffers, by their `id`."""

    def __post_init__(self) -> None:
        inside = [n for n in walk_nodes(self.loop.body) if isinstance(n, Loop)]
        accesses = [(n, list(accesses_in(n.body))) for n in inside if n.is_expanded and n.max_trip == self.loop.step]
        for n, own in accesses:
            if any({self.loop.var, n.var} <= index_names(s) for a in own for s in a.subscripts):
                self.rows[id(n)] = n
                private = (a for a in own if self.buffers[a.buffer].space in ("thread", "register"))
                self.places |= {(a.buffer, d) for a in private for d, s in enumerate(a.subscripts) if s == Index(n.var)}
        for n, own in accesses:
            if any(s == Index(n.var) and (a.buffer, d) in self.places for a in own for d, s in enumerate(a.subscripts)):
                self.rows[id(n)] = n

    def is_over_rows(self, inner: Loop) -> bool:
        return id(inner) in self.rows

    def rows_around(self, scope: Scope) -> list[str]:
        """The variables of loops over rows around a node."""
        return [n.var for n in scope.loops if self.is_over_rows(n)]

    def is_stream(self, access: Access) -> bool:
        """Whether a large array is read along memory in a vector loop, and from the end of a row to the next one."""
        loops = (n for n in reversed(access.scope.loops) if n.kind == "vector" and not self.is_over_rows(n))
        vector, buffer = next(loops, None), self.buffers[access.buffer]
        size = buffer.dtype.itemsize
        if vector is None or access.is_write or buffer.name not in self.large or vector.lower != int_const(0):
            return False
        is_moved = any(mentions(s, self.loop.var) for s in access.subscripts)
        if stride_of(access, buffer, vector.var) != size or not is_moved:
            return False
        piece = least_constant(vector.upper)
        if piece is None:
            return True  # whole rows, of any length
        step = stride_of(access, buffer, self.loop.var)
        if step is None or step > self.target.prefetchers.long_run:
            return False
        return 0 <= step - piece * size <= piece * size // SLACK

    def at_distance(self, body: Body, n_rows: int, distance: Expr) -> Body:
        """`body` with `n_rows` rows in a block, `distance` apart."""
        far = {n.var: distance * Index(n.var) for n in self.rows.values()}

        def place(_: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return tuple(simplify(substitute(s, far)) if mentions(s, self.loop.var) else s for s in subscripts)

        def resize(node: Node) -> Node:
            if isinstance(node, Loop):
                initial = tuple(replace(i, nest=tuple(map(resize, i.nest))) for i in node.initial)
                if self.is_over_rows(node):
                    node = replace(node, kind="unroll", lanes=1, interleave=1, upper=int_const(n_rows), max_trip=n_rows)
                node = replace(node, initial=initial)
            return map_bodies(node, lambda inside: tuple(map(resize, inside)))

        return map_places(tuple(map(resize, body)), place)


def _spread(found: _Blocks, reassociate: bool) -> Body | None:
    """The loop over blocks whose rows are as far apart as can be, and what runs the rest; None where it stays as it is."""
    loop, ends = found.loop, operands_of(found.loop.upper, "min")
    own_ends = {simplify(e) for n in found.rows.values() for e in operands_of(n.upper, "min")} - {int_const(loop.step)}
    if not own_ends <= {simplify(e - Index(loop.var)) for e in ends}:
        return None
    if not any(map(found.is_stream, accesses_in(loop.body))) or not _is_free(found, reassociate):
        return None
    body, n_passes = _join_passes(loop.body, found)
    n_rows = max(1, loop.step // n_passes)
    known, others = least_constant(loop.upper), [e for e in ends if constant_of(e) is None]
    if known is None:
        if len(ends) > 1 or not own_ends:
            return None
        count, n_left, others = ends[0], min(1, n_rows - 1), []
    else:
        if known // loop.step < FEW or (known % loop.step and (others or not own_ends)):
            return None
        count, n_left = int_const(known), known % n_rows
    distance = simplify(count // n_rows)
    blocks = replace(loop, upper=distance, step=1, max_trip=None, body=found.at_distance(body, n_rows, distance))
    nodes: Body = (blocks,)
    if n_left:
        rest = found.at_distance(body, n_left, int_const(1))
        nodes = (blocks, Loop(loop.var, simplify(n_rows * distance), loop.upper, n_left, "serial", rest))
    return (If(all_hold([ge(e, count) for e in others]), nodes, (loop,)),) if others else nodes


# -- whether rows need each other


def _is_free(found: _Blocks, reassociate: bool) -> bool:
    """Whether the rows may run in any order, and at any place of a block."""
    if not all(_is_by_subscripts(node, scope, found) for node, scope in nodes_in(found.loop.body)):
        return False
    touched: dict[str, list[Access]] = {}
    for access in accesses_in(found.loop.body):
        subscripts = [_number_row(s, d, access, found) for d, s in enumerate(access.subscripts)]
        known = tuple(s for s in subscripts if s is not None)
        if len(known) < len(subscripts):
            return False
        touched.setdefault(access.buffer, []).append(replace(access, subscripts=known))
    ordered: list[Access] = []
    for name, accesses in touched.items():
        buffer = found.buffers[name]
        may_reorder = reassociate or buffer.dtype.is_integer
        if not (may_reorder and _is_sum(accesses, found)) and not _is_private(buffer, accesses, found.loop):
            ordered += accesses
        elif any(other in buffer.may_alias or name in found.buffers[other].may_alias for other in touched):
            return False
    return not carries_dependence(replace(found.loop, var=_ROW, step=1), ordered, found.buffers)


def _is_by_subscripts(node: Node, scope: Scope, found: _Blocks) -> bool:
    """Whether subscripts alone depend on the block and the row."""
    rows = found.rows_around(scope)
    match node:
        case Store() | Update():
            used: tuple[Expr, ...] = (node.value,)
        case If():
            used = (node.condition,)
        case Loop():
            used = tuple(i.value for i in node.initial)
            used += () if found.is_over_rows(node) else (node.lower, node.upper)
        case _:
            return False
    values = (rewrite(e, lambda r: int_const(0) if isinstance(r, Read) else None) for e in used)
    has_nests = not isinstance(node, Loop) or all(i.nest for i in node.initial)
    return has_nests and len(rows) <= 1 and not any(mentions(e, found.loop.var, *rows) for e in values)


def _number_row(subscript: Expr, dimension: int, access: Access, found: _Blocks) -> Expr | None:
    """The subscript by the number of the row, or its place in the block; None where it depends on either in another way."""
    rows = found.rows_around(access.scope)
    if mentions(subscript, found.loop.var):
        numbers = {name: Index(_ROW) - Index(found.loop.var) for name in rows}
        subscript = simplify(substitute(subscript, numbers))
        return None if mentions(subscript, found.loop.var, *(n.var for n in found.rows.values())) else subscript
    if (access.buffer, dimension) in found.places and any(subscript == Index(name) for name in rows):
        return Index(_PLACE)
    return None if rows and mentions(subscript, *rows) else subscript


def _is_sum(accesses: list[Access], found: _Blocks) -> bool:
    """Whether all rows only add to the same elements."""
    kinds = {a.node.op if a.kind == "update" and isinstance(a.node, Update) else "" for a in accesses}
    of_rows = all(found.rows_around(a.scope) for a in accesses)
    return (
        of_rows and len(kinds) == 1 and "" not in kinds and not any(mentions(s, _ROW) for a in accesses for s in a.subscripts)
    )


def _is_private(buffer: Buffer, accesses: list[Access], loop: Loop) -> bool:
    """Whether each place in a block has elements of its own, which no other block needs."""
    elements = {a.subscripts for a in accesses}
    if not any(all(e[d] == Index(_PLACE) for e in elements) for d in range(len(buffer.shape))):
        return False
    if loop.kind == "parallel":  # its iterations need nothing of each other
        return buffer.space in ("thread", "register")
    return buffer.space == "register" and accesses[0].kind == "write" and len(elements) == 1


# -- passes in one loop


def _join_passes(body: Body, found: _Blocks) -> tuple[Body, int]:
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


def _join(first: Node, second: Node, found: _Blocks) -> Loop | None:
    """One pass for two that read streams of their own, and need nothing of each other."""
    if not isinstance(first, Loop) or not isinstance(second, Loop) or first.is_expanded or first.kind != "vector":
        return None
    if replace(second, body=first.body, registers=first.registers, initial=first.initial) != first:
        return None
    one, other = ({a.buffer for a in accesses_in((n,)) if found.is_stream(a)} for n in (first, second))
    if not (first.registers and second.registers and one and other) or one & other:
        return None
    if written_in((first,)) & touched_in((second,)) or written_in((second,)) & touched_in((first,)):
        return None
    registers, initial = (*first.registers, *second.registers), (*first.initial, *second.initial)
    return replace(first, body=(*first.body, *second.body), registers=registers, initial=initial)
