"""Schedules as they leave a scheduler: nested bands of integer rows, before they become an isl schedule tree.

A scheduler decides rows; `poly.tree.build_schedule` turns them into the isl tree, adding the initial values of
reductions.  The text form is that of the golden files: ``[P:i]{ [R:j] M ; [R:j]{ E ; Z } ; [P:j] O }``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Sequence_
from typing import Literal, TypeVar, assert_never

from polyc.poly.scop import Scop
from polyc.records import dataclass, replace

_Value = TypeVar("_Value")
Kind = Literal["P", "R", "S"]
"""P: truly coincident (parallel).  R: parallel but for the statement's own reduction.  S: carries dependences."""


@dataclass(frozen=True, slots=True)
class Row:
    """One affine function of a statement's indices: coefficients in the order of its domain, and a constant."""

    coefficients: tuple[int, ...]
    constant: int = 0

    def unit_index(self) -> int | None:
        """Position of the only coefficient if the row is that index alone, else None."""
        ones = [n for n, c in enumerate(self.coefficients) if c]
        if len(ones) == 1 and self.coefficients[ones[0]] == 1 and self.constant == 0:
            return ones[0]
        return None


def free_positions(row: Row, others: Sequence_[Row]) -> list[int]:
    """Indices that move with `row` and are not fixed where `others` stand still: rows with one index left fix it, in turn."""
    fixed: set[int] = set()
    while True:
        left = ([n for n, c in enumerate(r.coefficients) if c and n not in fixed] for r in others)
        found = {positions[0] for positions in left if len(positions) == 1}
        if not found:
            return [n for n, c in enumerate(row.coefficients) if c and n not in fixed]
        fixed |= found


@dataclass(frozen=True, slots=True)
class Member:
    kind: Kind
    rows: Mapping[str, Row]
    """Row by statement name, for every statement below the band."""
    inner: Kind | None = None
    """What the member is inside the members before it, if that differs: they may carry all that makes it sequential."""
    apart: Mapping[str, Kind] | None = None
    """For the last member of a band over leaves: what it is for each statement in a loop of its own, where the statements may
    run one after the other inside the members before it."""

    @property
    def kind_inside(self) -> Kind:
        return self.inner or self.kind


@dataclass(frozen=True, slots=True)
class Leaf:
    statement: str


@dataclass(frozen=True, slots=True)
class Sequence:
    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """A permutable band: any order of its members is legal."""

    members: tuple[Member, ...]
    child: Node


Node = Band | Sequence | Leaf


def statements_of(node: Node) -> Iterator[str]:
    """Names of the statements below `node`, in textual order."""
    match node:
        case Leaf():
            yield node.statement
        case Sequence():
            for child in node.children:
                yield from statements_of(child)
        case Band():
            yield from statements_of(node.child)
        case _:
            assert_never(node)


def keep_statements(node: Node, names: frozenset[str]) -> Node | None:
    """`node` without the statements that are not among `names`; None where none is left."""

    def keep(rows: Mapping[str, _Value]) -> dict[str, _Value]:
        return {name: row for name, row in rows.items() if name in names}

    match node:
        case Leaf():
            return node if node.statement in names else None
        case Sequence():
            children = tuple(kept for child in node.children if (kept := keep_statements(child, names)) is not None)
            return Sequence(children) if len(children) > 1 else children[0] if children else None
        case Band():
            inside = keep_statements(node.child, names)
            members = (replace(m, rows=keep(m.rows), apart=None if m.apart is None else keep(m.apart)) for m in node.members)
            return None if inside is None else Band(tuple(members), inside)
        case _:
            assert_never(node)


def all_leaves(node: Node) -> bool:
    """Whether `node` is one statement, or several in a sequence, without a loop."""
    return isinstance(node, Leaf) or (isinstance(node, Sequence) and all(isinstance(c, Leaf) for c in node.children))


def format_row(row: Row, indices: Sequence_[str]) -> str:
    """``2t+i+1``."""
    text = ""
    for coefficient, index in zip(row.coefficients, indices, strict=True):
        if coefficient:
            factor = "" if abs(coefficient) == 1 else str(abs(coefficient))
            text += ("-" if coefficient < 0 else "+" if text else "") + factor + index
    if row.constant or not text:
        text += f"{row.constant:+d}" if text else str(row.constant)
    return text


def format_rows(node: Node, scop: Scop) -> str:
    """The text form: ``[P:i]{ [R:j] M ; [R:j]{ E ; Z } ; [P:j] O }``.

    A member whose rows have different texts lists them by statement: ``S:{S0: 2t+i, S1/S2: 2t+i+1}``.
    """
    indices = {s.name: s.indices for s in scop.statements}

    def member_text(member: Member) -> str:
        by_text: dict[str, list[str]] = {}
        for name, row in member.rows.items():
            by_text.setdefault(format_row(row, indices[name]), []).append(name)
        if len(by_text) == 1:
            return f"{member.kind}:{next(iter(by_text))}"
        parts = (f"{'/'.join(names)}: {text}" for text, names in by_text.items())
        return f"{member.kind}:{{{', '.join(parts)}}}"

    def visit(node: Node) -> str:
        match node:
            case Leaf():
                return node.statement
            case Sequence():
                return " ; ".join(visit(child) for child in node.children)
            case Band():
                members = ", ".join(member_text(m) for m in node.members)
                inner = visit(node.child)
                return f"[{members}] {inner}" if isinstance(node.child, Leaf) else f"[{members}]{{ {inner} }}"
            case _:
                assert_never(node)

    return visit(node)
