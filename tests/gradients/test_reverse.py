"""What reverse mode makes of a program: which statements, and that they are right where accesses are hard to invert."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.frontends.tc import read_tc_with_warnings
from polyc.gradients import vjp
from polyc.ir.expr import walk
from polyc.ir.interpret import interpret
from polyc.ir.program import Program
from tests.gradients.helpers import RIGHT, Case, check_derivatives, check_exactly

RNG = np.random.default_rng(7)


def program_of(text: str) -> Program:
    return read_tc_with_warnings(text).programs[0]


def adjoint(text: str, *wrt: str) -> str:
    return str(vjp(program_of(text), wrt))


def check(text: str, sizes: dict[str, int], **arrays: np.ndarray) -> None:
    """The adjoint of a program against its tangent, and that against differences."""
    case = Case(program_of(text), sizes, arrays, {})
    assert check_derivatives(case).reverse == RIGHT


def test_the_adjoints_of_a_product_are_two_products() -> None:
    text = adjoint("def mm(float(M,K) X, float(K,N) W) -> (Y) { Y(m,n) +=! X(m,k) * W(k,n) }", "X", "W")
    assert "d_X[m, k] += d_Y[m, n] * W[k, n] init 0.0\n    where m in 0:M, n in 0:N, k in 0:K" in text
    assert "d_W[k, n] += d_Y[m, n] * X[m, k] init 0.0\n    where m in 0:M, n in 0:N, k in 0:K" in text
    assert text.count("init") == 2


@pytest.mark.parametrize("border", [0, 1])
def test_the_adjoint_of_a_convolution_is_a_convolution_with_zeros_around(border: int) -> None:
    read = "pad(X(c,h+r-1), 0.0)" if border else "X(c,h+r)"
    where = "where h in 0:H" if border else ""
    text = adjoint(f"def conv(float(C,H) X, float(M,C,R) W) -> (Y) {{ Y(m,h) +=! {read} * W(m,c,r) {where} }}", "X")
    shift = " + 1" if border else ""
    assert f"d_X[c, h_to] += pad(d_Y[m, h_to - r{shift}], 0.0) * W[m, c, r] init 0.0" in text
    assert ">=" not in text


@pytest.mark.parametrize(("stride", "width", "length"), [(2, 3, 8), (3, 2, 8), (2, 1, 5)])
def test_the_adjoint_of_a_strided_window_is_a_window_for_each_phase(stride: int, width: int, length: int) -> None:
    text = f"def conv(double(C,H) X, double(M,C,R) W) -> (Y) {{ Y(m,h) +=! X(c,{stride}*h+r) * W(m,c,r) }}"
    assert f"d_X[e0, e1] = d_X.phases[e0, e1 % {stride}, e1 // {stride}]" in adjoint(text, "X")
    arrays = {"X": RNG.standard_normal((2, length)), "W": RNG.standard_normal((3, 2, width))}
    check(text, {"C": 2, "H": length, "M": 3, "R": width}, **arrays)


def test_a_stencil_without_sums_is_one_statement() -> None:
    text = adjoint("def blur(float(N) X) -> (Y) { Y(i) = X(i) + 2.0 * X(i+1) + X(i+2) }", "X")
    assert text.count("S_d_X") == 1
    assert "part" not in text


def test_a_recurrence_runs_backwards_without_storing_what_it_does_not_need() -> None:
    text = """
