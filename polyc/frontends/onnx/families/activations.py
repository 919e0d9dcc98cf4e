"""Activations: one value for each element, of functions that networks are made with."""

from __future__ import annotations

from math import sqrt

import numpy as np

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.families.elementwise import apply, require_one_type
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, call, maximum, minimum, select

SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
"""ONNX's: float32, for doubles too."""


@operator("Relu")
def relu(b: Builder, x: Value) -> Value:
    return apply(b, x, lambda v: maximum(v, 0))


@operator("LeakyRelu", since=6)
def leaky_relu(b: Builder, x: Value, *, alpha: float = 0.01) -> Value:
    b.require_float(x)
    return apply(b, x, lambda v: select(v < 0, v * alpha, v))


@operator("PRelu", since=7)
def parametric_relu(b: Builder, x: Value, slope: Value) -> Value:
    require_one_type(b, x, slope)
    if b.broadcast(x.shape, slope.shape) != x.shape:
        b.refuse(f"a slope of shape {slope.shape} for a tensor of shape {x.shape}")
    return b.map(x.shape, x.dtype, lambda *i: select(x[i] < 0, x[i] * slope.spread(i), x[i]))


@operator("ThresholdedRelu")
def thresholded_relu(b: Builder, x: Value, *, alpha: float = 1.0) -> Value:
    b.require_float(x)
    return apply(b, x, lambda v: select(v > alpha, v, 0))


@operator("Elu", since=6)
def elu(b: Builder, x: Value, *, alpha: float = 1.0) -> Value:
    b.require_float(x)
    return apply(b, x, lambda v: select(v < 0, alpha * call("expm1", v), v))


@operator("Selu", since=6)
def selu(b: Builder, x: Value, *, alpha: float = SELU_ALPHA, gamma: float = SELU_GAMMA) -> Value:
    b.require_float(x)
    return apply(b, x, lambda v: gamma * select(v <= 0, alpha * call("expm1", v), v))


@operator("Celu")
def celu(b: Builder, x: Value, *, alpha: float = 1.0) -> Value:
    b.require_float(x)
    return apply(b, x, lambda v: maximum(v, 0) + minimum(alpha * call("expm1", v / alpha), 0))


@operator("HardSigmoid", since=6)
def hard_sigmoid(b: Builder, x: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    b.require_float(x)
    return apply(b, x, lambda v: maximum(minimum(v * alpha + beta, 1), 0))


@operator("HardSwish")
def hard_swish(b: Builder, x: Value) -> Value:
    b.require_float(x)
    return apply(b, x, lambda v: v * maximum(minimum(v * (1 / 6) + 0.5, 1), 0))


@operator("Swish")
def swish(b: Builder, x: Value, *, alpha: float = 1.0) -> Value:
    b.require_float(x)
    return apply(b, x, lambda v: v * call("sigmoid", v * alpha))


def softplus_of(v: Term) -> Term:
    """``log(1 + exp(v))`` without overflow."""
    return maximum(v, 0) + call("log1p", call("exp", -call("abs", v)))


@operator("Softplus")
def softplus(b: Builder, x: Value) -> Value:
    b.require_float(x)
    return apply(b, x, softplus_of)


@operator("Mish")
def mish(b: Builder, x: Value) -> Value:
    b.require_float(x)
    return apply(b, x, lambda v: v * call("tanh", softplus_of(v)))


@operator("Softsign")
def softsign(b: Builder, x: Value) -> Value:
    b.require_float(x)
    return apply(b, x, lambda v: v / (call("abs", v) + 1))


@operator("Gelu")
def gelu(b: Builder, x: Value, *, approximate: str = "none") -> Value:
    b.require_float(x)
    if approximate == "tanh":
        return apply(b, x, lambda v: 0.5 * v * (1 + call("tanh", sqrt(2 / np.pi) * (v + 0.044715 * v * v * v))))
    return apply(b, x, lambda v: 0.5 * v * (1 + call("erf", v * sqrt(0.5))))


@operator("Shrink")
def shrink(b: Builder, x: Value, *, bias: float = 0.0, lambd: float = 0.5) -> Value:
    b.require_float(x)
    return apply(b, x, lambda v: select(v < -lambd, v + bias, select(v > lambd, v - bias, 0)))


_LARGEST = float(np.finfo(np.float32).max)


@operator("Clip", since=6)
def clip_between_numbers(b: Builder, x: Value, *, min: float = -_LARGEST, max: float = _LARGEST) -> Value:
    b.require_float(x)
    return apply(b, x, lambda v: minimum(maximum(v, min), max))


@operator("Clip", since=11)
def clip(b: Builder, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    """An upper bound below the lower one wins, as in `numpy.clip`."""
    bounds = [v for v in (low, high) if v is not None]
    require_one_type(b, x, *bounds)
    if any(v.size != 1 for v in bounds):
        b.refuse("bounds that are no scalars")
    low, high = (None if v is None else b.view(v, ()) for v in (low, high))

    def body(v: Term) -> Operand:
        v = v if low is None else maximum(v, low[()])
        return v if high is None else minimum(v, high[()])

    return apply(b, x, body) if bounds else x
