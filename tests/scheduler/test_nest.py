"""Vectors of innermost loops: how many lanes, and how many in flight."""

from __future__ import annotations

import platform
import re

import numpy as np
import pytest

import polyc
from polyc.machine import X86_64_V2, X86_64_V3, X86_64_V4
from tests.scheduler.support import lower

TO_BYTES = "def f(float(N) X) -> (Y) { Y(n) = uint8(fmin(fmax(rint(X(n)), 0.0), 255.0)) }"


def marks(text: str, target, **sizes: int) -> list[str]:
    return re.findall(r"vector\((lanes [^),]*)", lower(text, sizes, target=target).as_text("loops"))


def test_results_narrower_than_what_is_computed_fill_a_register():
    assert marks(TO_BYTES, X86_64_V3, N=1000) == ["lanes 32"]
    assert marks(TO_BYTES, X86_64_V2, N=1000) == ["lanes 16"]
    assert marks(TO_BYTES.replace("uint8", "int16"), X86_64_V3, N=1000) == ["lanes 16"]
    assert marks("def f(double(N) X) -> (Y) { Y(n) = X(n) > double(0.5) }", X86_64_V3, N=1000) == ["lanes 16"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TO_BYTES.replace("uint8", "float"), "lanes 8 x 2"),
        (TO_BYTES.replace("float(N)", "float(N,2)").replace("X(n)", "X(n,1)"), "lanes 8 x 2"),
        ("def f(double(N) X) -> (Y) { Y(n) = int32(X(n)) }", "lanes 4 x 2"),
        ("def f(float(N) X, float(N) A, float(N) B, float(N) C) -> (Y) { Y(n) = X(n) > A(n) && B(n) > C(n) }", "lanes 8 x 2"),
    ],
)
def test_vectors_stay_narrow_where_two_are_not_cut_by_one_instruction(text, expected):
    assert marks(text, X86_64_V3, N=1000) == [expected]


def test_rows_of_few_vectors_and_targets_that_cut_one_keep_their_lanes():
    assert marks(TO_BYTES, X86_64_V3, N=63) == ["lanes 8"]
    assert marks(TO_BYTES, X86_64_V4, N=1000) == marks(TO_BYTES.replace("uint8", "float"), X86_64_V4, N=1000)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="runs code for x86-64")
@pytest.mark.parametrize("n", [65, 95])
def test_rests_of_narrow_results_are_computed(n):
    x = np.random.default_rng(n).uniform(-50, 300, n).astype(np.float32)
    x[-1] = 255.0
    expected = np.clip(np.rint(x), 0, 255).astype(np.uint8)
    assert np.array_equal(polyc.compile(TO_BYTES, target="x86-64-v2")(x), expected)
