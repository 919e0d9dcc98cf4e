"""f16 and bf16 in machine code: every value both ways, the rounding, and what the inner loops of a product look like."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.codegen.objects.host import host_target
from polyc.config import Options
from polyc.ir.halves import narrow, widen
from polyc.ir.types import BF16, F16, F32, F64, DType
from polyc.machine import BASELINE, PINNED, Machine, is_runnable, select_model

LEVELS = {name: select_model(host_target(), name) for name in PINNED}
TARGETS = {"host": host_target(), "generic": BASELINE} | {n: t for n, t in LEVELS.items() if is_runnable(t, host_target())}
pytestmark = pytest.mark.filterwarnings("ignore:invalid value")  # NumPy warns of signalling NaNs
EVERY = np.arange(1 << 16, dtype=np.uint16)


def _compile(text: str, target: Machine) -> Callable[..., np.ndarray]:
    return driver.lower(driver.read_tc(text)[0], target=target).compile()


def _same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal bit by bit, but for the payload of a NaN."""
    word = f"u{got.itemsize}"
    wide, reference = widen(got), widen(expected)
    both_nan = np.isnan(wide) & np.isnan(reference)
    assert np.array_equal(got.view(word)[~both_nan], expected.view(word)[~both_nan])
    assert np.array_equal(np.isnan(wide), np.isnan(reference))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_all_values_become_f32_and_come_back(dtype: DType, target: Machine) -> None:
    x = EVERY.view(dtype.numpy)
    wide = _compile(f"def f({dtype.label}(N) A) -> (O) {{ O(i) = float(A(i)) }}", target)(x)
    _same_bits(wide, widen(x))
    back = _compile(f"def f(float(N) A) -> (O) {{ O(i) = {dtype.label}(A(i)) }}", target)(wide)
    _same_bits(back, x)


@pytest.mark.pairs
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("source", [F32, F64], ids=str)
def test_rounding_is_to_the_nearest_and_to_even_on_ties(dtype: DType, source: DType, target: Machine) -> None:
    x = _edges(dtype, source)
    narrowed = _compile(f"def f({source.label}(N) A) -> (O) {{ O(i) = {dtype.label}(A(i)) }}", target)(x)
    _same_bits(narrowed, narrow(x, dtype))
    # the neighbours on both sides are no nearer (where they are finite), whatever `narrow` says
    values = widen(narrowed).astype(np.float64)
    finite = np.isfinite(values) & np.isfinite(x)
    bits = narrowed.view(np.uint16).astype(np.int64)
    for step in (-1, 1):
        magnitude = np.clip((bits & 0x7FFF) + step, 0, 0x7FFF)
        other = widen(((bits & 0x8000) | magnitude).astype(np.uint16).view(dtype.numpy)).astype(np.float64)
        near = np.abs(values - x.astype(np.float64))[finite]
        far = np.abs(other - x.astype(np.float64))[finite]
        assert (near <= far).all()
        assert not (bits[finite][(near == far) & (other != values)[finite]] & 1).any()  # a tie went to the even one


def _edges(dtype: DType, source: DType) -> np.ndarray:
    """All values of `dtype`, the ties between them, what lies just beside those, and what overflows or vanishes."""
    every = widen(EVERY.view(dtype.numpy)).astype(np.float64)
    every = np.sort(every[np.isfinite(every)])
    largest = every[-1]
    ties = np.append((every[1:] + every[:-1]) / 2, largest + (largest - every[-2]) / 2)
    if source == F32:
        near = ties.astype(np.float32)
        near = near[near.astype(np.float64) == ties]
        zero = np.float32(0)
    else:
        near, zero = ties, np.float64(0)
    infinity = near.dtype.type(np.inf)
    special = [np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, -3e38, 1e38 if source == F32 else 1e300, 0.0, -0.0]
    with np.errstate(all="ignore"):
        parts = [every, near, np.nextafter(near, infinity), np.nextafter(near, -infinity), np.array(special), -near]
        return np.concatenate([np.asarray(p, zero.dtype) for p in parts])


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_integers_round_once(dtype: DType, target: Machine) -> None:
    x = np.concatenate([np.arange(-70000, 70000, 7), [2049, 2051, 65519, 65520, -65520, 257, 259]]).astype(np.int32)
    got = _compile(f"def f(int32(N) A) -> (O) {{ O(i) = {dtype.label}(A(i)) }}", target)(x)
    _same_bits(got, narrow(x.astype(np.float64), dtype))


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("name", TARGETS)
def test_code_needs_no_conversion_from_a_library(name: str, dtype: DType) -> None:
    """``__truncsfhf2`` and its like are not in every process."""
    text = f"def f({dtype.label}(N) A, double(N) B) -> (O, P) {{ O(i) = {dtype.label}(A(i) * B(i)) P(i) = A(i) + int8(1) }}"
    code = driver.lower(driver.read_tc(text)[0], target=TARGETS[name]).as_text("s")
    assert not re.search(r"__(trunc|extend)\w*", code)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("name", PINNED)
def test_products_are_vectors_of_f32_in_registers(name: str, dtype: DType) -> None:
    text = f"def f({dtype.label}(256, 256) A, {dtype.label}(256, 256) B) -> (O) {{ O(i, j) +=! A(i, k) * B(k, j) }}"
    lowered = driver.lower(driver.read_tc(text)[0], target=PINNED[name], options=Options(parallel=False))
    inner = _hottest_block(lowered.as_text("s"))
    assert re.search(r"\b(vfmadd\w+ps|mulps)\b", inner)
    assert not re.search(r"\bcall\b|\b(vfmadd\w+ss|v?mulss)\b", inner)


def _hottest_block(code: str) -> str:
    """The block with the most vector products."""
    blocks = re.split(r"\n(?=\.?L?[\w.]+:)", code)
    return max(blocks, key=lambda block: len(re.findall(r"\b(vfmadd\w+ps|mulps)\b", block)))


@pytest.mark.pairs
@pytest.mark.parametrize(
    "target", [t for n, t in TARGETS.items() if n != "generic"], ids=[n for n in TARGETS if n != "generic"]
)
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("wide_result", [False, True], ids=["16", "f32"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 17), (31, 33, 47), (64, 64, 64), (65, 129, 100)], ids=str)
def test_matrix_products_with_remainders(shape: tuple[int, int, int], wide_result: bool, dtype: DType, target: Machine) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m + n + k)
    a, b = (narrow(rng.integers(-8, 9, s) / 8, dtype) for s in ((m, k), (k, n)))
    value = "float(A(i, k)) * float(B(k, j))" if wide_result else "A(i, k) * B(k, j)"
    text = f"def f({dtype.label}(M, K) A, {dtype.label}(K, N) B) -> (O) {{ O(i, j) +=! {value} }}"
    got = driver.lower(driver.read_tc(text)[0], sizes={"M": m, "N": n, "K": k}, target=target).compile()(a, b)
    exact = widen(a).astype(np.float64) @ widen(b).astype(np.float64)  # f32 sums of these are exact
    assert np.array_equal(widen(got), exact if wide_result else widen(narrow(exact, dtype)))


def test_a_sum_is_rounded_once() -> None:
    x = np.ones(4096, np.float16)
    x[0] = 2048  # in f16, 2048 + 1 is 2048
    assert polyc.einsum("i->", x) == np.float16(2048 + 4095)
