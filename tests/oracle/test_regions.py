"""Triangles, computed left sides and tensors that several statements write: kernels against NumPy and the interpreter."""

# ruff: noqa: F821, UP037
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.diagnostics import ArgumentError, PolycError
from polyc.ir.halves import narrow, widen
from polyc.ir.interpret import interpret

Array = np.ndarray[Any, Any]


def draw(*shape: int) -> Array:
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(np.float32)


def agree(operator: Any, inputs: tuple[Array, ...], expected: Array) -> None:
    """Kernels with these sizes and with symbolic ones, and the interpreter, give `expected`."""
    program = operator.program
    oracle = interpret(program, dict(zip(program.parameters, inputs, strict=True)))
    (own,) = oracle.values()
    for got in (operator(*inputs), kernel_for_any_sizes(operator)(*inputs), own):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-4)


kernel_for_any_sizes = functools.cache(lambda operator: operator.lower().compile())
compile_once = functools.cache(polyc.compile)
"""The sizes at which a program is tested share its kernel for any sizes."""


def skew_sum(a: Array) -> Array:
    n = a.shape[0]
    i, j = np.indices((n, n))
    return np.where((j <= i) & (i + j < n), a, 0).sum(1)


def interleave(a: Array, b: Array) -> Array:
    result = np.empty(2 * len(a), a.dtype)
    result[::2], result[1::2] = a, b
    return result


SQUARE = "def f(float(N, N) A) -> (O)"
TWO = "def f(float(N) A, float(N) B) -> (O)"
ONE = "def f(float(N) A) -> (O)"

SQUARES: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "rows_of_a_triangle": ("O(i) +=! A(i, j) where j <= i", lambda a: np.tril(a).sum(1)),
    "columns_of_a_triangle": ("O(j) +=! A(i, j) where j <= i", lambda a: np.tril(a).sum(0)),
    "strict": ("O(i) +=! A(i, j) where j < i", lambda a: np.tril(a, -1).sum(1)),
    "bound_over_an_index": ("O(i) +=! A(i, j) where j in i:N", lambda a: np.triu(a).sum(1)),
    "two_conditions": ("O(i) +=! A(i, j) where j <= i, i + j < N", skew_sum),
    "everything_but_the_diagonal": ("O(i) +=! A(i, j) where j != i", lambda a: a.sum(1) - a.diagonal()),
    "only_the_diagonal": ("O(i) +=! A(i, j) where i == j", lambda a: a.diagonal().copy()),
    "copy_of_a_triangle": ("O(i, j) +=! A(i, j) where j <= i", np.tril),
    "triangular_product": ("O(i, j) +=! A(i, k) * A(k, j) where k <= i", lambda a: np.tril(a) @ a),
    "lower_times_upper": ("O(i, j) +=! A(i, k) * A(k, j) where k <= i, k <= j", lambda a: np.tril(a) @ np.triu(a)),
    "symmetric_update": ("O(i, j) +=! A(i, k) * A(j, k) where j <= i", lambda a: np.tril(a @ a.T)),
    "index_only_in_a_condition": (
        "O(i) +=! A(i, i) * float(j) where j in 0:i",
        lambda a: a.diagonal() * _triangular_numbers(a),
    ),
    "both_triangles": (
        "O(i, j) = A(i, j) where j <= i  O(i, j) = 2.0 * A(j, i) where j > i",
        lambda a: np.tril(a) + 2 * np.triu(a.T, 1),
    ),
    "anti_diagonals": ("O(i + j) +=! A(i, j)", lambda a: _anti_diagonals(a)),
    "blown_up": ("O(2 * i, 3 * j) +=! A(i, j)", lambda a: _blown_up(a)),
}


def _triangular_numbers(a: Array) -> Array:
    n = np.arange(a.shape[0])
    return (n * (n - 1) / 2).astype(a.dtype)


