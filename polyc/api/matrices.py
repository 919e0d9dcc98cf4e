"""The sparse matrices and sequences among the inputs and results of an operator: one object of a call, arrays of its program.

What a call gives for them is taken apart before anything else looks at it (`Matrices.expand`).  Their shapes take part in
finding sizes as those of arrays do: no array tells how many columns there are.  A result that has the pattern of an input is an
array of entries until the end, and then an object of the same kind (`Matrices.run`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.api.bind import bound_twice
from polyc.api.sources import constants_key, shapes_key
from polyc.ir.expr import Size
from polyc.ir.program import Compressed, Program, Return
from polyc.ir.ragged import Ragged
from polyc.ir.types import from_numpy
from polyc.records import dataclass, replace
from polyc.runtime.arguments import Call, sort_outputs, unknown_name
from polyc.runtime.arrays import argument_error
from polyc.runtime.compressed import check_subscripts, read_matrix, take_entries, with_entries
from polyc.runtime.plan_table import PlanTable, unpack
from polyc.runtime.ragged import check_same_offsets, make_like, read_ragged, take_values
from polyc.runtime.sizes import Formal

if TYPE_CHECKING:
    from polyc.api.sources import ProgramSource

Shape = tuple[int, ...]


def shape_sizes(matrices: Iterable[Compressed | Ragged], shapes: Mapping[str, Shape]) -> dict[str, int]:
    """The sizes that the shapes of matrices tell."""
    pairs = ((e, n) for m in matrices for e, n in zip(m.shape, shapes.get(m.name, ()), strict=False))
    return {e.name: n for e, n in pairs if isinstance(e, Size)}


@dataclass(frozen=True, slots=True)
class Shaped:
    """A bound matrix of which only the shape is needed."""

    shape: Shape


class Matrices:
    """Those of one operator; `bound` are those that no call gives."""

    def __init__(
        self,
        source: ProgramSource,
        inputs: Iterable[str],
        bound: Mapping[str, Any],
        plans: PlanTable,
        execute: Callable[[Sequence[Any], Any, Mapping[str, Any]], Any],
    ) -> None:
        """`inputs`: those of the program that calls give; `execute` runs a call, and gives arrays for sparse results."""
        self._plans, self._execute = plans, execute
        self._matrices = {m.name: m for m in source.compressed}
        self._owners = {part: m for m in self._matrices.values() for part in m.parts}
        self.names = self._gather(inputs)
        """The inputs of a call: a matrix for its parts."""
        self._constants = source.constants
        self._bound = dict(bound)
        self.bound: dict[str, Shape] = {
            n: () if isinstance(self._matrices[n], Ragged) else tuple(value.shape) for n, value in bound.items()
        }
        fixed = source.fixed
        self._may_wrap = fixed is None or any(r.pattern is not None for r in fixed.returns)
        """Whether results may be sparse: then every call of the operator comes here, also where its matrices are bound."""
        self._returns: dict[Hashable, tuple[Return, ...]] = {}
        """Results by the constants of a call, which decide whether they are sparse."""

    def _gather(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._owners[n].name if n in self._owners else n for n in names))

    def expand(self, call: Call) -> Call:
        """The call with arrays for the matrices among its inputs, and their shapes."""
        inputs, shapes = self._take_apart(zip(self.names, call.inputs, strict=True))
        sizes = shape_sizes(self._matrices.values(), shapes)
        shapes = self.bound | shapes if self._may_wrap else shapes
        return replace(call, inputs=tuple(inputs.values()), shapes=shapes, shape_sizes=sizes)

    def run(self, inputs: Sequence[Any], out: Any, named: Mapping[str, Any]) -> Any:
        """The results of a call."""
        result = None if named else self._call_planned(inputs, out)
        if result is None:
            result = self._execute(inputs, out, named)
        if not self._may_wrap:
            return result
        returns = self._returns[constants_key({n: v for n, v in named.items() if n in self._constants})]
        if all(r.pattern is None for r in returns):
            return result
        given = sort_outputs([r.name for r in returns], (), out)
        operands = {**self._bound, **dict(zip(self.names, inputs, strict=False)), **named}
        values = result if isinstance(result, tuple) else (result,)
        return unpack(
            tuple(
                value if r.pattern is None or own is not None else self._wrap(r, operands[r.pattern], value)
                for r, value, own in zip(returns, values, given, strict=True)
            )
        )

    def _wrap(self, result: Return, operand: Any, value: np.ndarray) -> Any:
        m = self._matrices[str(result.pattern)]
        if isinstance(m, Ragged):
            return make_like(operand, value, read_ragged(operand, m).offsets, result.axis)
        return with_entries(operand, value)

    def take_outputs(self, program: Program, call: Call, given: Sequence[Any], inputs: Sequence[np.ndarray]) -> tuple[Any, ...]:
        """What a call gives for the results of `program`, with arrays for matrices; that these fit the inputs is checked."""
        self._returns[constants_key(call.constants)] = program.returns
        for matrix in self._matrices.values():
            lines = len(inputs[program.parameters.index(matrix.indptr)]) - 1
            if lines >= 1 << 31 and any(t.name.endswith(".row") for t in program.tensors):
                what = ("rows", "columns")[matrix.axis]
                message = f"{matrix.name} has {lines} {what}, and its sparse results number them in int32"
                raise argument_error("argument-size", message, matrix.span, "compute the result in parts of fewer rows")
        if all(value is None for value in given):
            return tuple(given)
        arrays = dict(zip(program.parameters, inputs, strict=True))
        return tuple(
            value if r.pattern is None or value is None else self._take_output(value, r, arrays, call.shapes)
            for r, value in zip(program.returns, given, strict=True)
        )

    def _take_output(self, value: Any, result: Return, arrays: Mapping[str, np.ndarray], shapes: Mapping[str, Shape]) -> Any:
        m = self._matrices[str(result.pattern)]
        if isinstance(m, Ragged):
            return take_values(value, result.name, m, arrays, result.axis)
        return take_entries(value, result.name, m, arrays, shapes[m.name])

    def _call_planned(self, inputs: Sequence[Any], out: Any) -> Any:
        """The result of a call of all inputs by position that is planned; else None."""
        if len(inputs) != len(self.names):
            return None
        found, shapes = self._take_apart(zip(self.names, inputs, strict=True))
        arrays = self._plans.with_bound(tuple(found.values()))
        if arrays is None:
            return None
        table = self._plans.at(arrays).under(shapes_key(self.bound | shapes if self._may_wrap else shapes))
        if out is None:
            return table.call(*arrays)
        return table.call_into(*arrays, out) if type(out) is np.ndarray else None

    def expand_bound(self, operator: str, inputs: Mapping[str, Any], formals: Iterable[Formal]) -> dict[str, Any]:
        """Inputs that are to be bound by name, with arrays for matrices."""
        names = self._gather(f.name for f in formals)
        for name in inputs:
            if name in self.bound:
                raise bound_twice(operator, name)
            if name not in names:
                raise unknown_name(operator, name, names)
        return self._take_apart(inputs.items())[0]

    def keep(self, inputs: Mapping[str, Any], owned: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """All matrices that are bound where `inputs` are, too, of which the operator owns the arrays `owned`."""
        kept = dict(self._bound)
        for matrix in (m for m in self._matrices.values() if m.name in inputs):
            for part in matrix.subscripts:
                dtype = from_numpy(owned[part].dtype)
                assert dtype is not None
                check_subscripts(matrix, part, dtype)
            given = inputs[matrix.name]
            if isinstance(matrix, Ragged):
                offsets = owned[matrix.indptr] if matrix.subscripts else np.array(read_ragged(given, matrix).offsets)
                kept[matrix.name] = make_like(given, owned[matrix.data], offsets, matrix.axis)
                continue
            data, places, ends = (owned[part] for part in matrix.parts)
            kept[matrix.name] = with_entries(given, data, (places, ends)) if self._may_wrap else Shaped(tuple(given.shape))
        return kept

    def _take_apart(self, inputs: Iterable[tuple[str, Any]]) -> tuple[dict[str, Any], dict[str, Shape]]:
        arrays: dict[str, Any] = {}
        shapes: dict[str, Shape] = {}
        ragged: dict[str, Any] = {}
        for name, value in inputs:
            matrix = self._matrices.get(name)
            if matrix is None:
                arrays[name] = value
            elif isinstance(matrix, Ragged):
                packed = ragged[name] = read_ragged(value, matrix)
                shapes[name] = ()
                arrays |= zip(matrix.parts, packed, strict=False)
            else:
                parts, shapes[name] = read_matrix(value, matrix)
                arrays |= zip(matrix.parts, parts, strict=True)
        for m in self._matrices.values() if ragged else ():
            if isinstance(m, Ragged) and m.shares and (m.name in ragged or m.shares in ragged):
                first, other = (ragged.get(n) or self._bound.get(n) for n in (m.shares, m.name))
                if first is not None and other is not None:
                    check_same_offsets(read_ragged(first, m), read_ragged(other, m), m)
        return arrays, shapes

    def declare(
        self, formals: Sequence[Formal], shapes: Mapping[str, Shape], given: Mapping[str, Shape]
    ) -> tuple[list[Formal], dict[str, Shape]]:
        """Declarations and shapes of arrays with those of the matrices, which tell sizes first."""
        own = [Formal(m.name, None, m.shape, m.span) for m in self._matrices.values() if isinstance(m, Compressed)]
        return [*own, *formals], {**shapes, **self.bound, **given}
