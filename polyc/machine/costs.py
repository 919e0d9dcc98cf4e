"""What code costs beside its arithmetic and its memory traffic, in cycles of one core, and what threads cost.

The figures were fitted to kernels on AMD Zen 4 (docs/decisions/0870); other machines get them until somebody measures there.
"""

from __future__ import annotations

from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class TileCosts:
    """Register tiles of a sum of products (`scheduler.contractions.costs`)."""

    start: float = 14
    """Addresses, first loads and the last additions of a tile."""
    part_start: float = 40
    """Of a part of the rows of one of several sums side by side, where the call says how many are left."""
    loop_start: float = 2.5
    """Of a loop in a tile whose trips the code generator does not know."""
    load: float = 0.02
    """Of a load besides its port."""
    sharpness: float = 7
    """Exponent of the mean in which arithmetic, loads and latency are the time of a step: what is not far below the longest of
    them delays it, too."""
    shuffle: float = 0.5
    """Of a vector."""
    plain_loads: float = 4.0
    """Of a vector of products where nothing is shared, in loads: two, and often a store."""
    masked_load: float = 2.0
    """Of a vector under a mask that is a vector itself and made anew in each step, in loads."""
    known_mask: float = 0.2
    row_mask: float = 0.5
    """Of a vector that is read in place under a constant mask, and under one for each part of a row."""
    straddle: float = 0.1
    """Of a vector that is read in place: arrays of others start anywhere in a cache line."""
    border: float = 0.8
    """Part by which a tile with tests in it takes longer."""
    cut_row: float = 2.5
    cut_vector: float = 12.0
    """Of a vector of a tile in each step of the sum at which the border of a triangle cuts the rows of the tile, or vectors."""
    exposed: float = 0.1
    """Part of the time of streams from beyond the second-level cache that arithmetic does not hide: each row of a tile starts
    anew, and other cores want the same cache."""
    partial_sum: float = 0.2
    """Of storing and loading again one result between blocks of its sum."""
    reduced: float = 1.3
    reduced_result: float = 1.5
    """Where lanes lie along the sum: a step over one of a register tile of as many products, and adding up lanes."""
    transposed_store: float = 40
    """Of a vector of a tile whose rows, not lanes, are consecutive in memory: shuffles and masked stores of 16 rows."""
    halved_transposed_store: float = 128
    """The same where vectors are computed in halves and the call says how many rows and lanes there are."""
    whole_panels: float = 2.0
    """Second-level caches up to which all panels of an operand pass for each row of windows that are read in place."""
    near_store: float = 1.0
    far_store: float = 4.0
    """Of an element stored along a longer stride, below and from half a page (sets of the cache collide)."""


@dataclass(frozen=True, slots=True)
class CopyCosts:
    """Copies of operands."""

    plain: float = 0.15
    transposing: float = 0.45
    scattered: float = 3.0
    """Of an element: along memory on both sides, through transposes in registers, one by one."""
    start: float = 150
    """Of the loops around a copy."""
    room: float = 4
    """Second-level caches that diagonals of a result may fill: from farther away, its rows are picked together too slowly."""
    row: float = 8.0
    """Of a row of a copy that adds borders: its tests and the masks of its ends."""
    transposed: float = 0.5
    """Of an element written in blocks that are transposed in registers, beside the arithmetic of a statement."""


@dataclass(frozen=True, slots=True)
class LoopCosts:
    """Rows of vector loops, and what is in them."""

    row_start: float = 16.0
    """Of a loop along a row, with its last, partial vector."""
    short_row_start: float = 4.0
    """The same of a row of few vectors, which is expanded."""
    operation: float = 0.5
    """Of one operation on a vector."""
    far_byte: float = 0.12
    """Of a byte from beyond the second-level cache, in a loop that does little else."""
    load: float = 0.5
    straddling_load: float = 1.0
    shuffled: float = 0.39
    """Of a load of a whole vector, of one that straddles two lines, and of an operation or shuffle in a loop full of them."""
    far_element: float = 2.0
    """Operations for an element that is copied across rows."""
    read: float = 1.8
    far_read: float = 12.0
    """Of 64 bytes that a statement reads along memory, and lane by lane."""
    reads_on: bool = False
    """Whether sums over segments are faster in vectors that load behind their end (`emission/overreads.py`) than in strips."""


