"""Where the elements of a tensor version live: a buffer, folded modulo tile sizes where only part of it is alive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Folding:
    """Element ``e`` of a version lies in cell ``[e_d mod moduli[d]]`` of `buffer`; None keeps ``e_d`` itself.

    space argument: memory of the caller.  shared: workspace, one copy.  thread: workspace, one copy per thread.
    Several versions may share one buffer (an output updated in place).
    """

    buffer: str
    moduli: tuple[int | None, ...]
    space: Literal["argument", "shared", "thread"]


Storage = Mapping[str, Folding]
"""A folding for every tensor version by name."""
