"""Estimated cycles of one reduction under a choice of its vector index: arithmetic, copies, stores, masks.

Rough on purpose: it only has to rank a handful of choices, and every constant was measured on the kernels it ranks.
"""

from __future__ import annotations

from collections.abc import Iterable

from polyc.ir.expr import Index, Select, walk
from polyc.poly.scop import ScopStatement
from polyc.scheduler.accesses import AccessMotion, index_trips

TRANSPOSING_COPY = 1.2
"""Cycles per element of a copy that transposes."""

NEAR_STORE, FAR_STORE, FAR_STRIDE = 1.0, 4.0, 2048
"""Cycles per element of a store along a longer stride, below and from that many bytes (sets of the cache collide)."""


def _volume(s: ScopStatement, indices: Iterable[str]) -> int:
    trips, result = index_trips(s), 1
    for i in indices:
        result *= trips[i]
    return result


def cycles_along(
    s: ScopStatement,
    motions: list[AccessMotion],
    operand: AccessMotion,
    vector: str,
    lanes: int,
    itemsize: int,
    is_packed: bool,
) -> float:
    """Estimated cycles: two vector multiply-adds each, the copy, and the stores (lane by lane along a longer stride)."""
    trip = index_trips(s)[vector]
    compute = _volume(s, s.indices) / (2 * lanes) * (-(-trip // lanes) * lanes / trip)
    if _volume(s, (i for i in s.left if operand.motion(i) == "invariant")) == 1:
        compute *= 2  # no row shares the loads
    copied = _volume(s, (i for i in s.indices if operand.motion(i) != "invariant"))
    copy = 0.0 if not is_packed else copied * (0.25 if operand.motion(vector) == "unit" else TRANSPOSING_COPY)
    store = 0.1
    if motions[0].motion(vector) != "unit":
        store = FAR_STORE if _store_stride(s, vector) * itemsize >= FAR_STRIDE else NEAR_STORE
    masks = 0.0
    if _is_tested(s, vector):  # a border or mask that moves with the lanes: one mask per vector and row tile
        rows = max(1, min(14, _volume(s, (i for i in s.left if operand.motion(i) == "invariant"))))
        masks = _volume(s, s.indices) / lanes / rows
    return compute + copy + masks + _volume(s, s.left) * store


def _store_stride(s: ScopStatement, vector: str) -> int:
    """Elements between two lanes of a store along `vector`."""
    trips, stride = index_trips(s), 1
    for sub in reversed(s.subscripts):
        names = [n.name for n in walk(sub) if isinstance(n, Index)]
        if vector in names:
            return stride
        for name in names:
            stride *= trips[name]
    return stride


def _is_tested(s: ScopStatement, vector: str) -> bool:
    """Whether a selection asks for the vector index."""
    tests = (e.condition for e in walk(s.value) if isinstance(e, Select))
    return any(isinstance(n, Index) and n.name == vector for test in tests for n in walk(test))


def cycles_along_reduction(s: ScopStatement, motions: list[AccessMotion], lanes: int) -> float:
    """The same with a reduction index as the vector, everything in place: lanes are summed up for every result."""
    trips = index_trips(s)
    best = float("inf")
    for i in s.reduction_indices:
        if trips[i] >= lanes and all(m.motion(i) == "unit" for m in motions if not m.is_write):
            best = min(best, 1.3 * _volume(s, s.indices) / (2 * lanes) + 1.5 * _volume(s, s.left))
    return best
