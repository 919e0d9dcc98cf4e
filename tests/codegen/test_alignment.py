"""Vectors of a stencil's rows begin at whole lines; what is computed stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.codegen.nests.buffers import keep_apart, pad_rows
from polyc.codegen.objects.host import host_target
from polyc.config import default_options
from polyc.ir.expr import Call, Const, Size, evaluate, int_const
from polyc.ir.interpret import interpret
from polyc.machine import select_model

from .support import HOST

PLANE = """def f({t}(N, M) x, {t}(T) steps) -> (B) {{
  A(0, i, j) = x(i, j)
  A(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? A(t-1, i, j)
    : 0.25 * (A(t-1, i-1, j) + A(t-1, i+1, j) + A(t-1, i, j-1)) + 0.125 * A(t-1, i, j+1) where t in 1:T+1, i in 0:N, j in 0:M
  B(i, j) = A(T, i, j)
}}"""
FIELDS = """def f({t}(N, M) x, {t}(T) steps) -> (B, C) {{
  U(0, i, j) = x(i, j)
  V(0, i, j) = 0.5 * x(i, j)
  U(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? U(t-1, i, j)
    : 0.25 * (U(t-1, i-1, j) + U(t-1, i+1, j) + U(t-1, i, j-1)) + 0.125 * U(t-1, i, j+1) - 0.5 * V(t-1, i, j)
    where t in 1:T+1, i in 0:N, j in 0:M
  V(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? V(t-1, i, j)
    : 0.25 * (V(t-1, i-1, j) + V(t-1, i+1, j) + V(t-1, i, j-1)) + 0.125 * V(t-1, i, j+1) + 0.5 * U(t-1, i, j)
    where t in 1:T+1, i in 0:N, j in 0:M
  B(i, j) = U(T, i, j)
  C(i, j) = V(T, i, j)
}}"""
FROM = """def f(double(N, M) x, double(T) steps) -> (B) {{
  A(0, i, j) = x(i, j)
  A(t, i, j) = j < {first} ? A(t-1, i, j)
    : 0.5 * A(t-1, i, j) + 0.25 * pad(A(t-1, i-1, j), 0.0) + 0.125 * A(t-1, i, j-1) where t in 1:T+1, i in 0:N, j in 0:M
  B(i, j) = A(T, i, j)
}}"""
LINE = """def f({t}(M) x, {t}(T) steps) -> (B) {{
  A(0, i) = x(i)
  A(t, i) = i == 0 || i == M-1 ? A(t-1, i) : {value} where t in 1:T+1, i in 0:M
  B(i) = A(T, i)
}}"""
MEANS = {
    "three": "0.375 * (A(t-1, i-1) + A(t-1, i) + A(t-1, i+1))",
    "both sides": "0.5 * (A(t-1, i-1) + A(t-1, i+1))",
    "one shifted": "0.5 * A(t-1, i-1)",
}


IS_WIDE = HOST.vector_bits >= 256
"""Vectors of at least half a line."""


def compare(text: str, n: int, m: int, kind: str, **changes: Any) -> str:
    """The loops; the kernel's result is the interpreter's.  `n`: rows of the argument, 0 for an argument of one dimension."""
    rng = np.random.default_rng(n + m)
    x, steps = rng.uniform(-1, 1, (n, m) if n else m).astype(kind), np.zeros(5, kind)
    operator = polyc.compile(text)
    target = changes.pop("target", host_target())
    sizes = {"M": m, "T": 5} | ({"N": n} if n else {})
    options = default_options().replace(disable=("short-recurrences",))
    lowered = driver.lower(operator.program, sizes=sizes, options=options, target=replace(target, **changes))
    found = lowered.compile()(x, steps)
    expected = interpret(operator.program, {"x": x, "steps": steps}).values()
    for a, b in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5 if kind == "float32" else 1e-13, atol=1e-6)
    return lowered.as_text("loops")


@pytest.mark.each
@pytest.mark.parametrize("m", [96, 97, 103, 104, 130, 256, 300])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_rows_begin_at_a_whole_line(m: int, kind: str) -> None:
    text = PLANE.format(t="float" if kind == "float32" else "double")
    loops = compare(text, 6, m, kind)
    assert "at most" in loops or not IS_WIDE


@pytest.mark.parametrize(("kind", "m"), [("float32", 97), ("float32", 300), ("float64", 104), ("float64", 256)])
def test_rows_of_two_fields_begin_at_a_whole_line(kind: str, m: int) -> None:
    loops = compare(FIELDS.format(t="float" if kind == "float32" else "double"), 6, m, kind)
    heads = [part for part in loops.split("vector(")[1:] if "at most" in part.splitlines()[0]]
    assert not IS_WIDE or any("U[" in part and "V[" in part for part in heads)


@pytest.mark.each
@pytest.mark.parametrize("m", [1, 2, 33, 65, 71, 72, 73, 128, 257])
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", MEANS)
def test_means_along_one_row_begin_at_a_whole_line(m: int, kind: str, name: str) -> None:
    text = LINE.format(t="float" if kind == "float32" else "double", value=MEANS[name])
    lanes = host_target().vector_bits // (32 if kind == "float32" else 64)
    is_padded = m >= 64
    is_long = IS_WIDE and is_padded and m - 2 >= 4 * lanes
    assert (f"at most {lanes - 1})" in compare(text, 0, m, kind)) == (is_long and name != "one shifted")


def test_one_row_past_the_second_level_cache_stays_as_it_is() -> None:
    text = LINE.format(t="double", value=MEANS["three"])
    assert ("at most" in compare(text, 0, 256, "float64", l2=1 << 13)) == IS_WIDE
    assert "at most" not in compare(text, 0, 256, "float64", l2=1 << 12)


@pytest.mark.parametrize("first", [1, 2, 5, 8, 9])
def test_every_place_of_the_first_element(first: int) -> None:
    loops = compare(FROM.format(first=first), 5, 131, "float64")
    # A border of more than two elements is a loop of its own; so is what is before
    # the first whole line, once with row i - 1 and once without.
    lanes = host_target().vector_bits // 64
    assert loops.count("at most") == (first > 2) + 2 * (first % lanes > 0) or not IS_WIDE


@pytest.mark.parametrize("m", [257, 300])
def test_tiles_that_begin_anywhere(m: int) -> None:
    loops = compare(PLANE.format(t="double"), 40, m, "float64", l2=1 << 14, l3=1 << 14)
    assert f"% {host_target().vector_bits // 64}" in loops or not IS_WIDE


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3"])
def test_other_machines(name: str) -> None:
    target = select_model(host_target(), name)
    loops = compare(PLANE.format(t="double"), 6, 130, "float64", target=target)
    assert ("at most" in loops) == (name == "x86-64-v3")
    loops = compare(LINE.format(t="double", value=MEANS["three"]), 0, 131, "float64", target=target)
    assert ("at most" in loops) == (name == "x86-64-v3")


def test_short_rows_stay_as_they_are() -> None:
    assert "strides (1200, 40, 8)" in compare(PLANE.format(t="double"), 30, 5, "float64")


@pytest.mark.parametrize(
    ("extent", "row"), [(63, 504), (64, 512), (96, 768), (97, 832), (256, 2112), (512, 4160), (1300, 10432)]
)
def test_padded_rows(extent: int, row: int) -> None:
    strides = pad_rows((int_const(2), int_const(7), int_const(extent)), 8, {})
    assert strides == (int_const(7 * row), int_const(row), int_const(8))
    assert all(isinstance(s, Const) for s in strides)


@pytest.mark.parametrize("itemsize", [4, 8])
def test_padded_rows_of_any_length(itemsize: int) -> None:
    shape = (Size("N"), Size("M"))
    assert pad_rows(shape, itemsize, {"M": 8})[0] == Call("mul", (int_const(itemsize), Size("M")))
    row, element = pad_rows(shape, itemsize, {"M": 300})
    assert element == int_const(itemsize)
    for m in range(300):
        lines, rest = divmod(evaluate(row, {"M": m}), 64)
        assert lines % 2 == 1 and rest == 0 and m * itemsize <= 64 * lines < m * itemsize + 128


def test_rows_whose_length_only_a_call_knows_are_padded_where_they_are_long() -> None:
    """Half of the vectors of filtered images straddled two lines: 0.93 of the specialised speed."""
    row, _ = pad_rows((Size("N"), Size("M")), 4, {})
    for m in range(300):
        size = evaluate(row, {"M": m})
        assert size % 128 == 64 and m * 4 <= size < m * 4 + 128 if m >= 64 else size == m * 4


def test_rows_of_any_length_begin_at_lines() -> None:
    operator = polyc.compile(PLANE.format(t="double"), dynamic=True)
    rng = np.random.default_rng(1)
    loops = operator.lower(rng.uniform(-1, 1, (40, 300)), np.zeros(5)).as_text("loops")
    assert "?" not in loops.split("} else {")[1] and loops.count("vector(lanes") >= 4
    for m in (0, 1, 2, 3, 13, 14, 15, 16, 17, 18, 22, 23, 24, 25, 64, 300):
        for n in (1, 2, 5):
            x, steps = rng.uniform(-1, 1, (n, m)), np.zeros(5)
            (expected,) = interpret(operator.program, {"x": x, "steps": steps}).values()
            np.testing.assert_array_equal(operator(x, steps), expected)


@pytest.mark.parametrize("bytes_", [2048, 4096, 2112, 6144, 1081344, 13824000])
def test_steps_do_not_begin_at_the_same_place_of_a_page(bytes_: int) -> None:
    known = keep_apart(int_const(bytes_), (int_const(bytes_ // 4),), int_const(4), {})
    symbolic = keep_apart(
        Call("mul", (Size("N"), int_const(64))), (Size("N"), int_const(16)), int_const(4), {"N": bytes_ // 64}
    )
    assert known == int_const(evaluate(symbolic, {"N": bytes_ // 64}))
    assert isinstance(known, Const) and bytes_ <= known.value < bytes_ + 4096 and known.value % 4096 == 2560


def test_steps_that_are_apart_or_short_stay_where_they_are() -> None:
    for bytes_ in (64, 1024, 16000, 13561600, 3000):
        assert keep_apart(int_const(bytes_), (int_const(bytes_ // 8),), int_const(8), {}) == int_const(bytes_)
    distance = Call("mul", (Size("N"), int_const(64)))
    assert keep_apart(distance, (Size("N"), int_const(16)), int_const(4), {"N": 4}) == distance


@pytest.mark.parametrize("dynamic", [False, True])
def test_steps_of_a_power_of_two_are_kept_apart(dynamic: bool) -> None:
    op = polyc.compile(FIELDS.format(t="float"), dynamic=dynamic, disable="recurrence-ends")
    x, steps = np.random.default_rng(2).uniform(-1, 1, (64, 128)).astype(np.float32), np.zeros(3, np.float32)
    expected = interpret(op.program, {"x": x, "steps": steps}).values()
    lowered = op.lower(x, steps)
    for a, b in zip(lowered.compile()(x, steps), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    loops = lowered.as_text("loops")
    assert ("2560" in loops) if dynamic else "shared U: f32[2, 64, 128] strides (35328, 512, 4)" in loops, loops
