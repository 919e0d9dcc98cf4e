"""Merge the parts of a recurrence that make one step: a border that is written by a statement of its own joins the interior.

Before: ``A[t, 0] = A[t-1, 0]`` beside ``A[t, i] = f(A[t-1, i-1], …) where i in 1:N-1``.  After:
``A[t, i] = i == 0 ? A[t-1, i] : f(A[t-1, i-1], …)``.  Left alone, the border would be computed for all steps first, and all
steps of A kept; as one statement they run step by step, in tiles, and `codegen.nests.partition` takes the border out of the
loops.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Const, Expr, Index, Select, eq, index_names, int_const, reads, substitute, walk
from polyc.ir.program import Program, Statement
from polyc.ir.read_sites import own_distances
from polyc.ir.simplify import simplify
from polyc.poly.domains import condition_inside, map_domain, project_domain, subtract_domain, unite_domains
from polyc.poly.isl import Set
from polyc.poly.points import Points
from polyc.poly.ranges import Interval, Ranges
from polyc.records import dataclass
from polyc.scheduler.rewriting.builder import ProgramBuilder

MAX_PARTS = 12
"""Parts beyond which a statement would ask too many conditions."""


@dataclass(frozen=True, slots=True)
class Place:
    """A left side: for each dimension the index that stands there and what is added to it, or no index and the subscript."""

    dims: tuple[tuple[str | None, Expr], ...]

    @property
    def fixed(self) -> list[int]:
        """The dimensions in which no index stands."""
        return [d for d, (index, _) in enumerate(self.dims) if index is None]


def merge_parts(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Statements that write parts of a tensor alike become one."""
    remarks: list[Remark] = []
    builder, merged, gone = ProgramBuilder(program, ranges), dict[str, Statement](), set[str]()
    for tensor, writers in program.writers().items():
        if len(writers) < 2 or len(writers) > MAX_PARTS or program.tensor(tensor).role != "temporary":
            continue
        found = _merge(writers, builder)
        if found is not None:
            new, others = found
            merged[new.name] = new
            gone |= others
            message = f"{len(others) + 1} parts of a step of {program.tensor(tensor).base} are one statement"
            remarks.append(Remark("passed", "merge-parts", message, new.name, new.span))
    builder.statements += [merged.get(s.name, s) for s in program.statements if s.name not in gone]
    return (*builder.finish(), remarks) if remarks else (program, ranges, remarks)


def _merge(writers: list[Statement], builder: ProgramBuilder) -> tuple[Statement, set[str]] | None:
    """The merged statement in the place of the main one, and the names of the others."""
    ranges = builder.ranges
    places = {s.name: place for s in writers if (place := find_place(s, ranges)) is not None}
    whole = [s for s in writers if s.name in places and all(i is not None for i, _ in places[s.name].dims)]
    mains = [s for s in whole if any(r.tensor == s.target for r in reads(s.value))]
    main = max(mains, key=lambda s: sum(1 for _ in walk(s.value)), default=None)
    if main is None:
        return None
    steps = _step_dimensions(main)
    if not steps or not _needs_earlier_steps(main, steps):
        return None
    own = ranges.statements[main.name]
    regions = {main.name: own.domain}
    values: dict[str, Expr] = {}
    for s in writers:
        place = places.get(s.name)
        if s is main or place is None or not _needs_earlier_steps(s, steps, strictly=True):
            continue
        if any(place.dims[d][0] is None for d in steps):
            continue
        renamed = _rename(place, places[main.name])
        fixed = [
            eq(_add(Index(i), offset), at)
            for (i, offset), (j, at) in zip(places[main.name].dims, place.dims, strict=True)
            if j is None and i is not None
        ]
        indices = [renamed[i] for i in s.indices]
        region = map_domain(ranges.statements[s.name].domain, main.name, main.indices, indices, fixed)
        if not all(_moves_alike(region, own.domain, main, places[main.name].dims[d][0]) for d in steps):
            continue
        regions[s.name], values[s.name] = region, substitute(s.value, renamed)
    if not values:
        return None
    union = unite_domains(list(regions.values()), ranges.context)
    if union is None:
        return None
    value = choose_value([(regions[name], v) for name, v in values.items()], main.value, union, main.indices)
    intervals = {i: own.indices[i] for i in main.indices}
    for d, (i, offset) in enumerate(places[main.name].dims):
        if i is not None and d not in steps:
            box = ranges.tensors[main.target][d]
            intervals[i] = Interval(simplify(box.lower - offset), box.extent)
    return builder.change(main, Points(intervals, union), value=value), set(values)


