"""Vectors between two others along memory are put together from these instead of being loaded."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.ir.interpret import interpret

SUMS = {
    "three": "x(i) + x(i+1) + 2.0 * x(i+2)",
    "backwards": "x(N-1-i) + x(N-2-i) + 2.0 * x(N-3-i)",
    "five, with a gap": "x(i) - x(i+1) + 2.0 * x(i+3) * x(i+4) + x(i+9)",
    "too far apart": "x(i) + x(i+1) + x(i+2) + x(i+40)",
    "one at a border": "x(i) + x(i+1) + x(i+2) * (i > 2 ? x(i-3) : 2.0)",
}


@pytest.mark.pairs
@pytest.mark.parametrize("dtype", ["float", "double", "int32"])
@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"target": "x86-64-v2"}, {"target": "x86-64-v3"}], ids=str)
@pytest.mark.parametrize("size", [41, 57, 73, 200, 1041])
def test_values_are_those_of_the_interpreter(name: str, dtype: str, options: dict[str, Any], size: int) -> None:
    value = SUMS[name].replace("2.0", "2") if dtype == "int32" else SUMS[name]
    text = f"def f({dtype}(N) x) -> (y) {{ y(i) = {value} where i in 0:N-40 }}"
    x = np.random.default_rng(1).integers(-9, 9, size).astype({"float": "f4", "double": "f8", "int32": "i4"}[dtype])
    operator = polyc.compile(text, **options)
    (expected,) = interpret(operator.program, {"x": x}).values()
    np.testing.assert_array_equal(operator(x), expected)


def test_the_vector_in_the_middle_is_not_loaded() -> None:
    text = """def f(float(N) x, float(T) steps) -> (y) {
      A(0, i) = x(i)
      A(t, i) = i == 0 || i == N-1 ? A(t-1, i) : A(t-1, i-1) + A(t-1, i) + A(t-1, i+1) where t in 1:T+1, i in 0:N
      y(i) = A(T, i) }"""

    def count(target: str, type: str) -> int:
        code = polyc.compile(text, target=target).lower(N=1026, T=8).as_text("ll")
        return len(re.findall(rf"shufflevector {type} %[^,]+, {type} %", code))

    both, one = count("x86-64-v4", "<16 x float>"), count("x86-64-v3", "<8 x float>")
    assert both > 0 and one > 0
    assert count("x86-64-v2", "<4 x float>") == 0


STENCILS = {
    "box": " + ".join(f"double(0.{n + 1}) * A(t-1, i{n // 3 - 1:+d}, j{n % 3 - 1:+d})" for n in range(9)),
    "further than a vector": "0.5 * A(t-1, i, j-9) + 0.25 * A(t-1, i, j+9) + A(t-1, i-1, j) - A(t-1, i, j+8)",
    "not the middle": "0.5 * A(t-1, i, j-1) + 0.25 * A(t-1, i+1, j+2)",
    "two steps": "A(t-1, i, j-1) + A(t-1, i, j+1) - A(t-2, i, j) + 0.5 * A(t-2, i, j+1)",
    "the row before, of this step": "0.5 * A(t, i-1, j+1) + 0.25 * A(t, i-1, j-1) + 0.125 * A(t-1, i, j)",
}


@pytest.mark.each
@pytest.mark.parametrize(("name", "kind"), [*((name, "double") for name in STENCILS), (next(iter(STENCILS)), "float")])
@pytest.mark.parametrize("m", [99, 104, 131, 194])
@pytest.mark.parametrize("options", [{}, {"target": "x86-64-v4"}, {"target": "x86-64-v3"}], ids=str)
def test_rows_of_steps_are_read_by_whole_lines(name: str, kind: str, m: int, options: dict[str, Any]) -> None:
    value = STENCILS[name].replace("double", kind)
    text = f"""def f({kind}(N, M) x, {kind}(T) steps) -> (y) {{
      A(t, i, j) = t < 2 || i == 0 || i == N-1 || j < 9 || j >= M-9 ? x(i, j) : {value} where t in 0:T+2, i in 0:N, j in 0:M
      y(i, j) = A(T+1, i, j) }}"""
    dtype = {"float": "f4", "double": "f8"}[kind]
    operator = polyc.compile(text, **options)
    x, steps = np.random.default_rng(m).random((5, m)).astype(dtype), np.zeros(5, dtype)
    (expected,) = interpret(operator.program, {"x": x, "steps": steps}).values()
    np.testing.assert_allclose(operator(x, steps), expected, rtol=2e-5 if kind == "float" else 1e-13)


def test_copies_of_a_loop_share_the_lines_they_read() -> None:
    text = """def f(double(N, N) x, double(T) steps) -> (y) {
      A(0, i, j) = x(i, j)
      A(t, i, j) = i == 0 || i == N-1 || j == 0 || j == N-1 ? A(t-1, i, j)
        : A(t-1, i, j-1) + A(t-1, i, j) + A(t-1, i, j+1) + A(t-1, i-1, j) + A(t-1, i+1, j) where t in 1:T+1, i in 0:N, j in 0:N
      y(i, j) = A(T, i, j) }"""
    code = polyc.compile(text, target="x86-64-v4").lower(N=512, T=12).as_text("ll")
    blocks = [block for block in code.split("\n\n") for block in block.split("loop")]
    (inner,) = (block for block in blocks if block.count("shufflevector <8 x double>") == 8)
    # Four vectors: six lines of their own row, four each of the rows before and behind.
    assert inner.count("load <8 x double>") == 14
    assert inner.count("store <8 x double>") == 4
