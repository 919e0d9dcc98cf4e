"""Arrays in files as dask arrays, and results written block by block."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyc.api.dask_arrays import load_dask, make_lock
from polyc.diagnostics import ArgumentError, Diagnostic, UnsupportedError

CHUNKS_IN_MEMORY = 16
"""How many chunks of an array that has none of its own are as large as the memory that is allowed."""

_HDF5 = re.compile(r"(.*\.(?:h5|hdf5|nc))(?::(.*))?", re.DOTALL)


def is_zarr(path: str) -> bool:
    return path.rstrip("/").endswith(".zarr")


def is_hdf5(path: str) -> bool:
    """Whether it is ``FILE.h5`` or ``FILE.h5:/NAME`` (also ``.hdf5``, and ``.nc`` for netCDF 4)."""
    return _HDF5.fullmatch(path) is not None


def open_array(path: str, memory: int) -> Any:
    """A Zarr array in its own chunks, an array of an HDF5 file in chunks of about a fraction of `memory` bytes that consist of
    its own, or a ``.npy`` file, mapped, in chunks of such a fraction; one without dimensions is read.
    Bytes are put in the order of this machine.

    Raises what NumPy, Zarr or h5py raise."""
    array = _open_file(path, memory)
    return array.astype(array.dtype.newbyteorder("="))


def _open_file(path: str, memory: int) -> Any:
    da = load_dask()
    if is_zarr(path):
        return da.from_zarr(path)
    array: Any = _open_hdf5(path) if is_hdf5(path) else np.load(path, mmap_mode="r", allow_pickle=False)
    if not hasattr(array, "shape"):
        raise ArgumentError(Diagnostic("argument-file", f"{path} holds several arrays", None, "give one .npy file per input"))
    if array.ndim == 0:
        return np.array(array[()])
    limit = max(array.dtype.itemsize, memory // CHUNKS_IN_MEMORY)
    own = getattr(array, "chunks", None)
    auto = -1 if 0 in array.shape else "auto"
    chunks = da.core.normalize_chunks(auto, array.shape, limit=limit, dtype=array.dtype, previous_chunks=own)
    return da.from_array(array, chunks=chunks, lock=make_lock("polyc-hdf5") if is_hdf5(path) else False)


def store_results(results: Mapping[str, Any], output: str, n_workers: int) -> list[str]:
    """Compute dask arrays on `n_workers` threads into ``output/NAME.npy``, or where `output` ends in ``.zarr`` into that: one
    result as the array itself, several as arrays by name.  Into an HDF5 file as well: ``FILE.h5:/NAME`` is one result or the
    group of several, and ``FILE.h5`` takes each by its name.  The paths."""
    da, path = load_dask(), Path(output)
    if (is_zarr(output) or is_hdf5(output)) and (own := [n for n, a in results.items() if a.dtype.kind == "V"]):
        message = f"{output} cannot hold {results[own[0]].dtype} ({', '.join(own)})"
        raise ArgumentError(
            Diagnostic("argument-file", message, None, "return float(…) of it, or give a directory of .npy files")
        )
    workers: dict[str, Any] = {"scheduler": "threads", "num_workers": n_workers}
    if is_zarr(output):
        paths = [path if len(results) == 1 else path / name for name in results]
        pairs = zip(map(_regular, results.values()), paths, strict=True)
        da.compute(*(a.to_zarr(str(p), compute=False, overwrite=True) for a, p in pairs), **workers)
        return [str(p) for p in paths]
    if is_hdf5(output):
        return _store_hdf5(results, output, workers)
    path.mkdir(parents=True, exist_ok=True)
    paths = [path / f"{name}.npy" for name in results]
    files = [np.lib.format.open_memmap(p, "w+", a.dtype, a.shape) for p, a in zip(paths, results.values(), strict=True)]
    da.store(list(results.values()), files, lock=False, **workers)
    for file in files:
        file.flush()
    return [str(p) for p in paths]


def _regular(array: Any) -> Any:
    """The array in chunks that all have one shape but for those at the ends, as files have them."""
    return array.rechunk(tuple(max(1, *c) for c in array.chunks))


def _load_h5py() -> Any:
    try:
        import h5py
    except ImportError as problem:
        message = "HDF5 files need h5py, which is not installed"
        raise UnsupportedError(Diagnostic("unsupported-package", message, None, "pip install h5py")) from problem
    return h5py


def _split(path: str) -> tuple[str, str | None]:
    """The file and the name in it, if that is given."""
    found = _HDF5.fullmatch(path)
    assert found is not None
    return found[1], found[2]


def _open_hdf5(path: str) -> Any:
    h5py, (file_path, name) = _load_h5py(), _split(path)
    if not os.path.exists(file_path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file_path)
    file, names = h5py.File(file_path, "r"), []
    file.visititems(lambda own, node: names.append(f"/{own}") if isinstance(node, h5py.Dataset) else None)
    if name is None and len(names) == 1:
        return file[names[0]]
    if name is not None and isinstance(file.get(name), h5py.Dataset):
        return file[name]
    message = f"{file_path} has no array {name}" if name is not None else f"{file_path} does not hold one array"
    raise ArgumentError(Diagnostic("argument-file", message, None, _say_which(file_path, names)))


def _say_which(path: str, names: Sequence[str]) -> str:
    return f"name one: {', '.join(f'{path}:{n}' for n in names)}" if names else "it holds none"


def _store_hdf5(results: Mapping[str, Any], output: str, workers: Mapping[str, Any]) -> list[str]:
    h5py, (file_path, name) = _load_h5py(), _split(output)
    place = "" if name is None else name.strip("/")
    if {".", ".."} & set(place.split("/")):
        raise ArgumentError(Diagnostic("argument-file", f"{name} is no name of an array", None, "give one without dots"))
    names = [place] if place and len(results) == 1 else [f"{place}/{result}".strip("/") for result in results]
    try:
        file = h5py.File(file_path, "a")
    except OSError as problem:
        message = f"{file_path} cannot be written: {problem}"
        help = "give a file that is not an input, and not open elsewhere"
        raise ArgumentError(Diagnostic("argument-file", message, None, help)) from problem
    with file:
        arrays, datasets = [_regular(a) for a in results.values()], []
        for own, array in zip(names, arrays, strict=True):
            if isinstance(file.get(own), h5py.Dataset):
                del file[own]
            chunks = tuple(max(c) for c in array.chunks) if array.ndim and 0 not in array.shape else None
            try:
                datasets.append(file.create_dataset(own, array.shape, array.dtype, chunks=chunks))
            except (KeyError, TypeError, ValueError) as problem:  # a group of that name, or an array as a part of the path
                message = f"{file_path} cannot hold an array {own}: {problem}"
                raise ArgumentError(Diagnostic("argument-file", message, None, "give another name")) from problem
        load_dask().store(arrays, datasets, lock=make_lock("polyc-hdf5"), **workers)
    return [f"{file_path}:/{own}" for own in names]
