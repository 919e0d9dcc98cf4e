"""Rounds of one row: each side runs in a new process each time, and who begins changes from round to round."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import coordinator, environments, sides
from benchmarks.blocks.row import Row
from benchmarks.statistics import Quartiles, paired_ratio, quartiles
from benchmarks.worker import largest_error, load

SUBJECT = "polyc"
ENVIRONMENT = "dask"
"""The environment of all other sides: dask, with SciPy and numba."""


@dataclass(slots=True)
class Measured(coordinator.Side):
    """What was measured of one side; `memory` is the greatest one of a process beyond what it had before, over all rounds."""

    graphs: list[float] = field(default_factory=list)
    """Seconds of making the graph; for polyc of planning, and of loading kernels."""
    first_graph: float | None = None
    """The same in the first process, which compiles the kernels."""
    tasks: int | None = None
    blocks: int | None = None
    """Tasks of the stage that has most of them, as polyc says beforehand."""
    refused: str | None = None
    """Code of the error by which polyc refuses the row."""


@dataclass(slots=True)
class Result:
    """One row in one size."""

    row: Row
    size: str
    sides: dict[str, Measured]

    def is_wrong(self, name: str) -> bool:
        """Whether the side's result missed the row's tolerance."""
        error = self.sides[name].error
        return error is not None and not error <= self.row.tolerance

    def has_failed(self) -> bool:
        """Whether polyc gave a wrong result, or none without saying why not."""
        return self.is_wrong(SUBJECT) or self.sides[SUBJECT].failure is not None

    def best_peer(self) -> str | None:
        """The one with the least median among those that are right."""
        right = [n for n, s in self.sides.items() if n != SUBJECT and s.seconds and not self.is_wrong(n)]
        return min(right, key=lambda n: quartiles(self.sides[n].seconds).median, default=None)

    def ratio(self) -> Quartiles | None:
        """Time of the best peer over polyc's, paired by round."""
        best = self.best_peer()
        subject = self.sides[SUBJECT]
        return paired_ratio(self.sides[best], subject) if best is not None and subject.seconds else None


def interpreter(side: str) -> str:
    """What runs a side: the environment ``dask`` where it is set up; polyc itself, and all without one, the runner's."""
    own = None if side == SUBJECT else environments.environment_python(ENVIRONMENT)
    return sys.executable if own is None else str(own)


def is_available(side: str, scheduler: str = "threads") -> bool:
    """Whether the packages of a side are installed where it runs, those for a scheduler included."""
    packages = ["dask", "zarr"]
    packages += [side] if side in ("scipy", "numba") else []
    packages += ["distributed"] if scheduler == "processes" else []
    return all(environments.is_importable(p, interpreter(side)) for p in packages)


@dataclass(frozen=True, slots=True)
class Runner:
    """How processes run: dask's scheduler, its workers, the seconds that a process may take, and who is told of progress."""

    scheduler: str
    workers: int
    limit: float
    tell: Callable[[str], None]
    peers: Sequence[str] = ()
    """Only these, where there are any."""

    def start(self, row: Row, size: str, side: str, base: Path, **more: str) -> tuple[dict[str, Any], Path]:
        """One process; its answer and its folder."""
        folder = Path(tempfile.mkdtemp(dir=base))
        job = {"row": row.name, "size": size, "side": side, "scheduler": self.scheduler, "workers": self.workers}
        job |= {"folder": str(folder), "data": str(base), **more}
        python = interpreter(side)
        caches = {"POLYC_CACHE_DIR": str(base / "kernels"), "NUMBA_CACHE_DIR": str(base / "numba")}
        cores = sides.cores()[-self.workers :]
        try:
            done = subprocess.run(
                [python, "-m", "benchmarks.blocks.worker", json.dumps(job)],
                capture_output=True,
                text=True,
                check=False,
                timeout=self.limit,
                env=environments.clean(python, os.environ) | sides.environment(side, 1) | caches,
                cwd=Path(__file__).parent.parent.parent,
                preexec_fn=lambda: coordinator.restrict_process(cores, None),
            )
        except subprocess.TimeoutExpired:
            return {"failed": "TimeoutExpired", "message": f"not done in {self.limit:.0f} s"}, folder
        if not done.stdout:
            message = coordinator.failure_line(done.stderr) or f"ended with code {done.returncode}"
            return {"failed": "the process ended", "message": message}, folder
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer, folder

    def measure(self, row: Row, size: str, rounds: int, base: Path) -> Result:
        """An unmeasured round, in which kernels are compiled, and then `rounds`; results are compared in all of them."""
        peers = [p for p in row.peers if not self.peers or p in self.peers]
        result = Result(row, size, {n: Measured(n) for n in (SUBJECT, *peers) if is_available(n)})
        for name in ("data", "exact"):
            self.tell(f"{row.name}: {name}")
            answer, exact = self.start(row, size, name, base, exact=(peers or list(row.peers))[0])
            if "message" in answer:
                raise coordinator.WorkerFailed(f"{row.name}, {name}: {answer['message']}")
        expected = load(str(exact / "samples.npz"))
        for number in range(-1, rounds):
            order = [n for n, s in result.sides.items() if s.failure is None and s.refused is None]
            turn = number % max(1, len(order))
            for name in order[turn:] + order[:turn]:
                self.tell(f"{row.name}: {name}, {'first run' if number < 0 else f'round {number + 1} of {rounds}'}")
                answer, folder = self.start(row, size, name, base)
                note(result.sides[name], answer, number >= 0)
                if "message" not in answer:
                    error = largest_error(load(str(folder / "samples.npz")), expected)
                    result.sides[name].error = max(result.sides[name].error or 0.0, error)
                shutil.rmtree(folder)
        return result


def note(side: Measured, answer: Mapping[str, Any], is_measured: bool) -> None:
    """Keep what a process answered."""
    if "message" in answer:
        side.refused = answer.get("refused")
        side.failure = None if side.refused else f"{answer['failed']}: {answer['message']}"
        side.seconds.clear()
        return
    side.planned, side.blocks, side.tasks = answer.get("planned"), answer.get("blocks"), answer["tasks"]
    if not is_measured:
        side.first_graph = answer["graph"]
        return
    side.seconds.append(answer["seconds"])
    side.graphs.append(answer["graph"])
    if answer["memory"] is not None:
        side.memory = max(side.memory or 0, answer["memory"])