@dataclass(frozen=True, slots=True)
class OverlapCosts:
    """Tiles of statements that compute what they read of earlier ones (`scheduler.rewriting.overlap`)."""

    beside: float = 7 / 6
    """Times the bytes of a tile's buffers that a cache needs to hold them: rows of other arrays stream past meanwhile."""
    short_row: int = 256
    short_row_vectors: int = 8
    """Bytes and vectors of a short row, at most: tiles of such rows stay in the first-level cache."""
    cut_rows: float = 0.8
    """Part of the time of arrays from outside that is lost where tiles hold parts of their rows."""
    cut_short_rows: float = 0.05
    """The same for short rows: the next tile takes up their lines before a prefetcher forgets them."""
    recomputed: float = 0.5
    """Part of the estimated arithmetic that computing again takes in tiles of short rows: the estimate counts every load."""
    test: float = 2.0
    """Operations for a test of a column in every point of rows that are cut, and for the choice that hangs on it: whole rows
    have their borders taken off."""


@dataclass(frozen=True, slots=True)
class TimeTileCosts:
    """Tiles of several steps of a stencil (`scheduler.loops.time_tiling`), in the time of an element that is in the cache."""

    row_start: float = 8.0
    cut_row: float = 1.0
    """For each element of rows of a plane that are cut: they begin at any place of a cache line."""
    near_byte: float = 0.02
    far_byte: float = 0.16
    """Of a byte from the last-level cache, and of one from memory."""
    visit: float = 8.0
    """Of a step of a tile that streams past few planes, in rows."""
    held: float = 3
    """Times the room in the second-level cache that all steps of a tile may hold together, of which each holds less than one:
    what a step leaves, the next one finds near."""


@dataclass(frozen=True, slots=True)
class FilterCosts:
    """Transforms of filters with fewer products (`scheduler.rewriting.rules.minimal_filtering`)."""

    data: float = 0.5
    results: float = 0.3
    """Of each element of the parts that are multiplied, where 16 elements are added in a cycle: in one vector, or in two."""
    filter: float = 3.0
    """Of each element of the filter: its taps are consecutive, its results are not."""
    memory: float = 4.0
    """Bytes per cycle from memory: a filter has more points than taps, and in a model of many layers none stays in a cache."""


@dataclass(frozen=True, slots=True)
class BlockCosts:
    """Blocks of arrays in chunks, each a task (`polyc.blocks`), in cycles."""

    operation: float = 1.0
    """Of an operation, or a load, on a vector in a chain of stencils."""
    task: float = 4e6
    """Of one task, with the parts of neighbouring chunks that it is given."""
    statement: float = 1.5e8
    """Of compiling a statement, for one of the runs that its code is kept for: an eighth of the whole."""
    steps: int = 8
    """Most steps of a stage: rows of the states of more leave the second-level cache."""


@dataclass(frozen=True, slots=True)
class Threads:
    """What it takes to share out work.  Operations are those of a core that has 16 in a cycle."""

    fork: int = 4096
    """Cycles of one fork and join: about a microsecond."""
    wait: int = 1024
    """Cycles until a thread goes on behind one that it waits for, and has what that one wrote last."""
    spin_ns: int = 50_000
    """Nanoseconds that a thread without work looks for some before it sleeps: about what waking it takes.  Other libraries'
    threads want the core meanwhile."""
    spins: int = 2000
    """Looks of a thread that waits for another one's columns before it lets others run, which may have no core of their own."""
    wake_ns: int = 50_000
    """Nanoseconds of a region that are worth waking a sleeping thread for, which takes the caller a system call."""
    parts_per_core: int = 4
    """Parts that are left for each core to share out: one more or less is a quarter of what a core does."""
    idle: float = 0.5
    """How much idle cores weigh: a kernel may well be given one thread."""

    @property
    def least_work(self) -> int:
        """Operations that take as long as a fork and join: less stays on one thread."""
        return max(1, 16 * self.fork)

    @property
    def work_per_wait(self) -> int:
        """Operations that take as long as `wait`."""
        return 16 * self.wait

    @property
    def work_per_fork(self) -> int:
        """Operations that one more fork should share out."""
        return 16 * self.least_work

    @property
    def work_per_step(self) -> int:
        """The same at each step of a sequential loop: the threads meet again at once, while they still look for work, and what
        one of them reads at each step stays in its own cache (a recurrent layer's weights)."""
        return 6 * self.least_work

    @property
    def work_per_part(self) -> int:
        """Operations worth a part of their own, which a thread that has done its own may take from another one."""
        return 4 * self.least_work

    @property
    def work_to_collapse(self) -> int:
        """Operations of an iteration of two loops from which threads share both as one: finding out where it is takes a
        division, and little beside a fork."""
        return max(1, self.least_work // 16)

    @property
    def work_per_uneven_part(self) -> int:
        """The same where iterations hold different numbers of instances: with several parts each, threads share a triangle."""
        return max(1, self.least_work // 4)
