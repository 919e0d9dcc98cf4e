"""``python -m benchmarks company``: kernels that share the cores with others' threads.

``--blas``: kernels take turns with NumPy's product of two matrices at all cores, in one process; each of the two is also timed
with nothing but itself around it, and the kernel on one thread as well.  ``--busy N``: short kernels run while N processes keep
cores busy, in turns with onnxruntime.  Means count here, as what others do to a call shows in few of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks import environments, sides
from benchmarks.company_worker import SHORT
from benchmarks.coordinator import failure_line
from benchmarks.statistics import geometric_mean
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).parent.parent
KERNELS = (
    *SHORT,
    *"matmul_512 matmul_tn_512 matmul_nt_512 bert bert_768 bert_row tmm tbmm matvec_4096 batch_4 batch_16 batch_32".split(),
    *"kronecker3 tc_abc mttkrp conv3x3 conv3x3_bias_relu conv1x1 dwconv3x3 resnet3x3_14 conv1x1_28 grouped".split(),
    "embedding_sum",
)
"""26 of the board, those of a few milliseconds at most."""

_START = """
import json, sys
job = json.loads(sys.argv[1])
sys.path[0] = job["polyc"]
if job["side"] == "polyc":
    import polyc
sys.path[0] = job["root"]
from benchmarks.company_worker import serve
serve(job)
"""


class Worker:
    """A live process for one side; `checkout`: where its polyc is, with an environment in ``.venv``."""

    def __init__(self, workload: str, side: str, threads: int, checkout: Path | None = None) -> None:
        own = checkout is not None and str(checkout / ".venv/bin/python")
        python = own or sides.interpreter(side) or sys.executable
        job = {"workload": workload, "side": side, "threads": threads, "root": str(ROOT), "polyc": str(checkout or ROOT)}
        self.process = subprocess.Popen(
            [python, "-c", _START, json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environments.clean(python, os.environ) | sides.environment(side, threads),
            cwd=tempfile.gettempdir(),
        )

    def __enter__(self) -> Worker:
        if not self._receive():
            raise click.ClickException("a result is wrong")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def _receive(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate()
            raise click.ClickException(f"a worker ended: {failure_line(errors)}")
        return json.loads(line)

    def time(self, *turns: str) -> list[float]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(turns) + "\n")
        self.process.stdin.flush()
        seconds: list[float] = self._receive()
        time.sleep(0.02)  # threads of BLAS may spin on
        return seconds


@dataclass(frozen=True, slots=True)
class Turns:
    """Mean seconds of calls: `one` and `product` by themselves and, `_turns`, with NumPy's product before each.

    What the product leaves of the caches shows in `one_turns`, on one thread."""

    one: float
    kernel: float
    product: float
    one_turns: float
    kernel_turns: float
    product_turns: float

    @property
    def kernel_share(self) -> float:
        """Of the kernel's time on one thread, or by itself if that is larger."""
        return self.kernel_turns / max(self.one, self.kernel)

    @property
    def product_share(self) -> float:
        """Of the product's time by itself."""
        return self.product_turns / self.product


def beside_blas(name: str, threads: int, rounds: int, checkouts: Sequence[Path]) -> list[Turns]:
    """What each checkout's kernel takes alone and in turns with NumPy's product."""
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(name, "polyc", threads, checkout)) for checkout in checkouts]
        found: list[list[list[float]]] = [[] for _ in workers]
        for _ in range(rounds):
            for worker, rows in zip(workers, found, strict=True):
                alone = [worker.time(activity)[0] for activity in ("one thread", "kernel", "product")]
                one = worker.time("product", "one thread")[1]
                product, kernel = worker.time("product", "kernel")
                rows.append([*alone, one, kernel, product])
    return [Turns(*(sum(column) / rounds for column in zip(*rows, strict=True))) for rows in found]


