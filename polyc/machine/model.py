"""The machine model: a plain value that every decision reads and tests pin.

Passes ask it questions (`fits`, `room`, `conflicts`, `is_followed`, `is_streamed`) rather than keep numbers of their own.
"""

from __future__ import annotations

from math import gcd

from polyc.machine.costs import BlockCosts, CopyCosts, FilterCosts, LoopCosts, OverlapCosts, Threads, TileCosts, TimeTileCosts
from polyc.machine.memory import Level, Memory, Prefetchers, RowBlocks, Share, TransposeBlocks
from polyc.records import Hashed, dataclass, replace


@dataclass(frozen=True, slots=True)
class Machine(Hashed):
    """One kind of machine.  Cache sizes in bytes, per core for L1 and L2, whole for L3; latency in cycles.

    `features` is LLVM's feature string (``+avx2,+fma``); `cpu` only names a tuning model and may be "generic".
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    n_registers: int
    has_fma: bool
    has_masks: bool
    """Masked loads and stores of 32 and 64 bit elements at full speed (AVX-512)."""
    has_gather: bool
    spare_registers: int = 0
    """Vector registers that a register tile leaves to the code generator: the product where multiply and add are two
    instructions, and on AArch64 broadcasts of which LLVM loads several ahead."""
    fma_latency: int = 4
    fma_per_cycle: int = 2
    loads_per_cycle: int = 2
    """Whole vectors, and elements that are broadcast."""
    cores: int = 2
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 32 << 20
    cache_line: int = 64
    gather: float | None = None
    """Time of a gather over that of a load for each of its lanes, where it was measured."""
    memory: Memory = Memory()
    prefetchers: Prefetchers = Prefetchers()
    rows: RowBlocks = RowBlocks()
    transposes: TransposeBlocks = TransposeBlocks()
    tiles: TileCosts = TileCosts()
    copies: CopyCosts = CopyCosts()
    loops: LoopCosts = LoopCosts()
    overlap: OverlapCosts = OverlapCosts()
    time_tiles: TimeTileCosts = TimeTileCosts()
    filters: FilterCosts = FilterCosts()
    blocks: BlockCosts = BlockCosts()
    threads: Threads = Threads()

    @property
    def architecture(self) -> str:
        """The kind of processor, by LLVM's name: ``x86_64``, ``aarch64``."""
        name = self.triple.partition("-")[0]
        return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)

    # Instructions.

    def lanes(self, itemsize: int) -> int:
        """Elements of `itemsize` bytes in one vector register (at least 1)."""
        return max(1, self.vector_bits // 8 // itemsize)

    @property
    def streaming_bits(self) -> int:
        """Width of vectors where memory bounds a nest: half a line.  Arrays of NumPy start 16 bytes off a line, where every
        wider access straddles two lines and only half of these do."""
        return self.cache_line * 8 // 2

    @property
    def in_flight(self) -> int:
        """Sums of vectors at once for which the arithmetic units wait for none."""
        return self.fma_latency * self.fma_per_cycle

    @property
    def strip_vectors(self) -> int:
        """Vectors of points that take a step of a recurrence together where each point ends by itself: half as many as sums, as
        beside each operation that the next one waits for there is one off that chain (a test, a selection, the other part of a
        complex number); no more, since a strip runs until its last point has ended."""
        return max(1, self.in_flight // 2)

    def has_masked_loads(self, itemsize: int) -> bool:
        """Whether vectors of elements of `itemsize` bytes are loaded under a mask in about the time of a whole one: AVX does so
        for 32 and 64 bits, stores under such masks take several times as long (Zen 4: 42 micro-operations)."""
        return self.has_masks or (self.architecture == "x86_64" and "+avx" in self.features.split(",") and itemsize >= 4)

    @property
    def mask_bits(self) -> int:
        """Bits of the widest vector of 32 or 64 bit elements that is loaded and stored under one mask: without AVX-512, LLVM
        (22.1) makes wrong code of wider ones (`codegen.writer.masks`)."""
        return self.vector_bits if self.has_masked_loads(4) and not self.has_masks else 1 << 30

    @property
    def mask_registers(self) -> int:
        """Registers of masks (AVX-512)."""
        return 8 if self.has_masks else 0

    @property
    def address_registers(self) -> int:
        """Registers that a loop has for addresses: all but the stack's, its own variable, its end, and one to compute with."""
        return (31 if self.architecture == "aarch64" else 16) - 4

    @property
    def has_byte_products(self) -> bool:
        """Whether one instruction adds four products of bytes to each 32-bit lane (VNNI)."""
        wanted = "+avx512vnni" if self.vector_bits == 512 else "+avxvnni"
        return self.architecture == "x86_64" and wanted in self.features.split(",")

    @property
    def has_register_tables(self) -> bool:
        """Whether one instruction looks each 32-bit lane up in a register of eight (AVX2)."""
        return self.architecture == "x86_64" and "+avx2" in self.features.split(",")

    @property
    def has_fast_gather(self) -> bool:
        """Whether a gather takes less time than a load for each of its lanes: where nobody measured, not with AVX-512 and a
        first-level cache of 32 KiB (Zen 4: 4000 floats by position 3.6 us gathered, 2.8 by lanes)."""
        if self.gather is not None:
            return self.has_gather and self.gather < 1
        return self.has_gather and not self._is_narrow_core

    @property
    def copies_gathered(self) -> bool:
        """Whether elements that data names are copied side by side for vectors of them: where a gather takes longer than loads,
        and a vector under a mask has any number of them."""
        return self.has_masks and not self.has_fast_gather

    @property
    def _is_narrow_core(self) -> bool:
        """Whether the core is one of those whose first-level cache has room for 512 lines of AVX-512's vectors: Zen 4,
        Skylake; the later ones, which execute more at a time, have 48 KiB."""
        return self.vector_bits >= 512 and self.l1 <= 32 << 10

    # Caches.

    def size(self, level: Level) -> int:
        """Bytes of a cache."""
        return (self.l1, self.l2, self.l3)[level - 1]

    def room(self, level: Level, share: Share) -> int:
        """Bytes that one use may count on in a cache."""
        return int(self.size(level) * share.value)

    def fits(self, n_bytes: float, level: Level, share: Share) -> bool:
        """Whether a cache keeps `n_bytes` for a use that has that share of it."""
        return n_bytes <= self.room(level, share)

    def ways(self, level: Level) -> int:
        """Lines that a set of a cache holds: a first-level cache has one way for each page, so that addresses are found
        before they are translated."""
        return max(8, self.l1 // self.memory.page) if level is Level.L1 else 8

    def conflicts(self, n_rows: int, distance: int, soon_used: bool = False) -> bool:
        """Whether so many of `n_rows` rows, `distance` bytes apart, have their lines in one set of the first-level cache that
        they do not stay there until they are read again: more than half of the set, and half as much again as it has where
        lines are used up at once (`soon_used`)."""
        page, ways = self.memory.page, self.ways(Level.L1)
        return n_rows * gcd(distance, page) > (ways * 3 // 2 if soon_used else ways // 2) * page

    # Prefetchers.

    def is_followed(self, n_rows: int) -> bool:
        """Whether hardware prefetchers keep up with so many rows that are read side by side."""
        return n_rows <= self.prefetchers.streams

    @property
    def follows_windows(self) -> bool:
        """Whether hardware prefetchers keep up with vectors that read several elements for each lane (windows, steps).

        Those of narrow cores do with vectors of whole lines (Zen 4: maxima of 25 MB over 2×2 1.05 ms, with requests 4 to 24
        KiB ahead 1.45); faster cores outrun them, and with vectors of half a line shuffles take longer than memory."""
        return self.vector_bits // 8 >= self.cache_line and self._is_narrow_core

    # Non-temporal stores.

    @property
    def streaming_sizes(self) -> tuple[int, int, int] | None:
        """When a result goes to memory directly, because little of it is left in the cache when it is complete: from the first
        number of bytes on, and from the second on if it is the third together with what is read meanwhile.

        None where that was not measured to pay."""
        if self.architecture != "x86_64" or self.memory.streamed <= self.memory.written.memory:
            return None
        return -(-self.l3 // 2), -(-self.l3 // 4), self.room(Level.L3, Share.MOST)

    def is_streamed(self, size: int, read: int) -> bool:
        """Whether a result of `size` bytes goes to memory directly where `read` bytes are read meanwhile."""
        if self.streaming_sizes is None:
            return False
        alone, least, together = self.streaming_sizes
        return size >= alone or (size >= least and size + read >= together)


def is_runnable(target: Machine, host: Machine) -> bool:
    """Whether the host is a processor of the kind of `target`, with all of its instructions."""
    return target.architecture == host.architecture and set(target.features.split(",")) <= {*host.features.split(","), ""}


def with_caches_of(level: Machine, host: Machine) -> Machine:
    """An older instruction set on `host`: its caches, memory, prefetchers, threads and cores."""
    same = {
        n: getattr(host, n)
        for n in ("cores", "l1", "l2", "l3", "cache_line", "triple", "memory", "prefetchers", "rows", "transposes", "threads")
    }
    return replace(level, **same)
