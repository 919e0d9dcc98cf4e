"""Misses of the last-level cache, counted by the processor where the system lets a process ask (Linux: perf_event_open)."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Callable

_SYSCALLS = {"x86_64": 298, "aarch64": 241}
_HARDWARE, _CACHE_MISSES = 0, 3
_DISABLED, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 0, 1 << 5, 1 << 6
_ENABLE, _DISABLE = 0x2400, 0x2401
_SIZE = 112
"""Bytes of struct perf_event_attr that every kernel of the last ten years knows."""


def count_cache_misses(call: Callable[[], object]) -> int | str:
    """Misses of the last-level cache that this thread makes in `call`; or why they cannot be counted."""
    number = _SYSCALLS.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return f"polyc cannot count cache misses on {platform.system()} {platform.machine()}"
    flags = _DISABLED | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    attributes = struct.pack("=IIQQQQQ", _HARDWARE, _SIZE, _CACHE_MISSES, 0, 0, 0, flags).ljust(_SIZE, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.syscall(number, ctypes.c_char_p(attributes), 0, -1, -1, 0)
    if file < 0:
        return f"this system does not let a process count cache misses ({os.strerror(ctypes.get_errno())})"
    try:
        libc.ioctl(file, _ENABLE, 0)
        call()
        libc.ioctl(file, _DISABLE, 0)
        return int.from_bytes(os.read(file, 8), "little")
    except OSError as error:
        return f"the counter of cache misses cannot be read ({error.strerror})"
    finally:
        os.close(file)
