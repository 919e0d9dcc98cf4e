"""Memory for results and workspaces, most of it used again (`pages.py`).

Results from `REUSE_FROM` bytes up are lent from a store of blocks that calls have used before; smaller ones are NumPy's own.
The workspace is one block per Python thread, lent from there too, grown as needed and never shared between concurrent calls.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
import weakref
from _thread import _local, get_ident
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np

from polyc.config import parse_bytes
from polyc.diagnostics import PolycError
from polyc.environment import warn_of_environment
from polyc.limits import available_memory
from polyc.runtime import pages
from polyc.runtime.arrays import argument_error, shape_label

REUSE_FROM = 128 << 10
"""Bytes from which the C library maps fresh pages for each allocation, at first at least.  Below it `numpy.empty` is five times
faster than lending a block, which takes half a microsecond."""
MOST_HELD = 512 << 20
"""Bytes that are kept at most where nobody says otherwise; where there is little memory, a sixteenth of it."""


def allocate_result(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised C-order array; its elements may be none."""
    return make_allocator(shape, dtype)()


def check_result(shape: tuple[int, ...], dtype: np.dtype) -> None:
    """``argument-too-large`` for a result of more bytes than this process may have."""
    check_memory(f"a result of shape {shape_label(shape)}", math.prod(shape) * dtype.itemsize)


def is_small(shape: tuple[int, ...], dtype: np.dtype) -> bool:
    """Whether a result is NumPy's own memory."""
    return 0 < math.prod(shape) * dtype.itemsize < REUSE_FROM


def make_allocator(shape: tuple[int, ...], dtype: np.dtype) -> Callable[[], np.ndarray]:
    """A function that makes uninitialised C-order arrays; ``argument-too-large`` where there is no memory for one."""
    size = math.prod(shape) * dtype.itemsize
    what = f"a result of shape {shape_label(shape)}"
    if is_small(shape, dtype):
        return functools.partial(np.empty, shape, dtype)
    check_memory(what, size)
    pile = store.pile(size) if size else None
    new_array = np.ndarray

    def allocate() -> np.ndarray:
        try:
            return np.empty(shape, dtype) if pile is None else new_array(shape, dtype, pile.lend())
        except (MemoryError, ValueError, OverflowError) as problem:
            raise _too_large(what, size) from problem

    return allocate


known_area = (ctypes.c_int64 * 3)()
"""What `workspace_address` would say to the Python thread that asked last, for compiled code: the number of this thread, 0 for
none; the bytes of its workspace; its address."""
_ALL = slice(None)


class _Area:
    """The workspace of one thread."""

    def __init__(self) -> None:
        self.lease: Any = None
        self.size = -1
        self.address = 0
        self.generation = 0

    def __del__(self, known: Any = known_area) -> None:
        if known[2] == self.address:
            known[0] = 0


class _Workspace(_local):
    def __init__(self) -> None:
        self.area = _Area()
        _areas.add(self.area)


_areas: weakref.WeakSet[_Area] = weakref.WeakSet()
_workspace = _Workspace()
_generation = [0]
"""Its number grows when workspaces shall be given up, which each thread does for its own."""


GUARD = 4096
"""Bytes of mapped memory in front of a workspace and behind it: a masked access whose idle lanes reach a page that is not
there raises no error, but takes a hundred times as long (a triangular recurrence: 1.09 to 0.08 ms)."""


def workspace_address(size: int) -> int:
    """Address of at least `size` bytes, 64-byte aligned, that belong to this thread until its next call."""
    area = _workspace.area
    if size > area.size or area.generation != _generation[0]:
        # The old block is dropped first: two big ones at once could exceed the memory.
        known_area[0] = 0
        area.lease, area.size, area.generation = None, -1, _generation[0]
        check_memory("the workspace for temporaries", size)
        try:
            lease = store.pile(size + 2 * GUARD).lend()
        except (MemoryError, ValueError, OverflowError) as problem:
            raise _too_large("the workspace for temporaries", size) from problem
        first, last = lease.block.address, lease.block.address + lease.pile.capacity - GUARD
        for page in (first, last):
            ctypes.memset(page, 0, 64)
        area.lease, area.address, area.size = lease, first + GUARD, lease.pile.capacity - 2 * GUARD
    # One step, so that no other thread comes between; and no object is made once the fields are read, since the collector might
    # run a finaliser that calls a kernel and gets another workspace.
    words: list[Any] = [get_ident(), 0, 0]
    words[1], words[2] = area.size, area.address
    known_area[_ALL] = words
    return area.address


def hold_workspace(size: int) -> tuple[int, object]:
    """As `workspace_address`, and what keeps the memory this caller's.

    Finalisers and signal handlers run anywhere in Python code, and may call kernels that want more: the thread's workspace is
    another one then."""
    address = workspace_address(size)
    return address, _workspace.area.lease


def held() -> int:
    """Bytes that polyc keeps for calls to come: blocks of results that are no more, and the workspaces of all threads."""
    return store.count() + sum(area.size + 2 * GUARD for area in list(_areas) if area.size >= 0)


def release() -> int:
    """Give everything that `held` counts back to the system, and say how many bytes that were.

    Results that are still referenced are not touched.  Workspaces of other threads, which may be in use, go when these call
    the next time."""
    area = _workspace.area
    own, before = area.size + 2 * GUARD if area.size >= 0 else 0, store.count()
    _generation[0] += 1
    known_area[0] = 0
    area.lease, area.size, area.generation = None, -1, _generation[0]
    # A workspace beyond the limit goes to the system at once, another to the store first.
    return (own if store.count() == before else 0) + store.release()


def limit() -> int:
    """Most bytes of results that are kept when nobody references them any more."""
    warn_of_environment()
    return store.limit


def set_limit(n_bytes: int | None) -> None:
    """Keep at most `n_bytes` of results for calls to come; 0 keeps none, None goes back to the default.

    What exceeds it is given back at once.  Raises `ArgumentTypeError` and `ArgumentError` for what is no number of bytes."""
    if n_bytes is not None and (isinstance(n_bytes, bool) or not isinstance(n_bytes, Integral)):
        message = f"the limit of kept memory must be an integer, not {n_bytes!r}"
        raise argument_error("argument-type-memory", message, None, "pass a number of bytes: set_limit(256 << 20)")
    if n_bytes is not None and n_bytes < 0:
        message = f"the limit of kept memory must not be negative, but is {n_bytes}"
        raise argument_error("argument-memory", message, None, "0 keeps nothing")
    store.limit = default_limit() if n_bytes is None else int(n_bytes)
    store.release(store.limit)


def default_limit() -> int:
    """POLYC_HELD_MEMORY, else `MOST_HELD` or a sixteenth of the machine's memory, whichever is less."""
    given = parse_bytes(os.environ.get("POLYC_HELD_MEMORY", ""))
    return min(MOST_HELD, available_memory() // 16) if given is None else given


def check_memory(what: str, size: int) -> None:
    """``argument-too-large`` for more bytes than this process may have: the system may promise them, and end the process
    later."""
    if size > available_memory():
        raise _too_large(what, size)


def _too_large(what: str, size: int) -> PolycError:
    message = f"{what} needs {size / 2**30:.3g} GiB, which does not fit into memory"
    has = f": this process may have {available_memory() / 2**30:.3g} GiB" if available_memory() < sys.maxsize else ""
    return argument_error("argument-too-large", message, None, f"try smaller sizes{has}")


store = pages.Store(default_limit())

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=store.reset_lock)
