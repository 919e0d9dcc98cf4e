# ruff: noqa: F821
"""What decorated functions compute, against NumPy."""

import warnings

import numpy as np
import pytest

import polyc
from polyc.diagnostics import SemanticError
from tests.frontends.python.evaluate import run, run_body

RNG = np.random.default_rng(3)


def draw(*shape, dtype=np.float64):
    return np.asarray(RNG.integers(-4, 5, shape)).astype(dtype)


def test_matmul_bias_relu():
    def linear_relu(X: "f64[M, K]", W: "f64[N, K]", b: "f64[N]"):
        """Three statements' worth in two."""
        H[m, n] += X[m, k] * W[n, k]
        Y[m, n] = max(H[m, n] + b[n], 0)
        return Y

    x, w, b = draw(3, 4), draw(5, 4), draw(5)
    np.testing.assert_array_equal(run(linear_relu, x, w, b), np.maximum(x @ w.T + b, 0))


def test_softmax_with_several_returns():
    source = """
def softmax(X: "f64[N, D]"):
    M[n] = max(X[n, d])
    E[n, d] = np.exp(X[n, d] - M[n])
    S[n] += E[n, d]
    Y[n, d] = E[n, d] / S[n]
    return Y, S
"""
    x = draw(3, 5)
    y, s = run(source, x)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(s, e.sum(1))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True))


@pytest.mark.parametrize(
    "call, expected",
    [
        ("max(X[i, j])", lambda x: x.max(1)),
        ("min(X[i, j])", lambda x: x.min(1)),
        ("sum(X[i, j])", lambda x: x.sum(1)),
        ("np.prod(X[i, j])", lambda x: x.prod(1)),
        ("any(X[i, j] > 3)", lambda x: (x > 3).any(1)),
        ("all(X[i, j] < 4)", lambda x: (x < 4).all(1)),
        ("any(X[i, j])", lambda x: x.any(1)),
        ("sum(X[i, j] > 0)", lambda x: (x > 0).sum(1)),
        ("max(X[i, j] > 3)", lambda x: (x > 3).max(1)),
        ("max(X[i, 0], X[i, 1], 0)", lambda x: np.maximum(x[:, :2].max(1), 0)),
    ],
)
def test_reductions(call, expected):
    x = draw(4, 3)
    got = run_body(f"R[i] = {call}", x)
    assert got.dtype == expected(x).dtype
    np.testing.assert_array_equal(got, expected(x))


def test_scalar_expressions_are_returned_without_a_name():
    source = """
def moments(X: "f64[N]"):
    result = sum(X[i])
    return result / len(X), X[N - 1], np.sqrt(sum(X[i] ** 2)), result
"""
    x = draw(7)
    np.testing.assert_allclose(run(source, x), (x.mean(), x[-1], np.linalg.norm(x), x.sum()))


def test_positions_inside_of_expressions_and_on_computed_left_sides():
    x = np.random.default_rng(4).standard_normal((4, 5))
    np.testing.assert_array_equal(run_body("R[i] = X[i, argmax(X[i, j])] - X[i, argmin(X[i, j])]", x), np.ptp(x, axis=1))
    text = "R[3] = argmax(X[3, j])\nwith where(0 <= i < 3):\n  R[i] = argmax(X[i, j]) + R[i + 1]"
    np.testing.assert_array_equal(run_body(text, x), x.argmax(1)[::-1].cumsum()[::-1])
    text = "high, place = max(X[i, 0]), argmax(X[i, 0])\nR[i] = X[i, 1] + high * place"
    np.testing.assert_allclose(run_body(text, x), x[:, 1] + x[:, 0].max() * x[:, 0].argmax())


