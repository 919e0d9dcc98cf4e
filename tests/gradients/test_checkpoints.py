"""Gradients of time loops within a bound of memory: equal to those that store all steps, and within the bound."""

from __future__ import annotations

import tracemalloc
from functools import cache
from math import comb
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.api.checkpoints import Checkpointed, Schedule, _Run, read_bytes, show_bytes
from polyc.gradients import revolve

HEAT = """
def heat(double(N) x, double(N) c, double(T, N) seen, int64 S) -> (y, e) {
  A(0, i) = x(i) where i in 0:N
  A(t, i) = A(t-1, i) + c(i) * A(t-1, i) * A(t-1, max(i - 1, 0)) where t in 1:S+1, i in 0:N
  y(i) = A(S, i) where i in 0:N
  e +=! (A(t, i) - seen(t, i)) * A(t, i) where t in 0:S, i in 0:N
}
"""
WAVE = """
def wave(double(N) p, double(N) q, double(N) c) -> (y, e) {
  U(0, i) = p(i) where i in 0:N
  U(1, i) = q(i) where i in 0:N
  U(t, i) = 2.0 * U(t-1, i) - U(t-2, i) + c(i) * (pad(U(t-1, i-1), 0.0) + pad(U(t-1, i+1), 0.0)) where t in 2:STEPS, i in 0:N
  y(i) = U(STEPS - 1, i) * U(STEPS - 2, i) where i in 0:N
  e +=! U(t, i) * U(t - 3, i) where t in 3:STEPS - 1, i in 0:N
}
"""
TWO_FIELDS = """
def react(float(N) u, float(N) v, float k) -> (e) {
  U(0, i) = u(i) where i in 0:N
  V(0, i) = v(i) where i in 0:N
  R(t, i) = U(t-1, i) * V(t-1, i) * V(t-1, i) where t in 1:14, i in 0:N
  U(t, i) = U(t-1, i) - k * R(t, i) where t in 1:14, i in 0:N
  V(t, i) = V(t-1, i) + k * R(t, i) + 0.1 * pad(U(t, i - 1), clamp) where t in 1:14, i in 0:N
  e +=! V(13, i) * U(12, i)
}
"""


def whole_numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-1, 2, shape).astype(np.float64)


def least(op: Any, *arrays: Any) -> int:
    """What the error says that would do."""
    with pytest.raises(polyc.PolycError) as found:
        op(*arrays)
    assert found.value.code == "argument-memory"
    return read_bytes(str(found.value.diagnostics[0].help).split("'")[1])


