"""``sum(e for k in range(5))``: written out over numbers, a reduction over a range with sizes or indices."""

# ruff: noqa: F821

import numpy as np
import pytest

import polyc
from tests.frontends.python.evaluate import errors_of, run, run_body

rng = np.random.default_rng(5)
x = rng.random(12)


def test_elements_over_numbers_are_written_out() -> None:
    def f(x: "f64[N]", w: "f64[5]"):
        conv[i] = sum(w[k] * x[i + k] for k in range(5))
        top[i] = max(x[i + k] for k in range(3))
        count[i] = sum(x[i + k] > 0.5 for k in range(3))
        some[i] = any([x[i + k] > 0.9 for k in (0, 1)])
        pairs[i] = sum(x[i + a + b] * a for a in (0, 1, 2) for b in range(2) if a != b)
        none[i] = x[i] + sum(x[i] for k in range(0))
        long[i] = sum(x[i] for k in range(70))
        return conv, top, count, some, pairs, none, long

    w = rng.random(5)
    conv, top, count, some, pairs, none, long = run(f, x, w)
    windows = np.lib.stride_tricks.sliding_window_view(x, 3)
    np.testing.assert_allclose(conv, np.correlate(x, w, "valid"))
    np.testing.assert_array_equal(top, windows.max(1))
    np.testing.assert_array_equal(count, (windows > 0.5).sum(1))
    assert count.dtype == np.int64
    np.testing.assert_array_equal(some, np.maximum(x[:-1], x[1:]) > 0.9)
    np.testing.assert_allclose(pairs, windows[:, 0] + 2 * windows[:, 1] + 2 * windows[:, 2])  # from i = -1 on
    np.testing.assert_array_equal(none, x)
    np.testing.assert_allclose(long, 70 * x)


def test_a_range_over_sizes_and_indices_is_a_reduction() -> None:
    @polyc.op
    def solve(L: "f64[N, N]", b: "f64[N]"):
        x[i] = (b[i] - sum(L[i, j] * x[j] for j in range(i))) / L[i, i]
        r[i] = max(abs(L[i, k] - L[k, i]) for k in range(N) if k != i)
        t[i] = b[i] + sum(b[k] * k for k in range(1, N))
        with polyc.where(0 <= i < N, 0 <= j < N):
            m[i, j] = b[i] + sum(b[k] for k in range(j) if k != i)
        n = sum(b[q] for p in range(N) for q in range(p))
        return x, r, t, m, n

    L, b = np.tril(rng.random((5, 5))) + np.eye(5), rng.random(5)
    found, r, t, m, n = solve(L, b)
    np.testing.assert_allclose(found, np.linalg.solve(L, b))
    difference = np.abs(L - L.T)
    np.fill_diagonal(difference, -1)
    np.testing.assert_allclose(r, difference.max(1))
    np.testing.assert_allclose(t, b + (b * np.arange(5)).sum())
    np.testing.assert_allclose(m, [[b[i] + sum(b[k] for k in range(j) if k != i) for j in range(5)] for i in range(5)])
    np.testing.assert_allclose(n, sum(b[q] for p in range(5) for q in range(p)))


def test_integer_parameters_bound_generator_expressions_and_extents() -> None:
    @polyc.op
    def f(x: "f64[N, M]", T: "i64"):
        with polyc.where(0 <= h < T):
            g[h * x.shape[1] + v] = x[h, v]
        s = sum(g[k] for k in range(2 * T)) + len(g)
        d = doubled(g)
        return s, d

    values = rng.random((5, 4))
    for steps in (2, 5):
        s, d = f(values, steps)
        flat = values[:steps].ravel()
        np.testing.assert_allclose(s, flat[: 2 * steps].sum() + len(flat))
        np.testing.assert_allclose(d, 2 * flat)


def doubled(v):
    w[i] = 2 * v[i]
    return w


def test_variables_are_python_numbers_and_hide_indices_of_the_same_name() -> None:
    def f(x: "f32[N]"):
        y[k] = x[k] * sum(x[k] * k for k in range(N))
        return y

    values = x.astype("f4")
    y = run(f, values)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, values * (values * np.arange(12, dtype="f4")).sum(), rtol=1e-5)


