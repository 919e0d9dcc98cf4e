"""The thirty affine kernels of PolyBench/C 4.2, written as comprehensions and recurrences; one ``.tc`` file each."""

from __future__ import annotations

from benchmarks.polybench import grids, products, solvers
from benchmarks.polybench.kernel import DATASETS, Kernel

KERNELS: dict[str, Kernel] = {
    k.name: k for k in sorted((*products.KERNELS, *solvers.KERNELS, *grids.KERNELS), key=lambda k: k.name)
}

__all__ = ["DATASETS", "KERNELS", "Kernel"]
