"""Vector loops without tests of their index: what is computed stays, at sizes beside every border."""

from __future__ import annotations

import functools
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.ir.interpret import interpret
from tests.codegen.support import LEVELS
from tests.scheduler.support import check, lower, read

CASES = {
    "rows": "i == 2 || j == 0 || j == M-1 ? x(i, j) : 2 * x(i, j)",
    "first": "j == 0 ? x(i, j) : x(i, j) + x(i, j-1)",
    "last": "M-1 == j ? x(i, j) : x(i, j) + x(i, j+1)",
    "fixed": "i < 2 ? x(i, j) : x(i-2, j)",
    "both_ways": "i == 0 || j < 5 ? x(i, j) : x(i-1, j-5)",
    "up_to": "j <= i ? x(i, j) : 3 * x(i, j)",
    "from": "j >= i ? x(i, j) : 3 * x(i, j)",
    "beyond": "3 < j ? x(i, j) : 3 * x(i, j)",
    "not_beyond": "i + 2 >= j ? x(i, j) : 3 * x(i, j)",
    "all_but_one": "j < M-1 ? x(i, j) : 3 * x(i, j)",
    "counted_backwards": "M - j < 6 ? x(i, j) : 3 * x(i, j)",
    "three_parts": "j < 4 ? x(i, j) : (j == i ? 5.0 * x(i, j) : (j > i + 2 ? x(i, j) : 3 * x(i, j)))",
    "diagonal": "i == j ? 1.0 : x(i, j)",
    "every_second": "j % 2 == 0 ? x(i, j) : 0.0 - x(i, j)",
    "wide_borders": "i < 2 || i >= N-2 || j < 2 || j >= M-2 ? x(i, j) : x(i, j-2) + x(i, j+2)",
    "wider_borders": "j < 3 || M-7 <= j ? 2 * x(i, j) : x(i, j-3) + x(i, j+7)",
    "borders_in_borders": "j < 3 || j == 0 || j <= 1 || j > M-4 ? x(i, j) : x(i, j-3) + x(i, j+3)",
    "mostly_border": "j < 17 || j >= M-3 ? 3 * x(i, j) : x(i, j)",
    "twice": "j == 0 || 2 * j == 0 ? x(i, j) : x(i, j-1)",
    "data": "x(i, j) > 0.0 || j == 0 ? x(i, j) : 0.0",
}
SHAPES = {
    "known": ((5, 17), (40, 259)),
    "dynamic": ((3, 1), (3, 2), (5, 16), (5, 17), (9, 100), (40, 259)),
    "x86-64-v2": ((9, 100),),
}


def compute(text: str, setting: str) -> None:
    options: dict[str, Any] = {"known": {}, "dynamic": {"dynamic": True}}.get(setting, {"target": setting})
    operator = polyc.compile(text, **options)
    for shape in SHAPES[setting]:
        x = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
        found = operator(x)
        expected = interpret(operator.program, {"x": x}).values()
        for a, b in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("setting", SHAPES)
def test_values_are_those_of_the_interpreter(name: str, setting: str) -> None:
    compute(f"def f(float(N, M) x) -> (y) {{ y(i, j) = {CASES[name]} where i in 0:N, j in 0:M }}", setting)


BESIDE = {
    "chosen alike": "{condition} ? y(i, j) : y(i, j) + x(i, j)",
    "always": "y(i, j) + 2 * x(i, j)",
    "chosen otherwise": "j == 1 ? y(i, j) : y(i, j) + x(i, j)",
}


@pytest.mark.pairs
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("name", ["rows", "first", "fixed", "all_but_one", "wide_borders", "mostly_border", "diagonal"])
@pytest.mark.parametrize("setting", ["known", "x86-64-v2"])
def test_values_of_statements_in_one_loop(name: str, beside: str, setting: str) -> None:
    second, ranges = BESIDE[beside].format(condition=CASES[name].partition("?")[0]), "where i in 0:N, j in 0:M"
    compute(f"def f(float(N, M) x) -> (y, z) {{ y(i, j) = {CASES[name]} {ranges}  z(i, j) = {second} {ranges} }}", setting)


