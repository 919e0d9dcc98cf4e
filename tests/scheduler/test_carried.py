"""Sums that go in order along what they add up: one step of it is stored, not all."""

from __future__ import annotations

from math import prod

import pytest

from polyc.driver import Lowered
from polyc.ir.expr import evaluate
from polyc.machine import X86_64_V4
from polyc.poly.rows import format_rows
from polyc.scheduler.traffic import carries_sums
from tests.property.pipeline import small_thresholds
from tests.scheduler.support import check, lower

PICTURES = """def f(float(C,H,W) X, float s) -> (Y) {{
  D(i,j,y,x) +=! (pad(X(c,y,x), clamp) - pad(X(c,y+i-{r},x+j-{r}), clamp))
      * (pad(X(c,y,x), clamp) - pad(X(c,y+i-{r},x+j-{r}), clamp)) where i in 0:{n}, j in 0:{n}, y in -1:H+1, x in -1:W+1
  B(i,j,y,x) +=! D(i,j,y+t-1,x+u-1) where t in 0:3, u in 0:3, y in 0:H, x in 0:W
  w(i,j,y,x) = exp(-s * B(i,j,y,x))
  S(c,y,x) +=! w(i,j,y,x) * pad(X(c,y+i-{r},x+j-{r}), clamp)
  Z(y,x) +=! w(i,j,y,x)
  Y(c,y,x) = S(c,y,x) / Z(y,x) }}"""
"""Means over n times n neighbours that lie up to r away, weighted by how alike windows of three by three are."""

LINES = """def f(float(N) X) -> (Y) {
  D(i,x) = fabs(X(x+2) - X(x+i)) where i in 0:5, x in 0:N-4
  V(i,x) +=! D(i,x+t) where t in 0:3, x in 0:N-6
  a(x) max=! V(i,x)
  b(x) +=! V(i,x)
  Y(x) = a(x) - b(x) }"""

BLOCKS = """def f(float(K,L,M,N) X) -> (Y) {
  V(k,z,y,x) = X(k,z,y,x) * X(k,z,y,x+1) + X(k,z,y+1,x)
  U(k,z,y,x) = exp(V(k,z,y,x) + V(k,z,y,x+1)) + V(k,z,y+1,x)
  p(z,y,x) *=! U(k,z,y,x)
  q(z,y,x) min=! U(k,z,y,x)
  Y(z,y,x) = p(z,y,x) + q(z,y,x) }"""


def temporary_bytes(lowered: Lowered) -> int:
    """Of the largest temporary."""
    found = (b for b in lowered.nest.buffers if b.space != "argument")
    return max(prod(evaluate(e, {}) for e in b.shape) * b.dtype.itemsize for b in found)


def test_weights_that_two_sums_read_behind_a_window_are_not_stored_for_all_neighbours() -> None:
    lowered = lower(PICTURES.format(n=9, r=4), {"C": 3, "H": 600, "W": 800})
    assert "S:i" in format_rows(lowered.rows, lowered.scop)
    assert temporary_bytes(lowered) < 8 << 20 < 4 * 9 * 9 * 600 * 800
    assert [r for r in lowered.remarks if r.kind == "missed" and r.pass_name in ("schedule", "overlap")] == []


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (PICTURES.format(n=3, r=1), {"C": 2, "H": 7, "W": 11}),
        (PICTURES.format(n=2, r=0), {"C": 1, "H": 1, "W": 1}),
        (LINES, {"N": 23}),
        (LINES, {"N": 6}),
        (BLOCKS, {"K": 3, "L": 2, "M": 6, "N": 9}),
        (BLOCKS, {"K": 0, "L": 2, "M": 3, "N": 4}),
    ],
)
def test_sums_are_carried_right(text: str, sizes: dict[str, int]) -> None:
    with small_thresholds():
        check(text, sizes)


def test_a_sum_of_products_is_not_carried_for_what_it_adds_up() -> None:
    """Each channel of a layer is added to all of the next one, which would pass through memory as often."""
    text = """def f(float(B,C,H,W) X, float(C,3,3) F, float(K,C,3,3) G) -> (Y) {
      T(b,c,y,x) +=! X(b,c,y+r,x+s) * F(c,r,s) where r in 0:3, s in 0:3
      Y(b,k,y,x) +=! T(b,c,y+r,x+s) * G(k,c,r,s) where r in 0:3, s in 0:3 }"""
    lowered = lower(text, {"B": 16, "C": 128, "K": 64, "H": 60, "W": 60})
    assert "S:" not in format_rows(lowered.rows, lowered.scop)


def test_a_sum_that_its_own_terms_need_is_not_carried() -> None:
    text = """def f(float(K,M,N) X) -> (Y) {
      E(k,y,x) = exp(X(k,y,x)) + X(k,y,x+1)
      V(k,y,x) = E(k,y,x) + E(k,y+1,x+1)
      m(y,x) max=! V(k,y,x)
      w(k,y,x) = exp(V(k,y,x) - m(y,x))
      Z(y,x) +=! w(k,y,x)
      Y(y,x) = Z(y,x) }"""
    with small_thresholds():
        check(text, {"K": 3, "M": 6, "N": 8})


def test_sums_are_carried_where_all_steps_would_leave_the_cache() -> None:
    step = 32 << 10
    assert carries_sums(400 * step, 2 * 400 * step, 400, 2 * step, X86_64_V4)
    assert not carries_sums(4 * step, 2 * 4 * step, 4, 2 * step, X86_64_V4)
    assert not carries_sums(400 * step, 400 * step, 400, 64 * step, X86_64_V4)
