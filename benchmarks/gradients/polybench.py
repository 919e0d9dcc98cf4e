"""Derivatives of PolyBench's kernels, as workloads: what polyc makes of their texts, and JAX of its own version."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.differentiate import differentiate_in_jax
from benchmarks.gradients.polybench_in_jax import FORWARD
from benchmarks.polybench import KERNELS
from benchmarks.polybench.kernel import draw
from benchmarks.workload import Arrays, Gradient, Workload

PREFIX, SCALARS, ALONE = "adjoint", "scalars", "forward"


def make_workload(name: str, dataset: str, with_scalars: bool = False, is_forward: bool = False) -> Workload:
    """``adjoint:<kernel>:<dataset>``: takes the inputs of a kernel and cotangents of its results, and gives the derivatives
    by its arrays, `with_scalars` by scalars as well.  `is_forward`: the kernel itself.

    Whole numbers are real ones here, as only those have derivatives.  There are no exact results: those of JAX are compared."""
    kernel = KERNELS[name]
    sizes, source = kernel.sizes_of(dataset), kernel.source.replace("int32", "double")
    parameters, results = (
        re.findall(r"double(\([^)]*\))? (\w+)", part) for part in source[source.index("def ") : source.index("{")].split("->")
    )
    _, shapes = kernel.shapes(dataset)
    wrt = tuple(n for dimensions, n in parameters if n != "steps" and (dimensions or with_scalars))
    gradient = Gradient(wrt, False, FORWARD[name])

    def make_inputs(rng: Any) -> Arrays:
        arrays = kernel.make_inputs(rng, **sizes)
        arrays = {n: a if a.dtype.kind == "f" else rng.random(a.shape) for n, a in arrays.items()}
        cotangents = {f"d_{n}": draw(rng, *shape) for (_, n), shape in zip(results, shapes, strict=True)}
        return arrays if is_forward else arrays | cotangents

    return Workload(
        ":".join((PREFIX, name, dataset, *(SCALARS,) * with_scalars, *(ALONE,) * is_forward)),
        f"PolyBench's {name}, {dataset}: {kernel.what}",
        "tc",
        source,
        make_inputs,
        kernel.reference,
        float(kernel.flops(**sizes)),
        0.0,
        0.0,
        {"jax": differentiate_in_jax(gradient, FORWARD[name], [n for _, n in results])},
        tolerance=1e-9,
        dtype="float64",
        gradient=None if is_forward else gradient,
    )


def find_workload(workload: str) -> Workload:
    """The one that `make_workload` calls so."""
    _, name, dataset, *marks = workload.split(":")
    return make_workload(name, dataset, SCALARS in marks, ALONE in marks)
