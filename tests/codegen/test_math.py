"""Errors of the inline functions in units in the last place, over all exponents, and NumPy's special values."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

import polyc
from polyc.codegen.functions.polynomials import INLINE
from polyc.ir.expr import Const, Select
from polyc.ir.loops import Loop, LoopNest, Store
from polyc.ir.operators import OPERATORS
from polyc.ir.types import F32, F64, I8, I16, I32, I64, U8, U16, U32, U64

from .support import LEVELS, argument, c, compiled, i, n, op, rd, strides_of
from .test_loops_to_llvm import elementwise

pytestmark = pytest.mark.optimised

BOUNDS = dict.fromkeys(INLINE, 4) | dict.fromkeys(("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt"), 2)
PI = np.longdouble("3.14159265358979323846264338327950288")


def sinpi(x):
    """Taken to a quarter turn or less first: long double's own pi is not exact enough elsewhere."""
    pi, rest = x.dtype.type(PI), np.fmod(np.abs(x), 2)
    sign = np.where(rest > 1, -1, 1)
    rest = np.where(rest > 1, rest - 1, rest)
    rest = np.where(rest > 0.5, 1 - rest, rest)
    return np.copysign(1, x) * sign * np.where(rest > 0.25, np.cos(pi * (0.5 - rest)), np.sin(pi * rest))


def cospi(x):
    pi, rest = x.dtype.type(PI), np.fmod(np.abs(x), 2)
    rest = np.where(rest > 1, 2 - rest, rest)
    return np.where(rest < 0.25, np.cos(pi * rest), np.where(rest > 0.75, -np.cos(pi * (1 - rest)), sinpi(0.5 - rest)))


EXACT = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "sinpi": sinpi,
    "cospi": cospi,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    # double is exact to half an ulp or so: enough for bounds of four
    "erf": lambda x: np.array([math.erf(v) for v in x.tolist()], np.longdouble),
    "erfc": lambda x: np.array([math.erfc(v) for v in x.tolist()], np.longdouble),
}


def function_nest(name, dtype, kind="vector", arity=1):
    names = ["X", "Z"][:arity]
    arguments = [argument(a, dtype, (n("N"),), k) for k, a in enumerate(names)]
    y = argument("Y", dtype, (n("N"),), arity)
    value = op(name, *(rd(a, i("i")) for a in names))
    loop = Loop("i", c(0), n("N"), 1, kind, (Store("Y", (i("i"),), value),), lanes=16, interleave=1)
    return LoopNest("f", ("N", *strides_of(*arguments, y)), (*arguments, y), (loop,))


@functools.cache
def compiled_function(name, dtype, level, kind, arity):
    return compiled(function_nest(name, dtype, kind, arity), level)


def apply(name, x, dtype, level="host", kind="vector", *more):
    y = np.empty_like(x)
    code = compiled_function(name, dtype, level, kind, 1 + len(more))
    code.run({"X": x, "Y": y, **dict(zip("Z", more, strict=False))}, {"N": x.size})
    return y


@functools.cache
def sample32():
    """Every 16411th float of either sign, and the neighbourhoods where forms change."""
    bits = np.arange(0, 1 << 32, 16411, dtype=np.uint64).astype(np.uint32)
    edges = [
        0.0,
        0.5,
        1.0,
        1.5,
        math.pi / 2,
        math.pi,
        -1.0,
        2**-126,
        2**-24,
        1e5,
        2**26,
        88.72284,
        89,
        -87.33655,
        -103.97,
        -104,
        0.9277344,
        0.35,
        9.01,
        10,
        4,
        math.sqrt(0.5),
        128,
        -149,
    ]
    near = [(np.float32(e).view(np.uint32).astype(np.int64) + np.arange(-1000, 1000)) & 0xFFFFFFFF for e in edges]
    values = np.concatenate([bits, *(v.astype(np.uint32) for v in near)]).view(np.float32)
    return values[~np.isnan(values)]


def sample64(rng):
    spread = rng.standard_normal(10000) * 10.0 ** rng.uniform(-300, 300, 10000)
    near = np.concatenate([rng.uniform(-1, 1, 10000), rng.uniform(-745, 710, 10000), rng.uniform(0.5, 2, 10000)])
    near = np.concatenate([near, rng.uniform(-100, 100, 10000), rng.uniform(-1e7, 1e7, 10000)])
    return np.concatenate([spread, near, np.exp(rng.uniform(-744, -700, 2000)), rng.uniform(-6, 6, 20000)])