def choose_value(cases: Sequence[tuple[Set, Expr]], value: Expr, whole: Set, indices: Sequence[str]) -> Expr:
    """``case ? its value : …`` down to `value` for the other points of `whole`; cases of equal value share a condition."""
    rest, chain = whole, list[tuple[Expr, Expr]]()
    for points, of_case in cases:
        condition = condition_inside(points, rest, indices)
        rest = subtract_domain(rest, points)
        if chain and chain[-1][1] == of_case:
            chain[-1] = Call("or", (chain[-1][0], condition)), of_case
        else:
            chain.append((condition, of_case))
    for condition, of_case in reversed(chain):
        if isinstance(condition, Const):  # one of the cases has no points, at these sizes
            value = of_case if condition.value else value
        else:
            value = Select(condition, of_case, value)
    return value


def find_place(s: Statement, ranges: Ranges) -> Place | None:
    """Where the statement writes, if each index stands in one subscript, alone or with something added."""
    if s.reduction is not None or ranges.statements[s.name].guards:
        return None
    dims: list[tuple[str | None, Expr]] = []
    for subscript in s.subscripts:
        index = next(iter(index_names(subscript)), None)
        offset = subscript if index is None else simplify(subscript - Index(index))
        if reads(subscript) or index_names(offset):
            return None
        dims.append((index, offset))
    used = [i for i, _ in dims if i is not None]
    return Place(tuple(dims)) if sorted(used) == sorted(s.indices) else None


def _step_dimensions(s: Statement) -> list[int]:
    """Dimensions along which the statement reads what was written before and nothing that comes after."""
    steps = []
    for d, column in enumerate(zip(*own_distances(s), strict=True)):
        known = [x for x in column if x is not None]
        if len(known) == len(column) and max(known) <= 0 and min(known) < 0:
            steps.append(d)
    return steps if len(steps) < len(s.subscripts) else []


def _needs_earlier_steps(s: Statement, steps: list[int], strictly: bool = False) -> bool:
    """Whether all own elements that the statement reads, if any, are surely of earlier steps, or (if not `strictly`) behind."""
    for distance in own_distances(s):
        moved = [distance[d] for d in steps]
        if any(x is None or x > 0 for x in moved):
            return False
        if all(x == 0 for x in moved) and (strictly or not _lies_behind(distance)):
            return False
    return True


def _lies_behind(distance: Sequence[int | None]) -> bool:
    """Whether the first component that is not 0 is negative."""
    first = next((x for x in distance if x != 0), None)
    return first is not None and first < 0


def _rename(place: Place, main: Place) -> dict[str, Expr]:
    """The indices of a part as expressions over those of the main statement."""
    result: dict[str, Expr] = {}
    for (own, offset), (index, main_offset) in zip(place.dims, main.dims, strict=True):
        if own is not None and index is not None:
            result[own] = simplify(_add(Index(index), main_offset) - offset)
    return result


def _add(a: Expr, b: Expr) -> Expr:
    return a if b == int_const(0) else simplify(a + b)


def _moves_alike(region: Set, domain: Set, main: Statement, index: str | None) -> bool:
    """Whether two domains run over the same values of an index, for sizes where there is something in both."""
    assert index is not None
    a = project_domain(region, main.indices, "x", (index,))
    b = project_domain(domain, main.indices, "x", (index,))
    return bool(a.intersect_params(b.params()).is_equal(b.intersect_params(a.params())))
