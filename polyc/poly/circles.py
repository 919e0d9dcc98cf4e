"""Circles: instances of statements that need their own values, which no order of instances computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import islpy

from polyc.diagnostics import CompileBudgetError, Diagnostic, RangeError
from polyc.ir.expr import Const
from polyc.ir.signature import HostCheck
from polyc.poly.bounds import negate_condition, size_values
from polyc.poly.dependences import Dependences, Flow
from polyc.poly.describe import escape_format
from polyc.poly.domains import has_divs
from polyc.poly.isl import operation_quota
from polyc.poly.scop import Scop, ScopStatement
from polyc.poly.sizes import Sizes
from polyc.records import dataclass

LONGEST = 6
"""Statements of a circle that is looked for."""
_QUOTA = 4_000_000
"""isl operations of a search, some second."""


@dataclass(frozen=True, eq=False, slots=True)
class Circle:
    """Statements that need each other in a circle, and an instance of the first that does, as ``i = 3, j = 0``."""

    statements: tuple[ScopStatement, ...]
    point: str
    sizes: islpy.Set
    """``[sizes] -> { : }`` at which there is one, where the first statement has instances."""


class CircularSizes(RangeError):
    """An element needs its own value at some sizes only: `check` refuses them, and `context` is without them."""

    def __init__(self, diagnostic: Diagnostic, check: HostCheck, context: islpy.Set) -> None:
        super().__init__(diagnostic)
        self.check, self.context = check, context


def raise_circle(what: str, help: str, circle: Circle, scop: Scop) -> NoReturn:
    """Raise the error that says `what` is wrong; `CircularSizes` where that is so at some sizes, and bounds tell the others."""
    place, span = f", at {circle.point}" if circle.point else "", circle.statements[0].origin.span
    diagnostic = Diagnostic("range-circular", what + place, span, help)
    sizes = Sizes(scop.parameters)
    sizes.context = scop.context
    at = circle.sizes.intersect(scop.context)
    if scop.parameters and not (has_divs(at) or sizes.holds_widely(at)):
        message = escape_format(f"{what} at these sizes") + size_values(scop.program, sizes.sizes_in(at))
        check = HostCheck(negate_condition(sizes.condition_expr(at)), diagnostic.code, message, span)
        sizes.assume(at.complement())
        if not sizes.context.is_equal(scop.context):
            raise CircularSizes(diagnostic, check, sizes.context)
    raise RangeError(diagnostic)


def find_circle(scop: Scop, dependences: Dependences, longest: int = LONGEST) -> Circle | None:
    """The shortest circle of at most `longest` statements; None where there is none, or the search would take too long."""
    try:
        with operation_quota(_QUOTA, f"looking for circles of {scop.program.name}"):
            for length in range(1, longest + 1):
                for path, relation in _walk(scop, dependences, length):
                    same = relation.intersect(islpy.Map.identity(relation.get_space())).domain()
                    if not same.is_empty():
                        first = scop.statement(path[0])
                        point, sizes = _describe_point(same, first, scop), _sizes_at_fault(same, first)
                        return Circle(tuple(map(scop.statement, path)), point, sizes)
    except CompileBudgetError:
        pass
    return None


def _sizes_at_fault(same: islpy.Set, first: ScopStatement) -> islpy.Set:
    """The sizes of the instances `same`, without what says no more than that the statement has any."""
    return same.params().gist_params(first.domain.params())


def _walk(scop: Scop, dependences: Dependences, length: int) -> Iterator[tuple[tuple[str, ...], islpy.Map]]:
    """Ways of `length` flows that come back to their first statement, and the relation from its instances to those that need
    them along the way.  A circle of statements is walked from its first one in the source only."""
    outgoing: dict[str, list[Flow]] = {}
    for flow in dependences.flows:
        outgoing.setdefault(flow.source, []).append(flow)
    position = {s.name: n for n, s in enumerate(scop.statements)}

    def extend(path: tuple[str, ...], relation: islpy.Map | None) -> Iterator[tuple[tuple[str, ...], islpy.Map]]:
        for flow in outgoing.get(path[-1], ()):
            is_last = len(path) == length
            if (flow.sink != path[0]) if is_last else (flow.sink in path or position[flow.sink] < position[path[0]]):
                continue
            made = flow.relation if relation is None else relation.apply_range(flow.relation)
            if is_last:
                yield path, made
            elif not made.is_empty():
                yield from extend((*path, flow.sink), made)

    for s in scop.statements:
        yield from extend((s.name,), None)


def _describe_point(same: islpy.Set, s: ScopStatement, scop: Scop) -> str:
    point = same.sample_point()
    values = [int(point.get_coordinate_val(islpy.dim_type.set, d).to_python()) for d in range(len(s.indices))]
    lower = [scop.ranges.statements[s.name].indices[i].lower for i in s.indices]
    shown = [v + int(low.value) if isinstance(low, Const) else v for v, low in zip(values, lower, strict=True)]
    return ", ".join(f"{i} = {v}" for i, v in zip(s.indices, shown, strict=True))