IN_PLACE = """def sweeps(double(N, M) x, double(T) steps) -> (y) {
  A(0, i, j) = x(i, j)
  A(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? A(t-1, i, j)
    : (A(t, i-1, j-1) + A(t, i-1, j) + A(t, i, j-1) + A(t-1, i, j) + A(t-1, i, j+1) + A(t-1, i+1, j)) / 6.0
    where t in 1:T+1, i in 0:N, j in 0:M
  y(i, j) = A(T, i, j)
}"""


def test_sweeps_over_rows_of_any_length_run_in_vectors() -> None:
    # With borders of unknown place inside of the loop, a sweep took 13 times as long as one over rows of known length.
    sweeps = polyc.compile(IN_PLACE, dynamic=True)
    rng = np.random.default_rng(3)
    lowered = sweeps.lower(rng.uniform(-1, 1, (40, 300)), np.zeros(4))
    long = re.search(r"scan\(lanes \d+\) for .*\n(.*)", lowered.as_text("loops"))
    assert long is not None and "?" not in long[1]
    assert "shufflevector <8 x double>" in lowered.as_text("ll") or "shufflevector <4 x double>" in lowered.as_text("ll")
    for n, m in [(1, 1), (2, 2), (3, 3), (5, 14), (5, 15), (5, 16), (5, 17), (7, 33), (40, 300), (0, 4), (4, 0)]:
        x, steps = rng.uniform(-1, 1, (n, m)), np.zeros(3)
        (expected,) = interpret(sweeps.program, {"x": x, "steps": steps}).values()
        np.testing.assert_allclose(sweeps(x, steps), expected, rtol=1e-12, atol=1e-14)


LEVINSON = """def levinson(double(N) r) -> (double(N) y) {
  a(0) = -r(0)
  b(0) = double(1)
  b(k) = (1.0 - a(k-1) * a(k-1)) * b(k-1) where k in 1:N
  s(k) +=! r(k-1-i) * Y(k-1, i) where i < k, k in 1:N, i in 0:N
  a(k) = -(r(k) + s(k)) / b(k) where k in 1:N
  Y(k, i) = i < k ? Y(k-1, i) + a(k) * Y(k-1, k-1-i) : (i == k ? a(k) : 0.0) where k in 0:N, i in 0:N
  y(i) = Y(N-1, i) }"""


@pytest.mark.parametrize("n", [1, 2, 3, 17, 64, 150])
def test_a_sum_and_the_values_it_takes_share_a_loop_without_tests(n: int) -> None:
    r = np.random.default_rng(n).uniform(-1, 1, n) / (4 * n)
    toeplitz = np.array([[1.0 if i == j else r[abs(i - j) - 1] for j in range(n)] for i in range(n)])
    for options in ({}, {"dynamic": True}, {"target": "x86-64-v3"}):
        np.testing.assert_allclose(polyc.compile(LEVINSON, **options)(r), np.linalg.solve(toeplitz, -r), rtol=1e-12, atol=1e-14)
    loops = polyc.compile(LEVINSON).lower(r).as_text("loops")
    vectors = [line for line in loops.splitlines() if "vector(" in line]
    assert n < 64 or any("registers s" in line for line in vectors)
    assert n < 64 or "?" not in loops


@pytest.mark.parametrize("first", ["i >= 2 ? A(key(i), i - 2) : 0.25", "pad(A(key(i), i - 2), 0.25)"])
@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"target": "x86-64-v3"}, {"target": "x86-64-v2"}], ids=str)
def test_a_place_that_one_arm_reads_where_it_holds_is_read_in_full_by_others(first: str, options: dict[str, Any]) -> None:
    text = f"def f(double(N, N) A, int16(N) key) -> (y) {{ y(i) = ({first}) >= 0.25 ? A(0, key(i)) : 9.0 where i in 0:N }}"
    a, key = np.arange(1.0, 122.0).reshape(11, 11), (np.arange(11) * 7 % 11).astype(np.int16)
    key[:2] = 5, 8
    np.testing.assert_array_equal(polyc.compile(text, **options)(a, key), a[0, key])


