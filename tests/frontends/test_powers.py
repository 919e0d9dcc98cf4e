"""Powers of indices in subscripts and bounds: statements for each value, in both notations."""

# ruff: noqa: F821, F823

import warnings

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from polyc.frontends.tc import read_tc
from polyc.ir.interpret import interpret
from polyc.ir.text import format_statement
from tests.frontends.python.evaluate import run

rng = np.random.default_rng(2)


def statements(body: str) -> list[str]:
    (program,) = read_tc(f"def f(float(N) x) -> (y) {{ {body} }}")
    return [format_statement(s) for s in program.statements]


def fft(x: "c128[2**K]", *, K=3):
    X[0, i] = x[i]
    with polyc.where(0 <= s < K, 0 <= p < 2 ** (K - s - 1), 0 <= q < 2**s):
        X[s + 1, q + 2**s * (2 * p)] = X[s, q + 2**s * p] + X[s, q + 2**s * (p + 2 ** (K - s - 1))]
        X[s + 1, q + 2**s * (2 * p + 1)] = (X[s, q + 2**s * p] - X[s, q + 2**s * (p + 2 ** (K - s - 1))]) * np.exp(
            -2j * np.pi * p / 2 ** (K - s)
        )
    y[i] = X[K, i]
    return y


def test_stockhams_fourier_transform_runs_in_stages() -> None:
    op = polyc.op(fft)
    for k in (1, 3):
        x = rng.random(2**k) + 1j * rng.random(2**k)
        np.testing.assert_allclose(run(fft, x, K=k), np.fft.fft(x))
        np.testing.assert_allclose(op(x, K=k), np.fft.fft(x))


def test_each_value_is_a_statement_with_ranges_of_its_own() -> None:
    body = "y(s, 2 * k) = x(pow(2, s) * k) where s in 1:3, k in 0:pow(2, s)"
    assert statements(body) == [
        "S0(k): y[1, 2 * k] = x[2 * k]\n    where k in 0:2",
        "S1(k): y[2, 2 * k] = x[4 * k]\n    where k in 0:4",
    ]


def test_conditions_that_leave_out_all_points_of_a_value_leave_out_the_statement() -> None:
    assert len(statements("y(s, k) = x(k) where s in 0:4, k in 0:pow(2, s), s > 2")) == 1


