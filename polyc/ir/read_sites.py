"""The reads of a statement and the conditions under which each is made, those included that its value no longer makes.

Ranges and checks of bounds follow from what the user wrote.  Where a value leaves an operand out (``isfinite`` of an integer,
the arm that a constant does not choose), the statement keeps its reads as `Exists` clauses (`keep_reads`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Literal

from polyc.ir.expr import Call, Const, Expr, Index, Pad, PadMode, Read, Select, Size, children, reads, walk
from polyc.ir.program import Exists, RangeClause, Statement
from polyc.ir.segments import loaded_conditions
from polyc.ir.simplify import difference
from polyc.ir.types import BOOL
from polyc.records import dataclass, replace

Place = Literal["value", "init", "exists", "bound"]


@dataclass(frozen=True, slots=True)
class ReadSite:
    """One occurrence of a read.

    `conditions`: conditions of the enclosing selections with the arm the read stands in (True: `then`).
    `place`: in the value or a left subscript, in the initial value of the reduction, or in an `exists` clause.
    `is_padded`: directly under `Pad`, which makes it where it is inside the tensor only.
    """

    read: Read
    conditions: tuple[tuple[Expr, bool], ...]
    place: Place
    is_padded: bool
    mode: PadMode = "value"


def collect_reads(statement: Statement) -> list[ReadSite]:
    """All reads of a statement in source order, those in subscripts and conditions included; then those of bounds, which are
    made at all points and tell at which the others are."""
    inside = tuple((condition, True) for condition in loaded_conditions(statement.where))
    sites = [*find_sites(statement.value, "value", inside)]
    for subscript in statement.subscripts:
        sites += find_sites(subscript, "value", inside)
    if statement.reduction is not None:
        sites += find_sites(statement.reduction.init, "init")
    for clause in statement.where:
        if isinstance(clause, Exists):
            sites += find_sites(clause.value, "exists", inside)
        elif inside and isinstance(clause, RangeClause):
            sites += [*find_sites(clause.lower, "bound"), *find_sites(clause.upper, "bound")]
    return sites


@dataclass(frozen=True, slots=True)
class Bounding:
    """How a read bounds indices: `is_guarded`: a condition on indices and sizes stands around it.  `loose`: dimensions whose
    subscripts hold a number that a call gives; they bound nothing that something else bounds, as with any other data."""

    is_guarded: bool
    loose: frozenset[int] = frozenset()


def find_bounding(sites: Sequence[ReadSite], numbers: Set[str] = frozenset()) -> list[Bounding]:
    """For each site.  Conditions on `numbers` (sizes whose values a call gives as numbers) are those on data."""

    def holds_number(expr: Expr) -> bool:
        return bool(numbers) and any(isinstance(node, Size) and node.name in numbers for node in walk(expr))

    def bounding(site: ReadSite) -> Bounding:
        is_guarded = any(not is_data_dependent(c) and not holds_number(c) for c, _ in site.conditions)
        loose = frozenset(d for d, sub in enumerate(site.read.subscripts) if holds_number(sub)) if numbers else frozenset[int]()
        return Bounding(is_guarded, loose)

    return [bounding(site) for site in sites]


def find_sites(root: Expr, place: Place, under: tuple[tuple[Expr, bool], ...] = ()) -> list[ReadSite]:
    """All reads of an expression in source order, which is evaluated where the conditions `under` hold."""
    sites: list[ReadSite] = []

    def visit(expr: Expr, conditions: tuple[tuple[Expr, bool], ...]) -> None:
        match expr:
            case Select():
                visit(expr.condition, conditions)
                visit(expr.then, (*conditions, *split_condition(expr.condition, True)))
                visit(expr.other, (*conditions, *split_condition(expr.condition, False)))
            case Pad():
                sites.append(ReadSite(expr.read, conditions, place, True, expr.mode))
                for child in (*expr.read.subscripts, expr.value):
                    visit(child, conditions)
            case _:
                if isinstance(expr, Read):
                    sites.append(ReadSite(expr, conditions, place, False))
                for child in children(expr):
                    visit(child, conditions)

    visit(root, under)
    return sites


def mention(expr: Expr) -> Iterator[Expr]:
    """What a value that leaves `expr` out has to keep in mind: for each read and index in it a truth value that holds it, under
    the conditions that hold there."""
    match expr:
        case Select():
            yield from mention(expr.condition)
            for arm, holds in ((expr.then, True), (expr.other, False)):
                yield from (guard(expr.condition, holds, e) for e in mention(arm))
        case Read() | Pad() | Index():
            yield Call("eq", (expr, expr), expr.span)
        case _:
            for child in children(expr):
                yield from mention(child)


def guard(condition: Expr, holds: bool, mentioned: Expr) -> Expr:
    """What `mention` gave, in an arm of a selection."""
    nothing = Const(False, BOOL)
    then, other = (mentioned, nothing) if holds else (nothing, mentioned)
    return Select(condition, then, other, mentioned.span)


def keep_reads(statement: Statement, mentioned: Iterable[Expr]) -> Statement:
    """The statement with `Exists` clauses for what is mentioned (see `mention`) and it does not read."""
    known = {_site_key(site) for site in collect_reads(statement)}
    kept: list[Exists] = []
    inside = tuple((condition, True) for condition in loaded_conditions(statement.where))
    for expr in dict.fromkeys(mentioned):
        keys = {_site_key(site) for site in find_sites(expr, "exists", inside)}
        if not keys <= known:
            known |= keys
            value = expr
            while isinstance(value, Call):
                value = value.args[0]
            kept.append(Exists(value, expr.span))
    return replace(statement, where=(*statement.where, *kept)) if kept else statement


def _site_key(site: ReadSite) -> tuple[object, ...]:
    return site.read, frozenset(site.conditions), site.is_padded, site.mode


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


def join_conditions(conditions: tuple[tuple[Expr, bool], ...]) -> Expr | None:
    """The conjunction of the conditions of a site; None: the read is always made."""
    result: Expr | None = None
    for condition, holds in conditions:
        literal = condition if holds else Call("not", (condition,))
        result = literal if result is None else Call("and", (result, literal))
    return result


def own_distances(s: Statement) -> list[tuple[int | None, ...]]:
    """By how much elements of its target that a statement reads lie in front of the one that it writes (negative) or behind it
    along each dimension; None where that is no constant."""
    own = dict.fromkeys(read for read in reads(s.value) if read.tensor == s.target)
    return [tuple(map(difference, read.subscripts, s.subscripts)) for read in own]