def _anti_diagonals(a: Array) -> Array:
    n = a.shape[0]
    return np.array([np.fliplr(a).trace(n - 1 - k) for k in range(2 * n - 1)], a.dtype)


def _blown_up(a: Array) -> Array:
    n = a.shape[0]
    result = np.zeros((2 * n - 1, 3 * n - 2), a.dtype)
    result[::2, ::3] = a
    return result


@pytest.mark.each
@pytest.mark.parametrize("name", SQUARES)
@pytest.mark.parametrize("n", [1, 2, 17, 70])
def test_square(name: str, n: int) -> None:
    text, reference = SQUARES[name]
    a = draw(n, n)
    agree(compile_once(f"{SQUARE} {{ {text} }}"), (a,), np.asarray(reference(a)))


VECTORS: dict[str, tuple[str, Callable[..., Array]]] = {
    "one_element": (f"{ONE} {{ O(0) +=! A(i) }}", lambda a: a.sum(keepdims=True)),
    "shifted": (f"{ONE} {{ O(i + 1) = A(i) }}", lambda a: a),
    "reversed": (f"{ONE} {{ O(N - 1 - i) = A(i) }}", lambda a: a[::-1]),
    "halves": (f"{ONE} {{ O(i / 2) +=! A(i) }}", lambda a: np.add.reduceat(a, np.arange(0, len(a), 2))),
    "interleaved": (f"{TWO} {{ O(2 * i) = A(i)  O(2 * i + 1) = B(i) }}", interleave),
    "one_behind_the_other": (f"{TWO} {{ O(i) = A(i) where i in 0:N  O(N + i) = B(i) }}", lambda a, b: np.concatenate([a, b])),
    "border_and_interior": (
        f"{ONE} {{ O(0) = 7.0  O(i) = A(i - 1) where i in 1:N }}",
        lambda a: np.concatenate([np.float32([7]), a[:-1]]),
    ),
    "a_sum_and_a_copy": (
        f"{TWO} {{ O(0) +=! A(i)  O(i + 1) = B(i) }}",
        lambda a, b: np.concatenate([a.sum(keepdims=True), b]),
    ),
    "added_to_a_part": (f"{TWO} {{ O(i) = A(i)  O(j / 2) += B(j) }}", lambda a, b: _add_halves(a, b)),
    "read_again": (
        f"{TWO} {{ T(i) = exp(A(i)) where i in 0:N  T(N + i) = B(i)  O +=! T(i) }}",
        lambda a, b: np.exp(a).sum() + b.sum(),
    ),
}


