"""The LoopNest: a small imperative IR after isl's AST, the last stop before LLVM.

Expressions are those of `ir.expr` with `Index` = loop variable, `Size` = integer parameter of the entry point
(`LoopNest.parameters`: all size symbols, then one byte stride ``A.stride0``, ``A.stride1`` … per array dimension),
`Read` = element of a `Buffer`.  Scalar meaning: a loop nest run one iteration after the other, whatever the loops' kinds,
gives the result; kinds say how iterations may be grouped.  The interpreter (`ir.interpret_loops`) runs that meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import field
from typing import Literal

from polyc.ir.expr import Expr, mentions
from polyc.ir.segments import SegmentRuns
from polyc.ir.simplify import difference, product_of
from polyc.ir.types import DType
from polyc.records import dataclass

Space = Literal["argument", "shared", "thread", "register"]
"""argument: memory of the caller.  shared: workspace, one copy.  thread: workspace, one copy per thread of the team.
register: a small constant-shaped tile that lives in registers (every access sits in unrolled and vector loops)."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """An array.  Element ``[s0, s1, …]`` lies at ``base + sum(s_d * strides[d])`` bytes.

    `strides` are byte strides: constants, or expressions over parameters.  `position` is the place in ``data`` for arguments.
    `aligned`: base is 64-byte aligned (workspace always).  `may_alias`: names of other buffers that may be the same memory.
    `memory`: the buffer of the workspace that begins at the same address; no element of one is read once the other is written.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    space: Space
    position: int | None = None
    may_alias: tuple[str, ...] = ()
    memory: str = ""

    @property
    def n_bytes(self) -> Expr:
        """Bytes of all elements."""
        return product_of(self.shape, self.dtype.itemsize)

    @property
    def place(self) -> str:
        """The buffer that has the memory."""
        return self.memory or self.name


@dataclass(frozen=True, slots=True)
class Store:
    """``buffer[subscripts] = value``."""

    buffer: str
    subscripts: tuple[Expr, ...]
    value: Expr
    statement: str = ""
    streamed: bool = False
    """Its vectors lie in one cache line each, and go to memory directly (a promise and a hint: it means the same)."""


@dataclass(frozen=True, slots=True)
class Update:
    """``buffer[subscripts] = buffer[subscripts] op value`` with `op` a monoid of `expr.MONOIDS`."""

    buffer: str
    subscripts: tuple[Expr, ...]
    op: str
    value: Expr
    statement: str = ""


@dataclass(frozen=True, slots=True)
class Guard:
    """Report check number `check` with `value` and `bound` unless ``0 <= value < bound`` (or `condition` is false).

    The reads that follow use a clamped subscript, so that nothing outside is touched either way.  With `shown`, those two are
    reported instead of value and bound."""

    check: int
    value: Expr
    bound: Expr
    condition: Expr | None = None
    shown: tuple[Expr, Expr] | None = None

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.value, self.bound, *(() if self.condition is None else (self.condition,)), *(self.shown or ()))

    def map(self, change: Callable[[Expr], Expr]) -> Guard:
        """The check with `change` applied to all its expressions."""
        condition = None if self.condition is None else change(self.condition)
        shown = None if self.shown is None else (change(self.shown[0]), change(self.shown[1]))
        return Guard(self.check, change(self.value), change(self.bound), condition, shown)


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Say that the `size` bytes from ``buffer[subscripts]`` on will be read soon; it means nothing.

    What the subscripts read is read, and must be inside; the element itself need not exist."""

    buffer: str
    subscripts: tuple[Expr, ...]
    size: int
    level: Literal[1, 2] = 1
    """The cache that they come to."""


@dataclass(frozen=True, slots=True)
class If:
    condition: Expr
    body: tuple[Node, ...]
    orelse: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class InitialValue:
    """What the accumulators of `buffer` start from: `value`, over the variables of the expanded loops inside the loop that
    holds them.  `nest` stores it to memory: its meaning, and what runs where the buffer cannot be held."""

    buffer: str
    value: Expr
    nest: tuple[Node, ...]


LoopKind = Literal["serial", "parallel", "vector", "unroll", "scan"]


@dataclass(frozen=True, slots=True)
class Loop:
    """``for var in range(lower, upper, step)``.

    kind `parallel`: iterations are independent; split into one contiguous part per thread of the team that came, where
    `parallel_if` (None = always) holds.  Parallel loops are not nested.  With a `least_part`, into several parts of so
    many iterations or more, which threads take one by one; where `is_uneven`, the work of an iteration grows or shrinks along
    the loop, and the parts of a thread lie apart.  With a `stream`, iterations need each other: each run of the loop of that
    name inside is a column, and columns may run at the same time if each begins its iteration at a value of `stream` only
    when all columns before it have left that value behind.
    kind `vector`: iterations are taken `lanes` at a time (times `interleave` vectors in flight); step is 1.  The rest is
    masked, or runs one by one where the target has no masks.
    kind `unroll`: expanded completely; `max_trip` is known, lower is 0 and step 1.  With a non-constant `upper` the copies
    are predicated: reads outside are not done, stores outside are dropped.
    kind `scan`: iterations run in order, but each combines what the one before wrote by a scan (`ir.scans`), and may do so
    `lanes` at a time: their values first, then their prefixes.
    A vector loop with `max_trip` not None is expanded like an unrolled one, in ceil(max_trip / lanes) vectors, the lanes
    at or beyond `upper` masked off when `upper` is not constant (or no multiple of `lanes`).

    `registers`: buffers whose `Update` targets inside this loop do not depend on `var` and are held in registers while it
    runs: per unrolled copy and lane one accumulator, loaded before the loop and stored behind it.  If `var` (or a vector
    loop variable inside) is a reduction variable, that is, the target does not depend on it, each lane and each interleaved
    vector has an accumulator of its own that starts at the identity; they are combined pairwise, in a fixed tree, at the end.
    """

    var: str
    lower: Expr
    upper: Expr
    step: int
    kind: LoopKind
    body: tuple[Node, ...]
    max_trip: int | None = None
    lanes: int = 1
    interleave: int = 1
    registers: tuple[str, ...] = ()
    initial: tuple[InitialValue, ...] = ()
    """Before the first iteration (also where there is none) these elements get their initial values."""
    parallel_if: Expr | None = None
    least_part: int = 0
    is_uneven: bool = False
    stream: str | None = None
    tile: int | None = None
    """Iterations of a whole tile, for a loop over one that may begin behind 0: such a loop is not expanded."""
    is_apart: bool = False
    """Iterations of this serial loop are tiles that need nothing of each other: `align_tiles` may let them overlap."""

    @property
    def is_expanded(self) -> bool:
        """Whether all iterations are written one after the other: copies, or vectors."""
        return self.max_trip is not None and self.kind in ("unroll", "vector")


Node = Store | Update | Guard | Prefetch | If | Loop


def known_length(loop: Loop) -> int | None:
    """The distance of a loop's bounds, where it is a constant: its iterations, if its step is 1."""
    return difference(loop.upper, loop.lower)