def last_places(exact, dtype):
    """Units in the last place of `exact` in a floating-point type of NumPy, denormals included."""
    info = np.finfo(dtype)
    exponent = np.where(np.isfinite(exact) & (exact != 0), np.frexp(exact)[1] - 1, info.minexp)
    return np.ldexp(np.float64(1) if dtype == np.float32 else np.longdouble(1), np.maximum(exponent, info.minexp) - info.nmant)


def ulp_error(got, exact, unit=None):
    """|got - exact| in units of the last place of `exact` in the type of `got`, denormals included."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        overflow = np.isinf(rounded)
        wide = got.astype(np.promote_types(exact.dtype, np.float64))
        error = np.abs(wide - exact) / (last_places(exact, got.dtype) if unit is None else unit)
        top = np.abs(got) >= np.nextafter(np.finfo(got.dtype).max, 0)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded)) | (overflow & top)
    return np.where(same, 0, error)


def exact_of(name, x):
    """The function of x in a wider type: doubles have 29 bits more than the floats that they are to judge."""
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)
        return EXACT.get(name, getattr(np, name, None))(wide)


@functools.lru_cache(maxsize=1)
def exact_sample(name, dtype):
    """Arguments of all sizes, the values of a function there, and their last places: the levels of a test follow each other."""
    x = sample32() if dtype == F32 else sample64(np.random.default_rng(3))
    exact = exact_of(name, x)
    return x, exact, last_places(exact, dtype.numpy)


@pytest.mark.pairs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", sorted(BOUNDS))
@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
def test_error_bound(dtype, name, level):
    x, exact, unit = exact_sample(name, dtype)
    error = ulp_error(apply(name, x, dtype, level), exact, unit)
    worst = np.nanargmax(np.where(np.isnan(error), np.inf, error))
    assert error[worst] <= BOUNDS[name], (name, x[worst], error[worst])


@pytest.mark.parametrize("level", LEVELS)
def test_exponentials_below_40_have_the_bits_of_all_others(level):
    x = np.concatenate(
        [np.linspace(-110, 40, 4001, dtype="f4"), -np.geomspace(1e-40, 3e38, 999, dtype="f4"), [0, -np.inf, np.nan]]
    )
    x = x.astype("f4")
    np.testing.assert_array_equal(apply("exp_below", x, F32, level), apply("exp", x, F32, level))


SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1.0,
    -1.0,
    0.5,
    -2.5,
    1e-40,
    -1e-40,
    3e38,
    -3e38,
    2e5,
    -1e-45,
    2.0,
    3.0,
    -7.0,
    1e-20,
]


@pytest.mark.pairs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", [*INLINE, "sqrt", "floor", "ceil", "trunc", "rint"])
def test_special_values_are_those_of_numpy(name, dtype, level):
    x = np.array(SPECIAL, dtype.numpy)
    with np.errstate(all="ignore"):
        want = exact_of(name, x).astype(dtype.numpy)
    got = apply(name, x, dtype, level)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=1e-6)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.each
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_scalar_and_vector_code_give_the_same_bits(name, level):
    x = sample32()[::29]
    vector, scalar = apply(name, x, F32, level), apply(name, x, F32, level, "serial")
    np.testing.assert_array_equal(vector, scalar)


@pytest.mark.each
@pytest.mark.parametrize("lanes", [1, 3, 32])
@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_any_number_of_lanes_gives_the_same_bits(name, dtype, lanes):
    x = np.random.default_rng(2).uniform(-3, 3, 96).astype(dtype.numpy)
    x[::7] = 1e9
    y = np.empty_like(x)
    nest = elementwise(op(name, rd("X", i("i"))), dtype, dtype, lanes, kind="vector" if lanes > 1 else "serial")
    compiled(nest).run({"X": x, "Y": y}, {"N": x.size})
    np.testing.assert_array_equal(y, apply(name, x, dtype))


@pytest.mark.parametrize("level", LEVELS)
def test_sines_of_huge_arguments_beside_small_ones(level):
    """The C library takes over lane by lane; the others keep theirs."""
    x = np.random.default_rng(8).uniform(-4, 4, 4096).astype("f4")
    x[::5] *= np.float32(2.0) ** np.random.default_rng(9).integers(10, 126, x[::5].size)
    for name in ("sin", "cos", "tan"):
        with np.errstate(all="ignore"):
            want = getattr(np, name)(x.astype(float))
        assert ulp_error(apply(name, x, F32, level), want.astype(np.longdouble)).max() <= 4


@pytest.mark.parametrize("name", ["sin", "cos", "sinpi", "cospi", "tanh", "erf", "sigmoid"])
@pytest.mark.parametrize("level", LEVELS)
def test_bounded_functions_stay_within_their_bounds(name, level):
    for dtype, x in ((F32, sample32()), (F64, sample64(np.random.default_rng(6)))):
        got = apply(name, x, dtype, level)
        assert np.nanmax(np.abs(got)) <= 1


@pytest.mark.pairs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", ["atan2", "hypot", "rhypot"])
def test_functions_of_two_arguments(name, dtype, level):
    """Special values as NumPy's, 4 ULP over all quadrants and exponents."""
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40, -1e-40, 3e38, -3e38, 1e-20, 1e20]
    a, b = (v.ravel() for v in np.meshgrid(special, special))
    rng = np.random.default_rng(4)
    size = 10.0 ** rng.uniform(-37, 37, 20000)
    if dtype == F64:
        size = size**8
    x, y = (
        (rng.standard_normal((2, size.size)) * size),
        rng.standard_normal(size.size) * size * 10.0 ** rng.uniform(-4, 4, size.size),
    )
    with np.errstate(all="ignore"):
        a, b = (np.concatenate(v).astype(dtype.numpy) for v in ((a, x[0], x[0]), (b, x[1], y)))
        wide = a.astype(np.longdouble), b.astype(np.longdouble)
        want = np.arctan2(*wide) if name == "atan2" else np.hypot(*wide) if name == "hypot" else 1 / np.hypot(*wide)
    got = apply(name, a, dtype, level, "vector", b)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
    error = ulp_error(got, want)
    worst = np.argmax(error)
    assert error[worst] <= 4, (a[worst], b[worst], error[worst])


