"""Plain Python functions that are called on elements, tuples of elements, and numbers with names."""

# ruff: noqa: F821

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from polyc.frontends.python import read_function
from tests.frontends.python.evaluate import run, run_body

SLOPE = 0.25


def leaky(x, slope=2 * SLOPE):
    return x if x >= 0 else slope * x


def clipped(x, *, low=-1, high=1):
    """Names, branches that return, and a number of the module around."""
    scaled = x
    scaled *= 2
    if scaled < low:
        return low * SLOPE
    elif scaled > high:
        return high
    return scaled


def ordered(a, b):
    small, large = a, b
    if b < a:
        small, large = b, a
    return small, large


def squared(re, im):
    return re * re - im * im, 2 * re * im


def absolute(z):
    return abs(leaky(z.real, 1)) + z.imag


def forever(x):
    return forever(x) + 1


def unfinished(x):
    if x > 0:
        return x + 1


def loops(x):
    while x:
        x = x - 1
    return x + 0


def unknown(x):
    return x + nowhere


x = np.linspace(-2, 2, 9, dtype=np.float32)


def test_functions_of_elements_are_read_in_place():
    def f(X: "f32[N]"):
        Y[i] = leaky(X[i]) + clipped(X[i], high=0.75)
        return Y

    doubled = 2 * x
    inner = np.where(doubled < -1, -0.25, np.where(doubled > 0.75, 0.75, doubled))
    np.testing.assert_allclose(run(f, x), np.where(x >= 0, x, 0.5 * x) + inner)


def test_functions_of_several_values():
    @polyc.op
    def f(X: "f32[N]", Y: "f32[N]"):
        low[i], high[i] = ordered(X[i], Y[i])
        re[i], im[i] = squared(low[i], high[i])
        re[i], im[i] = im[i], re[i]  # all values first, as in Python
        return low, high, re, im

    y = x[::-1] * 0.5
    low, high, re, im = f(x, y)
    np.testing.assert_array_equal(low, np.minimum(x, y))
    np.testing.assert_array_equal(high, np.maximum(x, y))
    np.testing.assert_allclose(re + 1j * im, 1j * np.conj((low + 1j * high) ** 2), rtol=1e-5)


def test_functions_call_others_and_work_in_recurrences():
    def f(X: "f32[N]"):
        S[0] = X[0]
        with polyc.where(1 <= i < N):
            S[i] = clipped(S[i - 1] + X[i], low=-8, high=8)
        C[i] = absolute(X[i] * 1j + X[i])
        return S, C

    s, c = run(f, x)
    expected = [x[0]]
    for value in x[1:]:
        doubled = 2 * (expected[-1] + value)
        expected.append(-2 if doubled < -8 else min(doubled, 8))
    np.testing.assert_allclose(s, expected)
    np.testing.assert_allclose(c, np.abs(x) + x)


@pytest.mark.parametrize(
    "body, code, message",
    [
        ("Y[i] = squared(X[i])", "semantic-element-function", "squared needs a value for im"),
        ("Y[i] = leaky(X[i], 1, 2)", "semantic-element-function", "takes 2 arguments, not 3"),
        ("Y[i] = leaky(X[i], slop=1)", "semantic-element-function", "slop is no parameter of leaky"),
        ("Y[i] = squared(X[i], X[i])", "semantic-element-function", "returns 2 values, and one is needed"),
        ("Y[i], Z[i] = leaky(X[i], 1)", "semantic-left-side", "2 elements are assigned, and 1 value is given"),
        ("Y[i] = forever(X[i])", "semantic-recursion", "forever calls itself"),
        ("Y[i] = unfinished(X[i])", "semantic-element-function", "does not return a value in every case"),
        ("Y[i] = loops(X[i])", "semantic-element-function", "it says 'while x:'"),
        ("Y[i] = unknown(X[i])", "semantic-undefined", "nowhere has no value in unknown"),
        ("Y[i] = np.linalg.norm(X[i])", "unsupported-call", "norm is not a function of elements"),
    ],
)
def test_what_cannot_be_read_in_place_is_refused(tmp_path, body, code, message):
    path = tmp_path / "written.py"
    path.write_text(f"def f(X: 'f32[N]'):\n    {body}\n    return Y\n")
    names = dict(globals())
    exec(compile(path.read_text(), str(path), "exec"), names)
    with pytest.raises(PolycError) as caught:
        read_function(names["f"])
    found = caught.value.diagnostics[0]
    assert found.code == code and message in found.message and found.span is not None


def test_numbers_with_names_stand_in_subscripts_and_ranges():
    body = """
    half = X.shape[0] // 2
    step = 2
    with polyc.where(0 <= i < half):
        R[i] = X[i * step] + X[i + half]
    for k in range(step):
        R[i] = R[i] + k
    """
    np.testing.assert_allclose(run_body(body, x), x[0:8:2] + x[4:8] + 1)


