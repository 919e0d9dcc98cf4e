"""Complex numbers in every notation: kernels against the reference interpreter and NumPy."""

# ruff: noqa: F821, UP037
from __future__ import annotations

import functools
import random

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from polyc.ir.complex_pairs import split_complex
from polyc.ir.interpret import interpret
from polyc.ir.text import format_program
from polyc.ir.text_reader import parse_program
from polyc.ir.tolerance import check_results, expect_results
from polyc.ir.verify import verify_program


def draw(*shape: int, dtype: str = "complex64", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


PROGRAMS = {
    "elements": "O(i) = A(i, 0) * conj(x(i)) + s - r(i) / 2.0  P(i) = fabs(x(i)) + real(x(i)) * imag(A(i, N - 1))",
    "quotients": "O(i) = x(i) / (A(i, 0) + 3.0)  P(i) = 1.0 / x(i)",
    "exponentials": "O(i) = exp(x(i))  P(i) = exp(complex(0.0, r(i)))",
    "equality": "O(i) = x(i) == A(i, 0) ? x(i) : conj(x(i))  P(i) = x(i) != x(i)",
    "sum": "O(i) +=! A(i, j)  P +=! x(i) * conj(x(i))",
    "product": "O(i) *=! A(i, j)  P *=! x(i)",
    "product_continued": "O(i) = x(i)  O(i) *= A(i, j)  P(j) *=! A(i, j) where i <= j",
    "matmul": "O(i, j) +=! A(i, k) * B(k, j)  P(i, j) +=! A(k, i) * conj(B(k, j))",
    "conjugate_first": "O(i, j) +=! conj(A(i, k)) * B(k, j)  P(i, j) +=! conj(A(i, k)) * conj(B(k, j))",
    "with_its_transpose": "O(i, j) +=! A(i, k) * A(j, k)  P(i, j) +=! A(i, k) * conj(A(j, k))",
    "matmul_of_a_temporary": "T(i, k) = A(i, k) * s  O(i, j) +=! T(i, k) * B(k, j)  P(i) +=! O(i, j) * x(j)",
    "real_factor": "O(i, j) +=! R(i, k) * B(k, j)  P(i) +=! R(i, k) * x(k)",
    "matvec": "O(i) +=! A(i, k) * x(k)  P(i) = O(i) * s",
    "triangle": "O(i, j) +=! A(i, k) * B(k, j) where k <= i  P(i) +=! A(i, j) where j < i",
    "parts": "O(0) = s  O(i + 1) = x(i) * A(i, i)  P(2 * i) = x(i)  P(2 * i + 1) = conj(x(i))",
    "scan": "O(0) = x(0)  O(i) = O(i - 1) + x(i) where i in 1:N  P(i) = O(i) * 2.0",
    "recurrence": "O(0) = x(0)  O(i) = O(i - 1) * 0.5 * s + x(i) where i in 1:N  P(i) = O(i)",
    "padding": "O(i) = pad(x(i - 1), 0.0) + pad(x(i + 1), reflect) where i in 0:N  P(i) = pad(x(i - 2), s) where i in 0:N",
    "convolution": "O(i) +=! A(i + k, j) * B(k, j) where k in 0:(N + 1) / 2  P(i) = x(i)",
    "conversion": "O(i) = complex128(x(i)) + double(r(i))  P(i) = complex64(r(i))",
    "twice": "O(i, j) +=! A(i, k) * B(k, j)  O(i, j) = O(i, j) * s  P(i) = real(O(i, i))",
    "positions": "v(i) max=! fabs(A(i, j))  O(i) = v(i) * x(i)  P(i) argmin=! real(A(i, j))",
}

PRODUCTS = ("conjugate_first", "with_its_transpose", "matmul_of_a_temporary", "real_factor", "twice")
"""Compiled for known sizes alone: versions of "matmul" for any sizes, which take seconds, stand for theirs."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_do_what_the_interpreter_does(name: str) -> None:
    text = f"""def f(complex64(N, N) A, complex64(N, N) B, complex64(N) x, float(N, N) R, float(N) r, complex64 s) -> (O, P) {{
      {PROGRAMS[name]}
    }}"""
    is_any = name not in PRODUCTS
    sizes = (1, 5, 40) if is_any else (5, 40)
    first = list(PROGRAMS).index(name) % len(sizes)  # at which the kernel for any sizes is compiled; one for the next by itself
    for_any = polyc.compile(text, dynamic=is_any)
    for k, n in enumerate((*sizes[first:], *sizes[:first])):
        operators = (for_any, polyc.compile(text, dynamic=False)) if k == 1 and is_any else (for_any,)
        rng = np.random.default_rng(n)
        real = [rng.standard_normal(s).astype("f4") for s in ((n, n), (n,))]
        arrays = [draw(n, n), draw(n, n, seed=1), draw(n), *real, np.complex64(0.5 - 1j)]
        arrays[0][0, 0] = arrays[2][0]
        inputs = dict(zip(for_any.input_names, map(np.asarray, arrays), strict=True))
        expected = expect_results(for_any.program, inputs)
        for operator in operators:
            got = dict(zip(("O", "P"), operator(*arrays), strict=True))
            assert check_results(got, expected) is None, n
            assert {k: v.dtype for k, v in got.items()} == {k: v.dtype for k, v in expected.plain.items()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_stay_well_formed(name: str) -> None:
    text = f"""def f(complex64(N, N) A, complex64(N, N) B, complex64(N) x, float(N, N) R, float(N) r, complex64 s) -> (O, P) {{
      {PROGRAMS[name]}
    }}"""
    program = polyc.compile(text).program
    assert parse_program(format_program(program)) == program
    verify_program(program)
    real = split_complex(program)
    verify_program(real)
    assert not any(t.is_complex for t in real.types.values()) and split_complex(real) is real


@pytest.mark.each
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(
    "subscripts", ["ij,jk->ik", "bij,bkj->bik", "ii->i", "i,i", "ij->", "ijk,jl,kl->il", "ij,j->i", "i,j->ij", "...i,...i->..."]
)
def test_einsum(subscripts: str, dtype: str) -> None:
    terms = subscripts.replace("...", "z").split("->")[0].split(",")
    extents = {c: 3 + n for n, c in enumerate("ijklbz")}
    arrays = [draw(*(extents[c] for c in t), dtype=dtype, seed=n) for n, t in enumerate(terms)]
    got = polyc.einsum_operator(subscripts)(*arrays)
    expected = np.einsum(subscripts, *arrays)
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_einsum_promotes_as_numpy() -> None:
    a, b = np.ones((2, 3), np.float32), draw(3, 4)
    for x, y in ((a, b), (a.astype("f8"), b), (a.astype("i4"), b), (a.astype("f2"), b)):
        got = polyc.einsum_operator("ij,jk->ik")(x, y)
        assert got.dtype == np.einsum("ij,jk->ik", x, y).dtype
        np.testing.assert_allclose(got, x @ y, rtol=1e-5)


def test_python_expressions_are_numpys() -> None:
    @polyc.op
    def f(z: "c64[N]", x: "f32[N]", w: "f64[N]"):
        a[i] = z[i].real * 2j + np.conj(z[i]) * x[i] - abs(z[i]) ** 2 + (z[i] * x[i]).imag
        b[i] = z[i] ** 2 + w[i]
        c[i] = np.angle(z[i])
        d[i] = x[i] + 1j
        e[i] = complex(x[i], w[i])
        g[i] = np.isfinite(z[i]) and z[i] != 0
        h[i] = 1 / z[i] + np.square(z[i]) + np.exp(1j * x[i])
        return a, b, c, d, e, g, h

    z, x = draw(19), np.random.default_rng(0).standard_normal(19).astype("f4")
    z[3] = np.inf
    w = x.astype("f8")
    with np.errstate(all="ignore"):
        expected = (
            z.real * 2j + np.conj(z) * x - abs(z) ** 2 + (z * x).imag,
            z**2 + w,
            np.angle(z),
            x + np.complex64(1j),
            x + 1j * w,
            np.isfinite(z) & (z != 0),
            1 / z + np.square(z) + np.exp(np.complex64(1j) * x),
        )
    sure = np.arange(19) != 3  # infinities times zero are NaN or not, by the order of NumPy's own steps
    for got, wanted in zip(f(z, x, w), expected, strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got[sure], wanted[sure], rtol=1e-5, atol=1e-6)


def test_division_does_not_overflow() -> None:
    big = np.array([1e30 + 1e30j, 1e-30 - 1e-30j, 3 + 0j, 0j], np.complex64)
    small = np.array([1e30 - 1e30j, 1e-30 + 1e-30j, -2j, 0j], np.complex64)
    got = polyc.compile("def f(complex64(N) a, complex64(N) b) -> (O) { O(i) = a(i) / b(i) }")(big, small)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, big / small, rtol=1e-6)


def test_layouts_out_and_aliases() -> None:
    operator = polyc.compile("def f(complex64(M, N) A, complex64 s) -> (O) { O(i, j) = A(i, j) * s }")
    a = draw(12, 10)
    for view in (a, a[::-1], a[:, ::2], a.T, a[2:2], np.broadcast_to(a[0], (4, 10)), np.asfortranarray(a)):
        np.testing.assert_allclose(operator(view, 2j), view * np.complex64(2j))
    strided = np.zeros((12, 30), np.complex64)
    operator(a, 2j, out=strided[:, ::3])
    np.testing.assert_array_equal(strided[:, ::3], a * np.complex64(2j))
    assert not strided[:, 1::3].any()
    scale = polyc.compile("def f(complex64(M, N) A, float s) -> (O) { O(i, j) = conj(A(i, j)) * s }")
    for _ in range(3):  # planned, then found by compiled code
        b = a.copy()
        assert scale(b, np.float32(3), out=b) is b
        np.testing.assert_array_equal(b, a.conj() * np.float32(3))
    with pytest.raises(PolycError, match="same memory"):  # each part of a product needs both
        operator(b, 2j, out=b)
    with pytest.raises(PolycError) as caught:
        operator(a.astype(np.complex128), 2j)
    assert caught.value.code == "argument-type-dtype"
    with pytest.raises(PolycError, match="share"):
        operator(b[:, :-1], 1, out=b[:, 1:])


def test_results_are_accumulated() -> None:
    operator = polyc.compile("def f(complex64(M, K) A, complex64(K) x) -> (y) { y(m) += A(m, k) * x(k) }")
    a, x, y = draw(7, 5), draw(5), draw(7)
    expected = y + a @ x
    operator(a, x, out=y)
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_bound_weights() -> None:
    text = "def f(complex64(M, K) W, complex64(K, N) x) -> (y) { y(m, n) +=! conj(W(m, k)) * x(k, n) }"
    w = draw(33, 50)
    operator = polyc.compile(text).bind(W=w)
    for n in (3, 40):
        x = draw(50, n, seed=n)
        np.testing.assert_allclose(operator(x), w.conj() @ x, rtol=1e-4, atol=1e-4)


def test_einops_patterns() -> None:
    a = draw(4, 6)
    np.testing.assert_array_equal(polyc.rearrange(a, "a (b c) -> c a b", c=2), a.reshape(4, 3, 2).transpose(2, 0, 1))
    np.testing.assert_allclose(polyc.reduce(a, "a b -> a", "sum"), a.sum(1), rtol=1e-5)
    np.testing.assert_allclose(polyc.reduce(a, "a b -> b", "mean"), a.mean(0), rtol=1e-5)
    with pytest.raises(PolycError, match="no order"):
        polyc.reduce(a, "a b -> b", "max")


REFUSED = {
    "O(i) = x(i) < x(i) ? 1.0 : 0.0": "< is not defined",
    "O(i) max=! A(i, j)": "no order",
    "O(i) argmax=! A(i, j)": "no order",
    "O(i) = floor(x(i))": "floor is not defined",
    "O(i) = float(x(i))": "float32 is not defined",
    "O(i) = max(x(i), 1.0)": "max is not defined",
    "O(i) = x(i) % 2.0": "% is not defined",
    "O(i) = r(x(i))": "integer",
    "O(i) = complex(x(i), 1.0)": "complex is not defined",
    "O(i) = conj(x(i), x(i))": "expected 1 argument",
    "R(i) = x(i)  O(i) = R(i)": "narrower type",
    "O(2 * i) *=! A(i, j)": "a product of complex numbers",
    "O(i) = x(x(i))": "integer",
}


@pytest.mark.parametrize("statements", REFUSED)
def test_what_has_no_meaning_is_refused_by_name(statements: str) -> None:
    more = ", float(N) R" if "R(" in statements else ""
    text = f"def f(complex64(N, N) A, complex64(N) x, float(N) r) -> (O{more}) {{ {statements} }}"
    with pytest.raises(PolycError, match=REFUSED[statements]):
        polyc.compile(text).lower()


def test_towers_of_products_are_refused_in_time() -> None:
    factors = " * ".join("(x(i) + s)" for _ in range(40))
    with pytest.raises(PolycError) as caught:
        polyc.compile(f"def f(complex64(N) x, complex64 s) -> (O) {{ O(i) = {factors} }}").lower()
    assert caught.value.code == "budget-expression"


def random_expression(source: random.Random, depth: int) -> str:
    if depth == 0:
        return source.choice(["x(i)", "y(i)", "s", "complex64(r(i))", "A(i, j)", "complex(r(i), 0.5)"])
    a, b = (random_expression(source, depth - 1) for _ in range(2))
    forms = ["({a} + {b})", "({a} - {b})", "({a} * {b})", "conj({a})", "-{a}", "({a} / (4.0 + fabs({b})))"]
    forms += ["(real({a}) < imag({b}) ? {a} : {b})", "exp({a} / (1.0 + fabs({a})))", "({a} * real({b}))"]
    return source.choice(forms).format(a=a, b=b)


@pytest.mark.parametrize("seed", range(12))
def test_random_expressions(seed: int) -> None:
    source = random.Random(seed)
    dtype = source.choice(["complex64", "complex128"])
    left = source.choice(["O(i, j) =", "O(i) +=!", "O(j) +=!", "O +=!"])
    part = "float" if dtype == "complex64" else "double"
    text = f"""def f({dtype}(N) x, {dtype}(N) y, {dtype}(N, N) A, {part}(N) r, {dtype} s) -> (O) {{
      {left} {random_expression(source, 3)} + A(i, j) where i in 0:N, j in 0:N
    }}"""
    n = source.choice([3, 16, 21])
    arrays = [draw(n, dtype=dtype, seed=k) for k in range(2)] + [draw(n, n, dtype=dtype)]
    arrays += [draw(n, seed=9).real.astype("f4" if dtype == "complex64" else "f8"), np.asarray(0.3 - 0.7j, dtype)]
    operator = polyc.compile(text)
    expected = expect_results(operator.program, dict(zip(operator.input_names, arrays, strict=True)))
    assert check_results({"O": operator(*arrays)}, expected) is None, text


FUNCTIONS = ("exp", "exp2", "log", "log2", "log10", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh")
SPECIAL = (0, 1, -1, 1j, -1j, -4, 4, 1e-3j, 30 + 1j, 1 + 1e-4j, 0.6 + 0.8j, complex(-2, -0.0), complex(-2, 0.0), 1e10, 1e-10)


@functools.cache
def function_of_elements(name: str, dtype: str, target: str) -> polyc.Operator:
    return polyc.compile(f"def f({dtype}(N) z) -> (y) {{ y(i) = {name}(z(i)) }}", target=target)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_the_values_and_branches_of_numpy(name: str, dtype: str) -> None:
    z = np.concatenate([draw(500, dtype=dtype) * 3, np.array(SPECIAL, dtype)])
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(z)
    found = function_of_elements(name, dtype, "host")(z)
    assert found.dtype == dtype
    fine = np.isfinite(expected)
    assert np.array_equal(np.isfinite(found), fine)
    assert np.allclose(found[fine], expected[fine], rtol=20 * np.finfo(dtype).eps, atol=0)


def draw_edges(dtype: str) -> np.ndarray:
    """Every pair of zeros, infinities, NaN and plain numbers."""
    parts = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan])
    z = np.empty((7, 7), dtype)
    z.real, z.imag = parts[:, None], parts
    return z.ravel()


@pytest.mark.pairs
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ("fabs", *FUNCTIONS))
def test_functions_of_infinities_have_the_values_of_numpy(name: str, dtype: str, target: str) -> None:
    z = draw_edges(dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name if name != "fabs" else "abs")(z)
    found = function_of_elements(name, dtype, target)(z)
    parts = [(found.real, expected.real), (found.imag, expected.imag)]
    for (got, wanted), (_, other) in zip(parts, reversed(parts), strict=True):
        is_open = np.isinf(wanted) & np.isnan(other)  # C99 leaves the sign of an infinity beside NaN open
        got, wanted = np.where(is_open, abs(got), got), np.where(is_open, abs(wanted), wanted)
        np.testing.assert_allclose(got, wanted, rtol=20 * np.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_products_and_quotients_of_infinities_are_numpys(dtype: str) -> None:
    edges = draw_edges(dtype)
    a, b = np.repeat(edges, len(edges)), np.tile(edges, len(edges))
    text = f"def f({dtype}(N) a, {dtype}(N) b) -> (p, q) {{ p(i) = a(i) * b(i)  q(i) = a(i) / b(i) }}"
    with np.errstate(all="ignore"):
        expected = (a * b, a / b)
    for got, wanted in zip(polyc.compile(text)(a, b), expected, strict=True):
        np.testing.assert_allclose(got.real, wanted.real, rtol=20 * np.finfo(dtype).eps)
        np.testing.assert_allclose(got.imag, wanted.imag, rtol=20 * np.finfo(dtype).eps)


@pytest.mark.parametrize("w", [1j, -1 + 2j, -2, 0.5 + 1j, 3, 0])
def test_powers_of_nothing_are_numpys(w: complex) -> None:
    z = np.zeros(3, np.complex128)
    with np.errstate(all="ignore"):
        expected = z ** np.full(3, w)
    found = polyc.compile("def f(complex128(N) z, complex128 w) -> (y) { y(i) = pow(z(i), w) }")(z, np.complex128(w))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_powers_of_complex_numbers(dtype: str) -> None:
    z, w = draw(200, dtype=dtype), draw(200, dtype=dtype, seed=3)
    z[0], w[1], z[2] = 0, 0, -1
    w[0] = 2
    text = f"""def f({dtype}(N) z, {dtype}(N) w) -> (y, p, q) {{
      y(i) = pow(z(i), w(i))  p(i) = pow(z(i), 3.0)  q(i) = pow(z(i), 0.5)
    }}"""
    found = polyc.compile(text)(z, w)
    for got, expected in zip(found, (z**w, z**3, z**0.5), strict=True):
        assert np.allclose(got, expected, rtol=100 * np.finfo(dtype).eps, atol=1e-30)


def test_functions_of_complex_numbers_in_python() -> None:
    operator = polyc.op(
        "def f(z: 'c128[N]'):\n"
        "    a[i] = np.sqrt(z[i]) + z[i] ** 0.5\n"
        "    b[i] = np.log(z[i]) * np.cos(z[i]) ** 2\n"
        "    return a, b"
    )
    z = draw(50, dtype="complex128")
    a, b = operator(z)
    assert np.allclose(a, 2 * np.sqrt(z))
    assert np.allclose(b, np.log(z) * np.cos(z) ** 2)


def test_other_functions_of_complex_numbers_are_refused_by_name() -> None:
    with pytest.raises(PolycError, match="erf is not defined for complex numbers"):
        polyc.compile("def f(complex64(N) z) -> (y) { y(i) = erf(z(i)) }")


@pytest.mark.parametrize("value", ["2 * i < 3 ? B(2 * i) : 1.0", "pad(B(2 * i), 1.0)", "pad(B(i), 1.0)"])
def test_a_guarded_real_term_does_not_bound_the_indices_of_a_complex_sum(value: str) -> None:
    text = f"def f(complex64(N) A, float(3) B) -> (T) {{ S(i) = A(i)  T(i) = S(N - 1 - i) + complex64({value}) }}"
    a, b = (np.arange(5) * (1 + 2j)).astype(np.complex64), np.arange(1, 4, dtype=np.float32)
    i = np.arange(5) if value == "pad(B(i), 1.0)" else 2 * np.arange(5)
    expected = a[::-1] + np.where(i < 3, b[np.minimum(i, 2)], 1)
    np.testing.assert_array_equal(polyc.compile(text)(a, b), expected)


def test_a_real_factor_scales_both_parts() -> None:
    text = "def f(complex64(N) z, float(N) x) -> (p, q) { p(i) = z(i) * complex64(x(i))  q(i) = z(i) / complex64(x(i)) }"
    operator = polyc.compile(text)
    z, x = np.array([complex(np.inf, 1), complex(2, -np.inf), 1 + 2j], np.complex64), np.array([2, -1, 4], np.float32)
    expected = interpret(operator.program, {"z": z, "x": x})
    for name, got in zip("pq", operator(z, x), strict=True):
        np.testing.assert_array_equal(got, expected[name])
    assert operator(z, x)[0][0] == complex(np.inf, 2)
