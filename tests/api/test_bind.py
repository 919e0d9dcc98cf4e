"""Bound operators: inputs that are owned, what is prepared of them, and how it is laid out."""

# ruff: noqa: F821, UP037 (the body and the annotations of an operator are not Python's)
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import polyc
from polyc.api.bind import MAX_PREPARED, lay_in_panels
from polyc.ir.interpret_loops import interpret_loops
from polyc.scheduler.rewriting import split

FC = "def fc(float(M,K) X, float(N,K) W) -> (Y) { Y(m,n) +=! X(m,k) * W(n,k) }"
LAYER = """
def layer(float(M,K) X, float(N,K) W, float(N) b, float s) -> (Y) {
  H(m,n) +=! X(m,k) * W(n,k)
  Y(m,n) = fmax(s * H(m,n) + b(n), 0.0)
}
"""


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("shape", [(64, 96, 40), (50, 1001, 33), (33, 63, 65), (3, 5, 7), (1, 200, 30), (0, 4, 5), (4, 4, 0)])
def test_bound_weights_give_the_same_product(shape):
    m, n, k = shape
    x, w = normal(m, k), normal(n, k, seed=1)
    bound = polyc.compile(FC, verify=True).bind(W=w)
    np.testing.assert_allclose(bound(x), x @ w.T, rtol=1e-4, atol=1e-4)


