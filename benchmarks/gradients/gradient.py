"""What a row of the board of gradients is: a forward computation in three notations, and what each side makes of it.

Every side takes the inputs and the cotangents of the results, and gives the derivatives by the inputs in `wrt`: what it needs
of the forward values it computes in the call, so that no side is given what another one has to compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.differentiate import Forward, differentiate_in_jax, differentiate_in_torch
from benchmarks.workload import Arrays, Gradient, Peer, Results, ShapesOnly, Workload, nbytes


@dataclass(frozen=True, slots=True)
class Row:
    """One computation to be differentiated.

    `make_inputs` draws the inputs of the operator.  The cotangents (``d_`` and the name of a result) are drawn in the shapes of
    the results, which `results` gives by name, unless a loss is differentiated (`has_value`): then the value comes with the
    gradients, and `results` holds it alone.  `exact` computes what all sides return, from float64 arrays."""

    name: str
    what: str
    source: str
    make_inputs: Callable[[Any], Arrays]
    results: dict[str, tuple[int, ...]]
    wrt: tuple[str, ...]
    in_torch: Forward
    in_jax: Forward
    exact: Callable[..., Results]
    flops: float
    """Of the value and the gradients, by the mathematics."""
    has_value: bool = False
    is_compiled: bool = True
    """Whether torch.compile is measured: not where it would unroll a loop over steps."""
    tolerance: float = 5e-5

    def inputs(self, rng: Any) -> Arrays:
        arrays = self.make_inputs(rng)
        if not self.has_value:
            arrays |= {f"d_{n}": rng.standard_normal(shape, np.float32) for n, shape in self.results.items()}
        return arrays

    def make_workload(self) -> Workload:
        """``gradient_<name>``."""
        gradient = Gradient(self.wrt, self.has_value, self.in_torch)
        shapes = {n: a.shape for n, a in self.inputs(ShapesOnly()).items()}
        written = [shapes[n] for n in self.wrt] + (list(self.results.values()) if self.has_value else [])
        peers: dict[str, Peer] = {"torch": differentiate_in_torch(gradient, self.in_torch)}
        if self.is_compiled:
            peers["torch_compile"] = peers["torch"]
        peers["jax"] = differentiate_in_jax(gradient, self.in_jax)
        return Workload(
            f"gradient_{self.name}",
            self.what,
            "tc",
            self.source,
            self.inputs,
            self.exact,
            self.flops,
            nbytes(*shapes.values()),
            nbytes(*written),
            peers,
            self.tolerance,
            gradient=gradient,
        )
