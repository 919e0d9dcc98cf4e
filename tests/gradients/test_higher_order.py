"""Derivatives of derivatives: products with the Hessian matrix against differences of the gradient, in both orders."""

from __future__ import annotations

import numpy as np
import pytest

from polyc.gradients import jvp, vjp
from tests.gradients.helpers import RIGHT, Case, check_derivatives, float_inputs, float_results, perturbed, run
from tests.gradients.sources import compile_text, example_case

PROGRAMS = {
    "cubes": "def f(double(N) x) -> (y) { y +=! x(n) * x(n) * x(n) }",
    "products of rows": "def f(double(M, K) X, double(N, K) W) -> (y) { "
    "H(m, n) +=! X(m, k) * W(n, k)  y +=! H(m, n) * H(m, n) }",
    "functions": "def f(double(N) x) -> (y) { y(n) = exp(sin(x(n))) * tanh(x(n)) / (2.0 + x(n) * x(n)) }",
    "windows": "def f(double(N) x, double(3) w) -> (y) { y(i) +=! pad(x(i + k - 1), 0.0) * w(k) * x(i) where i in 0:N }",
    "chosen": "def f(double(N) x) -> (y) { y(n) = x(n) > 0.0 ? x(n) * x(n) : sin(x(n)) }",
    "added where data says": "def f(double(E) x, int32(E) k, double(M) c) -> (y) { y(m) = c(m)  y(k(e)) += x(e) * x(e) }",
    "strides that double": "def f(double(8) x) -> (y) { X(0, i) = x(i)  X(s + 1, i) = i >= pow(2, s) ? "
    "X(s, i) + X(s, i - pow(2, s)) * X(s, i) : X(s, i) where s in 0:2, i in 0:8  y(i) = X(2, i) }",
    "scattered": "def f(double(E) T, int32(P) k) -> (y) { y +=! T(k(p)) * T(k(p)) * T(k(p)) }",
}
EXAMPLES = ("softmax", "gelu_bias", "layernorm", "linear_relu")


def case_of(name: str) -> Case:
    if name in EXAMPLES:
        return perturbed(example_case(name))
    rng = np.random.default_rng(2)
    program = compile_text(PROGRAMS[name]).program
    sizes = {n: 3 + k for k, n in enumerate(program.sizes)}
    arrays = {}
    for p in program.parameters:
        shape = tuple(sizes.get(getattr(e, "name", ""), getattr(e, "value", 0)) for e in program.tensor(p).shape or ())
        is_float = program.tensor(p).dtype.is_float
        arrays[p] = rng.standard_normal(shape) if is_float else rng.integers(0, 3, shape).astype(np.int32)
    return Case(program, sizes, arrays, {})


@pytest.mark.parametrize("name", [*PROGRAMS, *EXAMPLES])
def test_second_derivatives_are_differences_of_gradients(name: str) -> None:
    """Both modes of the reverse mode, and both of the forward mode."""
    case, rng = case_of(name), np.random.default_rng(3)
    wrt = float_inputs(case.program)
    values = run(case)
    drawn = {
        vjp: [rng.standard_normal(values[n].shape) for n in float_results(case.program)],
        jvp: [rng.standard_normal(case.arrays[n].shape) for n in wrt],
    }
    for mode, more in drawn.items():
        derivative = mode(case.program, wrt)
        arrays = case.arrays | dict(zip(derivative.parameters[len(case.arrays) :], more, strict=True))
        found = check_derivatives(Case(derivative, case.sizes, arrays, {}), wrt)
        assert (found.forward, found.reverse) == (RIGHT, RIGHT)
