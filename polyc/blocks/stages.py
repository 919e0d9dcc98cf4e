"""How many steps of a time loop there are between two exchanges of halos."""

from __future__ import annotations

from math import ceil, prod

from polyc.blocks.plan import BlockPlan
from polyc.blocks.steps import TimeLoop
from polyc.ir.expr import count_operations, reads
from polyc.machine import Machine


def choose_count(loop: TimeLoop, plan: BlockPlan, machine: Machine) -> int:
    """How many steps there should be for each exchange, by the plan of one: a step more computes again what the halos of the
    others need, and is compiled for each class of blocks; fewer read and write all states more often."""
    costs, types = machine.blocks, loop.program.types
    n_blocks, n_steps = len(plan.places), len(loop.steps)
    middle = max(plan.classes, key=lambda blocks: len(blocks.numbers))
    (result, *_) = middle.results.values()
    block = [int(extent.max()) for _, extent in result]
    regions = {n: [int(e.max()) for _, e in box] for n, box in middle.regions.items() if len(box) == len(block)}
    halo = [max((r[d] for r in regions.values()), default=b) - b for d, b in enumerate(block)]
    itemsize = max(types[v].itemsize for v in loop.component.versions)
    n_operations = sum(count_operations(s.value) + len(reads(s.value)) for s in loop.moving)
    operations = n_operations * costs.operation / machine.lanes(itemsize)
    moved = itemsize * (2 / machine.memory.read.memory + 2 / machine.memory.written.memory)

    def points(steps: int) -> int:
        return prod(b + steps * h for b, h in zip(block, halo, strict=True))

    def cost(count: int) -> float:
        computed = operations * sum(points(k) for k in range(count))
        exchanged = moved * (len(regions) * points(count) + len(middle.results) * points(0)) / 2 + costs.task
        compiled = costs.statement * len(loop.moving) * count * len(plan.classes) * (1 + bool(n_steps % count))
        return n_blocks * (computed + exchanged) / count + compiled / n_steps

    deepest = min((b // h for b, h in zip(block, halo, strict=True) if h), default=1)
    return min(range(1, max(1, min(deepest, n_steps, costs.steps)) + 1), key=cost)


def split_steps(n: int, most: int) -> list[int]:
    """`n` steps in as few stages as have no more than `most`, of at most two lengths."""
    n_stages = ceil(n / most)
    return [n // n_stages + (k < n % n_stages) for k in range(n_stages)]
