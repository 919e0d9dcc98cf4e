"""Say which loops over tiles along rows of a result may let their tiles overlap.

``for (t) { U.tile = … ; … ; vector for (x) { Y[y, 64 * t + x] = … } }``: where no iteration needs another one's values, each
element is computed from the tile's first column alone.  The code generator then chooses the columns (`nests.align_tiles`).
"""

from __future__ import annotations

from dataclasses import replace

from polyc.ir.expr import Const
from polyc.ir.linear import index_coefficients
from polyc.poly.footprints import tile_name
from polyc.poly.rows import free_positions
from polyc.poly.scop import Scop, ScopStatement
from polyc.poly.tree import Mark, Plan, PlanLeaf, PlanLoop, PlanSequence, plan_statements


def mark_row_tiles(plan: Plan, scop: Scop) -> Plan:
    """Mark coincident loops ``apart`` that count whole tiles along the rows of what is stored inside of them."""
    match plan:
        case PlanLeaf():
            return plan
        case PlanSequence():
            return PlanSequence(tuple(mark_row_tiles(child, scop) for child in plan.children))
        case PlanLoop():
            plan = replace(plan, child=mark_row_tiles(plan.child, scop))
            is_counted = plan.kind == "P" and plan.part == "whole" and plan.mark is None and _counts_tiles(plan, scop)
            return replace(plan, mark=Mark("apart")) if is_counted else plan


def _counts_tiles(loop: PlanLoop, scop: Scop) -> bool:
    """Whether the loop counts tiles that `overlap` made, for all statements inside, some of which stores a row of a result.

    Elsewhere a tile's elements may depend on its number, or be only some of those at its place."""
    outputs = {r.version for r in scop.program.returns}
    statements = [scop.statement(n) for n in plan_statements(loop) if not n.startswith("init_")]
    counted = {tuple(s.indices[d] for d in free_positions(loop.rows[s.name], [])) for s in statements}
    if len(counted) != 1:
        return False
    (names,) = counted
    return len(names) == 1 and any(s.target in outputs and _stores_tile(s, names[0]) for s in statements)


def _stores_tile(s: ScopStatement, tile: str) -> bool:
    """Whether each value of `tile` stores as many elements of a row as it moves by."""
    if s.is_reduction or not s.subscripts:
        return False
    moving = index_coefficients(s.subscripts[-1]) or {}
    inside = [i for i in moving if tile == tile_name(i.removesuffix(".in"))]
    if len(inside) != 1:
        return False
    extent = s.extents[inside[0]]
    return isinstance(extent, Const) and moving == {tile: int(extent.value), inside[0]: 1}