COMPARISONS = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}


def comparisons_nest(dtype):
    """A bit of ``Y[i]`` for each comparison of ``hypot(X[i], Z[i])`` with ``H[i]``, and for those with sides exchanged."""
    arguments = [argument(a, dtype, (n("N"),), k) for k, a in enumerate(("X", "Z", "H", "Y"))]
    root, bound = op("hypot", rd("X", i("i")), rd("Z", i("i"))), rd("H", i("i"))
    tests = [op(name, *sides) for sides in ((root, bound), (bound, root)) for name in COMPARISONS]
    value = Const(0.0, dtype)
    for k, test in enumerate(tests):
        value = value + Select(test, Const(2.0**k, dtype), Const(0.0, dtype))
    loop = Loop("i", c(0), n("N"), 1, "vector", (Store("Y", (i("i"),), value),), lanes=16, interleave=1)
    return LoopNest("f", ("N", *strides_of(*arguments)), tuple(arguments), (loop,))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [F32, F64])
def test_comparisons_with_hypot_are_those_of_the_exact_root(dtype, level):
    """Of all exponents and special values, but where the root is within two units of the bound; no root is computed."""
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -3.0, 4.0, 5.0, 1e-45, -1e-40, 3e38, 1e-20, 1e20, -1.0]
    special += [5e-324, -1e-310, 1.7e308, 1e-160, 1e155] if dtype == F64 else []
    values = np.array(special).astype(dtype.numpy)
    a, b, bound = (v.ravel() for v in np.meshgrid(values, values, values))
    rng = np.random.default_rng(4)
    exponents = rng.uniform(*((-40, 37) if dtype == F32 else (-320, 306)), 4000)
    x, y = (rng.standard_normal((2, 4000)) * 10.0**exponents).astype(dtype.numpy)
    near = np.hypot(x, y) * rng.choice(np.array([0.5, 1 - 1e-6, 1 + 1e-6, 3.0], dtype.numpy), 4000)
    a, b, bound = (np.concatenate(v) for v in ((a, x), (b, y), (bound, near)))
    with np.errstate(all="ignore"):
        root, limit = np.hypot(a.astype(np.longdouble), b.astype(np.longdouble)), bound.astype(np.longdouble)
        is_near = np.abs(root - limit) <= 2 * last_places(np.abs(limit), dtype.numpy)
        is_exact = ~is_near | ((root == limit) & np.isin(limit, [0, 1, 4, 5]))
        code, found = compiled(comparisons_nest(dtype), level), np.empty_like(a)
        assert "sqrt" not in code.text
        code.run({"X": a, "Z": b, "H": bound, "Y": found}, {"N": a.size})
        wanted = [compare(*sides) for sides in ((root, limit), (limit, root)) for compare in COMPARISONS.values()]
    for k, holds in enumerate(wanted):
        np.testing.assert_array_equal((found.astype(int) >> k & 1)[is_exact], holds[is_exact])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_absolute_values_equal_themselves_and_their_maximum(dtype):
    """Bounds that are roots are rounded, and squares are not: what is computed is compared as it is computed."""
    operator = polyc.compile(f"""def f({dtype}(N) z) -> (top, at, less) {{
      top max=! fabs(z(i))  at(i) = fabs(z(i)) >= top  less(i) = fabs(z(i)) < fabs(z(i)) }}""")
    rng = np.random.default_rng(0)
    for _ in range(20):
        z = (rng.standard_normal(30) + 1j * rng.standard_normal(30)).astype(dtype)
        _, at, less = operator(z)
        assert at.sum() == 1
        assert not less.any()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [F32, F64])