FAR_ROWS = {
    "padded": "pad(X(a-5,b-5,c-1), 0.0)",
    "the other arm": "a < 5 || a >= 17 || b < 5 || b >= 7558 || c < 1 || c >= 9 ? 0.0 : X(a-5,b-5,c-1)",
    "every second element": "pad(X(a-5,b-5,2*c-1), 0.0)",
}


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("form", FAR_ROWS)
def test_rows_beyond_a_short_padded_row_are_not_looked_for_where_no_page_is(form, level):
    # Masked off, their loads raise no fault, but take a hundred times as long there.
    text = f"def f(float(12,7553,8) X) -> (Y) {{ Y(a,b,c) = {FAR_ROWS[form]} where a in 0:19, b in 0:7563, c in 0:14 }}"
    x = np.arange(1, 12 * 7553 * 8 + 1, dtype=np.float32).reshape(12, 7553, 8)
    op = polyc.compile(text, target=level)
    if form != "every second element" or level == "x86-64-v4":  # elsewhere those are read one by one
        ir = op.lower(x).as_text("ll")
        (spare,) = set(re.findall(r"(%slot\d+) = alloca \[1024 x i8\]", ir))
        chosen = set(re.findall(rf"(%v\d+) = select i1 %v\d+, ptr %v\d+, ptr {spare}", ir))
        chosen |= {v for v, base in re.findall(r"(%v\d+) = getelementptr i8, ptr (%v\d+), i64 \d+", ir) if base in chosen}
        loaded = re.findall(r"call <8 x float> @llvm\.masked\.load\.\S+\(ptr (%v\d+),", ir)
        assert loaded and set(loaded) <= chosen
    wide = np.pad(x, ((5, 2), (5, 5), (1, 30)))
    found = op(x) if level in LEVELS else polyc.compile(text)(x)
    np.testing.assert_array_equal(found, wide[..., :28:2] if "2*c" in FAR_ROWS[form] else wide[..., :14])


# Three tensors: what is read several times beyond its borders is copied with them.
SOBEL = """def f(float(H,W) X, float(H,W) U, float(H,W) V) -> (Y) {{
  Y(y,x) = pad(X(y-1,x-1), {0}) + 2.0 * pad(U(y,x-1), {0}) - pad(V(y+1,x+2), {0}) where y in 0:H, x in 0:W }}"""
BORDERS = ("0.0", "clamp", "wrap", "reflect")


@pytest.mark.parametrize("border", BORDERS)
def test_sizes_beside_the_borders(border: str) -> None:
    for h, w in ((1, 1), (2, 63), (2, 64), (3, 65), (5, 131)):
        check(SOBEL.format(border), {"H": h, "W": w})


STRIDED = """def f(float(H,W) X, float(H,W) U) -> (Y) {
  Y(y,x) = pad(X(y-1,2*x-1), 0.0) - pad(U(y+1,2*x+2), 0.0) where y in 0:H, x in 0:W/2 }"""


def test_every_second_element_beside_borders() -> None:
    op = polyc.compile(STRIDED, target="x86-64-v3")
    for h, w in ((5, 56), (3, 20), (1, 24), (4, 64), (2, 2)):
        x, u = (np.arange(h * w, dtype=np.float32).reshape(h, w) + n for n in (1, 1000))
        px, pu = (np.pad(a, ((1, 1), (1, 2))) for a in (x, u))
        np.testing.assert_array_equal(op(x, u), px[:h, 0:w:2] - pu[2:, 3 : w + 3 : 2])


