"""What a program of NPBench is here: its operator, its sizes, its inputs, and the same computation in NumPy and in numba."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.workload import Arrays, Peer, Results, Workload, as_tuple, call_loops

SIZES = ("tiny", "S", "M")
"""One for tests, and NPBench's own of these names."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program.

    `source` is ``.tc`` text, or a decorated function where `notation` says so.  ``$name`` in it is a size that the operator has
    as a constant; NumPy's and numba's functions take these `constants` behind the inputs.  `sizes` holds a value for each of
    `SIZES`.  ``make_inputs(rng, **sizes)`` makes inputs in the operator's order; ``numpy(**inputs, **constants)`` computes its
    results (an array, or a tuple) and leaves the inputs as they are.  `numba` is the path of the function in numba, which
    `benchmarks.workload.call_loops` calls.  `tolerance` and `dtype` are those of a `Workload`.
    """

    name: str
    what: str
    source: str
    sizes: Mapping[str, tuple[Any, Any, Any]]
    make_inputs: Callable[..., Arrays]
    numpy: Callable[..., Results]
    numba: str
    constants: tuple[str, ...] = ()
    tolerance: float = 1e-11
    dtype: Literal["float32", "float64"] = "float64"
    notation: Literal["tc", "python"] = "tc"

    def sizes_of(self, size: str) -> dict[str, Any]:
        """The program's sizes of one of `SIZES`."""
        return {name: values[SIZES.index(size)] for name, values in self.sizes.items()}

    def make_workload(self, size: str) -> Workload:
        """``npbench_<name>_<size>``, which says nothing about flops and bytes."""
        sizes = self.sizes_of(size)
        constants = {name: sizes[name] for name in self.constants}

        def compute(**inputs: Any) -> Results:
            return self.numpy(**inputs, **constants)

        def run_numpy(np: Any, out: Any, **inputs: Any) -> Results:
            return compute(**inputs)

        def make_results(inputs: Arrays) -> list[np.ndarray]:
            return [np.empty_like(r) for r in as_tuple(compute(**inputs))]

        peers: dict[str, Peer] = {"numpy": run_numpy, "numba": call_loops(self.numba, sizes, make_results, *constants.values())}
        return Workload(
            f"npbench_{self.name}_{size}",
            f"NPBench's {self.name}, {size}: {self.what}",
            self.notation,
            string.Template(self.source).substitute(constants),
            lambda rng: self.make_inputs(rng, **sizes),
            compute,
            0.0,
            0.0,
            0.0,
            peers,
            tolerance=self.tolerance,
            dtype=self.dtype,
        )


def text(name: str) -> str:
    """The ``.tc`` text of a program."""
    return (Path(__file__).parent / f"{name}.tc").read_text()
