"""One block of memory for all intermediates of a plan, by exact live ranges.

A buffer is alive from the step that writes it to the last step that reads it, both included.  Two that are alive at one step
never share a byte.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence

from polyc.records import dataclass

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """`size` bytes that are needed from step `first` to step `last`."""

    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Arena:
    """Where each buffer lies, in bytes from the beginning.

    `size` is what the block has, `total` what all buffers have together, `bound` the most that is alive at one step: no plan
    needs less."""

    offsets: tuple[int, ...]
    size: int
    total: int
    bound: int

    def __str__(self) -> str:
        mib = [n / 2**20 for n in (self.size, self.bound, self.total)]
        return f"arena of {mib[0]:.2f} MiB; most alive at once {mib[1]:.2f} MiB; all intermediates {mib[2]:.2f} MiB"


def plan_arena(buffers: Sequence[Buffer]) -> Arena:
    """Offsets for `buffers`, aligned; the best of several orders in which the lowest gap that fits is taken.

    Placing large buffers first comes close to the bound on networks (Pisarchyk and Lee 2020, "greedy by size"); long-lived ones
    first, or the order of time, is better on some."""
    sizes = [align(b.size) for b in buffers]
    bound = most_alive(buffers, sizes)
    best: tuple[int, list[int]] | None = None
    for order in ORDERS:
        keys = [order(b, size) for b, size in zip(buffers, sizes, strict=True)]
        offsets, size = _place(buffers, sizes, sorted(range(len(buffers)), key=keys.__getitem__))
        if best is None or size < best[0]:
            best = size, offsets
        if size == bound:
            break
    assert best is not None
    return Arena(tuple(best[1]), best[0], sum(sizes), bound)


def _large_first(b: Buffer, size: int) -> tuple[int, int]:
    return -size, b.first


def _early_first(b: Buffer, size: int) -> tuple[int, int]:
    return b.first, -size


def _long_lived_first(b: Buffer, size: int) -> tuple[int, int]:
    return b.first - b.last, -size


def _most_room_first(b: Buffer, size: int) -> tuple[int, int]:
    return -size * (b.last - b.first + 1), b.first


ORDERS: tuple[Callable[[Buffer, int], tuple[int, int]], ...] = (
    _large_first,
    _early_first,
    _long_lived_first,
    _most_room_first,
)
"""Keys by which buffers are sorted before they are placed."""


def align(size: int) -> int:
    """The next multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def most_alive(buffers: Sequence[Buffer], sizes: Sequence[int]) -> int:
    """The largest sum of sizes over the buffers alive at one step."""
    changes: list[tuple[int, int]] = []
    for b, size in zip(buffers, sizes, strict=True):
        changes += [(b.first, size), (b.last + 1, -size)]
    alive = most = 0
    for _, change in sorted(changes):  # at one step what dies goes before what is born
        alive += change
        most = max(most, alive)
    return most


def _place(buffers: Sequence[Buffer], sizes: Sequence[int], order: Sequence[int]) -> tuple[list[int], int]:
    """First fit in this order."""
    offsets = [0] * len(buffers)
    n_steps = max((b.last for b in buffers), default=-1) + 1
    placed: list[list[tuple[int, int]]] = [[] for _ in range(n_steps)]
    """For each step the ranges that are taken, ascending."""
    end = 0
    for i in order:
        b, size = buffers[i], sizes[i]
        if size == 0:
            continue
        taken = sorted({r for step in range(b.first, b.last + 1) for r in placed[step]})
        offset = 0
        for low, high in taken:
            if low - offset >= size:
                break
            offset = max(offset, high)
        offsets[i] = offset
        end = max(end, offset + size)
        for step in range(b.first, b.last + 1):
            insort(placed[step], (offset, offset + size))
    return offsets, end
