"""Views of every kind as inputs and results, results over inputs, every element type, NaN and infinities."""

import numpy as np
import pytest

import polyc
from tests.oracle.programs import TYPES, agree, draw, for_any_sizes, operator
from tests.property.pipeline import LEVELS, pinned

pytestmark = pytest.mark.optimised


def layouts(a: np.ndarray) -> dict[str, np.ndarray]:
    """The same values in other places: all of the shape and (but for `broadcast`) the content of `a`."""
    m, n = a.shape
    wide = np.full((2 * m, 3 * n + 1), 99, a.dtype)
    strided = wide[::2, 1::3][:m, :n]
    strided[...] = a
    column = np.full((m, n + 5), 99, a.dtype)[:, 2 : n + 2]
    column[...] = a
    return {
        "contiguous": a.copy(),
        "transposed": np.asfortranarray(a),
        "strided": strided,
        "rows": column,
        "negative": np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
        "negative_rows": np.ascontiguousarray(a[::-1])[::-1],
        "broadcast_row": np.broadcast_to(a[:1], a.shape),
        "broadcast_column": np.broadcast_to(a[:, :1], a.shape),
        "broadcast_all": np.broadcast_to(a[0, 0], a.shape),
    }


VIEWED = {
    "elementwise": "def f(float(M,N) X, float(M,N) Y) -> (O) { O(i,j) = X(i,j) * 2.0 + Y(i,j) }",
    "transpose": "def f(float(M,N) X, float(M,N) Y) -> (O) { O(j,i) = X(i,j) - Y(i,j) }",
    "rows": "def f(float(M,N) X, float(M,N) Y) -> (O, P) { O(i) +=! X(i,j) * Y(i,j)  P(j) max=! X(i,j) + O(i) }",
    "product": "def f(float(M,K) X, float(N,K) Y) -> (O) { O(i,j) +=! X(i,k) * Y(j,k) }",
    "window": "def f(float(M,N) X, float(M,N) Y) -> (O) { O(i,j) max=! X(i, j + k) * Y(i,j) where k in 0:3 }",
}


@pytest.mark.parametrize("name", VIEWED)
def test_views_as_inputs(name):
    op = operator(VIEWED[name])
    sizes = {"M": 18, "N": 18, "K": 35} if name == "product" else {"M": 18, "N": 35}
    x, y = draw(op, sizes)
    kernel = for_any_sizes(op)
    for layout, view in layouts(x).items():
        agree(op, [view, y], sizes, call=kernel)
        agree(op, [y, view], sizes, call=kernel)
        if layout != "rows":
            agree(op, [view, layouts(y)["strided"]], sizes)


@pytest.mark.parametrize("layout", ["transposed", "strided", "rows", "negative"])
def test_views_as_results(layout):
    for name in ("elementwise", "transpose", "product"):
        op = operator(VIEWED[name])
        sizes = {"M": 18, "N": 19, "K": 35} if name == "product" else {"M": 18, "N": 35}
        arrays = draw(op, sizes)
        expected = op(*arrays)
        for call in (op, for_any_sizes(op)):
            out = layouts(np.zeros_like(expected))[layout]
            around = out.base.copy() if out.base is not None and layout in ("strided", "rows") else None
            assert call(*arrays, out=out) is out
            np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
            if around is not None:  # nothing but the elements of the view was written
                out[...] = 0
                np.testing.assert_array_equal(out.base, around)


def test_zero_strides_of_length_one():
    op = operator("def f(float(M,N) X) -> (O) { O(i,j) = X(i,j) + 1.0 }")
    for shape, strides in (((1, 9), (0, 4)), ((9, 1), (4, 0)), ((1, 1), (0, 0)), ((1, 9), (-400, 4)), ((9, 1), (4, 12345))):
        x = np.lib.stride_tricks.as_strided(np.arange(16, dtype=np.float32), shape, strides)
        agree(op, [x], dict(zip("MN", shape, strict=True)))


@pytest.mark.filterwarnings("ignore::polyc.PolycWarning")
def test_accumulated_outputs():
    op = operator("def f(float(M,K) A, float(K,N) B) -> (C) { C(i,j) += A(i,k) * B(k,j) }")
    for m, n, k in ((1, 1, 1), (6, 16, 3), (7, 33, 65), (5, 4, 0), (0, 4, 3)):
        sizes = {"M": m, "N": n, "K": k}
        for call in (op, for_any_sizes(op)):
            out = np.arange(m * n, dtype=np.float32).reshape(m, n)
            agree(op, draw(op, sizes), sizes, out={"C": out}, call=call)
        out = np.arange(m * n, dtype=np.float32).reshape(n, m).T
        agree(op, draw(op, sizes), sizes, out={"C": out})
    total = operator("def f(float(N) X) -> (S, T) { S += X(i)  T(i) max=! X(i) + S }")
    for n in (0, 1, 33, 1 << 17):
        agree(total, draw(total, {"N": n}), {"N": n}, out={"S": np.array(3, np.float32)})


