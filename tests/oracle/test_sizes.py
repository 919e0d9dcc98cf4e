"""Operators of every kind at sizes around their tiles and vectors, through kernels with constant and with symbolic sizes."""

import itertools

import numpy as np
import pytest

from tests.oracle.programs import agree, draw, for_any_sizes, operator

ODD = (0, 1, 2, 7, 15, 16, 17, 33)
"""Around vectors of 4, 8 and 16 and the register tiles made of them; primes between."""

ONE_SIZE = {
    "elementwise": "def f(float(N) X, float(N) Y) -> (O) { O(i) = X(i) * Y(i) + 1.5 }",
    "function": "def f(float(N) X) -> (O) { O(i) = tanh(X(i)) + exp(X(i)) }",
    "shift": "def f(float(N) X) -> (O) { O(i) = pad(X(i - 1), 0.0) + X(i) + pad(X(i + 1), 0.0) where i in 0:N }",
    "stencil": "def f(float(N) X) -> (O) { O(i) = X(i) + X(i + 1) * X(i + 2) }",
    "guard": "def f(float(N) X) -> (O) { O(i) = i > 0 ? X(i - 1) : X(i) where i in 0:N }",
    "sum": "def f(float(N) X) -> (O) { O +=! X(i) }",
    "maximum": "def f(float(N) X) -> (O, Q) { O max=! X(i) Q min=! X(i) }",
    "product": "def f(double(N) X) -> (O) { O *=! 1.0 + X(i) * 0.0625 }",
    "softmax": """def f(float(N) X) -> (O) {
        M max=! X(i)  E(i) = exp(X(i) - M)  S +=! E(i)  O(i) = E(i) / S }""",
    "outer": "def f(float(N) X) -> (O) { O(i, j) = X(i) * X(j) }",
    "reverse": "def f(float(N) X) -> (O) { O(i) = X(N - 1 - i) where i in 0:N }",
    "stride": "def f(float(N) X) -> (O) { O(i) = X(2 * i) }",
    "convolution": "def f(float(N) X, float(3) W) -> (O) { O(i) +=! X(i + k) * W(k) }",
    "iota": "def f(float(N) X) -> (O) { O(i) = X(i) + float(i) }",
    "gather": "def f(float(8) T, int32(N) Index) -> (O) { O(i) = T(Index(i)) }",
    "tree": "def f(float(N, N) X) -> (O) { O(i) +=! X(i, j) * X(j, i) }",
}

TWO_SIZES = {
    "row_sum": "def f(float(M,N) X) -> (O) { O(i) +=! X(i,j) }",
    "column_sum": "def f(float(M,N) X) -> (O) { O(j) +=! X(i,j) }",
    "all_sum": "def f(float(M,N) X) -> (O) { O +=! X(i,j) }",
    "row_softmax": """def f(float(M,N) X) -> (O) {
        Q(i) max=! X(i,j)  E(i,j) = exp(X(i,j) - Q(i))  S(i) +=! E(i,j)  O(i,j) = E(i,j) / S(i) }""",
    "layernorm": """def f(float(M,N) X, float(N) G, float(N) B) -> (O) {
        U(i) +=! X(i,j)  V(i) +=! (X(i,j) - U(i) / N) * (X(i,j) - U(i) / N)
        O(i,j) = (X(i,j) - U(i) / N) * rsqrt(V(i) / N + 0.001) * G(j) + B(j) }""",
    "transpose": "def f(float(M,N) X) -> (O) { O(j,i) = X(i,j) }",
    "transposed_sum": "def f(float(M,N) X, float(N,M) Y) -> (O) { O(i,j) = X(i,j) + Y(j,i) }",
    "matvec": "def f(float(M,N) A, float(N) X) -> (O) { O(i) +=! A(i,j) * X(j) }",
    "vecmat": "def f(float(M,N) A, float(M) X) -> (O) { O(j) +=! A(i,j) * X(i) }",
    "both": "def f(float(M,N) A) -> (R, C) { R(i) +=! A(i,j)  C(j) max=! A(i,j) }",
    "broadcast": "def f(float(M) X, float(N) Y) -> (O) { O(i,j) = X(i) - Y(j) }",
    "pool": "def f(float(M,N) X) -> (O) { O(i,j) max=! X(2 * i + a, 2 * j + b) where a in 0:2, b in 0:2 }",
    "gather_rows": "def f(float(M,N) T, int32(5) Index) -> (O) { O(k,j) = T(Index(k), j) }",
    "bag": "def f(float(9,N) T, int32(M,3) Index) -> (O) { O(b,j) +=! T(Index(b,k), j) }",
}

MATMUL = {
    f"matmul_{a}_{b}_{c}": (
        f"def f(float({','.join(a)}) A, float({','.join(b)}) B) -> (C) "
        f"{{ C({','.join(c).lower()}) +=! A({','.join(a).lower()}) * B({','.join(b).lower()}) }}"
    )
    for a, b, c in itertools.product(("MK", "KM"), ("KN", "NK"), ("MN", "NM"))
}


