"""Loops that run in order: borders apart, the latest elements in registers, recurrences of order two in vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc
from polyc.ir.interpret import interpret
from tests.codegen.support import LEVELS

CASES = {
    "sum": "i > 0 ? y(i-1) + x(i) : x(i)",
    "smooth": "i == 0 ? x(0) : y(i-1) + 0.25 * (x(i) - y(i-1))",
    "alternate": "i == 0 ? x(0) : x(i) - y(i-1)",
    "second order": "0.2 * x(i) + (i > 0 ? 1.2 * y(i-1) : 0.0) - (i > 1 ? 0.5 * y(i-2) : 0.0)",
    "second order, no input": "i < 2 ? x(i) : 1.5 * y(i-1) - 0.9 * y(i-2)",
    "second order, backwards": "x(i) + (i < N-1 ? 0.5 * y(i+1) : 0.0) + (i < N-2 ? 0.25 * y(i+2) : 0.0)",
    "growing": "x(i) + (i > 1 ? 3.0 * y(i-1) + 2.0 * y(i-2) : 0.0)",
    "factors that change": "i < 2 ? x(i) : 0.5 * x(i-1) * y(i-1) - 0.25 * y(i-2)",
    "third order": "x(i) + (i > 2 ? 0.5 * y(i-1) - 0.25 * y(i-2) + 0.125 * y(i-3) : 0.0)",
    "not linear": "i == 0 ? x(0) : x(i) / (2.0 + y(i-1) * y(i-1))",
    "two ends": "i == 0 || i == N-1 ? x(i) : 0.5 * y(i-1) + 0.25 * x(i+1) / (1.0 + y(i-1) * y(i-1))",
    "data": "i == 0 ? x(i) : (x(i) > 0.0 ? y(i-1) * 0.5 + x(i-1) : x(i))",
    "ends by data": "i > 0 ? (x(i) > 0.0 ? x(i-1) * y(i-1) : x(i) - y(i-1)) : x(i)",
}


SETTINGS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "any size": ({"dynamic": True}, (3, 4, 9, 17, 18, 67, 300)),
    "known": ({}, (4, 67)),
    "short vectors": ({"target": "x86-64-v2"}, (18,)),
    "in order": ({"reassociate": False}, (17,)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("setting", SETTINGS)
def test_values_are_those_of_the_interpreter(name: str, setting: str) -> None:
    options, sizes = SETTINGS[setting]
    operator = polyc.compile(f"def f(double(N) x) -> (y) {{ y(i) = {CASES[name]} where i in 0:N }}", **options)
    for size in sizes:
        x = np.random.default_rng(1).uniform(-1, 1, size)
        (expected,) = interpret(operator.program, {"x": x}).values()
        np.testing.assert_allclose(operator(x), expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


GRIDS = {
    "longest common subsequence": "i == 0 || j == 0 ? 0 : (a(i) == b(j) ? y(i-1, j-1) + 1 : max(y(i-1, j), y(i, j-1)))",
    "best local match": (
        "i == 0 || j == 0 ? 0 : max(max(y(i-1, j), y(i, j-1)) - 2, max(0, y(i-1, j-1) + (a(i) == b(j) ? 3 : -3)))"
    ),
    "scores by data": "i == 0 ? -j : (j == 0 ? -i : max(max(y(i-1, j), y(i, j-1)) - 1, y(i-1, j-1) + W(a(i), b(j))))",
    "sums over rectangles": "a(i) + (i > 0 ? y(i-1, j) : 0) + (j > 0 ? y(i, j-1) : 0) - (i > 0 && j > 0 ? y(i-1, j-1) : 0)",
    "over the left border": "a(i) + (j > 1 && i < 3 ? y(i, j-2) : (j > 0 ? y(i, j-1) : 0))",
}


@pytest.mark.each
@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (5, 16), (9, 100), (40, 67)])
@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"target": "x86-64-v2"}], ids=str)
def test_rows_that_go_on_from_each_other(name: str, shape: tuple[int, int], options: dict[str, Any]) -> None:
    text = f"""def f(int32(N) a, int32(M) b, int32(K, K) W) -> (y) {{
      y(i, j) = {GRIDS[name].replace("-j", "-1 * int32(j)").replace("-i", "-1 * int32(i)")} where i in 0:N, j in 0:M }}"""
    rng = np.random.default_rng(2)
    a, b = (rng.integers(0, 4, n, dtype=np.int32) for n in shape)
    W = rng.integers(-3, 4, (4, 4), dtype=np.int32)
    operator = polyc.compile(text, **options)
    (expected,) = interpret(operator.program, {"a": a, "b": b, "W": W}).values()
    np.testing.assert_array_equal(operator(a, b, W), expected)


def test_not_a_number_spoils_what_follows_and_nothing_before() -> None:
    text = f"def f(float(N) x) -> (y) {{ y(i) = {CASES['second order']} where i in 0:N }}"
    x = np.ones(200, np.float32)
    x[77] = np.nan
    y = polyc.compile(text)(x)
    assert np.isfinite(y[:77]).all() and np.isnan(y[77:]).all()


def test_factors_that_are_parameters() -> None:
    text = """def f(double a, double b, double(M, N) x) -> (y) {
      y(m, i) = x(m, i) + (i > 0 ? a * y(m, i-1) : 0.0) + (i > 1 ? b * y(m, i-2) : 0.0) where m in 0:M, i in 0:N }"""
    operator = polyc.compile(text)
    x = np.random.default_rng(3).uniform(-1, 1, (5, 120))
    for a, b in ((1.98, -0.985), (-1.9, -0.95), (0.0, -1.0), (0.0, 0.0), (1.0, 1.0), (40.0, -7.0)):
        x = x[:, :40] if a == 40.0 else x
        (expected,) = interpret(operator.program, {"a": np.array(a), "b": np.array(b), "x": x}).values()
        np.testing.assert_allclose(operator(a, b, x), expected, rtol=1e-10, atol=1e-11 * np.abs(expected).max())


def test_the_loop_inside_reads_registers() -> None:
    text = f"def f(double(N) x) -> (y) {{ y(i) = {CASES['not linear']} where i in 0:N }}"
    loops = polyc.compile(text).lower(N=300).as_text("loops")
    inner = loops[loops.rindex("for (") :]
    assert "y.last0[1] * y.last0[1]" in inner and "y[c0 - 1]" not in inner and "?" not in loops


COLUMNS = {
    "first order": "i == 0 ? x(b, 0, m) : a(m) * y(b, i-1, m) + x(b, i, m)",
    "second order": "i < 2 ? x(b, i, m) : y(b, i-1, m) - 0.5 * y(b, i-2, m) + x(b, i, m)",
    "by column": "i == 0 ? x(b, 0, m) : m < 3 ? y(b, i-1, m) : 0.5 * y(b, i-1, m) + x(b, i, m)",
    "by data": "i == 0 ? x(b, 0, m) : x(b, i, m) > 0.0 ? x(b, i, m) : 0.5 * y(b, i-1, m)",
    "from both sides": "i == 0 ? x(b, 0, m) : i == N-1 || m == 0 ? 0.0 : y(b, i-1, m) + y(b, i-1, m-1)",
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_a_batch_run_in_vectors(name: str) -> None:
    text = f"def f(float(B, N, M) x, float(M) a) -> (y) {{ y(b, i, m) = {COLUMNS[name]} where b in 0:B, i in 0:N, m in 0:M }}"
    operator = polyc.compile(text)
    rng = np.random.default_rng(4)
    for shape in ((3, 40, 64), (1, 12, 32), (2, 10, 20)):
        x, a = (rng.uniform(-1, 1, s).astype(np.float32) for s in (shape, shape[2]))
        (expected,) = interpret(operator.program, {"x": x, "a": a}).values()
        lowered = operator.lower(x, a)
        np.testing.assert_allclose(lowered.compile()(x, a), expected, rtol=1e-6, atol=1e-6)
        assert "vector(" in lowered.as_text("loops")


def test_running_sums_over_a_batch_take_whole_rows() -> None:
    text = "def f(float(B, N, M) x) -> (y) { y(b, 0, m) = x(b, 0, m) y(b, i, m) = y(b, i-1, m) + x(b, i, m) where i in 1:N }"
    operator = polyc.compile(text)
    x = np.random.default_rng(4).uniform(-1, 1, (3, 40, 64)).astype(np.float32)
    (expected,) = interpret(operator.program, {"x": x}).values()
    np.testing.assert_array_equal(operator(x), expected)
    loops = operator.lower(x).as_text("loops")
    assert loops.count("vector(") == loops.count("< 64; ") >= 2


STATES = {
    "three of one step": """
      y(t) = t == 0 ? a(0) : y(t-1) + 0.1 * (p(t-1) - y(t-1)) where t in 0:N
      p(t) = t == 0 ? a(1) : p(t-1) + 0.1 * (y(t-1) * (2.0 - q(t-1)) - p(t-1)) where t in 0:N
      q(t) = t == 0 ? a(2) : q(t-1) + 0.1 * (y(t-1) * p(t-1) - q(t-1)) where t in 0:N""",
    "two steps back": """
      y(t) = p(t) * 0.5 + (t < 2 ? 0.0 : q(t-2) - y(t-1)) where t in 0:N
      p(t) = a(t) + (t < 3 ? 0.0 : 0.5 * p(t-3) - 0.25 * p(t-1)) where t in 0:N
      q(t) = t == 0 ? a(0) : 0.5 * q(t-1) + p(t) where t in 0:N""",
    "borders at both ends": """
      y(t) = t == N-1 ? 0.0 : p(t) + (t == 0 ? 0.0 : 0.5 * y(t-1)) where t in 0:N
      p(t) = t == 0 ? a(0) : t >= N-2 ? p(t-1) : 0.5 * p(t-1) + a(t) / (1.0 + q(t-1) * q(t-1)) where t in 0:N
      q(t) = a(t) + (t == 0 ? 0.0 : 0.5 * p(t-1) * p(t-1)) where t in 0:N""",
}


@pytest.mark.parametrize("name", STATES)
def test_states_of_which_a_few_steps_are_kept(name: str) -> None:
    text = f"def f(double(N) a) -> (y) {{ {STATES[name]} }}"
    for decimal in ("0.25", "0.5", "0.1", "1.0", "2.0", "0.0"):
        text = text.replace(f" {decimal}", f" double({decimal})")
    for options in ({}, {"dynamic": True}, {"target": "x86-64-v2"}):
        operator = polyc.compile(text, **options)
        for size in (3, 4, 5, 9, 40):
            a = np.random.default_rng(5).uniform(-1, 1, size)
            (expected,) = interpret(operator.program, {"a": a}).values()
            np.testing.assert_allclose(operator(a), expected, rtol=1e-11, atol=1e-12)


def test_states_stay_in_registers() -> None:
    loops = polyc.compile(f"def f(float(N) a) -> (y) {{ {STATES['three of one step']} }}").lower(N=300).as_text("loops")
    assert "?" not in loops and all(f" = {name}.last" in loops for name in "ypq")


def test_a_few_columns_go_from_step_to_step_in_registers() -> None:
    loops = polyc.compile(
        "def f(float(N, M) x) -> (y) { y(0, m) = x(0, m) y(i, m) = y(i-1, m) + x(i, m) where i in 1:N }", target="x86-64-v3"
    )
    inner = loops.lower(N=40, M=16).as_text("loops")
    inner = inner[inner.rindex("for (c") :]
    assert "y.last0[1, " in inner and "- 1, " not in inner


@pytest.mark.parametrize("columns", [2, 3, 4, 5, 6, 7, 12, 15])
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_columns_that_fill_no_vector_go_from_step_to_step_in_registers(columns: int, level: str) -> None:
    """Stored under a mask and loaded by the next step they waited for memory in each: four times as long."""
    text = "def f(float(B, N, M) x) -> (y) { y(b, i, m) = i == 0 ? x(b, i, m) : y(b, i-1, m) + x(b, i, m) }"
    operator = polyc.compile(text, target=level)
    lowered = operator.lower(B=4, N=40, M=columns)
    inner = lowered.as_text("loops")
    inner = inner[inner.rindex("for (c1") :]
    assert "y.last0[1, " in inner and "- 1, " not in inner
    x = np.random.default_rng(columns).standard_normal((4, 40, columns), "f")
    np.testing.assert_allclose(lowered.compile()(x), np.cumsum(x, 1), rtol=1e-4, atol=1e-4)


@pytest.mark.each
@pytest.mark.parametrize("columns", [9, 13, 21, 31])
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_vectors_of_which_the_last_is_not_full_go_from_step_to_step_in_registers(columns: int, level: str) -> None:
    text = """def f(double(T, N) r, double q) -> (S, C) {
      S(0, i) = r(0, i)
      S(t, i) = q * S(t-1, i) + r(t, i) where t in 1:T
      V(0, i) = r(0, i)
      V(t, i) = q * V(t-1, i) + r(t, i) * r(t, i) where t in 1:T
      C(i) = V(T-1, i) }"""
    operator = polyc.compile(text, target=level)
    loops = operator.lower(T=40, N=columns).as_text("loops")
    lanes = 8 if level == "x86-64-v4" else 4
    if columns <= 4 * lanes:
        assert f"f64[2, {-(-columns // lanes) * lanes}]" in loops  # a step shares no vector with the next one
    r = np.random.default_rng(columns).standard_normal((40, columns))
    s, c = operator(r, 0.5) if level in LEVELS else polyc.compile(text)(r, 0.5)
    state, squares = r[0].copy(), r[0].copy()
    for t in range(1, 40):
        state, squares = 0.5 * state + r[t], 0.5 * squares + r[t] ** 2
        np.testing.assert_allclose(s[t], state, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(c, squares, rtol=1e-12, atol=1e-12)


BAND = """def f(double(N, W) A) -> (L) {
  S(i, d) +=! L(i, d + k) * L(i - d, k) where i in 0:N, d in 0:W, k in 1:W, d + k < W, i - d - k >= 0
  L(i, d) = d == 0 ? sqrt(A(i, 0) - S(i, 0)) : (i - d >= 0 ? (A(i, d) - S(i, d)) / L(i - d, 0) : double(0))
    where i in 0:N, d in 0:W
}"""


def test_short_sums_of_elements_just_stored_wait_for_no_vector() -> None:
    operator = polyc.compile(BAND, target="x86-64-v3")
    loops = operator.lower(N=50, W=9).as_text("loops")
    (row,) = [line for line in loops.splitlines() if "registers S" in line]
    assert "vector" not in row
    rng = np.random.default_rng(0)
    a = rng.uniform(-0.1, 0.1, (50, 9)) + np.eye(1, 9) * 5
    whole = np.zeros((50, 50))
    for d in range(9):
        whole[range(d, 50), range(50 - d)] = a[d:, d]
    factor = np.linalg.cholesky(whole + np.tril(whole, -1).T)
    band = operator(a)
    for d in range(9):
        np.testing.assert_allclose(band[d:, d], factor[range(d, 50), range(50 - d)], rtol=1e-12, atol=1e-12)


def test_sums_over_the_step_before_keep_their_vectors() -> None:
    text = """def f(float(T, H) x, float(H, H) u) -> (h) {
      h(0, i) = x(0, i)
      s(t, i) +=! h(t-1, j) * u(i, j) where t in 1:T
      h(t, i) = tanh(s(t, i) + x(t, i)) where t in 1:T
    }"""
    assert "vector" in polyc.compile(text, target="x86-64-v3").lower(T=50, H=8).as_text("loops").split("for (c0 = 0")[-1]


ATTRACTOR = """def f(double(T) h, double(3) s) -> (X) {
  X(0, k) = s(k)
  X(t, 0) = X(t-1, 0) + h(t) * 10.0 * (X(t-1, 1) - X(t-1, 0)) where t in 1:T
  X(t, 1) = X(t-1, 1) + h(t) * (X(t-1, 0) * (28.0 - X(t-1, 2)) - X(t-1, 1)) where t in 1:T
  X(t, 2) = X(t-1, 2) + h(t) * (X(t, 0) * X(t-1, 1) - 2.5 * X(t-1, 2)) where t in 1:T
}"""


@pytest.mark.parametrize("steps", [1, 2, 3, 9, 10, 100])
def test_states_in_columns_of_one_matrix_stay_in_registers(steps: int) -> None:
    h, s = np.full(steps, 0.01), np.array([1.0, 2.0, 3.0])
    for options in ({}, {"dynamic": True}, {"target": "x86-64-v2"}):
        operator = polyc.compile(ATTRACTOR, **options)
        (expected,) = interpret(operator.program, {"h": h, "s": s}).values()
        np.testing.assert_allclose(operator(h, s), expected, rtol=1e-11)
    if steps == 100:
        (loops,) = [part for part in operator.lower(h, s).as_text("loops").split("\n  for ") if "c0 < 99" in part]
        reads = loops.split("{", 1)[1]
        assert reads.count("= X[") == 0 and reads.count("- X[") == 0 and "if (" not in reads


CROSSING = """def f(double(N) x) -> (y) {
  y(0, 0) = x(0)
  y(0, 1) = x(1)
  y(i, 0) = y(i-1, 1) * 0.5 + x(i) where i in 1:N
  y(i, 1) = y(i-1, 0) / (2.0 + y(i, 0) * y(i, 0)) where i in 1:N
}"""
TURNS = """def f(double(N) x) -> (y) {
  y(0) = x(0)
  y(1) = x(1)
  y(2*i) = y(2*i-1) * 0.5 + x(2*i) where i in 1:N/2
  y(2*i+1) = y(2*i) / (2.0 + y(2*i-2) * y(2*i-2)) where i in 1:N/2
}"""


@pytest.mark.each
@pytest.mark.parametrize("text", [CROSSING, TURNS])
@pytest.mark.parametrize("size", [2, 4, 10, 50])
def test_two_stores_to_one_array(text: str, size: int) -> None:
    x = np.random.default_rng(3).uniform(-1, 1, size)
    for options in ({}, {"dynamic": True}):
        operator = polyc.compile(text, **options)
        (expected,) = interpret(operator.program, {"x": x}).values()
        np.testing.assert_allclose(operator(x), expected, rtol=1e-12)


BITS = """
def bits(x: "u32[N]"):
    code[0] = polyc.u32(1)
    with polyc.where(0 <= n < N, 0 <= bit < 6):
        step[n, 0] = code[n] ^ x[n]
        step[n, bit + 1] = (step[n, bit] >> 1) ^ (3988292384 if step[n, bit] & 1 != 0 else 0)
        code[n + 1] = step[n, 6]
    result = code[N]
    return result
"""


def test_a_few_steps_of_one_element_are_written_out() -> None:
    operator = polyc.op(BITS, target="x86-64-v3")
    x = np.array([5, 2**31 + 9, 77], "u4")
    code = 1
    for n in x:
        code ^= int(n)
        for _ in range(6):
            code = code >> 1 ^ (0xEDB88320 if code & 1 else 0)
    assert operator(x) == code
    text = operator.lower(x).as_text("s")
    jumps = [
        line for line in text[text.index("bits.body:") : text.index("bits_workspace")].splitlines() if line.startswith("\tj")
    ]
    assert len(jumps) == 1  # over n; none over the bits
