"""Blocks of memory that are used again.

Fresh memory costs a page fault per 4 KiB and the zeroing of every byte, as much as a memory-bound kernel itself.  Blocks that
nobody references any more are therefore kept, up to `Store.limit` bytes, for the next that wants as many.

A block is lent by a `Lease`, an object that exports its bytes and whose finaliser gives it back.  A finaliser may run
anywhere, in any thread, in the middle of this module too.  It waits for no lock: it appends to a list, which is one step under
the GIL and may allocate a few bytes; where even these are missing Python reports it and the block is freed.  `Store.held` is
added to without a lock as well; it may drift where threads interleave, and is counted anew whenever it decides something.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from _thread import allocate_lock
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from polyc.records import dataclass
from polyc.runtime.arrays import data_address

ALIGNMENT = 64
"""Bytes; one cache line of every machine model, and what the ABI promises for the workspace."""
HUGE_PAGE = 2 << 20
_PAGE = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Memory at `address`, owned by `memory`."""

    memory: Any
    address: int


class _Lease:
    """What a lease adds to an array of bytes: a `block` that goes back to its pile when nothing refers to the lease."""

    __slots__ = ()
    block: Block
    pile: Pile
    dying_references = 0
    """What the finaliser is told where nothing refers to the lease any more."""

    # Globals may be gone when the interpreter ends.
    def __del__(self, count_references: Callable[[object], int] = sys.getrefcount) -> None:
        # The collector of cycles finalises objects that others may still bring back to life.  Something else refers to these,
        # and their block is freed, later, with them.
        if count_references(self) <= self.dying_references:
            self.pile.give(self.block)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("memory that polyc lends cannot be copied or pickled; copy the array")


class Pile:
    """Free blocks of one capacity, the longest unused first."""

    def __init__(self, store: Store, capacity: int) -> None:
        self.store = store
        self.capacity = capacity
        self.blocks: list[Block] = []
        self.used = 0
        """The store's clock when a block came back last."""
        fields = {"_type_": ctypes.c_char, "_length_": capacity, "__slots__": ("block",), "pile": self}
        array_type: Any = type(ctypes.Array)
        self._lease_type: Any = array_type("Lease", (_Lease, ctypes.Array), fields)

    def lend(self) -> Any:
        """A lease of a block.  It exports the bytes, and what is made of it (arrays, views, memoryviews, DLPack capsules) keeps
        it alive.  Raises MemoryError."""
        store = self.store
        try:
            block = self.blocks.pop()
            store.held -= self.capacity
        except IndexError:
            block = store.make_block(self.capacity)
        lease = self._lease_type.from_address(block.address)
        lease.block = block
        return lease

    def give(self, block: Block) -> None:
        """Take back a block that nothing refers to."""
        store = self.store
        if self.capacity <= store.limit:
            self.blocks.append(block)
            store.clock = self.used = store.clock + 1
            store.held += self.capacity
            if store.held > store.limit:
                store.release(store.limit)


class Store:
    """Free blocks, about `limit` bytes of them at most."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.clock = 0
        self._piles: dict[int, Pile] = {}
        self._lock = allocate_lock()

    def pile(self, size: int) -> Pile:
        """The pile whose blocks serve for `size` bytes."""
        capacity = round_up(size)
        return self._piles.get(capacity) or self._piles.setdefault(capacity, Pile(self, capacity))

    def count(self) -> int:
        """Bytes of free blocks."""
        return sum(p.capacity * len(p.blocks) for p in tuple(self._piles.values()))

    def release(self, down_to: int = 0) -> int:
        """Give free blocks back to the system, those of sizes that were not used lately first, until `down_to` bytes are left;
        how many bytes that were.  Never waits: while another thread is at it, nothing happens."""
        freed = 0
        if self._lock.acquire(blocking=False):
            try:
                self.held = self.count()
                while self.held - freed > down_to:
                    piles = [p for p in tuple(self._piles.values()) if p.blocks]
                    if not piles:
                        break
                    oldest = min(piles, key=lambda p: p.used)
                    with contextlib.suppress(IndexError):  # another thread took the last one
                        oldest.blocks.pop(0)
                        freed += oldest.capacity
                self.held = self.count()
            finally:
                self._lock.release()
        return freed

    def make_block(self, capacity: int) -> Block:
        """A fresh block; free ones go where there is no memory left.  Raises MemoryError."""
        self.held = self.count()
        try:
            return _map_block(capacity)
        except MemoryError:
            if not self.release():
                raise
            return _map_block(capacity)

    def reset_lock(self) -> None:
        """In a child after a fork: another thread of the parent may have held it."""
        self._lock = allocate_lock()


def round_up(size: int) -> int:
    """The capacity of blocks for `size` bytes: whole pages, and at most an eighth more, so that near sizes share blocks."""
    step = max(_PAGE, 1 << max(0, size.bit_length() - 4))
    return max(step, -(-size // step) * step)


def _map_block(capacity: int) -> Block:
    """Fresh memory; from 2 MiB up at a multiple of that, in huge pages where the system has them.  Raises MemoryError."""
    if capacity >= HUGE_PAGE and hasattr(mmap, "MAP_PRIVATE"):
        with contextlib.suppress(OSError, OverflowError, ValueError):  # too many mappings, or no memory: see what NumPy says
            # Private: children of a fork get copies of results, as of all other memory.
            mapped = mmap.mmap(-1, capacity + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            start = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
            offset = -start % HUGE_PAGE
            if hasattr(mmap, "MADV_HUGEPAGE"):
                with contextlib.suppress(OSError):  # a kernel without huge pages
                    mapped.madvise(mmap.MADV_HUGEPAGE, offset, capacity // HUGE_PAGE * HUGE_PAGE)
            return Block(mapped, start + offset)
    array = np.empty(capacity + ALIGNMENT, np.uint8)
    address = data_address(array)
    return Block(array, address + -address % ALIGNMENT)


def _count_dying_references() -> int:
    """What `sys.getrefcount` says in the finaliser of an object that nothing refers to; below that where it is no use."""
    counts: list[int] = []

    class Dying:
        def __del__(self, count_references: Callable[[object], int] = sys.getrefcount) -> None:
            counts.append(count_references(self))

    Dying()
    return counts[0] if counts else -1  # not at once: an interpreter without reference counts, where nothing is lent twice


_Lease.dying_references = _count_dying_references()
