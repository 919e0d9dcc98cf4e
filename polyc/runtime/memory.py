"""Memory for results and workspaces.

Results of some size start at a cache line, so that vector stores do not straddle two; the compiled code does not rely
on it.  The workspace is one block per Python thread, grown as needed and never shared between concurrent calls.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
from collections.abc import Callable

import numpy as np

from polyc.diagnostics import PolycError
from polyc.runtime.arrays import argument_error, data_address, shape_label

ALIGNMENT = 64
"""Bytes; one cache line of every machine model, and what the ABI promises for the workspace."""

_ALIGN_FROM = 4096
"""Below this many bytes a straddled line costs less than making the aligned view (about 1 µs)."""


def allocate_result(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised C-order array; its elements may be none."""
    size = math.prod(shape) * dtype.itemsize
    if size >= _ALIGN_FROM:
        check_memory(f"a result of shape {shape_label(shape)}", size)
    try:
        if size < _ALIGN_FROM:
            return np.empty(shape, dtype)
        block = np.empty(size + ALIGNMENT, np.uint8)
        return np.ndarray(shape, dtype, block, -data_address(block) % ALIGNMENT)
    except (MemoryError, ValueError, OverflowError) as problem:
        raise _too_large(f"a result of shape {shape_label(shape)}", size) from problem


def check_result(shape: tuple[int, ...], dtype: np.dtype) -> None:
    """``argument-too-large`` for a result of more bytes than the machine has."""
    check_memory(f"a result of shape {shape_label(shape)}", math.prod(shape) * dtype.itemsize)


def make_allocator(shape: tuple[int, ...], dtype: np.dtype) -> Callable[[], np.ndarray]:
    """A function that makes such results as `allocate_result` does."""
    if 0 < math.prod(shape) * dtype.itemsize < _ALIGN_FROM:
        return functools.partial(np.empty, shape, dtype)
    return functools.partial(allocate_result, shape, dtype)


class _Workspace(threading.local):
    block: np.ndarray | None = None
    address: int = 0
    size: int = -1


_workspace = _Workspace()


def workspace_address(size: int) -> int:
    """Address of at least `size` bytes, 64-byte aligned, that belong to this thread until its next call."""
    if size > _workspace.size:
        # The old block is dropped first: two big ones at once could exceed the memory.
        _workspace.block, _workspace.size, _workspace.address = None, -1, 0
        check_memory("the workspace for temporaries", size)
        try:
            block = np.empty(size + ALIGNMENT, np.uint8)
        except (MemoryError, ValueError, OverflowError) as problem:
            raise _too_large("the workspace for temporaries", size) from problem
        address = data_address(block)
        _workspace.block, _workspace.size = block, size
        _workspace.address = address + -address % ALIGNMENT
    return _workspace.address


@functools.cache
def machine_memory() -> int:
    """Bytes of memory that this machine has; where it does not tell, more than any."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


def check_memory(what: str, size: int) -> None:
    """``argument-too-large`` for more bytes than the machine has: it may promise them, and end the process later."""
    if size > machine_memory():
        raise _too_large(what, size)


def _too_large(what: str, size: int) -> PolycError:
    message = f"{what} needs {size / 2**30:.3g} GiB, which does not fit into memory"
    has = f": this machine has {machine_memory() / 2**30:.3g} GiB" if machine_memory() < sys.maxsize else ""
    return argument_error("argument-too-large", message, None, f"try smaller sizes{has}")
