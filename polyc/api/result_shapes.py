"""Shapes and layouts of an operator's results, and which strides of its arrays a kernel may rely on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyc import driver, recall
from polyc.api.dynamic import add_defined, known_strides
from polyc.api.layouts import Layout, array_layout, contiguous_layout
from polyc.crash import name_crashes
from polyc.diagnostics import PolycError
from polyc.ir.expr import Expr, evaluate
from polyc.ir.program import Program
from polyc.ir.signature import Strides
from polyc.records import dataclass
from polyc.runtime.arrays import check_output

MAX_SHAPES = 256
"""Combinations of sizes whose results' shapes are remembered."""


@dataclass(frozen=True, slots=True)
class _Extents:
    """Extents of a program's arguments and results over its sizes, and sizes that are computed from others."""

    program: Program  # kept, so that its identity stays a sound key
    extents: Mapping[str, tuple[Expr, ...]] | None
    """None where they follow from numbers only (a size multiplies an index)."""
    defined: Sequence[tuple[str, Expr]]

    def at(self, extents: Mapping[str, tuple[Expr, ...]], sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        values = dict(sizes)
        for name, expr in self.defined:
            values[name] = evaluate(expr, values)
        return {name: tuple(evaluate(e, values) for e in exprs) for name, exprs in extents.items()}


def _infer_extents(program: Program) -> _Extents:
    try:
        return _Extents(program, *recall.infer_extents(program))
    except PolycError:  # whoever compiles the program says why
        return _Extents(program, None, ())


class ResultShapes:
    """What was inferred for the programs of one operator; `name` is the operator's, for messages."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._extents: dict[int, _Extents] = {}
        self._shapes: dict[tuple[int, tuple[tuple[str, int], ...]], tuple[Program, dict[str, tuple[int, ...]]]] = {}

    def at(self, program: Program, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The shape of every result."""
        known = self._extents.get(id(program))
        if known is not None and known.extents is not None:  # sizes vary: no inference for each of them
            return known.at(known.extents, sizes)
        key = (id(program), tuple(sizes.items()))
        found_before = self._shapes.get(key)
        if found_before is not None:
            return found_before[1]
        if len(self._shapes) >= MAX_SHAPES:
            self._shapes.clear()
        with driver.compiling(), name_crashes(f"finding the shapes of {self._name}"):
            found = recall.infer_shapes(program, sizes)
        shapes = {name: tuple(extents) for name, (_, extents) in found.items()}
        self._shapes[key] = program, shapes  # the program is kept, so that its identity stays a sound key
        return shapes

    def check_outputs(self, program: Program, sizes: Mapping[str, int], given: Sequence[Any]) -> tuple[np.ndarray | None, ...]:
        """The writable arrays behind what a call gives for the results, and None for what is to be allocated."""
        if all(value is None for value in given):
            return (None,) * len(given)
        shapes = self.at(program, sizes)
        return tuple(
            None if value is None else check_output(value, r.name, program.tensor(r.version).dtype, shapes[r.name])
            for r, value in zip(program.returns, given, strict=True)
        )

    def layouts(
        self,
        program: Program,
        sizes: Mapping[str, int],
        inputs: Sequence[Layout] | None,
        outputs: Sequence[np.ndarray | None] = (),
    ) -> tuple[Layout, ...] | None:
        """Layouts of the results: those of `outputs`, contiguous where they will be allocated; None for open sizes."""
        if inputs is None or any(n not in sizes for n in program.sizes):
            return None
        shapes = self.at(program, sizes)
        layouts = []
        for position, result in enumerate(program.returns):
            array = outputs[position] if outputs else None
            dtype = program.tensor(result.version).dtype
            layouts.append(contiguous_layout(dtype, shapes[result.name]) if array is None else array_layout(array, dtype))
        return tuple(layouts)

    def known_strides(
        self,
        program: Program,
        inputs: Sequence[Layout] | None,
        results: Sequence[Layout] | None,
        symbolic: frozenset[str],
    ) -> Strides | None:
        """Byte strides that a kernel for any values of `symbolic` relies on."""
        if inputs is None or results is None:
            return None
        strides = tuple(a.known_strides for a in (*inputs, *results))
        if not symbolic:
            return strides
        if id(program) not in self._extents:
            self._extents[id(program)] = _infer_extents(program)
        found = self._extents[id(program)]
        if found.extents is None:
            return tuple(None if s is None else (*(None,) * (len(s) - 1), *s[-1:]) for s in strides)
        names = (*(program.tensor(n).base for n in program.parameters), *(r.name for r in program.returns))
        open_sizes = add_defined(symbolic, found.defined)
        return tuple(known_strides(s, found.extents[n], open_sizes) for s, n in zip(strides, names, strict=True))
