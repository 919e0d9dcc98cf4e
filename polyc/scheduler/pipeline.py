"""The passes that turn rows of a schedule into planned loops and storage, in their order: `PLAN`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from polyc.config import Options
from polyc.diagnostics import Remark
from polyc.machine import Machine
from polyc.passes import Level, Pass
from polyc.poly.rows import Node, format_rows
from polyc.poly.scop import Scop
from polyc.poly.storage import Folding
from polyc.poly.tree import Plan, plan_statements
from polyc.records import dataclass, replace
from polyc.scheduler.constants import Prepared, hoist_constants
from polyc.scheduler.contractions.choice import Choice
from polyc.scheduler.contractions.packing import pack_operands
from polyc.scheduler.describe import describe_loops
from polyc.scheduler.distribute import distribute_bands
from polyc.scheduler.initial import place_initial_values
from polyc.scheduler.loops.columns import block_columns
from polyc.scheduler.loops.member_view import MemberView
from polyc.scheduler.loops.plan import Planner, merge_bands
from polyc.scheduler.loops.row_blocks import block_rows
from polyc.scheduler.misfits import find_cutting
from polyc.scheduler.parallel import mark_parallel_loops
from polyc.scheduler.preparation import lay_out_panels
from polyc.scheduler.row_tiles import mark_row_tiles
from polyc.scheduler.sections import run_sections
from polyc.scheduler.shared_passes import describe_shared_passes
from polyc.scheduler.storage import fold_storage
from polyc.scheduler.tiling import RegisterTile


@dataclass(frozen=True, slots=True)
class Draft:
    """Rows on their way to planned loops and storage, not proved yet.  `scop` holds the copy statements that packing added."""

    scop: Scop
    rows: Node
    plan: Plan | None = None
    storage: dict[str, Folding] = field(default_factory=dict)
    prepared: tuple[Prepared, ...] = ()
    """Statements that depend on constants only, and are no longer in `scop`."""
    tiles: dict[str, RegisterTile] = field(default_factory=dict)
    choices: Mapping[str, Choice] = field(default_factory=dict)
    """How each contraction among the statements is computed, by statement."""

    @property
    def planned(self) -> Plan:
        assert self.plan is not None, "loops are planned first"
        return self.plan


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What these passes go by beside the draft."""

    target: Machine
    options: Options
    constants: frozenset[str]
    """Inputs that never change: what is copied of them is not copied at each call."""
    remarks: list[Remark]
    aliases: tuple[tuple[str, str], ...] = ()
    """Results, each with the input in whose memory it may lie."""


def _distribute_bands(draft: Draft, ctx: PlanContext) -> Draft:
    return replace(draft, rows=distribute_bands(draft.rows, draft.scop, ctx.target))


def _merge_bands(draft: Draft, ctx: PlanContext) -> Draft:
    return replace(draft, rows=merge_bands(draft.rows))


def _pack_operands(draft: Draft, ctx: PlanContext) -> Draft:
    cutting = find_cutting(draft.rows, draft.scop, ctx.target)
    packed = pack_operands(draft.scop, draft.rows, ctx.target, ctx.options, ctx.constants, cutting)
    ctx.remarks.extend(packed.remarks)
    return replace(draft, scop=packed.scop, rows=packed.rows, tiles=packed.tiles, choices=packed.choices)


def _hoist_constants(draft: Draft, ctx: PlanContext) -> Draft:
    scop, rows, prepared = hoist_constants(draft.scop, draft.rows, ctx.constants)
    ctx.remarks.extend(Remark("passed", "bind", f"{p.statement.target} is made once", p.statement.name) for p in prepared)
    return replace(draft, scop=scop, rows=merge_bands(rows), prepared=prepared)


def _describe_shared_passes(draft: Draft, ctx: PlanContext) -> Draft:
    ctx.remarks.extend(describe_shared_passes(draft.rows, draft.scop))
    return draft