def heat(double(N) u0) -> (u1) {
  u(t, i) = u0(i) where t in 0:1
  u(t, i) = 0.25 * pad(u(t-1, i-1), 0.0) + 0.5 * u(t-1, i) + 0.25 * pad(u(t-1, i+1), 0.0) where t in 1:9, i in 0:N
  u1(i) = u(8, i)
}
"""
    made = vjp(program_of(text), ("u0",))
    assert [s.target for s in made.statements if s.target == "u"] == []
    check_exactly(Case(program_of(text), {"N": 6}, {"u0": RNG.standard_normal(6)}, {}))
    d_u0 = polyc.compile(text).vjp()(np.zeros(6), np.eye(6)[2])
    steps = 0.5 * np.eye(6) + 0.25 * np.eye(6, k=1) + 0.25 * np.eye(6, k=-1)
    np.testing.assert_allclose(d_u0, np.linalg.matrix_power(steps, 8)[2])


@pytest.mark.parametrize(
    "text",
    [
        "def f(double(N) X) -> (Y) { Y(i) = X(i-1) * X(i) where i in 1:N }",
        "def f(double(N) X) -> (Y) { T(i) = X(i+2) * X(i+2) where i in -2:N-2\n Y(i) = T(i-1) where i in 0:N-1 }",
        "def f(double(N) X) -> (Y) { Y(i) = X(2*i) * X(i/2) }",
        "def f(double(N) X) -> (Y) { Y(i,j) = X(i+j) * X(i) where i in 0:3, j in 0:4 }",
        "def f(double(N) X) -> (Y) { Y(i) += X(j) * X(i) where j <= i }",
        "def f(double(N) X) -> (Y) { Y(i) *=! X(j) where j <= i, i in 0:N }",
        "def f(double(N) X) -> (Z) { Y max=! X(j) * X(j)\n Z(i) = X(i) / Y }",
        "def f(double(N) X) -> (Y, Z) { Y(i) = X(i) * X(i)\n Z(i) = Y(i) * X(i)\n Y(i) = Y(i) * Z(N-1-i) }",
    ],
)
def test_accesses_and_ranges_of_many_kinds(text: str) -> None:
    text = text.replace("+= X(j)", "+=! X(j)")
    check(text, {"N": 7}, X=RNG.standard_normal(7))


def test_indices_named_as_those_of_other_dimensions_are_kept_apart() -> None:
    check("def f(double(M,N) X) -> (Y) { Y(e1, e0) = X(e0, e1) * X(e0, 0) }", {"M": 3, "N": 4}, X=RNG.standard_normal((3, 4)))


def test_a_diagonal_read_under_a_condition_stays_inside() -> None:
    check("def f(double(M,N) X) -> (Y) { Y(i,j) = j < i ? pad(X(j-1,j-1), 1.0) * X(i,i) : X(j,0) where i in 0:3, j in 0:3 }",
          {"M": 4, "N": 3}, X=RNG.standard_normal((4, 3)))  # fmt: skip


def test_products_with_a_sparse_matrix() -> None:
    text = """
def spmv(double(Z) data, int64(Z) col, int64(P) ptr, double(N) x) -> (y) {
  y(i) +=! data(p) * x(col(p)) where p in ptr(i):ptr(i+1)
}
"""
    ptr, col = np.array([0, 2, 2, 5, 6]), np.array([1, 0, 3, 2, 1, 4])
    data, x, w = RNG.standard_normal(6), RNG.standard_normal(5), RNG.standard_normal(4)
    d_data, d_x = polyc.compile(text).vjp()(data, col, ptr, x, w)
    row = np.repeat(np.arange(4), np.diff(ptr))
    np.testing.assert_allclose(d_data, w[row] * x[col])
    np.testing.assert_allclose(d_x, np.bincount(col, data * w[row], 5))


PRODUCT = """
monoid product(double a, double b, double x, double y) -> (p = 1.0, q = 0.0) {
  p = a * x - b * y
  q = a * y + b * x
}
"""


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_a_monoid_of_the_user_by_scans_from_both_sides(n: int) -> None:
    text = PRODUCT + "def f(double(M,N) X) -> (re, im) { (re(i), im(i)) product=! (cos(X(i,j)), X(i,j)) }"
    check(text, {"M": 2, "N": n}, X=RNG.standard_normal((2, n)))


@pytest.mark.parametrize("where", ["", "where i in 0:M, j < i + 1", "where i in 0:M, i + j > 2"])
def test_a_monoid_over_two_indices_and_ranges_that_others_bound(where: str) -> None:
    left = "" if not where else "(i)"
    text = PRODUCT + f"def f(double(M,N) X) -> (re, im) {{ (re{left}, im{left}) product=! (cos(X(i,j)), X(i,j)) {where} }}"
    check(text, {"M": 3, "N": 4}, X=RNG.standard_normal((3, 4)))


def test_values_before_the_first_are_not_combined() -> None:
    """The derivative of the sum of exponentials' logarithm is NaN at minus infinity."""
    text = """
monoid logadd(double a, double b) -> (s = -inf) {
  s = a > b ? a + log1p(exp(b - a)) : b > -1e30 ? b + log1p(exp(a - b)) : b
}
def f(double(M,N) X) -> (Y) { Y(i) logadd=! X(i,j) where i in 0:M, j >= i }
"""
    check(text, {"M": 3, "N": 4}, X=RNG.standard_normal((3, 4)))


