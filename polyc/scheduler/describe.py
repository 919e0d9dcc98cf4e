"""What a plan does to each statement, in words and with the numbers that decided: for `explain`, and for one-line summaries."""

from __future__ import annotations

from collections.abc import Mapping

from polyc.ir.expr import Const, Expr
from polyc.ir.text import format_expr
from polyc.machine import Machine
from polyc.poly.rows import format_row
from polyc.poly.scop import Scop, ScopStatement
from polyc.poly.storage import Folding
from polyc.poly.tree import Plan, PlanLeaf, PlanLoop, PlanSequence, plan_statements
from polyc.scheduler.accesses import access_motions, index_trips, statement_work
from polyc.scheduler.tiling import vector_cost


def loops_around(plan: Plan, name: str) -> list[PlanLoop]:
    """The loops around a leaf of the plan, outermost first."""
    match plan:
        case PlanLeaf():
            return []
        case PlanSequence():
            return loops_around(next(c for c in plan.children if name in set(plan_statements(c))), name)
        case PlanLoop():
            return [plan, *loops_around(plan.child, name)]


def describe_loops(plan: Plan, s: ScopStatement) -> str:
    """``parallel n by 64 > m by 6 > k > 6 m unrolled > 64 n in vectors of 16``."""
    return " > ".join(_describe_loop(loop, s) for loop in loops_around(plan, s.name)) or "no loop"


def _describe_loop(loop: PlanLoop, s: ScopStatement) -> str:
    row = loop_index(loop, s)
    text = {"whole": row, "tile": f"{row} by {loop.size}", "point": f"{loop.size} {row}"}[loop.part]
    if loop.period:
        text += f" inside of {loop.period}"
    if loop.mark is None or loop.mark.kind == "section":
        return text if loop.kind != "S" else f"{text} in order"
    match loop.mark.kind:
        case "apart":
            return text
        case "parallel":
            return f"parallel {text}"
        case "pipeline":
            return f"pipelined {text}"
        case "unroll":
            return f"{text} unrolled"
        case "scan":
            return f"{text} in order, as a scan of vectors of {loop.mark.lanes}"
        case "vector":
            flight = f", {loop.mark.interleave} in flight" if loop.mark.interleave > 1 else ""
            return f"{text} in vectors of {loop.mark.lanes}{flight}"


def loop_index(loop: PlanLoop, s: ScopStatement) -> str:
    """What a loop runs over, in the indices of a statement; of a section its number."""
    row = loop.rows[s.name]
    return format_row(row, s.indices) if any(row.coefficients) else f"section {row.constant}"


def describe_vector(plan: Plan, s: ScopStatement) -> str | None:
    """Memory operations per vector along the chosen index, along every other, and without vectors; None: no vector."""
    loop = next((x for x in loops_around(plan, s.name) if x.mark is not None and x.mark.kind == "vector"), None)
    if loop is None or loop.mark is None:
        return None
    motions, trips, lanes = access_motions(s), index_trips(s), loop.mark.lanes
    depth = 1
    for i in s.reduction_indices:
        depth *= max(trips[i], 1)
    costs = {i: vector_cost(motions, i, trips[i], lanes, depth) for i in s.indices}
    chosen = loop_index(loop, s)
    others = [f"{i} {costs[i]:.1f}" for i in s.indices if i != chosen]
    text = f"{lanes} lanes along {chosen}"
    if chosen in costs:
        text += f": {costs[chosen]:.1f} memory operations each"
    return "; ".join(
        [text, *([f"along {', '.join(others)}"] if others else []), f"one by one {(len(motions) + 0.5) * lanes:.1f}"]
    )


