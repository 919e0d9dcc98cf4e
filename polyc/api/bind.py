"""Inputs that an operator owns: copied when it is bound, packed once for each specialisation that wants them packed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyc import driver, recall
from polyc.config import Options
from polyc.diagnostics import PolycError
from polyc.ir.expr import evaluate
from polyc.ir.program import Program
from polyc.runtime import memory
from polyc.runtime.arguments import check_rank, unknown_name
from polyc.runtime.arrays import argument_error, check_element_type, convert_input
from polyc.runtime.packing import lay_in_panels
from polyc.runtime.sizes import Formal
from polyc.runtime.weak import without_weakness

MAX_PREPARED = 64
"""Packed sets of constants that a bound operator keeps; beyond it the one used longest ago is forgotten."""


def own_inputs(
    name: str, formals: Sequence[Formal], bound: Collection[str], values: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Read-only copies of `values`, checked against the declarations; errors are those of a call."""
    by_name = {f.name: f for f in formals}
    owned = {}
    for key, value in values.items():
        if key in bound:
            raise bound_twice(name, key)
        if key not in by_name:
            raise unknown_name(name, key, list(by_name))
        formal = by_name[key]
        array = convert_input(value, formal.name, formal.dtype, formal.span, formal.takes_weak)
        check_element_type(without_weakness(array), formal.name, formal.dtype, formal.span)
        check_rank(formal, array)
        copy = memory.allocate_result(array.shape, array.dtype)
        copy[...] = array
        copy.flags.writeable = False
        owned[key] = copy
    return owned


def bound_twice(operator: str, name: str) -> PolycError:
    """An input that is bound is bound again."""
    return argument_error("argument-bound", f"{name} of {operator} is bound already", None, "bind the original operator again")


def bound_error(operator: str, name: str) -> PolycError:
    """An input that is bound was given at a call."""
    return argument_error("argument-bound", f"{name} of {operator} is bound, and was given again", None, f"leave {name} out")


class Preparations:
    """Constants made of the inputs that one bound operator owns; equal requests share one set of arrays."""

    def __init__(self, owned: Mapping[str, np.ndarray], options: Options) -> None:
        self._owned = dict(owned)
        self._options = options.replace(verify=False)
        self._made: OrderedDict[Any, tuple[np.ndarray, ...]] = OrderedDict()
        self.n_runs = 0
        """Programs run so far."""

    def make(self, lowered: driver.Lowered | recall.Recalled, sizes: Mapping[str, int]) -> tuple[np.ndarray, ...]:
        """The arrays for the constants in the signature of `lowered`, in its order and layout.

        All of them are kept for the next specialisation that wants the same: one for another batch size, say.  The caller
        holds the compile lock."""
        values: dict[str, np.ndarray] = {n: _in_memory(a) for n, a in self._owned.items()}
        for program in lowered.preparations:
            values |= zip((r.version for r in program.returns), self._run(program, values, sizes), strict=True)
        result = []
        for spec in lowered.signature.arrays:
            if spec.role == "constant":
                panel = lowered.panels.get(spec.name)
                result.append(values[spec.name] if panel is None else self._in_panels(values[spec.name], panel))
        return tuple(result)

    def _run(self, program: Program, values: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> tuple[np.ndarray, ...]:
        own_sizes = {n: sizes[n] for n in program.sizes}
        key = (replace(program, name="", source=None), tuple(own_sizes.items()))
        made = self._made.get(key)
        if made is None:
            arrays = []
            for name in program.parameters:
                # A dimension of the program may stand for several neighbouring ones of the caller.
                shape = tuple(evaluate(e, sizes) for e in program.tensor(name).shape or ())
                arrays.append(values[name].reshape(shape))
            kernel = recall.compile_program(program, sizes=own_sizes, options=self._options).compile()
            made = self._made[key] = kernel.run(arrays, (None,) * len(program.returns), own_sizes)
            self.n_runs += 1
        self._remember(key)
        return made

    def _in_panels(self, array: np.ndarray, panel: Any) -> np.ndarray:
        key = (id(array), panel)
        made = self._made.get(key)
        if made is None:
            # The original is kept beside it, so that its identity stays a sound key.
            made = self._made[key] = (lay_in_panels(array, panel.dimension, panel.size), array)
        self._remember(key)
        return made[0]

    def _remember(self, key: Any) -> None:
        self._made.move_to_end(key)
        while len(self._made) > MAX_PREPARED:
            self._made.popitem(last=False)


def _in_memory(array: np.ndarray) -> np.ndarray:
    """The array as compiled code sees it: complex numbers are pairs."""
    if array.dtype.kind != "c":
        return array
    return array.view(array.real.dtype).reshape(*array.shape, 2) if array.ndim else np.stack((array.real, array.imag))


def describe_bound(owned: Mapping[str, np.ndarray], matrices: Mapping[str, Any]) -> str:
    """``W 3072×768``, for the representation of an operator; `matrices`: those that three arrays hold, with their shapes."""
    shapes = {name: a.shape for name, a in owned.items() if name.rpartition(".")[0] not in matrices}
    shapes |= {name: tuple(m.shape) for name, m in matrices.items()}
    return ", ".join(f"{name} {'×'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes.items())
