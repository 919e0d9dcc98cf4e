"""Where what is in the memory of the pool of threads (`pool_ir`)."""

from __future__ import annotations

MEMORY = "polyc_pool"
"""The symbol of the pool's memory."""

KEY, SPIN, WAKE, CORES = 0, 8, 16, 24
"""Where settings are in it: the key of thread numbers, the two times in nanoseconds, helpers below this number spin."""
STATE = 1 << 16
"""Where what a fork clears begins, at a page of any size."""
LINE = 128
"""Bytes that no two threads write: two cache lines, which hardware fetches together."""
HELPERS, LOCK, LAST_END, ACTIVE = STATE, STATE + 4, STATE + 8, STATE + LINE
"""The number of helpers, a lock for making them, the end of the last region with sleepers, how many regions run."""
TIMES, BOXES = STATE + 4096, STATE + 8192
MOST_HELPERS = 1023
SIZE = BOXES + (MOST_HELPERS + 1) * LINE
FUTEX = {"x86_64": 202, "aarch64": 98}
"""Numbers of the system call, by architecture."""

IDLE, ASLEEP, SETUP, OPEN, TAKEN, AWAITED = range(6)
MASK, GENERATION = 7, 8
FUTEX_WAIT, FUTEX_WAKE = 128, 129  # private to the process
FLOAT_MODE, CLAIMS = 24, 32  # in a job, behind its function, its data and how many numbers it has


def at(offset: int) -> str:
    """The address of a word of the pool."""
    return f"getelementptr (i8, ptr @{MEMORY}, i64 {offset})"


def load_word(name: str, offset: int) -> str:
    """A line that defines ``%name`` as the word at `offset` of the pool."""
    return f"  %{name} = load i64, ptr {at(offset)}"
