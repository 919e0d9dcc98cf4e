"""Operators through the whole compiler: layouts, dtypes, aliasing, threads, tensors of other libraries."""

# ruff: noqa: F821 (the bodies of operators use indices that Python never evaluates)
import threading

import numpy as np
import pytest

import polyc
from polyc.api.functions import forget_einsums


@polyc.op
def linear_relu(X: "f32[M, K]", W: "f32[N, K]", b: "f32[N]"):
    H[m, n] += X[m, k] * W[n, k]
    Y[m, n] = max(H[m, n] + b[n], 0)
    return Y


def make(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


W, BIAS = make(11, 13, seed=1), make(11, seed=2)


def expect(x: np.ndarray) -> np.ndarray:
    return np.maximum(x.astype(np.float64) @ W.T.astype(np.float64) + BIAS, 0)


def layouts():
    x = make(6, 13)
    wide = make(6, 26)
    yield from (x, np.asfortranarray(x), x[::-1], x[:, ::-1], wide[:, :13], wide[:, ::2], np.broadcast_to(x[:1], x.shape))
    yield from (np.broadcast_to(np.float32(2), (6, 13)), x[:0], x[2:3], make(13, 6).T)


@pytest.mark.parametrize("index", range(11))
def test_every_layout_of_an_input(index):
    x = list(layouts())[index]
    for _ in range(2):
        np.testing.assert_allclose(linear_relu(x, W, BIAS), expect(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", ["transposed", "strided", "reversed"])
def test_every_layout_of_a_result(layout):
    x = make(6, 13)
    out = {
        "transposed": np.zeros((11, 6), np.float32).T,
        "strided": np.zeros((6, 22), np.float32)[:, ::2],
        "reversed": np.zeros((6, 11), np.float32)[::-1, ::-1],
    }[layout]
    assert linear_relu(x, W, BIAS, out=out) is out
    np.testing.assert_allclose(out, expect(x), rtol=1e-4, atol=1e-5)
    if layout == "strided":
        assert not out.base[:, 1::2].any()


def test_symbolic_kernel_serves_all_sizes():
    kernel = linear_relu.specialize()
    for m in (1, 5, 8):
        x = make(m, 13, seed=m)
        np.testing.assert_allclose(kernel(x, W, BIAS), expect(x), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(kernel(np.asfortranarray(x), W[::1], BIAS), expect(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(polyc.ArgumentError, match="K is 13 since X's dimension 1 is 13"):
        kernel(x, W[:, :5].copy(), BIAS)


def test_kernel_refuses_other_sizes():
    # An operator of its own: other tests may have made the sizes of the shared one symbolic.
    kernel = polyc.op(linear_relu.__wrapped__).specialize(make(6, 13), W, BIAS)
    with pytest.raises(polyc.ArgumentError, match="X has 5 rows"):
        kernel(make(5, 13), W, BIAS)


def test_in_place_where_it_is_safe():
    relu = polyc.compile("def relu(float(N) X) -> (Y) { Y(i) = fmax(X(i), 0.0) }")
    x = make(100)
    expected = np.maximum(x, 0)
    assert relu(x, out=x) is x
    np.testing.assert_array_equal(x, expected)
    shift = polyc.compile("def shift(float(N) X) -> (float(N) Y) { Y(i) = X(N - 1 - i) where i in 0:N }")
    with pytest.raises(polyc.UnsupportedError) as caught:
        shift(x, out=x)
    assert caught.value.code == "unsupported-alias"
    np.testing.assert_array_equal(x, expected)


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    x = make(4, 13)
    out = torch.empty(4, 11)
    assert linear_relu(torch.from_numpy(x), torch.from_numpy(W), BIAS, out=out) is out
    np.testing.assert_allclose(out.numpy(), expect(x), rtol=1e-4, atol=1e-5)


def test_index_out_of_bounds_is_a_named_error_and_the_next_call_works():
    look = polyc.compile("def look(float(V) T, int32(B) I) -> (O) { O(b) = T(I(b)) }")
    table = make(9)
    for _ in range(2):
        with pytest.raises(polyc.BoundsError, match=r"(?s)9.*T\(I\(b\)\)"):
            look(table, np.array([0, 9], np.int32))
        np.testing.assert_array_equal(look(table, np.array([8, 0], np.int32)), table[[8, 0]])


def test_concurrent_calls_of_many_sizes():
    wrong = []

    def work(seed: int) -> None:
        for n in range(8):
            x = make(1 + (n + seed) % 5, 13, seed=n)
            if not np.allclose(linear_relu(x, W, BIAS), expect(x), rtol=1e-4, atol=1e-5):
                wrong.append((seed, n))

    team = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in team:
        t.start()
    for t in team:
        t.join()
    assert not wrong


def test_same_bits_at_any_number_of_threads():
    total = polyc.compile("def total(float(M, N) X) -> (s, c) { s(m) +=! X(m, n) c(n) +=! X(m, n) }")
    x = make(300, 700)
    try:
        results = []
        for n in (1, 2, 3):
            polyc.set_num_threads(n)
            results.append(total(x))
    finally:
        polyc.set_num_threads(None)
    for s, c in results[1:]:
        np.testing.assert_array_equal(s, results[0][0])
        np.testing.assert_array_equal(c, results[0][1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.uint64])
def test_open_types(dtype):
    @polyc.op
    def twice(X):
        Y[i, j] = X[i, j] + X[i, j]
        return Y

    x = np.arange(21).reshape(3, 7).astype(dtype)
    y = twice(x)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, x + x)


@pytest.mark.parametrize("way", ["compile", ""])
@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "ij,jk", "ij,ij", "ij,jk->ki", "...j,jk->...k"])
def test_einsum_of_two(subscripts, way, monkeypatch):
    monkeypatch.setenv("POLYC_EINSUM", way)
    forget_einsums()  # the decision for a shape is kept
    a = make(5, 5)
    b = make(5, 5, seed=3)
    got, expected = polyc.einsum(subscripts, a, b), np.einsum(subscripts, a, b)
    assert got.dtype == expected.dtype and np.shape(got) == np.shape(expected) and type(got) is type(expected)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_a_result_that_fits_in_no_memory():
    huge = polyc.compile("def huge(float(N) X) -> (Y) { Y(i, j) = X(i) where j in 0:1000000000000 }")
    for _ in range(2):
        with pytest.raises(polyc.ArgumentError, match=r"a result of shape \(1000, 1000000000000\) .* does not fit into memory"):
            huge(make(1000))


def test_verify_passes_on_a_chain():
    softmax = polyc.compile(
        "def softmax(float(N, D) X) -> (O) {"
        " M(n) max=! X(n, d) E(n, d) = exp(X(n, d) - M(n)) Z(n) +=! E(n, d) O(n, d) = E(n, d) / Z(n) }",
        verify=True,
    )
    for d in (1, 7, 33):
        x = make(3, d, seed=d)
        np.testing.assert_allclose(softmax(x).sum(axis=1), 1, rtol=1e-5)


def test_a_kernel_of_one_layout_takes_no_other():
    """The operator chooses kernels by layout; who keeps one of them is told where it does not fit."""
    twice = polyc.compile("def twice(float(M, N) A) -> (B) { B(i, j) = 2.0 * A(i, j) }")
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    kernel = twice.specialize(a)
    np.testing.assert_array_equal(kernel(a), 2 * a)
    with pytest.raises(polyc.ArgumentError) as caught:
        kernel(np.asfortranarray(a))
    assert caught.value.code == "argument-strides" and "A has stride" in str(caught.value)
    np.testing.assert_array_equal(twice(np.asfortranarray(a)), 2 * a)