def test_accumulation_starts_at_zero_or_goes_on():
    x = draw(4, 3)
    np.testing.assert_array_equal(run_body("R[i] += X[i, j]", x), x.sum(1))
    np.testing.assert_array_equal(run_body("R[i] += X[i, j]\nR[i] += 2 * X[i, j]", x), 3 * x.sum(1))
    np.testing.assert_array_equal(run_body("R[i] = X[i, 0]\nR[i] += X[i, j]", x), x[:, 0] + x.sum(1))
    np.testing.assert_array_equal(run_body("R[i] = X[i, 0]\nR[i] += X[i, 1]", x), x[:, 0] + x[:, 1])
    np.testing.assert_array_equal(run_body("R[i] *= X[i, j]", x), x.prod(1))
    np.testing.assert_array_equal(run_body("R[i] += X[i, j]\nR[i] *= X[i, j]", x), x.sum(1) * x.prod(1))
    np.testing.assert_array_equal(run_body("with where(i < 4): R[i] = 1.0\nR[i] -= X[i, j]", x), 1 - x.sum(1))
    np.testing.assert_array_equal(run_body("R[i] |= X[i, j] > 3", x), (x > 3).any(1))
    np.testing.assert_array_equal(run_body("R[i] &= X[i, j] < 4", x), (x < 4).all(1))


def test_a_second_assignment_is_a_new_version():
    x = draw(4)
    np.testing.assert_array_equal(run_body("R[i] = X[i] + 1\nT[i] = R[i]\nR[i] = R[i] * T[i]", x), (x + 1) ** 2)
    np.testing.assert_array_equal(run_body("R[i, j] = X[i] * X[j]\nR[i] = sum(R[i, j])", x), x * x.sum())


def test_scalars_have_rank_zero():
    x = draw(4)
    for body in ("R += X[i]", "R[()] += X[i]", "R = sum(X[i])", "R = 0\nR += X[i]", "s[()] = sum(X[i])\nR = s"):
        got = run_body(body, x)
        assert got.shape == () and got == x.sum()
    assert run_body("R[i] = X[i] * Y", x, np.float64(2))[1] == 2 * x[1]
    assert run_body("R[i] = X[i] * Y[()]", x, np.float64(2))[1] == 2 * x[1]


def test_where_gives_ranges():
    x = draw(9)
    np.testing.assert_array_equal(run_body("with polyc.where(0 <= k < 3): R[i] += X[i + k]", x), x[:-2] + x[1:-1] + x[2:])
    np.testing.assert_array_equal(run_body("with where(k < 3): R[i] += X[i + k]", x), x[:-2] + x[1:-1] + x[2:])
    # i starts at -1: every element that the two reads can give is there
    np.testing.assert_array_equal(run_body("with where(k in range(1, 3)): R[i] += X[i + k]", x), x[:-1] + x[1:])
    nested = "with where(k <= 4):\n  with where(1 <= k and k < 2, i < X.shape[0] - 6):\n    R[i] += X[i + k]"
    np.testing.assert_array_equal(run_body(nested, x), x[1:4])
    np.testing.assert_array_equal(run_body("with where(k == 2, 5 > i): R[i] += X[i + k]", x), x[2:7])
    np.testing.assert_array_equal(run_body("with where(i < len(X)): R[i] = 2.5", x), np.full(9, 2.5))


def test_sizes_and_constants_in_ranges():
    source = """
def pool(X: "f64[H, W]", *, size=2, stride=2, relu: bool = True):
    with polyc.where(0 <= p < size, 0 <= q < size):
        Y[h, w] = max(X[stride * h + p, stride * w + q])
    Z[h, w] = maximum(Y[h, w], 0) if relu else Y[h, w]
    return Z
"""
    x = draw(6, 4)
    expected = x.reshape(3, 2, 2, 2).max((1, 3))
    np.testing.assert_array_equal(run(source, x), np.maximum(expected, 0))
    np.testing.assert_array_equal(run(source, x, relu=False), expected)
    np.testing.assert_array_equal(run(source, x, size=1, stride=1, relu=False), x)


def test_select_guards_and_pad():
    x = draw(6)
    guarded = "with where(i < X.shape[0]): R[i] = X[i - 1] if i > 0 else 0"
    expected = np.concatenate([[0], x[:-1]])
    np.testing.assert_array_equal(run_body(guarded, x), expected)
    np.testing.assert_array_equal(run_body("R[i] = np.where(X[i] > 0, X[i], -1)", x), np.where(x > 0, x, -1))
    np.testing.assert_array_equal(run_body("with where(i < X.shape[0]): R[i] = pad(X[i - 1], 0)", x), expected)


