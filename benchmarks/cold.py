"""What it costs to start: import, cold compile (fresh processes), and a warm call of a tiny kernel."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.coordinator import failure_line

RUNS = 5
FORWARD = "--forward"


def chain_of_statements(n: int = 100) -> str:
    """A def whose n statements each read the one before, every tenth a reduction that is broadcast again."""
    lines = [f"def chain(float(N, M) T0) -> (T{n}) {{"]
    for i in range(1, n + 1):
        if i % 10 == 0:
            lines += [f"  R{i}(n) +=! T{i - 1}(n, m)", f"  T{i}(n, m) = T{i - 1}(n, m) - R{i}(n)"]
        else:
            lines.append(f"  T{i}(n, m) = fmax(T{i - 1}(n, m) * {i % 7 + 1}.0, T{max(0, i - 3)}(n, m))")
    return "\n".join([*lines, "}"])


def wide_statements(n: int = 20, rank: int = 8) -> str:
    """A def of n statements over `rank` dimensions each, with shifted and permuted reads."""
    indices = [f"i{d}" for d in range(rank)]
    sizes = ", ".join(f"N{d}" for d in range(rank))
    lines = [f"def wide(float({sizes}) T0) -> (T{n}) {{"]
    for s in range(1, n + 1):
        turned = indices[s % rank :] + indices[: s % rank]
        read = ", ".join(turned if s % 4 == 0 else indices)
        lines.append(f"  T{s}({', '.join(indices)}) = T{s - 1}({read}) * 0.5 + 1.0")
    return "\n".join([*lines, "}"])


SYNTHETIC = {"(chain of 100 statements)": chain_of_statements, "(20 statements, 8 dimensions)": wide_statements}
"""Programs that exist to be compiled."""


def compile_once(name: str, is_forward: bool = False, with_passes: bool = False) -> dict[str, Any]:
    """CPU and wall seconds of making the workload's kernel, in this (fresh) process; importing polyc is counted apart.

    `is_forward`: of a gradient, what is differentiated.  `with_passes`: CPU seconds of each pass instead, which are verified
    one by one, so that all of it takes longer."""
    import numpy as np

    from benchmarks import sides
    from benchmarks.worker import find_workload

    if name in SYNTHETIC:
        text = SYNTHETIC[name]()
        arrays = {"T0": np.ones((64, 64) if "chain" in text else (4,) * 8, np.float32)}
    else:
        text, workload = "", find_workload(name)
        arrays = workload.inputs()
    if is_forward:
        workload = replace(workload, gradient=None)
        arrays = {n: a for n, a in arrays.items() if not n.startswith("d_")}
    import polyc
    from polyc import passes

    os.environ["POLYC_CACHE"] = "0"
    wall, cpu = time.perf_counter(), time.process_time()
    operator = polyc.compile(text) if text else sides.make_operator(workload)
    if with_passes:
        with passes.recording() as sessions:
            operator.specialize(*arrays.values())
        seconds = Counter[str]()
        for ran in (r for session in sessions for r in session.ran):
            seconds[ran.step.name] += ran.seconds
        return {"passes": seconds}
    operator.specialize(*arrays.values())
    return {"compile": time.process_time() - cpu, "compile_wall": time.perf_counter() - wall}


IMPORT = """
import json, time
wall, cpu = time.perf_counter(), time.process_time()
import polyc
print(json.dumps({"import": time.process_time() - cpu, "import_wall": time.perf_counter() - wall}))
"""
"""What a fresh interpreter runs to time the import, NumPy's included."""


def call_overhead() -> dict[str, float]:
    """Median seconds of a warm call on sixteen elements, with `out`: nearly all of it is not the kernel."""
    import numpy as np

    import polyc

    operator = polyc.compile("def add(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }")
    a, b, c = (np.ones(16, np.float32) for _ in range(3))
    times = []
    for _ in range(200):
        start = time.perf_counter()
        for _ in range(100):
            operator(a, b, out=c)
        times.append((time.perf_counter() - start) / 100)
    return {"call": median(times)}


@cache
def write_bytecode() -> None:
    """Byte code of polyc's modules beside them, as an installed package has: where it is not kept (PYTHONDONTWRITEBYTECODE),
    every new process translates all modules that it loads, which is not what a compilation costs."""
    compileall.compile_dir(Path(__file__).parent.parent / "polyc", quiet=2)


def in_fresh_process(*arguments: str) -> dict[str, Any]:
    """Run a new interpreter and read the JSON of its last line; raises RuntimeError with its error where it fails."""
    write_bytecode()
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        cwd=Path(__file__).parent.parent,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(failure_line(done.stderr))
    values: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return values


def measure_compile(names: list[str], runs: int = RUNS) -> dict[str, Any]:
    """Per workload the medians of so many fresh processes, large programs once, and the passes of one more; then the import and
    a warm call.

    Where something fails, the reason stands in place of the figures."""
    jobs = {name: (runs, ("-m", "benchmarks.cold", name)) for name in names}
    jobs |= {name: (1, ("-m", "benchmarks.cold", name)) for name in SYNTHETIC}
    jobs |= {"(import polyc)": (runs, ("-c", IMPORT)), "(warm call)": (1, ("-m", "benchmarks.cold", "--call"))}
    report: dict[str, Any] = {}
    for name, (times, arguments) in jobs.items():
        try:
            found = [in_fresh_process(*arguments) for _ in range(times)]
            report[name] = {key: median(r[key] for r in found) for key in found[0]}
            if name in names or name in SYNTHETIC:
                report[name] |= in_fresh_process(*arguments, "--passes")
        except RuntimeError as error:
            report[name] = {"failure": str(error)}
    return report


def measure_gradients(names: list[str], times: int = 1) -> dict[str, Any]:
    """Per workload that is a gradient, medians of fresh processes that compile it, and as ``forward`` what is differentiated.

    Where something fails, the reason stands in place of the figures."""
    report: dict[str, Any] = {}
    for name in names:
        try:
            forward, gradient = (
                [in_fresh_process("-m", "benchmarks.cold", name, *option) for _ in range(times)] for option in ((FORWARD,), ())
            )
            report[name] = {key: median(r[key] for r in gradient) for key in gradient[0]}
            report[name] |= {f"forward_{key}": median(r[key] for r in forward) for key in forward[0]}
        except RuntimeError as error:
            report[name] = {"failure": str(error)}
    return report


if __name__ == "__main__":
    if sys.argv[1] == "--call":
        found = call_overhead()
    else:
        found = compile_once(sys.argv[1], FORWARD in sys.argv, "--passes" in sys.argv)
    print(json.dumps(found))
