"""arg-max and arg-min: the first of equals, NaN before everything, in rows, columns, blocks and over several indices."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from polyc.ir.interpret import interpret

Array = np.ndarray[Any, Any]

ROWS = "def f({t}(M, N) X) -> (v, p) {{ (v(i), p(i)) {op}=! X(i, j) }}"
COLUMNS = "def f({t}(M, N) X) -> (v, p) {{ (v(j), p(j)) {op}=! X(i, j) }}"
TYPES = {"float": "f4", "double": "f8", "int32": "i4", "uint8": "u1", "float16": "f2", "bool": "?"}


def draw(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """Few different values, so that there are ties."""
    return np.random.default_rng(seed).integers(0, 50, shape).astype(dtype)


def check(operator: Any, x: Array, op: str, axis: int) -> None:
    v, p = operator(x)
    expected = getattr(np, op)(x, axis=axis)
    assert p.dtype == np.int64
    np.testing.assert_array_equal(p, expected)
    values = np.take_along_axis(x, np.expand_dims(expected, axis), axis).squeeze(axis)
    np.testing.assert_array_equal(np.asarray(v).astype(x.dtype), values)
    oracle = interpret(operator.program, {"X": x})
    np.testing.assert_array_equal(oracle["p"], p)
    np.testing.assert_array_equal(oracle["v"], v)


@pytest.mark.pairs
@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(("text", "axis"), [(ROWS, 1), (COLUMNS, 0)])
def test_first_of_equals(text: str, axis: int, name: str, op: str) -> None:
    check(polyc.compile(text.format(t=name, op=op)), draw((19, 67), TYPES[name]), op, axis)


@pytest.mark.each
@pytest.mark.parametrize("shape", [(1, 1), (3, 512), (20, 512), (20, 1000), (20, 1025), (3, 9001), (17, 16384), (1, 70000)])
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_blocks_of_long_rows(shape: tuple[int, int], op: str) -> None:
    operator = polyc.compile(ROWS.format(t="float", op=op))
    x = np.random.default_rng(1).standard_normal(shape).astype("f4")
    check(operator, x, op, 1)
    n = shape[1]
    for place in {0, n // 2, n - 1, max(0, n - 130)}:
        for value in (np.inf, -np.inf, np.nan):
            y = x.copy()
            y[:, place] = value
            check(operator, y, op, 1)
    x[:, n // 3] = x[:, n - 1] = np.nan
    check(operator, x, op, 1)
    check(operator, np.full(shape, -np.inf, "f4"), op, 1)
    check(operator, np.zeros(shape, "f4") * np.where(np.arange(n) % 2, 1, -1).astype("f4"), op, 1)


def test_whole_arrays_in_blocks() -> None:
    operator = polyc.compile("def f(float(N) X) -> (p) { p argmax=! X(i) }")
    x = np.random.default_rng(2).standard_normal(50_001).astype("f4")
    lowered = operator.lower(x)
    assert lowered.compile()(x) == x.argmax()
    assert any("blocks of" in r.message for r in lowered.remarks)


def test_several_indices_give_a_position_each() -> None:
    operator = polyc.compile("def f(float(M, N) X) -> (v, p, q) { (v, p, q) argmax=! X(i, j) }")
    x = draw((13, 29), "f4")
    v, p, q = operator(x)
    assert (int(p), int(q)) == np.unravel_index(x.argmax(), x.shape)
    assert v == x.max()
    x[5, 3] = np.nan
    assert [int(r) for r in operator(x)[1:]] == [5, 3]


def test_computed_values_and_ranges_that_do_not_start_at_zero() -> None:
    operator = polyc.compile(
        "def f(float(N) a, float(N) b) -> (p) { p argmin=! (a(i) - b(i + 1)) * (a(i) - b(i + 1)) where i in 2:N - 1 }"
    )
    rng = np.random.default_rng(3)
    for n in (9, 3000):
        a, b = rng.standard_normal((2, n)).astype("f4")
        distance = (a[2:-1] - b[3:]) ** 2
        assert operator(a, b) == distance.argmin() + 2


def test_values_made_by_the_program() -> None:
    @polyc.op
    def sharpest(x: "f32[M, N]", w: "f32[N]"):
        y[i, j] = np.exp(x[i, j] * w[j])
        p[i] = argmax(y[i, j])
        return p, y

    x = np.random.default_rng(4).standard_normal((7, 1203)).astype("f4")
    p, y = sharpest(x, np.ones(1203, "f4"))
    np.testing.assert_array_equal(p, y.argmax(1))


def test_transcendental_values_are_found_again() -> None:
    operator = polyc.compile("def f(float(M, N) X) -> (p) { p(i) argmax=! sin(X(i, j)) * exp(X(i, j)) + X(i, j) }")
    for n in (1, 7, 31, 33, 515, 1031):
        x = np.random.default_rng(n).standard_normal((21, n)).astype("f4")
        p = operator(x)
        y = (np.sin(x) * np.exp(x) + x)[np.arange(21), p]
        assert np.all(y >= (np.sin(x) * np.exp(x) + x).max(1) - 1e-5 * abs(y))


def test_a_triangle_and_empty_rows() -> None:
    operator = polyc.compile("def f(float(N, N) X) -> (p) { p(i) argmax=! X(i, j) where j < i }")
    x = draw((40, 40), "f4")
    p = operator(x)
    assert p[0] == np.iinfo(np.int64).max
    np.testing.assert_array_equal(p[1:], [x[i, :i].argmax() for i in range(1, 40)])


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"reassociate": False}])
def test_nothing_to_choose_from(options: dict[str, Any]) -> None:
    operator = polyc.compile(ROWS.format(t="float", op="argmax"), **options)
    for x in (np.zeros((3, 0), "f4"), np.zeros((0, 3), "f4"), np.zeros((0, 0), "f4")):
        v, p = operator(x)
        oracle = interpret(operator.program, {"X": x})
        np.testing.assert_array_equal(p, oracle["p"])
        np.testing.assert_array_equal(v, oracle["v"])
        assert np.all(p == np.iinfo(np.int64).max)


def test_any_layout_of_the_input() -> None:
    operator = polyc.compile("def f(float(M, N) X) -> (p) { p(i) argmax=! X(i, j) }")
    y = np.asfortranarray(draw((50, 1203), "f4"))
    for x in (y, y[:, ::-1], y[::2, ::3], y.T):
        np.testing.assert_array_equal(operator(x), x.argmax(1))


def test_nearest_rows_and_bound_inputs() -> None:
    operator = polyc.compile(
        "def f(float(M, N) X, float(K, N) W) -> (p) { S(i, k) +=! X(i, j) * W(k, j)  p(i) argmax=! S(i, k) }"
    )
    x, w = draw((30, 64), "f4"), draw((2000, 64), "f4", 1)
    np.testing.assert_array_equal(operator(x, w), (x @ w.T).argmax(1))
    np.testing.assert_array_equal(operator.bind(W=w)(x), (x @ w.T).argmax(1))


def test_positions_of_a_declared_type_and_a_symbolic_size() -> None:
    x = draw((9, 2100), "f4")
    narrow = polyc.compile("def f(float(M, N) X) -> (int32(M) p) { p(i) argmin=! X(i, j) }")
    assert narrow(x).dtype == np.int32
    np.testing.assert_array_equal(narrow(x), x.argmin(1))
    symbolic = polyc.compile(ROWS.format(t="float", op="argmin"), dynamic=True)
    for n in (1, 5, 2100):
        np.testing.assert_array_equal(symbolic(x[:, :n].copy())[1], x[:, :n].argmin(1))


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
def test_narrower_targets(target: str) -> None:
    operator = polyc.compile(ROWS.format(t="float", op="argmax"), target=target)
    for shape in ((20, 1025), (3, 9001), (18, 33)):
        x = np.random.default_rng(5).standard_normal(shape).astype("f4")
        x[0, -1] = np.nan
        check(operator, x, "argmax", 1)


def test_python_says_the_same() -> None:
    @polyc.op
    def f(x: "f32[M, N]"):
        v[i], p[i] = np.argmax(x[i, j])
        q[j] = argmin(abs(x[i, j]))
        return v, p, q

    x = np.random.default_rng(6).standard_normal((33, 71)).astype("f4")
    v, p, q = f(x)
    np.testing.assert_array_equal(p, x.argmax(1))
    np.testing.assert_array_equal(v, x.max(1))
    np.testing.assert_array_equal(q, abs(x).argmin(0))


def test_all_and_any_in_text() -> None:
    operator = polyc.compile("def f(float(M, N) X) -> (a, o) { a(i) &&=! X(i, j) > 0.1  o(i) ||=! X(i, j) > 0.99 }")
    x = np.random.default_rng(7).random((50, 33)).astype("f4")
    a, o = operator(x)
    np.testing.assert_array_equal(a, (x > np.float32(0.1)).all(1))
    np.testing.assert_array_equal(o, (x > np.float32(0.99)).any(1))
    assert a.dtype == o.dtype == np.bool_


TC_ERRORS = {
    "(v(i), p(j)) argmax=! X(i, j)": ("semantic-selection", "same plain indices"),
    "p(2 * i) argmax=! X(i, j)": ("semantic-selection", "same plain indices"),
    "p(i, j) argmax=! X(i, j)": ("semantic-selection", "no index to choose from"),
    "(a, b, c, p) argmin=! X(i, j)": ("semantic-selection", "over i, j gives 2 positions, and 4 are assigned"),
    "(p(i), p(i)) argmax=! X(i, j)": ("semantic-already-defined", "assigned twice"),
    "p(i) argmax= X(i, j)": ("syntax-unexpected", "argmax"),
    "(p(i), ) argmax=! X(i, j)": ("syntax-unexpected", "identifier"),
    "p(0) = 1  p(i) argmax=! X(i, j) where i in 1:M": ("semantic-selection", "cannot assign a part of p"),
    "p(i) &&=! X(i, j)": ("type-not-boolean", "reduces booleans"),
}


@pytest.mark.parametrize("statement", TC_ERRORS)
def test_errors_in_text(statement: str) -> None:
    code, words = TC_ERRORS[statement]
    with pytest.raises(PolycError) as caught:
        polyc.compile(f"def f(float(M, N) X) -> (p) {{ {statement} }}")
    found = [d for d in caught.value.diagnostics if d.code == code]
    assert found
    assert words in found[0].message
    assert found[0].help
    assert found[0].span is not None


PYTHON_ERRORS = {
    "p[i] = argmax(x[i])": "no index to choose from",
    "a, b, p = argmax(x[i])": "over i gives 1 position, and 3 are assigned",
    "p = argmax(x[i], 0)": "takes one expression, and no axis",
    "p, p = argmax(x[i])": "same name",
}


@pytest.mark.parametrize("statement", PYTHON_ERRORS)
def test_errors_in_python(statement: str) -> None:
    with pytest.raises(PolycError) as caught:
        polyc.op(f"def f(x: 'f32[N]'):\n    {statement}\n    return p").program  # noqa: B018
    found = [d for d in caught.value.diagnostics if d.code == "semantic-selection"]
    assert found
    assert PYTHON_ERRORS[statement] in found[0].message
    assert found[0].span is not None


def test_the_greatest_half_is_a_half():
    operator = polyc.compile("def f(float16(M, N) X) -> (v, p) { (v(i), p(i)) argmax=! X(i, j) }")
    x = np.array([[1, 3, 2], [-5, -4, -np.inf]], np.float16)
    value, place = operator(x)
    assert value.dtype == np.float16
    assert np.array_equal(value, x.max(axis=1)) and np.array_equal(place, x.argmax(axis=1))
