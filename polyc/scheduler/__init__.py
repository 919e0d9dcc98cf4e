"""Decisions: from a Scop to a schedule tree and the storage of every tensor version.

The mid-end, top to bottom: rewrite the program (`inline`, `split`), decide rows (`ilp`, or a rung of `fallback`), then
`REFINEMENTS` turn rows into planned loops; `poly.tree` makes the isl schedule tree, which is proved before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from polyc.config import Options
from polyc.diagnostics import Remark
from polyc.poly.rows import Node
from polyc.poly.scop import Scop
from polyc.poly.storage import Folding
from polyc.poly.tree import Plan
from polyc.scheduler.constants import Prepared, hoist_constants
from polyc.scheduler.contractions.choice import Choice
from polyc.scheduler.contractions.packing import pack_operands
from polyc.scheduler.distribute import distribute_bands
from polyc.scheduler.initial import place_initial_values
from polyc.scheduler.loops.member_view import MemberView
from polyc.scheduler.loops.plan import Planner, merge_bands
from polyc.scheduler.loops.row_blocks import block_rows
from polyc.scheduler.misfits import find_cutting
from polyc.scheduler.parallel import mark_parallel_loops
from polyc.scheduler.preparation import lay_out_panels
from polyc.scheduler.row_tiles import mark_row_tiles
from polyc.scheduler.shared_passes import describe_shared_passes
from polyc.scheduler.storage import fold_storage
from polyc.target import Target


@dataclass(frozen=True, slots=True)
class Refined:
    """Planned loops and storage, not proved yet.  `scop` holds the copy statements that packing added.

    `prepared` are statements that depend on constants only, and are no longer in `scop`."""

    scop: Scop
    rows: Node
    plan: Plan
    storage: dict[str, Folding]
    remarks: tuple[Remark, ...] = field(default=())
    prepared: tuple[Prepared, ...] = ()
    choices: Mapping[str, Choice] = field(default_factory=dict)
    """How each contraction among the statements is computed, by statement."""


def refine_rows(rows: Node, scop: Scop, target: Target, options: Options, constants: frozenset[str] = frozenset()) -> Refined:
    """Rows → planned loops: distribute, place initial values, tile and vectorise, parallelise, fold storage.

    `constants` are inputs that never change: what is copied of them is not copied at each call."""
    # Contractions that share only rows would each stream their operands once per row: separate them first.
    node = distribute_bands(rows, scop, target)
    # Bands directly inside bands are one band: tiling sees all members at once.
    node = merge_bands(node)
    # Copies go under the loops that their elements move with, while bands are still whole.
    packed = pack_operands(scop, node, target, options, constants, find_cutting(node, scop, target))
    scop, node, remarks = packed.scop, packed.rows, packed.remarks
    prepared: tuple[Prepared, ...] = ()
    if constants:
        # Copies of constants are made when the operator is bound; the bands around them close up.
        scop, node, prepared = hoist_constants(scop, node, constants)
        node = merge_bands(node)
        remarks += [Remark("passed", "bind", f"{p.statement.target} is made once", p.statement.name) for p in prepared]
    rows = node
    remarks += describe_shared_passes(rows, scop)
    # Initial values go directly above the outermost reduction member, before loops are cut into tiles and points.
    node = place_initial_values(node, scop)
    plan = Planner(MemberView(scop, target, options, packed.tiles)).plan(node)
    # Blocks of rows before threads: what these share is a block.
    if options.tile:
        plan = block_rows(plan, scop, target)
    if options.parallel:
        plan, found = mark_parallel_loops(plan, scop)
        remarks += found
    plan = mark_row_tiles(plan, scop)
    # Storage last: what is alive together depends on tiles, vectors and threads.
    storage = lay_out_panels(fold_storage(plan, scop), prepared, scop, plan)
    return Refined(scop, rows, plan, storage, tuple(remarks), prepared, packed.choices)
