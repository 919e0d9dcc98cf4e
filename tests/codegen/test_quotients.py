"""Quotients by what stays the same in a loop: those of NumPy, at the ends of the range as well, without a division a vector."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from tests.property.guarded import Region

from .support import LEVELS

TYPES = [("float", np.float32), ("double", np.float64)]


def specials(dtype: type) -> np.ndarray:
    f = np.finfo(dtype)
    values = [0, np.inf, np.nan, f.max, f.max / 2, f.tiny, f.smallest_subnormal, f.smallest_subnormal * 5, 1, 2, 3, 0.1, 7]
    powers = [2.0**e for e in (100, 101, -100, -101, 63, -63, 127, -126)]
    return np.array([s * v for v in (*values, *powers, *(p * 1.3 for p in powers)) for s in (1, -1)], dtype)


def is_near(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Whether values are the same, zeros and infinities with their signs, or next to each other."""
    next_to = (np.nextafter(wanted, wanted.dtype.type(-np.inf)) <= found) & (
        found <= np.nextafter(wanted, wanted.dtype.type(np.inf))
    )
    is_plain = np.isfinite(wanted) & (wanted != 0)
    same = ((found == wanted) & (np.signbit(found) == np.signbit(wanted))) | (np.isnan(found) & np.isnan(wanted))
    return np.where(is_plain, next_to, same)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("name", "dtype"), TYPES)
def test_the_ends_of_the_range_divide_as_in_numpy(level: str, name: str, dtype: type) -> None:
    operator = polyc.compile(f"def f({name}(N) x, {name} d) -> (y) {{ y(i) = x(i) / d }}", target=level)
    x = np.resize(specials(dtype), 1500)
    with np.errstate(all="ignore"):
        for d in specials(dtype):
            assert is_near(operator(x, d), x / d).all(), d


@pytest.mark.parametrize(("name", "dtype"), TYPES)
def test_hardly_any_quotient_is_rounded_otherwise(name: str, dtype: type) -> None:
    operator = polyc.compile(f"def f({name}(N) x, {name} d) -> (y) {{ y(i) = x(i) / d }}", target="x86-64-v3")
    rng = np.random.default_rng(0)
    x = rng.standard_normal(100_000).astype(dtype)
    differ = sum(int((operator(x, d) != x / d).sum()) for d in rng.standard_normal(30).astype(dtype))
    assert differ <= 20


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("name", "dtype"), TYPES)
def test_last_bits_near_the_smallest_numbers_without_reassociation(level: str, name: str, dtype: type) -> None:
    text = f"def f({name}(N) x, {name} d) -> (y, z) {{ y(i) = x(i) / d  z(i) = x(i) / {name}(3.3) }}"
    x = (np.random.default_rng(0).standard_normal(3001) * np.finfo(dtype).tiny * 8).astype(dtype)
    d = dtype(3.7)
    for dynamic in (False, True):
        y, z = polyc.compile(text, target=level, reassociate=False, dynamic=dynamic)(x, d)
        np.testing.assert_array_equal(y, x / d)
        np.testing.assert_array_equal(z, x / dtype(3.3))


@pytest.mark.parametrize("divisor", ["3.0", "-0.1", "961.0", "2.0", "1e-30", "1e30", "0.0", "1e-40"])
@pytest.mark.parametrize("n", [1, 5, 16, 100])
def test_literals_divide_as_in_numpy(divisor: str, n: int) -> None:
    operator = polyc.compile(f"def f(float(N) x) -> (y) {{ y(i) = x(i) / {divisor} }}", target="x86-64-v3")
    all_values = np.concatenate([specials(np.float32), np.random.default_rng(1).standard_normal(80).astype("f4")])
    with np.errstate(all="ignore"):
        for start in range(0, len(all_values) - n + 1, n):
            x = all_values[start : start + n]
            assert is_near(operator(x), x / np.float32(divisor)).all()


def test_a_long_loop_divides_once() -> None:
    x = np.ones(5000)
    text = (
        polyc.compile("def f(double(N) x, double d) -> (y) { y(i) = x(i) / d }", target="x86-64-v3").lower(x, 3.0).as_text("s")
    )
    loop = text.split("vfmadd")[0].rsplit(".LBB", 1)[-1]
    assert "vfmadd" in text and "vdiv" not in loop


def test_short_loops_and_machines_without_fused_products_divide() -> None:
    short = np.ones((3, 7), "f4")
    source = "def f(float(N,M) x, float(N) d) -> (y) { y(i,j) = x(i,j) / d(i) }"
    assert "vdivps" in polyc.compile(source, target="x86-64-v3").lower(short, short[:, 0]).as_text("s")
    assert "divps" in polyc.compile(source, target="x86-64-v2").lower(np.ones((3, 4000), "f4"), short[:, 0]).as_text("s")


TWICE = """def f(float(N, D) X) -> (Y, Z) {
  S(n) +=! X(n, d)  Y(n, d) = X(n, d) / S(n)  M(n) max=! Y(n, d)  Z(n, d) = Y(n, d) / M(n) + X(n, d) / S(n)
}"""


@pytest.mark.parametrize("level", ["x86-64-v4", "x86-64-v3"])
def test_all_parts_of_a_loop_of_any_length_share_a_divisor(level: str) -> None:
    text = "def f(float(N, D) X) -> (Y) { S(n) +=! X(n, d)  Y(n, d) = X(n, d) / S(n) }"
    code = polyc.compile(text, dynamic=True, target=level).lower(np.ones((3, 100), "f4")).as_text("ll")
    (function,) = [part for part in code.split("\ndefine ") if "!nontemporal" in part]
    assert function.count("fdiv <") == 2  # of rows that are streamed, and of others


@pytest.mark.parametrize("level", LEVELS)
def test_divisors_that_change_are_taken_apart_anew(level: str) -> None:
    operator = polyc.compile(TWICE, dynamic=True, target=level)
    for n in (*range(1, 40), 64, 100, 517):
        x = np.random.default_rng(n).uniform(0.5, 2, (3, n)).astype("f4")
        y, z = operator(x)
        wanted = x / x.sum(1, keepdims=True)
        np.testing.assert_allclose(y, wanted, rtol=1e-5)
        np.testing.assert_allclose(z, wanted / wanted.max(1, keepdims=True) + wanted, rtol=1e-5)


def test_a_loop_that_does_not_run_reads_no_divisor() -> None:
    """An empty array of divisors may end where memory ends."""
    operator = polyc.compile("def f(float(N) X, float(K) S) -> (Y) { Y(i) = X(i) / S(0) }", dynamic=True)
    page = np.frombuffer(Region(1).contents, np.uint8)
    nothing = np.ndarray((0,), "f4", page.data, page.size)
    assert operator(nothing, nothing).shape == (0,)
    np.testing.assert_array_equal(operator(np.ones(99, "f4"), np.full(1, 2, "f4")), np.full(99, 0.5, "f4"))
