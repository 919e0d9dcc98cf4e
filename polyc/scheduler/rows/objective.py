"""The cost of a row: a plain list of terms, each a number per statement dimension."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from polyc.records import dataclass
from polyc.scheduler.rows.model import AccessShape, Model

UnitRow = Mapping[str, int]
"""One dimension of every statement: a row of unit coefficients."""

TOLERANCE = 0.02
"""Part of the largest footprint by which fusion may worsen contiguity."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the parts of a row's cost: of elements moved over the group's largest footprint, and of its dimensions."""

    contiguity: float = 10.0
    stride: float = 0.5
    text: float = 0.01
    reduction: float = 5.0
    extent_one: float = 3.0


WEIGHTS = Weights()


@dataclass(frozen=True, slots=True)
class Costs:
    """Cost of using dimension d of a statement as part of the next row of a group: a row costs the sum.

    `contiguity`: elements of accesses whose last index moves with d while no other index does: minimised at every level, so
    that stride-1 dimensions come last.  `total` adds the order of strides (outermost array dimensions first), reduction
    dimensions and extents of 1 last, and the order of the text; all over the group's largest footprint.
    """

    contiguity: dict[str, tuple[int, ...]]
    total: dict[str, tuple[float, ...]]
    largest: int

    def row_contiguity(self, row: UnitRow) -> int:
        return sum(self.contiguity[name][d] for name, d in row.items())

    def row_total(self, row: UnitRow) -> float:
        return sum(self.total[name][d] for name, d in row.items())


def internal_tensors(model: Model, names: Collection[str]) -> frozenset[str]:
    """Tensors that are written and read inside the group only: their accesses vanish from memory."""
    inside = set(names)
    found = set()
    for name in names:
        tensor = next(a.tensor for a in model.statements[name].accesses if a.is_write)
        readers = model.readers.get(tensor, frozenset())
        if readers and tensor not in model.outputs and readers <= inside and model.writers[tensor] <= inside:
            found.add(tensor)
    return frozenset(found)


def group_costs(model: Model, names: Collection[str]) -> Costs:
    """Costs of all dimensions of the statements `names` when they share a row."""
    internal = internal_tensors(model, names)
    largest = max(a.footprint for name in names for a in model.statements[name].accesses)
    contiguity: dict[str, tuple[int, ...]] = {}
    total: dict[str, tuple[float, ...]] = {}
    first = min(names, key=lambda name: model.statements[name].position)
    for name in names:
        s = model.statements[name]
        visible = [a for a in s.accesses if a.tensor not in internal]
        own, sums = [], []
        for d in range(s.n_dims):
            moved = sum(_contiguity(a, d) for a in visible)
            cost = (WEIGHTS.contiguity * moved + WEIGHTS.stride * sum(_stride_order(a, d) for a in visible)) / largest
            # The first statement's own order breaks ties between rows that pair dimensions differently.
            cost += (1.1 if name == first else 1.0) * WEIGHTS.text * d
            cost += WEIGHTS.reduction * (d not in s.fixed) + WEIGHTS.extent_one * (s.extents[d] == 1)
            own.append(moved)
            sums.append(cost)
        contiguity[name], total[name] = tuple(own), tuple(sums)
    return Costs(contiguity, total, largest)


def _contiguity(access: AccessShape, d: int) -> int:
    if not access.moves or d not in access.moves[-1] or d in access.far or any(d in moved for moved in access.moves[:-1]):
        return 0
    return access.footprint


def _stride_order(access: AccessShape, d: int) -> float:
    rank = len(access.moves)
    return sum(access.footprint * position / rank for position, moved in enumerate(access.moves) if d in moved)


def fusion_gain(model: Model, together: Collection[str], apart: tuple[Collection[str], Collection[str]]) -> int:
    """Elements saved when both groups share a row: write and read of tensors that become internal, read once each."""
    new = internal_tensors(model, together) - internal_tensors(model, apart[0]) - internal_tensors(model, apart[1])
    gain = 0
    for tensor in new:
        (*readers,) = model.readers[tensor]
        accesses = [a for a in model.statements[readers[0]].accesses if a.tensor == tensor and not a.is_write]
        if len(readers) != 1 or len(accesses) != 1 or not follows_closely(model, tensor, readers[0]):
            continue  # a window over it, not element by element: iterations of the shared row pass whole columns on
        if reads_once(accesses[0], model.statements[readers[0]].n_dims):
            gain += 2 * accesses[0].footprint
    return gain


def follows_closely(model: Model, tensor: str, reader: str) -> bool:
    """Whether every dimension of the reader coincides with one of the writer."""
    edges = [e for e in model.edges if e.sink == reader and e.source in model.writers[tensor]]
    n_dims = model.statements[reader].n_dims
    return bool(edges) and all({b for _, b in e.unit_pairs} == set(range(n_dims)) for e in edges)


def reads_once(access: AccessShape, n_dims: int) -> bool:
    return all(len(m) == 1 for m in access.moves) and len({d for m in access.moves for d in m}) == n_dims == len(access.moves)
