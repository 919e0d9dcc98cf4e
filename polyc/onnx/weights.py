"""Constants as kernels want them: computed and packed once, shared by all plans that want the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from polyc import recall
from polyc.config import Options
from polyc.frontends.onnx.clusters import Cluster
from polyc.ir.expr import evaluate
from polyc.ir.program import Program
from polyc.runtime.packing import lay_in_panels


class Weights:
    """What was made of the constants of one model."""

    def __init__(self, options: Options) -> None:
        self._options = options.replace(verify=False)
        self._made: dict[Any, tuple[np.ndarray, ...]] = {}

    def prepare(
        self, code: Any, cluster: Cluster, constants: Mapping[str, np.ndarray]
    ) -> tuple[tuple[np.ndarray, ...], dict[str, np.ndarray]]:
        """For the code of a cluster: the arrays of its signature's constants, in order, and the values that it takes as they
        are, by their names in the graph."""
        names = dict(zip(cluster.program.parameters, cluster.inputs, strict=True))
        owned = {p: np.ascontiguousarray(constants[names[p]]) for p in cluster.constants}
        identity = {p: names[p] for p in cluster.constants}
        values: dict[str, np.ndarray] = dict(owned)
        origin: dict[str, Any] = dict(identity)
        for program in code.preparations:
            key: Any = (replace(program, name="", source=None), tuple(origin[p] for p in program.parameters))
            made = self._made.get(key)
            if made is None:
                made = self._made[key] = self._run(program, values)
            for position, (r, array) in enumerate(zip(program.returns, made, strict=True)):
                values[r.version] = array
                origin[r.version] = (key, position)
        prepared = []
        for spec in code.signature.arrays:
            if spec.role == "constant":
                panel = code.panels.get(spec.name)
                if panel is None:
                    prepared.append(values[spec.name])
                    continue
                key = ("panels", origin[spec.name], panel)
                made = self._made.get(key)
                if made is None:
                    made = self._made[key] = (lay_in_panels(values[spec.name], panel.dimension, panel.size),)
                prepared.append(made[0])
        return tuple(prepared), {names[p]: a for p, a in owned.items()}

    def _run(self, program: Program, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        arrays = []
        for name in program.parameters:
            # A dimension of the program may stand for several neighbouring ones of the constant.
            shape = tuple(evaluate(e, {}) for e in program.tensor(name).shape or ())
            arrays.append(values[name].reshape(shape))
        kernel = recall.compile_program(program, sizes={}, options=self._options).compile()
        found: tuple[np.ndarray, ...] = kernel.run(arrays, (None,) * len(program.returns), {})
        return found
