"""Storage of tensor versions: which cell of which buffer holds an element.  Decided by the scheduler, proved by `legality`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Space = Literal["argument", "shared", "thread"]
"""argument: memory of the caller.  shared: workspace, one copy.  thread: workspace, one copy per thread."""


@dataclass(frozen=True, slots=True)
class Folding:
    """Element e of a tensor version lies in the cell ``[e_d mod moduli[d]]`` of `buffer` (None: ``e_d`` itself).

    Several versions may share a buffer: an accumulated output and the content it starts from, versions of one name that are
    updated in place.
    """

    buffer: str
    moduli: tuple[int | None, ...]
    space: Space


Storage = Mapping[str, Folding]
"""Folding by tensor version."""
