"""Schedules as they leave a scheduler: nested bands of integer rows, before they become an isl schedule tree.

A scheduler decides rows; `poly.tree.build_schedule` turns them into the isl tree, adding the initial values of
reductions.  The text form is that of the golden files: ``[P:i]{ [R:j] M ; [R:j]{ E ; Z } ; [P:j] O }``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, assert_never

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


@dataclass(frozen=True, slots=True)
class Member:
    kind: Kind
    rows: Mapping[str, Row]
    """Row by statement name, for every statement below the band."""


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