def test_functions_of_elements_hold_generator_expressions() -> None:
    np.testing.assert_allclose(run_body("R[i] = sum(X[i] ** k for k in range(4))", x), 1 + x + x**2 + x**3)


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("y[i] = max(x[i] for k in range(0))", "semantic-expression", "no element to choose from"),
        ("y[i] = sum(x[i + k] for k in range(3) if x[i] > 0)", "semantic-expression", "not known when the function is read"),
        ("y[i] = sum(x[j] for j in x)", "semantic-static-loop", "not known when the function is read"),
        ("y[i] = sum(x[i] for k in range(9999))", "budget-unroll", "more than 4096 elements"),
        ("y = argmax(x[k] for k in range(3))", "semantic-selection", "takes one expression, and no loop"),
        ("y[i] = x[i] + argmax(x[k] for k in range(3))", "semantic-selection", "takes one expression, and no loop"),
        ("y[i] = sum(z[i] for k in range(3))", "semantic-undefined", "there is no tensor z"),
    ],
)
def test_what_cannot_be_written_out_is_refused(body: str, code: str, words: str) -> None:
    (error,) = errors_of(f"def f(x: 'f64[N]'):\n    {body}\n    return y")
    assert error.code == code and words in error.message


TAPS = (0.25, 0.5, 0.25)
PAIRS = [(0, 1.0), (2, -1.0)]


def smooth_root(v):
    r = 0
    for c in TAPS:
        r = r * v + c
    return r + PAIRS[1][1]


def test_tuples_of_numbers_outside_of_the_function_are_numbers() -> None:
    def f(x: "f64[N]"):
        y[i] = sum(TAPS[k] * x[i + k] for k in range(3))
        z[i] = sum(w * x[i + shift] for shift, w in PAIRS)
        for k, c in enumerate(TAPS):
            p[k, i] = c * x[i]
        r[i] = smooth_root(x[i]) + PAIRS[1][0]
        return y, z, p, r

    y, z, p, r = run(f, x)
    np.testing.assert_allclose(y, np.correlate(x, TAPS, "valid"))
    np.testing.assert_allclose(z, x[:-2] - x[2:])
    np.testing.assert_allclose(p, np.outer(TAPS, x))
    np.testing.assert_allclose(r, np.polyval(TAPS, x) - 1 + 2)


def test_a_subscript_that_a_tuple_of_numbers_has_not_is_refused(tmp_path) -> None:
    path = tmp_path / "taps.py"
    path.write_text("TAPS = (1.0, 2.0)\ndef f(x: 'f64[N]'):\n    y[i] = x[i] * TAPS[i]\n    return y\n")
    names: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    with pytest.raises(polyc.PolycError, match="TAPS is a tuple of numbers outside of the function"):
        polyc.op(names["f"])


def test_other_numbers_in_a_tuple_outside_are_read_again(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_CACHE", "1")
    monkeypatch.setenv("POLYC_CACHE_DIR", str(tmp_path))
    path = tmp_path / "sums.py"
    path.write_text("def f(x: 'f64[N]'):\n    y[i] = sum(c * x[i] for c in TAPS)\n    return y\n")
    for taps in ((1.0, 2.0), (3.0, 4.0)):
        names: dict = {"TAPS": taps, "__name__": "sums"}
        exec(compile(path.read_text(), str(path), "exec"), names)
        np.testing.assert_allclose(polyc.op(names["f"])(x), sum(taps) * x)


def test_variables_of_other_expressions_keep_their_indices() -> None:
    def f(A: "f64[N, N]"):
        y[i, j] = A[i, j] + sum(A[i, j] * max(A[j, k]) for j in range(len(A)))
        z[i] = sum(A[i, k] for j in range(i) for k in range(j))
        return y, z

    a = np.random.default_rng(3).random((5, 5))
    y, z = run(f, a)
    np.testing.assert_allclose(y, a + (a * a.max(1)).sum(1, keepdims=True))
    np.testing.assert_allclose(z, [sum(a[i, k] for j in range(i) for k in range(j)) for i in range(5)])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("sum(A[i, j] * k for j in range(i) for k in range(0, 6, 2))", "beside a loop whose range is not known"),
        ("sum(A[i, j] * k for k in (1, 2) for j in range(i))", "beside a loop whose range is not known"),
        ("sum(sum(A[i, j] for j in range(j)) for j in range(i))", "depends on the variable of a loop in another"),
        ("sum(1.0 + sum(A[i, k] for k in range(j)) for j in range(i))", "depends on the variable of a loop in another"),
    ],
)
def test_loops_that_cannot_be_read_are_refused(value: str, words: str, tmp_path) -> None:
    path = tmp_path / "loops.py"
    path.write_text(f"def f(A: 'f64[N, N]'):\n    y[i] = {value}\n    return y\n")
    names: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    with pytest.raises(polyc.PolycError, match=words):
        polyc.op(names["f"])
