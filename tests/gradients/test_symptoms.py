"""What other systems were reported to get wrong, in programs of our own, each against a derivative that is worked out by hand.

taichi #8802, #6666 and warp #947, #1294: memory that is written after it was read, in one kernel; jax #1052: an arm that is not
taken and not valid; jax #40150: long scans with many carried values; xla #34273: windows; jax #12469, #9296: products with
repeated subscripts, and zeros among the factors; warp #1552: where the largest value stands.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc

RNG = np.random.default_rng(41)


def gradients(text: str, *given: Any, wrt: tuple[str, ...] | None = None) -> tuple[np.ndarray, ...]:
    """What the reverse mode returns for inputs and cotangents."""
    found = polyc.compile(text).vjp(**({} if wrt is None else {"wrt": wrt}))(*given)
    return found if isinstance(found, tuple) else (found,)


def assert_close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


# --- Written and read ------------------------------------------------------------------------------------------------


def test_a_value_that_is_overwritten_after_it_was_read_counts_as_it_was() -> None:
    """`y` is used, and then holds something else: the loss goes by what it held (a tape would take the last value)."""
    text = """
def overwritten(double(N) x, double b) -> (loss, y) {
  y(n) = x(n) * x(n)
  loss +=! y(n) * b
  y(n) = y(n) * y(n) + 100.0
}
"""
    x, w = RNG.standard_normal(7), RNG.standard_normal(7)
    d_x, d_b = gradients(text, x, np.float64(3.0), np.float64(2.0), w)
    assert_close(d_x, 2.0 * 3.0 * 2 * x + w * 4 * x**3)
    assert_close(d_b, 2.0 * (x * x).sum())


def test_an_array_that_is_updated_in_place_passes_its_gradient_on_once() -> None:
    text = """
def in_place(double(N) x) -> (y) {
  y(n) = x(n)
  y(n) = y(n) + 1.0
  y(n) += y(n)
}
"""
    assert_close(gradients(text, np.arange(5.0), np.ones(5))[0], np.full(5, 2.0))


def test_sums_that_are_thrown_away_leave_no_gradient() -> None:
    """`p` sums up something, and is then assigned again."""
    text = """
def replaced(double(N) a, double(N, M) b) -> (p) {
  p(i) +=! a(i) * b(i, j)
  p(i) = a(i) * double(i)
}
"""
    d_a, d_b = gradients(text, RNG.standard_normal(4), RNG.standard_normal((4, 3)), np.ones(4))
    assert_close(d_a, np.arange(4.0))
    assert_close(d_b, np.zeros((4, 3)))


PLASTIC = """
def plastic(double load, double(T) wave) -> (work) {
  e(0) = 0.0 * load
  s(t) = 40.0 * (load * wave(t) - e(t)) where t in 0:T
  d(t) = fabs(s(t)) > 1.5 ? (fabs(s(t)) - 1.5) / 40.0 : 0.0 where t in 0:T
  e(t + 1) = e(t) + (s(t) > 0.0 ? d(t) : -d(t)) where t in 0:T
  work +=! d(t) * 1.5 where t in 0:T
}
"""
"""A rod that is stretched to and fro, and yields: what step t writes, step t + 1 reads."""


def test_a_loop_that_reads_what_its_last_step_wrote_has_the_gradient_of_the_whole_history() -> None:
    wave, load = np.sin(np.arange(60) * 0.4), 0.09
    strain, tangent, expected = 0.0, 0.0, 0.0
    for w in wave:
        stress, d_stress = 40 * (load * w - strain), 40 * (w - tangent)
        if abs(stress) > 1.5:
            sign = np.sign(stress)
            strain, tangent = strain + sign * (abs(stress) - 1.5) / 40, tangent + d_stress / 40
            expected += 1.5 * sign * d_stress / 40
    (found,) = gradients(PLASTIC, np.float64(load), wave, np.float64(1.0), wrt=("load",))
    assert_close(found, expected)


# --- Arms that are not taken -----------------------------------------------------------------------------------------

ARMS = {
    "root of zero": ("x(n) > 0.0 ? sqrt(x(n)) : 0.0", lambda x: np.where(x > 0, 0.5 / np.sqrt(np.where(x > 0, x, 1)), 0)),
    "quotient by zero": ("x(n) == 0.0 ? 1.0 : sin(x(n)) / x(n)", lambda x: np.where(x == 0, 0, d_sinc(np.where(x == 0, 1, x)))),
    "logarithm": ("x(n) > 0.0 ? x(n) * log(x(n)) : 0.0", lambda x: np.where(x > 0, 1 + np.log(np.where(x > 0, x, 1)), 0)),
    "overflow": (
        "x(n) > 0.5 ? x(n) : log1p(exp(1000.0 * x(n))) / 1000.0",
        lambda x: np.where(x > 0.5, 1, 1 / (1 + np.exp(-1000 * np.minimum(x, 0.5)))),
    ),
    "two arms": ("x(n) < 0.0 ? -sqrt(-x(n)) : (x(n) > 0.0 ? pow(x(n), 0.5) : 0.0 * x(n))", lambda x: d_root(x)),
}


def d_sinc(x: np.ndarray) -> np.ndarray:
    return (x * np.cos(x) - np.sin(x)) / x**2


def d_root(x: np.ndarray) -> np.ndarray:
    return np.where(x == 0, 0, 0.5 / np.sqrt(np.abs(np.where(x == 0, 1, x))))


@pytest.mark.parametrize("name", ARMS)
def test_an_arm_that_is_not_taken_contributes_nothing_whatever_its_value(name: str) -> None:
    arm, derivative = ARMS[name]
    x = np.array([-2.0, -0.5, 0.0, 0.0, 0.25, 3.0, 900.0])
    operator = polyc.compile(f"def guarded(double(N) x) -> (y) {{ y(n) = {arm} }}")
    w = RNG.standard_normal(len(x))
    with np.errstate(all="ignore"):
        wanted = derivative(x)
    assert_close(operator.vjp()(x, w), w * wanted)
    assert_close(operator.jvp()(x, w)[1], w * wanted)


def test_masked_rows_of_a_softmax_have_finite_gradients() -> None:
    text = """
