"""Steps of stencils over time in Halide: one sweep of a grid is a pipeline, scheduled by an autoscheduler; sweeps take turns.

Halide has no schedule over time: a chain of as many stages as there are steps would be one, which its autoschedulers do not end
with.  The border of a grid stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _jacobi_2d(halide: Any, at: Callable[..., Any]) -> Any:
    return halide.f64(0.2) * (at(0, 0) + at(0, -1) + at(0, 1) + at(1, 0) + at(-1, 0))


def _heat_3d(halide: Any, at: Callable[..., Any]) -> Any:
    def along(*d: int) -> Any:
        return halide.f64(0.125) * (at(*d) - halide.f64(2) * at(0, 0, 0) + at(*(-n for n in d)))

    return along(1, 0, 0) + along(0, 1, 0) + along(0, 0, 1) + at(0, 0, 0)


SWEEPS = {"jacobi-2d": _jacobi_2d, "heat-3d": _heat_3d}
"""The new value of an element inside the grid, of the elements ``at(*distances)`` of the grid before; each step of PolyBench's
is two sweeps."""
