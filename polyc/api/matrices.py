"""The matrices in compressed rows among the inputs of an operator: one argument of a call, three arrays of its program.

What a call gives for them is taken apart before anything else looks at it (`Matrices.expand`).  Their shapes take part in
finding sizes as those of arrays do: no array tells how many columns there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from polyc.api.bind import bound_twice
from polyc.api.sources import shapes_key
from polyc.ir.expr import Size
from polyc.ir.program import CompressedRows
from polyc.records import replace
from polyc.runtime.arguments import Call, unknown_name
from polyc.runtime.compressed import read_matrix
from polyc.runtime.plan_table import PlanTable
from polyc.runtime.sizes import Formal

Shape = tuple[int, ...]


def shape_sizes(matrices: Iterable[CompressedRows], shapes: Mapping[str, Shape]) -> dict[str, int]:
    """The sizes that the shapes of matrices tell."""
    pairs = ((e, n) for m in matrices for e, n in zip(m.shape, shapes.get(m.name, ()), strict=False))
    return {e.name: n for e, n in pairs if isinstance(e, Size)}


class Matrices:
    """Those of one operator; `bound` are the shapes of those that no call gives."""

    def __init__(self, matrices: Iterable[CompressedRows], bound: Mapping[str, Shape]) -> None:
        self._matrices = {m.name: m for m in matrices}
        self._owners = {part: m for m in self._matrices.values() for part in m.parts}
        self.bound = dict(bound)

    def gather(self, names: Iterable[str]) -> tuple[str, ...]:
        """The inputs of a call by those of the program: a matrix for its parts."""
        return tuple(dict.fromkeys(self._owners[n].name if n in self._owners else n for n in names))

    def expand(self, call: Call, names: Sequence[str]) -> Call:
        """The call with arrays for the matrices among its inputs `names`, and their shapes."""
        inputs, shapes = self._take_apart(zip(names, call.inputs, strict=True))
        sizes = shape_sizes(self._matrices.values(), shapes)
        return replace(call, inputs=tuple(inputs.values()), shapes=shapes, shape_sizes=sizes)

    def call_planned(self, plans: PlanTable, names: Sequence[str], inputs: Sequence[Any], out: Any) -> Any:
        """The result of a call of all inputs by position that is planned; else None."""
        if len(inputs) != len(names):
            return None
        found, shapes = self._take_apart(zip(names, inputs, strict=True))
        arrays = plans.with_bound(tuple(found.values()))
        if arrays is None:
            return None
        table = plans.at(arrays).under(shapes_key(shapes))
        if out is None:
            return table.call(*arrays)
        return table.call_into(*arrays, out) if type(out) is np.ndarray else None

    def expand_bound(
        self, operator: str, inputs: Mapping[str, Any], formals: Iterable[Formal]
    ) -> tuple[dict[str, Any], dict[str, Shape]]:
        """Inputs that are to be bound by name, and the shapes of all matrices that are bound then."""
        names = self.gather(f.name for f in formals)
        for name in inputs:
            if name in self.bound:
                raise bound_twice(operator, name)
            if name not in names:
                raise unknown_name(operator, name, names)
        arrays, shapes = self._take_apart(inputs.items())
        return arrays, {**self.bound, **shapes}

    def _take_apart(self, inputs: Iterable[tuple[str, Any]]) -> tuple[dict[str, Any], dict[str, Shape]]:
        arrays: dict[str, Any] = {}
        shapes: dict[str, Shape] = {}
        for name, value in inputs:
            matrix = self._matrices.get(name)
            if matrix is None:
                arrays[name] = value
            else:
                parts, shapes[name] = read_matrix(value, matrix)
                arrays |= zip(matrix.parts, parts, strict=True)
        return arrays, shapes

    def declare(
        self, formals: Sequence[Formal], shapes: Mapping[str, Shape], given: Mapping[str, Shape]
    ) -> tuple[list[Formal], dict[str, Shape]]:
        """Declarations and shapes of arrays with those of the matrices, which tell sizes first."""
        own = [Formal(m.name, None, m.shape, m.span) for m in self._matrices.values()]
        return [*own, *formals], {**shapes, **self.bound, **given}
