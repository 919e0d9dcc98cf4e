"""Tiles of time compute rows that share what they read two at a time; which rows these are is in loopnest/jam-rows.loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.codegen.objects.host import host_target
from polyc.config import default_options
from polyc.machine import select_model
from tests.codegen.support import LEVELS

PLANES = """def f({t}(N, M) x, {t}(T) steps) -> (B) {{
  A(0, i, j) = x(i, j)
  A(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? A(t-1, i, j)
    : {half} * (A(t-1, i-1, j) + A(t-1, i+1, j) + A(t-1, i, j-1)) - A(t-1, i, j) where t in 1:T+1, i in 0:N, j in 0:M
  B(i, j) = A(T, i, j)
}}"""


@pytest.mark.pairs
@pytest.mark.parametrize("level", [level for level in LEVELS if level != "x86-64-v4"])
@pytest.mark.parametrize("kind", ["float64", "float32", "int32"])
@pytest.mark.parametrize(("n", "m"), [(70, 260), (71, 263)])
def test_tiles_of_time_compute_rows_in_pairs(n: int, m: int, kind: str, level: str) -> None:
    text = PLANES.format(
        t={"float64": "double", "float32": "float", "int32": "int32"}[kind], half=2 if kind == "int32" else 0.5
    )
    target = replace(select_model(host_target(), level), l1=8 << 10, l2=64 << 10)
    x = np.random.default_rng(n).integers(-9, 9, (n, m)).astype(kind)
    lowered = driver.lower(
        polyc.compile(text).program, sizes={"M": m, "T": 9, "N": n}, options=default_options(), target=target
    )
    assert "_row = " in lowered.as_text("loops")
    a = x
    for _ in range(9):
        old, a = a, a.copy()
        near = old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2]
        a[1:-1, 1:-1] = near * np.array(2 if kind == "int32" else 0.5, kind) - old[1:-1, 1:-1]
    np.testing.assert_allclose(lowered.compile()(x, np.zeros(9, kind)), a, rtol=1e-4 if kind == "float32" else 1e-12, atol=1e-3)
