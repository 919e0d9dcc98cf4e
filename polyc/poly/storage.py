"""Where the elements of a tensor version live: a buffer, folded modulo tile sizes where only part of it is alive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from polyc.ir.expr import Expr, int_const
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Panel:
    """Dimension `dimension` is cut into panels of `size`: cell ``[e_d // size, the other coordinates, e_d mod size]``.

    The number of panels is rounded up; what lies behind the last element is never read."""

    dimension: int
    size: int


@dataclass(frozen=True, slots=True)
class Folding:
    """Element ``e`` of a version lies in cell ``[e_d mod moduli[d]]`` of `buffer`; None keeps ``e_d`` itself.

    space argument: memory of the caller.  shared: workspace, one copy.  thread: workspace, one copy per thread.
    Several versions may share one buffer (an output updated in place).
    """

    buffer: str
    moduli: tuple[int | None, ...]
    space: Literal["argument", "shared", "thread"]
    panel: Panel | None = None
    """How an argument that polyc itself made is laid out; it moves elements, but never two into one cell."""


def panel_shape(shape: Sequence[Expr], panel: Panel) -> tuple[Expr, ...]:
    """Extents of the buffer of a tensor in panels: number of panels, the other extents, width."""
    from polyc.ir.simplify import simplify_int  # a kernel that is found in the cache asks for no shape

    extent, width = shape[panel.dimension], int_const(panel.size)
    count = simplify_int((extent + (panel.size - 1)) // width)
    return (count, *(e for d, e in enumerate(shape) if d != panel.dimension), width)


Storage = Mapping[str, Folding]
"""A folding for every tensor version by name."""
