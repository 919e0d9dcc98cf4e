"""How workloads of this group are written down: one formula for the reference, NumPy and JAX; peers beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Peer, Results, Workload, as_results, as_tuple, nbytes

Formula = Callable[..., Any]
"""``formula(xp, **inputs)`` with functions of `xp`, which is NumPy or ``jax.numpy``; what works in PyTorch too says so."""


def in_numba(loops: str, *shapes: tuple[int, ...], dtype: str = "float32") -> Peer:
    """The function of that name in `benchmarks.numba_loops`, with results of these shapes."""

    def peer(numba: Any, out: Any, **inputs: Any) -> Any:
        from benchmarks import numba_loops  # needs numba

        results = tuple(np.empty(s, dtype) for s in shapes) if out is None else as_tuple(out)
        getattr(numba_loops, loops)(*inputs.values(), *results)
        return as_results(results)

    return peer


def fused(
    name: str,
    what: str,
    source: str,
    make_inputs: Callable[[np.random.Generator], Arrays],
    formula: Formula,
    results: tuple[tuple[int, ...], ...],
    flops: float,
    bytes_read: float,
    loops: str,
    peers: Mapping[str, Peer],
    tolerance: float = 2e-5,
    weights: tuple[str, ...] = (),
    dtype: str = "float32",
) -> Workload:
    """A workload whose reference, NumPy and JAX versions are `formula`, and numba's the function `loops`; `peers` come on top.

    `results` are the shapes of its results, and `dtype` their type (that of positions is int64)."""

    def exact(**inputs: np.ndarray) -> Results:
        results: Results = formula(np, **inputs)
        return results

    def in_numpy(np: Any, out: Any, **inputs: Any) -> Any:
        return formula(np, **inputs)

    def in_jax(jax: Any, out: Any, **inputs: Any) -> Any:
        return formula(jax.numpy, **inputs)

    own = {"numpy": in_numpy, "jax": in_jax, "numba": in_numba(loops, *results, dtype=dtype)}
    written = nbytes(*results, itemsize=np.dtype(dtype).itemsize)
    return Workload(
        name, what, "tc", source, make_inputs, exact, flops, bytes_read, written, own | dict(peers), tolerance, weights=weights
    )