def test_powers(dtype, level):
    """C99's special cases, and 2 ULP elsewhere (float64: 3)."""
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        3.0,
        -3.0,
        0.5,
        -0.5,
        1e-40,
        3e38,
        1e9,
        -1e9,
        np.inf,
        -np.inf,
        np.nan,
        16777217.0,
    ]
    if dtype == F64:
        special += [1e-310, -1e-310, 1.5e308, 1 - 2.0**-53, 1 + 2.0**-52, 2.0**53 + 2, -(2.0**60), 1e300, 5e-324]
    a, b = (v.ravel().astype(dtype.numpy) for v in np.meshgrid(special, special))
    rng = np.random.default_rng(1)
    range = 80 if dtype == F32 else 700
    x = np.exp(rng.uniform(-range, range, 20000)).astype(dtype.numpy)
    x[::3] = rng.uniform(0.5, 2, x[::3].size)
    x[::5] = -x[::5]
    y = (rng.uniform(-range, range, x.size) / np.maximum(1e-3, np.abs(np.log(np.abs(x))))).astype(dtype.numpy)
    y[::5] = np.rint(y[::5])
    a, b = np.concatenate([a, x]), np.concatenate([b, y])
    with np.errstate(all="ignore"):
        exact = np.power(a.astype(np.longdouble), b.astype(np.longdouble))
        # longdouble keeps more exponents, so signs and NaN are those of float64
        plain = np.power(a.astype(float), b.astype(float))
    got = apply("pow", a, dtype, level, "vector", b)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(plain))
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(got)], np.signbit(plain)[~np.isnan(got)])
    assert np.nanmax(ulp_error(got, exact)) <= (2 if dtype == F32 else 3)


@pytest.mark.each
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "exponent", [*range(9), -1, -2, -3, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.3, -7, 9, 10, 16, 21, 63, 64, 65, -9, -16]
)
@pytest.mark.parametrize("dtype", [F32, F64])
def test_constant_powers(dtype, exponent, level):
    info = np.finfo(dtype.numpy)
    largest = np.log(float(info.max)) / max(1, abs(exponent)) * 1.05
    x = np.random.default_rng(3).uniform(-largest, largest, 3000)
    with np.errstate(over="ignore"):
        x = np.array([*SPECIAL, 3.7, 1e10, 0.1, *np.exp(x), *-np.exp(x[::5])]).astype(dtype.numpy)
    y = np.empty_like(x)
    nest = elementwise(op("pow", rd("X", i("i")), Const(float(exponent), dtype)), dtype, dtype, 16)
    compiled(nest, level).run({"X": x, "Y": y}, {"N": x.size})
    with np.errstate(all="ignore"):
        plain = np.power(x.astype(float), np.full(x.size, dtype.numpy.type(exponent), float))
        exact = np.power(x.astype(np.longdouble), np.longdouble(dtype.numpy.type(exponent)))
    np.testing.assert_array_equal(np.isnan(y), np.isnan(plain))
    np.testing.assert_array_equal(np.signbit(y)[~np.isnan(y)], np.signbit(plain)[~np.isnan(y)])
    np.testing.assert_array_equal(y[np.isinf(plain)], plain[np.isinf(plain)].astype(dtype.numpy))
    assert np.nanmax(ulp_error(y, exact)) <= 4


