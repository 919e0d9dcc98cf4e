"""Users' monoids: trees, chunks, chains; tuples of one and of several types; conditions, guards, symbolic sizes."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from polyc.ir.interpret import interpret
from polyc.ir.text import format_program
from polyc.ir.text_reader import parse_program

MODULUS = 1009


@polyc.monoid(identity=-np.inf)
def logaddexp(a: Any, b: Any) -> Any:
    top = max(a, b)
    return top if top == -np.inf else top + np.log1p(np.exp(-abs(a - b)))


@polyc.monoid(identity=(1, 0))
def product(a: Any, b: Any) -> Any:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


@polyc.monoid(identity=(np.inf, -np.inf))
def bounds(a: Any, b: Any) -> Any:
    (low, high), (l, h) = a, b
    return min(low, l), max(high, h)


@polyc.monoid(identity=(0, 0.0, 0.0))
def moments(a: Any, b: Any) -> Any:
    (n, mean, square), (m, other, more) = a, b
    total = n + m
    step = other - mean
    share = m / max(total, 1)
    return total, mean + step * share, square + more + step * step * n * share


@polyc.monoid(identity=(-np.inf, 9223372036854775807))
def first_greatest(a: Any, b: Any) -> Any:
    if a[0] > b[0] or (a[0] == b[0] and a[1] < b[1]):
        return a
    return b


multiply_modulo = None


def _multiply(a: Any, b: Any) -> Any:
    return a * b % MODULUS


multiply_modulo = polyc.monoid(_multiply, 1, name="multiply_modulo")


@polyc.op
def log_rows(x: "f32[M, N]"):
    y[i] = logaddexp(x[i, j])
    return y


@polyc.op
def log_columns(x: "f32[M, N]"):
    y[j] = logaddexp(x[i, j])
    return y


@polyc.op
def complex_rows(x: "f32[M, N]", z: "f32[M, N]"):
    p[i], q[i] = product(x[i, j], z[i, j])
    return p, q


@polyc.op
def ranges(x: "f32[M, N]"):
    a[j], b[j] = bounds(x[i, j], x[i, j])
    lo, hi = bounds(x[i, j], x[i, j])
    return a, b, lo, hi


@polyc.op
def spread(x: "f64[M, N]"):
    n[i], mean[i], square[i] = moments(polyc.f64(1), x[i, j], polyc.f64(0))
    return mean, square


@polyc.op
def greatest(x: "f32[M, N]"):
    v[i], p[i] = first_greatest(x[i, j], j)
    return v, p


@polyc.op
def powers(x: "i64[M, N]"):
    y[i] = multiply_modulo(x[i, j])
    return y


SHAPES = [(7, 1), (4, 3), (3, 1000), (2, 33_000), (1, 40_960), (1, 0), (0, 5)]


def draw(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES)
def test_logarithms_of_sums(shape: tuple[int, int]) -> None:
    x = draw(*shape)
    np.testing.assert_allclose(log_rows(x), np.logaddexp.reduce(x, axis=1), rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(log_columns(x), np.logaddexp.reduce(x, axis=0), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_complex_products(shape: tuple[int, int]) -> None:
    angle = draw(*shape)
    x, z = np.cos(angle), np.sin(angle)
    p, q = complex_rows(x, z)
    expected = (x.astype("f8") + 1j * z).prod(1)
    np.testing.assert_allclose(p, expected.real, atol=1e-4)
    np.testing.assert_allclose(q, expected.imag, atol=1e-4)


@pytest.mark.parametrize("shape", [s for s in SHAPES if 0 not in s])
def test_minimum_and_maximum_together(shape: tuple[int, int]) -> None:
    x = draw(*shape)
    a, b, lo, hi = ranges(x)
    np.testing.assert_array_equal(a, x.min(0))
    np.testing.assert_array_equal(b, x.max(0))
    assert (lo, hi) == (x.min(), x.max())


@pytest.mark.parametrize("shape", SHAPES[:-3])
def test_mean_and_variance_in_one_pass(shape: tuple[int, int]) -> None:
    x = draw(*shape).astype("f8") + 1e6
    mean, square = spread(x)
    np.testing.assert_allclose(mean, x.mean(1), rtol=1e-14)
    np.testing.assert_allclose(square / shape[1], x.var(1), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES[:-3])
def test_components_of_two_types(shape: tuple[int, int]) -> None:
    x = np.round(draw(*shape) * 3)
    v, p = greatest(x)
    np.testing.assert_array_equal(v, x.max(1))
    np.testing.assert_array_equal(p, x.argmax(1))


def test_numbers_outside_of_the_function() -> None:
    x = np.random.default_rng(0).integers(1, MODULUS, (5, 777))
    expected = np.ones(5, np.int64)
    for column in x.T:
        expected = expected * column % MODULUS
    np.testing.assert_array_equal(powers(x), expected)


@pytest.mark.parametrize(
    "options", [{}, {"reassociate": False}, {"dynamic": True}, {"target": "x86-64-v2"}, {"scheduler": "source"}]
)
def test_the_interpreter_agrees(options: dict[str, Any]) -> None:
    x, z = np.cos(draw(5, 37)), np.sin(draw(5, 37))
    for operator, arrays in ((log_rows, {"x": x}), (complex_rows, {"x": x, "z": z}), (greatest, {"x": x})):
        compiled = polyc.op(operator.__wrapped__, **options)
        found = compiled(*arrays.values())
        expected = interpret(operator.program, arrays)
        for value, name in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


def test_conditions_and_ranges() -> None:
    @polyc.op
    def below(x: "f32[N, N]"):
        with polyc.where(j < i):
            y[i] = logaddexp(x[i, j])
        with polyc.where(1 <= k < 4):
            z[i] = logaddexp(x[i, k])
        return y, z

    x = draw(20, 20)
    y, z = below(x)
    assert y[0] == -np.inf
    np.testing.assert_allclose(y[1:], [np.logaddexp.reduce(x[i, :i]) for i in range(1, 20)], rtol=1e-5)
    np.testing.assert_allclose(z, np.logaddexp.reduce(x[:, 1:4], axis=1), rtol=1e-5)
    np.testing.assert_allclose(y, interpret(below.program, {"x": x})["y"], rtol=1e-5)


def test_several_indices_and_computed_values() -> None:
    @polyc.op
    def everything(x: "f32[B, M, N]", w: "f32[N]"):
        y[b] = logaddexp(x[b, i, j] * w[j])
        return y

    x, w = draw(3, 17, 29), draw(29)
    np.testing.assert_allclose(everything(x, w), np.logaddexp.reduce((x * w).reshape(3, -1), axis=1), rtol=1e-5)


def test_subscripts_that_data_gives_are_checked() -> None:
    @polyc.op
    def bag(table: "f32[R]", k: "i32[M, N]"):
        y[i] = logaddexp(table[k[i, j]])
        return y

    table = draw(11)
    k = np.random.default_rng(1).integers(0, 11, (6, 13)).astype(np.int32)
    np.testing.assert_allclose(bag(table, k), np.logaddexp.reduce(table[k], axis=1), rtol=1e-5)
    k[2, 3] = 11
    with pytest.raises(polyc.BoundsError):
        bag(table, k)


def test_inside_a_larger_operator() -> None:
    @polyc.op
    def softmax(x: "f32[M, N]"):
        norm[i] = logaddexp(x[i, j])
        y[i, j] = np.exp(x[i, j] - norm[i])
        return y

    @polyc.op
    def twice(x: "f32[M, N]"):
        h = softmax(x)
        y = softmax(h)
        return y

    x = draw(9, 100)

    def expected(v: Any) -> Any:
        e = np.exp(v - v.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    np.testing.assert_allclose(twice(x), expected(expected(x)), rtol=1e-5)


def test_the_text_of_the_program_reads_back() -> None:
    for operator in (log_rows, complex_rows, greatest):
        assert parse_program(format_program(operator.program)) == operator.program


def test_a_recurrence_is_refused() -> None:
    @polyc.op
    def circle(x: "f32[N]"):
        y[0] = x[0]
        with polyc.where(1 <= i < N, 0 <= j < i):
            s[i] = logaddexp(y[j])
        with polyc.where(1 <= i < N):
            y[i] = s[i] + x[i]
        return y

    with pytest.raises(PolycError):
        circle(draw(5))


ERRORS: dict[str, tuple[str, str]] = {
    "p[i] = product(x[i, j])": ("semantic-monoid", "combines 2 values, and 1 are given"),
    "p[i] = product(x[i, j], x[i, j])": ("semantic-monoid", "gives 2 results, and 1 are assigned"),
    "p[i], q[j] = product(x[i, j], x[i, j])": ("semantic-monoid", "same plain indices"),
    "p[i], p[i] = product(x[i, j], x[i, j])": ("semantic-monoid", "same name"),
    "p[i] = 1 + logaddexp(x[i, j])": ("semantic-monoid", "stands alone"),
    "p[i] = bad_name(x[i, j])": ("semantic-monoid", "has no value in bad_name"),
    "p[i] = bad_type(int(x[i, j]))": ("type-monoid", "gives f64 for a component that is i64"),
    "p[i] = bad_count(x[i, j])": ("semantic-monoid", "returns 2 values"),
    "p[i] = bad_body(x[i, j])": ("semantic-element-function", "cannot be read as a function of elements: it says 'while"),
    "p[i] = bad_parameters(x[i, j])": ("semantic-monoid", "takes 3 parameters"),
    "p[i] = bad_identity(int(x[i, j]))": ("type-monoid", "the identity of bad_identity is -inf"),
}


@polyc.monoid(identity=0)
def bad_name(a: Any, b: Any) -> Any:
    return a + c


@polyc.monoid(identity=0)
def bad_type(a: Any, b: Any) -> Any:
    return f64(a) + b


@polyc.monoid(identity=-np.inf)
def bad_identity(a: Any, b: Any) -> Any:
    return max(a, b)


@polyc.monoid(identity=0)
def bad_count(a: Any, b: Any) -> Any:
    return a, b


@polyc.monoid(identity=0)
def bad_body(a: Any, b: Any) -> Any:
    while True:
        a = a + b


@polyc.monoid(identity=0)
def bad_parameters(a: Any, b: Any, c: Any) -> Any:
    return a + b + c


def make_operator(statement: str) -> Any:
    """An operator whose source is in no file finds no monoids: write one."""
    import linecache

    text = f"def f(x: 'f32[M, N]'):\n    {statement}\n    return p\n"
    name = f"<monoids {statement}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = dict(globals())
    exec(compile(text, name, "exec"), space)
    return polyc.op(space["f"])


@pytest.mark.parametrize("statement", ERRORS)
def test_errors(statement: str) -> None:
    code, words = ERRORS[statement]
    with pytest.raises(PolycError) as caught:
        make_operator(statement).program  # noqa: B018
    found = [d for d in caught.value.diagnostics if d.code == code]
    assert found, caught.value
    assert words in found[0].message
    assert found[0].span is not None
    assert found[0].help


def test_what_is_no_monoid_is_refused_at_once() -> None:
    for arguments in ((), (max, 0), (_multiply,), (_multiply, "1"), (_multiply, ()), (_multiply, (1, None))):
        with pytest.raises(polyc.SemanticError) as caught:
            polyc.monoid(*arguments)
        assert caught.value.diagnostics[0].code == "semantic-monoid"
    with pytest.raises(polyc.SemanticError, match="only inside a function"):
        product(1, 2)


@pytest.mark.parametrize(
    ("identity", "body", "message"),
    [
        ("0.0", "c = a - b", r"m is not associative: \(1 ∘ 1\) ∘ 1 is -1, and 1 ∘ \(1 ∘ 1\) is 1"),
        ("0.0", "c = a + 0.0 * b", "m is not commutative: 1 ∘ 2 is 1, and 2 ∘ 1 is 2"),
        ("2.0", "c = a * b", "m has another identity than 2: 2 ∘ 1 is 2"),
    ],
)
def test_a_monoid_that_is_none_is_told_under_verify(identity: str, body: str, message: str) -> None:
    text = f"""monoid m(float a, float b) -> (c = {identity}) {{ {body} }}
               def f(float(N) x) -> (s) {{ s m=! x(i) }}"""
    with pytest.raises(PolycError, match=message) as caught:
        polyc.compile(text, verify=True)(np.arange(1, 100, dtype=np.float32) / 50)
    assert caught.value.code == "argument-monoid-law"


def test_a_monoid_over_its_own_result_is_refused() -> None:
    text = """monoid m(float a, float b) -> (c = 0.0) { c = a + b }
              def f(float(N) x) -> (s) {
                u(0) = x(0)
                s(i) m=! u(j) where i in 0:N, j <= i
                u(i) = x(i) + s(i - 1) where i in 1:N
              }"""
    with pytest.raises(PolycError, match="m combines values that depend on its own result") as caught:
        polyc.compile(text)(np.ones(4, np.float32))
    assert caught.value.code == "unsupported-monoid-recurrence"


def test_one_reduction_may_be_asked_for_twice() -> None:
    """The second took the place of the first among the components, which was left without a tree."""
    text = """monoid turned(float a, float b, float x, float y) -> (p = 1.0, q = 0.0) { p = a * x - b * y  q = a * y + b * x }
              def f(float(M, N) A) -> (p, q, r, s) {
                (p(i), q(i)) turned=! (A(i, j), 0.5)
                (r(i), s(i)) turned=! (A(i, j), 0.5)
              }"""
    a = np.random.default_rng(0).uniform(-1, 1, (3, 7)).astype(np.float32)
    expected = np.prod(a + 0.5j, axis=1)
    p, q, r, s = polyc.compile(text)(a)
    np.testing.assert_allclose(p + 1j * q, expected, rtol=1e-5)
    np.testing.assert_array_equal((r, s), (p, q))