def test_what_reads_a_monoid_of_the_user_needs_no_range_of_its_own() -> None:
    """Its range follows from what stands before: the scans stood behind it."""
    text = (
        PRODUCT + "def f(double(M,N) X) -> (Z) { (re(i), im(i)) product=! (X(i,j), X(i,0)) where j <= i  Z(i) = re(i) * im(i) }"
    )
    check(text, {"M": 3, "N": 4}, X=RNG.standard_normal((3, 4)))


def test_what_a_result_holds_before_the_call_is_an_input_where_it_is_needed() -> None:
    program = program_of("def f(double(N) X) -> (Y) { Y(i) += X(i)\n Y(i) = Y(i) * Y(i) }")
    squared = vjp(program, ("X", "Y"))
    assert squared.parameters == ("X", "Y_in", "d_Y")
    x, y, w = RNG.standard_normal((3, 4))
    found = interpret(squared, {"X": x, "Y_in": y, "d_Y": w})
    np.testing.assert_allclose(found["d_X"], 2 * (x + y) * w)
    np.testing.assert_allclose(found["d_Y_in"], 2 * (x + y) * w)
    assert vjp(program_of("def f(double(N) X) -> (Y) { Y(i) += X(i) * X(i) }"), ("X",)).parameters == ("X", "d_Y")


@pytest.mark.parametrize("op", ["+=", "*=", "max="])
def test_starting_values_of_results_take_their_share(op: str) -> None:
    text = f"def f(double(N, K) X) -> (Y) {{ Y(i) {op} X(i, k) where i in 1:N }}"
    x, y, w = RNG.standard_normal((4, 3)), RNG.standard_normal(3), RNG.standard_normal(3)
    gradient = polyc.compile(text).vjp(wrt=("X", "Y"))
    given = {"X": x, "Y_in": y, "d_Y": w}
    d_x, d_y = gradient(*(given[p] for p in gradient.program.parameters))
    full, wanted = np.column_stack([y, x[1:]]), np.zeros((3, 4))
    for i in range(3):
        others = [np.prod(np.delete(full[i], k)) for k in range(4)]
        wanted[i] = w[i] * {"+=": np.ones(4), "*=": np.array(others), "max=": full[i] == full[i].max()}[op]
    np.testing.assert_allclose(np.column_stack([d_y, d_x[1:]]), wanted)
    np.testing.assert_array_equal(d_x[0], 0.0)


def test_values_that_are_used_many_times_do_not_make_long_adjoints() -> None:
    """``x = x * x + x`` again and again: there are three times as many ways through the expression each time."""
    value = "X(i)"
    for _ in range(4):
        value = f"(({value}) * ({value}) + ({value}))"
    program = program_of(f"def f(double(N) X) -> (Y) {{ Y(i) = {value} }}")
    (s,) = (s for s in vjp(program, ("X",)).statements if s.target == "d_X")
    assert sum(1 for _ in walk(s.value)) < 2000
    check_derivatives(Case(program, {"N": 2}, {"X": RNG.standard_normal(2) * 0.1}, {}))


def test_complex_cotangents_are_not_conjugated() -> None:
    a, b, w = (RNG.standard_normal(3) + 1j * RNG.standard_normal(3) for _ in range(3))
    d_a, d_b = polyc.compile("def f(complex128(N) a, complex128(N) b) -> (y) { y(i) = a(i) * b(i) }").vjp()(a, b, w)
    np.testing.assert_allclose(d_a, w * b)
    np.testing.assert_allclose(d_b, w * a)


@pytest.mark.parametrize("value", ["X(n, c) / sqrt(V(c))", "(X(n, c) - V(c)) / sqrt(V(c) + double(0.1))", "X(n, c) / V(c)"])
def test_the_largest_of_quotients_gets_the_whole_gradient(value: str) -> None:
    """Where the reduction divides by a root and the comparison multiplied by its reciprocal, none was equal to the largest."""
    text = f"def f(double(N, C) X, double(C) V) -> (T) {{ T(c) max=! {value} where n in 0:N }}"
    rng = np.random.default_rng(1)
    X, V = rng.standard_normal((50, 64)), rng.random(64) + 0.5
    found = polyc.compile(text).vjp(wrt="X")(X, V, np.ones(64))
    assert ((found != 0).sum(axis=0) == 1).all() and np.isfinite(found).all()