def test_a_reduction_in_an_expression_runs_over_its_own_indices():
    def f(X: "f32[M, N]"):
        E[m, n] = np.exp(X[m, n] - max(X[m, k]))
        Y[m, n] = E[m, n] / sum(E[m, k])
        spread = max(X[m, n]) - min(X[m, n])
        inner[m] = sum(X[m, n] * max(X[k, n] - X[m, n]))
        return Y, spread, inner

    a = np.arange(12, dtype=np.float32).reshape(3, 4) % 5
    y, spread, inner = run(f, a)
    e = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-6)
    assert spread == np.ptp(a)
    np.testing.assert_allclose(inner, (a * (a[None] - a[:, None]).max(1)).sum(1))
    assert [s.target for s in read_function(f).program.statements][:2] == ["E.max1", "E"]


def test_reductions_in_recurrences_and_blocks():
    def f(X: "f32[T, N]", U: "f32[N, N]"):
        H[0, i] = X[0, i]
        with polyc.where(1 <= t < T):
            H[t, i] = np.tanh(X[t, i] + sum(U[i, j] * H[t - 1, j]))
        return H

    a, u = np.random.default_rng(0).random((2, 4, 4), dtype=np.float32)
    expected = [a[0]]
    for row in a[1:]:
        expected.append(np.tanh(row + u @ expected[-1]))
    np.testing.assert_allclose(run(f, a, u), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["u1", "i1", "i4", "u8", "i8"])
def test_shifts_by_values(dtype):
    info = np.iinfo(dtype)
    values = np.array([info.min, info.max, 0, 1, 77], dtype)
    counts = np.arange(info.bits + 3).astype(dtype)
    left, right = run("def f(X, K):\n    A[i, j] = X[i] << K[j]\n    B[i, j] = X[i] >> K[j]\n    return A, B\n", values, counts)
    np.testing.assert_array_equal(left, values[:, None] << counts, strict=True)
    np.testing.assert_array_equal(right, values[:, None] >> counts, strict=True)


def test_bits_are_unpacked():
    body = """
    with polyc.where(0 <= q < 8):
        R[n, q] = (X[n] >> (7 - q)) & 1
    """
    octets = np.array([0, 1, 0x5A, 255], np.uint8)
    np.testing.assert_array_equal(run_body(body, octets), np.unpackbits(octets).reshape(4, 8))


def test_a_function_without_a_module_or_wrapped_in_itself_is_called_or_refused():
    def half(a):
        return a * 0.5

    def loop(a):
        return a

    loop.__wrapped__ = loop
    half.__module__ = None

    def f(x):
        y[i] = half(x[i])
        return y

    def g(x):
        y[i] = loop(x[i])
        return y

    np.testing.assert_array_equal(polyc.op(f)(np.ones(3)), [0.5] * 3)
    with pytest.raises(PolycError, match="leads back to itself"):
        polyc.op(g)(np.ones(3))


def horner(x):
    r = 0.0
    for power, c in enumerate((1.0, 0.5, 0.25)):
        r = r * x + c * (power + 1)
    return r


def escape(z):
    n = 0
    for _ in range(6):
        if z > 2:
            break
        z = z * 1.5
        n = n + 1
    return n


def odd(x):
    s = 0
    for k in range(24):  # 24 conditions on numbers: two readings of what follows each would be millions
        if k % 2 == 0:
            continue
        if k > 20:
            s -= x
        else:
            s += x * k
    return s


def first(x):
    for k in range(3):
        for m in range(2):
            if x < k + m / 2:
                return 10 * k + m
            if m == 0 and x > 2:
                break
    return -1


def newton(a):
    x = a
    for _ in range(3):
        x = 0.5 * (x + a / x)
    return x, a + _


def ranged(x):
    for k in range(x):
        x = x + k
    return x + 0


def test_functions_of_elements_loop_over_numbers():
    def f(X):
        a[i] = horner(X[i])
        b[i] = escape(X[i])
        c[i] = odd(X[i])
        d[i] = first(X[i])
        e[i], g[i] = newton(X[i])
        return a, b, c, d, e, g

    values = np.linspace(0.1, 6, 20)
    *found, roots, last = run(f, values)
    for result, function in zip(found, (horner, escape, odd, first), strict=True):
        np.testing.assert_allclose(result, [function(v) for v in values], err_msg=function.__name__)
    np.testing.assert_allclose(roots, [newton(v)[0] for v in values])
    np.testing.assert_allclose(last, values + 2)


def repeated(x):
    for _ in range(40):
        x = x * x + x
    return x + 0


def test_rounds_that_grow_beyond_the_budget_are_refused_with_another_way():
    def f(X: "f32[N]"):
        Y[i] = repeated(X[i])
        return Y

    with pytest.raises(PolycError) as caught:
        read_function(f)
    assert caught.value.code == "budget-expression" and "steps statements of the operator" in caught.value.diagnostics[0].help


def test_a_loop_of_a_function_over_something_unknown_is_refused_in_its_text():
    def f(X: "f32[N]"):
        Y[i] = ranged(X[i])
        return Y

    with pytest.raises(PolycError) as caught:
        read_function(f)
    (found,) = caught.value.diagnostics
    assert found.code == "semantic-static-loop" and "ranged loops over numbers" in found.help
    assert found.span.source.text[found.span.start :].startswith("for k in range(x)")
