"""Choose the parallel loop of each top-level nest: the outermost coincident loop with enough iterations and work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from polyc.code_limits import CHUNK, MINIMUM_BLOCKS, MINIMUM_ITERATIONS
from polyc.diagnostics import Remark
from polyc.machine import Threads
from polyc.poly.domains import is_product
from polyc.poly.scop import Scop
from polyc.poly.tree import Mark, Plan, PlanLoop, PlanSequence, plan_statements
from polyc.scheduler.accesses import index_trips, is_constant, statement_work


def mark_parallel_loops(plan: Plan, scop: Scop, threads: Threads) -> tuple[Plan, list[Remark]]:
    """Mark one loop ``parallel`` in every top-level nest that is worth it, and move it outermost."""
    remarks: list[Remark] = []
    children = plan.children if isinstance(plan, PlanSequence) else (plan,)
    result = tuple(_mark(child, scop, threads, remarks) for child in children)
    return (PlanSequence(result) if isinstance(plan, PlanSequence) else result[0]), remarks


def _mark(plan: Plan, scop: Scop, threads: Threads, remarks: list[Remark], repetitions: int = 1) -> Plan:
    """`repetitions`: iterations of the sequential loops around."""
    names = [n for n in plan_statements(plan) if not n.startswith("init_")]
    label = names[0] if names else None
    work = sum(statement_work(scop.statement(n)) for n in names) // repetitions
    if not isinstance(plan, PlanLoop) or work < threads.least_work:
        message = f"one thread: {work} operations, parallel from {threads.least_work}"
        remarks.append(Remark("missed", "parallel", message, label))
        return plan
    if any(loop.mark is not None and loop.mark.kind == "pipeline" for loop in _loops_inside(plan)):
        remarks.append(Remark("passed", "parallel", f"a pipeline of columns of tiles, {work} operations", label))
        return plan
    if plan.kind == "S":
        return _mark_below_steps(plan, scop, threads, remarks, work, label)
    chain: list[PlanLoop] = []
    node: Plan = plan
    while isinstance(node, PlanLoop) and node.kind == "P":
        chain.append(node)
        node = node.child
    free = [n for n, loop in enumerate(chain) if loop.mark is None and loop.part != "point" and not loop.period]
    if not free:
        if chain and chain[0].mark is not None and chain[0].mark.kind == "vector" and chain[0].part == "whole":
            vector = chain[0]
            inner = replace(vector, part="point", size=CHUNK)
            remarks.append(Remark("passed", "parallel", f"chunks of {CHUNK} elements of the vector loop", label))
            tiles = replace(vector, part="tile", size=CHUNK, child=inner)
            least = _least_part(work, trip_of(tiles, scop), False, has_symbolic_extent(vector, scop), threads)
            return replace(tiles, mark=Mark("parallel", least_part=least))
        remarks.append(Remark("missed", "parallel", "the outermost loop carries a dependence", label))
        return plan
    trips = {n: trip_of(chain[n], scop) for n in free}
    enough = {n: MINIMUM_BLOCKS if _is_block(chain, n, scop) else MINIMUM_ITERATIONS for n in free}
    best = next((n for n in free if trips[n] >= enough[n]), max(free, key=lambda n: trips[n]))
    if trips[best] < MINIMUM_ITERATIONS and isinstance(node, PlanSequence):
        inside = _mark_inside(chain, node, trips, work, scop, threads)
        if inside is not None:
            plan, found = inside
            reason = f"inside {trips[best]} iterations: too few for the loop around to balance"
            remarks += [Remark("analysis", "parallel", reason, label), *found]
            return plan
    if trips[best] <= 1:
        remarks.append(Remark("missed", "parallel", "every coincident loop has one iteration", label))
        return plan
    is_uneven = any(_is_uneven(chain[best], name, scop) for name in names)
    if not is_uneven and best and set(range(best)) <= set(free):
        in_order = _share_in_order(chain, best, node, trips, work, scop, threads, label)
        if in_order is not None:
            remarks.append(in_order[1])
            return in_order[0]
    iterations, joined = trips[best], ""
    rest = [loop for n, loop in enumerate(chain) if n != best]
    second = next((n for n in range(len(chain)) if n != best), None)
    if second in free and not is_uneven and _may_be_short(chain[best], scop):
        both = iterations * trips[second]
        if trips[second] > 1 and work // both >= threads.work_to_collapse:
            iterations = both
            rest[0] = replace(rest[0], mark=Mark("parallel"))
            joined = f", with the loop inside, of {trips[second]} iterations, as one"
    least = _least_part(work, iterations, is_uneven, has_symbolic_extent(chain[best], scop), threads)
    parts = f", in parts of {least} or more" if least else ""
    message = f"a loop of {trips[best]} iterations, {work} operations{joined}{parts}"
    remarks.append(Remark("passed", "parallel", message, label))
    chosen = replace(chain[best], mark=Mark("parallel", least_part=least, is_uneven=is_uneven))
    result: Plan = node
    for loop in reversed(rest):
        result = replace(loop, child=result)
    return replace(chosen, child=result)


def _share_in_order(
    chain: list[PlanLoop],
    best: int,
    inner: Plan,
    trips: dict[int, int],
    work: int,
    scop: Scop,
    threads: Threads,
    label: str | None,
) -> tuple[Plan, Remark] | None:
    """Threads share the loops in front of `best`, which may be short, and blocks of tiles of it as one loop: elements are
    visited in the order of memory, whatever their number is.  None where this is not worth it, and for blocks that are cut for
    the cache: what they hold is used again by their tiles, and the call says how long they are (`nests/block_sizes.py`)."""
    first = next((n for n in range(best) if not _may_be_short(chain[n], scop)), best)
    loop = chain[best]
    if not first or loop.part != "tile" or loop.period or _is_block(chain, best, scop):
        return None
    n_tiles = max(1, trips[best] // MINIMUM_ITERATIONS)
    blocks = -(-trips[best] // n_tiles)
    iterations = prod(trips[n] for n in range(first)) * blocks
    if work // iterations < threads.work_to_collapse:
        return None
    block = loop.size * n_tiles
    outer = [*chain[:first], replace(loop, size=block)]
    rest = (
        [*chain[first:best], replace(loop, period=block), *chain[best + 1 :]]
        if n_tiles > 1
        else [*chain[first:best], *chain[best + 1 :]]
    )
    least = _least_part(work, iterations, False, True, threads)
    marks = [Mark("parallel", least_part=least), *(Mark("parallel") for _ in outer[1:])]
    result = inner
    for each in reversed(rest):
        result = replace(each, child=result)
    for each, mark in reversed(list(zip(outer, marks, strict=True))):
        result = replace(each, mark=mark, child=result)
    message = f"{first + 1} loops of {iterations} iterations as one, {work} operations, in parts of {least} or more"
    return result, Remark("passed", "parallel", message, label)


def _least_part(work: int, iterations: int, is_uneven: bool, is_symbolic: bool, threads: Threads) -> int:
    """Iterations of the least part of a loop for which a thread comes back; 0 where no thread would get two."""
    wanted = threads.work_per_uneven_part if is_uneven else threads.work_per_part
    least = -(-wanted // max(1, work // iterations))
    return least if is_uneven or is_symbolic or iterations >= 4 * least else 0


def _may_be_short(loop: PlanLoop, scop: Scop) -> bool:
    """Whether a whole loop runs over an index of which a call may have few values, as a batch of any size."""
    return loop.part == "whole" and has_symbolic_extent(loop, scop)


def _is_block(chain: list[PlanLoop], n: int, scop: Scop) -> bool:
    """Whether a loop is over blocks of tiles that a loop inside of it runs through, as many as a call's sizes say."""
    loop = chain[n]
    if loop.part != "tile" or not any(inner.period == loop.size and inner.rows == loop.rows for inner in chain[n + 1 :]):
        return False
    return has_symbolic_extent(loop, scop)


