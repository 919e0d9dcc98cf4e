"""Small networks of the usual kinds, whole: what a session computes is what onnx's reference computes, at several sizes.

With POLYC_TEST_MODELS=1 the large ones too (`benchmarks/models`: seven exports, some eighty files from wheels), against
onnxruntime; that needs onnxruntime, PyTorch, pip and some minutes.
"""

from __future__ import annotations

import os

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import polyc

IMAGE = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[n, 3, h, w] x) => (float[n, 10] y) {
  c1 = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]>(x, w1)
  b1 = BatchNormalization(c1, g, b, m, v)
  r1 = Relu(b1)
  p1 = MaxPool<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(r1)
  c2 = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(p1, w2)
  b2 = BatchNormalization(c2, g, b, m, v)
  s2 = Add(b2, p1)
  r2 = Relu(s2)
  d3 = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=16>(r2, w3)
  q3 = GlobalAveragePool(d3)
  f3 = Flatten(q3)
  y = Gemm<transB=1>(f3, w4, b4)
}
"""
IMAGE_WEIGHTS = {
    "w1": (16, 3, 3, 3), "w2": (16, 16, 3, 3), "w3": (16, 1, 3, 3), "w4": (10, 16), "b4": (10,),
    "g": (16,), "b": (16,), "m": (16,), "v": (16,),
}  # fmt: skip

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
net (int64[n, s] ids, float[n, 2, p, 8] past) => (float[n, s, 16] y, float[n, 2, t, 8] keys) {
  shape = Shape(ids)
  nn = Gather<axis=0>(shape, zero)
  ss = Gather<axis=0>(shape, one)
  n1 = Unsqueeze(nn, axes)
  s1 = Unsqueeze(ss, axes)
  split = Concat<axis=0>(n1, s1, two1, eight1)
  joined = Concat<axis=0>(n1, s1, all1)
  e = Gather<axis=0>(table, ids)
  l = LayerNormalization<axis=-1>(e, g, b)
  q0 = MatMul(l, wq)
  q1 = Reshape(q0, split)
  q = Transpose<perm=[0, 2, 1, 3]>(q1)
  k0 = MatMul(l, wk)
  k1 = Reshape(k0, split)
  k2 = Transpose<perm=[0, 2, 1, 3]>(k1)
  keys = Concat<axis=2>(past, k2)
  kt = Transpose<perm=[0, 1, 3, 2]>(keys)
  scores = MatMul(q, kt)
  scaled = Mul(scores, scale)
  a = Softmax<axis=-1>(scaled)
  mixed = MatMul(a, keys)
  m1 = Transpose<perm=[0, 2, 1, 3]>(mixed)
  m2 = Reshape(m1, joined)
  o = MatMul(m2, wo)
  y = Add(o, e)
}
"""
TEXT_WEIGHTS = {"table": (20, 16), "g": (16,), "b": (16,), "wq": (16, 16), "wk": (16, 16), "wo": (16, 16)}
TEXT_CONSTANTS = {
    "zero": np.array(0), "one": np.array(1), "axes": np.array([0]), "two1": np.array([2]), "eight1": np.array([8]),
    "all1": np.array([16]), "scale": np.float32(0.35),
}  # fmt: skip


def build(text, weights, constants=None):
    rng = np.random.default_rng(1)
    model = onnx.parser.parse_model(text)
    arrays = {n: (0.3 * rng.standard_normal(s)).astype(np.float32) for n, s in weights.items()}
    if "v" in arrays:
        arrays["v"] = np.abs(arrays["v"]) + 1
    for name, array in (arrays | (constants or {})).items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return model


@pytest.mark.parametrize("opset", [14, 17])  # before 14 the reference normalises by statistics of the batch
def test_a_network_for_images(opset):
    model = build(IMAGE, IMAGE_WEIGHTS)
    model.opset_import[0].version = opset
    session = polyc.onnx.load(model, strict=True)
    reference = ReferenceEvaluator(model)
    rng = np.random.default_rng(0)
    for n, h, w in ((1, 32, 32), (3, 17, 24), (1, 32, 32)):
        x = rng.standard_normal((n, 3, h, w)).astype(np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], reference.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)
    assert not session.remarks


def test_a_network_for_text_with_a_cache_of_keys():
    model = build(TEXT, TEXT_WEIGHTS, TEXT_CONSTANTS)
    session = polyc.onnx.load(model, strict=True)
    reference = ReferenceEvaluator(model)
    rng = np.random.default_rng(0)
    for n, s, p in ((1, 7, 0), (2, 1, 9), (1, 1, 1), (2, 5, 3)):
        past = rng.standard_normal((n, 2, p, 8)).astype(np.float32)
        feed = {"ids": rng.integers(0, 20, (n, s)), "past": past}
        for found, expected in zip(session.run(None, feed), reference.run(None, feed), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert [r.message for r in session.remarks if r.kind == "missed"] == []


@pytest.mark.skipif(os.environ.get("POLYC_TEST_MODELS", "") != "1", reason="POLYC_TEST_MODELS=1 runs it (some minutes)")
def test_large_models_give_the_results_of_onnxruntime():
    from benchmarks.models.check import check, list_models

    lines = [line for name, path in list_models([]).items() for line in check(name, path)]
    assert not [line for line in lines if line.startswith("WRONG")]
