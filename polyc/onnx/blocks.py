"""Memory for the intermediates of runs: a block for each run that is under way, used again by the runs that follow.

All plans of a session share the blocks, whatever shapes they are for, so a session needs as many as it has runs at once.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue

import numpy as np

from polyc.onnx.arena import ALIGNMENT
from polyc.records import dataclass
from polyc.runtime.arrays import data_address
from polyc.runtime.memory import check_memory
from polyc.runtime.threads import count_cores


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """`size` bytes from `address` on, aligned to cache lines."""

    array: np.ndarray
    address: int
    size: int


class Blocks:
    """Lends blocks to at most `limit` runs at once (None: as many as there are cores); others wait."""

    def __init__(self, limit: int | None = None) -> None:
        self._places: SimpleQueue[None] = SimpleQueue()  # compiled, and so twenty times faster than a semaphore
        for _ in range(limit or count_cores()):
            self._places.put(None)
        self._lock = threading.Lock()
        self._idle: list[Block] = []

    def lend(self, size: int) -> Block | None:
        """A block of at least `size` bytes until it is given back; None for no bytes, which must be given back, too.

        Raises ArgumentError (``argument-too-large``) where the machine has not as many."""
        self._places.get()
        if not size:
            return None
        try:
            return self._take(size)
        except BaseException:
            self._places.put(None)
            raise

    def give(self, block: Block | None) -> None:
        """Take back what was lent."""
        if block is not None:
            with self._lock:
                self._idle.append(block)
        self._places.put(None)

    def held(self) -> int:
        """Bytes of the blocks that no run uses."""
        with self._lock:
            return sum(b.size for b in self._idle)

    def _take(self, size: int) -> Block:
        with self._lock:
            large = [b for b in self._idle if b.size >= size]
            if large:
                found = min(large, key=lambda b: b.size)
                self._idle.remove(found)
                return found
            if self._idle:  # too small: it goes, so that there are never more blocks than runs
                self._idle.pop()
        check_memory("the intermediates of the model", size)
        array = np.empty(size + ALIGNMENT, np.uint8)
        start = data_address(array)
        return Block(array, -(-start // ALIGNMENT) * ALIGNMENT, size)
