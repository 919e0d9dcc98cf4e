"""Where what is in the memory of the pool of threads (`pool_ir`): structures one behind the other."""

from __future__ import annotations

import ctypes

MEMORY = "polyc_pool"
"""The symbol of the pool's memory."""
STATE = 1 << 16
"""Where what a fork clears begins, at a page of any size."""
LINE = 128
"""Bytes that no two threads write: two cache lines, which hardware fetches together."""
MOST_HELPERS, N_TIMES = 1023, 256
"""Boxes of helpers (that of number 0 is the caller's and stays empty), and regions whose times are known."""

IDLE, ASLEEP, SETUP, OPEN, TAKEN, AWAITED = range(6)
MASK = 7
"""The bits of a box's state; those above count its generations."""
FUTEX_WAIT, FUTEX_WAKE = 128, 129  # private to the process
FUTEX = {"x86_64": 202, "aarch64": 98}
"""Numbers of the system call, by architecture."""


class Settings(ctypes.Structure):
    """The key of thread numbers, the two times in nanoseconds, helpers below this number spin."""

    _fields_ = [(name, ctypes.c_int64) for name in ("key", "spin", "wake", "cores")]


class Counts(ctypes.Structure):
    """The number of helpers, a lock for making them, the end of the last region with sleepers."""

    _fields_ = [("helpers", ctypes.c_int32), ("lock", ctypes.c_int32), ("last_end", ctypes.c_int64)]


class State(ctypes.Structure):
    """What a fork clears: the counts, how many regions run, the times of regions and the boxes of helpers."""

    _fields_ = [
        ("counts", Counts),
        ("counts_end", ctypes.c_byte * (LINE - ctypes.sizeof(Counts))),
        ("active", ctypes.c_byte * LINE),
        ("times", ctypes.c_int64 * 2 * N_TIMES),
        ("boxes", ctypes.c_byte * LINE * (MOST_HELPERS + 1)),
    ]


class Job(ctypes.Structure):
    """What a region leaves on the stack of its caller.  Behind it is a byte for each number: whether somebody has begun it."""

    _fields_ = [(name, ctypes.c_int64) for name in ("function", "data", "n", "float_mode")]


def offset_of(structure: type[ctypes.Structure], field: str) -> int:
    """Bytes from the beginning of the pool, or of a job, to a field."""
    start = STATE if structure in (State, Counts) else 0
    return start + int(getattr(structure, field).offset)


SPIN, WAKE, CORES = (offset_of(Settings, name) for name in ("spin", "wake", "cores"))
HELPERS, LOCK, LAST_END = (offset_of(Counts, name) for name in ("helpers", "lock", "last_end"))
ACTIVE, TIMES, BOXES = (offset_of(State, name) for name in ("active", "times", "boxes"))
FLOAT_MODE, CLAIMS = offset_of(Job, "float_mode"), ctypes.sizeof(Job)
SIZE = STATE + ctypes.sizeof(State)


def at(offset: int) -> str:
    """The address of a word of the pool."""
    return f"getelementptr (i8, ptr @{MEMORY}, i64 {offset})"


def load_word(name: str, offset: int) -> str:
    """A line that defines ``%name`` as the word at `offset` of the pool."""
    return f"  %{name} = load i64, ptr {at(offset)}"
