"""Programs that once failed, by symptom."""

import numpy as np
import pytest

import polyc
from polyc.ir.text_reader import parse_program
from tests.scheduler.support import check_nest, lower


def test_an_initial_value_is_there_where_a_triangle_has_one_point() -> None:
    """The reduction's rows were constant, and the initial values of other elements came too late."""
    text = """def lu(double(N, N) A) -> (F) {
      S(i, j) +=! F(i, k) * F(k, j) where k < i, k < j, i in 0:N, j in 0:N, k in 0:N
      F(i, j) = i <= j ? A(i, j) - S(i, j) : (A(i, j) - S(i, j)) / F(j, j)
    }"""
    got = polyc.compile(text, dynamic=False)(np.array([[4.0, 2.0], [2.0, 3.0]]))
    np.testing.assert_allclose(got, [[4.0, 2.0], [0.5, 2.0]])


def test_what_an_exists_clause_reads_may_be_inlined() -> None:
    text = """def f(float(N, N) A) -> (Y, Z) {
      T(i, j) = A(i, j) * 2.0
      Y(i, j) +=! T(i, k) * T(k, j)
      Z(i, j) = Y(i, j) + 1.0 where exists T(i, j)
    }"""
    a = np.random.default_rng(0).standard_normal((16, 16)).astype("f4")
    y, z = polyc.compile(text)(a)
    np.testing.assert_allclose(y, 4 * a @ a, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(z, y + 1, rtol=1e-6)


def test_padding_is_no_copy_of_an_invariant_row() -> None:
    """The dimension along which T is the same was dropped, and with it the test of the border."""
    text = """def f(float(N) x) -> (Y) {
      T(i, j) = x(j) * 2.0 where i in 0:N, j in 0:N
      Y(i, j) = pad(T(i + 1, j), 7.0) + pad(T(i, j + 1), wrap) where i in 0:N, j in 0:N
    }"""
    got = polyc.compile(text)(np.array([1.0, 2.0], np.float32))
    np.testing.assert_array_equal(got, [[6.0, 6.0], [11.0, 9.0]])


def test_a_diagonal_of_one_element_is_added_to() -> None:
    """The dimension left, and the initial value still spoke of its coordinate."""
    text = "def f(float(N, N) A, float(N) x) -> (T) { S(i, j) = A(i, j)  S(k, k) += x(k) where k in 0:N  T(i, j) = S(i, j) }"
    got = polyc.compile(text, dynamic=False)(np.full((1, 1), 2.0, np.float32), np.ones(1, np.float32))
    np.testing.assert_array_equal(got, [[3.0]])


def test_an_empty_sum_is_started_before_a_reader_that_stands_above_it() -> None:
    """No instance of the sum orders the two, and its initial value came behind the reader on every rung."""
    text = """program f(x: f64[N, 4]) -> (y)
  sizes N
  temporary s: f64[]
  output y: f64[3]
  S0(i): y[i] = s[] + 1.0:f64
    where i in 0:3
  S1(i, j): s[] += x[i, j] init 2.0:f64
    where i in 0:N, j in 0:4
"""
    for n in (0, 5):
        lowered = lower(parse_program(text), {"N": n})
        lowered.remarks = ()  # the first rung may fail
        check_nest(lowered, {"N": n})


def test_variance_of_rows_that_are_no_array_of_their_own():
    """Two rewritings named an index of their blocks alike, and one sum ran over the diagonal of both."""
    rng = np.random.default_rng(0)
    x = (3 + rng.standard_normal((8, 200_064)).astype(np.float32))[:, :200_000]
    f = polyc.compile(
        """def f(float(M,N) X) -> (v) {
          m +=! X(i,j) / 1600000.0
          v +=! (X(j,i) - m) * (X(j,i) - m) / 1600000.0 where j in 0:M }"""
    )
    np.testing.assert_allclose(f(x), x.astype(np.float64).var(), rtol=1e-4)


def test_an_index_of_16_bits_that_is_converted_early_is_still_checked():
    """The read was no longer clamped, and ran out of its array before the error was raised."""
    f = polyc.compile("def f(float16(K) A, float(R,N) T) -> (O) { O(j) +=! T(int32(A(k)), j) }")
    table = np.ones((64, 20_000), np.float32)
    with pytest.raises(polyc.PolycError, match="subscript 60000 of dimension 0 of T"):
        f(np.full(3, 60_000, np.float16), table)
    np.testing.assert_array_equal(f(np.arange(3, dtype=np.float16), table), np.full(20_000, 3, np.float32))


def test_sums_that_choose_elements_may_be_stored_transposed():
    """What was checked still named the tensor before it was transposed, and compiling crashed."""
    rng = np.random.default_rng(0)
    x, y = rng.random((20, 8, 37), np.float32), rng.random((20, 8, 21), np.float32)
    table = rng.random(100, np.float32)
    f = polyc.compile(
        """def f(float(A,D,B) X, float(A,D,C) Y, float(R) T) -> (Z) {
          S(c,b,a) +=! X(a,d,b) * Y(a,d,c)
          Z(c,b,a) = T(int32(S(c,b,a) * 0.0 + 1.0 * a)) }""",
        target="x86-64-v3",
    )
    found = f(x, y, table)
    np.testing.assert_array_equal(found, np.broadcast_to(table[:20], found.shape))


def test_copies_with_borders_of_like_names_do_not_replace_each_other():
    """The copies of `T.1` and of `T_1` had one name."""
    x, t = np.random.default_rng(0).random((2, 40), np.float32)
    f = polyc.compile(
        """def f(float(N) X, float(N) T_1) -> (y) {
          T(i) = X(i) * X(i)
          T(i) += exp(X(i))
          y(i) +=! pad(T(i+k-2), wrap) * pad(T_1(i+k-2), wrap) where k in 0:5, i in 0:N }"""
    )
    sums = (x * x + np.exp(x)) * t
    np.testing.assert_allclose(f(x, t), sum(np.roll(sums, 2 - k) for k in range(5)), rtol=1e-5)