def _pairs_of_all_sizes(dtype):
    """Operands with quotients of all sizes, near integers and halves too, and all pairs of special values."""
    info = np.finfo(dtype.numpy)
    special = [0.0, 1.0, 3.0, 0.5, 1e5, info.max, info.tiny, info.smallest_subnormal, np.inf, np.nan]
    a, b = (v.ravel() for v in np.meshgrid([*special, *(-v for v in special)], [*special, *(-v for v in special)]))
    rng = np.random.default_rng(7)
    y = rng.standard_normal(30000) * 10.0 ** rng.uniform(-30, 30, 30000)
    ratio = 10.0 ** rng.uniform(-3, 9, y.size)
    ratio[::3] = np.rint(ratio[::3])
    ratio[1::3] = np.rint(ratio[1::3]) + 0.5
    y = y.astype(dtype.numpy)
    with np.errstate(over="ignore"):
        x = y * (ratio * rng.choice([-1, 1], y.size)).astype(dtype.numpy)
    x[::2] = np.nextafter(x[::2], dtype.numpy.type(0))
    # Vectors of ordinary operands alone go another way than those with others among them.
    return np.concatenate([x, a]).astype(dtype.numpy), np.concatenate([y, b]).astype(dtype.numpy)


@pytest.mark.pairs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", ["fmod", "remainder", "nextafter", "mod", "floordiv"])
def test_exact_functions_of_two_arguments(name, dtype, level):
    """The same bits as NumPy's or C's, whatever the quotient: signs of zeros, infinities, NaN and denormal numbers included."""

    def nearest(a, b):
        if np.isnan(a) or np.isnan(b) or np.isinf(a) or b == 0:
            return np.nan
        return math.remainder(a, b)

    functions = {"remainder": np.vectorize(nearest, otypes=[float]), "mod": np.mod, "floordiv": np.floor_divide}
    a, b = _pairs_of_all_sizes(dtype)
    with np.errstate(all="ignore"):
        want = functions.get(name, getattr(np, name, None))(a, b).astype(dtype.numpy)
    got = apply(name, a, dtype, level, "vector", b)
    np.testing.assert_array_equal(got, want)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(want)[number])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["lgamma", "tgamma"])
def test_float32_gamma_functions(name, level):
    """2 ULP, beside their zeros too; C's values at poles and infinities."""
    rng = np.random.default_rng(10)
    near = np.float32([1, 1, 2, 2, -2.457025, -3.1435807]) + np.arange(-30, 31)[:, None] * np.float32(2.4e-7)
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, -2.0, -1e9, 1.0, 2.0, 35.0, 35.1, 1e-40, -1e-40, 3e38, -3e38]
    spread = rng.standard_normal(3000) * 10.0 ** rng.uniform(-30, 10, 3000)
    x = np.concatenate([ends, near.ravel(), rng.uniform(-45, 45, 6000), spread]).astype("f4")

    def exact(v):
        if np.isnan(v) or (v < 0 and v == np.floor(v)) or v == 0 or np.isinf(v):
            at_zero = np.copysign(np.inf, v) if v == 0 else v if v > 0 else np.nan
            return at_zero if name == "tgamma" else np.nan if np.isnan(v) else np.inf
        try:
            return math.lgamma(v) if name == "lgamma" else math.gamma(v)
        except OverflowError:
            return np.inf if v > 0 or np.floor(v) % 2 == 0 else -np.inf

    want = np.array([exact(float(v)) for v in x], np.longdouble)
    got = apply(name, x, F32, level)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    with np.errstate(over="ignore"):
        assert np.nanmax(ulp_error(got, want)) <= 2


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [F32, F64])
def test_exponents(dtype, level):
    info = np.finfo(dtype.numpy)
    x = np.concatenate([sample32() if dtype == F32 else sample64(np.random.default_rng(8)), [0, -0.0, np.inf, -np.inf, np.nan]])
    x = np.concatenate([x, [info.tiny, info.smallest_subnormal, info.max, 1, -1, 1.5, 0.75]]).astype(dtype.numpy)
    with np.errstate(all="ignore"):
        want = np.where(np.isfinite(x) & (x != 0), np.frexp(x)[1] - 1.0, np.where(x == 0, -np.inf, np.abs(x)))
    np.testing.assert_array_equal(apply("logb", x, dtype, level), want)


