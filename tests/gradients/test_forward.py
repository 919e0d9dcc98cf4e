"""The forward mode: what it adds to a program, and what it refuses."""

# ruff: noqa: F821

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.diagnostics import ArgumentError, UnsupportedError
from polyc.gradients import jvp, vjp
from polyc.ir.interpret import interpret
from polyc.ir.program import Program
from polyc.ir.verify import verify_program
from tests.gradients.sources import compile_text


def program_of(text: str) -> Program:
    return compile_text(text).program


def test_each_statement_has_one_for_its_tangent_over_the_same_points() -> None:
    program = program_of(
        "def f(double(M, K) X, double(N, K) W) -> (Y) { H(m, n) +=! X(m, k) * W(n, k)  Y(m, n) = exp(H(m, n)) }"
    )
    moved = jvp(program, ("X",))
    verify_program(moved)
    assert moved.parameters == ("X", "W", "t_X")
    assert [r.name for r in moved.returns] == ["Y", "t_Y"]
    text = str(moved)
    assert "t_H[m, n] += t_X[m, k] * W[n, k] init 0.0:f64\n    where exists X[m, k] * W[n, k]" in text
    assert "t_Y[m, n] = t_H[m, n] * exp(H[m, n])" in text


def test_what_does_not_move_has_no_tangent() -> None:
    program = program_of("def f(double(N) x, double(N) c) -> (y) { d(n) = sqrt(c(n))  y(n) = d(n) * x(n) }")
    assert "t_d" not in str(jvp(program, ("x",)))


def test_a_result_that_does_not_move_has_a_tangent_of_zeros() -> None:
    program = program_of("def f(double(N) x, double(N) c) -> (y, z) { y(n) = c(n)  z(n) = x(n) }")
    found = interpret(jvp(program, ("x",)), {"x": np.ones(3), "c": np.ones(3), "t_x": np.full(3, 2.0)})
    np.testing.assert_array_equal(found["t_y"], np.zeros(3))
    np.testing.assert_array_equal(found["t_z"], np.full(3, 2.0))


def test_names_that_are_taken_get_a_number() -> None:
    program = program_of("def f(double(N) x, double(N) t_x) -> (y) { y(n) = x(n) * t_x(n) }")
    assert jvp(program, ("x",)).parameters == ("x", "t_x", "t_x2")
    again = jvp(jvp(program, ("x",)), ("x", "t_x2"))
    assert len(set(again.parameters)) == 5
    verify_program(again)


@pytest.mark.parametrize(("values", "wanted"), [((3.0, 1.0, 3.0), 0.5), ((1.0, 3.0, 2.0), 1.0), ((2.0, 2.0, 2.0), 1 / 3)])
def test_values_that_are_the_largest_share_its_derivative(values: tuple[float, ...], wanted: float) -> None:
    program = program_of("def f(double(N) x) -> (y) { y max=! x(n) }")
    x = np.array(values)
    hit = int(x.argmax())
    found = interpret(jvp(program, ("x",)), {"x": x, "t_x": np.eye(3)[hit]})["t_y"]
    assert found == pytest.approx(wanted)


def test_a_starting_value_takes_part_in_a_maximum() -> None:
    program = program_of("def f(double(N, K) x, double(N) b) -> (y) { y(n) = b(n)  y(n) max= x(n, k) }")
    x, b = np.array([[1.0, 2.0], [5.0, 3.0], [4.0, 4.0]]), np.array([3.0, 0.0, 4.0])
    found = interpret(jvp(program, ("x", "b")), {"x": x, "b": b, "t_x": np.full((3, 2), 2.0), "t_b": np.full(3, 8.0)})
    np.testing.assert_allclose(found["t_y"], [8.0, 2.0, (8 + 2 + 2) / 3])


@pytest.mark.parametrize("n_zeros", [0, 1, 2, 3])
def test_products_are_exact_with_any_number_of_zeros_also_twice(n_zeros: int) -> None:
    program = program_of("def f(double(N) x) -> (y) { y *=! x(n) }")
    x, v = np.array([2.0, 3.0, 5.0, 7.0]), np.array([1.0, -2.0, 3.0, 4.0])
    x[:n_zeros] = 0.0
    once = jvp(program, ("x",))
    twice = jvp(once, ("x",))
    (second,) = twice.parameters[2:]
    found = interpret(twice, {"x": x, "t_x": v, second: v})
    first = sum(v[i] * np.prod(np.delete(x, i)) for i in range(4))
    curved = sum(v[i] * v[j] * np.prod(np.delete(x, [i, j])) for i in range(4) for j in range(4) if i != j)
    assert list(found.values()) == [np.prod(x), first, first, curved]


