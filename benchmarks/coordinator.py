"""Alternating rounds between live worker processes, so that a noisy machine is noisy for every side alike."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import environments, sides
from benchmarks.workload import Workload, as_tuple

TICK_SECONDS = 0.004
"""Longest time between two updates of a running thread's CPU time."""
IDLE_SECONDS = 0.5
"""Longest wait for a side's threads to stop spinning after its round."""


class WorkerFailed(Exception):
    """A side could not be built or died; the text says why."""


def failure_line(errors: str) -> str:
    """The line of a traceback that names the error: the last one that speaks of an error, else the last."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "rror" in line), lines[-1] if lines else "")


@dataclass(slots=True)
class Side:
    """What was measured of one side."""

    name: str
    seconds: list[float] = field(default_factory=list)
    error: float | None = None
    digest: str | None = None
    repetitions: int = 1
    failure: str | None = None
    version: str | None = None
    """The package that ran, with its version."""
    memory: int | None = None
    """Bytes kept for calls beside inputs and results, where the side tells."""
    planned: int | None = None
    """Bytes of the schedule's tile buffers, the bar for `memory`."""


@dataclass(slots=True)
class Measurement:
    """One workload at one number of threads; rounds of all sides are paired by position."""

    workload: Workload
    threads: int
    fresh: bool
    sides: dict[str, Side]
    busy_elsewhere: float = 0.0
    """Cores that other processes kept busy during the rounds, on average."""


class Worker:
    """A live process for one side, held to `threads` cores, and to `memory` bytes of addresses; `options` are those of polyc.

    Its results are compared with those in the file `exact`, and written to the file `results`.  A process that takes longer
    than `limit` seconds for an answer is killed."""

    def __init__(
        self,
        workload: Workload,
        side: str,
        threads: int,
        fresh: bool,
        exact: Path | None,
        options: Mapping[str, Any] | None = None,
        *,
        results: Path | None = None,
        limit: float | None = None,
        memory: int | None = None,
    ) -> None:
        self.limit = limit
        job = {"workload": workload.name, "side": side, "threads": threads, "fresh": fresh, "exact": exact and str(exact)}
        job |= {"options": dict(options)} if options else {}
        job |= {"results": str(results)} if results else {}
        cores = sorted(os.sched_getaffinity(0))[-threads:]
        # Where no environment has the package, the worker of the runner's own interpreter says so.
        python = sides.interpreter(side) or sys.executable
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environments.clean(python, os.environ) | sides.environment(side, threads),
            cwd=Path(__file__).parent.parent,
            preexec_fn=lambda: restrict_process(cores, memory),
        )

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        killer = threading.Timer(self.limit or 0, self.process.kill)
        if self.limit is not None:
            killer.start()
        line = self.process.stdout.readline()
        killer.cancel()
        if not line and self.limit is not None and self.process.wait() == -signal.SIGKILL:
            raise WorkerFailed(f"not done in {self.limit:.0f} s, or killed")
        if not line:
            _, errors = self.process.communicate()
            raise WorkerFailed(failure_line(errors) or f"ended with code {self.process.returncode}")
        message: dict[str, Any] = json.loads(line)
        if "failed" in message:
            raise WorkerFailed(message["failed"])
        return message

    def run_round(self, clock: str = "seconds") -> float:
        """Seconds per repetition of one round, or ``cpu`` seconds; returns when the process has come to rest."""
        assert self.process.stdin is not None
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        seconds: float = self.receive()[clock]
        self.wait_until_idle()
        return seconds

    def wait_until_idle(self) -> None:
        """OpenMP and BLAS threads go on spinning for a while after their work: they must not disturb the next side."""
        deadline = time.monotonic() + IDLE_SECONDS
        before = cpu_nanoseconds(self.process.pid)
        while time.monotonic() < deadline:
            # The kernel books a running thread's time at its ticks (4 ms apart): a shorter look sees spinning threads at rest.
            time.sleep(3 * TICK_SECONDS)
            now = cpu_nanoseconds(self.process.pid)
            if now - before < 1_000_000:
                return
            before = now

    def close(self) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def restrict_process(cores: list[int], memory: int | None) -> None:
    """Hold this process to cores, and to bytes of addresses."""
    os.sched_setaffinity(0, cores)
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


class _Elsewhere:
    """CPU time since now that neither this process nor the workers used."""

    def __init__(self, pids: list[int]) -> None:
        self.pids = pids
        self.start = time.monotonic(), self._others()

    def _others(self) -> float:
        return busy_seconds() - time.process_time() - sum(map(cpu_nanoseconds, self.pids)) * 1e-9

    def cores(self) -> float:
        """Cores kept busy by others, on average; 0 where the time was too short to tell."""
        elapsed = time.monotonic() - self.start[0]
        return max(0.0, (self._others() - self.start[1]) / elapsed) if elapsed > 0.1 else 0.0


def cpu_nanoseconds(pid: int) -> int:
    """CPU time of all threads of a process so far; 0 where the system does not tell."""
    total = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(task.read_text().split()[0])
    return total


def exact_results(workload: Workload) -> tuple[np.ndarray, ...]:
    """The results, computed from inputs in double precision (integers as they are)."""
    wider = {"f": np.float64, "c": np.complex128}
    wide = {n: a.astype(wider.get(a.dtype.kind, a.dtype)) for n, a in workload.inputs().items()}
    return tuple(np.asarray(r) for r in as_tuple(workload.exact(**wide)))


def busy_seconds() -> float:
    """CPU time of the whole machine so far, without idling; 0 where the system does not tell."""
    try:
        user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def reference_file(workload: Workload) -> Iterator[Path]:
    """The exact results in a temporary file that workers load."""
    with tempfile.TemporaryDirectory(prefix="polyc-bench-") as folder:
        path = Path(folder) / "exact.npz"
        np.savez(path, *exact_results(workload))
        yield path


def measure(
    workload: Workload,
    side_names: list[str],
    threads: int,
    rounds: int,
    fresh: bool,
    exact: Path,
    options: Mapping[str, Any] | None = None,
) -> Measurement:
    """Start all sides, then let them take turns; the side that begins changes from round to round.

    `options` are those of polyc."""
    result = Measurement(workload, threads, fresh, {name: Side(name) for name in side_names})
    workers: dict[str, Worker] = {}
    try:
        for name, side in result.sides.items():
            worker = Worker(workload, name, threads, fresh, exact, options if name in sides.SUBJECTS else None)
            try:
                ready = worker.receive()
            except WorkerFailed as failure:
                side.failure = str(failure)
                worker.close()
                continue
            workers[name] = worker
            side.error, side.digest, side.version = ready.get("error"), ready.get("digest"), ready.get("version")
            side.repetitions, side.memory, side.planned = ready["repetitions"], ready.get("memory"), ready.get("planned")
            worker.wait_until_idle()
        order = list(workers)
        elsewhere = _Elsewhere([w.process.pid for w in workers.values()])
        for number in range(rounds):
            turn = number % max(1, len(order))
            for name in order[turn:] + order[:turn]:
                side = result.sides[name]
                if side.failure is None:
                    try:
                        side.seconds.append(workers[name].run_round())
                    except (WorkerFailed, OSError) as failure:
                        side.failure = str(failure)
                        side.seconds.clear()
        result.busy_elsewhere = elsewhere.cores()
    finally:
        for worker in workers.values():
            worker.close()
    return result
