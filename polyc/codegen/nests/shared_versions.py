"""Versions of one program that differ in some loops only become one nest, which chooses where they differ.

    before  version 0: ``for … { A; B; D }``       version 1: ``for … { A; C; D }``
    after   ``for … { A; if (choice) { B } else { C } D }``

Two register tiles of a filtered convolution share the transformations of data, filter and results that way.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.ir.expr import Expr, Size, ne
from polyc.ir.loops import Buffer, Guard, If, Loop, LoopNest, Node, Store, Update
from polyc.ir.versions import VERSION, cheapest
from polyc.ir.walk import Body, walk_nodes
from polyc.records import replace

ENOUGH = 0.25
"""Part of the statements of two versions that they must have in common."""


def share_versions(nests: Sequence[LoopNest], costs: Sequence[Expr]) -> tuple[list[LoopNest], list[int]]:
    """The same versions in fewer nests, and which of these each version is in.  The first nest stays the first; `costs`
    choose among versions."""
    shared, places = list[LoopNest](), list[int]()
    for number, nest in enumerate(nests):
        for place, other in enumerate(shared):
            joined = _join(other, nest, ne(Size(VERSION), number))
            if joined is not None:
                shared[place] = replace(joined, version=cheapest(costs))
                places.append(place)
                break
        else:
            places.append(len(shared))
            shared.append(nest)
    return shared, places


def _join(a: LoopNest, b: LoopNest, condition: Expr) -> LoopNest | None:
    """Both nests in one, of which the first runs where `condition` holds; None where that saves too little."""
    if (a.parameters, a.checks, a.folds) != (b.parameters, b.checks, b.folds) or any(fold.alone for fold in a.folds):
        return None
    buffers = _join_buffers(a.buffers, b.buffers)
    if buffers is None or any(isinstance(node, Guard) for nest in (a, b) for node in walk_nodes(nest.body)):
        return None
    body = _join_bodies(a.body, b.body, condition)
    apart = _count(a.body) + _count(b.body)
    if _count(body) > (1 - ENOUGH) * apart:
        return None
    offsets = tuple(dict.fromkeys((*a.offsets, *b.offsets)))
    return replace(a, buffers=buffers, body=body, offsets=offsets)


def _join_buffers(a: Sequence[Buffer], b: Sequence[Buffer]) -> tuple[Buffer, ...] | None:
    """The buffers of both; None where some have the same name and are not the same."""
    named = {buffer.name: buffer for buffer in a}
    if any(named.get(buffer.name, buffer) != buffer for buffer in b):
        return None
    return (*a, *(buffer for buffer in b if buffer.name not in named))


def _join_bodies(a: Body, b: Body, condition: Expr) -> Body:
    """What both have, and a branch for what is between."""
    if len(a) == len(b):
        joined: list[Node] = []
        for x, y in zip(a, b, strict=True):
            node = _join_nodes(x, y, condition)
            last = joined[-1] if joined else None
            if node is not None:
                joined.append(node)
            elif isinstance(last, If) and last.condition is condition:
                joined[-1] = replace(last, body=(*last.body, x), orelse=(*last.orelse, y))
            else:
                joined.append(If(condition, (x,), (y,)))
        return tuple(joined)
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    middle = If(condition, a[start : len(a) - end], b[start : len(b) - end])
    return (*a[:start], middle, *a[len(a) - end :])


def _join_nodes(a: Node, b: Node, condition: Expr) -> Node | None:
    """One node for both; None where nothing can be shared."""
    if a == b:
        return a
    match a, b:
        case Loop(kind="serial" | "parallel"), Loop() if a == replace(b, body=a.body) and not a.registers and not a.stream:
            return replace(a, body=_join_bodies(a.body, b.body, condition))
        case If(), If() if a.condition == b.condition:
            orelse = _join_bodies(a.orelse, b.orelse, condition)
            return replace(a, body=_join_bodies(a.body, b.body, condition), orelse=orelse)
    return None


def _count(body: Body) -> int:
    return sum(isinstance(node, (Store, Update)) for node in walk_nodes(body))