@pytest.fixture(scope="module")
def heat() -> Any:
    return polyc.compile(HEAT, dynamic=True)


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_any_number_of_steps_gives_what_storing_all_gives_bit_for_bit(heat: Any, steps: int) -> None:
    """Whole numbers: sums are exact in any order."""
    rng = np.random.default_rng(steps)
    arrays = *(whole_numbers(rng, 5) for _ in range(2)), whole_numbers(rng, steps, 5), steps
    weights = whole_numbers(rng, 5), np.array(2.0)
    expected = heat.vjp(wrt=("x", "c"))(*arrays, *weights)
    bounded = heat.vjp(wrt=("x", "c"), memory=least_of(heat, arrays, weights) if steps > 1 else 1 << 20)
    for a, b in zip(bounded(*arrays, *weights), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def least_of(op: Any, arrays: Any, weights: Any) -> int:
    """The least memory that the gradient can do with, which the error names."""
    return least(op.vjp(wrt=("x", "c"), memory=1), *arrays, *weights)


def test_segments_that_do_not_divide_the_steps_agree(heat: Any) -> None:
    rng = np.random.default_rng(1)
    arrays = rng.random(7) / 4, rng.random(7) / 4, rng.random((23, 7)), 23
    weights = rng.random(7), np.array(1.5)
    expected = heat.vjp(wrt=("x", "c"))(*arrays, *weights)
    bounded, lengths = heat.vjp(wrt=("x", "c"), memory=1 << 30), set()
    given, _ = bounded._prepare((*arrays, *weights), {})
    for length in (1, 2, 5, 23):
        for kept in (1, 3):
            schedule = Schedule(23, length, kept, 7, 0)
            lengths.add(schedule.n_segments)
            for a, b in zip(_Run(bounded, given, schedule).run(), expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12)
    assert lengths == {1, 5, 12, 23}


def test_a_state_of_several_steps_is_handed_on() -> None:
    """Two for the recurrence, three for the sum."""
    rng = np.random.default_rng(2)
    wave = polyc.compile(WAVE.replace("STEPS", "31"))
    arrays = [rng.random(6), rng.random(6), rng.random(6) / 9, rng.random(6), np.array(2.0)]
    expected = wave.vjp()(*arrays)
    bounded = wave.vjp(memory=least(wave.vjp(memory=1), *arrays))
    assert bounded.schedule(*arrays).length
    for a, b in zip(bounded(*arrays), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_fields_that_need_each_other_keep_to_the_bound() -> None:
    rng = np.random.default_rng(3)
    react = polyc.compile(TWO_FIELDS)
    u, v, k = rng.random(4, np.float32), rng.random(4, np.float32), np.float32(0.1)
    plain = react.value_and_grad()(u, v, k)
    bounded = react.value_and_grad(memory=least(react.value_and_grad(memory=1), u, v, k) + 100)
    assert isinstance(bounded, Checkpointed)
    assert "computed again" in bounded.explain(u, v, k)
    for a, b in zip(bounded(u, v, k=k), plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_what_is_kept_stays_within_the_bound(heat: Any) -> None:
    rng = np.random.default_rng(4)
    arrays = rng.random(20_000) / 9, rng.random(20_000) / 9, np.zeros((60, 20_000)), 60
    weights = rng.random(20_000), np.array(1.0)
    bounded = heat.vjp(wrt=("x",), memory="4 MiB")
    bounded(*arrays, *weights)
    polyc.memory.release()
    tracemalloc.start()
    d_x = bounded(*arrays, *weights)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert bounded.schedule(*arrays, *weights).stored > 2 * (4 << 20)
    assert most < (4 << 20) + d_x.nbytes + (1 << 18)


def test_a_linear_loop_stores_nothing() -> None:
    """Its adjoint reads no values of it, so that there is nothing to compute again."""
    linear = polyc.compile("""
    def smooth(double(N) x) -> (y) {
      A(0, i) = x(i) where i in 0:N
      A(t, i) = 0.5 * A(t-1, i) + 0.5 * pad(A(t-1, i-1), 0.0) where t in 1:51, i in 0:N
      y(i) = A(50, i) where i in 0:N
    }""")
    bounded = linear.vjp(memory="1 MiB")
    assert bounded.parts is None
    np.testing.assert_allclose(bounded(np.ones(4), np.eye(4)[0]), linear.vjp()(np.ones(4), np.eye(4)[0]))


REFUSED = {
    "all steps of Y are returned": ("Y(t, i) = A(t, i) * A(t, i) where t in 0:9, i in 0:N", "leave out memory="),
    "something else than a sum": ("Y(i) max=! A(t, i) * A(t, i) where t in 0:9, i in 0:N", "step by step"),
    "another order": ("Y(i) = A(8, i) * A(4, i) where i in 0:N", "leave out memory="),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_has_no_state_to_continue_from_is_named(message: str) -> None:
    text, help = REFUSED[message]
    op = polyc.compile(f"""
    def f(double(N) x) -> (Y) {{
      A(0, i) = x(i) where i in 0:N
      A(t, i) = A(t-1, i) * A(t-1, i) where t in 1:40, i in 0:N
      {text}
    }}""")
    with pytest.raises(polyc.PolycError) as found:
        op.vjp(memory="1 MiB")
    assert found.value.code == "unsupported-gradient"
    assert message in str(found.value)
    assert help in str(found.value)


@pytest.mark.parametrize("memory", [0, -1, "many", 1.5, True])
def test_what_is_no_number_of_bytes_is_named(heat: Any, memory: Any) -> None:
    with pytest.raises(polyc.PolycError, match="memory cannot be") as found:
        heat.vjp(memory=memory)
    assert found.value.code == "argument-memory"


@pytest.mark.parametrize("size", [1, 999, 10_240, 10_241, (10 << 20) - 1, (256 << 20) + 5, 3 << 33])
def test_shown_bytes_read_back(size: int) -> None:
    assert read_bytes(show_bytes(size)) <= size <= read_bytes(show_bytes(size, up=True))


@pytest.mark.parametrize("kept", [1, 2, 3, 5])
def test_states_are_computed_again_as_often_as_is_best(kept: int) -> None:
    for parts in range(41):
        taken: list[int] = []
        advanced = 0

        def advance(state: int, low: int, high: int) -> int:
            nonlocal advanced
            assert state == low
            advanced += high - low
            return high

        def take(part: int, state: int, taken: list[int] = taken) -> None:
            assert part == state
            taken.append(part)

        revolve.go_back(parts, kept, 0, advance, take)
        assert taken == list(reversed(range(parts)))
        assert advanced == revolve.count_advances(parts, kept) == best(parts, kept)


@cache
def best(parts: int, kept: int) -> int:
    """By trying all."""
    if parts < 2 or kept == 1:
        return comb(parts, 2)
    return min(m + best(m, kept) + best(parts - m, kept - 1) for m in range(1, parts))