def has_symbolic_extent(loop: PlanLoop, scop: Scop) -> bool:
    named = ((scop.statement(name), row) for name, row in loop.rows.items() if not name.startswith("init_"))
    return any(c and not is_constant(s.extents[s.indices[k]]) for s, row in named for k, c in enumerate(row.coefficients))


def _mark_below_steps(
    plan: PlanLoop, scop: Scop, threads: Threads, remarks: list[Remark], work: int, label: str | None
) -> Plan:
    """Share out what each step of sequential loops does, where it is worth a fork and join."""
    steps: list[PlanLoop] = []
    repetitions = 1
    node: Plan = plan
    while isinstance(node, PlanLoop) and node.kind == "S":
        steps.append(node)
        repetitions *= max(1, trip_of(node, scop))
        node = node.child
    if work // repetitions < threads.work_per_step:
        message = f"the outermost loop carries a dependence, and a step has {work // repetitions} operations"
        remarks.append(Remark("missed", "parallel", message, label))
        return plan
    children = node.children if isinstance(node, PlanSequence) else (node,)
    marked = tuple(_mark(child, scop, threads, remarks, repetitions) for child in children)
    result: Plan = PlanSequence(marked) if isinstance(node, PlanSequence) else marked[0]
    for loop in reversed(steps):
        result = replace(loop, child=result)
    return result


