"""Arrays in files as dask arrays, and results written block by block."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from polyc.api.dask_arrays import load_dask
from polyc.diagnostics import ArgumentError, Diagnostic

CHUNKS_IN_MEMORY = 16
"""How many chunks of an array that has none of its own are as large as the memory that is allowed."""


def is_zarr(path: str) -> bool:
    return path.rstrip("/").endswith(".zarr")


def open_array(path: str, memory: int) -> Any:
    """A Zarr array in its own chunks, or a ``.npy`` file, mapped, in chunks of a fraction of `memory` bytes; one without
    dimensions is read.  Raises what NumPy or Zarr raise."""
    da = load_dask()
    if is_zarr(path):
        return da.from_zarr(path)
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ArgumentError(Diagnostic("argument-file", f"{path} holds several arrays", None, "give one .npy file per input"))
    if array.ndim == 0:
        return np.array(array)
    limit = max(array.itemsize, memory // CHUNKS_IN_MEMORY)
    return da.from_array(array, chunks=da.core.normalize_chunks("auto", array.shape, limit=limit, dtype=array.dtype))


def store_results(results: Mapping[str, Any], output: str, n_workers: int) -> list[str]:
    """Compute dask arrays on `n_workers` threads into ``output/NAME.npy``, or where `output` ends in ``.zarr`` into that: one
    result as the array itself, several as arrays by name.  The paths."""
    da, path = load_dask(), Path(output)
    workers: dict[str, Any] = {"scheduler": "threads", "num_workers": n_workers}
    if is_zarr(output):
        paths = [path if len(results) == 1 else path / name for name in results]
        regular = [a.rechunk(tuple(max(c) for c in a.chunks)) for a in results.values()]  # as Zarr has it
        pairs = zip(regular, paths, strict=True)
        da.compute(*(a.to_zarr(str(p), compute=False, overwrite=True) for a, p in pairs), **workers)
        return [str(p) for p in paths]
    path.mkdir(parents=True, exist_ok=True)
    paths = [path / f"{name}.npy" for name in results]
    files = [np.lib.format.open_memmap(p, "w+", a.dtype, a.shape) for p, a in zip(paths, results.values(), strict=True)]
    da.store(list(results.values()), files, lock=False, **workers)
    for file in files:
        file.flush()
    return [str(p) for p in paths]
