"""Recurrent layers: `RNN`, `GRU` and `LSTM`; `recurrent_layers` says how they are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.recurrent_layers import Attributes, ByteWeights, Layer, make_layer
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, cast
from polyc.ir.types import F32


@operator("RNN", since=7)
def rnn(
    b: Builder,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    initial: Value | None = None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Value, ...]:
    given = Attributes(activations, activation_alpha, activation_beta, clip, direction, hidden_size, layout)
    layer = make_layer(b, x, w, r, bias, lengths, 1, ("Tanh",), given)
    states = [_run_rnn(layer, d, initial) for d in range(len(layer.directions))]
    return layer.outputs(states), layer.last(states)


def _run_rnn(layer: Layer, d: int, initial: Value | None) -> Value:
    is_reverse, (f,) = layer.directions[d], layer.functions(d)
    h = layer.start(initial, d)
    inputs, sums = layer.inputs(d, lambda _: True), layer.recurrent(d, h, (0,))

    def new(s: Term, n: Term, j: Term) -> Operand:
        return f(layer.limit(inputs[layer.position(s, n, is_reverse), n, 0, j] + sums(s, n, 0, j)))

    layer.advance(h, new)
    return h


@operator("GRU", since=7)
def gru(
    b: Builder,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    initial: Value | None = None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Value, ...]:
    given = Attributes(activations, activation_alpha, activation_beta, clip, direction, hidden_size, layout)
    layer = make_layer(b, x, w, r, bias, lengths, 3, ("Sigmoid", "Tanh"), given)
    states = [_run_gru(layer, d, initial, bool(linear_before_reset)) for d in range(len(layer.directions))]
    return layer.outputs(states), layer.last(states)


def _run_gru(layer: Layer, d: int, initial: Value | None, resets_product: bool) -> Value:
    """Gates: update, reset, hidden.  The reset gate is applied to the state, or with `resets_product` to its product."""
    b, is_reverse, hidden, r = layer.b, layer.directions[d], layer.hidden, layer.r
    assert isinstance(r, Value)  # only an LSTM has weights of bytes
    f, g = layer.functions(d)
    h = layer.start(initial, d)
    inputs = layer.inputs(d, lambda k: k < 2 or not resets_product)
    sums = layer.recurrent(d, h, (0, 1, 2) if resets_product else (0, 1))

    def gate(k: int, s: Term, n: Term, j: Term) -> Term:
        return f(layer.limit(inputs[layer.position(s, n, is_reverse), n, k, j] + sums(s, n, k, j)))

    product: Callable[[Term, Term, Term], Term]
    if resets_product:

        def product(s: Term, n: Term, j: Term) -> Term:
            value = sums(s, n, 2, j)
            if layer.bias is not None:
                value = value + cast(layer.bias[d, j + 5 * hidden], layer.number)
            return gate(1, s, n, j) * value
    else:
        shape = (layer.steps, layer.batch, hidden)
        reset = b.map(shape, layer.number, lambda s, n, k: gate(1, s, n, k) * h[s, n, k])
        total = b.reduce(
            "add",
            shape,
            (hidden,),
            layer.number,
            lambda s, n, j, k: reset[s, n, k] * cast(r[d, j + 2 * hidden, k], layer.number),
        )

        def product(s: Term, n: Term, j: Term) -> Term:
            return total[s, n, j]

    def new(s: Term, n: Term, j: Term) -> Operand:
        update = gate(0, s, n, j)
        value = g(layer.limit(inputs[layer.position(s, n, is_reverse), n, 2, j] + product(s, n, j)))
        return (1 - update) * value + update * h[s, n, j]

    layer.advance(h, new)
    return h


@operator("LSTM", since=7)
def lstm(
    b: Builder,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    initial: Value | None = None,
    initial_cell: Value | None = None,
    peepholes: Value | None = None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Value, ...]:
    given = Attributes(activations, activation_alpha, activation_beta, clip, direction, hidden_size, layout)
    layer = make_layer(b, x, w, r, bias, lengths, 4, ("Sigmoid", "Tanh", "Tanh"), given)
    return _all_lstm(b, layer, initial, initial_cell, peepholes, bool(input_forget))


def _all_lstm(
    b: Builder, layer: Layer, initial: Value | None, initial_cell: Value | None, peepholes: Value | None, is_coupled: bool
) -> tuple[Value, ...]:
    if peepholes is not None and peepholes.shape != (len(layer.directions), 3 * layer.hidden):
        b.refuse(f"peepholes of shape {peepholes.shape}")
    runs = [_run_lstm(layer, d, initial, initial_cell, peepholes, is_coupled) for d in range(len(layer.directions))]
    hidden, cells = [h for h, _ in runs], [c for _, c in runs]
    return layer.outputs(hidden), layer.last(hidden), layer.last(cells)


def _run_lstm(
    layer: Layer, d: int, initial: Value | None, initial_cell: Value | None, peepholes: Value | None, is_coupled: bool
) -> tuple[Value, Value]:
    """Gates: input, output, forget, cell; with `is_coupled`, what is not let in is kept."""
    is_reverse, size = layer.directions[d], layer.hidden
    f, g, out = layer.functions(d)
    h, c = layer.start(initial, d), layer.start(initial_cell, d)
    inputs, sums = layer.inputs(d, lambda _: True), layer.recurrent(d, h, (0, 1, 2, 3))

    def gate(k: int, s: Term, n: Term, j: Term, cell: Term | None) -> Term:
        value = inputs[layer.position(s, n, is_reverse), n, k, j] + sums(s, n, k, j)
        if peepholes is not None and cell is not None:
            value = value + cast(peepholes[d, j + k * size], layer.number) * cell
        return layer.limit(value)

    def new_cell(s: Term, n: Term, j: Term) -> Operand:
        before = c[s, n, j]
        let_in = f(gate(0, s, n, j, before))
        kept = 1 - let_in if is_coupled else f(gate(2, s, n, j, before))
        return kept * before + let_in * g(gate(3, s, n, j, None))

    def new(s: Term, n: Term, j: Term) -> Operand:
        cell = c[s + 1, n, j]
        return f(gate(1, s, n, j, cell)) * out(cell)

    layer.advance(c, new_cell)
    layer.advance(h, new)
    return h, c


@operator("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_quantize_lstm(
    b: Builder,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None,
    lengths: Value | None,
    initial: Value | None,
    initial_cell: Value | None,
    peepholes: Value | None,
    w_scale: Value,
    w_zero: Value,
    r_scale: Value,
    r_zero: Value,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> tuple[Value, ...]:
    """An `LSTM` whose weights are bytes, transposed, with a scale for each direction or each column; its inputs are rounded to
    bytes as well, all of them by one scale, the states by one for each step."""
    if x.dtype != F32 or x.size == 0 or w.rank != 3 or r.rank != 3:
        b.refuse(f"an input of type {x.dtype.label} and shape {x.shape}, weights of shapes {w.shape} and {r.shape}")

    for v, scale, zero in ((w, w_scale, w_zero), (r, r_scale, r_zero)):
        for p in (scale, zero):
            if p.shape not in (v.shape[:1], (v.shape[0], v.shape[2])):
                b.refuse(f"scales of shape {p.shape} for weights of shape {v.shape}")
    given = Attributes(activations, activation_alpha, activation_beta, clip, direction, hidden_size, 0)
    weights = ByteWeights(w, w_scale, w_zero), ByteWeights(r, r_scale, r_zero)
    layer = make_layer(b, x, *weights, bias, lengths, 4, ("Sigmoid", "Tanh", "Tanh"), given)
    return _all_lstm(b, layer, initial, initial_cell, peepholes, bool(input_forget))
