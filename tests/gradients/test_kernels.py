"""Gradients as operators: one kernel for all sizes, bound inputs, layouts, and extents of 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc
from polyc.ir.interpret import interpret

PROGRAMS = {
    "layer": """
def layer(double(M, K) X, double(N, K) W, double(N) b) -> (Y) {
  H(m, n) +=! X(m, k) * W(n, k)
  Y(m, n) = tanh(H(m, n) + b(n))
}
""",
    "mirrored": """
def mirrored(double(N, K) X, double(3, 2) F) -> (Y) {
  Y(i, j) +=! pad(X(i + r - 1, j + s), 0.0) * F(r, s) where i in 0:N, j in 0:K
}
""",
    "rows": "def rows(double(N, K) T, int32(M) I) -> (Y) { Y(m, k) = T(I(m), k) * T(I(m), k) }",
    "softmax": """
def softmax(double(N, K) X) -> (Y) {
  top(n) max=! X(n, k)
  e(n, k) = exp(X(n, k) - top(n))
  z(n) +=! e(n, k)
  Y(n, k) = e(n, k) / z(n)
}
""",
}


def inputs_of(program: Any, sizes: dict[str, int], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs in the shapes of the parameters; subscripts are rows that there are."""
    arrays = {}
    for p in program.parameters:
        tensor = program.tensor(p)
        shape = tuple(sizes.get(getattr(e, "name", ""), getattr(e, "value", 0)) for e in tensor.shape or ())
        is_float = tensor.dtype.is_float
        arrays[p] = rng.standard_normal(shape) if is_float else rng.integers(0, max(1, sizes["N"]), shape).astype(np.int32)
    return arrays


def as_tuple(results: Any) -> tuple[np.ndarray, ...]:
    return results if isinstance(results, tuple) else (results,)


def check(call: Any, gradient: Any, arrays: dict[str, np.ndarray], skip: tuple[str, ...] = ()) -> None:
    expected = interpret(gradient.program, arrays)
    found = as_tuple(call(*(a for n, a in arrays.items() if n not in skip)))
    for got, (name, wanted) in zip(found, expected.items(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_kernel_serves_all_sizes(name: str) -> None:
    rng = np.random.default_rng(8)
    gradient = polyc.compile(PROGRAMS[name], dynamic=True).vjp()
    for m, n, k in ((2, 3, 4), (1, 1, 1), (13, 7, 17), (5, 31, 2), (0, 3, 2), (3, 2, 33)):
        check(gradient, gradient, inputs_of(gradient.program, {"M": m, "N": n, "K": k}, rng))
    assert len([r for r in gradient.remarks if r.pass_name == "dynamic"]) == 1


def test_known_sizes_and_other_layouts_give_the_same() -> None:
    rng = np.random.default_rng(9)
    gradient = polyc.compile(PROGRAMS["layer"]).vjp()
    arrays = inputs_of(gradient.program, {"M": 5, "N": 7, "K": 3}, rng)
    turned = {n: np.asfortranarray(a) for n, a in arrays.items()}
    spread = {n: np.repeat(a, 2, 0)[::2] if a.ndim else a for n, a in arrays.items()}
    for given in (arrays, turned, spread):
        check(gradient, gradient, given)


def test_weights_of_gradients_are_bound() -> None:
    rng = np.random.default_rng(10)
    gradient = polyc.compile(PROGRAMS["layer"]).vjp(wrt=("X",))
    arrays = inputs_of(gradient.program, {"M": 5, "N": 7, "K": 3}, rng)
    bound = gradient.bind(W=arrays["W"], b=arrays["b"])
    check(bound, gradient, arrays, skip=("W", "b"))
