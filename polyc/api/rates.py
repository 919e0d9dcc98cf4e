"""How fast this machine computes with NumPy, measured once a process by three short computations, or once a
machine (`polyc calibrate`).

What a kernel would take is estimated by the same rates: a BLAS is about as fast as kernels are where there is much to multiply,
and a copy where there is little.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import numpy as np

from polyc.api.numpy_ways import Cost
from polyc.records import dataclass

KERNEL_CALL = 2_000
"""Nanoseconds of a call of a kernel that computes next to nothing."""
LEAST_GAIN = 4
"""A BLAS multiplies at least so many times as fast as NumPy's own loops."""
MOST_RUNS, LONGEST = 6, 3_000_000
"""Runs of each computation that is measured, and nanoseconds after which three are enough."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Per nanosecond: multiplications of a BLAS (single precision), of NumPy's own loops, bytes that are copied; and the
    nanoseconds of a call of one of NumPy's functions with what stands around it."""

    product: float
    step: float
    copied: float
    function: float = 5_000

    def time_of(self, cost: Cost, dtype: np.dtype) -> float:
        """Nanoseconds of a way of NumPy's."""
        of_complex = 4 if dtype.kind == "c" else 1
        steps = cost.steps * of_complex / self.step
        return cost.functions * self.function + cost.products / self._products(dtype) + steps + cost.moved / self.copied

    def time_of_kernel(self, multiplications: int, n_bytes: int, dtype: np.dtype) -> float:
        """Nanoseconds of a kernel that multiplies so often, and has inputs and results of `n_bytes`."""
        return max(KERNEL_CALL + multiplications / self._products(dtype), self.time_to_move(n_bytes))

    def time_to_move(self, n_bytes: int) -> float:
        """Nanoseconds of a kernel that only has to read and write these bytes; a copy does both with each."""
        return KERNEL_CALL + n_bytes / 2 / self.copied

    def _products(self, dtype: np.dtype) -> float:
        """Multiplications per nanosecond: by lanes of a vector; complex ones are four, those of integers take two operations,
        of 64-bit integers four."""
        if dtype.kind == "c":
            return self.product * 4 / (dtype.itemsize // 2) / 4
        own = 1 if dtype.kind == "f" else 2 if dtype.itemsize < 8 else 4
        return self.product * 4 / max(4, dtype.itemsize) / own


ASSUMED = Rates(product=16, step=2, copied=8)
"""Of a small machine: until it is worth while to measure."""


@functools.cache
def measure_rates() -> Rates:
    """The rates of this machine: those of its calibration, else measured, which takes two or three milliseconds."""
    from polyc.recall.machine import recall_host

    recall_host()
    from polyc.codegen.objects.host import host_calibration

    kept = host_calibration()
    return measure_numpy() if kept is None else Rates(kept.numpy_product, kept.numpy_step, kept.numpy_copied)


def measure_numpy() -> Rates:
    """The rates at this moment."""
    large, small = np.ones((256, 256), np.float32), np.ones((64, 64), np.float32)
    result, small_result = np.empty_like(large), np.empty_like(small)
    source = np.ones(1 << 19, np.float32)
    target = np.empty_like(source)
    product = _fastest(lambda: np.matmul(large, large, out=result))
    step = _fastest(lambda: np.einsum("ij,jk->ik", small, small, out=small_result))
    copied = _fastest(lambda: np.copyto(target, source))
    steps = 64**3 / step
    # Beside busy processes the threads of a BLAS wait for each other.
    return Rates(max(256**3 / product, LEAST_GAIN * steps), steps, source.nbytes / copied)


def _fastest(run: Callable[[], object]) -> float:
    """Nanoseconds, at least one."""
    best, begin = float("inf"), time.perf_counter_ns()
    for n in range(MOST_RUNS):
        start = time.perf_counter_ns()
        run()
        end = time.perf_counter_ns()
        best = min(best, end - start)
        if n >= 2 and end - begin > LONGEST:
            break
    return max(best, 1)
