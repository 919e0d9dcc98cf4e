"""All workloads by name, in the order they are reported."""

from __future__ import annotations

from benchmarks import gradients, pipelines
from benchmarks.workload import Workload, in_double
from benchmarks.workloads import (
    contractions,
    convolutions,
    derived,
    fusion,
    layers,
    normalisations,
    polybench,
    programs,
    ragged,
    recurrences,
    samples,
    solvers,
    sparse,
    stencils,
    table,
)

_SINGLE: dict[str, Workload] = {
    w.name: w
    for module in (normalisations, contractions, convolutions, layers, stencils, recurrences, table, fusion, programs, samples)
    for w in module.WORKLOADS
}
_TABLE = {group: tuple(names) for group, names in table.GROUPS.items()}

_DOUBLE = {w.name: w for w in (in_double(_SINGLE[name]) for names in _TABLE.values() for name in names)}

_POLYBENCH = {w.name: w for w in polybench.WORKLOADS}

_BOARD = {name: derived.add_peers(w) for name, w in (_SINGLE | _DOUBLE | _POLYBENCH).items()}

WORKLOADS: dict[str, Workload] = _BOARD | {
    w.name: w for module in (sparse, ragged, solvers, pipelines, gradients) for w in module.WORKLOADS
}

BOARD = tuple(_BOARD)
"""Those that are measured where none are named: sparse and ragged ones, hundreds of them, solvers, pipelines, which take long,
and gradients are asked for by their groups."""


def _both(names: tuple[str, ...]) -> tuple[str, ...]:
    return (*names, *(f"{name}_f64" for name in names))


GROUPS: dict[str, tuple[str, ...]] = {
    "contraction": tuple(name for names in _TABLE.values() for name in _both(names)),
    **{f"contraction_{group}": _both(names) for group, names in _TABLE.items()},
    **fusion.GROUPS,
    **polybench.GROUPS,
    **recurrences.GROUPS,
    **sparse.GROUPS,
    **ragged.GROUPS,
    **solvers.GROUPS,
    **pipelines.GROUPS,
    **gradients.GROUPS,
    "programs": tuple(w.name for module in (programs, samples) for w in module.WORKLOADS),
}
"""Workloads that are asked for by one name; contractions in single and in double precision."""

__all__ = ["BOARD", "GROUPS", "WORKLOADS"]
