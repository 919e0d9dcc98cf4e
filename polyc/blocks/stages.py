"""How many steps of a time loop there are between two exchanges of halos."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from polyc.blocks.plan import BlockPlan
from polyc.blocks.steps import TimeLoop
from polyc.ir.expr import count_operations, reads
from polyc.machine import Machine


def choose_count(loop: TimeLoop, plan: BlockPlan, machine: Machine, limit: int | None = None) -> int:
    """How many steps there should be for each exchange, by the plan of one: a step more computes again what the halos of the
    others need, and is compiled for each class of blocks; fewer read and write all states more often.

    Where a task may hold no more than `limit` bytes, blocks are as small as the halos of so many steps leave them."""
    costs, types = machine.blocks, loop.program.types
    n_steps = len(loop.steps)
    middle = max(plan.classes, key=lambda blocks: len(blocks.numbers))
    (result, *_) = middle.results.values()
    planned = [int(extent.max()) for _, extent in result]
    regions = {n: [int(e.max()) for _, e in box] for n, box in middle.regions.items() if len(box) == len(planned)}
    halo = [max((r[d] for r in regions.values()), default=b) - b for d, b in enumerate(planned)]
    itemsize = max(types[v].itemsize for v in loop.component.versions)
    n_operations = sum(count_operations(s.value) + len(reads(s.value)) for s in loop.moving)
    operations = n_operations * costs.operation / machine.lanes(itemsize)
    moved = itemsize * (2 / machine.memory.read.memory + 2 / machine.memory.written.memory)

    def points(block: Sequence[int], steps: int) -> int:
        return prod(b + steps * h for b, h in zip(block, halo, strict=True))

    def fit(count: int) -> list[int]:
        """The block of a task that keeps to the limit, with regions side by side with the parts that they are made of."""
        block = list(planned)
        while limit is not None and max(block) > 1:
            if itemsize * (2 * len(regions) * points(block, count) + len(middle.results) * prod(block)) <= limit:
                break
            longest = block.index(max(block))
            block[longest] = ceil(block[longest] / 2)
        return block

    def cost(count: int) -> float:
        block = fit(count)
        computed = operations * sum(points(block, k) for k in range(count))
        exchanged = moved * (len(regions) * points(block, count) + len(middle.results) * prod(block)) / 2 + costs.task
        compiled = costs.statement * len(loop.moving) * count * len(plan.classes) * (1 + bool(n_steps % count))
        n_blocks = len(plan.places) * prod(planned) / prod(block)
        return n_blocks * (computed + exchanged) / count + compiled / n_steps

    def reaches_neighbours_alone(count: int) -> bool:
        return all(count * h <= b for b, h in zip(fit(count), halo, strict=True))

    counts = range(1, max(1, min(n_steps, costs.steps)) + 1)
    return min((count for count in counts if reaches_neighbours_alone(count)), key=cost, default=1)


def split_steps(n: int, most: int) -> list[int]:
    """`n` steps in as few stages as have no more than `most`, of at most two lengths."""
    n_stages = ceil(n / most)
    return [n // n_stages + (k < n % n_stages) for k in range(n_stages)]