def test_a_test_that_moves_with_the_rows() -> None:
    # The interior of each row ends somewhere else, and is empty in some.
    text = "def f(float(N,N) X) -> (Y) { Y(i,j) = 2.0 * (j < i - 70 ? X(i,j) : 0.5) + (j + i > 150 ? X(i,j) : 1.5) }"
    for n in (64, 80, 200):
        check(text, {"N": n})


def test_tests_that_hold_nowhere() -> None:
    text = "def f(float(N) X, float(M) Z) -> (Y) { Y(i) = Z(i) + pad(X(i+90), 2.0) + pad(X(i-90), clamp) }"
    for n, m in ((1, 70), (30, 100), (200, 400)):
        check(text, {"N": n, "M": m})
    assert read(text)


@pytest.mark.each
@pytest.mark.parametrize("border", BORDERS[1:])
@pytest.mark.parametrize("padding", [1, 3])
def test_a_copy_with_a_border_reads_rows(border: str, padding: int) -> None:
    text = (
        f"def f(float(H,W) X) -> (Y) {{ Y(y,x) = pad(X(y-{padding},x-{padding}), {border}) "
        f"where y in 0:H+{2 * padding}, x in 0:W+{2 * padding} }}"
    )
    lines = lower(text, {"H": 20, "W": 40}).as_text("loops").splitlines()
    vectors = [after for line, after in pairwise(lines) if "vector(" in line and f"c1 = {padding}" in line]
    # The interior and the rows beside it, which mirrored rows stand in for.
    assert len(vectors) == 2 and all(f"c1 - {padding}]" in line for line in vectors)
    for h, w in ((1, 1), (4, 14), (4, 15), (4, 16), (7, 33), (3, 100), (2, 2)):
        check(text, {"H": h, "W": w})


def test_other_stand_ins_are_not_taken_for_borders() -> None:
    text = "def f(float(H,W) X) -> (Y) { Y(y,x) = y > 1 && x > 1 ? X(y,x) : X(H-1-y,W-1-x) where y in 0:H, x in 0:W }"
    for h, w in ((5, 40), (3, 17)):
        check(text, {"H": h, "W": w})


GRADIENTS = "def f(float(N, D) X) -> (U, V) { U(n, d) = X(n, d + 1) - X(n, d)  V(n, d) = X(n + 1, d) - X(n, d) }"
SHIFTS = (
    "def f(float(N, D) X) -> (U, V, W) { U(n, d) = X(n, d) + X(n, d + 2)  V(n, d) = X(n, d) * X(n, d + 1)  W(n, d) = -X(n, d) }"
)


def images(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).random((rows, columns), np.float32)


@pytest.mark.parametrize("shape", [(2, 2), (2, 70), (3, 64), (3, 65), (5, 67), (17, 130), (4, 333)])
def test_every_element_is_computed_once(shape: tuple[int, int]) -> None:
    x = images(*shape)
    u, v = polyc.compile(GRADIENTS)(x)
    np.testing.assert_array_equal(u, x[:, 1:] - x[:, :-1])
    np.testing.assert_array_equal(v, x[1:] - x[:-1])


def test_sizes_that_are_known_at_the_call_only() -> None:
    op = polyc.compile(SHIFTS, dynamic=True)
    for columns in (3, 18, 64, 66, 67, 129, 1000):
        x = images(3, columns)
        u, v, w = op(x)
        np.testing.assert_array_equal(u, x[:, :-2] + x[:, 2:])
        np.testing.assert_array_equal(v, x[:, :-1] * x[:, 1:])
        np.testing.assert_array_equal(w, -x)


def vector_bodies(text: str) -> list[str]:
    """What stands in each vector loop."""
    lines = text.splitlines()
    found = []
    for n, line in enumerate(lines):
        if line.strip().startswith("vector("):
            depth = len(line) - len(line.lstrip())
            end = next(m for m in range(n + 1, len(lines)) if lines[m].startswith(" " * depth + "}"))
            found.append("\n".join(lines[n + 1 : end]))
    return found


