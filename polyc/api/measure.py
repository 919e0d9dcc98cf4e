"""What a kernel takes on this machine, beside what it was estimated to take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.ir.expr import Call, evaluate, walk
from polyc.records import dataclass

if TYPE_CHECKING:
    from polyc.api.operator import Operator
    from polyc.driver import Lowered

_ENOUGH_SECONDS, _ENOUGH_RUNS, _FEWEST_RUNS = 0.5, 30, 3
_SHORT = 1e-4
"""Seconds: calls that take less are timed several at once."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Minima of several runs.  Times in seconds; the results of the calls are not kept."""

    one_thread: float
    """CPU time of a call on one thread."""
    all_threads: float
    """Time of a call on `n_threads`."""
    n_threads: int
    clock: float
    """Cycles per second of a core, by additions that wait for each other, timed between the runs."""
    operations: int
    """Arithmetic operations, a function counting as one; over the box of the indices where a statement covers a part of it."""
    argument_bytes: int
    """Inputs and results: what has to be moved at least."""
    estimated_cycles: float | None
    """The scheduler's estimate for the contractions on one core; None where there is none."""
    missed_bytes: int | None
    """Lines that one thread read from beyond the last-level cache; None where the system does not count them."""
    why_not_counted: str = ""

    @property
    def cycles(self) -> float:
        """Of a call on one thread."""
        return self.one_thread * self.clock

    def __str__(self) -> str:
        cycles = f"{self.cycles:.3g} cycles"
        if self.estimated_cycles is not None:
            cycles += f" ({self.estimated_cycles:.3g} estimated for its contractions)"
        if self.missed_bytes is None:
            moved = f"{self.argument_bytes} bytes of inputs and results, at least; {self.why_not_counted}"
        else:
            moved = (
                f"{self.missed_bytes} bytes from memory, as the processor counts; inputs and results are {self.argument_bytes}"
            )
        lines = [
            f"clock        {self.clock / 1e9:.2f} GHz, by additions that wait for each other",
            f"one thread   {_seconds(self.one_thread)}, {cycles}{self._rates(self.one_thread)}",
            f"{f'{self.n_threads} threads':12} {_seconds(self.all_threads)}{self._rates(self.all_threads)}",
            f"bytes        {moved}",
        ]
        return "\n".join(lines)

    def _rates(self, seconds: float) -> str:
        if not seconds:
            return ""
        moved = self.argument_bytes if self.missed_bytes is None else self.missed_bytes
        return f", {self.operations / seconds / 1e9:.3g} GFLOP/s, {moved / seconds / 1e9:.3g} GB/s"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"


def measure(operator: Operator, arrays: Sequence[Any], named: Mapping[str, Any], out: Any = None) -> Measurement:
    """Time calls of `operator` with these arguments: on one thread, between runs of the clock, and on all threads."""
    from polyc.codegen.objects.clock import CYCLES, time_chain
    from polyc.runtime import threads
    from polyc.runtime.counters import count_cache_misses

    kernel = operator.specialize(*arrays, **named)
    lowered = operator.lower(*arrays, **named)
    results = operator(*arrays, out=out, **named)
    kept = results if out is None else out
    call_sorted = operator.sort_call(arrays, named)
    inputs = call_sorted.inputs
    free = [a for f, a in zip(operator.formals, inputs, strict=True) if f.name not in operator.bound_names]
    open_sizes = set(kernel.signature.sizes) - set(kernel.fixed_sizes) - set(operator.input_names)
    is_told = not open_sizes.isdisjoint((*named, *call_sorted.shape_sizes))

    def call() -> object:  # a kernel that takes a size by name plans each call
        return operator(*arrays, out=kept, **named) if is_told else kernel(*free, out=kept)

    with threads.limited_to(1):
        chains: list[float] = []
        one = _fastest(call, time.thread_time, lambda: chains.append(time_chain()))
        missed = count_cache_misses(call)
    n_threads = threads.get_num_threads()
    several = _fastest(call, time.perf_counter, lambda: None)
    shapes = {f.name: np.shape(a) for f, a in zip(operator.formals, inputs, strict=True)}
    numbers = {f.name: int(a) for f, a in zip(operator.formals, inputs, strict=True) if f.name in kernel.signature.sizes}
    numbers |= call_sorted.shape_sizes
    outputs = results if isinstance(results, tuple) else (results,)
    estimates = [choice.total for choice in lowered.choices.values()]
    return Measurement(
        one_thread=one,
        all_threads=several,
        n_threads=n_threads,
        clock=CYCLES / min(chains),
        operations=_count_operations(lowered, shapes, numbers),
        argument_bytes=sum(np.asarray(a).nbytes for a in (*inputs, *outputs)),
        estimated_cycles=sum(estimates) if estimates else None,
        missed_bytes=missed * lowered.target.cache_line if isinstance(missed, int) else None,
        why_not_counted=missed if isinstance(missed, str) else "",
    )


def _fastest(call: Callable[[], object], clock: Callable[[], float], between: Callable[[], None]) -> float:
    """Seconds by `clock` of the fastest call; `between` runs before each sample."""
    start = time.perf_counter()
    call()
    repeat = max(1, math.ceil(_SHORT / max(time.perf_counter() - start, 1e-7)))
    best, begin, runs = float("inf"), time.perf_counter(), 0
    while runs < _FEWEST_RUNS or (runs < _ENOUGH_RUNS and time.perf_counter() - begin < _ENOUGH_SECONDS):
        between()
        start = clock()
        for _ in range(repeat):
            call()
        best, runs = min(best, (clock() - start) / repeat), runs + 1
    return best


def _count_operations(lowered: Lowered, shapes: Mapping[str, tuple[int, ...]], numbers: Mapping[str, int]) -> int:
    """Operations of all statements that a call runs, at the sizes that `lowered` is for."""
    from polyc.runtime.arguments import signature_formals
    from polyc.runtime.sizes import solve_sizes

    formals = [f for f in signature_formals(lowered.signature) if f.shape is not None]
    known = {f.name: shapes[f.name] for f in formals if f.name in shapes}
    formals = [f for f in formals if f.name in known]
    sizes = dict(lowered.fixed_sizes)
    sizes |= solve_sizes(formals, known, numbers, lowered.fixed_sizes, lowered.signature.defined_sizes)
    total = 0
    for s in lowered.scop.statements:
        instances = math.prod(max(0, int(evaluate(s.extents[i], sizes))) for i in s.indices)
        total += instances * (sum(isinstance(node, Call) for node in walk(s.value)) + s.is_reduction)
    return total
