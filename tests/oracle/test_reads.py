"""Data-dependent, guarded and padded reads: right inside, a named error outside, and nothing else is touched."""

import numpy as np
import pytest

import polyc
from tests.oracle.programs import agree, draw, for_any_sizes, operator

INDEX_TYPES = {
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
}
TARGETS = ("x86-64-v2", "x86-64-v3", "host")


@pytest.mark.parametrize(
    ("dtype", "target"), [*((t, "host") for t in INDEX_TYPES), ("int8", "x86-64-v2"), ("int32", "x86-64-v3")]
)
def test_gather_by_every_integer_type(dtype, target):
    op = operator(f"def f(float(V,D) T, {dtype}(N) I) -> (O, P) {{ O(i,d) = T(I(i), d)  P(i) +=! T(I(i), d) }}", target=target)
    rng = np.random.default_rng(0)
    for n, d in ((1, 1), (7, 19), (33, 1)):
        table = rng.standard_normal((9, d)).astype(np.float32)
        index = rng.integers(0, 9, n).astype(INDEX_TYPES[dtype])
        agree(op, [table, index], {"V": 9, "D": d, "N": n})
        wrong = [np.iinfo(index.dtype).max] + ([-1, np.iinfo(index.dtype).min] if index.dtype.kind == "i" else [])
        for value in (9, *wrong):
            bad = index.copy()
            bad[n // 2] = value
            for call in (op, for_any_sizes(op)) if d == 1 else (op,):
                with pytest.raises(polyc.BoundsError, match="9"):
                    call(table, bad)


@pytest.mark.parametrize("target", TARGETS)
def test_arms_that_are_not_taken_read_nothing(target):
    op = operator(
        "def f(float(V) T, int32(N) Index) -> (O) { O(i) = (Index(i) >= 0 ? T(Index(i)) : 0.0 - 1.0) }", target=target
    )
    rng = np.random.default_rng(1)
    for n in (1, 16, 37, 70_000):
        index = rng.integers(-1_000_000_000, 9, n).astype(np.int32)
        index[: n // 2] = rng.integers(-3, 9, n // 2)
        agree(op, [rng.standard_normal(9).astype(np.float32), index], {"V": 9, "N": n})
    index[n - 1] = 9
    with pytest.raises(polyc.BoundsError):
        op(np.zeros(9, np.float32), index)


@pytest.mark.parametrize("target", TARGETS)
def test_no_read_outside_the_pages_of_an_input(target):
    """Inputs that end (and begin) at unmapped memory: a read one element too far would end the process."""
    import ctypes
    import mmap

    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 3 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    for part in (0, 2):
        assert protect(ctypes.c_void_p(base + part * page), ctypes.c_size_t(page), 0) == 0
    middle = np.frombuffer(memory, np.float32, page // 4, page)
    middle[...] = np.random.default_rng(0).standard_normal(page // 4)
    pad = "(i > 0 ? X(i - 1) : 0.0) + (i < N - 1 ? X(i + 1) : 0.0)"
    texts = [
        f"def f(float(N) X) -> (O) {{ O(i) = pad(X(i - 1), 0.0) + X(i) + pad(X(i + 2), 0.0) + {pad} where i in 0:N }}",
        "def f(float(N) X) -> (O) { O(i) = X(2 * i) }",
        "def f(float(N) X) -> (O) { O(i) = X(2 * i + 1) }",
        "def f(float(N) X) -> (O) { O(i) = X(N - 1 - i) where i in 0:N }",
        "def f(float(N) X) -> (O) { O(i) max=! X(i + k) where k in 0:3 }",
        "def f(float(N) X, float(N) Y) -> (O) { O(i, j) = X(i) * Y(j) }",
    ]
    for text in texts:
        op = operator(text, target=target)
        kernel = for_any_sizes(op)
        for n in (3, 17, 31, 64, 65):
            first, last = middle[:n], middle[-n:]
            for x in (first, last, last[::-1]):
                inputs = [x] * len(op.program.parameters)
                for call in (op, kernel) if n == 17 else (kernel,):
                    agree(op, inputs, {"N": n}, call=call)
    matmul = operator("def f(float(M,K) A, float(K,N) B) -> (C) { C(i,j) +=! A(i,k) * B(k,j) }", target=target)
    kernel = for_any_sizes(matmul)
    for m, n, k in ((7, 17, 5), (6, 33, 3), (13, 1, 9), (1, 16, 8)):
        a, b = middle[-m * k :].reshape(m, k), middle[-k * n :].reshape(k, n)
        for call in (matmul, kernel):
            agree(matmul, [a, b], {"M": m, "N": n, "K": k}, call=call)
    transposed = operator("def f(float(M,K) A, float(N,K) B) -> (C) { C(i,j) +=! A(i,k) * B(j,k) }", target=target)
    for m, n, k in ((7, 17, 5), (33, 33, 30)):
        a, b = middle[-m * k :].reshape(m, k), middle[-k * n :].reshape(n, k)
        agree(transposed, [a, b], {"M": m, "N": n, "K": k})


def test_padded_convolution_at_its_edges():
    op = operator(
        """def f(float(C,H,W) I, float(K,C,3,3) G) -> (O) {
        O(k,h,w) +=! pad(I(c,h+r-1,w+s-1), 0.0) * G(k,c,r,s) where h in 0:H, w in 0:W }"""
    )
    kernel = for_any_sizes(op)
    for c, h, w, k in ((1, 1, 1, 1), (2, 5, 17, 3), (3, 2, 33, 8), (0, 3, 3, 2)):
        sizes = {"C": c, "H": h, "W": w, "K": k}
        agree(op, draw(op, sizes), sizes, call=kernel)
    agree(op, draw(op, sizes), sizes)


@pytest.mark.pairs
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("window, stride", [(3, 2), (2, 2), (3, 1), (5, 3)])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 5, 17), (1, 16, 33), (3, 9, 112), (1, 7, 130)], ids=str)
def test_pooling_with_a_border(target, window, stride, sizes):
    """Windows that stick out on every side: which lanes are tested is known in some copies of the loops and not in others."""
    low, count = window // 2, f"(H + {stride - 1}) / {stride}"
    element = f"X(n, {stride} * h + r - {low}, {stride} * w + s - {low})"
    ranges = f"r in 0:{window}, s in 0:{window}, h in 0:{count}, w in 0:{count.replace('H', 'W')}"
    text = f"""def f(float(N,H,W) X) -> (Y, Z) {{
        Y(n,h,w) max=! pad({element}, 0.0 - 1.0) where {ranges}
        Z(n,h,w) +=! pad({element}, 0.0) where {ranges}
    }}"""
    op = operator(text, target=target)
    shape = dict(zip("NHW", sizes, strict=True))
    agree(op, draw(op, shape), shape)
