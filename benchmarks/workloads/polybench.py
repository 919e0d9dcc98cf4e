"""PolyBench's kernels in their datasets, against NumPy and their loops in C and in numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.engines import AUTOSCHEDULERS
from benchmarks.polybench import KERNELS, Kernel, native
from benchmarks.polybench.halide_sweeps import SWEEPS
from benchmarks.workload import Peer, Workload, call_loops, nbytes

MEASURED = ("MEDIUM", "LARGE")
"""Datasets that there are workloads for."""


def run_numpy(kernel: Kernel) -> Peer:
    """The reference: results of its own each time."""

    def peer(np: Any, out: Any, **inputs: Any) -> Any:
        return kernel.reference(**inputs)

    return peer


def run_native(side: str, kernel: Kernel, dataset: str) -> Peer:
    """The loops in C; `native` is `benchmarks.polybench.native`."""
    _, shapes = kernel.shapes(dataset)
    sizes, dtype = kernel.sizes_of(dataset), np.int32 if kernel.itemsize == 4 else np.float64

    def peer(native: Any, out: Any, **inputs: Any) -> Any:
        if out is None:
            out = tuple(np.empty(shape, dtype) for shape in shapes)
        results = out if isinstance(out, tuple) else (out,)
        native.call(side, kernel, sizes, inputs, results)
        return results if len(results) > 1 else results[0]

    return peer


def run_numba(kernel: Kernel, dataset: str) -> Peer:
    """The loops in numba."""
    _, shapes = kernel.shapes(dataset)
    dtype = np.int32 if kernel.itemsize == 4 else np.float64
    path = f"benchmarks.polybench.numba_loops.{native.function_name(kernel)}"
    return call_loops(path, kernel.sizes_of(dataset), lambda _: [np.empty(shape, dtype) for shape in shapes])


def make_workload(kernel: Kernel, dataset: str) -> Workload:
    """``polybench_<kernel>`` for LARGE, ``polybench_<kernel>_medium`` for MEDIUM."""
    sizes = kernel.sizes_of(dataset)
    parameters, results = kernel.shapes(dataset)
    name = "polybench_" + kernel.name.replace("-", "_")
    return Workload(
        name if dataset == "LARGE" else f"{name}_{dataset.lower()}",
        f"PolyBench's {kernel.name}, {dataset}: {kernel.what}",
        "tc",
        kernel.source,
        lambda rng: kernel.make_inputs(rng, **sizes),
        kernel.reference,
        float(kernel.flops(**sizes)),
        nbytes(*parameters, itemsize=kernel.itemsize),
        nbytes(*results, itemsize=kernel.itemsize),
        {"numpy": run_numpy(kernel), "numba": run_numba(kernel, dataset)}
        | {side: run_native(side, kernel, dataset) for side in native.SIDES if native.is_written(side, kernel)}
        | (dict.fromkeys(AUTOSCHEDULERS, SWEEPS[kernel.name]) if kernel.name in SWEEPS else {}),
        tolerance=1e-11,
        dtype="float64",
    )


_BY_DATASET = {dataset: tuple(make_workload(k, dataset) for k in KERNELS.values()) for dataset in MEASURED}
WORKLOADS = tuple(w for workloads in _BY_DATASET.values() for w in workloads)
GROUPS = {
    "polybench": tuple(w.name for w in _BY_DATASET["LARGE"]),
    "polybench_medium": tuple(w.name for w in _BY_DATASET["MEDIUM"]),
}
"""What ``python -m benchmarks polybench`` measures: LARGE, as PolyBench is usually reported, and a group for trying out."""
