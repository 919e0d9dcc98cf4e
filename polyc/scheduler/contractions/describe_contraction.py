"""Contractions in words: roles of the indices, register tile, copies, and estimated cycles and bytes."""

from __future__ import annotations

from math import ceil, prod

from polyc.machine import Machine
from polyc.poly.scop import Scop, ScopStatement
from polyc.scheduler.accesses import access_motions, index_trips, trip_count
from polyc.scheduler.contractions.choice import Choice
from polyc.scheduler.contractions.register_use import register_use


def describe_contraction(choice: Choice, s: ScopStatement, scop: Scop, target: Machine) -> list[tuple[str, str]]:
    """Titles and facts about how a contraction is computed.  Cycles are estimates for one core."""
    way, use, trips = choice.way, register_use(choice), index_trips(s)
    tile = " x ".join(f"{i} {n}" for i, n in way.tile.items())
    registers = f"{use.accumulators} accumulators, {use.registers} of {target.n_registers} registers"
    step = (
        f"{use.accumulators} products, {use.loads} vectors of {choice.vector_operand.read.tensor} and "
        f"{use.broadcasts} elements of {choice.row_operand.read.tensor} are read"
    )
    volume = prod(trips.values())
    peak = volume / way.lanes / target.fma_per_cycle
    facts = [
        *((title, _with_trips(indices, trips)) for title, indices in classify_indices(choice, s).items() if indices),
        ("tile", f"{tile}, vectors of {way.lanes} along {way.vector}: {registers}"),
        ("step", step),
        ("copies", "; ".join(_describe_copies(choice)) or "none: both operands are read where they lie"),
        ("blocks", f"{way.block[0]} by {way.block[1]}: the copy stays in the cache" if way.block else "none"),
        ("cycles", f"{_list(choice.cycles, '')}; {choice.total:.3g} in all, {100 * peak / choice.total:.0f} % of the peak"),
        ("caches", _list(choice.traffic, " bytes") + " from beyond the first-level cache"),
    ]
    return [*facts, ("bound", _describe_bound(choice))]


def classify_indices(choice: Choice, s: ScopStatement) -> dict[str, list[str]]:
    """Indices by role: columns move the vector operand alone, rows the row operand alone, batch indices both."""
    vector, row = choice.vector_operand.indices, choice.row_operand.indices
    return {
        "columns": [i for i in s.left if i in vector and i not in row],
        "rows": [i for i in s.left if i in row and i not in vector],
        "batch": [i for i in s.left if (i in row) == (i in vector)],
        "sums": list(choice.way.order),
    }


def _with_trips(indices: list[str], trips: dict[str, int]) -> str:
    return ", ".join(f"{i} ({trips[i]})" for i in indices)


def _describe_copies(choice: Choice) -> list[str]:
    way, found = choice.way, []
    for operand, packs, why in (
        (choice.row_operand, way.packs_rows, "its elements are broadcast, and lie one behind the other in the copy"),
        (choice.vector_operand, way.packs_vector, f"its vectors along {way.vector} are read from one place, in order"),
    ):
        if packs:
            found.append(f"{operand.read.tensor}: {why}")
    return found


def _list(amounts: dict[str, float], unit: str) -> str:
    return ", ".join(f"{what.removesuffix('.0')} {x:.3g}{unit}" for what, x in amounts.items() if x) or f"0{unit}"


def _describe_bound(choice: Choice) -> str:
    """What a step of the tile is estimated to wait for."""
    arithmetic, caches = choice.step["arithmetic"], choice.step["caches"]
    what = "memory" if caches > arithmetic else "arithmetic"
    return f"by {what}: a step takes {arithmetic:.3g} cycles in registers, and the caches deliver what it reads in {caches:.3g}"


def compulsory_bytes(s: ScopStatement, scop: Scop) -> dict[str, int]:
    """Bytes of each tensor that a statement cannot but touch once, by name; subscripts count as the box that they reach."""
    trips = {i: max(1, n) for i, n in index_trips(s).items()}
    touched: dict[str, int] = {}
    for motion in access_motions(s):
        tensor = scop.tensors.get(motion.tensor)
        if tensor is None:
            continue
        elements, moving = 1, set[str]()
        for coefficients, extent in zip(motion.coefficients, tensor.shape, strict=True):
            whole = max(1, trip_count(extent))
            if coefficients is None:  # data decides: any element
                elements *= whole
                moving |= set(trips)
                continue
            moving |= {i for i, c in coefficients.items() if c}
            elements *= min(whole, 1 + sum(abs(c) * (trips[i] - 1) for i, c in coefficients.items()))
        elements = min(elements, prod(trips[i] for i in moving))
        touched[motion.tensor] = max(touched.get(motion.tensor, 0), ceil(elements) * tensor.dtype.itemsize)
    return touched