SAFE_IN_PLACE = {
    "relu": "def f(float(N) X, float(N) Y) -> (O) { O(i) = fmax(X(i), 0.0) + Y(i) }",
    "two_steps": "def f(float(N) X, float(N) Y) -> (O) { T(i) = X(i) * Y(i)  O(i) = T(i) + X(i) }",
}
UNSAFE_IN_PLACE = {
    "shift": "def f(float(N) X, float(N) Y) -> (O) { O(i) = (i > 0 ? X(i - 1) : Y(i)) where i in 0:N }",
    "reverse": "def f(float(N) X, float(N) Y) -> (O) { O(i) = X(N - 1 - i) + Y(i) where i in 0:N }",
    "sum": "def f(float(N) X, float(N) Y) -> (O) { S +=! X(i)  O(i) = Y(i) + X(i) * S  P(i) = O(i) }",
    "gather": "def f(float(N) X, int32(N) Index) -> (O) { O(i) = X(Index(i)) }",
}


@pytest.mark.parametrize("name", SAFE_IN_PLACE)
@pytest.mark.parametrize("n", [1, 17, 100_000])
def test_result_over_an_input_where_it_is_safe(name, n):
    op = operator(SAFE_IN_PLACE[name])
    x, y = draw(op, {"N": n})
    expected = op(x, y)
    for a, b in ((x.copy(), y), (x[::-1].copy()[::-1], y)):
        assert op(a, b, out=a) is a
        np.testing.assert_array_equal(a, expected)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", SAFE_IN_PLACE)
def test_kernel_made_for_arrays_of_their_own_writes_no_wrong_result_over_an_input(name, level):
    """Without masks the last vector is moved back over elements that are results by then."""
    call = polyc.compile(SAFE_IN_PLACE[name], target=level).lower().compile()
    for n in (17, 100):
        x, y = np.random.default_rng(n).standard_normal((2, n), "f4")
        a, expected = x.copy(), call(x, y)
        try:
            call(a, y, out=a)
        except polyc.PolycError as error:
            assert error.code == "unsupported-alias" and not pinned(level).has_masks
            expected = x
        np.testing.assert_array_equal(a, expected)


@pytest.mark.parametrize("name", UNSAFE_IN_PLACE)
@pytest.mark.parametrize("n", [17, 100_000])
def test_result_over_an_input_where_it_may_be_unsafe(name, n):
    """Either it is refused and nothing is written, or the result is right."""
    op = operator(UNSAFE_IN_PLACE[name])
    x, y = draw(op, {"N": n}, index_bound=n)
    for call in (op, for_any_sizes(op)):
        a, expected = x.copy(), call(x, y)
        try:
            call(a, y, out=a)
        except polyc.PolycError as error:
            assert error.code == "unsupported-alias"
            np.testing.assert_array_equal(a, x)
        else:
            np.testing.assert_array_equal(a, expected)


def test_partly_overlapping_result_is_refused():
    op = operator("def f(float(N) X) -> (O) { O(i) = X(i) + 1.0 }")
    memory = np.zeros(100, np.float32)
    for out in (memory[1:51], memory[:50][::-1]):
        with pytest.raises(polyc.PolycError):
            op(memory[:50], out=out)
    op(memory[0::2], out=memory[1::2])
    assert (memory[1::2] == 1).all() and not memory[0::2].any()


ARITHMETIC = (
    "O(i) = X(i) * Y(i) + X(i) - Y(i)  R +=! X(i) * Y(i)  H max=! X(i)  L min=! Y(i)  P(i) = (X(i) < Y(i) ? X(i) : Y(i))"
)


@pytest.mark.pairs
@pytest.mark.parametrize("dtype", [t for t in TYPES if t != "bool"])
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize(("n", "is_fixed"), [(37, True), (130, True), (130, False)])
def test_every_element_type(dtype, target, n, is_fixed):
    text = f"def f({TYPES[dtype]}(N) X, {TYPES[dtype]}(N) Y) -> (O, R, H, L, P) {{ {ARITHMETIC} }}"
    op = operator(text, target=target)
    arrays = draw(op, {"N": n})
    if arrays[0].dtype.kind in "iu":  # the whole range: products and sums wrap around
        rng, info = np.random.default_rng(n), np.iinfo(arrays[0].dtype)
        arrays = [rng.integers(info.min, info.max, n, dtype=a.dtype, endpoint=True) for a in arrays]
    agree(op, arrays, {"N": n}, call=op if is_fixed else for_any_sizes(op))
    if not is_fixed:
        agree(op, [a[:1] for a in arrays], {"N": 1}, call=for_any_sizes(op))


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
def test_booleans(target):
    text = """def f(bool(N) X, bool(N) Y, float(N) Z) -> (A, B, C, D) {
        A(i) = X(i) && !Y(i)  B(i) = (X(i) || Z(i) > 0.0)  C(i) = (A(i) ? Z(i) : 1.0)  D +=! (B(i) ? 1 : 0) }"""
    op = operator(text, target=target)
    for n in (0, 1, 16, 67):
        agree(op, draw(op, {"N": n}), {"N": n})
    agree(op, draw(op, {"N": n}), {"N": n}, call=for_any_sizes(op))


