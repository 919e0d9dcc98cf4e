"""Random programs through the whole compiler, each stage against the reference interpreter."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
from hypothesis import HealthCheck, settings

from polyc import driver
from polyc.codegen.nests import share_workspace
from polyc.codegen.objects.host import host_target
from polyc.config import Options
from polyc.ir.expr import evaluate
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.tolerance import Expectation, check_results
from polyc.machine import PINNED, Machine, Threads, select_model
from polyc.runtime import memory
from polyc.runtime.threads import set_num_threads
from polyc.scheduler import parallel
from polyc.scheduler.rewriting import split
from polyc.scheduler.rewriting.overlap import costs, overlap
from polyc.scheduler.rows import carried, steps
from tests.property.strategies import Case
from tests.scheduler.support import contiguous

EXAMPLES = float(os.environ.get("POLYC_EXAMPLES", "0.4"))
"""Multiplies the numbers of examples below, in the suite by less than 1; more than 1 also draws them at random instead of
always the same."""

LEVELS = [level for level, model in PINNED.items() if model.vector_bits <= host_target().vector_bits]


def profile(n: int) -> settings:
    """`n` examples by default."""
    return settings(
        max_examples=max(1, int(n * EXAMPLES)),
        deadline=None,
        derandomize=EXAMPLES <= 1,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def pinned(level: str) -> Machine:
    """The host with the instruction set of `level`."""
    return select_model(host_target(), level)


@contextmanager
def small_thresholds() -> Iterator[None]:
    """Threads, partial sums and overlapping tiles from the first iteration on, so that small programs reach that code too."""
    changes = [
        (Threads, "least_work", 1),
        (parallel, "MINIMUM_ITERATIONS", 2),
        (Threads, "work_per_part", 4),
        (parallel, "CHUNK", 8),
        (steps, "MANY_STATES", 8),
        (split, "MINIMUM_POINTS", 2),
        (split, "CHUNK_POINTS", 4),
        (split, "LONG_DEPTH", 4),
        (overlap, "SIZES", (4, 3)),
        (overlap, "ROW_SIZES", (5,)),
        (overlap, "is_faster", lambda tiled, whole: True),
        (carried, "carries_sums", lambda *_: True),
        (costs, "carries_sums", lambda *_: True),
        (share_workspace, "PAGE", 1),
    ]
    before = [getattr(module, name) for module, name, _ in changes]
    try:
        for module, name, value in changes:
            setattr(module, name, value)
        yield
    finally:
        for (module, name, _), value in zip(changes, before, strict=True):
            setattr(module, name, value)


def spoil_workspace(byte: int = 0xFF) -> None:
    """Fill the memory of temporaries (with NaN, in floats), so that what is read there without being written shows."""
    area = memory._workspace.area
    if area.size > 0:
        ctypes.memset(area.address, byte, area.size)


def lower_case(case: Case, options: Options, level: str, is_fixed: bool, is_eager: bool = False) -> driver.Lowered:
    """The case's program for the model `level`: sizes and strides baked in, as calls have it, or symbolic, as files have it."""
    known = {"sizes": case.sizes, "strides": contiguous(case.program, case.sizes)} if is_fixed else {}
    with small_thresholds() if is_eager else nullcontext():
        return driver.lower(case.program, **known, options=options, target=pinned(level))


def falls(lowered: driver.Lowered) -> list[str]:
    """Schedules that were not found or not proved before the one that runs."""
    return [r.message for r in lowered.remarks if r.kind == "missed" and r.pass_name == "schedule"]


def run_nest(lowered: driver.Lowered, case: Case) -> dict[str, np.ndarray]:
    """Results of the loop nest, interpreted."""
    values = dict(case.sizes)
    for name, expr in lowered.signature.defined_sizes:
        values[name] = evaluate(expr, values)
    data, results = [], {}
    for spec in lowered.signature.arrays:
        if spec.role == "input":
            data.append(np.array(case.arrays[spec.name]))
            continue
        shape = tuple(max(0, evaluate(e, values)) for e in spec.shape)
        array = np.array(case.out[spec.name]) if spec.role == "inout" else np.full(shape, 77, spec.dtype.numpy)
        results[spec.name] = array
        data.append(array)
    failures = interpret_loops(lowered.nest, data, values)
    assert not failures, failures
    return results


def run_kernel(kernel: object, case: Case, threads: int = 1) -> dict[str, np.ndarray]:
    """Results of the compiled kernel."""
    names = [r.name for r in case.program.returns]
    out = {n: a.copy() for n, a in case.out.items()}
    set_num_threads(threads)
    try:
        inputs = [case.arrays[p] for p in case.program.parameters]
        free = {n: v for n, v in case.sizes.items() if n in case.program.sizes}
        results = kernel(*inputs, **({"out": out} if out else {}), **free)  # type: ignore[operator]
    finally:
        set_num_threads(None)
    return dict(zip(names, results if len(names) > 1 else (results,), strict=True))


def check(got: dict[str, np.ndarray], expected: Expectation, what: str, lowered: driver.Lowered) -> None:
    """Fail with everything a person needs to see where the results differ."""
    problem = check_results(got, expected)
    assert problem is None, f"{what}: {problem}\n{lowered.as_text('program')}\n{lowered.as_text('loops')}"


def same_bits(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> bool:
    return all(one[n].tobytes() == two[n].tobytes() for n in one)