def test_gather():
    x, table = np.array([2, 0, 1], np.int32), draw(3, 4)
    np.testing.assert_array_equal(run_body("R[i, j] = Y[X[i], j]", x, table), table[x])
    np.testing.assert_array_equal(run_body("R[i] = Y[min(max(X[i] + 1, 0), 2), 0]", x, table), table[[2, 1, 2], 0])


BINARY = "X[i] + Y[i]|X[i] - Y[i]|X[i] * Y[i]|X[i] / Y[i]|X[i] // Y[i]|X[i] % Y[i]|X[i] ** Y[i]|np.maximum(X[i], Y[i])".split(
    "|"
)
BINARY += ["np.fmin(X[i], Y[i])", "X[i] < Y[i]", "X[i] == Y[i]", "np.power(X[i], Y[i])", "np.where(X[i] > 2, X[i], Y[i])"]
BINARY += ["np.hypot(X[i], Y[i])", "np.arctan2(X[i], Y[i])", "np.subtract(X[i], Y[i])", "np.logical_and(X[i], Y[i])"]
BINARY += [
    "X[i] + 3",
    "3 - X[i]",
    "X[i] * 2.5",
    "1 / X[i]",
    "X[i] ** 2",
    "X[i] ** 0.5",
    "True + X[i]",
    "X[i] // 2",
]
BINARY += [
    "np.clip(X[i], 2, 3)",
    "np.square(X[i])",
    "np.sqrt(X[i])",
    "abs(X[i])",
    "np.sign(X[i])",
    "np.rint(X[i])",
    # Before, the former is a float of integers, and the latter an error where bytes have no 300.
    *(["np.floor(X[i])", "Y[i] > 300"] if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else []),
]


@pytest.mark.parametrize("expression", BINARY)
@pytest.mark.parametrize(
    "left, right", [("f4", "f4"), ("f4", "f8"), ("i4", "f4"), ("i2", "i8"), ("u1", "i1"), ("u2", "u8"), ("i8", "f4")]
)
def test_element_types_are_numpys(expression, left, right):
    x, y = np.arange(1, 6).astype(left), np.arange(2, 7).astype(right)
    with np.errstate(all="ignore"):
        expected = np.asarray(eval(expression.replace("[i]", ""), {"np": np, "X": x, "Y": y}))
    got = run_body(f"R[i] = {expression}", x, y) if "Y" in expression else run_body(f"R[i] = {expression}", x)
    if expected.dtype == np.float16:  # polyc has no 16-bit floats: functions of 8-bit integers give f32
        expected = expected.astype(np.float32)
        np.testing.assert_allclose(got, expected, rtol=1e-3)
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert got.dtype == expected.dtype


@pytest.mark.parametrize(
    "expression, dtype",
    [
        ("X[i] * i", "f8"),
        ("f32(i) * X[i]", "f4"),
        ("X[i] / X.shape[0]", "f4"),
        ("X[i] + polyc.f64(1)", "f8"),
        ("np.float32(1) + X[i]", "f4"),
        ("X[i] * (1 / 3)", "f4"),
        ("X[i] * np.sqrt(2)", "f4"),
        ("X[i] * math.pi", "f4"),
        ("i32(X[i])", "i4"),
        ("int(X[i])", "i8"),
        ("bool(X[i])", "?"),
        ("X[i] > 0 and not X[i] == 2 or i < 1", "?"),
        ("0 < X[i] <= 2", "?"),
        ("7", "i8"),
        ("2.0 if i > 1 else 1", "f8"),
        ("X[i] if i > 1 else 1", "f4"),
        ("max(X[i], 0.5, 1)", "f4"),
        ("-X[i] + +X[i]", "f4"),
        ("float('inf')", "f8"),
    ],
)
def test_weak_and_strong_values(expression, dtype):
    x = np.arange(4, dtype=np.float32)
    got = run_body(f"with where(i < X.shape[0]): R[i] = {expression}", x)
    assert got.dtype == np.dtype(dtype)


