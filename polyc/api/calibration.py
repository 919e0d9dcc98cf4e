"""Measuring this machine, and keeping what was found: `calibrate`, `forget`.

Other processes make every measurement longer, never shorter: threads count their own CPU time, and of several rounds the
shortest is taken.  What threads share (the last-level cache, memory) is measured while all of them are at it, as kernels
find it.
"""

from __future__ import annotations

import functools
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from polyc.api import probes
from polyc.api.rates import measure_numpy, measure_rates
from polyc.codegen.objects import calibration_file, host
from polyc.codegen.objects.clock import CYCLES, addition_chain
from polyc.codegen.objects.pool import load_pool
from polyc.machine import Machine
from polyc.machine.calibration import Calibration, clamp
from polyc.recall.machine import recall_host
from polyc.runtime import threads

Report = Callable[[str], None]

TIME_OF_ROUND = 2e-3
"""Seconds of one measurement, at least."""

POSITIONS = 4096
"""Elements of 32 bits that are gathered: half of a first-level cache of 32 KiB."""

WAKES, PAUSE = 200, 5e-4
"""Threads that are woken, and seconds that they sleep before: cores sleep, too."""

SHORT, LONG = 300, 6000
"""Rounds of `probes.forks`: 5 and 100 microseconds."""


def calibrate(report: Report = lambda text: None, rounds: int = 7, scale: float = 1.0) -> tuple[Calibration, Path]:
    """Measure this machine and keep what was found, in place of what was kept before; some seconds.

    `report` is told what comes next; `scale`: part of the sizes of arrays that are passed over, for tests.
    Raises OSError where nothing can be kept."""
    calibration_file.begin(machine_identity())[1].unlink()
    if threads.count_cores() < (os.cpu_count() or 1):
        report(f"{threads.count_cores()} of {os.cpu_count()} cores: rates of all are those of fewer threads")
    found = clamp(_Probe(host.uncalibrated_host(threads.count_cores()), rounds, scale, report).measure())
    place = calibration_file.write(machine_identity(), found)
    host.read_calibration_again()
    measure_rates.cache_clear()
    return found, place


def forget() -> Path | None:
    """Remove what was kept of this machine; None where nothing was.  Raises OSError."""
    removed = calibration_file.remove(machine_identity())
    host.read_calibration_again()
    measure_rates.cache_clear()
    return removed


def machine_identity() -> str:
    """As `host.machine_identity`, by what the cache knows of this machine."""
    recall_host()
    return host.machine_identity()


