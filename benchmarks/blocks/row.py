"""What a row of the board of blocks is: an operator of polyc, what one would write with dask, and data made in chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PERIOD = 65521
"""Numbers that are drawn for a chunk, which they then fill again and again: making data costs about as much as copying it."""

Sizes = Mapping[str, int]
Inputs = dict[str, Any]
"""Dask arrays; NumPy arrays where something is small and in no chunks, such as weights."""
Chunk = tuple[int, ...]
"""Extents of a chunk along each dimension."""
Call = Callable[[Any, Inputs, Sizes], Any]
"""Calls an operator with the inputs; the lazy result."""
Peer = Callable[[Inputs, Sizes], Any]
"""The lazy result, without polyc."""


@dataclass(frozen=True, slots=True)
class Noise:
    """An input in chunks: float32 in [0, 1), multiples of ``2 ** -bits``, from a seed.

    With few bits sums and comparisons are exact, so that the nearest point is the same one whatever the order of sums."""

    shape: tuple[int, ...]
    chunk: Chunk
    bits: int = 20
    in_zarr: bool = False
    """Whether it lies in a Zarr store beforehand, or is made where it is needed."""

    def make(self, name: str) -> Any:
        """The dask array; `name` is the seed."""
        import dask.array as da

        chunks = da.core.normalize_chunks(self.chunk, self.shape)
        noise = {"seed": list(name.encode()), "bits": self.bits, "dtype": np.float32}
        return da.map_blocks(fill_chunk, chunks=chunks, meta=np.empty((0,) * len(self.shape), np.float32), **noise)


def fill_chunk(seed: list[int], bits: int, block_info: Any = None) -> np.ndarray:
    """One chunk of noise; `block_info` is dask's."""
    chunk = block_info[None]
    rng = np.random.default_rng([*seed, *chunk["chunk-location"]])
    drawn = rng.integers(0, 1 << bits, PERIOD).astype(np.float32) * np.float32(0.5**bits)
    return np.resize(drawn, chunk["chunk-shape"])


def call_blocks(operator: Any, inputs: Inputs, sizes: Sizes) -> Any:
    """One call with all inputs."""
    return operator.blocks(*inputs.values())


@dataclass(frozen=True, slots=True)
class Row:
    """One computation.

    `make_inputs` says for each input of the operator, in order, how it is made: `Noise`, or the NumPy array or number itself.
    `peers` are by the package that they need beside dask.array, ``dask`` where that is none; the first one computes in float64
    what all results are compared with.  Where `stored` says how large the chunks of the result are, it goes to a Zarr store;
    elsewhere it is small, and computed."""

    name: str
    what: str
    sizes: Mapping[str, Sizes]
    """``small`` and ``full``, which two cores compute in seconds; ``large`` where that is another one."""
    source: str
    """In polyc's notation, or subscripts of einsum."""
    make_inputs: Callable[[Sizes], dict[str, Any]]
    peers: Mapping[str, Peer]
    stored: Callable[[Sizes], Chunk] | None = None
    tolerance: float = 2e-5
    call: Call = call_blocks

    def make_operator(self) -> Any:
        """The `polyc.Operator`."""
        import polyc

        return polyc.compile(self.source) if self.source.lstrip().startswith("def") else polyc.einsum_operator(self.source)

    def find_sizes(self, size: str) -> Sizes:
        """Those named `size`; of ``large`` the full ones where there are none."""
        return self.sizes["full"] if size == "large" and size not in self.sizes else self.sizes[size]

    def open_inputs(self, size: str, folder: Path) -> Inputs:
        """The inputs, lazily; those that lie in Zarr stores are in `folder`, by name."""
        import dask.array as da

        def open_input(name: str, made: Any) -> Any:
            if not isinstance(made, Noise):
                return made
            return da.from_zarr(str(folder / f"{name}.zarr")) if made.in_zarr else made.make(name)

        return {n: open_input(n, made) for n, made in self.make_inputs(self.find_sizes(size)).items()}

    def write_inputs(self, size: str, folder: Path) -> None:
        """Write those that lie in Zarr stores."""
        import dask.array as da

        for name, made in self.make_inputs(self.find_sizes(size)).items():
            if isinstance(made, Noise) and made.in_zarr:
                target = create_store(folder / f"{name}.zarr", made.shape, made.chunk, np.dtype(np.float32))
                da.store(made.make(name), target, lock=False)


def create_store(path: Path, shape: tuple[int, ...], chunk: Chunk, dtype: np.dtype) -> Any:
    """A Zarr array in new files; uncompressed, since compressing costs all sides the same and more than what is measured."""
    import zarr

    fitting = tuple(max(1, min(c, n)) for c, n in zip(chunk, shape, strict=True))
    return zarr.create_array(str(path), shape=shape, chunks=fitting, dtype=dtype, compressors=None, overwrite=True)
