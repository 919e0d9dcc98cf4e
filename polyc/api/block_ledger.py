"""What is known of the tasks of plans: what they read and hold, and what was planned before for the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np

from polyc.api.block_memory import Job, Jobs
from polyc.api.block_report import Stage, describe_plan
from polyc.api.checkpoints import show_bytes
from polyc.api.dask_arrays import MakeOperator, is_in_file, read_again
from polyc.blocks.plan import BlockPlan, Chunks
from polyc.ir.program import Program
from polyc.limits import available_memory
from polyc.runtime.arrays import argument_error, has_chunks

ASKED_FROM = 1 << 20
"""Bytes of a task's temporaries from which it matters what a kernel stores of them, so that one is compiled to say it."""
HELD_PART = 4
"""Chunks of a file wait for a further pass where all of them are at most such a part of the memory of this process."""


class Memo:
    """What was made for a program before: the stages of a recurrence are alike."""

    def __init__(self) -> None:
        self._made: dict[Any, tuple[Program, Any]] = {}

    def get(self, program: Program, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What `make` gives for the first of all calls with this program and key."""
        whole = (id(program), *key)
        if whole not in self._made:
            self._made[whole] = program, make()  # the program lives as long as its number counts
        return self._made[whole][1]


class Ledger:
    """The `stages` of a program in their order, and the `jobs` of all tasks; `limit` is for what a task holds.

    In a `dry_run` kernels are compiled only to say what they store."""

    def __init__(self, limit: int | None, dry_run: bool) -> None:
        self.limit, self.dry_run = limit, dry_run
        self.stages: list[Stage] = []
        self.jobs: Jobs = {}

    def part(self) -> Ledger:
        """One for a part of the program, with stages of its own."""
        made = Ledger(self.limit, self.dry_run)
        made.jobs = self.jobs
        return made

    def note_chunks(self, array: Any) -> None:
        """Chunks of an input are held like results of tasks."""
        if has_chunks(array):
            for place, n in zip(np.ndindex(*array.numblocks), product(*array.chunks), strict=True):
                self.jobs.setdefault((array.name, *place), Job(array.dtype.itemsize * prod(n)))

    def keeps(self, stage: Stage) -> bool:
        """Whether tasks hold no more than they may."""
        return self.limit is None or stage.held <= self.limit

    def check(self, stage: Stage) -> None:
        """Raise ``argument-memory`` for tasks that hold more than they may."""
        if self.limit is not None and not self.keeps(stage):
            message = f"a block of {stage.result} holds {show_bytes(stage.held)}, and memory is {show_bytes(self.limit)}"
            help = f"give memory={show_bytes(stage.held, up=True)!r}, or the inputs smaller chunks"
            raise argument_error("argument-memory", message, None, help)

    def describe(
        self,
        plan: BlockPlan,
        inputs: Mapping[str, Any],
        make_operator: MakeOperator,
        result: str,
        op: str | None = None,
        whole: tuple[str, ...] = (),
    ) -> tuple[Stage, float]:
        """The stage of a plan, and how many times their temporaries its kernels store: once where these are small, or do not
        matter."""
        chunks: dict[str, Chunks] = {n: a.chunks for n, a in inputs.items() if has_chunks(a)}
        share = 1.0
        stage = describe_plan(plan, chunks, result, op, share, whole)
        temporaries = max(int(np.max(b.temporary_bytes)) for b in plan.classes)
        if temporaries >= ASKED_FROM and (self.dry_run or not self.keeps(stage)):
            share = _find_share(plan, inputs, make_operator)
            stage = describe_plan(plan, chunks, result, op, share, whole)
        return stage, share

    def choose_reading(self, array: Any, number: int) -> Any:
        """The array whose chunks pass `number` over one takes (of 0 and up), where all that it needs is known only after the
        pass before: the same ones, which have waited, or where they lie in a file and are too many to wait, read again."""
        held = available_memory() // HELD_PART if self.limit is None else self.limit
        if not number or not has_chunks(array) or array.nbytes <= held or not is_in_file(array):
            return array
        again = read_again(array, number)
        self.note_chunks(again)
        return again


def _find_share(plan: BlockPlan, inputs: Mapping[str, Any], make_operator: MakeOperator) -> float:
    """How many times its temporaries the kernel of the greatest block stores: it keeps rows of most, and may have some of its
    own (exponentials, packed operands).  It is compiled for that."""
    blocks = max(plan.classes, key=lambda b: int(np.max(b.temporary_bytes)))
    n = int(np.argmax(blocks.temporary_bytes))
    program = blocks.restricted.program
    arrays = [
        np.broadcast_to(np.zeros((), program.types[p].numpy), tuple(int(e[n]) for _, e in blocks.regions[p]))
        if has_chunks(inputs[p])
        else inputs[p]
        for p in blocks.restricted.inputs
    ]
    stored = make_operator(program).temporary_bytes([*arrays, *(int(v[n]) for v in blocks.sizes)], {})
    return float(stored / blocks.temporary_bytes[n])