def beside_busy(name: str, threads: int, rounds: int, n_busy: int, checkouts: Sequence[Path]) -> list[float]:
    """Mean seconds beside busy processes: of onnxruntime, then of polyc per checkout."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n_busy)]
    try:
        with ExitStack() as stack:
            workers = [stack.enter_context(Worker(name, "onnxruntime", threads))]
            workers += [stack.enter_context(Worker(name, "polyc", threads, checkout)) for checkout in checkouts]
            times = [[w.time("kernel")[0] for w in workers] for _ in range(rounds)]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return [sum(column) / rounds for column in zip(*times, strict=True)]


@click.command()
@click.argument("names", nargs=-1, metavar="[WORKLOAD]...")
@click.option("--blas", is_flag=True, help="In turns with NumPy's product at all cores.")
@click.option("--busy", type=int, multiple=True, metavar="N", help="Beside N busy processes, in turns with onnxruntime.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of each side.  [default: the number of cores]")
@click.option("--rounds", default=10, type=click.IntRange(min=1), show_default=True)
@click.option("--against", type=click.Path(exists=True, path_type=Path), help="Another checkout, measured in turns.")
def main(
    names: tuple[str, ...], blas: bool, busy: tuple[int, ...], threads: int | None, rounds: int, against: Path | None
) -> None:
    """Measure WORKLOADs that share the cores: with --blas 26 of a few milliseconds by default, with --busy those of 0.1 ms."""
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    for name in names:
        if name not in SHORT and name not in WORKLOADS:
            raise click.UsageError(f"no workload {name!r}; there are {', '.join((*SHORT, *WORKLOADS))}")
    n = threads or len(sides.cores())
    checkouts = [ROOT, *([against.resolve()] if against else [])]
    if blas or not busy:
        _report_blas(console, names or KERNELS, n, rounds, checkouts)
    for n_busy in busy:
        _report_busy(console, names or tuple(SHORT), n, rounds, n_busy, checkouts)


def _report_blas(console: Console, names: Sequence[str], threads: int, rounds: int, checkouts: Sequence[Path]) -> None:
    title = f"in turns with NumPy's product, {threads} threads, means in ms"
    columns = ("one thread", "in turns", "kernel", "in turns", "share", "product", "in turns", "share")
    table = Table("workload", "checkout", *columns, title=title)
    shares: dict[Path, list[tuple[float, float]]] = {c: [] for c in checkouts}
    for name in names:
        with console.status(name):
            found = beside_blas(name, threads, rounds, checkouts)
        for checkout, t in zip(checkouts, found, strict=True):
            shares[checkout].append((t.kernel_share, t.product_share))
            cells = [f"{s * 1e3:.3f}" for s in (t.one, t.one_turns, t.kernel, t.kernel_turns, t.product, t.product_turns)]
            texts = (*cells[:4], f"{t.kernel_share:.2f}", *cells[4:], f"{t.product_share:.2f}")
            table.add_row(name, checkout.name, *texts)
    console.print(table)
    for checkout, pairs in shares.items():
        for what, values in zip(("kernel", "product"), zip(*pairs, strict=True), strict=True):
            console.print(f"{checkout.name}: {what} geometric mean {geometric_mean(values):.2f}, most {max(values):.2f}")


def _report_busy(
    console: Console, names: Sequence[str], threads: int, rounds: int, n_busy: int, checkouts: Sequence[Path]
) -> None:
    title = f"beside {n_busy} busy processes, {threads} threads, means in ms"
    table = Table(
        "workload", "onnxruntime", *(f"{c.name}{what}" for c in checkouts for what in ("", " / onnxruntime")), title=title
    )
    for name in names:
        with console.status(name):
            peer, *own = beside_busy(name, threads, rounds, n_busy, checkouts)
        table.add_row(name, f"{peer * 1e3:.3f}", *(t for s in own for t in (f"{s * 1e3:.3f}", f"{s / peer:.2f}")))
    console.print(table)