@pytest.mark.pairs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [I8, U8, I16, U16, I32, U32, I64, U64], ids=str)
@pytest.mark.parametrize("name", ["floordiv", "mod", "pow"])
def test_integers_divide_and_multiply_in_vectors(name, dtype, level):
    """Quotients next to integers, the ends of the range, and divisors 0 and -1 are NumPy's."""
    info = np.iinfo(dtype.numpy)
    ends = [
        info.min,
        info.min + 1,
        -3,
        -1,
        0,
        1,
        2,
        7,
        info.max // 2,
        info.max - 1,
        info.max,
        1 << 52,
        (1 << 53) + 1,
        -(1 << 52),
    ]
    ends = [v for v in ends if info.min <= v <= info.max]
    a, b = (v.ravel() for v in np.meshgrid(np.array(ends, dtype.numpy), np.array(ends, dtype.numpy)))
    rng = np.random.default_rng(9)
    y = rng.integers(1, min(info.max, 1 << 26), 4000, dtype=dtype.numpy)
    x = (y * rng.integers(0, min(info.max, 1 << 26), y.size, dtype=dtype.numpy)).astype(dtype.numpy) - rng.integers(
        0, 2, y.size
    ).astype(dtype.numpy)
    a, b = np.concatenate([x, a]), np.concatenate([y, b])
    if name == "pow":
        b = (b % dtype.numpy.type(71)).astype(dtype.numpy)
    function = {"floordiv": np.floor_divide, "mod": np.mod, "pow": np.power}[name]
    with np.errstate(all="ignore"):
        want = function(a, b)
    np.testing.assert_array_equal(apply(name, a, dtype, level, "vector", b), want)


ONE_ARGUMENT = [k for k, v in OPERATORS.items() if v.result == "float" and v.arity == 1]
TWO_ARGUMENTS = ["atan2", "copysign", "fdim", "fmod", "hypot", "rhypot", "nextafter", "remainder", "pow", "truediv"]
REFERENCE = {
    "exp10": lambda x: 10.0**x,
    "logb": lambda x: np.floor(np.log2(np.abs(x))),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sinpi": lambda x: np.sin(np.pi * x),
    "cospi": lambda x: np.cos(np.pi * x),
    "erf": np.vectorize(math.erf),
    "erfc": np.vectorize(math.erfc),
    "lgamma": np.vectorize(math.lgamma),
    "tgamma": np.vectorize(math.gamma),
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "atan2": np.arctan2,
    "fdim": lambda a, b: np.maximum(a - b, 0),
    "rhypot": lambda a, b: 1 / np.hypot(a, b),
    "remainder": np.vectorize(math.remainder),
    "pow": np.power,
    "truediv": np.divide,
    "exp_below": np.exp,
}


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", ONE_ARGUMENT + TWO_ARGUMENTS)
def test_every_function_links_and_computes(name, dtype):
    rng = np.random.default_rng(5)
    x, z = (rng.uniform(0.05, 0.95, 21).astype(dtype.numpy) for _ in range(2))
    if name == "acosh":
        x += 1
    arguments = [x] if name in ONE_ARGUMENT else [x, z]
    got = apply(name, x, dtype, "host", "vector", *arguments[1:])
    function = REFERENCE.get(name) or getattr(np, name)
    want = function(*(a if name == "nextafter" else a.astype(float) for a in arguments)).astype(dtype.numpy)
    np.testing.assert_allclose(got, want, rtol=2e-6 if dtype == F32 else 1e-13)
