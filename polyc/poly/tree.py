"""From planned loops to an isl schedule tree, and what the marks in the tree mean.

A `PlanLoop` is one schedule dimension over all statements below it; `build_schedule` makes the isl tree bottom-up,
one single-member band per loop, with a mark above each band that carries a decision.  The isl tree is what is proved
and what is translated to code.

Marks: ``parallel cN [ROUNDS]``, ``pipeline cN COLUMNS``, ``unroll cN``, ``vector cN LANES INTERLEAVE``, ``scan cN LANES``,
``apart cN``, ``section cN``; ``cN`` is the AST iterator it speaks of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, assert_never

import islpy

from polyc.poly import isl
from polyc.poly.rows import Kind, Row
from polyc.poly.scop import Scop
from polyc.records import dataclass

Part = Literal["whole", "tile", "point"]


@dataclass(frozen=True, slots=True)
class Mark:
    """A decision about one loop.  `apart`: serial, over tiles that need nothing of each other, so that they may overlap.
    `section`: all of it is an iteration of the parallel loop around, over sections by their numbers."""

    kind: Literal["parallel", "pipeline", "unroll", "vector", "scan", "apart", "section"]
    lanes: int = 1
    interleave: int = 1
    least_part: int = 0
    """Iterations of a parallel loop that are worth a part of their own; 0: each thread gets one part."""
    is_uneven: bool = False
    """Of a parallel loop: whether the work of an iteration grows or shrinks along it."""
    columns: int = 0
    """Of a pipeline: the loops, this one the first, whose iterations run at the same time, each behind the one before: never
    further along the next loop inside."""

    def text(self, iterator: str) -> str:
        text = f"{self.kind} {iterator}" + (f" {self.lanes} {self.interleave}" if self.kind == "vector" else "")
        text += f" {self.lanes}" if self.kind == "scan" else ""
        text += f" {self.columns}" if self.kind == "pipeline" else ""
        text += f" {self.least_part}" if self.kind == "parallel" and self.least_part else ""
        return text + (" uneven" if self.is_uneven else "")


def parse_mark(text: str) -> tuple[str, Mark] | None:
    """Iterator name and `Mark` of a mark's text; None for marks of other kinds."""
    words = text.split()
    if len(words) < 2 or words[0] not in ("parallel", "pipeline", "unroll", "vector", "scan", "apart", "section"):
        return None
    if words[0] == "pipeline":
        return words[1], Mark("pipeline", columns=int(words[2]))
    lanes, interleave = (int(words[2]), int(words[3])) if words[0] == "vector" else (1, 1)
    if words[0] == "scan":
        lanes = int(words[2])
    if words[0] == "parallel":
        return words[1], Mark("parallel", least_part=int(words[2]) if len(words) > 2 else 0, is_uneven="uneven" in words)
    return words[1], Mark(words[0], lanes, interleave)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class PlanLeaf:
    statement: str


@dataclass(frozen=True, slots=True)
class PlanSequence:
    children: tuple[Plan, ...]


@dataclass(frozen=True, slots=True)
class PlanLoop:
    """One loop: `rows` by statement; part "tile" is ``row - row mod size``, "point" is ``row mod size``.

    With a `period` (a multiple of `size`), the loop runs inside a tile of that size: ``row mod period`` takes the row's place.
    """

    rows: Mapping[str, Row]
    kind: Kind
    child: Plan
    part: Part = "whole"
    size: int = 0
    mark: Mark | None = None
    period: int = 0


Plan = PlanLoop | PlanSequence | PlanLeaf


def plan_statements(plan: Plan) -> Iterator[str]:
    match plan:
        case PlanLeaf():
            yield plan.statement
        case PlanSequence():
            for child in plan.children:
                yield from plan_statements(child)
        case PlanLoop():
            yield from plan_statements(plan.child)
        case _:
            assert_never(plan)


def plan_loops(plan: Plan) -> Iterator[PlanLoop]:
    """The loops of a plan, those outside first."""
    match plan:
        case PlanSequence():
            for child in plan.children:
                yield from plan_loops(child)
        case PlanLoop():
            yield plan
            yield from plan_loops(plan.child)


