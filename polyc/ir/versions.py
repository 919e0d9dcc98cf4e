"""A choice among versions of one kernel by the sizes of a call: a tree of conditions over sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from polyc.ir.expr import Expr
from polyc.ir.text import format_expr


@dataclass(frozen=True, slots=True)
class SizeTest:
    """Where `condition`, over sizes, holds, the choice `then`, else `other`."""

    condition: Expr
    then: Tree
    other: Tree


Tree = int | SizeTest
"""The number of a version, or a test that leads to it."""


def leaves(tree: Tree) -> Iterator[int]:
    """Numbers of the versions that a tree leads to, from left to right."""
    if isinstance(tree, int):
        yield tree
    else:
        yield from leaves(tree.then)
        yield from leaves(tree.other)


def renumber(tree: Tree, numbers: dict[int, int]) -> Tree:
    """The tree with other numbers; tests whose two sides became the same are gone."""
    if isinstance(tree, int):
        return numbers[tree]
    then, other = renumber(tree.then, numbers), renumber(tree.other, numbers)
    return then if then == other else SizeTest(tree.condition, then, other)


def format_choice(tree: Tree) -> str:
    """``N < 96 ? 0 : M < 8 ? 1 : 2``."""
    if isinstance(tree, int):
        return str(tree)
    then = format_choice(tree.then)
    return (
        f"{format_expr(tree.condition)} ? {then if isinstance(tree.then, int) else f'({then})'} : {format_choice(tree.other)}"
    )
