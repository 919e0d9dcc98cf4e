"""Long rows in tiles of stencils go by blocks of columns; what is computed stays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.codegen.objects.host import physical_host
from polyc.config import default_options
from polyc.machine import X86_64_V3, X86_64_V4, Machine, is_runnable
from polyc.records import replace

FIVE = """def f({t}(N, M) x, {t}(T) steps) -> (B) {{
  A(0, i, j) = x(i, j)
  A(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? A(t-1, i, j)
    : 0.25 * (A(t-1, i-1, j) + A(t-1, i+1, j) + A(t-1, i, j-1)) + 0.125 * A(t-1, i, j+1) where t in 1:T+1, i in 0:N, j in 0:M
  B(i, j) = A(T, i, j)
}}"""
IN_PLACE = """def f(double(N, M) x, double(T) steps) -> (B) {
  A(0, i, j) = x(i, j)
  A(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? A(t-1, i, j)
    : 0.25 * (A(t, i-1, j) + A(t-1, i+1, j) + A(t-1, i, j-1)) + 0.125 * A(t-1, i, j+1) where t in 1:T+1, i in 0:N, j in 0:M
  B(i, j) = A(T, i, j)
}"""
SMALL = {"l1": 8 << 10, "l2": 128 << 10, "cores": 2}
"""Caches that rows of a few hundred columns leave."""


def is_blocked(loops: str) -> bool:
    """Whether a loop over blocks of columns stands around one over rows, which are the same in all of them."""
    return bool(re.search(r"for \(c(\d+) = 0; c\1 < \d+; c\1 \+= \d+\) \{\s+for \(c\d+ = max\((?!.*\bc\1\b)", loops))


def loops_of(text: str, n: int, m: int, target: Machine, disable: tuple[str, ...] = ()) -> Any:
    options = default_options().replace(disable=("recurrence-ends", *disable))  # one loop for all steps
    return driver.lower(polyc.compile(text).program, sizes={"M": m, "T": 9, "N": n}, options=options, target=target)


@pytest.mark.each
@pytest.mark.parametrize("text", [FIVE.format(t="double"), FIVE.format(t="float"), IN_PLACE], ids=["f64", "f32", "in place"])
@pytest.mark.parametrize(("n", "m"), [(24, 700), (45, 611)])
def test_blocks_compute_the_same_elements(text: str, n: int, m: int) -> None:
    assert is_blocked(loops_of(text, n, m, replace(X86_64_V4, **SMALL)).as_text("loops"))
    host = physical_host()
    target = replace(next((known for known in (X86_64_V4, X86_64_V3) if is_runnable(known, host)), host), **SMALL)
    kind = "float32" if "float(" in text else "float64"
    x, steps = np.random.default_rng(n + m).uniform(-1, 1, (n, m)).astype(kind), np.zeros(9, kind)
    blocked, whole = (loops_of(text, n, m, target, disable) for disable in ((), ("block-columns",)))
    np.testing.assert_allclose(
        blocked.compile()(x, steps), whole.compile()(x, steps), rtol=1e-5 if kind == "float32" else 1e-13, atol=1e-6
    )


@pytest.mark.parametrize(("l1", "blocks"), [(32, True), (48, False), (64, False)])
def test_the_first_cache_decides_whether_rows_are_cut(l1: int, blocks: bool) -> None:
    lowered = driver.lower(
        polyc.compile(FIVE.format(t="double")).program,
        sizes={"M": 1100, "T": 50, "N": 1100},
        options=default_options(),
        target=replace(X86_64_V4, l1=l1 << 10),
    )
    assert is_blocked(lowered.as_text("loops")) == blocks


def test_rows_that_stay_in_the_first_cache_are_whole() -> None:
    lowered = loops_of(FIVE.format(t="double"), 200, 100, replace(X86_64_V4, **SMALL))
    assert not is_blocked(lowered.as_text("loops"))


@pytest.mark.parametrize("above", ["i-1, j+1", "i-1, j+2"])
def test_rows_that_need_columns_to_come_of_the_row_above_are_whole(above: str) -> None:
    """In one step ``A(t, i, j)`` reads ``A(t, i-1, j+1)``, which would be in the next block of columns."""
    text = IN_PLACE.replace("A(t, i-1, j)", f"A(t, {above})").replace("j == M-1", "j >= M-2")
    lowered = loops_of(text, 24, 700, replace(X86_64_V4, **SMALL))
    assert not is_blocked(lowered.as_text("loops"))
    assert not any(r.kind == "missed" and r.pass_name == "schedule" for r in lowered.remarks)  # nor tried and refused