class _Probe:
    """One calibration under way."""

    def __init__(self, machine: Machine, rounds: int, scale: float, report: Report) -> None:
        self.machine, self.rounds, self.scale, self.report = machine, rounds, scale, report
        self.n_threads = max(1, machine.cores)

    def measure(self) -> Calibration:
        machine, report = self.machine, self.report
        report("arithmetic")
        fma = probes.CHAIN * probes.ROUNDS
        latency = self._cycles(self._on_vector(probes.multiply_adds(machine, True))) / fma
        per_cycle = fma / self._cycles(self._on_vector(probes.multiply_adds(machine, False)))
        report("loads and gathers")
        near = machine.l1 // 2 // probes.STEP * probes.STEP
        loads = self._rate(probes.pass_over(machine, "read"), near, 1) / (machine.vector_bits // 8)
        sizes = self._sizes()
        rates: dict[str, list[float]] = {}
        for kind, probe in self._kinds().items():
            rates[kind] = []
            for level, (size, n_threads) in enumerate(sizes, 2):
                report(f"{kind} {'memory' if level == 4 else f'L{level}'}, {n_threads} thread{'s' if n_threads > 1 else ''}")
                rates[kind].append(self._rate(probe, size, n_threads))
        report("threads")
        fork, wake = self._fork(), _time_of_wake(max(3, round(WAKES * self.scale)))
        report("NumPy")
        own = measure_numpy()
        read = rates["read"]
        written = [_behind(copied, own_rate) for copied, own_rate in zip(rates.pop("copy"), read, strict=True)]
        streamed = _behind(rates.pop("stream")[2], read[2])
        named = {name: (r[0], r[1], r[2]) for name, r in (rates | {"written": written}).items()}
        return Calibration(
            fma_latency=latency,
            fma_per_cycle=per_cycle,
            loads_per_cycle=loads,
            gather=self._gather() if machine.has_gather else None,
            streamed=streamed,
            fork=fork,
            wake=wake,
            numpy_product=own.product,
            numpy_step=own.step,
            numpy_copied=own.copied,
            **named,
        )

    def _kinds(self) -> dict[str, Callable[..., object]]:
        """What is measured of each level: functions of (address, bytes, repetitions) by the name of the rate."""
        machine = self.machine

        def rows(is_prefetched: bool) -> Callable[..., object]:
            probe = probes.strided(machine, is_prefetched)

            def run(address: int, size: int, times: int) -> object:
                # Rows of a little more than a page: the next one is in no stream that a prefetcher follows.
                stride = machine.memory.page + probes.PIECE
                return probe(address, stride, max(1, size // stride - probes.AHEAD), times)

            return run

        found = {kind: probes.pass_over(machine, kind) for kind in ("read", "copy", "stream")}
        return found | {"passed": probes.pass_over(machine, "pass"), "read_strided": rows(False), "read_prefetched": rows(True)}

    def _sizes(self) -> list[tuple[int, int]]:
        """Bytes for each thread, and threads, to find a level's rates: well beyond the level before, well within this one."""
        machine, n = self.machine, self.n_threads
        l3 = min(machine.l3, n * machine.memory.l3_per_core)
        bytes_of = [max(2 * machine.l1, machine.l2 // 2), max(2 * machine.l2, l3 // (2 * n)), max(64 << 20, 4 * l3) // n]
        return [(max(16 * probes.STEP, int(size * self.scale)), 1 if level == 0 else n) for level, size in enumerate(bytes_of)]

    def _rate(self, probe: Callable[..., object], size: int, n_threads: int) -> float:
        """Bytes per cycle of one thread."""
        size = size // probes.STEP * probes.STEP
        arrays = [_aligned(2 * size) for _ in range(n_threads)]  # copies are of what follows
        probe(arrays[0][1], size, 1)
        start = time.perf_counter()
        probe(arrays[0][1], size, 1)
        once = max(time.perf_counter() - start, 1e-7)
        times = max(1, round(TIME_OF_ROUND * min(1.0, self.scale) / once))
        found = []
        for _ in range(self.rounds):
            ns = _together([functools.partial(probe, address, size, times) for _, address in arrays])
            found.append(ns * CYCLES / self._chain_ns())
        return times * size / min(found)

    def _cycles(self, run: Callable[[], object]) -> float:
        """Cycles of `run` on one thread."""
        run()
        return min([_together([run]) * CYCLES / self._chain_ns() for _ in range(max(5, self.rounds))])

    def _chain_ns(self) -> float:
        """Nanoseconds of a chain of `CYCLES` cycles at the clock of this moment."""
        run = addition_chain()
        return min(_together([run]) for _ in range(3))

    def _on_vector(self, probe: Callable[..., object]) -> Callable[[], object]:
        array, address = _aligned(256)
        return lambda: (array, probe(address))

    def _gather(self) -> float:
        array, address = _aligned(4 * POSITIONS)
        positions = np.random.default_rng(0).permutation(POSITIONS).astype(np.int32)
        n_vectors = POSITIONS // self.machine.lanes(4)
        cycles = []
        for is_gather in (True, False):
            probe = probes.gathered(self.machine, is_gather)
            cycles.append(self._cycles(functools.partial(probe, address, positions.ctypes.data, n_vectors, 8)))
        del array
        return cycles[0] / cycles[1]

    def _fork(self) -> float:
        """Cycles that a region of all threads takes longer than the work of one of them."""
        literal = float(self.machine.threads.fork)
        if self.n_threads < 2:
            return literal
        probe = probes.forks(self.machine, threads.symbols(load_pool))
        work, times, extra = 0.0, 20, []
        for _ in range(4 * max(5, self.rounds)):
            probe(self.n_threads, LONG, 2)  # so long that threads are woken for it
            taken = []
            for n in (self.n_threads, 0):  # one after the other: they are at the same clock
                start = time.perf_counter_ns()
                probe(n, SHORT, times)
                taken.append((time.perf_counter_ns() - start) / times)
            extra.append((taken[0] - taken[1]) * CYCLES / self._chain_ns())
            work = SHORT * probes.CHAIN
        # Where another process has a core, one thread does the work of all, or is itself kept waiting.
        found = [cycles for cycles in extra if 0 < cycles < work / 2]
        return statistics.median(found) if 4 * len(found) >= len(extra) else literal


def _aligned(size: int) -> tuple[np.ndarray, int]:
    """An array of floats of so many bytes that begins at a page, and has been written; and its address."""
    page = 4096
    buffer = np.empty(size // 4 + page, np.float32)
    buffer[:] = 0.5
    start = -(buffer.ctypes.data // 4) % (page // 4)
    array = buffer[start : start + size // 4]
    return array, array.ctypes.data


def _together(runs: Sequence[Callable[[], object]]) -> float:
    """CPU time in nanoseconds of functions that run on a thread each, from when all of them are ready: their mean."""
    if len(runs) == 1:
        start = time.thread_time_ns()
        runs[0]()
        return max(1.0, time.thread_time_ns() - start)
    barrier = threading.Barrier(len(runs))
    taken = [0] * len(runs)

    def go(n: int) -> None:
        barrier.wait()
        start = time.thread_time_ns()
        runs[n]()
        taken[n] = time.thread_time_ns() - start

    workers = [threading.Thread(target=go, args=(n,)) for n in range(len(runs))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return max(1.0, statistics.mean(taken))


def _behind(both: float, first: float) -> float:
    """The rate of the second of two things that each byte goes through, from that of both."""
    return 1 / max(1 / both - 1 / first, 1e-3)


def _time_of_wake(times: int) -> float:
    """Nanoseconds from writing to a pipe until the thread that sleeps at its other end runs."""
    (end, start), found = os.pipe(), []
    written = 0

    def sleep() -> None:
        for _ in range(times):
            os.read(end, 1)
            found.append(time.perf_counter_ns() - written)

    sleeper = threading.Thread(target=sleep)
    sleeper.start()
    for _ in range(times):
        time.sleep(PAUSE)
        written = time.perf_counter_ns()
        os.write(start, b".")
    sleeper.join()
    os.close(end)
    os.close(start)
    return statistics.median(found)
