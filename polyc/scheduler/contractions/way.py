"""One way to compute a sum of products: its vector, register tile, copies, and the order of the sum."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod

from polyc.code_limits import MAX_UNROLLED
from polyc.machine import Machine
from polyc.records import dataclass
from polyc.scheduler.contractions.contraction import Contraction, View


@dataclass(frozen=True, slots=True)
class Way:
    """What is decided of a contraction before it is weighed, at sizes that are known then: it stays the same at others.

    `side` is the number of the vector operand among the views; `rows` are elements of left indices in the register tile, beside
    `vectors` times `lanes` of the vector index."""

    side: int
    vector: str
    lanes: int
    rows: Mapping[str, int]
    vectors: int
    packs_vector: bool
    packs_rows: bool
    shared: bool
    """Whether the rows share the loads of the vector operand; else they share the broadcasts of the other one."""
    order: tuple[str, ...]
    """Reduction indices, outermost first."""
    block: tuple[str, int] | None
    """A reduction index that is cut into blocks of so many."""
    is_whole: bool = False
    """Whether the vector operand is copied at once, not panel by panel."""

    @property
    def n_rows(self) -> int:
        return prod(self.rows.values())

    @property
    def width(self) -> int:
        """Elements of the vector index in the tile."""
        return self.vectors * self.lanes

    @property
    def tile(self) -> dict[str, int]:
        """Elements of each left index in the register tile, where more than one; the vector index comes last."""
        return {i: size for i, size in self.rows.items() if size > 1} | {self.vector: self.width}

    def views(self, c: Contraction) -> tuple[View, View]:
        """The vector operand and the row operand."""
        return c.views[self.side], c.views[1 - self.side]


def loads_of_rows(c: Contraction, view: View, rows: Mapping[str, int], vectors: int) -> float:
    """Rows to load in each step for the rows of a tile that shares broadcasts only: with the loops over windows along the rows
    unrolled, a row of the operand is loaded once for all products that it is part of."""
    n_rows = prod(rows.values())
    if not c.has_known_trips(c.summed):
        return n_rows
    for form in view.operand.forms:
        along, window = [i for i, _ in form if i in rows], [i for i, _ in form if i in c.summed]
        if len(form) == 2 and along and window and rows[along[0]] == n_rows:
            steps, by = dict(form)[along[0]], dict(form)[window[0]]
            n = c.trips[window[0]]
            if vectors * n_rows * n <= MAX_UNROLLED:
                return len({steps * r + by * k for r in range(n_rows) for k in range(n)}) / n
    return n_rows


def reduction_order(c: Contraction, view: View, other: View, rows: tuple[str, ...]) -> tuple[str, ...]:
    """Reduction indices, outermost first: the row operand is read along its memory, its smallest stride innermost.

    Where rows share broadcasts only, those that walk over the same elements are innermost: unrolled they share loads."""
    walked = {i for form in view.operand.forms for i, _ in form if any(j in rows for j, _ in form)}
    last = [i for i in c.summed if i in walked]
    own = [i for i in c.summed if other.moves(i) and i not in last]
    rest = [i for i in c.summed if not other.moves(i) and i not in last]
    return (*rest, *sorted(own, key=lambda i: -abs(other.strides[i])), *last)


def find_block(c: Contraction, order: tuple[str, ...], view: View, panel: int, target: Machine) -> tuple[str, int] | None:
    """Which reduction index to cut so that a packed panel stays in the second-level cache, and how often."""
    if panel <= 0.6 * target.l2:
        return None
    plain = [i for i in order if view.operand.is_plain(i)]
    if not plain:
        return None
    index = plain[0]
    wanted = ceil(panel / (0.5 * target.l2))
    size = ceil(c.trips[index] / wanted)
    if size >= 16:
        size = ceil(size / 16) * 16
    return (index, size) if 1 <= size < c.trips[index] else None