def make_sequence(children: list[Plan]) -> Plan:
    """A sequence without needless nesting."""
    flat: list[Plan] = []
    for child in children:
        flat.extend(child.children if isinstance(child, PlanSequence) else [child])
    return flat[0] if len(flat) == 1 else PlanSequence(tuple(flat))


def statement_domains(scop: Scop) -> dict[str, islpy.Set]:
    """Domains of all statements and of the initial values of reductions, by name."""
    domains: dict[str, islpy.Set] = {}
    for s in scop.statements:
        domains[s.name] = s.domain
        if s.init_domain is not None:
            domains[f"init_{s.name}"] = s.init_domain
    return domains


def build_schedule(scop: Scop, plan: Plan) -> islpy.Schedule:
    """The isl schedule tree of a plan."""
    domains = statement_domains(scop)

    def join(parts: list[islpy.Schedule]) -> islpy.Schedule:
        """One after the other; by halves, as isl copies both sides of each pair."""
        if len(parts) == 1:
            return parts[0]
        middle = len(parts) // 2
        return join(parts[:middle]).sequence(join(parts[middle:]))

    def build(node: Plan, depth: int) -> islpy.Schedule:
        match node:
            case PlanLeaf():
                return islpy.Schedule.from_domain(islpy.UnionSet.from_set(domains[node.statement]))
            case PlanSequence():
                return join([build(child, depth) for child in node.children])
            case PlanLoop():
                inner = build(node.child, depth + 1)
                names = list(plan_statements(node.child))
                schedule = inner.insert_partial_schedule(_partial_schedule(node, names, domains))
                band = schedule.get_root().child(0).band_set_permutable(1)
                band = band.band_member_set_coincident(0, 1 if node.kind == "P" else 0)
                if node.mark is not None:
                    band = band.insert_mark(islpy.Id(node.mark.text(f"c{depth}")))
                return band.get_schedule()
            case _:
                assert_never(node)

    return build(plan, 0)


def _partial_schedule(node: PlanLoop, names: list[str], domains: dict[str, islpy.Set]) -> islpy.MultiUnionPwAff:
    union: islpy.UnionPwAff | None = None
    for name in names:
        value = row_function(node.rows[name], domains[name])
        end = _end(node.rows[name], domains[name]) if node.period or node.part != "whole" else None
        if node.period:
            value = _remainder(value, node.period, end)
        if node.part in ("tile", "point"):
            rest = _remainder(value, node.size, end)
            value = rest if node.part == "point" else value.sub(rest)
        piece = islpy.UnionPwAff.from_pw_aff(value)
        union = piece if union is None else union.union_add(piece)
    assert union is not None
    return islpy.MultiUnionPwAff.from_union_pw_aff(union)


def _remainder(value: islpy.PwAff, size: int, end: int | None) -> islpy.PwAff:
    """``value mod size``; without the division, which isl would carry through all it does, where one tile holds all."""
    return value if end is not None and end <= size else value.mod_val(islpy.Val(size))


def _end(row: Row, domain: islpy.Set) -> int | None:
    """What a row that is one index stays below at all sizes; None where that is not known, or where it begins below zero."""
    used = [d for d, c in enumerate(row.coefficients) if c]
    if row.constant or [row.coefficients[d] for d in used] != [1]:
        return None
    first, last = domain.dim_min_val(used[0]), domain.dim_max_val(used[0])
    return int(last.to_python()) + 1 if first.is_int() and last.is_int() and first.to_python() >= 0 else None


def row_function(row: Row, domain: islpy.Set) -> islpy.PwAff:
    """A row as a function on the statement's space."""
    aff = islpy.Aff.zero_on_domain(islpy.LocalSpace.from_space(domain.get_space()))
    for position, coefficient in enumerate(row.coefficients):
        if coefficient:
            aff = aff.set_coefficient_val(islpy.dim_type.in_, position, islpy.Val(coefficient))
    return isl.PwAff.from_aff(aff.set_constant_val(islpy.Val(row.constant)))


def format_tree(schedule: islpy.Schedule) -> str:
    """The isl schedule tree as YAML; it reads back with ``Schedule.read_from_str``."""
    printer = islpy.Printer.to_str(islpy.DEFAULT_CONTEXT).set_yaml_style(islpy.yaml_style.BLOCK)
    return printer.print_schedule(schedule).get_str()
