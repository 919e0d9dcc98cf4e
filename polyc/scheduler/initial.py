"""Place the initial value of each reduction directly above its outermost reduction member.

Before: ``[P:i, R:j]{ S }``.  After: ``[P:i]{ [P] init_S ; [R:j]{ S } }``.  The initial value is a loop over the elements that
the instances below that point write; it never enters the ILP (separate statements there end up as ``if (k == 0)``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from polyc.poly.rows import Band, Leaf, Member, Node, Row, Sequence, statements_of
from polyc.poly.scop import Scop, ScopStatement


def place_initial_values(node: Node, scop: Scop) -> Node:
    """Rows with an ``init_S`` leaf for every reduction S."""
    reductions = {s.name: s for s in scop.statements if s.is_reduction}
    return _place(node, reductions, frozenset(), ())


def _place(node: Node, reductions: dict[str, ScopStatement], scheduled: frozenset[str], path: tuple[Member, ...]) -> Node:
    """`scheduled`: reductions whose initial value has been placed already; `path`: members of the enclosing bands."""
    match node:
        case Leaf():
            s = reductions.get(node.statement)
            if s is None or s.name in scheduled:
                return node
            return Sequence((_initial_nest(s, path), node))
        case Sequence():
            children: list[Node] = []
            for child in node.children:
                placed = _place(child, reductions, scheduled, path)
                children.extend(placed.children if isinstance(placed, Sequence) else [placed])
            return Sequence(tuple(children))
        case Band():
            return _place_band(node, reductions, scheduled, path)
        case _:
            assert_never(node)


def _place_band(band: Band, reductions: dict[str, ScopStatement], scheduled: frozenset[str], path: tuple[Member, ...]) -> Node:
    waiting = [reductions[n] for n in statements_of(band) if n in reductions and n not in scheduled]
    outer = tuple(m for m in band.members if not any(_reduces(m, s) or _runs_inside(m, s) for s in waiting))
    inner = tuple(m for m in band.members if m not in outer)
    if not inner:
        child = _place(band.child, reductions, scheduled, path + band.members)
        return Band(tuple(_with_init_rows(m, child, reductions) for m in band.members), child)
    here = [s for s in waiting if any(_reduces(m, s) for m in inner)]
    below = _place(band.child, reductions, scheduled | {s.name for s in here}, path + band.members)
    body: Node = Band(tuple(_with_init_rows(m, below, reductions) for m in inner), below)
    body = Sequence((*(_initial_nest(s, path + outer) for s in here), body))
    if not outer:
        return body
    return Band(tuple(_with_init_rows(m, body, reductions) for m in outer), body)


def _reduces(member: Member, s: ScopStatement) -> bool:
    """Whether this member runs over a reduction index of `s`."""
    row = member.rows[s.name]
    left = set(s.elements)
    return any(c and s.indices[n] not in left for n, c in enumerate(row.coefficients))


def _runs_inside(member: Member, s: ScopStatement) -> bool:
    """Whether this member runs over an index of `s` between ends that a reduction index names: loops over that are outside."""
    row, left = member.rows[s.name], set(s.elements)
    moved = [s.indices[n] for n, c in enumerate(row.coefficients) if c]
    return any(not r.outer <= left for i, r in s.loaded_ranges.items() if i in moved)


def init_row(row: Row, s: ScopStatement) -> Row:
    """The row of a reduction, expressed over the coordinates of an element (those of ``init_S``)."""
    position = {i: n for n, i in enumerate(s.indices)}
    return Row(tuple(row.coefficients[position[i]] if i in position else 0 for i in s.elements), row.constant)


def _with_init_rows(member: Member, child: Node, reductions: dict[str, ScopStatement]) -> Member:
    rows = dict(member.rows)
    for name in statements_of(child):
        if name.startswith("init_") and name not in rows:
            s = reductions[name.removeprefix("init_")]
            rows[name] = init_row(rows[s.name], s)
    return replace(member, rows={n: rows[n] for n in statements_of(child)})


def _initial_nest(s: ScopStatement, path: tuple[Member, ...]) -> Node:
    """``init_S`` under a band of the coordinates that no enclosing member fixes."""
    name = f"init_{s.name}"
    fixed = {m.rows[s.name].unit_index() for m in path}
    position = {i: n for n, i in enumerate(s.indices)}
    free = [n for n, i in enumerate(s.elements) if position.get(i, -1) not in fixed]
    members = tuple(Member("P", {name: Row(tuple(int(m == n) for m in range(len(s.elements))))}) for n in free)
    return Band(members, Leaf(name)) if members else Leaf(name)