@pytest.mark.parametrize("name", ONE_SIZE)
def test_one_size_symbolic(name):
    op = operator(ONE_SIZE[name])
    kernel = for_any_sizes(op)
    for n in (*ODD, 31, 63, 64, 65, 130):
        if (n == 0 and name in ("gather",)) or (n < 3 and name in ("stencil", "convolution")):
            continue
        agree(op, draw(op, {"N": n}, index_bound=8), {"N": n}, call=kernel)


@pytest.mark.parametrize("name", ONE_SIZE)
def test_one_size_constant(name):
    op = operator(ONE_SIZE[name])
    for n in (0, 1, 17):
        if n < 3 and name in ("stencil", "convolution"):
            continue
        agree(op, draw(op, {"N": n}, index_bound=8), {"N": n})


@pytest.mark.parametrize("name", TWO_SIZES)
def test_two_sizes_symbolic(name):
    op = operator(TWO_SIZES[name])
    kernel = for_any_sizes(op)
    for m, n in itertools.product((0, 1, 3, 8, 17), (0, 1, 5, 16, 35)):
        if name == "gather_rows" and m == 0:
            continue
        sizes = {"M": m, "N": n}
        agree(op, draw(op, sizes, index_bound=9 if name == "bag" else max(m, 1)), sizes, call=kernel)


@pytest.mark.parametrize("name", TWO_SIZES)
def test_two_sizes_constant(name):
    op = operator(TWO_SIZES[name])
    for m, n in ((1, 1), (3, 0), (7, 17)):
        sizes = {"M": m, "N": n}
        agree(op, draw(op, sizes, index_bound=9 if name == "bag" else max(m, 1)), sizes)


@pytest.mark.parametrize("name", MATMUL)
def test_matmul_in_all_transpositions(name):
    op = operator(MATMUL[name])
    kernel = for_any_sizes(op)
    shapes = [
        (1, 1, 1),
        (2, 3, 4),
        (5, 31, 2),
        (6, 32, 7),
        (7, 33, 3),
        (24, 16, 9),
        (25, 17, 1),
        (13, 64, 0),
        (0, 5, 5),
        (3, 0, 3),
    ]
    for m, n, k in shapes:
        sizes = {"M": m, "N": n, "K": k}
        agree(op, draw(op, sizes), sizes, call=kernel)
    sizes = {"M": 7, "N": 33, "K": 5}
    agree(op, draw(op, sizes), sizes)


REDUCTIONS = {
    "sum": ("O +=! X(i)", "float"),
    "squares": ("O +=! X(i) * X(i)", "double"),
    "max": ("O max=! X(i)", "float"),
    "count": ("O +=! X(i)", "int64"),
    "least": ("O min=! X(i)", "uint8"),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_large_reductions_are_the_same_at_any_number_of_threads(name):
    import polyc

    statement, dtype = REDUCTIONS[name]
    op = operator(f"def f({dtype}(N) X) -> (O) {{ {statement} }}")
    kernel = for_any_sizes(op)
    for n in ((1 << 17) - 1, 1 << 17, (1 << 17) + 1, 300_007):
        arrays = draw(op, {"N": n})
        found = []
        for call, threads in itertools.product((op, kernel), (1, 2, 3)):
            polyc.set_num_threads(threads)
            try:
                found.append(agree(op, arrays, {"N": n}, call=call)["O"])
            finally:
                polyc.set_num_threads(None)
        for group in (found[:3], found[3:]):
            assert len({x.tobytes() for x in group}) == 1


def test_more_threads_than_iterations():
    import polyc

    polyc.set_num_threads(7)
    try:
        op = operator(TWO_SIZES["row_softmax"])
        for call in (op, for_any_sizes(op)):
            for m in (1, 2, 3, 8):
                sizes = {"M": m, "N": 20_000}
                agree(op, draw(op, sizes), sizes, call=call)
    finally:
        polyc.set_num_threads(None)


def test_source_order_sums_to_the_bit():
    texts = ("def f(float(N) X) -> (O) { O +=! X(i) }", "def f(float(N) X, float(N) Y) -> (O) { O +=! X(i) * Y(i) }")
    for target in ("x86-64-v2", "host"):
        for n in (1, 17, 1000, 1 << 17):
            op = operator(texts[0], reassociate=False, target=target)
            (x,) = draw(op, {"N": n})
            assert op(x).tobytes() == np.cumsum(x, dtype=np.float32)[-1].tobytes()
    rows = operator(TWO_SIZES["row_sum"], reassociate=False)
    x = draw(rows, {"M": 40, "N": 50})[0]
    assert rows(x).tobytes() == np.cumsum(x, axis=1, dtype=np.float32)[:, -1].copy().tobytes()
    columns = operator(TWO_SIZES["column_sum"], reassociate=False)
    assert columns(x).tobytes() == np.cumsum(x, axis=0, dtype=np.float32)[-1].copy().tobytes()
