"""Operators as they were before version 7 of the operator set: broadcasting was asked for, and placed by an axis."""

from __future__ import annotations

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.families import activations, contractions, elementwise, norm
from polyc.frontends.onnx.registry import Function, operator


def place_operand(b: Builder, x: Value, y: Value, axis: int | None, broadcast: int) -> Value:
    """`y` in a shape that NumPy broadcasts as the old attributes say: its dimensions are those of `x` from `axis` on."""
    if not broadcast:
        if x.shape != y.shape:
            b.refuse(f"shapes {x.shape} and {y.shape} differ, and broadcast is not set")
        return y
    first = x.rank - y.rank if axis is None else b.axis(axis, x.rank)
    if first < 0 or first + y.rank > x.rank:
        b.refuse(f"shape {y.shape} does not fit {x.shape} at axis {axis}")
    return b.view(y, (*y.shape, *(1,) * (x.rank - first - y.rank)))


def _register_binary(name: str, function: Function) -> None:
    @operator(name, since=1)
    def apply(
        b: Builder,
        x: Value,
        y: Value,
        *,
        axis: int | None = None,
        broadcast: int = 0,
        consumed_inputs: tuple[int, ...] = (),
    ) -> Value:
        result: Value = function(b, x, place_operand(b, x, y, axis, broadcast))
        return result


for _name, _function in {
    "Add": elementwise.add,
    "Sub": elementwise.subtract,
    "Mul": elementwise.multiply,
    "Div": elementwise.divide,
    "Pow": elementwise.power,
    "And": elementwise.logical_and,
    "Or": elementwise.logical_or,
    "Xor": elementwise.logical_xor,
    "Equal": elementwise.equal,
    "Greater": elementwise.compare,
    "Less": elementwise.compare,
}.items():
    _register_binary(_name, _function)


@operator("PRelu")
def parametric_relu(b: Builder, x: Value, slope: Value, *, consumed_inputs: tuple[int, ...] = ()) -> Value:
    """One slope for all elements, or one for each channel."""
    if slope.rank == 1 and slope.shape[0] != 1 and x.rank > 1:
        slope = b.view(slope, (*slope.shape, *(1,) * (x.rank - 2)))
    return activations.parametric_relu(b, x, slope)


@operator("Gemm")
def general_product(
    b: Builder,
    x: Value,
    y: Value,
    c: Value,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    return contractions.general_product(b, x, y, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


@operator("BatchNormalization")
def batch_normalization(
    b: Builder,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    var: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    is_test: int = 0,
    consumed_inputs: tuple[int, ...] = (),
) -> Value:
    if not is_test:
        b.refuse("it is in training mode")
    return norm.batch_normalization_7(b, x, scale, bias, mean, var, epsilon=epsilon, momentum=momentum, spatial=spatial)


@operator("Dropout")
def dropout(
    b: Builder, x: Value, *, ratio: float = 0.5, is_test: int = 0, consumed_inputs: tuple[int, ...] = ()
) -> tuple[Value, ...]:
    if not is_test:
        b.refuse("elements are dropped at random")
    return elementwise.dropout_7(b, x, ratio=ratio)
