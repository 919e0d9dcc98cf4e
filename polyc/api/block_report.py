"""What the tasks of a plan read, write and hold, before any of them runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from polyc.api.checkpoints import show_bytes
from polyc.blocks.plan import BlockPlan, Blocks


@dataclass(frozen=True)
class Stage:
    """The tasks for results, or for partial results of a reduction (`combines`: by what they are combined).

    Bytes: `read` of all regions together, `written` of all results together, `held` of the task that holds most."""

    result: str
    n_tasks: int
    n_kernels: int
    read: int
    written: int
    held: int
    combines: str | None = None
    repeats: int = 1
    """How many stages of a time loop are alike; the other numbers are those of one."""

    def __str__(self) -> str:
        what = f"parts of {self.result}, combined by {self.combines}" if self.combines else self.result
        moved = f"{show_bytes(self.read)} read, {show_bytes(self.written)} written"
        what += f", {self.repeats} times" if self.repeats > 1 else ""
        return (
            f"{what}: {self.n_tasks} tasks, {self.n_kernels} kernels, {moved}, at most {show_bytes(self.held)} held by a task"
        )


@dataclass(frozen=True)
class BlockReport:
    """The stages of an operator on arrays in chunks, in their order; its text is a line for each."""

    stages: tuple[Stage, ...]

    @property
    def held(self) -> int:
        """Most bytes that a task holds: the regions that it is given and their copies side by side, all intermediate tensors,
        as if each was stored, and its results."""
        return max((s.held for s in self.stages), default=0)

    def __str__(self) -> str:
        return "\n".join(map(str, self.stages))


def describe_plan(plan: BlockPlan, result: str, combines: str | None = None) -> Stage:
    """The stage of a plan."""
    read = written = held = 0
    for blocks in plan.classes:
        regions, results = _bytes_of(blocks, blocks.regions), _bytes_of(blocks, blocks.results)
        read, written = read + int(np.sum(regions)), written + int(np.sum(results))
        held = max(held, int(np.max(2 * regions + results + blocks.temporary_bytes)))
    return Stage(result, len(plan.places), len(plan.classes), read, written, held, combines)


def _bytes_of(blocks: Blocks, boxes: Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]]) -> np.ndarray:
    """Bytes of all of these boxes, for each block."""
    types = blocks.restricted.program.types
    total = np.zeros(len(blocks.numbers), dtype=np.int64)
    for name, box in boxes.items():
        total = total + types[name].itemsize * prod((extent for _, extent in box), start=np.int64(1))
    return total
