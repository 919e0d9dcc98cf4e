"""Arrays between pages that nobody may touch, in all kinds of layouts: what reads or writes a byte too far ends the process."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PAGE = mmap.PAGESIZE
FILL = 0xA5
"""What is in the bytes around elements."""


@dataclass(frozen=True)
class Placed:
    """`array` in `memory`, the bytes from its first element to its last one."""

    array: np.ndarray
    memory: np.ndarray

    def gaps(self) -> np.ndarray:
        """The bytes between the elements."""
        is_gap = np.ones(self.memory.size, bool)
        offsets = np.zeros(self.array.shape, np.int64)
        for d, (stride, extent) in enumerate(zip(self.array.strides, self.array.shape, strict=True)):
            offsets += (np.arange(extent) * stride).reshape([-1 if d == e else 1 for e in range(self.array.ndim)])
        first = self.array.__array_interface__["data"][0] - self.memory.__array_interface__["data"][0]
        for byte in range(self.array.itemsize):
            is_gap[offsets.reshape(-1) + first + byte] = False
        return self.memory[is_gap]


class Region:
    """Whole pages between two that may not be touched."""

    def __init__(self, n_pages: int) -> None:
        self._map = mmap.mmap(-1, (n_pages + 2) * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None, use_errno=True)
        for page in (start, start + (n_pages + 1) * PAGE):
            assert libc.mprotect(ctypes.c_void_p(page), PAGE, 0) == 0
        self.contents = (ctypes.c_uint8 * (n_pages * PAGE)).from_address(start + PAGE)
        self.contents.region = self  # type: ignore[attr-defined]


def place(values: np.ndarray, source: random.Random, is_result: bool = False) -> Placed:
    """`values` in memory that ends, or begins, at a page that may not be touched.

    Strides are those of some layout: dimensions in any order, gaps, backwards; of inputs also 0, which repeats elements."""
    strides = _draw_strides(values.shape, values.itemsize, source, is_result)
    first = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)
    low = sum(s * (n - 1) for s, n in zip(strides, values.shape, strict=True) if s < 0) if values.size else 0
    high = sum(s * (n - 1) for s, n in zip(strides, values.shape, strict=True) if s > 0) if values.size else 0
    size = high - low + values.itemsize
    n_pages = -(-size // PAGE)
    begin = n_pages * PAGE - size if source.random() < 0.7 else 0
    memory = np.frombuffer(Region(n_pages).contents, np.uint8)[begin : begin + size]
    memory[...] = FILL
    array = np.ndarray(values.shape, values.dtype, memory.data, -low, strides)
    array[first] = values[first]
    return Placed(array, memory)


def _draw_strides(shape: tuple[int, ...], itemsize: int, source: random.Random, is_result: bool) -> tuple[int, ...]:
    order = list(range(len(shape)))
    is_plain = source.random() < 0.4
    if not is_plain and source.random() < 0.5:
        source.shuffle(order)
    strides, step = [0] * len(shape), itemsize
    for d in reversed(order):
        stride = step * (1 if is_plain else source.choice([1, 1, 1, 1, 1, 2, 3]))
        step = stride * max(1, shape[d]) + (0 if is_plain else itemsize * source.choice([0, 0, 0, 1, 3, 13]))
        is_backwards = source.random() < 0.1
        is_repeated = not is_result and not is_plain and source.random() < 0.06
        strides[d] = 0 if is_repeated else -stride if is_backwards else stride
    return tuple(strides)


_TOGETHER = 40
"""Examples that share a process."""


def run_apart(check: Callable[[int], None], n: int) -> tuple[int, str] | None:
    """The first seed for which `check` fails, and how; None where none of `n` does.

    They run in child processes, which the code that they test may end.  ``POLYC_EXAMPLES`` multiplies their number; more than
    1 also draws other seeds each time."""
    factor = float(os.environ.get("POLYC_EXAMPLES", "1"))
    first, n = time.time_ns() % (1 << 40) if factor > 1 else 0, max(1, int(n * factor))
    for start in range(first, first + n, _TOGETHER):
        failed = _run_child(check, range(start, min(start + _TOGETHER, first + n)))
        if failed is not None:
            return failed
    return None


def _run_child(check: Callable[[int], None], seeds: range) -> tuple[int, str] | None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 0
        os.close(reader)
        os.dup2(writer, 2)  # what LLVM says before it ends the process
        try:
            for seed in seeds:
                os.write(writer, f"\0{seed} ".encode())
                check(seed)
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
            status = 1
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read().decode(errors="replace")
    ending = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ending == 0:
        return None
    seed, _, what = said.rpartition("\0")[2].partition(" ")
    return int(seed), what if ending > 0 else f"{signal.Signals(-ending).name} {what}"
