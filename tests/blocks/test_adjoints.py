"""Derivatives on arrays in chunks: adjoints of time loops go backward by stages, those of borders and windows are cut."""

from __future__ import annotations

import random
import warnings
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import polyc
from polyc.api import block_steps
from polyc.blocks.gathered import gather_sums
from polyc.blocks.retiming import retime
from polyc.ir.components import order_components
from polyc.ir.expr import evaluate
from polyc.ir.interpret import bind_sizes, interpret
from polyc.poly.infer import infer_ranges
from tests.blocks.differential import chunk, compare, interpreted
from tests.blocks.test_recurrences import KINDS, steps_at_once

da = pytest.importorskip("dask.array")

HEAT = """def heat(float(N, M) X, float(N, M) C, int64 T) -> (Y) {{
  S(0, i, j) = X(i, j)
  S(t, i, j) = S(t - 1, i, j) + C(i, j) * (pad(S(t - 1, i - 1, j), {m}) + pad(S(t - 1, i + 1, j), {m})
      + pad(S(t - 1, i, j - 2), {m}) - 3.0 * S(t - 1, i, j)) where t in 1:T + 1, i in 0:N, j in 0:M
  Y(i, j) = S(T, i, j)
}}"""
"""A coefficient at each point; a step reads neighbours along both axes."""

OTHERS = {
    "blur": """def f(float(N, M) X) -> (Y) {
  Y(i, j) = pad(X(i - 1, j), clamp) + X(i, j) + pad(X(i + 2, j), wrap) where i in 0:N, j in 0:M
}""",
    "strided": "def f(float(N, M) X) -> (Y) { Y(i, j) +=! X(2 * i + k, j) where k in 0:3 }",
    "product": "def f(float(N, M) X, float(M, N) C) -> (Y) { Y(i, j) +=! X(i, k) * C(k, j) }",
    "softmax": """def f(float(N, M) X) -> (Y) {
  m(i) max=! X(i, j)  s(i) +=! exp(X(i, j) - m(i))  Y(i, j) = exp(X(i, j) - m(i)) / s(i)
}""",
    "scan": "def f(float(N, M) X) -> (Y) { Y(0, j) = X(0, j)  Y(i, j) = 0.5 * Y(i - 1, j) + X(i, j) * X(i, j) where i in 1:N }",
}


def differentiate(source: str) -> polyc.Operator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", polyc.PolycWarning)
        return polyc.vjp(polyc.compile(source))


def interpret_all(operator: polyc.Operator, arrays: dict[str, Any]) -> Any:
    made = interpret(operator.program, {n: np.asarray(a) for n, a in arrays.items()})
    expected = tuple(made[r.name] for r in operator.program.returns)
    return expected if len(expected) > 1 else expected[0]


def make_arrays(operator: polyc.Operator, sizes: dict[str, int]) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    arrays: dict[str, Any] = {}
    for name in operator.program.parameters:
        t = operator.program.tensor(name)
        shape = tuple(evaluate(e, sizes) for e in t.shape or ())
        arrays[name] = sizes[name] if name in sizes else rng.random(shape).astype(t.dtype.numpy)
    return arrays


