"""The result of range inference: intervals of indices and tensors, preconditions, subscripts to guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

import islpy

from polyc.diagnostics import Diagnostic, Span
from polyc.ir.expr import Const, Expr, Read, Size, evaluate, walk
from polyc.ir.segments import SegmentRuns
from polyc.ir.signature import HostCheck
from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Interval:
    """``lower <= x < lower + extent``, both expressions over sizes."""

    lower: Expr
    extent: Expr

    @property
    def values(self) -> range:
        """All of them, where both are numbers."""
        first = evaluate(self.lower, {})
        return range(first, first + evaluate(self.extent, {}))


@dataclass(frozen=True, slots=True)
class GuardedSubscript:
    """A read whose subscript `dimension` cannot be proved inside (it depends on data): guarded at run time.

    `condition`: the read is only made where this holds (arms of `?:` that enclose it); None = always.
    In the program's own coordinates; `read` is compared by value with the reads of the statement.
    `shown`: the user's tensor and its dimension, where a rewriting has put another one in its place.
    """

    read: Read
    dimension: int
    condition: Expr | None
    shown: tuple[str, int] | None = None

    def map(self, change: Callable[[Expr], Expr]) -> GuardedSubscript:
        """The guard with `change` applied to its read, which stays one, and to its condition."""
        read = change(self.read)
        assert isinstance(read, Read)
        return replace(self, read=read, condition=None if self.condition is None else change(self.condition))


@dataclass(frozen=True, slots=True)
class DataCheck:
    """`violated` may hold at no point of a box: what bounds that data gives ask of it.

    It is tested when the kernel is called, before anything is written.  All of it is made of sizes, the indices of the box and
    reads of arguments.  `shown` is the element that `message` tells as ``{value}``; the point of the box is ``{at0}``, …."""

    box: tuple[tuple[str, Interval], ...]
    violated: Expr
    shown: Expr
    code: str
    message: str
    help: str
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, eq=False, slots=True)
class StatementRanges:
    indices: dict[str, Interval]
    domain: islpy.Set  # [sizes] -> { S[indices] }, exact, in the program's own coordinates
    guards: tuple[GuardedSubscript, ...] = ()
    region: islpy.Set | None = None  # [sizes] -> { init_S[elements] }, in the program's own coordinates
    """Of a reduction whose target has elements that nothing reads: those that are given the initial value."""


@dataclass(frozen=True, eq=False, slots=True)
class Ranges:
    """`statements` by statement name, `tensors` by version name (declared ones too).

    `context` holds what may be assumed of the sizes: not negative, and every `checks` condition.
    `warnings` are diagnostics for the user (a precondition that is only tested at the call).  `typical`: what estimates take
    symbolic sizes for; nothing that is proved depends on it.
    """

    parameters: tuple[str, ...]
    context: islpy.Set  # [sizes] -> { : }
    statements: dict[str, StatementRanges]
    tensors: dict[str, tuple[Interval, ...]]
    checks: tuple[HostCheck, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    typical: dict[str, int] = field(default_factory=dict)
    data_checks: tuple[DataCheck, ...] = ()
    """What the kernel tests of the elements of arguments before it does anything else."""
    segments: SegmentRuns | None = None
    """What the program is run for, where it is one for a single segment."""

    def trips(self, statement: str) -> dict[str, int | None]:
        """How many values the indices of a statement have, by estimate; None where it depends on sizes that are not known."""
        return {i: estimate_extent(own.extent, self.typical) for i, own in self.statements[statement].indices.items()}


def assume_sizes(ranges: Ranges, defined: Sequence[tuple[str, Expr]], typical: Mapping[str, int]) -> Ranges:
    """`ranges` with `typical` values of sizes, and of those in `defined` that are computed from them."""
    values = dict(typical)
    for name, expr in defined:
        value = estimate_extent(expr, values)
        if value is not None:
            values[name] = value
    return replace(ranges, typical=values)


def known_shape(box: Iterable[Interval]) -> list[int] | None:
    """The extents of a box, if all of them are numbers."""
    extents = [i.extent for i in box]
    known = [int(e.value) for e in extents if isinstance(e, Const)]
    return known if len(known) == len(extents) else None


def estimate_extent(extent: Expr, typical: Mapping[str, int]) -> int | None:
    """A number, at least 0, for an extent over sizes in `typical`; None where it depends on others."""
    if not isinstance(extent, Const) and any(isinstance(node, Size) and node.name not in typical for node in walk(extent)):
        return None
    return max(0, evaluate(extent, typical))
