"""What a kernel of PolyBench is here: its text, its datasets, its inputs, and the same computation in NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.workload import Arrays

Sizes = dict[str, int]
DATASETS = ("MINI", "SMALL", "MEDIUM", "LARGE")
"""PolyBench/C 4.2's datasets, from what a test runs in no time to some tens of megabytes."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel.

    `sizes` holds, for each size of PolyBench's, its values in `DATASETS`.  `make_inputs(rng, **sizes)` makes the operator's
    inputs in its order; `reference(**inputs)` computes its results (an array, or a tuple) with NumPy, in the inputs' type.
    `flops(**sizes)` counts what the kernel's definition asks for, lower terms left out.
    """

    name: str
    what: str
    sizes: Mapping[str, tuple[int, int, int, int]]
    make_inputs: Callable[..., Arrays]
    reference: Callable[..., np.ndarray | tuple[np.ndarray, ...]]
    flops: Callable[..., float]

    @property
    def source(self) -> str:
        """The ``.tc`` text."""
        return (Path(__file__).parent / f"{self.name}.tc").read_text()

    def shapes(self, dataset: str) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """Shapes of the parameters and of the results, as the head of the text declares them."""
        sizes = self.sizes_of(dataset)
        head = self.source[self.source.index("def ") : self.source.index("{")]
        before, after = head.split("->")
        declared = (re.findall(r"(?:double|int32)(?:\(([^)]*)\))? \w", part) for part in (before, after))
        parameters, results = ([tuple(sizes[n] for n in re.findall(r"\w+", dims)) for dims in part] for part in declared)
        return parameters, results

    @property
    def itemsize(self) -> int:
        """Bytes of an element of its arrays."""
        return 4 if "int32" in self.source else 8

    def sizes_of(self, dataset: str) -> Sizes:
        """PolyBench's sizes of a dataset."""
        place = DATASETS.index(dataset)
        return {name: values[place] for name, values in self.sizes.items()}

    def inputs(self, dataset: str) -> Arrays:
        """The same arrays in every process: the seed is fixed."""
        return self.make_inputs(np.random.default_rng(7), **self.sizes_of(dataset))


def square(*values: int) -> dict[str, tuple[int, ...]]:
    """Kernels with one size called N."""
    return {"N": values}


def draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Standard normal float64."""
    return rng.standard_normal(shape)


def scalar(value: float) -> np.ndarray:
    """A parameter without dimensions."""
    return np.array(value)


def dominant(rng: np.random.Generator, n: int) -> np.ndarray:
    """A matrix that is factorised without pivots: its diagonal outweighs its rows."""
    return draw(rng, n, n) / n + 2 * np.eye(n)


def definite(rng: np.random.Generator, n: int) -> np.ndarray:
    """A symmetric matrix, positive definite."""
    a = draw(rng, n, n)
    return a @ a.T / n + np.eye(n)
