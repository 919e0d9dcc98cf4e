"""Caches, memory and prefetchers of a machine: what fits, what conflicts, and how fast bytes move.

Rates are bytes per cycle of one core, while all cores of the machine are busy.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from math import inf

from polyc.records import dataclass

LINE = 64
"""Bytes of a cache line, in which streamed stores go to memory and from which offsets of arrays are counted."""

PAGE = 4096
"""Bytes of a page: rows that far apart meet in one set of a first-level cache, and those half as far in two."""

LINE_PAIR = 2 * LINE
"""Bytes that two lines take: hardware fetches them together, so what different threads write lies as far apart."""


class Level(IntEnum):
    """Where bytes are found, nearest first."""

    L1 = 1
    L2 = 2
    L3 = 3
    MEMORY = 4


class Share(Enum):
    """Part of a cache that one use may count on, by what else wants it meanwhile."""

    ALL = 7 / 8
    """Nothing else does: all that a loop touches is counted."""
    MOST = 3 / 4
    """Results stream past."""
    HALF = 1 / 2
    """Other operands are read as often, and stay as well."""
    QUARTER = 1 / 4
    """It was prefetched, or is one of several blocks, and waits for its turn beside what is in use."""
    EIGHTH = 1 / 8
    """It should stay while many rows beside it come and go."""
    CORNER = 1 / 32
    """Hardly anything of the cache."""


@dataclass(frozen=True, slots=True)
class Rates:
    """One number for each level."""

    l1: float
    l2: float
    l3: float
    memory: float

    def __getitem__(self, level: Level) -> float:
        return (self.l1, self.l2, self.l3, self.memory)[level - 1]


@dataclass(frozen=True, slots=True)
class Memory:
    """How bytes move between a core and its caches."""

    read: Rates = Rates(inf, 40.0, 12.0, 12.0)
    """In order.  Loads from the first level are part of the arithmetic."""
    read_strided: Rates = Rates(inf, 26.0, 5.0, 5.0)
    """By lines that no prefetcher foresees."""
    read_prefetched: Rates = Rates(inf, inf, 20.0, 8.0)
    """By such lines, where code prefetches them."""
    written: Rates = Rates(inf, inf, 8.0, 4.0)
    """Results: each line is read before it is written, and goes back later.  Near caches take them meanwhile."""
    streamed: float = 8.0
    """Results that pass the caches by, in whole lines."""
    streamed_run: int = 1024
    """Bytes of a run that is streamed though its first and its last line are stored as usual."""
    passed: Rates = Rates(inf, 20.0, 6.0, 10 / 3)
    """What one statement writes and another one reads: a line of memory moves three times."""
    scattered: Rates = Rates(2.0, 3.0, 15.0, 15.0)
    """Cycles, not bytes: of an element written to a line of its own, by the cache that holds these lines until they are
    full."""
    held: float = 0.7
    """Part of a cache that keeps what is used again, on the average over its sets."""
    l3_per_core: int = 32 << 20
    """Most bytes that one core may count on in the last-level cache: virtual machines report that of the whole machine."""
    page: int = 4096
    """Bytes of a page, and of a way of the first-level cache: addresses that far apart meet in one set of it."""

    @property
    def filled(self) -> float:
        """Bytes per cycle of what writing to memory takes longer than streaming: lines are read before they are filled."""
        return inf if self.streamed <= self.written.memory else 1 / (1 / self.written.memory - 1 / self.streamed)


@dataclass(frozen=True, slots=True)
class Prefetchers:
    """What the hardware prefetches by itself, and how far ahead code has to prefetch the rest."""

    run: int = 1024
    """Consecutive bytes from which a stream is followed to its end, though the next one begins elsewhere."""
    long_run: int = 32 << 10
    """Consecutive bytes from which a row is as good as a stream without end."""
    lines: int = 8
    """Lines of a row after which it is followed: what is prefetched by code of a row is no more."""
    streams: int = 16
    """Rows that are followed at the same time."""
    rows_at_once: int = 4
    """Rows that code prefetches parts of at the same time: an instruction for each in a step of a loop."""
    pieces: int = 8
    """Pieces of rows that code prefetches in one iteration."""
    window_lines: int = 32
    """Lines of each such piece where windows are read in steps."""
    near_strips: int = 2
    """Strips of long rows ahead of the loop that come to the first-level cache."""
    strided_lines: int = 6
    """Lines of each step of a strided read that are worth prefetching by code: of more, the hardware takes up the run."""
    strided_steps: int = 64
    """Steps of a strided read from which that pays."""
    narrow_row: int = 1200
    """Bytes of pieces of rows that take twice as long as whole rows, where each is read behind the one of the row before."""
    start: float = 30.0
    """Cycles until a row in memory is followed."""
    lost_row: float = 200.0
    """Cycles that each short row beyond `streams` costs, which is forgotten before its next piece is read."""
    distance: int = 1536
    """Bytes ahead of a loop of a few operations for each vector: the latency of memory times the rate of the loop."""
    far_distance: int = 12 << 10
    """Bytes ahead of a loop that reads several rows, or whole lines, in each iteration."""
    strided_distance: int = 16
    """Steps ahead of a strided read: as many cycles as the last-level cache takes, where each step is a few products."""
    block_distance: int = 8 << 10
    """Bytes ahead of a loop over blocks of rows: one block of this size, several of smaller ones."""
    near_distance: int = 4 << 10
    """The same of blocks without gaps, to either cache."""
    row_distance: int = 32 << 10
    """Bytes of whole rows ahead of a loop that reads each of them several times, or of blocks that go through a buffer."""
    least_row: int = 512
    """Bytes of a row below which hardware is beyond its end before it is read."""
    least_panel: int = 4096
    """Bytes of a panel below which requests cost as much as waiting."""


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """Elements of rows that several statements pass over in blocks, and when that pays (`scheduler.rewriting.rules`)."""

    read: int = 512
    """Of a block where rows come from memory, and consecutive in it."""
    computed: int = 256
    """Of a block that is computed, of rows in a block that are read twice, and of columns that several loops in order pass
    along: of wider ones too little stays in the cache."""
    columns: int = 64
    """Of a block where rows lie across memory."""
    streamed: int = 512
    """Vectors of accumulators, not elements, that rows stream past at once: more leave the first-level cache, and of fewer the
    pieces of rows are so short that prefetchers lose their lead."""
    held: float = 4.0
    held_across: float = 1.0
    """First-level caches that a row exceeds where its sum and its squares go by blocks, and second-level ones that the lines of
    rows across memory do."""
    held_read: float = 1.0
    held_computed: float = 2.0
    """Second-level caches that a row from memory fills where maxima and exponentials go by blocks, and that a tile of computed
    rows does: from there a second pass over a row is cheaper than rescaling blocks."""


@dataclass(frozen=True, slots=True)
class TransposeBlocks:
    """Bytes of consecutive memory that blocks of transposing copies read and write (`scheduler.loops.crossing`)."""

    short: int = 256
    """Of a row of the result that is no stream by itself: whether it passes the caches by is known at the call only, or it is
    put together with others to whole lines."""
    streamed_read: int = 512
    streamed_write: int = 128
    """Where the result passes the caches by: few rows of the operand are open at a time."""
    whole: int = 2048
    """Of a row that is read where rows of the result are whole lines, so that few pages of the result are open at a time; of a
    row of the result that a block takes whole; and of one that is staged though lines at its ends are not streamed."""
    long_read: int = 12 << 10
    """Of rows from which blocks follow each other along those that are read after all, and threads share out the rows."""
    meeting_lines: int = 8
    """Lines of each row that are written at a time where many rows lie a multiple of a page apart and vectors are shorter than
    lines."""
