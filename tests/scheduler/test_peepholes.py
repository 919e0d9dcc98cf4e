"""Peepholes: what each makes of a value, that the results agree, and special values as those of the source."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.interpret import interpret
from tests.scheduler.support import check, infer, read, run_pass, statements

MATRIX = "def f(float(N, M) X, float(M) v, float(N) u) -> (Y) { "
VECTORS = "def f(float(N) X, float(N) u) -> (Y) { "
SUMS = "def f(double(N) X, double(N) Z) -> (Y) { "
STEPS = "def f(double(N) X, double(T) s) -> (Y) { A(0, i) = X(i) A(t, i) = i == 0 || i == N-1 ? A(t-1, i) : "
LAST = " where t in 1:T+1, i in 0:N Y(i) = A(T, i) }"
GELU = "0.5 * X(i) * (1.0 + tanh(0.75 * (X(i) + 0.044715 * X(i) * X(i) * X(i))))"

REWRITTEN = [
    # pass, before, a line after
    ("logistic", VECTORS + f"Y(i) = {GELU} }}", "X[i] / (1.0 + exp(-1.5 * (X[i] + 0.044715 * X[i] * X[i] * X[i])))"),
    ("logistic", VECTORS + "Y(i) = X(i) * (tanh(u(i)) + 1.0) / 2.0 }", "X[i] / (1.0 + exp(-2.0 * u[i]))"),
    ("logistic", VECTORS + "Y(i) = 1.0 + tanh(u(i)) }", "2.0 / (1.0 + exp(-2.0 * u[i]))"),
    ("logistic", VECTORS + "Y(i) = 0.25 * X(i) * (1.0 - tanh(u(i) * 0.5)) }", "0.5 * X[i] / (1.0 + exp(1.0 * u[i]))"),
    ("logistic", VECTORS + "Y(i) = 3.0 * (1.0 + tanh(u(i))) }", "3.0 * (2.0 / (1.0 + exp(-2.0 * u[i])))"),
    ("logistic", VECTORS + "Y(i) = 0.5 * X(i) * (1.0 + tanh(u(i))) * u(i) }", "X[i] / (1.0 + exp(-2.0 * u[i])) * u[i]"),
    (
        "logistic",
        VECTORS + "Y(i) = 0.5 * (X(i) * u(i)) * (1.0 + tanh(u(i))) }",
        "0.5 * (X[i] * u[i]) * (2.0 / (1.0 + exp(-2.0 * u[i])))",
    ),
    ("logistic", VECTORS + "Y(i) = exp(1.0 + tanh(u(i))) }", "exp(2.0 / (1.0 + exp(-2.0 * u[i])))"),
    (
        "logistic",
        VECTORS + "Y(i) = (1.0 + tanh(u(i))) * (1.0 - tanh(X(i))) }",
        "2.0 / (1.0 + exp(-2.0 * u[i])) * (2.0 / (1.0 + exp(2.0 * X[i])))",
    ),
    (
        "weighted-sums",
        SUMS + "Y(i) = X(i) + 0.125 * (X(i+1) - 2.0 * X(i) + X(i-1)) where i in 1:N-1 Y(0) = X(0) Y(N-1) = X(N-1) }",
        "0.75:f64 * X[i] + 0.125:f64 * (X[i + 1] + X[i - 1])",
    ),
    ("weighted-sums", SUMS + "Y(i) = 0.5 * X(i) - 0.5 * Z(i) + X(i) * Z(i) }", "0.5:f64 * (X[i] - Z[i]) + X[i] * Z[i]"),
    ("weighted-sums", SUMS + "Y(i) = -(0.5 * X(i)) - 0.5 * Z(i) }", "-(0.5:f64 * (X[i] + Z[i]))"),
    ("weighted-sums", SUMS + "Y(i) = 3.0 * X(i) + X(i) + 0.5 * Z(i) * 2.0 }", "4.0:f64 * X[i] + Z[i]"),
    (
        "weighted-sums",
        SUMS + "Y(i) = exp(0.5 * X(i) + 0.5 * sin(Z(i) + Z(i) + Z(i))) }",
        "exp(0.5:f64 * (X[i] + sin(3.0:f64 * Z[i])))",
    ),
    ("weighted-sums", SUMS + "Y(i) = X(i) > 0.0 ? 0.5 * X(i) + 0.5 * Z(i) : Z(i) }", "? 0.5:f64 * (X[i] + Z[i]) : Z[i]"),
    (
        "weighted-sums",
        STEPS + "A(t-1, i) + 0.25 * (A(t-1, i-1) - 2.0 * A(t-1, i) + A(t-1, i+1))" + LAST,
        "0.5:f64 * A[t - 1, i] + 0.25:f64 * (A[t - 1, i - 1] + A[t - 1, i + 1])",
    ),
    ("reciprocals", MATRIX + "Y(j) +=! X(i, j) / float(N) }", "+= X[i, j] * 0.1111111111111111 "),
    ("reciprocals", MATRIX + "Y(j) +=! X(i, j) / float(N * M) }", "+= X[i, j] * 0.037037037037037035 "),
    ("reciprocals", MATRIX + "Y(j) +=! X(i, j) / (float(N) * float(M)) }", "+= X[i, j] * (1.0 / (f32(i32(9)) * f32(i32(3)))) "),
    ("reciprocals", MATRIX + "Y(j) +=! X(i, j) / 8.0 }", "+= X[i, j] * 0.125 init 0.0"),
    (
        "reciprocals",
        MATRIX + "Y(j) +=! (X(i, j) - v(j)) * X(i, j) / float(N) }",
        "(X[i, j] - v[j]) * X[i, j] * 0.1111111111111111 ",
    ),
    (
        "reciprocals",
        MATRIX + "Y(j) +=! X(i, j) / 3.0 - (X(i, j) * v(j)) / float(N) }",
        "X[i, j] * 0.3333333333333333 - X[i, j] * v[j] * 0.1111111111111111 ",
    ),
    ("reciprocals", MATRIX + "Y(j) +=! i == 1 ? X(i, j) / 3.0 : v(j) }", "i == 1 ? X[i, j] * 0.3333333333333333 : v[j] "),
    ("reciprocals", MATRIX + "Y(j) = v(j) / 3.0  Y(j) += X(i, j) / 7.0 }", "+= X[i, j] * 0.14285714285714285 init Y[j]"),
    (
        "root-reciprocals",
        MATRIX + "Y(i, j) = (X(i, j) - v(j)) / sqrt(v(j) * v(j) + 1e-5) }",
        "(X[i, j] - v[j]) * rsqrt(v[j] * v[j] + 1e-05)",
    ),
    (
        "root-reciprocals",
        MATRIX + "Y(i, j) = X(i, j) / sqrt(u(i) * u(i) + 0.5) * v(j) + u(i) }",
        "X[i, j] * rsqrt(u[i] * u[i] + 0.5) * v[j] + u[i]",
    ),
    (
        "root-reciprocals",
        MATRIX + "Y(i, j) = X(i, j) / (sqrt(u(i) * u(i)) + 1e-3) }",
        "X[i, j] * (1.0 / (sqrt(u[i] * u[i]) + 0.001))",
    ),
    (
        "root-reciprocals",
        MATRIX + "Y(i, j) = fmax(X(i, j) / max(sqrt(v(j) * v(j)), 1e-8), 0.0) }",
        "X[i, j] * (1.0 / max(sqrt(v[j] * v[j]), 1e-08))",
    ),
    ("root-reciprocals", MATRIX + "Y(i) +=! X(i, j) / sqrt(u(i) * u(i) + 1.0) }", "+= X[i, j] * rsqrt(u[i] * u[i] + 1.0) "),
    (
        "root-reciprocals",
        MATRIX + "Y(i, j) = X(i, j) > 0.0 ? X(i, j) / sqrt(u(i) * u(i) + 1.0) : 0.0 }",
        "X[i, j] > 0.0 ? X[i, j] * rsqrt(u[i] * u[i] + 1.0) : 0.0",
    ),
    (
        "single-values",
        "def f(float(M, N) A, float(N, M) B) -> (Y) { Y(i, j) = A(i, j)  Y(j, i) += B(i, j) }",
        "= Y[j, i] + B[i, j]",
    ),
]

KEPT = {
    "logistic": {
        "needed elsewhere": VECTORS + "Y(i) = (1.0 + tanh(u(i))) * tanh(u(i)) }",
        "another number": VECTORS + "Y(i) = 2.0 + tanh(u(i)) }",
        "less 1": VECTORS + "Y(i) = tanh(u(i)) - 1.0 }",
        "another function": VECTORS + "Y(i) = 1.0 + sinh(u(i)) }",
    },
    "weighted-sums": {
        "weights that cancel": SUMS + "Y(i) = 0.5 * X(i) + 0.5 * Z(i) - 0.5 * X(i) }",
        "the upper half of a number": SUMS + "Y(i) = 4097.0 * X(i) - (4097.0 * X(i) - X(i)) }",
        "a rounding error": SUMS + "Y(i) = Z(i) - ((X(i) + Z(i)) - X(i)) + 2.0 * X(i) }",
        "a shifted rounding": SUMS + "Y(i) = (3.0 * X(i) + X(i) + 8388608.0) - 8388608.0 }",
        "differences of neighbours": SUMS + "Y(i-1) = 0.25 * (X(i+1) - X(i)) + 0.25 * (X(i-1) - X(i)) where i in 1:N-1 }",
        "two differences": SUMS + "Y(i) = 0.5 * (X(i) - X(N-1-i)) + 0.5 * (Z(i) - Z(N-1-i)) }",
        "a difference and what is small beside it": SUMS + "Y(i) = 0.5 * (X(i) - X(N-1-i)) + 0.5 * Z(i) }",
        "as few operations": SUMS + "Y(i) = 0.5 * X(i) + 0.25 * Z(i) }",
        "a shared difference": SUMS + "Y(i) = (X(i) - Z(i)) * (X(i) - Z(i)) }",
        "terms of a sum": "def f(double(N) X, double(N) Z) -> (y) { y +=! 0.5 * X(i) + 0.5 * Z(i) }",
        "integers": "def f(int32(N) X, int32(N) Z) -> (Y) { Y(i) = 2 * X(i) + 2 * Z(i) }",
        "a scan": SUMS + "Y(0) = X(0) Y(i) = 0.5 * Y(i-1) + 0.5 * X(i) where i in 1:N }",
        "a recurrence of each element": "def f(double(T, N) X) -> (Y) { "
        "Y(0, i) = X(0, i) Y(t, i) = 0.5 * Y(t-1, i) + 0.5 * X(t, i) where t in 1:T }",
        "a weight that overflows": SUMS + "Y(i) = 1e30 * (1e30 * X(i)) + 1e30 * (1e30 * Z(i)) }",
        "a weight that vanishes": SUMS + "Y(i) = double(1e-200) * (double(1e-200) * X(i) + Z(i)) + Z(i) }",
        "what is divided": SUMS + "Y(i) = X(i) / 3.0 + Z(i) / 3.0 }",
    },
    "reciprocals": {
        "a quotient that is a result": MATRIX + "Y(i, j) = X(i, j) / 3.0 + v(j) }",
        "a maximum": MATRIX + "Y(j) max=! X(i, j) / 3.0 }",
        "of what stays the same along the sum": MATRIX + "Y(j) +=! (X(i, j) - v(j) / 3.0) * X(i, j) }",
        "by data": MATRIX + "Y(j) +=! X(i, j) / v(j) }",
        "in a function": MATRIX + "Y(j) +=! exp(X(i, j) / 3.0) }",
        "by zero": MATRIX + "Y(j) +=! X(i, j) / 0.0 }",
        "by nearly nothing": MATRIX + "Y(j) +=! X(i, j) / 1e-39 }",
        "integers": "def f(int32(N, M) X) -> (Y) { Y(j) +=! X(i, j) / 3 }",
    },
    "root-reciprocals": {
        "of what moves alike": MATRIX + "Y(i, j) = v(j) / sqrt(X(i, j) * X(i, j)) }",
        "of all indices": MATRIX + "Y(i, j) = X(i, j) / sqrt(X(i, j) * X(i, j) + 1.0) }",
        "data": MATRIX + "Y(i, j) = X(i, j) / u(i) }",
        "less a number": MATRIX + "Y(i, j) = X(i, j) / (sqrt(u(i) * u(i)) - 1.0) }",
        "products of roots": MATRIX + "Y(i, j) = X(i, j) / (sqrt(u(i)) * sqrt(u(i))) }",
    },
    "single-values": {
        "the other elements stay": "def f(float(N) A) -> (Y) { Y(i) = A(i)  Y(i) += A(i) where i in 1:N }",
        "a condition": "def f(float(N) A) -> (Y) { Y(i) = A(i)  Y(i) += A(i) where i < 3 }",
        "more than one value": "def f(float(N) A) -> (Y) { Y(i) = A(i)  Y(i) += A(i) * A(j) }",
        "a computed left side": "def f(float(N) A) -> (Y) { Y(i) = A(i)  Y(N - 1 - i) += A(i) }",
    },
}


@pytest.mark.parametrize(("name", "before", "after"), REWRITTEN)
def test_before_and_after(name: str, before: str, after: str) -> None:
    sizes = {n: k for n, k in (("N", 9), ("M", 3), ("T", 3)) if f"{n}" in before.split("->")[0]}
    program, ranges = infer(read(before), **sizes)
    new, _, remarks = run_pass(name, program, ranges)
    assert any(after in line for line in statements(new)), statements(new)
    assert {(r.kind, r.pass_name) for r in remarks} == (set() if name == "single-values" else {("passed", name)})
    rng = np.random.default_rng(0)
    shapes = {"X": (9, 3) if "M) X" in before else (9,), "v": (3,), "u": (9,), "Z": (9,), "s": (3,), "A": (3, 9), "B": (9, 3)}
    inputs = {p: rng.standard_normal(shapes[p]).astype(program.tensor(p).dtype.numpy) for p in program.parameters}
    wanted, found = (interpret(p, inputs, sizes)["Y"] for p in (program, new))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in KEPT.items() for case in cases])
def test_what_stays_as_written(name: str, case: str) -> None:
    text = KEPT[name][case]
    sizes = {n: k for n, k in (("N", 9), ("M", 3), ("T", 3)) if f"{n}" in text.split("->")[0]}
    program, ranges = infer(read(text), **sizes)
    assert run_pass(name, program, ranges) == (program, ranges, [])


def test_kernels_agree_with_the_source() -> None:
    """All in one, where the passes behind them see what they made."""
    text = MATRIX + (
        "m(j) +=! X(i, j) / float(N)  s(j) +=! (X(i, j) - m(j)) * (X(i, j) - m(j)) / float(N)  "
        "Z(i, j) = (X(i, j) - m(j)) / sqrt(s(j) + 1e-5)  Y(i, j) = 0.5 * Z(i, j) * (1.0 + tanh(0.75 * u(i) + 0.75 * v(j))) }"
    )
    for n, m in ((1, 1), (0, 3), (3, 0), (33, 70)):
        lowered = check(text, {"N": n, "M": m})
    assert {"reciprocals", "root-reciprocals", "logistic", "weighted-sums"} <= {r.pass_name for r in lowered.remarks}


@pytest.mark.parametrize(("name", "option"), [("logistic", "logistic_forms"), ("weighted-sums", "collect_weights")])
def test_switches_of_before_leave_out_the_pass(name: str, option: str) -> None:
    text = VECTORS + "Y(i) = 1.0 + tanh(0.75 * X(i) + 0.75 * u(i)) }"
    x = np.zeros(40, "f4")
    for given in ({"reassociate": False}, {option: False}, {"disable": name}):
        assert not any(r.pass_name == name for r in polyc.compile(text, **given).lower(x, x).remarks)
    assert any(r.pass_name == name for r in polyc.compile(text).lower(x, x).remarks)


def test_sums_in_the_order_of_the_source_divide():
    program = polyc.compile(MATRIX + "Y(j) +=! X(i, j) / float(N) }", reassociate=False)
    x = np.random.default_rng(0).standard_normal((11, 3)).astype("f4")
    total = np.zeros(3, "f4")
    for row in x:
        total += row / np.float32(11)
    assert np.array_equal(program(x, total, x[:, 0]), total)


def test_terms_of_a_mean_do_not_overflow():
    mean = polyc.compile(MATRIX + "Y(j) +=! X(i, j) / float(N) }")
    assert np.allclose(mean(np.full((100, 5), 3e38, "f4"), np.zeros(5, "f4"), np.zeros(100, "f4")), 3e38)


def test_infinities_and_nan_of_a_sum_are_as_written():
    x = np.array([[np.inf, -np.inf, np.nan, np.inf], [1, 1, 1, -np.inf]], "f4")
    found = polyc.compile(MATRIX + "Y(j) +=! X(i, j) / 961.0 }")(x, np.zeros(4, "f4"), np.zeros(2, "f4"))
    assert np.array_equal(found, np.array([np.inf, -np.inf, np.nan, np.nan], "f4"), equal_nan=True)


def test_the_order_of_the_source_divides_by_roots():
    x = np.random.default_rng(0).standard_normal((11, 40)).astype("f4")
    u = np.abs(x[:, 0])
    divide = polyc.compile("def f(float(N, M) X, float(N) u) -> (Y) { Y(i, j) = X(i, j) / sqrt(u(i)) }", reassociate=False)
    assert np.array_equal(divide(x, u), x / np.sqrt(u)[:, None])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_zero_infinity_and_the_smallest_numbers_are_as_of_a_division(dtype: str):
    f = np.finfo(dtype)
    values = np.array([0, -0.0, 1, -3, np.inf, -np.inf, np.nan, f.max, f.tiny, f.smallest_subnormal], dtype)
    name = {"f4": "float", "f8": "double"}[dtype]
    divide = polyc.compile(f"def f({name}(M) x, {name}(N) u) -> (Y) {{ Y(i, j) = x(j) / sqrt(u(i)) }}")
    with np.errstate(all="ignore"):
        wanted = values / np.sqrt(values)[:, None]
    np.testing.assert_allclose(divide(values, values), wanted, rtol=4 * f.eps, atol=2 * f.smallest_subnormal)


def test_roots_of_columns_are_computed_once():
    x = np.ones((50, 64), "f4")
    text = "def f(float(N, M) X, float(M) v) -> (Y) { Y(i, j) = X(i, j) / sqrt(v(j) + 1e-5) }"
    lowered = polyc.compile(text).lower(x, x[0])
    assert [r.pass_name for r in lowered.remarks if r.pass_name == "store-functions"] == ["store-functions"]


def test_weights_are_those_of_the_element_type():
    text = "def f(float(N) X, float(N) Z) -> (Y) { Y(i) = 0.1 * X(i) + 0.1 * Z(i) + 0.2 * X(i) }"
    program, ranges = infer(read(text), N=9)
    (line,) = statements(run_pass("weighted-sums", program, ranges)[0])
    exact = float(np.float32(0.1)) + float(np.float32(0.2))
    assert f"{exact} * X[i]" in line or f"{np.float32(exact)} * X[i]" in line


def test_infinities_and_nan_come_out_of_every_value():
    op = polyc.compile(
        SUMS + "Y(i) = X(i) + 0.125 * (X(i+1) - 2.0 * X(i) + X(i-1)) where i in 1:N-1 Y(0) = X(0) Y(N-1) = X(N-1) }"
    )
    for special in (np.inf, -np.inf, np.nan):
        x = np.ones(40)
        x[20] = special
        y = op(x, x)
        assert not np.isfinite(y[19:22]).any() and np.isfinite(np.delete(y, (19, 20, 21))).all()


def test_a_long_sum():
    terms = " + ".join(f"0.5 * X(i + {k})" for k in range(150))
    check(f"def f(double(N) X) -> (Y) {{ Y(i) = {terms} }}", {"N": 161})


def test_a_difference_of_large_values_had_the_errors_of_their_size():
    """0.5 * (x + z - y) of what are steps of 0.1 around 100000: wrong in the second digit."""
    op = polyc.compile("def f(float(N) x, float(N) y, float(N) z) -> (d) { d(i) = 0.5 * (x(i) - y(i)) + 0.5 * z(i) }")
    x, z = (np.random.default_rng(0).standard_normal((2, 99)) * 0.1).astype(np.float32)
    x += np.float32(1e5)
    np.testing.assert_allclose(op(x, x + np.float32(0.25), z), 0.5 * (z - 0.25), rtol=1e-5)


@pytest.mark.parametrize("value", ["-(X(i) - Z(i))", "-(X(i) - 1.0)", "1.0 / -(X(i) - Z(i))"])
def test_a_negated_difference_of_equal_values_was_a_positive_zero(value: str):
    y = polyc.compile(f"def f(float(N) X, float(N) Z) -> (Y) {{ Y(i) = {value} }}")(*np.ones((2, 40), np.float32))
    assert np.signbit(y).all()


@pytest.mark.parametrize("target", ["x86-64-v2", "host"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_special_values_of_a_logistic_function_are_those_of_the_formula(dtype: str, target: str) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 6e4, -6e4, 1e-7, 20.0, -20.0, -5.0] * 3).astype(dtype)
    source = f"def f({dtype}(N) X) -> (Y) {{ Y(i) = {GELU} }}"
    with pytest.warns(polyc.PolycWarning) if dtype == "float64" else np.errstate():
        found = polyc.compile(source, target=target)(x)
        wanted = polyc.compile(source, target=target, disable="logistic")(x)
    np.testing.assert_allclose(found, wanted, rtol=2e-3 if dtype == "float16" else 1e-6, atol=3e-6)
    assert np.array_equal(np.signbit(found[:2]), np.signbit(wanted[:2]))


def test_results_near_zero_have_all_their_digits() -> None:
    u = np.linspace(-30, 5, 4001).astype("f4")
    exact = 2 / (1 + np.exp(-2 * u.astype("f8")))
    found = polyc.compile("def f(float(N) u) -> (Y) { Y(i) = 1.0 + tanh(u(i)) }")(u)
    assert np.abs(found / exact - 1).max() < 5e-7
