"""``python -m benchmarks against CHECKOUT``: kernels, or their cold lowering, of another checkout and of this one, in turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks import same_arrays, sides
from benchmarks.ablate import expand
from benchmarks.coordinator import failure_line
from benchmarks.statistics import geometric_mean, quartiles
from benchmarks.workloads import WORKLOADS

HERE = Path(__file__).parent.parent
WORKER = """
import json, sys, time
import numpy as np, polyc
from benchmarks.models.table import MODELS, make_feed
from benchmarks.workloads import WORKLOADS
options = json.loads(sys.argv[1])

def prepare(name):
    if name.endswith(".onnx"):
        session, rng = polyc.onnx.load(name), np.random.default_rng(1)
        model = MODELS.get(name.rpartition("/")[2].split("-opset")[0])  # `benchmarks.models.export` names files so
        if model is not None:
            feed = make_feed(model, {"n": 1, **model.sizes})
        else:
            feed = {p.name: rng.standard_normal(p.shape, dtype=np.float32) for p in session.get_inputs()}
        return lambda: tuple(session.run(None, feed))
    workload = WORKLOADS[name]
    inputs = workload.inputs()
    if workload.notation == "einsum":
        operator = polyc.einsum_operator(workload.source, **{n: v for n, v in options.items() if n != "dynamic"})
        arrays, named = tuple(inputs.values()), {}
    else:
        operator, arrays, named = polyc.compile(workload.source, **options), (), inputs
    out = operator(*arrays, **named)
    try:
        operator(*arrays, **named, out=out)
    except polyc.PolycError:  # it adds to what `out` holds
        return lambda: operator(*arrays, **named)
    return lambda: operator(*arrays, **named, out=out)

def lower(name):
    workload = WORKLOADS[name]
    layouts = {n: (str(a.dtype), a.shape) for n, a in workload.inputs().items()}
    begin = time.process_time()
    if workload.notation == "einsum":
        polyc.einsum_operator(workload.source, target=options["target"]).lower(*layouts.values()).llvm_ir
    else:
        polyc.compile(workload.source, **options).lower(**layouts).llvm_ir
    return time.process_time() - begin

def compile_to(folder, name):
    workload = WORKLOADS[name]
    layouts = {n: (str(a.dtype), a.shape) for n, a in workload.inputs().items()}
    if workload.notation == "einsum":
        compiled = polyc.einsum_operator(workload.source, target=options["target"]).compiled(*layouts.values())
    else:
        compiled = polyc.compile(workload.source, **options).compiled(**layouts)
    with open(f"{folder}/{name}.o", "wb") as file:
        file.write(compiled.object_code())
    return compiled.c_header()