def test_monoids_of_users_have_tangents() -> None:
    """Products of complex numbers, as pairs, against the product rule."""

    @polyc.monoid(identity=(1.0, 0.0))
    def times(a, b):
        return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]

    @polyc.op
    def product(a: f64[N], b: f64[N]):
        p, q = times(a[n], b[n])
        return p, q

    rng = np.random.default_rng(0)
    a, b, t, u = rng.standard_normal((4, 5))
    *_, t_p, t_q = product.jvp()(a, b, t, u)
    z, w = a + 1j * b, t + 1j * u
    wanted = sum(w[i] * np.prod(np.delete(z, i)) for i in range(5))
    np.testing.assert_allclose(t_p + 1j * t_q, wanted)


def test_sixteen_bits_are_rounded_once() -> None:
    program = program_of("def f(float16(N) x) -> (y) { y +=! x(n) * x(n) }")
    x = (np.arange(1, 200) / 64).astype(np.float16)
    found = interpret(jvp(program, ("x",)), {"x": x, "t_x": np.ones_like(x)})["t_y"]
    assert found == np.float16((2 * x.astype(np.float32)).sum())


def test_what_is_no_float_is_refused_by_name() -> None:
    program = program_of("def f(double(N) x, int32(N) k) -> (y) { y(n) = x(n) * double(k(n)) }")
    with pytest.raises(ArgumentError, match="no derivative by k, which is i32"):
        jvp(program, ("x", "k"))
    with pytest.raises(ArgumentError, match="no input named z"):
        jvp(program, ("z",))
    with pytest.raises(ArgumentError, match="named twice"):
        jvp(program, ("x", "x"))


def test_what_is_not_supported_says_where_and_how_else() -> None:
    program = program_of("def f(int32(P) k, double(P) x, double(M) z) -> (y) { y(m) = z(m)  y(k(p)) *= x(p) }")
    with pytest.raises(UnsupportedError, match=r"(?s)at computed subscripts.*y\(k\(p\)\).*help: use the reverse mode"):
        jvp(program, ("x",))


def test_second_derivatives_of_products_at_data_given_places_are_refused() -> None:
    """What the reverse mode makes of them is right in value: second derivatives across two zeros are not 0."""
    program = program_of("def f(int32(P) k, double(P) x, double(M) z) -> (y) { y(m) = z(m)  y(k(p)) *= x(p) }")
    for again in (jvp, vjp):
        with pytest.raises(UnsupportedError, match=r"(?s)meet where data says.*help: sort the factors into rows"):
            again(vjp(program, ("x",)), ("x",))
        again(vjp(program, ("x",)), ("d_y",))


ADDED = {
    "a row": ("T(i, j) = A(i, j)  T(i, j) += x(i) * x(i)", lambda x, A: np.stack([2 * x] * A.shape[1], 1)),
    "the larger": ("T(i, j) = A(i, j)  T(i, j) max= x(i)", lambda x, A: (x[:, None] > A) * 1.0),
    "a factor": ("T(i, j) = A(i, j)  T(i, j) *= x(i)", lambda x, A: A),
    "where data says": ("T(i, j) = A(i, j)  T(k(i), k(i)) += x(i)", lambda x, A: np.diag([1.0, 2.0, 0.0])[:, :2]),
}


@pytest.mark.parametrize("name", ADDED)
def test_a_direction_in_which_what_is_added_to_stands_still(name: str) -> None:
    """Its tangent is 0 then, which does not say how many elements there are."""
    text, expected = ADDED[name]
    operator = polyc.compile(f"def f(double(N) x, double(N, M) A, int32(N) k) -> (T) {{ {text} }}")
    x, A = np.array([0.5, 2.5, 4.5]), np.arange(6.0).reshape(3, 2)
    _, t_T = operator.jvp(wrt="x")(x, A, np.array([1, 0, 1], np.int32), np.ones(3))
    np.testing.assert_allclose(t_T, expected(x, A))
