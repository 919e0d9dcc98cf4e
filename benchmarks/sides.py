"""How each side runs a workload: polyc, the peers, and the two measured rooflines."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import roofline
from benchmarks.workload import Arrays, Workload

Run = Callable[[int], Any]
"""Runs that many repetitions; returns the last result (for a roofline, None)."""

ROOFS = ("stream", "fma")
"""Sides that measure the machine: bytes of the workload streamed in the same read:write mix, its flops at full FMA rate."""


def environment(threads: int) -> dict[str, str]:
    """Environment variables that hold every library to `threads`."""
    names = "OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS NUMEXPR_NUM_THREADS VECLIB_MAXIMUM_THREADS POLYC_NUM_THREADS"
    return dict.fromkeys(names.split(), str(threads))


def cores() -> list[int]:
    """Cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def is_available(side: str) -> bool:
    """Whether the side's package can be imported here (looked up, not imported)."""
    return side in ROOFS or importlib.util.find_spec(side) is not None


def build(side: str, workload: Workload, arrays: Arrays, out: np.ndarray | None, threads: int) -> Run:
    """A callable for repetitions on `side`; `out` is reused by every repetition, or None for a fresh result each time."""
    match side:
        case "polyc":
            return _build_polyc(workload, arrays, out, threads)
        case "stream":
            return roofline.build_stream(workload.bytes_read, workload.bytes_written, threads)
        case "fma":
            # In double precision a vector holds half as many elements: as much time as twice the work in single.
            return roofline.build_fma(workload.flops * (2 if workload.dtype == "float64" else 1), threads)
        case "torch":
            import torch

            torch.set_num_threads(threads)
            torch.set_grad_enabled(False)
            tensors = {n: torch.from_numpy(a) for n, a in arrays.items()}
            result = None if out is None else torch.from_numpy(out)
            return _bind(workload.peers[side], torch, result, tensors)
        case _:
            return _bind(workload.peers[side], importlib.import_module(side), out, arrays)


def _bind(peer: Callable[..., Any], module: Any, out: Any, arrays: dict[str, Any]) -> Run:
    return repeat(lambda: peer(module, out, **arrays))


def repeat(once: Callable[[], Any]) -> Run:
    """Repetitions one after the other, each result given up before the next begins."""

    def run(repetitions: int) -> Any:
        for _ in range(repetitions - 1):
            once()
        return once()

    return run


def make_operator(workload: Workload) -> Any:
    """The workload's `polyc.Operator`."""
    import polyc

    if workload.notation == "einsum":
        return polyc.einsum_operator(workload.source)
    return polyc.compile(workload.source)


def _build_polyc(workload: Workload, arrays: Arrays, out: np.ndarray | None, threads: int) -> Run:
    import polyc

    polyc.set_num_threads(threads)
    if "polyc" in workload.peers:  # not one operator on the same arrays each time
        return _bind(workload.peers["polyc"], polyc, out, arrays)
    operator, inputs = make_operator(workload), tuple(arrays.values())
    if out is None:
        return repeat(lambda: operator(*inputs))
    return repeat(lambda: operator(*inputs, out=out))
