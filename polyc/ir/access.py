"""What loop nests read and write, and how far apart in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeVar

from polyc.ir.expr import Call, Const, Expr, Read, mentions, reads, substitute
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, Loop, Node, Prefetch, Store, Update
from polyc.ir.simplify import growth, simplify
from polyc.ir.walk import TOP, Body, Scope, node_expressions, nodes_in, walk_nodes
from polyc.records import dataclass, replace

A = TypeVar("A", bound=Store | Update | Prefetch | Read)


@dataclass(frozen=True, slots=True)
class Access:
    """An element that a node reads or writes; an update does both, by one access.

    Of the initial values of a loop, the nests that store them are meant."""

    buffer: str
    subscripts: tuple[Expr, ...]
    kind: Literal["read", "write", "update"]
    node: Node
    scope: Scope

    @property
    def is_write(self) -> bool:
        return self.kind != "read"


def accesses_in(body: Body, scope: Scope = TOP) -> Iterator[Access]:
    """All accesses of a body: what a node writes, then what it reads, then those of the nodes inside."""
    for node, around in nodes_in(body, scope):
        if isinstance(node, (Store, Update)):
            kind: Literal["write", "update"] = "update" if isinstance(node, Update) else "write"
            yield Access(node.buffer, node.subscripts, kind, node, around)
        for read in (r for e in node_expressions(node) for r in reads(e)):
            yield Access(read.tensor, read.subscripts, "read", node, around)
        if isinstance(node, Loop):
            for start in node.initial:
                yield from accesses_in(start.nest, around)


def stride_of(access: Access | Read | Store | Update, buffer: Buffer, variable: str) -> int | None:
    """Bytes by which an access moves with `variable`; None where that is not known."""
    total = 0
    for subscript, stride in zip(access.subscripts, buffer.strides, strict=True):
        coefficients = index_coefficients(subscript)
        if coefficients is None:
            return None
        if coefficients.get(variable):
            if not isinstance(stride, Const):
                return None
            total += coefficients[variable] * int(stride.value)
    return total


def moves(write: Store | Update, variable: str) -> bool:
    """Whether what is written lies elsewhere for other values of `variable`."""
    return any(mentions(e, variable) for e in write.subscripts)


def with_values(access: A, values: Mapping[str, Expr]) -> A:
    """The access, and what it writes, where variables have these values."""
    subscripts = tuple(simplify(substitute(e, values)) for e in access.subscripts)
    if isinstance(access, (Store, Update)):
        return replace(access, subscripts=subscripts, value=substitute(access.value, values))
    return replace(access, subscripts=subscripts)


def writes_in(body: Body) -> Iterator[Store | Update]:
    return (node for node in walk_nodes(body) if isinstance(node, (Store, Update)))


def is_streaming(body: Body) -> bool:
    """Whether a body streams something to memory."""
    return any(isinstance(node, Store) and node.streamed for node in writes_in(body))


def expressions_in(body: Body) -> Iterator[Expr]:
    """All expressions of a body, and those of nodes inside of it."""
    for node in walk_nodes(body):
        yield from node_expressions(node)
        if isinstance(node, Loop):
            yield from (start.value for start in node.initial)


def reads_in(body: Body) -> Iterator[Read]:
    return (read for e in expressions_in(body) for read in reads(e))


def written_in(body: Body) -> set[str]:
    """The buffers that a body writes."""
    return {node.buffer for node in writes_in(body)}


def touched_in(body: Body) -> set[str]:
    """The buffers that a body reads or writes."""
    return written_in(body) | {read.tensor for read in reads_in(body)}


def window_of(access: Access | Read | Store | Update, variable: str) -> int:
    """How many places the iterations of a loop access in turn, ``S[(j + 1) % 3]``; 0 where each has another one, or that is not
    known."""
    moving = [e for e in access.subscripts if mentions(e, variable)]
    match moving:
        case []:
            return 1
        case [Call("mod", (place, Const(cells)))] if growth(place, variable) == 1:
            return int(cells)
    return 0


def read_for_places(body: Body) -> set[str]:
    """Buffers whose elements decide which elements are touched, or how often."""
    found: set[str] = set()
    for node in walk_nodes(body):
        values: tuple[Expr, ...] = ()
        places = tuple(node_expressions(node))
        if isinstance(node, (Store, Update)):
            places, values = node.subscripts, (node.value,)
        elif isinstance(node, Loop):
            values = tuple(i.value for i in node.initial)
        inside = [e for value in values for read in reads(value) for e in read.subscripts]
        found |= {r.tensor for e in (*places, *inside) for r in reads(e)}
    return found