def describe_register_tile(plan: Plan, s: ScopStatement, target: Machine) -> str | None:
    """The points that one pass of a reduction holds, and the registers that they take; None where it holds only one."""
    points = [x for x in loops_around(plan, s.name) if x.part == "point"]
    if not s.is_reduction or not points:
        return None
    n, shape = 1, []
    for loop in points:
        row = loop.rows[s.name]
        if any(c and s.indices[k] in s.reduction_indices for k, c in enumerate(row.coefficients)):
            continue
        lanes = loop.mark.lanes if loop.mark is not None and loop.mark.kind == "vector" else 1
        n *= -(-loop.size // lanes)
        shape.append(f"{loop_index(loop, s)} {loop.size}")
    return f"{' x '.join(shape)}: {n} accumulators, {target.n_registers} registers" if shape else None


def describe_storage(storage: Mapping[str, Folding], scop: Scop) -> list[str]:
    """One line for each temporary: its cells, whose memory they are, and their size beside that of the whole tensor."""
    lines = []
    for name, folding in storage.items():
        t = scop.tensors[name]
        if folding.space == "argument":
            continue
        shape = [e if m is None else Const(m) for e, m in zip(t.shape, folding.moduli, strict=True)]
        cells = "".join(f"[{', '.join(map(format_expr, shape))}]") if shape else ""
        owner = "each thread" if folding.space == "thread" else "all threads"
        size, whole = _bytes(shape, t.dtype.itemsize), _bytes(list(t.shape), t.dtype.itemsize)
        saved = f" instead of {whole}" if whole != size else ""
        lines.append(f"{name}: {t.dtype}{cells} of {owner}, {size}{saved}")
    return lines


def _bytes(shape: list[Expr], itemsize: int) -> str:
    size, symbols = itemsize, []
    for e in shape:
        if isinstance(e, Const):
            size *= int(e.value)
        else:
            symbols.append(format_expr(e))
    return " x ".join([f"{size} bytes", *symbols])


def is_folded(folding: Folding) -> bool:
    """Whether only a part of the tensor has memory."""
    return any(m is not None for m in folding.moduli)


def summarize_plan(plan: Plan, scop: Scop) -> list[str]:
    """``parallel h(56)`` and ``tile o 6 x w 64, vectors of 16``, of the statement with the most work."""
    names = [n for n in plan_statements(plan) if not n.startswith("init_")]
    if not names:
        return []
    s = max((scop.statement(n) for n in names), key=statement_work)
    loops, parts = loops_around(plan, s.name), []
    parallel = next((x for x in loops if x.mark is not None and x.mark.kind == "parallel"), None)
    if parallel is not None:
        parts.append(f"parallel {_with_trips(parallel, s)}")
    points = [x for x in loops if x.part == "point"]
    vector = next((x for x in loops if x.mark is not None and x.mark.kind == "vector"), None)
    tile = f"tile {' x '.join(f'{loop_index(x, s)} {x.size}' for x in points)}" if points else ""
    lanes = "" if vector is None or vector.mark is None else f"vectors of {vector.mark.lanes}"
    if lanes and vector is not None and vector not in points:
        lanes += f" along {loop_index(vector, s)}"
    if tile or lanes:
        parts.append(", ".join(filter(None, (tile, lanes))))
    scan = next((x for x in loops if x.mark is not None and x.mark.kind == "scan"), None)
    if scan is not None and scan.mark is not None:
        parts.append(f"scan in vectors of {scan.mark.lanes} along {loop_index(scan, s)}")
    if not parts and loops:
        parts.append("loops without vectors, on one thread")
    return parts


def _with_trips(loop: PlanLoop, s: ScopStatement) -> str:
    """``h(56)``, ``n(N / 64)``: how many iterations a loop has, as far as one index tells."""
    position = loop.rows[s.name].unit_index()
    row = loop_index(loop, s)
    if position is None:
        return row
    extent = s.extents[s.indices[position]]
    if not isinstance(extent, Const):
        return f"{row}({format_expr(extent)}{f' / {loop.size}' if loop.part == 'tile' else ''})"
    n = int(extent.value)
    return f"{row}({-(-n // loop.size) if loop.part == 'tile' else n})"
