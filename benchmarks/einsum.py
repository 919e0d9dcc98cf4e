"""``python -m benchmarks einsum``: `polyc.einsum` as a program calls it, against ``numpy.einsum(…, optimize=True)``.

Each side makes the same calls in a process of its own: `--calls` of each contraction, one contraction after the other, from an
empty cache on, so that choosing ways and compiling are part of the time.  NumPy's views are copied, as polyc's results are
arrays of their own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

ALLOWED, PRICE = 1.05, 0.2
"""The bar: so many times NumPy's time, and seconds for each contraction."""
LAST = 20
"""Calls at the end whose speed is compared by itself."""

Contraction = tuple[str, str, tuple[tuple[int, ...], ...]]

CONTRACTIONS: tuple[Contraction, ...] = (
    ("bhqk,bkhd->bqhd", "f4", ((8, 12, 128, 128), (8, 128, 12, 64))),
    ("bqhd,bkhd->bhqk", "f4", ((4, 128, 8, 64), (4, 128, 8, 64))),
    ("bhqd,bhkd->bhqk", "f8", ((2, 6, 200, 48), (2, 6, 150, 48))),
    ("zij,zjk->zik", "f4", ((64, 64, 64), (64, 64, 64))),
    ("zij,zjk->zik", "f8", ((500, 12, 12), (500, 12, 12))),
    ("zij,zj->zi", "f4", ((128, 100, 100), (128, 100))),
    ("ij,jk->ik", "f4", ((512, 512), (512, 512))),
    ("ij,jk->ik", "f4", ((8, 8), (8, 8))),
    ("ij,kj->ik", "f4", ((1000, 300), (700, 300))),
    ("ji,jk->ki", "f8", ((400, 300), (400, 200))),
    ("ij,j->i", "f8", ((2000, 1500), (1500,))),
    ("i,ij,j->", "f8", ((700,), (700, 600), (600,))),
    ("ij,jk->ik", "i4", ((200, 200), (200, 200))),
    ("zij,zjk->zik", "i8", ((16, 64, 64), (16, 64, 64))),
    ("ij,jk->ik", "i1", ((100, 120), (120, 90))),
    ("ij,jk->ik", "c8", ((200, 200), (200, 200))),
    ("zij,zkj->zik", "c16", ((16, 48, 48), (16, 40, 48))),
    ("ij,jk,kl->il", "f4", ((200, 300), (300, 100), (100, 400))),
    ("ij,jk,kl,lm->im", "f8", ((50, 60), (60, 70), (70, 80), (80, 90))),
    ("ij,jk,kl->il", "i4", ((40, 50), (50, 60), (60, 30))),
    ("ea,fb,abcd,gc,hd->efgh", "f4", ((10, 10), (10, 10), (10, 10, 10, 10), (10, 10), (10, 10))),
    ("abij,bcjk->acik", "f4", ((16, 16, 16, 16), (16, 16, 16, 16))),
    ("ab,bc,ca->", "f8", ((100, 100), (100, 100), (100, 100))),
    ("ijk,jlm,kmn->iln", "f8", ((12, 14, 16), (14, 10, 13), (16, 13, 11))),
    ("zi,zj,ijk->zk", "f4", ((64, 32), (64, 32), (32, 32, 32))),
    ("ir,jr,kr->ijk", "f4", ((60, 20), (50, 20), (40, 20))),
    ("...ij,...jk->...ik", "f4", ((1, 8, 64, 64), (12, 1, 64, 64))),
    ("nchw,oc->nohw", "f4", ((4, 64, 28, 28), (64, 64))),
    ("nchw,c->nchw", "f4", ((8, 64, 32, 32), (64,))),
    ("bcij,cij->bc", "f4", ((16, 32, 28, 28), (32, 28, 28))),
    ("i,j->ij", "f4", ((1000,), (1500,))),
    ("zi,zj->zij", "f8", ((64, 100), (64, 120))),
    ("ij,ij->i", "f4", ((2000, 500), (2000, 500))),
    ("ij,ij->", "f8", ((1000, 1000), (1000, 1000))),
    ("ijkl,jl->ik", "f8", ((20, 30, 20, 30), (30, 30))),
    ("iij,jk->ik", "f4", ((60, 60, 80), (80, 90))),
    ("ijj->i", "f4", ((200, 100, 100),)),
    ("ii->i", "f4", ((1000, 1000),)),
    ("ijk->kij", "f8", ((100, 90, 80),)),
    ("ijk->j", "f4", ((100, 200, 100),)),
)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of the calls of one contraction, and of the last of them."""

    total: float
    last: float


def make_arrays(contraction: Contraction) -> list[np.ndarray]:
    _, kind, shapes = contraction
    rng = np.random.default_rng(1)
    if np.dtype(kind).kind == "i":
        return [rng.integers(-3, 4, shape).astype(kind) for shape in shapes]
    real = [rng.standard_normal(shape) for shape in shapes]
    return [(a + 1j * a[::-1] if np.dtype(kind).kind == "c" else a).astype(kind) for a in real]


def time_calls(side: str, numbers: Sequence[int], calls: int) -> list[Times]:
    """In a process of its own: the times of `calls` calls of each contraction; results of polyc are compared with NumPy's."""
    import polyc

    found = []
    wake = np.ones((400, 400))
    np.matmul(wake, wake)  # the threads of its BLAS
    for n in numbers:
        subscripts, arrays = CONTRACTIONS[n][0], make_arrays(CONTRACTIONS[n])
        seconds = []
        for _ in range(calls):
            result = np.empty(0)  # whoever keeps no result has its memory for the next
            start = time.perf_counter()
            if side == "polyc":
                result = polyc.einsum(subscripts, *arrays)
            else:
                result = np.einsum(subscripts, *arrays, optimize=True)
                if result.base is not None:
                    result = np.array(result, order="C") if np.may_share_memory(result, arrays[0]) else result
            seconds.append(time.perf_counter() - start)
        if side == "polyc":
            exact = np.einsum(subscripts, *(a.astype("c16" if a.dtype.kind == "c" else "f8") for a in arrays), optimize=True)
            error = np.max(np.abs(result - exact), initial=0) / max(1e-30, float(np.max(np.abs(exact), initial=0)))
            if CONTRACTIONS[n][1] != "i1" and error > 1e-4:  # bytes wrap around
                raise ArithmeticError(f"{subscripts}: the error is {error:.2g} of the largest element")
        found.append(Times(sum(seconds), sum(sorted(seconds[-LAST:])[: LAST // 2 + 1])))
    return found


def run_side(side: str, numbers: Sequence[int], calls: int) -> list[Times]:
    """`time_calls` in a new process, with an empty disk cache."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "POLYC_CACHE_DIR": cache}
        command = [sys.executable, "-m", "benchmarks.einsum", side, ",".join(map(str, numbers)), str(calls)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{side}: {done.stderr.strip()[-2000:]}")
    return [Times(*pair) for pair in json.loads(done.stdout)]


@click.command()
@click.option("--calls", default=60, type=click.IntRange(min=LAST), help="Calls of each contraction.", show_default=True)
@click.option("--rounds", default=3, type=click.IntRange(min=1), help="Processes of each side, in turn.", show_default=True)
@click.option("--apart", is_flag=True, help="Each contraction in a process of its own, instead of all in one.")
@click.option("--only", default="", help="Only contractions whose subscripts contain this.")
def main(calls: int, rounds: int, apart: bool, only: str) -> None:
    """Compare `polyc.einsum` with NumPy's, compilation included."""
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    chosen = [n for n, (subscripts, _, _) in enumerate(CONTRACTIONS) if only in subscripts]
    groups = [[n] for n in chosen] if apart else [chosen]
    taken: dict[tuple[str, int], list[Times]] = {}
    for _ in range(rounds):
        for group in groups:
            for side in ("numpy", "polyc"):
                for n, times in zip(group, run_side(side, group, calls), strict=True):
                    taken.setdefault((side, n), []).append(times)
    table = Table("contraction", "type", "numpy ms", "polyc ms", "of what is allowed", f"speed, last {LAST}")
    ratios = []
    for n in chosen:
        ours, theirs = taken["polyc", n], taken["numpy", n]
        total, bar = (statistics.median(t.total for t in side) for side in (ours, theirs))
        speed = statistics.median(b.last / a.last for a, b in zip(ours, theirs, strict=True))
        ratios.append((total / (ALLOWED * bar + PRICE), speed, total / bar))
        row: list[Any] = [f"{1e3 * bar:.1f}", f"{1e3 * total:.1f}", f"{ratios[-1][0]:.2f}", f"{speed:.2f}"]
        table.add_row(CONTRACTIONS[n][0], CONTRACTIONS[n][1], *row)
    console.print(table)
    mean = statistics.geometric_mean(1 / r[2] for r in ratios)
    console.print(
        f"{sum(r[0] > 1 for r in ratios)} of {len(chosen)} beyond {ALLOWED} of NumPy's time and {PRICE} s; "
        f"{sum(r[1] < 1 for r in ratios)} slower in the last {LAST} calls, least {min(r[1] for r in ratios):.2f}; "
        f"geometric mean of all calls {mean:.2f} times NumPy's speed"
    )


if __name__ == "__main__":
    wanted = [int(n) for n in sys.argv[2].split(",")]
    print(json.dumps([(t.total, t.last) for t in time_calls(sys.argv[1], wanted, int(sys.argv[3]))]))
