"""Dimensions of one element: the program without them computes the same, and keeps what is checked."""

from __future__ import annotations

import numpy as np
import pytest

from polyc.diagnostics import PolycError
from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.clusters import build_cluster
from polyc.frontends.onnx.graph import Node
from polyc.frontends.onnx.squeeze import drop_unit_dimensions
from polyc.frontends.onnx.trace import Fragment
from polyc.ir.expr import int_const
from polyc.ir.interpret import interpret
from polyc.ir.program import Program, Return, Tensor
from polyc.ir.types import F32, I64
from polyc.ir.verify import verify_program


def make(inputs, write):
    """The program (as written) of what `write(builder, *values)` returns, and its cluster's (squeezed)."""
    b = Builder(Node("Test", "", 1, tuple(inputs), ("y",), {}, "", None))
    values = {n: Value(n, I64 if n == "i" else F32, shape) for n, shape in inputs.items()}
    result = write(b, *values.values())
    tensors = [Tensor(v.name, v.dtype, v.rank, tuple(map(int_const, v.shape)), "input", v.name) for v in values.values()]
    made = [t if t.name != result.name else Tensor(t.name, t.dtype, t.rank, t.shape, "output", t.base) for t in b.tensors]
    program = Program("test", (), (*tensors, *made), tuple(values), (Return("y", result.name),), tuple(b.statements))
    fragment = Fragment(b.node, (result,), tuple(b.tensors), tuple(b.statements), {})
    return program, build_cluster([fragment], values, {result.name}, ()).program


def check(inputs, write, rng_low=0):
    program, squeezed = make(inputs, write)
    verify_program(program)
    verify_program(squeezed)
    rng = np.random.default_rng(0)
    arrays = {n: rng.integers(0, 1, s) if n == "i" else rng.standard_normal(s).astype(np.float32) for n, s in inputs.items()}
    expected = interpret(program, arrays)["y"]
    again = drop_unit_dimensions(program)
    given = {n: a.reshape([e.value for e in again.tensor(n).shape]) for n, a in arrays.items()}
    found = interpret(again, given)["y"]
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)
    return again


def shapes(program):
    return {t.base: tuple(e.value for e in t.shape) for t in program.tensors}


def test_pointwise_work_loses_all_unit_dimensions():
    program = check(
        {"a": (1, 5, 1, 3), "b": (5, 1, 1)}, lambda b, x, y: b.map((1, 5, 1, 3), F32, lambda *i: x[i] + y.spread(i))
    )
    assert shapes(program)["a"] == (5, 3) and shapes(program)["b"] == (5,)
    assert program.statements[0].indices == ("i1", "i3")


def test_a_convolution_of_one_pixel_with_a_bias_is_a_product():
    def write(b, x, w, bias):
        body = lambda n, m, h, k, c, r, s: x[n, c, h + r, k + s] * w[m, c, r, s]  # noqa: E731
        return b.reduce("add", (1, 4, 6, 1), (3, 1, 1), F32, body, lambda n, m, h, k: bias[m])

    program = check({"x": (1, 3, 6, 1), "w": (4, 3, 1, 1), "bias": (4,)}, write)
    assert shapes(program)["x"] == (3, 6) and shapes(program)["w"] == (4, 3)


def test_a_start_value_of_a_dropped_index_is_zeros():
    def write(b, x, s):
        return b.reduce("add", (1, 4), (3,), F32, lambda i, j, k: x[i, j, k], lambda i, j: s[j, i])

    assert shapes(check({"x": (1, 4, 3), "s": (4, 1)}, write))["s"] == (4,)


def test_a_sum_over_one_element_stays_a_reduction():
    program = check({"x": (4, 1)}, lambda b, x: b.reduce("add", (4,), (1,), F32, lambda i, k: x[i, k] * 2.0))
    assert program.statements[0].reduction is not None


def test_what_is_padded_keeps_its_dimension():
    def write(b, x):
        return b.map((1, 3, 4), F32, lambda n, h, w: x.padded((n, h - 1, w), 7.0))

    assert shapes(check({"x": (1, 1, 4)}, write))["x"] == (1, 4)


def test_what_data_names_keeps_its_dimension():
    def write(b, x, i):
        return b.map((5, 3), F32, lambda k, j: x[i[k], j])

    _, squeezed = make({"x": (1, 3), "i": (5,)}, write)
    assert shapes(squeezed)["x0"] == (1, 3)
    check({"x": (1, 3), "i": (5,)}, write)
    with pytest.raises((PolycError, IndexError)):
        interpret(squeezed, {"x0": np.zeros((1, 3), np.float32), "x1": np.full(5, 2)})


def test_pieces_of_a_tensor_lose_the_same_dimension():
    def write(b, x, y):
        first = ((1, 2, 3), lambda a, i, j: (a, i, j), lambda a, i, j: x[a, i, j])
        second = ((1, 1, 3), lambda a, i, j: (a, i + 2, j), lambda a, i, j: y[a, i, j])
        return b.parts((1, 3, 3), F32, [first, second])

    check({"x": (1, 2, 3), "y": (1, 1, 3)}, write)


def test_a_scalar_is_left():
    program = check({"x": (1, 1)}, lambda b, x: b.map((1, 1), F32, lambda i, j: x[i, j] + 1.0))
    assert shapes(program)["x"] == ()