CONV = "def conv(float(C,H,W) I, float(K,C,3,3) F) -> (O) { O(k,h,w) +=! I(c,h+r,w+s) * F(k,c,r,s) }"


def filters(k: int, c: int) -> np.ndarray:
    return np.random.default_rng(1).random((k, c, 3, 3), np.float32)


def correlated(x: np.ndarray, f: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x.astype("f8"), (3, 3), (1, 2))
    return np.einsum("chwrs,kcrs->khw", windows, f.astype("f8"))


def test_tiles_of_results_in_pairs_have_a_version_without_tests() -> None:
    x, f = np.zeros((16, 301, 301), "f4"), filters(64, 16)
    bodies = vector_bodies(polyc.compile(CONV, target="x86-64-v3").lower(x, f).as_text("loops"))
    results = [body for body in bodies if "O[" in body and "for (" not in body]
    assert any("if (" in body for body in results)  # the last row and column, of which there is half a pair
    assert any("if (" not in body and body.count("O[") == 4 for body in results)


@functools.cache
def for_any_sizes(target: str) -> polyc.Operator:
    op = polyc.compile(CONV, target=target, dynamic=True)
    op(np.zeros((16, 61, 61), "f4"), filters(64, 16))
    return op


@pytest.mark.each
@pytest.mark.parametrize("is_fixed", [True, False])
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize("shape", [(16, 5, 51), (16, 8, 50), (16, 9, 111), (5, 7, 98)])
def test_tiles_of_results_in_pairs_at_odd_and_even_sizes(shape: tuple[int, int, int], target: str, is_fixed: bool) -> None:
    x, f = np.random.default_rng(2).random(shape, np.float32), filters(64, shape[0])
    op = polyc.compile(CONV, target=target) if is_fixed else for_any_sizes(target)
    np.testing.assert_allclose(op(x, f), correlated(x, f), rtol=1e-4, atol=1e-4)


DATA_TESTS = {
    "a(k) < b(k) && a(k) < 100.0": lambda a, b: (a < b) & (a < 100),
    "a(k) >= b(k) + 1.5 && a(k) < 100.0": lambda a, b: (a >= b + np.float32(1.5)) & (a < 100),
    "!(a(k) < 2.5) && b(k) < 9.0": lambda a, b: ~(a < 2.5) & (b < 9),
    "a(k) > 2.0 || !(b(k) >= 1.0)": lambda a, b: (a > 2) | ~(b >= 1),
}


@pytest.mark.parametrize("condition", DATA_TESTS)
def test_comparisons_with_nan_of_a_row_choose_as_in_each_vector(condition: str) -> None:
    a, b = (m.ravel().copy() for m in np.meshgrid(*[np.float32([np.nan, -np.inf, 0.5, 1.0, 1.7, 2.5, 3.0])] * 2))
    x = np.arange(a.size * 300, dtype=np.float32).reshape(a.size, 300)
    source = f"def f(float(K) a, float(K) b, float(K, M) x) -> (o) {{ o(k, m) = {condition} ? x(k, m) * 2.0 : x(k, m) + 1.5 }}"
    op = polyc.compile(source)
    chosen = DATA_TESTS[condition](a, b)[:, None]
    np.testing.assert_array_equal(op(a, b, x), np.where(chosen, x * 2, x + np.float32(1.5)))


def test_data_of_a_row_is_asked_once() -> None:
    source = "def f(float(K) a, float(K, M) x) -> (o) { o(k, m) = a(k) < 2.0 && a(k) > 1.0 ? x(k, m) * 2.0 : x(k, m) + 1.5 }"
    text = polyc.compile(source, target="x86-64-v3").lower(("float32", (9,)), ("float32", (9, 1000))).as_text("loops")
    assert re.search(r"if \(.*a\[c0\].*\n\s+vector", text)
