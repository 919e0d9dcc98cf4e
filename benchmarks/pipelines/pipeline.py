"""What a pipeline over pictures is here: its operator, its inputs, and the same in NumPy, Halide, numba and OpenCV."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.engines import HALIDE
from benchmarks.workload import Arrays, Peer, Results, ShapesOnly, Workload, call_loops, nbytes, signature_of

FULL, SMALL = (1536, 2560), (61, 43)
"""Rows and columns of the pictures that are measured, and of those that are tried."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline.

    `source` is ``.tc`` text, or a function to be decorated where `notation` says so; ``make_inputs(rng, rows, columns)`` makes
    inputs in the operator's order, and ``result(rows, columns)`` is the shape of its result, of type `result_type`.
    ``numpy(**inputs)`` computes it.  ``halide(hl, is_scheduled, **buffers)`` is the last function of a pipeline, on which a
    schedule by hand is laid where `is_scheduled`; `has_schedule` says whether there is one.  `numba` is the path of a function
    for `call_loops`, and ``opencv(cv2, out, **inputs)`` a peer.  `tolerance` and `entry` are those of a `Workload`; `full` and
    `small` are rows and columns.
    """

    name: str
    what: str
    source: Any
    numpy: Callable[..., Results]
    make_inputs: Callable[..., Arrays]
    result: Callable[[int, int], tuple[int, ...]] = lambda h, w: (3, h, w)
    result_type: str = "float32"
    halide: Callable[..., Any] | None = None
    has_schedule: bool = True
    numba: str | None = None
    opencv: Peer | None = None
    tolerance: float = 2e-5
    notation: Literal["tc", "python"] = "tc"
    entry: str | None = None
    full: tuple[int, int] = FULL
    small: tuple[int, int] = SMALL

    def make_workload(self, name: str, size: tuple[int, int]) -> Workload:
        """The pipeline over pictures of `size`, rows and columns; it says nothing about flops."""
        shape = self.result(*size)

        def in_halide(is_scheduled: bool) -> Peer:
            def peer(halide: Any, out: Any, **buffers: Any) -> Any:
                assert self.halide is not None
                return self.halide(halide, is_scheduled, **buffers), shape

            return peer

        peers: dict[str, Peer] = {"numpy": lambda np, out, **inputs: self.numpy(**inputs)}
        if self.numba is not None:
            results = lambda inputs: [np.empty(shape, self.result_type)]  # noqa: E731
            peers["numba"] = call_loops(self.numba, {"rows": size[0], "columns": size[1]}, results)
        if self.opencv is not None:
            peers["opencv"] = self.opencv
        if self.halide is not None:
            peers |= {side: in_halide(False) for side in HALIDE if side != "halide"}
            if self.has_schedule and size == self.full:  # tiles need pictures that are larger than they are
                peers["halide"] = in_halide(True)

        def make_inputs(rng: Any) -> Arrays:
            return self.make_inputs(rng, *size)

        given = signature_of(make_inputs, "float32").values()
        return Workload(
            name,
            f"{self.what}, {size[0]}×{size[1]}",
            self.notation,
            self.source,
            make_inputs,
            self.numpy,
            0.0,
            float(sum(t.itemsize * int(np.prod(s)) for t, s in given)),
            nbytes(shape, itemsize=np.dtype(self.result_type).itemsize),
            peers,
            self.tolerance,
            entry=self.entry,
        )


def text(name: str) -> str:
    """The ``.tc`` text of a pipeline."""
    return (Path(__file__).parent / f"{name}.tc").read_text()


def uniform(rng: Any, *shape: int, low: float = 0, high: float = 1) -> np.ndarray:
    """Float32 from `low` to `high` in 256 steps: multiples of small numbers are exact in single precision."""
    if isinstance(rng, ShapesOnly):
        return rng.random(shape, np.float32)
    steps = rng.integers(0, 257, shape, dtype=np.uint16)
    return np.float32((high - low) / 256) * steps.astype(np.float32) + np.float32(low)


def whole(rng: Any, end: int, dtype: str, *shape: int, begin: int = 0) -> np.ndarray:
    """Whole numbers from `begin` on and below `end`."""
    numbers: np.ndarray = rng.integers(begin, end, shape, dtype=np.dtype(dtype))
    return numbers


def bordered(a: np.ndarray, n: int) -> np.ndarray:
    """With `n` rows and columns more at each side, which repeat the first and last ones."""
    return np.pad(a, [(0, 0)] * (a.ndim - 2) + [(n, n), (n, n)], "edge")