def test_packed_in_panels_as_wide_as_the_register_tile():
    bound = polyc.compile(FC).bind(W=normal(1001, 96))
    lowered = bound.lower(normal(4, 96))
    (name, panel), *others = lowered.panels.items()
    assert name.startswith("W.packed") and not others
    constant = next(a for a in lowered.signature.arrays if a.role == "constant")
    assert [e.value for e in constant.shape] == [-(-1001 // panel.size), 96, panel.size]
    assert "W.packed" in lowered.as_text("loops") and "S0_pack" not in lowered.as_text("loops")
    assert len(lowered.preparations) == 1


def test_later_changes_of_the_array_have_no_effect():
    x, w = normal(64, 96), normal(80, 96, seed=1)
    expected = x @ w.T
    bound = polyc.compile(FC).bind(W=w)
    w[...] = 0
    np.testing.assert_allclose(bound(x), expected, rtol=1e-4, atol=1e-4)
    w[...] = np.nan
    np.testing.assert_allclose(bound(x), expected, rtol=1e-4, atol=1e-4)


def test_prepared_once_for_all_sizes_that_want_the_same():
    bound = polyc.compile(FC).bind(W=normal(80, 96))
    for m in (64, 65, 128):
        bound(normal(m, 96))
        bound(normal(m, 96, seed=2))
    assert bound._kernels.preparations.n_runs == 1


def test_several_operands_and_a_scalar():
    x, w, b = normal(40, 96), normal(70, 96, seed=1), normal(70, seed=2)
    expected = np.maximum(0.5 * (x @ w.T) + b, 0)
    layer = polyc.compile(LAYER, verify=True)
    for bound, rest in (
        (layer.bind(W=w, b=b, s=0.5), (x,)),
        (layer.bind(W=w).bind(s=np.float32(0.5)).bind(b=b.tolist()), (x,)),
        (layer.bind(b=b), (x, w, 0.5)),
        (layer.bind(X=x), (w, b, 0.5)),
        (layer.bind(X=x, W=w, b=b, s=0.5), ()),
    ):
        np.testing.assert_allclose(bound(*rest), expected, rtol=1e-4, atol=1e-4)
    out = np.empty_like(expected)
    assert layer.bind(W=w, b=b)(x, s=0.5, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def test_what_depends_on_bound_inputs_alone_is_computed_once():
    @polyc.op(verify=True)
    def scaled(X: "f32[M, K]", W: "i8[N, K]", s: "f32[N]"):
        D[n, k] = polyc.f32(W[n, k]) * s[n]
        Y[m, n] += X[m, k] * D[n, k]
        return Y

    x, s = normal(48, 64), normal(96, seed=1)
    w = np.random.default_rng(2).integers(-100, 100, (96, 64), dtype=np.int8)
    bound = scaled.bind(W=w, s=s)
    np.testing.assert_allclose(bound(x), x @ (w * s[:, None]).T, rtol=1e-3, atol=1e-2)
    lowered = bound.lower(x)
    arrays = {a.name: a.role for a in lowered.signature.arrays}
    assert any(role == "constant" for role in arrays.values())
    assert "i8" not in lowered.as_text("loops").split("parallel")[-1]


def test_broadcasts_are_not_stored():
    text = "def f(float(M,N) X, float(N) b) -> (Y) { B(m,n) = b(n) where exists X(m,n)\n Y(m,n) = X(m,n) + B(m,n) }"
    lowered = polyc.compile(text).bind(b=normal(6)).lower(normal(5, 6))
    assert not lowered.preparations


def test_convolution_weights():
    text = "def conv(float(N,C,H,W) X, float(K,C,R,S) F) -> (Y) { Y(n,k,h,w) +=! X(n,c,h+r,w+s) * F(k,c,r,s) }"
    x, f = normal(1, 16, 20, 20), normal(64, 16, 3, 3, seed=1)
    op = polyc.compile(text, verify=True)
    np.testing.assert_allclose(op.bind(F=f)(x), op(x, f), rtol=1e-4, atol=1e-3)


def test_einsum_operator():
    a, b = normal(4, 40, 24), normal(4, 50, 24, seed=1)
    op = polyc.einsum_operator("bik,bjk->bij", verify=True)
    bound = op.bind(operand1=b)
    np.testing.assert_allclose(bound(a), a @ b.swapaxes(1, 2), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(bound(a[:2].repeat(2, 0)), a[:2].repeat(2, 0) @ b.swapaxes(1, 2), rtol=1e-4, atol=1e-4)


def test_views_and_fixed_sizes():
    x, w = normal(40, 64), normal(128, 160, seed=1)[::2, 5:69]
    bound = polyc.compile(FC, sizes={"K": 64}).bind(W=w)
    np.testing.assert_allclose(bound(x), x @ w.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(bound(np.asfortranarray(x)), x @ w.T, rtol=1e-4, atol=1e-4)


def test_kernel_with_open_sizes():
    w = normal(64, 48, seed=1)
    bound = polyc.compile(FC).bind(W=w)
    lowered = bound.lower()
    assert lowered.fixed_sizes == {"K": 48, "N": 64}
    assert lowered.preparations  # W has all the sizes that its packing needs
    kernel = bound.specialize()
    for m in (7, 40):
        x = normal(m, 48)
        np.testing.assert_allclose(kernel(x), x @ w.T, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(kernel(X=x, M=m), x @ w.T, rtol=1e-4, atol=1e-4)
    assert repr(kernel).startswith("<polyc kernel fc(X: f32) -> (Y)")
    with pytest.raises(polyc.ArgumentError, match="expected 1 input"):
        kernel(x, w)


def test_what_needs_open_sizes_is_computed_at_each_call():
    text = "def f(float(M) X, float(K) w) -> (Y) { H(m) +=! w(k) where m in 0:M\n Y(m) = X(m) + H(m) }"
    w = normal(9)
    bound = polyc.compile(text).bind(w=w)
    assert bound.lower(normal(5)).preparations and not bound.lower().preparations
    for x in (normal(5), normal(8)):
        np.testing.assert_allclose(bound(x), x + w.sum(), rtol=1e-5)
        np.testing.assert_allclose(bound.specialize()(x), x + w.sum(), rtol=1e-5)


def test_accumulated_output_and_ladder():
    text = "def f(float(M,K) X, float(N,K) W) -> (Y) { Y(m,n) += X(m,k) * W(n,k) }"
    x, w = normal(40, 64), normal(96, 64, seed=1)
    for options in ({}, {"tile": False}, {"scheduler": "source"}, {"target": "x86-64-v2"}, {"reassociate": False}):
        with pytest.warns(polyc.PolycWarning):
            op = polyc.compile(text, verify=True, **options)
        out = np.ones((40, 96), np.float32)
        op.bind(W=w)(x, out=out)
        np.testing.assert_allclose(out, 1 + x @ w.T, rtol=1e-4, atol=1e-4)


def test_representation_shows_what_is_bound():
    bound = polyc.compile(LAYER).bind(W=normal(70, 96), s=2.0)
    assert repr(bound) == "<polyc operator layer(X: f32[M, K], b: f32[N]) -> (Y) with W 70×96, s scalar>"


def test_errors():
    layer = polyc.compile(LAYER)
    with pytest.raises(polyc.ArgumentError, match="no input, size or constant named Q") as caught:
        layer.bind(Q=1.0)
    assert caught.value.code == "argument-name"
    with pytest.raises(polyc.ArgumentTypeError, match="expected type float32"):
        layer.bind(W=np.ones((3, 4)))
    with pytest.raises(polyc.ArgumentError, match="expected 2 dimensions"):
        layer.bind(W=normal(3))
    with pytest.raises(polyc.ArgumentError, match="N is"):
        layer.bind(W=normal(3, 4), b=normal(5))
    bound = layer.bind(W=normal(3, 4))
    for call in (lambda: bound(normal(2, 4), normal(3), 1.0, W=normal(3, 4)), lambda: bound.bind(W=normal(3, 4))):
        with pytest.raises(polyc.ArgumentError, match="W of layer is bound") as caught:
            call()
        assert caught.value.code == "argument-bound"
    with pytest.raises(polyc.ArgumentError, match=r"expected 3 inputs \(X, b, s\)"):
        bound(normal(2, 4))
    with pytest.raises(polyc.ArgumentError, match=r"X has 5 columns .*, but K is 4 since W"):
        bound(normal(2, 5), normal(3), 1.0)


def test_panels_are_filled_with_zeros():
    array = np.arange(2 * 7, dtype=np.float32).reshape(2, 7)
    panels = lay_in_panels(array, 1, 4)
    assert panels.shape == (2, 2, 4)
    np.testing.assert_array_equal(panels[0], array[:, :4])
    np.testing.assert_array_equal(panels[1], [[4, 5, 6, 0], [11, 12, 13, 0]])
    np.testing.assert_array_equal(lay_in_panels(array[:, :4], 1, 4)[0], array[:, :4])


def test_loops_read_panels_as_the_interpreter_says():
    x, w = normal(40, 30), normal(100, 30, seed=1)
    bound = polyc.compile(FC).bind(W=w)
    lowered = bound.lower(x)
    constants = bound._kernels.preparations.make(lowered, {"M": 40, "K": 30, "N": 100})
    assert constants
    y = np.zeros((40, 100), np.float32)
    arrays = [x, w, *constants, y]
    values = dict(zip(lowered.nest.parameters, [40, 30, 100, *(s for a in arrays for s in a.strides)], strict=True))
    interpret_loops(lowered.nest, arrays, values)
    np.testing.assert_allclose(y, x @ w.T, rtol=1e-4, atol=1e-4)


def test_no_more_prepared_sets_than_the_limit():
    bound = polyc.compile(FC).bind(W=normal(80, 96))
    made = bound._kernels.preparations
    for n in range(MAX_PREPARED + 5):
        made._made[n] = ()
        made._remember(n)
    assert len(made._made) == MAX_PREPARED and 0 not in made._made


def test_weights_of_a_sum_shorter_than_one_part_of_it(monkeypatch):
    """The domain of such a part is a box, but a smaller one than its ranges tell."""
    monkeypatch.setattr(split, "MINIMUM_POINTS", 2)
    x, w = normal(3, 1000), normal(1000, 4, seed=1)
    op = polyc.compile("def f(float(M,K) X, float(K,N) W) -> (Y) { Y(m,n) +=! X(m,k) * W(k,n) }")
    assert "k.block" in op.lower(x, w).as_text("scop")
    np.testing.assert_allclose(op.bind(W=w)(x), x @ w, rtol=1e-4, atol=1e-4)


def test_same_bits_at_any_number_of_threads():
    x, w = normal(200, 300), normal(333, 300, seed=1)
    bound = polyc.compile(FC).bind(W=w)
    results = []
    try:
        for n in (1, 2, 4):
            polyc.set_num_threads(n)
            results.append(bound(x))
    finally:
        polyc.set_num_threads(None)
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()
    np.testing.assert_allclose(results[0], x @ w.T, rtol=1e-4, atol=1e-3)


def test_first_calls_from_many_threads():
    bound = polyc.compile(FC).bind(W=normal(96, 64))
    inputs = [normal(40 + n % 3, 64, seed=n) for n in range(12)]
    with ThreadPoolExecutor(6) as pool:
        for x, y in zip(inputs, pool.map(bound, inputs), strict=True):
            np.testing.assert_allclose(y, x @ normal(96, 64).T, rtol=1e-4, atol=1e-4)
    assert bound._kernels.preparations.n_runs == 1


@pytest.mark.machine("zen3")
def test_what_binding_gains_nothing_for_is_computed_as_without_it():
    operator = polyc.compile("def f(float(M,K) X, float(K,N) W) -> (Y) { Y(m,n) +=! X(m,k) * W(k,n) }", target="x86-64-v3")
    x, w = np.ones((200, 64), np.float32), np.ones((64, 1001), np.float32)
    assert operator.bind(W=w).lower(x).as_text("loops") == operator.lower(x, w).as_text("loops")


@pytest.mark.machine("zen4")
def test_panels_take_the_place_of_strided_rows_in_the_tile_of_unbound_calls():
    operator = polyc.compile("def f(float(M,K) X, float(K,N) W) -> (Y) { Y(m,n) +=! X(m,k) * W(k,n) }", target="x86-64-v4")
    x, w = np.ones((64, 192), np.float32), np.ones((192, 768), np.float32)
    unbound, bound = operator.lower(x, w), operator.bind(W=w).lower(x)
    ((name, panel),) = bound.panels.items()
    in_panels = f"{name}[(c1 + c2) // {panel.size}, c3, c5]"
    assert in_panels in bound.as_text("loops") and "pack" not in unbound.as_text("loops")
    body = [text.partition("{\n")[2] for text in (bound.as_text("loops"), unbound.as_text("loops"))]
    assert body[0].replace(in_panels, "W[c3, c1 + c2 + c5]") == body[1]


@pytest.mark.machine("zen3")
def test_estimates_about_equal_leave_the_tile_of_unbound_calls():
    layer = """def layer(float(M,K) X, float(N,K) W, float(N) b) -> (Y) {
      H(m,n) +=! X(m,k) * W(n,k)
      Y(m,n) = max(H(m,n) + b(n), 0.0) }"""
    operator = polyc.compile(layer, target="x86-64-v3")
    x, w, b = np.ones((512, 512), np.float32), np.ones((40, 512), np.float32), np.ones(40, np.float32)
    assert operator.bind(W=w).lower(x, b).as_text("loops") == operator.lower(x, w, b).as_text("loops")


@pytest.mark.parametrize(
    "text",
    [
        """T(i, j) = exp(W(i, j)) where i in 0:N, j in 0:N, j <= i
           Y(t, i) +=! T(i, j) * Z(t, i, j) where j <= i, t in 0:M, i in 0:N, j in 0:N
           V(t, i) +=! T(i, j) * Z(t, i, j) * Z(t, i, j) where j <= i, t in 0:M, i in 0:N, j in 0:N""",
        """T(t, i, j) = exp(W(i, j)) where t in 0:M, i in 0:N, j in 0:N, 2 * t >= 5
           Y(t, i) +=! T(t, i, j) * Z(t, i, j) where t in 3:M
           V(t, i) +=! T(t, i, j) * Z(t, i, j) * Z(t, i, j) where t in 3:M""",
    ],
    ids=["a triangle", "a part of the steps"],
)
def test_parts_of_what_bound_inputs_alone_give(text):
    rng = np.random.default_rng(3)
    w, z = rng.random((40, 40), np.float32), rng.random((6, 40, 40), np.float32)
    f = polyc.compile(f"def f(float(N, N) W, float(M, N, N) Z) -> (Y, V) {{ {text} }}", disable=("inline",))
    for got, want in zip(f.bind(W=w)(Z=z), f(w, z), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
