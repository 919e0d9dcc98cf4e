"""``python -m benchmarks process``: what a new process pays for one operator that the cache has, and for its second call.

Each process imports NumPy, makes an input, then imports polyc, loads the operator from the cache and calls it twice.  The cache
is filled by a process beforehand.  Times are wall-clock medians over `--rounds` processes, one after the other.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile

import click
from rich.console import Console
from rich.table import Table

FIRST_MS, SECOND_MS = 40.0, 0.2
"""The bar: milliseconds from NumPy's import to the first result, and for the call after it."""

HEAD = """
import json, time
import numpy as np
x = np.linspace(-1.0, 1.0, 4096, dtype=np.float32).reshape(64, 64)
start = time.perf_counter()
import polyc
"""
TAIL = """
y = f(x)
first = time.perf_counter()
z = f(x)
second = time.perf_counter()
assert np.allclose(y, EXPECTED, rtol=1e-5) and np.array_equal(y, z)
print(json.dumps([1e3 * (first - start), 1e3 * (second - first)]))
"""
OPERATORS = {
    "TC text": (
        """f = polyc.compile("def f(float(M,K) X) -> (O) { O(m) +=! X(m,k) * X(m,k) }")""",
        "(x * x).sum(1)",
    ),
    "@polyc.op": (
        """
@polyc.op
def f(X):
    O[m] += X[m, k] * X[m, k]
    return O
""",
        "(x * x).sum(1)",
    ),
    "einsum_operator": ("""e = polyc.einsum_operator("ij,jk->ik")\nf = lambda x: e(x, x)""", "x @ x"),
}


@click.command()
@click.option("--rounds", default=15, type=click.IntRange(min=1), help="Processes of each operator.", show_default=True)
def main(rounds: int) -> None:
    """Time from NumPy's import to the first result of a cached operator, in new processes."""
    table = Table("operator", "first result, ms", "second call, ms", "within")
    with tempfile.TemporaryDirectory(prefix="polyc-bench-") as folder:
        environment = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
        environment["POLYC_CACHE_DIR"] = os.path.join(folder, "cache")
        for name, (body, expected) in OPERATORS.items():
            script = os.path.join(folder, "first_call.py")
            with open(script, "w", encoding="utf-8") as file:
                file.write(HEAD + body + TAIL.replace("EXPECTED", expected))
            results = []
            for _ in range(rounds + 2):
                done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise click.ClickException(f"{name}: {done.stderr.strip().splitlines()[-1]}")
                results.append(json.loads(done.stdout))
            first, second = (statistics.median(times) for times in zip(*results[2:], strict=True))
            within = "yes" if first <= FIRST_MS and second <= SECOND_MS else "no"
            table.add_row(name, f"{first:.1f}", f"{second:.3f}", within)
    Console(highlight=False).print(table)
    Console(highlight=False).print(f"The bar is {FIRST_MS:.0f} ms for the first result and {SECOND_MS} ms for the second call.")