def test_a_maximum_that_no_value_is_equal_to_passes_nan_on() -> None:
    text = "def f(double(N, C) X) -> (T) { T(n) max=! X(n, c) }"
    X = np.array([[1.0, 3.0, 3.0], [np.nan, 1.0, 2.0]])
    np.testing.assert_array_equal(polyc.compile(text).vjp()(X, np.ones(2)), [[0.0, 0.5, 0.5], [np.nan] * 3])
    np.testing.assert_array_equal(polyc.compile(text).jvp()(X, np.ones((2, 3)))[1], [1.0, np.nan])


# --- Sums over what a recurrence made ---------------------------------------------------------------------------------

TOEPLITZ = """
def solve(double(N) r) -> (y) {
  a(0) = -r(0)
  s(k) +=! r(k-1-i) * Y(k-1, i) where i < k, k in 1:N, i in 0:N
  a(k) = -(r(k) + s(k)) where k in 1:N
  Y(k, i) = i < k ? Y(k-1, i) + a(k) * Y(k-1, k-1-i) : (i == k ? a(k) : 0.0) where k in 0:N, i in 0:N
  y(i) = Y(N-1, i)
}
"""


def test_neighbours_read_along_rows_and_not_along_diagonals() -> None:
    assert "d_r.part[i_to] += d_s[k] * Y[k - 1, k - i_to - 1]" in adjoint(TOEPLITZ, "r")


def test_the_one_point_at_an_equality_is_a_sum_of_its_own() -> None:
    text = adjoint(TOEPLITZ, "r")
    assert "d_a.part[k] += d_Y[k, i] * Y[k - 1, k - 1 - i] init 0.0:f64\n    where k in 0:N, i in 0:N, i < k" in text
    assert "d_a.part2[k] += d_Y[k, i] init" in text
    for n in (1, 2, 5):
        check(TOEPLITZ, {"N": n}, r=RNG.standard_normal(n) / 4)


def test_points_at_which_no_term_contributes_are_left_out() -> None:
    text = "def f(double(N) x, double(N,N) W) -> (y) { y(i) +=! j < i ? x(j) * W(i,j) : (j > i + 2 ? 0.0 : 2.0 * x(j)) }"
    assert "where i in 0:N, j in 0:N, i + 2 >= j" in adjoint(text, "x").replace("j <= i + 2", "i + 2 >= j")
    check(text, {"N": 6}, x=RNG.standard_normal(6), W=RNG.standard_normal((6, 6)))


def test_quotients_that_are_stored_are_read_and_starting_values_are_not() -> None:
    text = "def f(double(N) x, double(N) z) -> (y, s) { y(i) = i > 0 ? x(i) / z(i) : exp(z(i))  s(i) = y(i) * y(i) }"
    assert "y[e0] / z[e0]" in adjoint(text, "z") and "exp" not in adjoint(text, "z").partition("S_d_")[2]
    check(text, {"N": 4}, x=RNG.standard_normal(4), z=2 + RNG.random(4))
    start = "def f(double(N,M) x, double(N) z) -> (y) { y(i) = 1.0 / z(i)  y(i) += x(i,j) * x(i,j) }"
    check(start, {"N": 3, "M": 2}, x=RNG.standard_normal((3, 2)), z=2 + RNG.random(3))


SWEEP = """
def sweep(double(N) X, double(T) steps) -> (Y) {
  A(0, i) = X(i)
  A(t, i) = i == 0 || i == N-1 ? A(t-1, i) : (A(t, i-1) + 2.0 * A(t-1, i) + A(t-1, i+1)) / 4.0 where t in 1:T+1, i in 0:N
  Y(i) = A(T, i)
}
"""


def test_inner_points_of_a_sweep_in_place_ask_one_condition_and_run_as_a_scan() -> None:
    operator = polyc.compile(SWEEP, target="x86-64-v4")
    gradient = operator.vjp(wrt="X")
    assert "e0 >= 1 && T >= e0 + 1 && N >= e1 + 3 && e1 >= 2 ?" in str(gradient.program)
    loops = gradient.lower(np.zeros(40), np.zeros(3), np.zeros(40)).as_text("loops")
    assert "scan(" in loops
    for n in (1, 2, 3, 4, 5, 19):
        check(SWEEP, {"N": n, "T": 2}, X=RNG.standard_normal(n), steps=np.zeros(2))
        x, w = RNG.standard_normal(n), RNG.standard_normal(n)
        jacobian = np.stack([operator(e, np.zeros(2)) for e in np.eye(n)], 1)  # it is linear
        np.testing.assert_allclose(gradient(x, np.zeros(2), w), w @ jacobian, rtol=1e-12, atol=1e-14)