def _plan_loops(draft: Draft, ctx: PlanContext) -> Draft:
    # Initial values go directly above the outermost reduction member, before loops are cut into tiles and points.
    node = place_initial_values(draft.rows, draft.scop)
    return replace(draft, plan=Planner(MemberView(draft.scop, ctx.target, ctx.options, draft.tiles)).plan(node))


def _block_columns(draft: Draft, ctx: PlanContext) -> Draft:
    return replace(draft, plan=block_columns(draft.planned, draft.scop, ctx.target))


def _block_rows(draft: Draft, ctx: PlanContext) -> Draft:
    return replace(draft, plan=block_rows(draft.planned, draft.scop, ctx.target))


def _mark_parallel_loops(draft: Draft, ctx: PlanContext) -> Draft:
    plan, found = mark_parallel_loops(draft.planned, draft.scop, ctx.target.threads)
    ctx.remarks.extend(found)
    return replace(draft, plan=plan)


def _run_sections(draft: Draft, ctx: PlanContext) -> Draft:
    return replace(draft, plan=run_sections(draft.planned, draft.scop, ctx.target, ctx.aliases))


def _mark_row_tiles(draft: Draft, ctx: PlanContext) -> Draft:
    return replace(draft, plan=mark_row_tiles(draft.planned, draft.scop))


def _fold_storage(draft: Draft, ctx: PlanContext) -> Draft:
    storage = fold_storage(draft.planned, draft.scop)
    return replace(draft, storage=lay_out_panels(storage, draft.prepared, draft.scop, draft.planned))


def format_draft(draft: Draft) -> str:
    """The rows, and what is planned for each statement."""
    lines = [format_rows(draft.rows, draft.scop)]
    if draft.plan is not None:
        known = {s.name: s for s in draft.scop.statements}
        planned = (known[name] for name in plan_statements(draft.plan) if name in known)
        lines += [f"{s.name}: {describe_loops(draft.plan, s)}" for s in planned]
    return "\n".join([*lines, ""])


_PASSES: tuple[Pass[Draft, PlanContext], ...] = (
    # Contractions that share only rows would each stream their operands once per row: separate them first.
    Pass("distribute", _distribute_bands, "loop fission: contractions that would reread operands get loops of their own"),
    Pass("merge-bands", _merge_bands, "bands directly inside bands are one: tiling sees all loops at once", required=True),
    # Copies go under the loops that their elements move with, while bands are still whole.
    Pass("pack", _pack_operands, "register tiles and packed operands of contractions"),
    Pass(
        "bind",
        _hoist_constants,
        "copies of bound inputs are made once; the bands around them close up",
        lambda ctx: bool(ctx.constants),
        required=True,
    ),
    Pass("share", _describe_shared_passes, "analysis: which loops several statements share", required=True),
    Pass("plan-loops", _plan_loops, "tiles, vectors and unrolled loops", required=True),
    Pass(
        "block-columns",
        _block_columns,
        "cache blocking: long rows of tiles of stencils go by blocks of columns",
        lambda ctx: ctx.options.tile,
    ),
    # Blocks of rows before threads: what these share is a block.
    Pass("block-rows", _block_rows, "cache blocking of rows that share large operands", lambda ctx: ctx.options.tile),
    Pass("parallel", _mark_parallel_loops, "loops whose iterations threads share out", lambda ctx: ctx.options.parallel),
    Pass(
        "run-sections",
        _run_sections,
        "independent consecutive loops run as OpenMP sections",
        lambda ctx: ctx.options.parallel,
    ),
    Pass("row-tiles", _mark_row_tiles, "tiles of rows that nothing else needs may overlap"),
    # Storage last: what is alive together depends on tiles, vectors and threads.
    Pass("fold-storage", _fold_storage, "temporaries have memory for what is alive together", required=True),
)

PLAN: Level[Draft, PlanContext] = Level("plan", _PASSES, lambda draft: None, format_draft)