def _loops_inside(plan: Plan) -> Iterator[PlanLoop]:
    """The loops of a chain, outermost first."""
    while isinstance(plan, PlanLoop):
        yield plan
        plan = plan.child


def _is_uneven(loop: PlanLoop, name: str, scop: Scop) -> bool:
    """Whether iterations of the loop hold different numbers of instances of the statement, as in a triangle or in segments."""
    s, row = scop.statement(name), loop.rows.get(name)
    moving = [n for n, c in enumerate(row.coefficients) if c] if row is not None else []
    if row is not None and any(s.indices[n] in r.outer for n in moving for r in s.loaded_ranges.values()):
        return True
    return not is_product(s.domain, moving)


def _mark_inside(
    chain: list[PlanLoop], body: PlanSequence, trips: dict[int, int], work: int, scop: Scop, threads: Threads
) -> tuple[Plan, list[Remark]] | None:
    """Leave a short chain of loops serial and share out what it repeats, where each repetition is worth a fork and join."""
    repetitions = 1
    for n in trips:
        repetitions *= trips[n]
    if work // repetitions < threads.work_per_fork:
        return None
    found: list[Remark] = []
    children = tuple(_mark(child, scop, threads, found) for child in body.children)
    heaviest = max(body.children, key=lambda child: _plan_work(child, scop))
    marked = children[body.children.index(heaviest)]
    if not (isinstance(marked, PlanLoop) and marked.mark is not None and marked.mark.kind == "parallel"):
        return None
    result: Plan = PlanSequence(children)
    for loop in reversed(chain):
        result = replace(loop, child=result)
    return result, found


def _plan_work(plan: Plan, scop: Scop) -> int:
    return sum(statement_work(scop.statement(n)) for n in plan_statements(plan) if not n.startswith("init_"))


def trip_of(loop: PlanLoop, scop: Scop) -> int:
    """Iterations of a loop, from the statement that makes it longest."""
    longest = 1
    for name, row in loop.rows.items():
        if name.startswith("init_"):
            continue
        s = scop.statement(name)
        trips = index_trips(s)
        extent = sum(abs(c) * trips[s.indices[n]] for n, c in enumerate(row.coefficients) if c)
        longest = max(longest, extent)
    return -(-longest // loop.size) if loop.part == "tile" else longest