@pytest.mark.parametrize("mode", ["0.0", "clamp", "wrap", "reflect", "symmetric"])
def test_adjoint_of_a_time_loop_goes_backward_by_stages(mode: str) -> None:
    operator = differentiate(HEAT.format(m=mode))
    arrays = make_arrays(operator, {"N": 9, "M": 16, "T": 5})
    expected = interpret_all(operator, arrays)
    chunked = {n: da.from_array(a, chunks=(4, 6)) if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
    with interpreted(), steps_at_once(2), patch.object(block_steps, "split_steps", wraps=block_steps.split_steps) as split:
        results = operator(**chunked)
    assert [call.args[1] for call in split.call_args_list] == [2, 2]  # forward and backward
    assert [r.chunks for r in results] == [((4, 4, 1), (6, 6, 4))] * 2
    compare(results, expected, 1e-5, 1e-6)


@pytest.mark.parametrize(
    "kind", ["wave", "snapshot", "history", "rows", "forced", "coefficients", "power", "fdtd", "inner", "scan", "two"]
)
def test_adjoints_of_recurrences_on_any_chunks(kind: str) -> None:
    text, shapes, numbers = KINDS[kind]
    operator = differentiate(text)
    known = bind_sizes(polyc.compile(text).program, {n: np.zeros(s) for n, s in shapes.items()}, numbers)
    arrays = make_arrays(operator, known | numbers)
    expected = interpret_all(operator, arrays)
    with interpreted(), steps_at_once(3):
        results = operator(**chunk(random.Random(kind), arrays))
    compare(results, expected, 1e-4, 1e-5)


@pytest.mark.parametrize("kind", OTHERS)
def test_adjoints_of_windows_products_and_scans_are_cut(kind: str) -> None:
    operator = differentiate(OTHERS[kind])
    arrays = make_arrays(operator, {"N": 9, "M": 8})
    expected = interpret_all(operator, arrays)
    chunked = {n: da.from_array(a, chunks=(3, 3)) for n, a in arrays.items()}
    with interpreted():
        results = operator(**chunked)
        compare(results, expected, 1e-4, 1e-5)
    assert all(len(r.chunks[0]) > 1 for r in (results if isinstance(results, tuple) else (results,)))


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_compiled_adjoint_of_a_time_loop(target: str) -> None:
    operator = polyc.vjp(polyc.compile(KINDS["wave"][0], target=target))
    arrays = make_arrays(operator, {"N": 61})
    try:
        expected = operator(**arrays)
    except polyc.UnsupportedError:
        pytest.skip("this machine lacks these instructions")
    with steps_at_once(4):
        compare(operator(**{n: da.from_array(a, chunks=20) for n, a in arrays.items()}), expected, 1e-5, 1e-6)


def test_sums_into_computed_elements_are_solved_for_what_reaches_them() -> None:
    program = polyc.compile("def f(float(N) X, float(K) W) -> (Y) { Y(2 * i + k) +=! X(i) * W(k) where k in 0:3 }").program
    ranges = infer_ranges(program)
    made, _ = gather_sums(program, ranges, {"N": 9, "K": 3})
    (s,) = made.statements
    assert s.has_plain_left
    assert s.reduction_indices == ("i",)
    same, _ = gather_sums(made, infer_ranges(made), {"N": 9, "K": 3})
    assert same is made


def test_a_border_of_an_adjoint_is_no_sum() -> None:
    program = differentiate(HEAT.format(m="wrap")).program
    made, _ = gather_sums(program, infer_ranges(program), {"N": 9, "M": 8, "T": 5})
    assert all(s.has_plain_left or s.reduction is None for s in made.statements)
    arrays = make_arrays(differentiate(HEAT.format(m="wrap")), {"N": 9, "M": 8, "T": 5})
    given = {n: np.asarray(a) for n, a in arrays.items()}
    for name, value in interpret(program, given).items():
        np.testing.assert_allclose(interpret(made, given)[name], value, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "is_time_loop"),
    [
        ("S(t + 1, i) = S(t, i) * 0.5 where t in 0:5, i in 0:N", True),
        ("S(t, i) = S(t + 2, i) * 0.5 where t in 0:4, i in 0:N  S(5, i) = X(i)  S(4, i) = X(i)", True),
        ("S(t, i) = Q(t, i) * 0.5 where t in 1:6, i in 0:N  Q(t, i) = S(t - 1, i) where t in 1:6, i in 0:N", True),
        ("S(t, i) = Q(t - 2, i) where t in 1:6, i in 0:N  Q(t, i) = S(t + 1, i) where t in -1:5, i in 0:N", True),
        ("S(t, i) = S(t - 1, i) + S(t / 2, i) where t in 1:6, i in 0:N", False),
    ],
)
def test_steps_read_only_what_lies_before_them_in_the_direction_that_is_found(text: str, is_time_loop: bool) -> None:
    starts = "" if "S(5" in text else "S(0, i) = X(i)"
    program = polyc.compile(f"def f(float(N) X) -> (S) {{ {starts}  {text} }}").program
    ranges = infer_ranges(program)
    (component,) = [c for c in order_components(program) if c.is_recurrence]
    found = retime(program, ranges, {"N": 7}, component, 0)
    assert (found is not None) == is_time_loop
    if found is not None:
        x = np.arange(7, dtype=np.float32)
        np.testing.assert_array_equal(interpret(found[0], {"X": x})["S"], interpret(program, {"X": x})["S"])
