"""Conversions of broadcast 16-bit operands, hoisted in front of their sums."""

from __future__ import annotations

import re

import numpy as np
import pytest

from polyc import driver
from polyc.machine import PINNED

PRODUCT = "def f({t}(M, K) A, {t}(K, N) B) -> (O) {{ O(i, j) +=! A(i, k) * B(k, j) }}"


def _lower(text: str, **sizes: int) -> driver.Lowered:
    return driver.lower(driver.read_tc(text)[0], sizes=sizes, target=PINNED["x86-64-v3"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_broadcast_operand_is_converted_before_the_sum(dtype):
    lowered = _lower(PRODUCT.format(t=dtype), M=64, N=64, K=64)
    assert [r.message for r in lowered.remarks if r.pass_name == "hoist-conversions"] == ["A is converted before the sum"]
    sums = set(re.findall(r"O\.wide\[[^]]*\] \+= [^;]*", lowered.as_text("loops")))
    assert sums and all(re.search(r"A\.f32\S*\[[^]]*\] \* f?\w*\(?B", each) for each in sums)


@pytest.mark.parametrize("text", [PRODUCT.format(t="float"), PRODUCT.format(t="float16")])
def test_nothing_is_hoisted_for_f32_or_for_few_columns(text):
    assert not [r for r in _lower(text, M=64, N=8, K=64).remarks if r.pass_name == "hoist-conversions"]


def test_a_read_that_a_condition_guards_stays_under_it():
    text = """def f(float16(M) A, float16(N, K) B) -> (O) {
      O(i, j) +=! (k < M ? float(A(k)) : 0.0) * float(B(j, k)) where i in 0:5
    }"""
    lowered = _lower(text, M=3, N=32, K=9)
    assert not [r for r in lowered.remarks if r.pass_name == "hoist-conversions"]
    a, b = np.arange(3).astype(np.float16), np.ones((32, 9), np.float16)
    assert np.array_equal(lowered.compile()(a, b), np.full((5, 32), 3, np.float32))


def test_one_input_read_at_two_places():
    text = "def f(float16(N, K) A, float16(K, M) B) -> (O) { O(i, l, j) +=! A(i, k) * A(l, k) * B(k, j) }"
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((6, 5), (5, 33)))
    lowered = _lower(text, N=6, K=5, M=33)
    assert len([r for r in lowered.remarks if r.pass_name == "hoist-conversions"]) == 2
    assert np.array_equal(lowered.compile()(a, b), np.einsum("ik,lk,kj->ilj", a, a, b).astype(np.float16))