def test_a_tensor_of_literals_stays_weak():
    x = np.arange(4, dtype=np.float32)
    assert run_body("a = 0.5\nR[i] = a * X[i]", x).dtype == np.float32
    assert run_body("with where(i < 4): R[i] = 0\nR[i] += X[i]", x).dtype == np.float32
    assert run_body("R = 0.0\nR += X[i]", x).dtype == np.float32
    assert run_body("R[i] = X[i]\nR[i] += polyc.f64(1)", x).dtype == np.float32


def test_functions_by_their_names():
    x = np.linspace(0.25, 0.75, 5)
    for call in "exp log log1p expm1 sqrt cbrt sin cos tan arcsin arctan sinh tanh arctanh exp2 log10 floor ceil trunc".split():
        expected = getattr(np, call)(x)
        for prefix in ("np.", "polyc.", ""):
            np.testing.assert_allclose(run_body(f"R[i] = {prefix}{call}(X[i])", x), expected, rtol=1e-12)
    np.testing.assert_allclose(run_body("R[i] = sigmoid(X[i])", x), 1 / (1 + np.exp(-x)))
    np.testing.assert_allclose(run_body("R[i] = rsqrt(X[i])", x), 1 / np.sqrt(x))
    np.testing.assert_array_equal(run_body("R[i] = round(X[i])", np.array([0.5, 1.5, -2.5])), [0, 2, -2])
    nan = np.array([np.nan, -0.0, np.inf, -3.0])
    np.testing.assert_array_equal(run_body("R[i] = np.sign(X[i])", nan), np.sign(nan))
    np.testing.assert_array_equal(run_body("R[i] = np.isnan(X[i])", nan), np.isnan(nan))
    np.testing.assert_array_equal(run_body("R[i] = np.isfinite(X[i])", nan), np.isfinite(nan))
    np.testing.assert_array_equal(run_body("R[i] = np.isinf(X[i])", nan), np.isinf(nan))
    np.testing.assert_array_equal(run_body("R[i] = np.fmax(X[i], 0)", nan), np.fmax(nan, 0))
    np.testing.assert_array_equal(run_body("R[i] = max(X[i], 0)", nan), np.maximum(nan, 0))


def test_bits_and_booleans():
    a, b = np.array([5, 6], np.uint8), np.array([3, 1], np.uint8)
    np.testing.assert_array_equal(run_body("R[i] = (X[i] & Y[i]) | ~X[i] ^ 1", a, b), (a & b) | ~a ^ 1)
    p, q = np.array([True, False, True]), np.array([True, True, False])
    for expression in (
        "X[i] + Y[i]",
        "X[i] * Y[i]",
        "X[i] & Y[i]",
        "X[i] | Y[i]",
        "X[i] ^ Y[i]",
        "X[i] == Y[i]",
        "~X[i]",
        "X[i] / Y[i]",
    ):
        with np.errstate(all="ignore"):
            expected = eval(expression.replace("[i]", ""), {"X": p, "Y": q})
        got = run_body(f"R[i] = {expression}", p, q) if "Y" in expression else run_body(f"R[i] = {expression}", p)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    "dtype, literal", [("u1", -1), ("u1", 256), ("i1", 200), ("u8", -1), ("i8", 1 << 70), ("i4", -(1 << 40))]
)
def test_comparisons_with_literals_outside_the_type_are_exact(dtype, literal):
    x = np.array([0, 1, 100], dtype)
    for op in ("<", "<=", ">", ">=", "==", "!="):
        for expression in (f"X[i] {op} {literal}", f"{literal} {op} X[i]"):
            expected = [eval(expression.replace("[i]", ""), {"X": number}) for number in x.tolist()]
            np.testing.assert_array_equal(run_body(f"R[i] = {expression}", x), expected)


