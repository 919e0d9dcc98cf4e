"""The demonstration behind ``make demo``: compile every example, run it on inputs of real size, check it, say how fast it is.

Per operator: largest error against NumPy in float64 (relative to the largest value), median time on all cores, GFLOP/s or GB/s,
and in one line what the scheduler did.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.coordinator import exact_results
from benchmarks.worker import relative_error
from benchmarks.workload import Workload
from benchmarks.workloads import WORKLOADS

HERE = Path(__file__).parent
ARITHMETIC_BOUND = 8.0
"""Flops per byte above which GFLOP/s says more than GB/s."""


@dataclass(frozen=True, slots=True)
class Example:
    """One operator in one notation; inputs, reference and amount of work are those of the workload."""

    notation: str
    workload: str
    make: Callable[[], Any]


def from_file(name: str, workload: str | None = None) -> Example:
    def make() -> Any:
        import polyc

        return polyc.compile(HERE / f"{name}.tc")

    return Example(".tc", workload or name, make)


def from_decorator(name: str, workload: str | None = None) -> Example:
    def make() -> Any:
        from examples import decorated

        return getattr(decorated, name)

    return Example("@polyc.op", workload or name, make)


def from_einsum(workload: str) -> Example:
    def make() -> Any:
        import polyc

        return polyc.einsum_operator(WORKLOADS[workload].source)

    return Example("einsum", workload, make)


EXAMPLES = (
    from_file("softmax"),
    from_file("layernorm"),
    from_file("gelu_bias"),
    from_file("linear_relu", "linear_relu_bert"),
    from_file("attention"),
    from_file("conv_bias_relu", "conv3x3_bias_relu"),
    from_file("depthwise", "dwconv3x3"),
    from_file("maxpool"),
    from_file("unsharp"),
    from_file("jacobi"),
    from_file("embedding_sum"),
    from_file("dot"),
    from_decorator("linear_relu", "linear_relu_bert"),
    from_decorator("softmax"),
    from_decorator("layernorm"),
    from_decorator("attention"),
    from_decorator("maxpool"),
    from_einsum("matmul_1024"),
    from_einsum("attn_scores"),
    from_einsum("mttkrp"),
    from_einsum("tc_abcd"),
)


def time_call(call: Callable[[], Any], budget: float = 1.0, most: int = 21) -> float:
    """Median seconds of up to `most` calls, within about `budget` seconds."""
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < most and (len(times) < 3 or time.perf_counter() - begin < budget):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times)


def rate(workload: Workload, seconds: float) -> str:
    """GFLOP/s for work bound by arithmetic, else GB/s of compulsory traffic."""
    moved = workload.bytes_read + workload.bytes_written
    if workload.flops > ARITHMETIC_BOUND * moved:
        return f"{workload.flops / seconds / 1e9:.0f} GFLOP/s"
    return f"{moved / seconds / 1e9:.1f} GB/s"


def run_example(example: Example, exact: np.ndarray) -> bool:
    """Compile, check, time, print; whether the result is right."""
    workload = WORKLOADS[example.workload]
    arrays = tuple(workload.inputs().values())
    start = time.perf_counter()
    operator = example.make()
    result = np.asarray(operator(*arrays))
    first = time.perf_counter() - start
    error = relative_error(result, exact)
    seconds = time_call(lambda: operator(*arrays, out=result))
    is_right = error <= workload.tolerance
    print(f"{example.workload:18} {example.notation:10} {workload.what}")
    print(
        f"    {'matches' if is_right else 'DOES NOT MATCH'} NumPy float64 within {error:.1e} · {seconds * 1e3:.3g} ms · "
        f"{rate(workload, seconds)} · first call, compiling included, {first:.2f} s"
    )
    print(f"    {operator.lower(*arrays).summary()}", flush=True)
    return is_right


def main(names: list[str]) -> int:
    """Run the examples whose name contains one of `names` (all of them by default); the number that went wrong."""
    chosen = [e for e in EXAMPLES if not names or any(n in e.workload for n in names)]
    exact: dict[str, np.ndarray] = {}
    wrong = 0
    for example in chosen:
        if example.workload not in exact:
            exact[example.workload] = exact_results(WORKLOADS[example.workload])[0]
        wrong += not run_example(example, exact[example.workload])
    print(f"{len(chosen) - wrong} of {len(chosen)} operators match NumPy.")
    return wrong


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
