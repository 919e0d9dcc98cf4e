"""Operators at odd sizes and layouts, compared with the reference interpreter."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import polyc
from polyc.ir.expr import evaluate
from polyc.ir.tolerance import check_results, expect_results

TYPES = {"f32": "float", "f64": "double", "bool": "bool"} | {
    f"{k}{b}": f"{n}{b}" for k, n in (("i", "int"), ("u", "uint")) for b in (8, 16, 32, 64)
}


@functools.cache
def operator(text: str, **options: Any) -> Any:
    return polyc.compile(text, **options)


@functools.cache
def for_any_sizes(op: Any) -> Any:
    """The kernel of an operator for any sizes and strides, made once."""
    return op.lower().compile()


def draw(op: Any, sizes: dict[str, int], seed: int = 0, index_bound: int = 1) -> list[np.ndarray]:
    """Inputs at `sizes`: floats from a normal distribution, integers over a few values (from 0 to `index_bound` for i32)."""
    rng = np.random.default_rng([seed, *sizes.values()])
    arrays = []
    for name in op.program.parameters:
        tensor = op.program.tensor(name)
        shape = tuple(evaluate(e, sizes) for e in tensor.shape or ())
        if tensor.dtype.is_float:
            arrays.append(rng.standard_normal(shape).astype(tensor.dtype.numpy))
        elif tensor.dtype.kind == "b":
            arrays.append(rng.random(shape) < 0.5)
        elif name.startswith("Index"):
            arrays.append(rng.integers(0, index_bound, shape).astype(tensor.dtype.numpy))
        else:
            arrays.append(rng.integers(-9 if tensor.dtype.is_signed else 0, 10, shape).astype(tensor.dtype.numpy))
    return arrays


def agree(
    op: Any, arrays: list[np.ndarray], sizes: dict[str, int], out: dict[str, np.ndarray] | None = None, call: Any = None
) -> Any:
    """Call, compare with the interpreter, and give the results by name.  `out` is written to."""
    program = op.program
    inputs = dict(zip(program.parameters, arrays, strict=True))
    initial = {r.name: out[r.name].copy() for r in program.returns if r.initial is not None and out and r.name in out}
    expected = expect_results(program, inputs, sizes, initial)
    results = (call or op)(*arrays, out=out, **sizes)
    names = [r.name for r in program.returns]
    got = dict(zip(names, results if len(names) > 1 else (results,), strict=True))
    problem = check_results(got, expected)
    assert problem is None, f"at {sizes}: {problem}"
    return got
