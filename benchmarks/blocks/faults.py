"""``python -m benchmarks blocks --faults``: clusters in which something goes wrong, and what the result is nevertheless.

Each scenario has a LocalCluster of two processes, and compares with whole arrays, bit by bit where nothing is added up."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.blocks.pictures import BLUR
from benchmarks.blocks.row import PERIOD, Noise, fill_chunk
from benchmarks.blocks.schedulers import read_memory

SLOW = 0.05
"""Seconds that a chunk takes where something is to happen in the middle."""
LIMIT = 420 << 20
"""Bytes of a worker that keeps to a limit; it has about 180 MiB before it computes anything."""
SIDE = 2048
"""Extent of a chunk of the array for that, in both directions."""


@contextlib.contextmanager
def start_cluster(folder: Path, limit: int = 0, **environments: dict[str, str]) -> Iterator[Any]:
    """A client of two workers, whose variables of the environment are given by ``first`` and ``second``."""
    from distributed import Client, Nanny, Scheduler, SpecCluster

    workers = {}
    for name in ("first", "second"):
        options = {"nthreads": 1, "memory_limit": limit, "local_directory": str(folder)}
        options |= {"host": "127.0.0.1", "env": environments.get(name, {}), "silence_logs": logging.ERROR}
        workers[name] = {"cls": Nanny, "options": options}
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "dashboard": False, "port": 0}}
    with SpecCluster(workers=workers, scheduler=scheduler, silence_logs=logging.CRITICAL) as cluster, Client(cluster) as client:
        client.wait_for_workers(2)
        yield client


def wait_in_chunk(chunk: np.ndarray) -> np.ndarray:
    time.sleep(SLOW)
    return chunk


def draw(extent: int) -> np.ndarray:
    return np.random.default_rng(0).random((extent, extent), np.float32)


def compute_both(change: Callable[[Any, Path], None], folder: Path, **environments: dict[str, str]) -> bool:
    """Whether a blur has the bits of the whole array's; `change` is called once some blocks are there."""
    import dask.array as da

    import polyc

    whole, blur = draw(400), polyc.compile(BLUR)
    with start_cluster(folder, **environments) as client:
        chunked = da.from_array(whole, chunks=50).map_blocks(wait_in_chunk, meta=whole[:0, :0])
        result = blur(chunked).persist()
        time.sleep(8 * SLOW)
        change(client, folder)
        return bool(np.array_equal(np.asarray(client.compute(result, sync=True)), blur(whole)))


def kill_worker(client: Any, _: Path) -> None:
    """End one of the two processes; its nanny starts another."""
    victim = next(iter(client.run(os.getpid).values()))
    os.kill(victim, signal.SIGKILL)


def spoil_cache(_: Any, folder: Path) -> None:
    for file in (folder / "kernels").rglob("*"):
        if file.is_file():
            file.write_bytes(b"spoiled" * 100)


def keep_to_limit(folder: Path) -> bool:
    """Whether blurred pictures of four times the memory of both workers are added up without one going beyond its limit."""
    import dask.array as da

    import polyc

    n = 4 * 2 * LIMIT // (4 * SIDE * SIDE)
    noise = Noise((n * SIDE, SIDE), (SIDE, SIDE))
    chunks = [{None: {"chunk-location": (k, 0), "chunk-shape": (PERIOD,)}} for k in range(n)]
    expected = float(np.mean([fill_chunk(list(b"X"), noise.bits, c).mean(dtype=np.float64) for c in chunks]))
    with start_cluster(folder, LIMIT) as client:
        blur = polyc.compile(BLUR)
        total = float(client.compute(da.mean(blur(noise.make("X")), dtype=np.float64), sync=True))
        most = max(client.run(read_memory, "VmHWM").values())
        print(f"  at most {most >> 20} MiB of {LIMIT >> 20} MiB, a mean of {total:.6f} for {expected:.6f}")
        return bool(most < LIMIT and abs(total - expected) < 1e-4)


def spoil_first(folder: Path) -> bool:
    """Whether workers compile again what is damaged on disk."""
    import dask.array as da

    import polyc

    whole, blur = draw(200), polyc.compile(BLUR)
    result = blur(da.from_array(whole, chunks=50))
    found = sum(1 for f in (folder / "kernels").rglob("*") if f.is_file())
    spoil_cache(None, folder)
    with start_cluster(folder) as client:
        return found > 0 and bool(np.array_equal(np.asarray(client.compute(result, sync=True)), blur(whole)))


def do_nothing(_: Any, __: Path) -> None:
    """Nothing goes wrong while tasks run."""


FAULTS: dict[str, Callable[[Path], bool]] = {
    "a worker is killed in the middle": lambda folder: compute_both(kill_worker, folder),
    "a worker has another instruction set": lambda folder: compute_both(
        do_nothing, folder, second={"POLYC_TARGET": "x86-64-v2"}
    ),
    "entries of the cache are damaged": spoil_first,
    "an array of four times the memory of the workers": keep_to_limit,
}


def run_faults(tell: Callable[[str], None], names: Collection[str] | None = None) -> bool:
    """Go through the scenarios, all of them where no names are given; whether all results were right."""
    right = []
    for name in FAULTS if names is None else names:
        with tempfile.TemporaryDirectory(prefix="polyc-faults-") as folder:
            start = time.perf_counter()
            with patch.dict(os.environ, POLYC_CACHE="1", POLYC_CACHE_DIR=f"{folder}/kernels"):
                right.append(FAULTS[name](Path(folder)))
            tell(f"{name}: {'right' if right[-1] else 'WRONG'} ({time.perf_counter() - start:.1f} s)")
    return all(right)
