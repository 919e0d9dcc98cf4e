"""The reads of a statement and the conditions under which each is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from polyc.ir.expr import Call, Expr, Index, Pad, PadMode, Read, Select, children, walk
from polyc.ir.program import Exists, Statement


@dataclass(frozen=True, slots=True)
class ReadSite:
    """One occurrence of a read.

    `conditions`: conditions of the enclosing selections with the arm the read stands in (True: `then`).
    `place`: in the value or a left subscript, in the initial value of the reduction, or in an `exists` clause.
    `is_padded`: directly under `Pad`, which makes it where it is inside the tensor only.
    """

    read: Read
    conditions: tuple[tuple[Expr, bool], ...]
    place: Literal["value", "init", "exists"]
    is_padded: bool
    mode: PadMode = "value"


def collect_reads(statement: Statement) -> list[ReadSite]:
    """All reads of a statement in source order, those in subscripts and conditions included."""
    sites: list[ReadSite] = []

    def visit(expr: Expr, conditions: tuple[tuple[Expr, bool], ...], place: Literal["value", "init", "exists"]) -> None:
        match expr:
            case Select():
                visit(expr.condition, conditions, place)
                visit(expr.then, (*conditions, *split_condition(expr.condition, True)), place)
                visit(expr.other, (*conditions, *split_condition(expr.condition, False)), place)
            case Pad():
                sites.append(ReadSite(expr.read, conditions, place, True, expr.mode))
                for child in (*expr.read.subscripts, expr.value):
                    visit(child, conditions, place)
            case _:
                if isinstance(expr, Read):
                    sites.append(ReadSite(expr, conditions, place, False))
                for child in children(expr):
                    visit(child, conditions, place)

    visit(statement.value, (), "value")
    for subscript in statement.subscripts:
        visit(subscript, (), "value")
    if statement.reduction is not None:
        visit(statement.reduction.init, (), "init")
    for clause in statement.where:
        if isinstance(clause, Exists):
            visit(clause.value, (), "exists")
    return sites


def split_condition(condition: Expr, holds: bool) -> tuple[tuple[Expr, bool], ...]:
    """What must hold (True) and what must not, where `condition` holds or does not: its parts, where they are a conjunction.

    So an affine part counts though another one depends on data."""
    match condition:
        case Call("not", (a,)):
            return split_condition(a, not holds)
        case Call("and" | "or" as op, (a, b)) if (op == "and") == holds:
            return (*split_condition(a, holds), *split_condition(b, holds))
    return ((condition, holds),)


def is_data_dependent(expr: Expr) -> bool:
    """The value depends on elements of tensors."""
    return any(isinstance(node, Read) for node in walk(expr))


def index_names(expr: Expr) -> set[str]:
    return {node.name for node in walk(expr) if isinstance(node, Index)}


def join_conditions(conditions: tuple[tuple[Expr, bool], ...]) -> Expr | None:
    """The conjunction of the conditions of a site; None: the read is always made."""
    result: Expr | None = None
    for condition, holds in conditions:
        literal = condition if holds else Call("not", (condition,))
        result = literal if result is None else Call("and", (result, literal))
    return result
