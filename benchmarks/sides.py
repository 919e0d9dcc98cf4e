"""How each side runs a workload: polyc, the peers, and the two measured rooflines."""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import engines, environments, roofline
from benchmarks.polybench import native
from benchmarks.workload import Arrays, Results, Workload, as_results, as_tuple

Run = Callable[[int], Any]
"""Runs that many repetitions; returns the last result (for a roofline, None)."""

ROOFS = ("stream", "fma")
"""Sides that measure the machine: bytes of the workload streamed in the same read:write mix, its flops at full FMA rate."""

PREPARED = ("torch_blocked", "onnxruntime")
"""Peers that lay the weights of layers out before the first call: they meet `polyc_bound`, where that is measured."""

SUBJECTS = ("polyc", "polyc_bound")
"""polyc with everything given at each call, and with the workload's weights bound beforehand."""

PEERS = (
    "numpy",
    "torch",
    "opt_einsum",
    "torch_compile",
    "torch_blocked",
    "jax",
    "onnxruntime",
    "numba",
    "scipy",
    "opencv",
    *engines.HALIDE,
    *native.SIDES,
)
"""Everything that there is to compare with; most of it is set up by ``make peers``."""


def environment(side: str, threads: int) -> dict[str, str]:
    """Environment variables that hold every library to `threads`."""
    pools = "OMP OPENBLAS MKL NUMEXPR NUMBA HL POLYC".split()
    names = [*(f"{pool}_NUM_THREADS" for pool in pools), "VECLIB_MAXIMUM_THREADS"]
    return dict.fromkeys(names, str(threads)) | engines.flags(side, threads)


def cores() -> list[int]:
    """Cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def interpreter(side: str) -> str | None:
    """The interpreter that runs the side, or None where its package is nowhere installed."""
    if side in native.SIDES:
        return sys.executable if native.find_compiler(side) else None
    return sys.executable if side in (*ROOFS, *SUBJECTS) else environments.find_interpreter(side)


def build(
    side: str, workload: Workload, arrays: Arrays, out: Results | None, threads: int, options: Mapping[str, Any] | None = None
) -> Run:
    """A callable for repetitions on `side`.

    `out` (a tuple where there are several results) is reused by every repetition; None for fresh results each time.
    `options` are those of polyc."""
    match side:
        case "polyc" | "polyc_bound":
            return _build_polyc(workload, arrays, out, threads, workload.weights if side == "polyc_bound" else (), options)
        case "stream":
            kind = is_streaming(workload) if workload.has_same_stores else None
            return roofline.build_stream(workload.bytes_read, workload.bytes_written, threads, out is None, kind)
        case "fma":
            # In double precision a vector holds half as many elements: as much time as twice the work in single.
            return roofline.build_fma(workload.flops * (2 if workload.dtype == "float64" else 1), threads)
        case "torch":
            torch = engines.import_torch(threads)
            tensors = {n: torch.from_numpy(a) for n, a in arrays.items()}
            result = None if out is None else as_results([torch.from_numpy(o) for o in as_tuple(out)])
            return _bind(workload.peers[side], torch, result, tensors)
        case "torch_compile":
            return repeat(engines.build_compiled(workload, arrays, threads))
        case "torch_blocked":
            return repeat(engines.build_blocked(workload, arrays, threads))
        case "jax":
            return repeat(engines.build_jax(workload, arrays))
        case "onnxruntime":
            return repeat(engines.build_onnxruntime(workload, arrays, out, threads))
        case _ if side in engines.HALIDE:
            build = engines.build_sweeps if "steps" in arrays else engines.build_halide
            return repeat(build(side, workload, arrays, out, threads))
        case _ if side in native.SIDES:
            return _bind(workload.peers[side], native, out, arrays)
        case "opencv":
            return _bind(workload.peers[side], engines.import_opencv(threads), out, arrays)
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


def kept_memory(side: str) -> int | None:
    """Bytes that this process keeps for calls to come: polyc's workspaces, and results nobody references; None for peers."""
    if side not in SUBJECTS:
        return None
    import polyc

    return int(polyc.memory.held())


def planned_memory(side: str, workload: Workload, threads: int) -> int | None:
    """Bytes of the tile buffers and copies that the schedule has: the bar for `kept_memory` where results are given.

    None where that is not one kernel of known sizes."""
    if side != "polyc" or side in workload.peers:
        return None
    nest = make_operator(workload).lower(*workload.inputs().values()).nest
    total = 0
    for b in nest.buffers:
        extents = [getattr(e, "value", None) for e in b.shape]
        if b.space in ("argument", "register"):
            continue
        if None in extents:
            return None
        size = math.prod(map(int, extents)) * b.dtype.itemsize
        total += -(-size // 64) * 64 * (threads if b.space == "thread" else 1)
    return total


def is_streaming(workload: Workload) -> bool:
    """Whether polyc's kernel stores past the caches."""
    return "stream " in make_operator(workload).lower(*workload.inputs().values()).as_text("loops")


def make_operator(workload: Workload, **options: Any) -> Any:
    """The workload's `polyc.Operator`."""
    import polyc

    if workload.notation == "einsum":
        return polyc.einsum_operator(workload.source, **options)
    if workload.notation == "python":
        return polyc.op(workload.source, **options)
    operator = polyc.compile(workload.source, workload.entry, **options)
    return operator if workload.gradient is None else workload.gradient.of(operator)


def _build_polyc(
    workload: Workload,
    arrays: Arrays,
    out: Results | None,
    threads: int,
    bound: tuple[str, ...],
    options: Mapping[str, Any] | None,
) -> Run:
    import polyc

    polyc.set_num_threads(threads)
    if "polyc" in workload.peers:  # not one operator on the same arrays each time
        return _bind(workload.peers["polyc"], polyc, out, arrays)
    operator = make_operator(workload, **(options or {}))
    if bound:
        operator = operator.bind(**{n: arrays[n] for n in bound})
    inputs = tuple(a for n, a in arrays.items() if n not in bound)
    if out is None:
        return repeat(lambda: operator(*inputs))
    return repeat(lambda: operator(*inputs, out=out))