def masked(double(N, M) x, bool(N, M) keep) -> (y) {
  s(i, j) = keep(i, j) ? x(i, j) : -1e30
  m(i) max=! s(i, j)
  e(i, j) = keep(i, j) ? exp(s(i, j) - m(i)) : 0.0
  z(i) +=! e(i, j)
  y(i, j) = z(i) > 0.0 ? e(i, j) / z(i) : 0.0
}
"""
    x, keep, w = RNG.standard_normal((4, 5)), RNG.random((4, 5)) < 0.6, RNG.standard_normal((4, 5))
    keep[2] = False
    y = np.where(keep, np.exp(x), 0)
    y /= np.maximum(y.sum(1, keepdims=True), 1e-300)
    (found,) = gradients(text, x, keep, w)
    assert_close(found, y * (w - (w * y).sum(1, keepdims=True)))


# --- Scans -----------------------------------------------------------------------------------------------------------


def test_a_long_scan_with_many_carried_values_has_its_gradient() -> None:
    """Eight numbers that turn and shrink for 5,000 steps: x(t+1) = R x(t) + u(t), and only the last ones count."""
    carried, steps = 8, 5000
    text = """
def turning(double(K, K) R, double(T, K) u, double(K) x0) -> (last) {
  x(0, k) = x0(k)
  r(t, k) +=! R(k, j) * x(t, j) where t in 0:T
  x(t + 1, k) = r(t, k) + u(t, k) where t in 0:T
  last(k) = x(T, k)
}
"""
    R = 0.999 * np.linalg.qr(RNG.standard_normal((carried, carried)))[0]
    u, x0, w = RNG.standard_normal((steps, carried)), RNG.standard_normal(carried), RNG.standard_normal(carried)
    states = [x0]
    for row in u:
        states.append(R @ states[-1] + row)
    adjoint, d_u, d_r = w, np.empty_like(u), np.zeros_like(R)
    for t in reversed(range(steps)):
        d_u[t] = adjoint
        d_r += np.outer(adjoint, states[t])
        adjoint = R.T @ adjoint
    for found, wanted in zip(gradients(text, R, u, x0, w), (d_r, d_u, adjoint), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-9 * np.abs(wanted).max())


def test_running_sums_and_products_pass_their_gradients_back() -> None:
    text = """