CASTS = [(a, b) for a in TYPES for b in TYPES if a != b and a != "bool"]


def test_casts_between_all_element_types():
    by_source = {a: [b for x, b in CASTS if x == a] for a in TYPES if a != "bool"}
    for source, others in by_source.items():
        results = ", ".join(f"O{b}" for b in others)
        body = "  ".join(f"O{b}(i) = {TYPES[b]}(X(i))" for b in others)
        op = operator(f"def f({TYPES[source]}(N) X) -> ({results}) {{ {body} }}")
        (x,) = draw(op, {"N": 45})
        agree(op, [abs(x) if x.dtype.kind == "f" else x], {"N": 45})


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 3e38, -3e38, 1e-45, 88.8, -104.0], np.float32)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.filterwarnings("ignore")
def test_nan_and_infinities(target):
    x, y = (np.tile(SPECIAL, 28)[: 14 * 27], np.repeat(np.tile(SPECIAL, 2), 14)[: 14 * 27])
    text = """def f(float(N) X, float(N) Y) -> (A, B, C, D, E, F, G, H) {
        A(i) = fmax(X(i), Y(i))  B(i) = fmin(X(i), Y(i))  C(i) = X(i) * Y(i)  D(i) = X(i) / Y(i)
        E(i) = exp(X(i))  F(i) = log(X(i))  G(i) = tanh(X(i))  H(i) = (X(i) < Y(i) ? X(i) : Y(i)) }"""
    op = operator(text, target=target)
    agree(op, [x, y], {"N": len(x)})
    a, b, *_ = op(x, y)
    np.testing.assert_array_equal(a, np.maximum(x, y))
    np.testing.assert_array_equal(b, np.minimum(x, y))


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize(("n", "is_fixed"), [(1, False), (5, False), (16, False), (33, True), (100, False), (1 << 17, True)])
def test_nan_wins_in_maximum_and_minimum_wherever_it_stands(target, n, is_fixed):
    op = operator("def f(float(N) X) -> (H, L) { H max=! X(i)  L min=! X(i) }", target=target)
    op = op if is_fixed else for_any_sizes(op)
    for place in {0, n // 2, n - 1}:
        x = np.linspace(-1, 1, n).astype(np.float32)
        x[place] = np.nan
        high, low = op(x)
        assert np.isnan(high) and np.isnan(low)
    x = np.full(n, -np.inf, np.float32)
    assert op(x)[0] == -np.inf and op(-x)[1] == np.inf


def test_infinity_beside_the_edge_of_a_matmul_does_not_leak():
    op = operator("def f(float(M,K) A, float(K,N) B) -> (C) { C(i,j) +=! A(i,k) * B(k,j) }")
    for m, n, k in ((7, 33, 13), (25, 17, 3), (1, 1, 1)):
        a, b = draw(op, {"M": m, "N": n, "K": k})
        big_a, big_b = np.full((m + 20, k + 20), np.inf, np.float32), np.full((k + 20, n + 40), np.nan, np.float32)
        big_a[:m, :k], big_b[:k, :n] = a, b
        for call in (op, for_any_sizes(op)):
            agree(op, [big_a[:m, :k], big_b[:k, :n]], {"M": m, "N": n, "K": k}, call=call)


def test_nothing_outside_a_result_is_written():
    op = operator("def f(float(M,K) A, float(K,N) B) -> (C, R) { C(i,j) +=! A(i,k) * B(k,j)  R(i) max=! C(i,j) }")
    for m, n, k in ((7, 33, 13), (25, 17, 3), (1, 1, 1), (6, 16, 4)):
        sizes = {"M": m, "N": n, "K": k}
        arrays = draw(op, sizes)
        for call in (op, for_any_sizes(op)):
            c, r = np.full((m + 2, n + 64), 5, np.float32), np.full(m + 64, 5, np.float32)
            agree(op, arrays, sizes, out={"C": c[1:-1, 32:-32], "R": r[32:-32]}, call=call)
            c[1:-1, 32:-32], r[32:-32] = 5, 5
            assert (c == 5).all() and (r == 5).all()