def _add_halves(a: Array, b: Array) -> Array:
    result = a.copy()
    np.add.at(result, np.arange(len(b)) // 2, b)
    return result


@pytest.mark.each
@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("n", [1, 2, 37])
def test_vector(name: str, n: int) -> None:
    text, reference = VECTORS[name]
    inputs = (draw(n), draw(n) + 1)[: text.count("float(N)")]
    agree(compile_once(text), inputs, np.asarray(reference(*inputs), np.float32))


def test_concatenation_of_nothing() -> None:
    operator = polyc.compile(VECTORS["one_behind_the_other"][0])
    assert operator(draw(0), draw(0)).shape == (0,)


@polyc.op
def causal_attention(q: "f32[T, D]", k: "f32[T, D]", v: "f32[T, E]"):
    s[i, j] += q[i, d] * k[j, d]
    with polyc.where(j <= i):
        m[i] = max(s[i, j])
        z[i] += exp(s[i, j] - m[i])
        y[i, e] += exp(s[i, j] - m[i]) * v[j, e]
    o[i, e] = y[i, e] / z[i]
    return o


def test_causal_attention() -> None:
    q, k, v = draw(50, 8), draw(50, 8) + 1, draw(50, 24)
    s = np.where(np.tri(50, dtype=bool), q.astype(np.float64) @ k.T, -np.inf)
    p = np.exp(s - s.max(1, keepdims=True))
    agree(causal_attention, (q, k, v), (p / p.sum(1, keepdims=True) @ v).astype(np.float32))


@polyc.op
def with_border(x: "f32[N]"):
    y[0] = 0
    with polyc.where(1 <= i < N - 1):
        y[i] = (x[i - 1] + x[i + 1]) / 2
    y[N - 1] = 1
    return y


def test_literals_take_the_type_of_the_tensor_they_are_part_of() -> None:
    x = draw(9)
    expected = np.zeros(9, np.float32)
    expected[1:-1], expected[-1] = (x[:-2] + x[2:]) / 2, 1
    agree(with_border, (x,), expected)


REFUSED = {
    "half_of_the_elements": ("O(2 * i) = A(i, i)", "range-unwritten", "O(1)"),
    "the_other_triangle": ("O(i, j) = A(i, j) where j <= i", "range-unwritten", "O(0, 1)"),
    "a_gap": ("O(i) = A(i, i) where i in 0:N  O(N + 1 + i) = A(i, 0)", "range-unwritten", "is never written"),
    "read_by_another": (
        "T(i, j) = A(i, j) where j <= i  O(i, j) = T(i, j)",
        "range-unwritten",
        "is never written, but O reads it",
    ),
    "an_element_twice": ("O(i) = A(i, i)  O(0) = 1.0", "range-written-twice", "by one above"),
    "several_points": ("O(i + j) = A(i, j)", "range-written-twice", "O(1)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_missing_and_double_elements_are_shown(name: str) -> None:
    text, code, words = REFUSED[name]
    operator = polyc.compile(f"{SQUARE} {{ {text} }}")
    for refuse in (operator.lower, lambda: operator(draw(5, 5)), lambda: interpret(operator.program, {"A": draw(5, 5)})):
        with pytest.raises(PolycError) as caught:
            refuse()
        assert caught.value.code == code
    with pytest.raises(PolycError) as caught:
        operator.lower()
    assert words in caught.value.diagnostics[0].message


def test_what_goes_wrong_at_one_size_only_is_refused_at_the_call() -> None:
    text = f"{ONE} {{ O(0) = A(0)  O(N - 1) = 1.0  O(i) = A(i) where 0 < i, i < N - 1, i in 0:N }}"
    kernel = polyc.compile(text).lower().compile()
    assert kernel(draw(3)).tolist() == [draw(3)[0], draw(3)[1], 1.0]
    with pytest.raises((ArgumentError, PolycError)) as caught:
        kernel(draw(1))
    assert caught.value.code == "range-written-twice"


PARTLY_WRITTEN: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "a_triangle": (
        "E(n, m) = A(n, m) * 2.0 where n <= m, m in 0:N, n in 0:N  O(n) +=! E(n, m) where n <= m",
        lambda a: 2 * np.triu(a).sum(1),
    ),
    "a_triangle_in_a_product": (
        "E(n, m) = exp(A(n, m)) where n <= m, n in 0:N, m in 0:N  O(n, k) +=! E(n, m) * A(m, k) where n <= m",
        lambda a: np.triu(np.exp(a)) @ a,
    ),
    "every_other_element": ("E(2 * n) = A(n, 0)  O(n) = E(2 * n) where n in 0:N", lambda a: a[:, 0]),
    "under_a_condition": (
        "E(2 * n) = A(n, 0)  O(n) = n % 2 == 0 && A(n, 1 % N) > 0.0 ? E(n) : 0.0 where n in 0:N",
        lambda a: np.where((np.arange(len(a)) % 2 == 0) & (a[:, 1 % len(a)] > 0), a[np.arange(len(a)) // 2, 0], 0),
    ),
    "a_triangle_of_a_recurrence": (
        "S(t, i) = t == 0 ? A(i, 0) : S(t - 1, i - 1) + S(t - 1, i) where t in 0:3, i in t:N+2  O(i) = S(2, i) where i in 2:N",
        lambda a: a[2:, 0] + 2 * a[1:-1, 0] + a[:-2, 0],
    ),
}


@pytest.mark.each
@pytest.mark.parametrize("n", [3, 8, 35])
@pytest.mark.parametrize("name", PARTLY_WRITTEN)
def test_elements_of_temporaries_that_nothing_reads_need_no_value(name: str, n: int) -> None:
    text, expected = PARTLY_WRITTEN[name]
    a = draw(n, n)
    agree(polyc.compile(f"{SQUARE} {{ {text} }}"), (a,), expected(a))


def test_an_element_of_a_temporary_that_data_may_read_needs_a_value() -> None:
    operator = polyc.compile(f"{SQUARE} {{ E(2 * n) = A(n, 0)  O(n) = A(n, 1) > 0.0 ? E(n) : 0.0 where n in 0:N }}")
    for refuse in (operator.lower, lambda: operator(draw(5, 5)), lambda: interpret(operator.program, {"A": draw(5, 5)})):
        with pytest.raises(PolycError) as caught:
            refuse()
        assert caught.value.code == "range-unwritten"


GUARDS = {
    "an_index_first": "i > 0 && x(i) > 0.0 ? y(i - 1) + x(i) : 0.0",
    "data_first": "x(i) > 0.0 && i > 0 ? y(i - 1) + x(i) : 0.0",
    "the_other_arm": "i == 0 || x(i) <= 0.0 ? 0.0 : y(i - 1) + x(i)",
    "denied": "!(i > 0 && x(i) > 0.0) ? 0.0 : y(i - 1) + x(i)",
    "twice": "(i > 0 && x(i) > 0.0) || (x(i) > 0.0 && i > 0) ? y(i - 1) + x(i) : 0.0",
}


@pytest.mark.parametrize("name", GUARDS)
def test_a_recurrence_may_be_guarded_by_an_index_and_data_together(name: str) -> None:
    x = draw(40)
    expected = np.zeros(40, np.float32)
    for i in range(1, 40):
        expected[i] = expected[i - 1] + x[i] if x[i] > 0 else 0
    agree(polyc.compile(f"def f(float(N) x) -> (y) {{ y(i) = {GUARDS[name]} where i in 0:N }}"), (x,), expected)


def test_a_read_made_at_degenerate_sizes_only_is_checked_at_the_call() -> None:
    text = "def f(float(N, M) A) -> (s) { s +=! (r == 0 ? A(0, min(r + 2, M - 1)) : A(r, 0)) where r in 0:N, r >= M }"
    kernel = polyc.compile(text).lower().compile()
    assert kernel(draw(5, 2)) == pytest.approx(draw(5, 2)[2:, 0].sum(), rel=1e-5)
    with pytest.raises(PolycError) as caught:
        kernel(draw(5, 0))
    assert caught.value.code == "range-precondition"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("left", ["key(i)", "2 * i", "N - 1 - i", "max(min(key(i), N - 1), 0)"])
def test_16_bit_values_are_added_to_a_part_of_a_tensor(dtype: str, left: str) -> None:
    text = f"def f({dtype}(N) A, int32(N) key) -> (T) {{ T(i) = A(i)  T({left}) += A(i) where i in 0:N / 2 }}"
    operator = polyc.compile(text)
    a, key = narrow(np.arange(9.0), operator.program.types["A"]), np.arange(9, dtype=np.int32)[::-1].copy()
    expected = interpret(operator.program, {"A": a, "key": key})["T"]
    for got in (operator(a, key), operator.lower().compile()(a, key)):
        assert widen(got).tolist() == widen(expected).tolist()


def test_a_mirrored_read_that_no_point_makes_asks_for_nothing() -> None:
    body = "T(i) +=! B(i, j) * pad(A(i + 1, j), reflect) where i + j < N, i in 0:M, j in 0:M"
    assert polyc.compile(f"def f(float(N, 3) A, float(M, M) B) -> (T) {{ {body} }}")(draw(0, 3), draw(4, 4)).tolist() == [0] * 4
