"""The pool of threads that kernels of this process share: its memory, and the code of `pool_ir` over it."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from polyc.codegen.objects.host import count_cores, physical_host
from polyc.codegen.objects.loader import OPENMP_SYMBOLS, map_object
from polyc.codegen.objects.pool_layout import MEMORY, SIZE, STATE, Settings

if TYPE_CHECKING:
    from polyc.machine import Machine

_TIMES = struct.Struct("<qq")
_WIPE_ON_FORK = 18
"""MADV_WIPEONFORK, since Linux 4.14."""


def make_pool(target: Machine) -> bytes:
    """The times of `target`, `_TIMES`, and object code of `pool_ir`: loading it takes no model of the machine."""
    from polyc.codegen.objects.jit import compile_object  # only now: a process that finds this in the cache loads no LLVM
    from polyc.codegen.objects.pool_ir import pool_ir

    return _TIMES.pack(target.threads.spin_ns, target.threads.wake_ns) + compile_object(pool_ir(target), target)


_source: list[Callable[[], bytes]] = [lambda: make_pool(physical_host())]


def use_source(source: Callable[[], bytes]) -> None:
    """Take what `make_pool` gives from `source` (a cache in front of `make_pool`) from now on."""
    _source[0] = source


def load_pool(target: Machine | None = None) -> dict[str, int]:
    """Addresses of `OPENMP_SYMBOLS` over a new pool, whose threads start when they are wanted; times are those of `target`.

    Code and memory stay for as long as the process: helpers may be in them when the interpreter ends."""
    memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    try:
        memory.madvise(_WIPE_ON_FORK, STATE, SIZE - STATE)
    except OSError:
        os.register_at_fork(after_in_child=lambda: ctypes.memset(start + STATE, 0, SIZE - STATE))
    made = _source[0]()
    spin, wake = _TIMES.unpack_from(made) if target is None else (target.threads.spin_ns, target.threads.wake_ns)
    cores = count_cores() if target is None else target.cores
    ctypes.memmove(start, ctypes.byref(Settings(_new_key(), spin, wake, cores)), ctypes.sizeof(Settings))
    addresses, code = _link(made[_TIMES.size :], start)
    for kept in (memory, code):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    return addresses


def _new_key() -> int:
    """A key under which each thread keeps the number that it is running."""
    key = ctypes.c_uint()
    status = ctypes.CDLL(None).pthread_key_create(ctypes.byref(key), None)
    if status != 0:
        raise OSError(status, "the system has no key for thread numbers left")
    return key.value


def _link(code: bytes, memory: int) -> tuple[dict[str, int], object]:
    found = map_object(code, {MEMORY: memory})
    if found is not None:
        return {name: found.addresses[name] for name in OPENMP_SYMBOLS}, found
    import llvmlite.binding as llvm

    from polyc.codegen.objects import jit

    with jit.locked_session() as session:
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        builder.import_symbol(MEMORY, memory)
        for name in OPENMP_SYMBOLS:
            builder.export_symbol(name)
        tracker = builder.link(session, "polyc.pool")
        return {name: tracker[name] for name in OPENMP_SYMBOLS}, tracker