def answer(task, name, repetitions, threads, folder):
    global run
    if task == "lower":
        return lower(name)
    if task == "compile":
        return compile_to(folder, name)
    polyc.set_num_threads(threads)
    if task == "load":
        run = prepare(name)
        results = run()
        results = results if isinstance(results, tuple) else (results,)
        sums = [float(np.abs(np.nan_to_num(r.astype(np.complex128))).sum()) for r in results]
        begin = time.perf_counter()
        run()
        return [time.perf_counter() - begin, sums]
    time.sleep(0.004)
    run()
    times = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return sorted(times)[repetitions // 2]

for line in sys.stdin:
    try:
        print(json.dumps([answer(*json.loads(line)), None]), flush=True)
    except Exception as error:
        print(json.dumps([None, f"{type(error).__name__}: {error}"]), flush=True)
"""
SECONDS = 0.02
"""How long a side's turn takes, about."""


class Checkout:
    """A process that has polyc, and the workloads, of one checkout."""

    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        environment = os.environ | {"POLYC_CACHE": "0", "PYTHONPATH": str(path), "POLYC_TARGET": options["target"]}
        command = [sys.executable, "-P", "-c", WORKER, json.dumps(options)]
        self.process = subprocess.Popen(
            command, env=environment, cwd=path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ask(self, task: str, name: str, repetitions: int = 0, threads: int = 1, folder: str = "") -> Any:
        """What the worker answers.  Raises RuntimeError with its error."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([task, name, repetitions, threads, folder]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            raise RuntimeError(failure_line(self.process.stderr.read()))
        answer, error = json.loads(line)
        if error is not None:
            raise RuntimeError(error)
        return answer


def compare_code(pair: list[Checkout], name: str, rounds: int, threads: list[int]) -> tuple[dict[int, list[float]], bool]:
    """As `compare`, with the machine code of both in this process, on the same arrays."""
    with tempfile.TemporaryDirectory(prefix="polyc-against-") as folder:
        libraries = []
        for k, side in enumerate(pair):
            Path(folder, str(k)).mkdir()
            header = side.ask("compile", name, folder=f"{folder}/{k}")
            libraries.append((same_arrays.link(Path(folder, str(k), f"{name}.o")), header))
        inputs, found, agree = WORKLOADS[name].inputs(), {}, True
        for n in threads:
            found[n], is_same = same_arrays.compare(libraries, inputs, rounds, n, SECONDS)
            agree = agree and is_same
    return found, agree


def compare(pair: list[Checkout], name: str, rounds: int, threads: list[int]) -> tuple[dict[int, list[float]], bool]:
    """By number of threads the other checkout's time over ours, round by round; and whether results have the same sums."""
    with ThreadPoolExecutor(2) as pool:
        (seconds, theirs), (_, ours) = pool.map(lambda side: side.ask("load", name), pair)
    is_same = all(abs(a - b) <= 1e-3 * max(1.0, abs(a)) for a, b in zip(theirs, ours, strict=True))
    repetitions = max(2, min(100, int(SECONDS / seconds)))
    found: dict[int, list[float]] = {}
    for n in threads:
        for k in range(rounds):
            turn = {side: pair[side].ask("run", name, repetitions, n) for side in ((0, 1), (1, 0))[k % 2]}
            found.setdefault(n, []).append(turn[0] / turn[1])
    return found, is_same


@click.command("benchmarks against")
@click.argument("checkout", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("names", nargs=-1, metavar="[WORKLOAD]...")
@click.option("--threads", default="1,2", help="Numbers of threads, with commas.", show_default=True)
@click.option("--rounds", default=5, type=click.IntRange(min=1), show_default=True)
@click.option("--target", default="host", type=click.Choice(("host", "x86-64-v2", "x86-64-v3", "x86-64-v4")), show_default=True)
@click.option("--dynamic", is_flag=True, help="Kernels for any sizes.")
@click.option("--code", is_flag=True, help="Run the machine code of both in one process, on the same arrays.")
@click.option("--lower", is_flag=True, help="CPU time of lowering instead, with nothing in the cache.")
@click.option("--below", default=0.95, help="List ratios below this.", show_default=True)
def main(
    checkout: Path,
    names: tuple[str, ...],
    threads: str,
    rounds: int,
    target: str,
    dynamic: bool,
    code: bool,
    lower: bool,
    below: float,
) -> None:
    """The time of CHECKOUT's kernels over that of ours, for WORKLOADs, groups, and ONNX models by their files.

    Both are live processes that take turns; above 1 this checkout is faster.  Results are compared by their sums. Much depends
    on which pages of memory a process was given: --code compares the code alone (with OpenMP's threads).

    \b
    Examples:
      python -m benchmarks against ../older fusion --threads 1,2 --target x86-64-v3
      python -m benchmarks against ../older transpose --code --rounds 9 --threads 1
      python -m benchmarks against ../older contraction --lower
    """
    options = {"target": target} | ({"dynamic": True} if dynamic else {})
    models = [n for n in names if n.endswith(".onnx")]
    workloads = [] if models and len(models) == len(names) else expand(tuple(n for n in names if n not in models))
    selected = [n for n in workloads if not (dynamic and WORKLOADS[n].notation == "einsum")] + models
    counts = [int(n) for n in threads.split(",") if 0 < int(n) <= len(sides.cores())]
    pair = [Checkout(checkout.resolve(), options), Checkout(HERE, options)]
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    progress = Console(stderr=True)
    ratios: dict[int, dict[str, list[float]]] = {n: {} for n in counts}
    seconds, wrong = [0.0, 0.0], []
    for name in selected:
        progress.print(name, markup=False)
        try:
            if lower:
                for side in (0, 1):
                    seconds[side] += min(pair[side].ask("lower", name) for _ in range(rounds))
                continue
            found, is_same = (compare_code if code else compare)(pair, name, rounds, counts)
        except same_arrays.CannotCompare as reason:
            console.print(f"{name} is left out: {reason}", markup=False)
            continue
        except RuntimeError as error:
            console.print(f"{name}: {error}", markup=False)
            pair = [Checkout(checkout.resolve(), options), Checkout(HERE, options)]
            continue
        wrong += [] if is_same else [name]
        for n, own in found.items():
            ratios[n][name] = own
    if lower:
        console.print(f"lowering {len(selected)} workloads: {seconds[0]:.2f} s of CPU time there, {seconds[1]:.2f} here")
        return
    table = Table("threads", "workload", "theirs over ours", "quartiles")
    for n, by_name in ratios.items():
        for name, own in sorted(by_name.items(), key=lambda item: median(item[1])):
            if median(own) < below:
                q = quartiles(own)
                table.add_row(str(n), name, f"{q.median:.3f}", f"{q.lower:.3f} to {q.upper:.3f}")
    console.print(table)
    for n, by_name in ratios.items():
        if by_name:
            mean = geometric_mean(median(own) for own in by_name.values())
            console.print(f"{n} thread(s): geometric mean {mean:.3f} of {len(by_name)}")
    if wrong:
        console.print(f"results differ: {', '.join(wrong)}", style="red")
        sys.exit(1)