def running(double(M, N) x) -> (s, p) {
  s(m, 0) = x(m, 0) where m in 0:M
  s(m, n) = s(m, n - 1) + x(m, n) where n in 1:N
  p(m, 0) = x(m, 0) where m in 0:M
  p(m, n) = p(m, n - 1) * x(m, n) where n in 1:N
}
"""
    x = RNG.uniform(0.5, 1.5, (3, 17))
    v, w = RNG.standard_normal((2, 3, 17))
    x[1, 4] = 0.0
    wanted = np.cumsum(v[:, ::-1], 1)[:, ::-1].copy()
    for m in range(3):
        for n in range(17):
            wanted[m, n] += sum(w[m, k] * np.prod(np.delete(x[m, : k + 1], n)) for k in range(n, 17))
    assert_close(gradients(text, x, v, w)[0], wanted)


# --- Windows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("n", [4, 11, 13])
def test_windows_that_overlap_or_leave_gaps_give_each_element_its_share(n: int, stride: int) -> None:
    text = f"""
def windows(double(N, M) x) -> (largest, total) {{
  largest(i, j) max=! x({stride} * i + r, {stride} * j + s) where r in 0:2, s in 0:2
  total(i, j) +=! x({stride} * i + r, 2 * s + {stride} * j) where r in 0:3, s in 0:2
}}
"""
    x = RNG.permutation(n * (n + 1)).reshape(n, n + 1).astype(float)
    largest, total = polyc.compile(text)(x)
    v, w, wanted = RNG.standard_normal(largest.shape), RNG.standard_normal(total.shape), np.zeros_like(x)
    for i, j in np.ndindex(largest.shape):
        window = x[stride * i : stride * i + 2, stride * j : stride * j + 2]
        r, s = np.unravel_index(window.argmax(), window.shape)
        wanted[stride * i + r, stride * j + s] += v[i, j]
    for i, j in np.ndindex(total.shape):
        wanted[stride * i : stride * i + 3, stride * j : stride * j + 3 : 2] += w[i, j]
    assert_close(gradients(text, x, v, w)[0], wanted)


@pytest.mark.parametrize("mode", ["0.0", "clamp", "wrap", "reflect", "symmetric"])
def test_windows_over_padded_borders(mode: str) -> None:
    text = f"""
def blurred(double(N, M) x, double(3, 5) f) -> (y) {{
  y(i, j) +=! pad(x(i + r - 1, j + s - 2), {mode}) * f(r, s) where i in 0:N, j in 0:M
}}
"""
    x, f, w = RNG.standard_normal((5, 7)), RNG.standard_normal((3, 5)), RNG.standard_normal((5, 7))
    numpy_mode = {"0.0": "constant", "clamp": "edge"}.get(mode, mode)
    # Where each element of the padded array comes from: -1 for none.
    constant = {"constant_values": -1} if mode == "0.0" else {}
    origin = np.pad(np.arange(x.size).reshape(x.shape), ((1, 1), (2, 2)), numpy_mode, **constant)
    values, d_x, d_f = np.where(origin < 0, 0.0, x.ravel()[origin]), np.zeros(x.size + 1), np.zeros_like(f)
    for i, j in np.ndindex(x.shape):
        np.add.at(d_x, origin[i : i + 3, j : j + 5], w[i, j] * f)
        d_f += w[i, j] * values[i : i + 3, j : j + 5]
    found = gradients(text, x, f, w)
    assert_close(found[0], d_x[:-1].reshape(x.shape))
    assert_close(found[1], d_f)


# --- Products, and subscripts that repeat ----------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_products_have_exact_gradients_with_any_number_of_zeros(zeros: int) -> None:
    x = RNG.uniform(0.5, 2.0, (3, 6))
    x[1, :zeros] = 0.0
    w = RNG.standard_normal(3)
    wanted = np.array([[w[i] * np.prod(np.delete(x[i], j)) for j in range(6)] for i in range(3)])
    assert_close(gradients("def product(double(N, M) x) -> (y) { y(i) *=! x(i, j) }", x, w)[0], wanted)


@pytest.mark.parametrize("zeros", [0, 1, 3])
def test_products_at_repeated_subscripts_have_exact_gradients(zeros: int) -> None:
    text = "def scatter(int32(P) k, double(P) x, double(M) y0) -> (y) { y(m) = y0(m)  y(k(p)) *= x(p) }"
    k = np.array([0, 2, 2, 0, 2, 4, 4, 2], np.int32)
    x, y0, w = RNG.uniform(0.5, 2.0, 8), RNG.uniform(0.5, 2.0, 5), RNG.standard_normal(5)
    x[[1, 4, 0][:zeros]] = 0.0
    d_x = np.array([w[k[p]] * y0[k[p]] * np.prod(x[(k == k[p]) & (np.arange(8) != p)]) for p in range(8)])
    d_y = np.array([w[m] * np.prod(x[k == m]) for m in range(5)])
    found = gradients(text, k, x, y0, w)
    assert_close(found[0], d_x)
    assert_close(found[1], d_y)


def test_rows_that_are_read_several_times_sum_their_gradients() -> None:
    text = "def rows(double(E, D) T, int32(B, L) I) -> (Y) { Y(b, d) +=! T(I(b, l), d) * T(I(b, l), d) }"
    table, index, w = RNG.standard_normal((6, 3)), np.array([[0, 0, 5], [5, 0, 2]], np.int32), RNG.standard_normal((2, 3))
    wanted = np.zeros_like(table)
    for b, n in np.ndindex(index.shape):
        wanted[index[b, n]] += 2 * w[b] * table[index[b, n]]
    assert_close(gradients(text, table, index, w)[0], wanted)


def test_elements_that_are_scattered_take_the_gradient_of_where_they_went() -> None:
    text = "def scatter(int32(P) k, double(P, D) x, double(M) like) -> (double(M, D) y) { y(k(p), d) +=! x(p, d) * x(p, d) }"
    k, x, w = np.array([3, 0, 3, 3, 1], np.int32), RNG.standard_normal((5, 2)), RNG.standard_normal((4, 2))
    assert_close(gradients(text, k, x, np.zeros(4), w, wrt=("x",))[0], 2 * x * w[k])


def test_the_largest_value_takes_the_gradient_where_it_stands_in_each_row() -> None:
    """A loop that skips elements found one winner for all rows."""
    text = """