def do_bounds_depend(loops: Iterable[Loop], *variables: str) -> bool:
    """Whether a bound of one of the loops depends on one of these variables."""
    return any(mentions(e, *variables) for loop in loops for e in (loop.lower, loop.upper))


def tile_size(loop: Loop) -> int | None:
    """Iterations of the whole tile, for a loop over one."""
    return loop.tile if loop.tile is not None else loop.max_trip if loop.is_expanded else None


@dataclass(frozen=True, slots=True)
class Fold:
    """Sizes that a call may replace: where all of `strides` (the stride of a dimension of size `first`, and that of the next
    one, of size `second`) say that ``stride == second * next``, `first` is 1 and `second` the product of both.

    It means the same: every array is as many bytes in the same order, and every element is computed from the same ones."""

    first: str
    second: str
    strides: tuple[tuple[str, Expr], ...]
    alone: bool = False
    """Only where one thread runs: others would have nothing to do.  No buffer's extents depend on it."""


@dataclass(frozen=True, slots=True)
class LoopNest:
    """A whole entry point.  Argument buffers come first, by `position`; then workspace buffers."""

    name: str
    parameters: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Node, ...]
    checks: tuple[str, ...] = field(default=())
    """Names of the run-time guards by number, for remarks; the kernel signature holds their messages."""
    offsets: tuple[str, ...] = ()
    """Arguments of which the parameter ``<name>.offset`` is known as well: the bytes from the beginning of a cache line to the
    array's.  The entry point finds them from the addresses."""
    folds: tuple[Fold, ...] = ()
    """What the entry point does to the sizes, before anything else."""
    preconditions: tuple[Node, ...] = ()
    """What runs first: loops of checks of arguments.  Where one fails the entry point returns, and has written nothing."""
    exact_quotients: bool = False
    """Whether every quotient is the number nearest to it, as with ``reassociate=False``; else its last bit may differ."""
    segments: SegmentRuns | None = None
    """What the body is run for, where it is one for a single segment, whose sizes are parameters, too (`ir.segment_runs`)."""

    @property
    def aliased(self) -> frozenset[str]:
        """Buffers that may be the same memory as others."""
        return frozenset(b.name for b in self.buffers if b.may_alias)

    def memory_of(self, names: Collection[str]) -> set[str]:
        """These buffers, and those that may be the same memory as one of them."""
        pairs = [(b.name, other) for b in self.buffers for other in b.may_alias]
        return {*names, *(a for a, b in pairs if b in names), *(b for a, b in pairs if a in names)}

    def buffer(self, name: str) -> Buffer:
        for b in self.buffers:
            if b.name == name:
                return b
        raise KeyError(name)
