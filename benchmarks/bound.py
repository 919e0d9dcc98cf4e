"""``python -m benchmarks bound``: calls with bound weights (`Operator.bind`) beside calls that are given them, in one process.

Both take turns, round by round; the ratio is that of the least times.  `POLYC_TARGET` chooses the machine model.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import polyc

LEAST = 0.97
"""The bar: bound calls have at least so much of the speed of the others."""
ROUND = 2e-3
"""Seconds that the calls of a round take at least."""

LAYER = """def layer(float(M,K) X, float({w}) W, float(N) b) -> (Y) {{
  H(m,n) +=! X(m,k) * W({i})
  Y(m,n) = max(H(m,n) + b(n), 0.0) }}"""
TEXTS = {
    "layer": LAYER.format(w="K,N", i="k,n"),
    "layer, W transposed": LAYER.format(w="N,K", i="n,k"),
    "product": "def product(float(M,K) X, float(K,N) W) -> (Y) { Y(m,n) +=! X(m,k) * W(k,n) }",
    "batch": "def batch(float(B,M,K) X, float(K,N) W) -> (Y) { Y(b,m,n) +=! X(b,m,k) * W(k,n) }",
    "conv": "def conv(float(B,C,H,Q) X, float(O,C,R,S) W) -> (Y) { Y(b,o,h,q) +=! X(b,c,h+r,q+s) * W(o,c,r,s) }",
    "conv, channels last": "def nhwc(float(B,H,Q,C) X, float(R,S,C,O) W) -> (Y) { Y(b,h,q,o) +=! X(b,h+r,q+s,c) * W(r,s,c,o) }",
}
CASES: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = (
    ("layer", (512, 1024), (1024, 1024)),
    ("layer", (64, 1024), (1024, 1024)),
    ("layer", (512, 1024), (1024, 1000)),
    ("layer", (128, 3072), (3072, 768)),
    ("layer", (1, 1024), (1024, 1024)),
    ("layer", (4, 512), (512, 2000)),
    ("layer", (33, 100), (100, 77)),
    ("layer", (2000, 64), (64, 64)),
    ("layer", (100, 1000), (1000, 10)),
    ("layer", (300, 500), (500, 333)),
    ("layer, W transposed", (512, 1024), (1024, 1024)),
    ("layer, W transposed", (256, 768), (3072, 768)),
    ("layer, W transposed", (8, 768), (768, 768)),
    ("layer, W transposed", (512, 512), (40, 512)),
    ("layer, W transposed", (100, 1000), (1000, 1000)),
    ("product", (512, 1024), (1024, 1024)),
    ("product", (1000, 300), (300, 700)),
    ("product", (200, 64), (64, 1001)),
    ("product", (384, 384), (384, 384)),
    ("batch", (4, 128, 256), (256, 500)),
    ("batch", (8, 49, 512), (512, 512)),
    ("conv", (1, 64, 58, 58), (64, 64, 3, 3)),
    ("conv", (4, 32, 30, 30), (64, 32, 3, 3)),
    ("conv", (1, 128, 28, 28), (256, 128, 1, 1)),
    ("conv", (1, 3, 226, 226), (32, 3, 3, 3)),
    ("conv", (2, 40, 16, 16), (72, 40, 3, 3)),
    ("conv, channels last", (1, 58, 58, 64), (3, 3, 64, 64)),
    ("conv, channels last", (1, 28, 28, 128), (1, 1, 128, 250)),
    ("conv, channels last", (2, 16, 16, 40), (3, 3, 40, 72)),
    ("conv, channels last", (1, 14, 14, 256), (1, 1, 256, 1000)),
)


def least_times(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """Seconds of each call, which take turns."""
    repeats, best = [], [float("inf")] * len(calls)
    for call in calls:
        call()
        start = time.perf_counter()
        call()
        repeats.append(max(1, int(ROUND / max(time.perf_counter() - start, 1e-7))))
    for _ in range(rounds):
        for n, call in enumerate(calls):
            start = time.perf_counter()
            for _ in range(repeats[n]):
                call()
            best[n] = min(best[n], (time.perf_counter() - start) / repeats[n])
    return best


@click.command()
@click.option("--threads", default="1,2", help="Numbers of threads.", show_default=True)
@click.option("--rounds", default=15, type=click.IntRange(min=1), show_default=True)
@click.option("--only", default="", help="Only cases whose name contains this.")
def main(threads: str, rounds: int, only: str) -> None:
    """Compare bound with unbound weights, in thirty products and convolutions."""
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    numbers = [int(n) for n in threads.split(",")]
    table = Table(
        "operator", "input", "weights", *(f"bound, {n} thread(s), ms" for n in numbers), *("of unbound speed",) * len(numbers)
    )
    rng = np.random.default_rng(0)
    ratios = []
    for name, shape, weights in (c for c in CASES if only in c[0]):
        operator = polyc.compile(TEXTS[name])
        x, w = (rng.standard_normal(s).astype(np.float32) for s in (shape, weights))
        n_outputs = weights[0] if "transposed" in name else weights[-1]
        rest = (rng.standard_normal(n_outputs).astype(np.float32),) if "layer" in name else ()
        bound = operator.bind(W=w)
        np.testing.assert_allclose(bound(x, *rest), operator(x, w, *rest), rtol=1e-3, atol=1e-2)
        times, own = [], []
        for n in numbers:
            polyc.set_num_threads(n)
            calls: list[Callable[[], object]] = [lambda: operator(x, w, *rest), lambda: bound(x, *rest)]  # noqa: B023
            unbound_time, bound_time = least_times(calls, rounds)
            times.append(f"{1e3 * bound_time:.3f}")
            own.append(unbound_time / bound_time)
        ratios += own
        table.add_row(name, "x".join(map(str, shape)), "x".join(map(str, weights)), *times, *(f"{r:.2f}" for r in own))
    console.print(table)
    console.print(f"{sum(r < LEAST for r in ratios)} of {len(ratios)} below {LEAST}, least {min(ratios):.2f}")