def largest(double(P) c, double(N) x) -> (y) {
  y(i) max=! c(p) != 0.0 ? c(p) * x(i) : -1e30
}
"""
    c, x, w = np.array([0.0, -2.0, 0.0, 5.0, -7.0, 0.0, 3.0]), np.array([1.5, -0.5, 2.0, -4.0]), RNG.standard_normal(4)
    winner = np.where(x > 0, 3, 4)
    d_c, d_x = gradients(text, c, x, w)
    assert_close(d_x, w * c[winner])
    assert_close(d_c, np.bincount(winner, w * x, len(c)))


def test_distances_of_points_to_themselves_are_no_gradients_of_nan() -> None:
    """The root of a sum of squares that is zero on the diagonal, which is chosen away."""
    text = """
def energy(double(N, 3) x) -> (e) {
  q(i, j) +=! (x(i, k) - x(j, k)) * (x(i, k) - x(j, k))
  e +=! i == j ? 0.0 : 1.0 / sqrt(q(i, j))
}
"""
    x = RNG.standard_normal((4, 3))
    wanted = np.zeros_like(x)
    for i, j in np.ndindex(4, 4):
        if i != j:
            wanted[i] -= 2 * (x[i] - x[j]) / np.linalg.norm(x[i] - x[j]) ** 3
    assert_close(gradients(text, x, np.float64(1))[0], wanted)


def test_steps_that_read_where_data_says_have_gradients() -> None:
    """No order of loops was found: the last step was taken to read what the sum at places of data leaves there."""
    text = """
def hop(double(T, N) x, int32(T) k) -> (y) {
  a(0, i) = x(0, i)
  a(t, i) = a(t-1, max(min(k(t), N-1), 0)) * x(t, i) + a(t-1, i) where t in 1:T
  y(i) = a(T-1, i)
}
"""
    x, k, w = RNG.standard_normal((6, 4)), np.array([9, 1, 3, 3, 0, 2], np.int32), RNG.standard_normal(4)
    operator = polyc.compile(text)
    (d_x,) = gradients(text, x, k, w)
    t_x = RNG.standard_normal(x.shape)
    _, t_y = operator.jvp()(x, k, t_x)
    assert_close((d_x * t_x).sum(), (w * t_y).sum())
    moved = (operator(x + 1e-6 * t_x, k) - operator(x - 1e-6 * t_x, k)) / 2e-6
    np.testing.assert_allclose(t_y, moved, rtol=1e-6)
