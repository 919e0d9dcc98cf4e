"""Parts of a tensor that a recurrence makes: one statement for those that are one step of it, several where a band differs.

Before: ``A[t, 0] = A[t-1, 0]`` beside ``A[t, i] = f(A[t-1, i-1], …) where i in 1:N-1``.  After:
``A[t, i] = i == 0 ? A[t-1, i] : f(A[t-1, i-1], …)``.  Left alone, the border would be computed for all steps first, and all
steps of A kept; as one statement they run step by step, in tiles, and `codegen.nests.partition` takes the border out of the
loops.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.code_limits import LONG_ROW, MAX_PARTS, MUCH
from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Const, Expr, Index, Select, eq, index_names, reads, substitute, walk
from polyc.ir.program import Program, Statement
from polyc.ir.read_sites import own_distances
from polyc.ir.simplify import simplify
from polyc.poly.domains import condition_inside, convex_pieces, has_divs, longest_run, subtract_domain, unite_domains
from polyc.poly.isl import Set
from polyc.poly.points import Points
from polyc.poly.ranges import Interval, Ranges, estimate_extent
from polyc.records import dataclass
from polyc.scheduler.rewriting.builder import Change, ProgramBuilder, find_recurrences

MAX_MERGED = 12
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
    builder, merged = ProgramBuilder(program, ranges), dict[str, list[Statement]]()
    for tensor, writers in program.writers().items():
        is_parted = 2 <= len(writers) <= MAX_MERGED and program.tensor(tensor).role == "temporary"
        found = _merge(writers, builder) if is_parted else None
        if found is not None:
            new, others = found
            merged |= {new.name: [new], **{name: [] for name in others}}
            message = f"{len(others) + 1} parts of a step of {program.tensor(tensor).base} are one statement"
            remarks.append(Remark("passed", "merge-parts", message, new.name, new.span))
    builder.statements += [new for s in program.statements for new in merged.get(s.name, [s])]
    return (*builder.finish(), remarks) if remarks else (program, ranges, remarks)


def _merge(writers: list[Statement], builder: ProgramBuilder) -> tuple[Statement, set[str]] | None:
    """The merged statement in the place of the main one, and the names of the others."""
    places = {s.name: place for s in writers if (place := find_place(s, builder.ranges)) is not None}
    whole = (s for s in writers if s.name in places and not places[s.name].fixed)
    mains = (s for s in whole if any(r.tensor == s.target for r in reads(s.value)))
    main = max(mains, key=lambda s: sum(1 for _ in walk(s.value)), default=None)
    steps = [] if main is None else _step_dimensions(main)
    if main is None or not steps or not _needs_earlier_steps(main, steps):
        return None
    points, dims = builder.points(main), places[main.name].dims
    moving = [i for i, _ in dims if i is not None]
    here = [simplify(Index(i) + offset) for i, (_, offset) in zip(moving, dims, strict=True)]
    regions: dict[str, Set] = {}
    values: dict[str, Expr] = {}
    for s in writers:
        place = places.get(s.name)
        if s is main or place is None or not _needs_earlier_steps(s, steps, strictly=True) or set(place.fixed) & set(steps):
            continue
        moved = {i: simplify(e - offset) for e, (i, offset) in zip(here, place.dims, strict=True) if i is not None}
        fixed = [eq(e, at) for e, (i, at) in zip(here, place.dims, strict=True) if i is None]
        region = builder.points(s).move(main.indices, points.indices, moved, fixed)
        if all(_moves_alike(region, points, moving[d]) for d in steps):
            regions[s.name], values[s.name] = region.domain, substitute(s.value, moved)
    union = unite_domains([points.domain, *regions.values()], builder.ranges.context) if values else None
    if union is None:
        return None
    value = choose_value([(regions[name], v) for name, v in values.items()], main.value, union, main.indices)
    intervals = dict(points.indices)
    for d, ((_, offset), box) in enumerate(zip(dims, builder.ranges.tensors[main.target], strict=True)):
        if d not in steps:
            intervals[moving[d]] = Interval(simplify(box.lower - offset), box.extent)
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
    columns = enumerate(zip(*own_distances(s), strict=True))
    steps = [d for d, column in columns if any(column) and all(x is not None and x <= 0 for x in column)]
    return steps if len(steps) < len(s.subscripts) else []


def _needs_earlier_steps(s: Statement, steps: list[int], strictly: bool = False) -> bool:
    """Whether all own elements that the statement reads, if any, are surely of earlier steps, or (if not `strictly`) behind:
    the first component that is not 0 is negative."""
    for distance in own_distances(s):
        moved = [distance[d] for d in steps]
        first = next((x for x in distance if x != 0), None)
        if any(x is None or x > 0 for x in moved):
            return False
        if all(x == 0 for x in moved) and (strictly or first is None or first > 0):
            return False
    return True


def _moves_alike(a: Points, b: Points, index: str) -> bool:
    """Whether points run over the same values of an index, for sizes where there is something in both."""
    own, other = a.project((index,)).domain, b.project((index,)).domain
    return bool(own.intersect_params(other.params()).is_equal(other.intersect_params(own.params())))


def split_band(s: Statement, builder: ProgramBuilder) -> Change | None:
    """Domain splitting: what lies beside a band is a statement of its own."""
    if not isinstance(s.value, Select) or s.reduction is not None or builder.own[s.name].guards or len(s.indices) < 2:
        return None
    if builder.program.tensor(s.target).role != "output" or not s.has_plain_left:
        return None
    cyclic = {r.target for group in find_recurrences(builder.program) if s in group for r in group}
    arms = s.value.then, s.value.other
    recurs = [any(r.tensor in cyclic for r in reads(arm)) for arm in arms]
    points = builder.points(s)
    inside = points.where(s.value.condition, recurs[0]) if recurs[0] != recurs[1] else None
    if inside is None or not _is_band(inside, builder.ranges):
        return None
    band, (value, other) = inside.domain.coalesce(), arms if recurs[0] else arms[::-1]
    pieces = convex_pieces(subtract_domain(points.domain, band))
    if band.n_basic_set() != 1 or not 1 <= len(pieces) <= MAX_PARTS or any(map(has_divs, (band, *pieces))):
        return None
    parts = [builder.change(s, Points(points.indices, band), value=value)]
    for n, piece in enumerate(pieces, 1):
        name = builder.free_name(f"{s.name}_beside{n}")
        parts.append(builder.assign(name, s.target, s.subscripts, other, Points(points.indices, piece), s))
    return parts, f"{s.target} beside its band is computed apart"


def _is_band(points: Points, ranges: Ranges) -> bool:
    """Whether points are few along one of the indices wherever the others stand."""
    for n, interval in enumerate(points.indices.values()):
        extent, width = estimate_extent(interval.extent, ranges.typical), longest_run(points.domain, n)
        if extent is not None and width is not None and extent >= max(LONG_ROW, MUCH * width):
            return True
    return False