def test_elements_of_sums_without_points_have_the_starting_value() -> None:
    text = "def f(float(N) x) -> (y, z, w) { y(s) +=! x(k) where s in 0:4, k < pow(2, s), s > 2 "
    text += "w(s, i) +=! x(k + i) where s in 0:3, k in 0:pow(2, s)-1, i in 0:4 "
    text += "z(s) +=! x(k) where s in 0:4, k >= s, k < pow(2, s) - 1 }"
    x = rng.random(20).astype("f4")
    found = interpret(read_tc(text)[0], {"x": x})
    np.testing.assert_allclose(found["y"], [0, 0, 0, x[:8].sum()], rtol=1e-6)
    np.testing.assert_allclose(found["z"], [0, 0, x[2], x[3:7].sum()], rtol=1e-6)
    np.testing.assert_allclose(found["w"], [[0] * 4, x[:4], x[:4] + x[1:5] + x[2:6]], rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, result in zip("yzw", polyc.compile(text)(x), strict=True):
            np.testing.assert_allclose(result, found[name], rtol=1e-6)


def test_all_values_run_over_the_same_points_of_other_indices() -> None:
    (program,) = read_tc(
        "def f(float(N) x) -> (y, z) { y(i) +=! x(i + pow(2, s)) where s in 0:4  z(s, i) = x(i - pow(2, s)) where s in 0:3 }"
    )
    x = rng.random(20).astype("f4")
    found = interpret(program, {"x": x})
    affine = (
        "def f(float(N) x) -> (y, z) { y(i) +=! x(i + c) where c in 1:9  z(s, i) = x(i - 1 - s) + x(i - 4 + s) where s in 0:4 }"
    )
    shapes = interpret(read_tc(affine)[0], {"x": x})
    assert found["y"].shape == shapes["y"].shape and found["z"].shape[1] == shapes["z"].shape[1]
    np.testing.assert_allclose(found["y"], sum(x[2**s - 1 : 2**s - 1 + 13] for s in range(4)), rtol=1e-5)
    np.testing.assert_allclose(found["z"], [x[4 - 2**s : 4 - 2**s + 17] for s in range(3)])


def test_reductions_over_an_index_in_a_power_combine_partial_results() -> None:
    def f(x):
        with polyc.where(0 <= s < 3, 0 <= k < 1 << s):
            t[s] += x[k]
            u += x[k] * (s + 1)
            m = max(x[k + (1 << s)])
        v = u
        v -= 1
        with polyc.where(0 <= s < 3):
            v += x[1 << s]
        return t, u, m, v

    x = rng.random(9)
    total = sum(x[k] * (s + 1) for s in range(3) for k in range(1 << s))
    t, u, m, v = run(f, x)
    np.testing.assert_allclose(t, [x[:1].sum(), x[:2].sum(), x[:4].sum()])
    np.testing.assert_allclose([u, m, v], [total, x[1:8].max(), total - 1 + x[1] + x[2] + x[4]])


def test_a_power_with_a_name_stands_in_subscripts() -> None:
    body = "y(s, i) = x(w * i) * w where w = pow(2, s), s in 0:2, i in 0:5"
    assert [line.partition("x[")[2].partition("]")[0] for line in statements(body)] == ["i", "2 * i"]


def test_errors_of_copies_are_told_once_with_the_value() -> None:
    with pytest.raises(PolycError) as caught:
        polyc.compile("def f(float(8) x) -> (y) { y(s, i) = x(i + pow(2, s)) where s in 0:5, i in 0:4 }")(
            rng.random(8, np.float32)
        )
    (error,) = caught.value.diagnostics
    assert error.code == "range-out-of-bounds" and error.message.endswith("(with s = 3, and once more)")
    for s in ("-1:3", "0:64"):
        with pytest.raises(PolycError, match="no whole number of 64 bits") as caught:
            read_tc(f"def f(float(N) x) -> (y) {{ y(s) = x(pow(2, s)) where s in {s} }}")
        assert len(caught.value.diagnostics) == 1


def test_subscripts_that_depend_on_data_are_left() -> None:
    (program,) = read_tc("def f(int32(N) k, float(8) t) -> (y) { y(i, s) = t(k(i) / pow(2, s)) where s in 0:3 }")
    assert len(program.statements) == 1
    k = np.arange(8, dtype=np.int32)
    found = interpret(program, {"k": k, "t": np.arange(8, dtype=np.float32)})["y"]
    np.testing.assert_array_equal(found, k[:, None] >> np.arange(3))


def test_guarded_reads_bound_no_index() -> None:
    scan = """def scan(float(16) x) -> (y) {
      X(0, i) = x(i)
      X(s + 1, i) = i >= pow(2, s) ? X(s, i) + X(s, i - pow(2, s)) : X(s, i) where s in 0:4, i in 0:16
      y(i) = X(4, i)
    }"""
    x = rng.random(16, np.float32)
    np.testing.assert_allclose(polyc.compile(scan)(x), np.cumsum(x), rtol=1e-5)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("y(s) +=! x(k) where s in 0:N, k < pow(2, s)", "unsupported-condition"),
        ("y(s) +=! x(k) where s in 0:N, k in 0:pow(2, s)", "range-not-affine"),
        ("y(s) +=! x(k) where s in 0:300, k < pow(2, s)", "unsupported-condition"),
    ],
)
def test_a_power_without_a_range_of_numbers_names_the_way_out(body: str, code: str) -> None:
    with pytest.raises(PolycError, match="s stands in a power: give it a range of numbers, where s in 0:10") as caught:
        polyc.compile(f"def f(float(N) x) -> (y) {{ {body} }}")(rng.random(8, np.float32))
    assert caught.value.code == code


def test_no_value_of_a_power_adds_nothing() -> None:
    x = rng.random(32, np.float32)
    sums = polyc.compile("def f(float(N) x) -> (y) { y(i) +=! x(i + pow(2, s)) where s in 3:3, i in 0:4 }")
    rows = polyc.compile("def f(float(N) x) -> (y) { y(s, i) = x(i + pow(2, s)) where s in 3:3, i in 0:4 }")
    np.testing.assert_array_equal(sums(x), np.zeros(4))
    assert rows(x).shape == (0, 4)


def test_conditions_with_powers_choose_what_is_added() -> None:
    x = rng.random(32, np.float32)
    found = polyc.compile("def f(float(N) x) -> (y) { y(i) +=! x(i + pow(2, s)) where s in 0:3, i in 0:8, i < pow(2, s) }")(x)
    np.testing.assert_allclose(found, [sum(x[i + 2**s] for s in range(3) if i < 2**s) for i in range(8)], rtol=1e-6)
