"""NPBench's part of PolyBench: the kernels of `benchmarks.polybench` in NPBench's sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.npbench.program import Program
from benchmarks.polybench import KERNELS, native
from benchmarks.workload import Results

Pair = tuple[int, int]


def solve_forward(L: np.ndarray, b: np.ndarray) -> np.ndarray:
    x = np.zeros_like(b)
    for i in range(len(b)):
        x[i] = (b[i] - L[i, :i] @ x[:i]) / L[i, i]
    return x


def join(kernel: str, /, name: str = "", numpy: Callable[..., Results] | None = None, **sizes: Pair) -> Program:
    """A kernel of PolyBench's in NPBench's S and M, under NPBench's name for it; `numpy` where NPBench has something else."""
    found = KERNELS[kernel]
    tiny = found.sizes_of("MINI")

    return Program(
        name or kernel.replace("-", "_"),
        f"PolyBench: {found.what}",
        found.source,
        {size: (tiny[size], *sizes[size]) for size in found.sizes},
        found.make_inputs,
        numpy or found.reference,
        f"benchmarks.polybench.numba_loops.{native.function_name(found)}",
    )


# NPBench's Jacobi, heat and Seidel make one step less than TSTEPS says; its Gram-Schmidt has M rows.
PROGRAMS = (
    join("adi", TSTEPS=(5, 20), N=(100, 200)),
    join("atax", M=(4000, 10000), N=(5000, 12500)),
    join("bicg", M=(4000, 10000), N=(5000, 12500)),
    join("cholesky", N=(100, 300)),
    join("cholesky", name="cholesky2", N=(1000, 2200)),
    join("correlation", M=(500, 1400), N=(600, 1800)),
    join("covariance", M=(500, 1400), N=(600, 1800)),
    join("covariance", name="covariance2", numpy=lambda D: np.cov(D, rowvar=False), M=(500, 1400), N=(600, 1800)),
    join("deriche", W=(400, 1500), H=(200, 1000)),
    join("doitgen", NR=(60, 110), NQ=(60, 125), NP=(128, 256)),
    join("durbin", N=(1000, 6000)),
    join("fdtd-2d", TMAX=(20, 60), NX=(200, 400), NY=(220, 450)),
    join("floyd-warshall", N=(200, 400)),
    join("gemm", NI=(1000, 2500), NJ=(1100, 2750), NK=(1200, 3000)),
    join("gemver", N=(1000, 3000)),
    join("gesummv", N=(2000, 4000)),
    join("gramschmidt", N=(70, 220), M=(60, 180)),
    join("heat-3d", TSTEPS=(24, 49), N=(25, 40)),
    join("jacobi-1d", TSTEPS=(799, 2999), N=(3200, 12000)),
    join("jacobi-2d", TSTEPS=(49, 79), N=(150, 350)),
    join("2mm", name="k2mm", NI=(800, 2000), NJ=(850, 2250), NK=(900, 2500), NL=(950, 2750)),
    join("3mm", name="k3mm", NI=(800, 2000), NJ=(850, 2200), NK=(900, 2400), NL=(950, 2600), NM=(1000, 2800)),
    join("lu", N=(60, 220)),
    join("ludcmp", N=(60, 220)),
    join("mvt", N=(5500, 11000)),
    join("nussinov", N=(40, 90)),
    join("seidel-2d", TSTEPS=(7, 14), N=(50, 100)),
    join("symm", M=(40, 120), N=(50, 150)),
    join("syr2k", M=(35, 110), N=(50, 140)),
    join("syrk", M=(50, 150), N=(70, 200)),
    join("trisolv", numpy=solve_forward, N=(2000, 5000)),
    join("trmm", M=(65, 200), N=(80, 250)),
)