def test_a_known_condition_chooses_one_arm():
    x = np.arange(4, dtype=np.float32)
    assert run_body("R[i] = X[i] if True else f64(X[i])", x).dtype == np.float32
    assert run_body("R[i] = np.where(True, X[i], f64(X[i]))", x).dtype == np.float64
    assert run_body("R[i] = np.square(X[i] > 1)", x).dtype == np.int8


def test_the_types_of_many_recurrences_that_start_from_literals_settle() -> None:
    lines = [f"    y{k}[0] = 0\n    with polyc.where(1 <= i < N):\n        y{k}[i] = y{k}[i - 1] + x[i]" for k in range(34)]
    program = polyc.op("def f(x: 'f32[N]'):\n" + "\n".join(lines) + "\n    return y0, y33\n").program
    assert {t.dtype.name for t in program.tensors} == {"f32"}


@pytest.mark.parametrize("literals", [("0", "np.inf"), ("0.5", "0"), ("np.inf", "1"), ("0", "len(x)")])
@pytest.mark.parametrize("rest", ["x[i]", "x[i] + y[i - 1]", "max(y[i - 1], x[i])"])
def test_a_tensor_that_starts_from_several_literals_takes_the_type_of_its_other_parts(
    literals: tuple[str, str], rest: str
) -> None:
    a, b = literals
    lines = [f"y[0] = {a}", f"y[1] = {b}", f"with polyc.where(2 <= i < N):\n        y[i] = {rest}", "return y"]
    program = polyc.op("def f(x: 'f32[N]'):\n    " + "\n    ".join(lines) + "\n").program
    assert {t.dtype.name for t in program.tensors} == {"f32"}


def test_a_tensor_of_literals_of_both_kinds_is_a_float() -> None:
    program = polyc.op("def f(x: 'f32[N]'):\n    y[0] = 0\n    y[1] = 0.5\n    y[2] = 1\n    return y\n").program
    assert program.tensor("y").dtype.name == "f64"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0.0 if i == 0 else y[i - 1] + 1", np.arange(6.0)),
        ("0 if i == 0 else y[i - 1] + 0.5", np.arange(6) / 2),
        ("1.5 if i == 0 else max(y[i - 1], 2)", np.array([1.5, 2, 2, 2, 2, 2])),
        ("1j if i == 0 else 2 * y[i - 1]", 1j * 2.0 ** np.arange(6)),
        ("True if i == 0 else not y[i - 1]", np.arange(6) % 2 == 0),
        ("x[i] > 2 if i == 0 else y[i - 1] or x[i] > 2", np.arange(6) > 2),
        ("False if i == 0 else True if not y[i - 1] else x[i] > 9", np.arange(6) % 2 == 1),
        ("2 if i == 0 else x[i] * y[i - 1]", np.array([2, 2, 4, 12, 48, 240], np.float32)),
    ],
)
def test_a_recurrence_in_one_statement_may_start_from_a_literal_of_any_kind(value: str, expected: np.ndarray) -> None:
    source = f"def f(x: 'f32[N]'):\n    with polyc.where(0 <= i < N):\n        y[i] = {value}\n    return y\n"
    got = polyc.op(source)(np.arange(6, dtype=np.float32))
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "i64", "u64"])
def test_shifts_by_numbers(dtype: str) -> None:
    x = np.array([-7, -1, 0, 5, 100, 127]).astype({"i8": "i1", "u8": "u1", "i32": "i4", "i64": "i8", "u64": "u8"}[dtype])
    source = f"def f(x: '{dtype}[N]', *, n=3):\n    y[i] = x[i] << 2\n    z[i] = (x[i] >> n) << 1\n    return y, z\n"
    for got, expected in zip(polyc.op(source)(x), (x << 2, (x >> 3) << 1), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "u4", "i8", "u8"])
def test_shifts_by_as_many_bits_as_there_are_and_more(dtype: str) -> None:
    """The sign of a number is `x >> 31`; a bit more than the literal's power of two holds was refused."""
    bits, ends = 8 * np.dtype(dtype).itemsize, np.iinfo(dtype)
    x = np.array([ends.min, ends.min + 1, 3, 1, 0, ends.max - 1, ends.max], dtype)
    for n in (bits - 2, bits - 1, bits, bits + 1, 100):
        left, right = polyc.op(f"def f(x):\n    y[i] = x[i] << {n}\n    z[i] = x[i] >> {n}\n    return y, z\n")(x)
        np.testing.assert_array_equal(left, x << n, strict=True)
        np.testing.assert_array_equal(right, x >> n, strict=True)


