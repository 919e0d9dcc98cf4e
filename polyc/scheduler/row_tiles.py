"""Say which loops over tiles along rows of a result may let their tiles overlap.

``for (t) { U.tile = … ; … ; vector for (x) { Y[y, 64 * t + x] = … } }``: where no iteration needs another one's values, each
element is computed from the tile's first column alone.  The code generator then chooses the columns (`nests.line_tiles`).
"""

from __future__ import annotations

from dataclasses import replace

from polyc.ir.linear import index_coefficients
from polyc.poly.rows import free_positions
from polyc.poly.scop import Scop
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
    """Whether some statement inside stores several elements of a row of a result for each iteration."""
    outputs = {r.version for r in scop.program.returns}
    for name in plan_statements(loop):
        if name.startswith("init_"):
            continue
        s = scop.statement(name)
        if s.target not in outputs or s.is_reduction or not s.subscripts:
            continue
        found = free_positions(loop.rows[name], [])
        moving = index_coefficients(s.subscripts[-1]) or {}
        if len(found) == 1 and moving.get(s.indices[found[0]], 0) > 1:
            return True
    return False
