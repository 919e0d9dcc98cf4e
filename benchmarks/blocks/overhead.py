"""``python -m benchmarks blocks --overhead``: what planning and tasks cost where there is next to nothing to compute.

CPU time of one thread (dask's synchronous scheduler), of polyc and of what dask has for the same, in turn.  `SIDE` squared
blocks of one element each leave nothing but overhead; a picture in as many chunks is planned alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.blocks.pictures import BLUR
from benchmarks.statistics import quartiles

SIDE = 100
"""Blocks along each of two dimensions."""
EXTENT = 200
"""Of the chunks of the picture."""
POINTWISE = "def increase(float(N, M) x) -> (y) { y(i, j) = x(i, j) + 1.0 }"
TOTAL = "def total(float(N, M) x) -> (s) { s(j) +=! x(i, j) }"


def plan_picture(operator: Any, side: int) -> Callable[[], Any]:
    """Makes the graph of a blur with halos."""
    import dask.array as da

    x = da.zeros((side * EXTENT, side * EXTENT), chunks=EXTENT, dtype=np.float32)
    return lambda: operator.blocks(x)


def overlap_picture(side: int) -> Callable[[], Any]:
    """The same in dask, with a function that is not called."""
    import dask.array as da

    x = da.zeros((side * EXTENT, side * EXTENT), chunks=EXTENT, dtype=np.float32)
    return lambda: x.map_overlap(increase, depth=2, boundary="nearest", meta=x._meta)


def increase(x: np.ndarray) -> np.ndarray:
    return x + np.float32(1.0)


def run_tasks(make: Callable[[Any], Any], side: int, is_there: bool) -> Callable[[], Any]:
    """Makes a graph with a task for each chunk of one element, and computes it; the chunks are zeros that a task makes, or
    there before."""
    import dask
    import dask.array as da

    x = da.zeros((side, side), chunks=1, dtype=np.float32)
    if is_there:
        x = x.persist(scheduler="synchronous")

    def run() -> Any:
        (made,) = dask.compute(make(x), scheduler="synchronous")
        return made

    return run


def time_both(first: Callable[[], Any], second: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Medians of the CPU seconds of two functions that are called in turn, after a first call of each."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for function, own in zip((first, second), seconds, strict=True):
            start = time.process_time()
            function()
            if number:
                own.append(time.process_time() - start)
    return quartiles(seconds[0]).median, quartiles(seconds[1]).median


def run_overhead(tell: Callable[[str], None], rounds: int = 3, side: int = SIDE) -> None:
    """Tell the seconds of planning, and the microseconds of a block."""
    import polyc

    n = side * side
    blur = polyc.compile(BLUR)
    plan = plan_picture(blur, side)
    start = time.process_time()
    plan()
    first = time.process_time() - start
    ours, theirs = time_both(plan, overlap_picture(side), rounds)
    tell(f"graph of a blur, {n} blocks: {ours:.2f} s (first {first:.2f} s), map_overlap {theirs:.2f} s")
    pointwise, total = polyc.compile(POINTWISE), polyc.compile(TOTAL)
    pairs: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
        "pointwise": (pointwise.blocks, lambda x: x.map_blocks(increase, meta=x._meta)),
        "sums": (total.blocks, lambda x: x.sum(axis=0)),
    }
    for name, (make, peer) in pairs.items():
        for is_there in (False, True):
            sides = run_tasks(make, side, is_there), run_tasks(peer, side, is_there)
            np.testing.assert_array_equal(sides[0](), sides[1]())
            ours, theirs = time_both(*sides, rounds)
            chunks = "chunks that are there" if is_there else "chunks that tasks make"
            tell(f"{name} of {chunks}: {1e6 * ours / n:.0f} µs a block, dask's own {1e6 * theirs / n:.0f} µs")