@pytest.mark.parametrize("value", ["x[i] << 0.5 * x[i]", "x[i] << -31", "x[i] >> -1", "x[i] << True", "x[i] * 0.5 << 1"])
def test_other_shifts_are_refused(value: str) -> None:
    with pytest.raises(SemanticError, match="shift"):
        polyc.op(f"def f(x: 'i32[N]'):\n    y[i] = {value}\n    return y\n")


@pytest.mark.parametrize(
    "body, expected",
    [
        ("R[i] = X[i, -1]", lambda x: x[:, -1]),
        ("R[j] = X[-2, j] + X[-3, -j + 3]", lambda x: x[-2] + x[-3, ::-1]),
        ("R[i, j] = X.T[i, j]", lambda x: x.T),
        ("R[i] = X.T[-1, i]", lambda x: x.T[-1]),
        ("R[i, j] = X.T.T[i, j] + X.T.T.T[j, -1]", lambda x: x + x[-1]),
        ("n, m = X.shape\nR[i, j] = X[i, j] / n - m", lambda x: x / 3 - 4),
        ("m, n = X.T.shape\nR[i, j] = X[i, j] / n - m", lambda x: x / 3 - 4),
        ("R[i, j] = X[i, j] / X.T.shape[0] - len(X.T) + X.T.size - X.T.T.ndim", lambda x: x / 4 + 6),
        ("Q[i, j], S[i, j] = divmod(X[i, j], 5)\nR[i, j] = Q[i, j] * 100 + S[i, j]", lambda x: x // 5 * 100 + x % 5),
        ("R[i, j] = X[i, j] / X.size", lambda x: x / 12),
        ("R[i, j] = X[i, j].astype(np.float32)", lambda x: x.astype(np.float32)),
        ("R[i, j] = (X[i, j] * 0.1).astype('int32')", lambda x: (x * 0.1).astype(np.int32)),
    ],
)
def test_habits_of_numpy(body, expected):
    x = np.arange(12.0).reshape(3, 4)
    found = run_body(body, x)
    assert found.dtype == expected(x).dtype
    np.testing.assert_array_equal(found, expected(x))


def test_negative_subscripts_beside_a_tensor_are_borders_inside_of_pad():
    x = np.arange(1.0, 5.0)
    np.testing.assert_array_equal(run_body("with polyc.where(0 <= i < 4):\n    R[i] = pad(X[-1], 0.0) + X[i]", x), x)
    unrolled = (
        "with polyc.where(0 <= i < 1):\n    R[i] = pad(X[i], 0.0)\n    for k in (0, 1):\n        R[i] += pad(X[k - 1], 0.0)"
    )
    np.testing.assert_array_equal(run_body(unrolled, x), [2.0])


@pytest.mark.parametrize("body", ["s = sum(x[i])", "s = prod(x[i])", "s = x[0] - sum(x[i])"])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2"])
def test_a_sum_that_wraps_around_where_numpys_does_not_is_warned_of(body: str, dtype: str) -> None:
    with pytest.warns(polyc.PolycWarning, match="type-narrow-sum") as caught:
        polyc.op(f"def f(x):\n    {body}\n    return s\n")(np.ones(3, dtype))
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("body", "dtype"),
    [
        ("s += x[i]", "u1"),
        ("s = sum(polyc.i64(x[i]))", "u1"),
        ("s = max(x[i])", "u1"),
        ("s = sum(x[i] > 0)", "u1"),
        ("s = sum(x[i])", "i4"),
    ],
)
def test_sums_that_are_wide_or_meant_to_wrap_are_not_warned_of(body: str, dtype: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        polyc.op(f"def f(x):\n    {body}\n    return s\n")(np.ones(3, dtype))
