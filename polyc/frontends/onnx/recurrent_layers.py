"""What the recurrent layers have in common: weights (numbers or bytes), activations, states and the order of steps.

The products with the inputs are one contraction over all steps.  What remains in the loop over time is one product with the
state before, and the gates.  Step s of a direction works on the element ``s`` of a sequence, or ``length - 1 - s`` in reverse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polyc.diagnostics import suggest_name
from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.quantities import product, quantize, quantize_dynamically
from polyc.frontends.onnx.terms import Operand, Term, call, cast, clamp, constant, maximum, minimum, select
from polyc.ir.types import F32, I64, U8, DType
from polyc.records import dataclass, replace

Activation = Callable[[Term], Term]


@dataclass(frozen=True, slots=True)
class ByteWeights:
    """Weights in bytes, ``[direction, column, row]``, with a scale and a zero point for each direction, or each row of it."""

    values: Value
    scales: Value
    zeros: Value

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the weights as `LSTM` has them, ``[direction, row, column]``."""
        d, columns, rows = self.values.shape
        return d, rows, columns

    def multiply(self, b: Builder, d: int, x: Value, scale: Callable[[Term], Term], zero: Value) -> Callable[..., Term]:
        """``(t, n, row)`` to the product of ``x[t, n, …]``, bytes with a scale for each t, with the weights of direction d."""
        values = self.values
        columns = b.map(values.shape[1:], values.dtype, lambda k, row: values[d, k, row])
        sums = product(b, x, columns, zero, self._zeros(b, d))

        def number(t: Term, n: Term, row: Term) -> Term:
            factor = self.scales[d] if self.scales.rank == 1 else self.scales[d, row]
            return cast(sums[t, n, row], F32) * (scale(t) * factor)

        return number

    def _zeros(self, b: Builder, d: int) -> Value:
        zeros = self.zeros
        if zeros.rank == 1:
            own = b.map((1,), zeros.dtype, lambda _: zeros[d])
        else:
            own = b.map(zeros.shape[1:], zeros.dtype, lambda row: zeros[d, row])
        return own if zeros.known is None else replace(own, known=zeros.known[d].reshape(own.shape))


@dataclass(slots=True)
class Layer:
    """What the three operators have in common; numbers are computed in `number`."""

    b: Builder
    x: Value
    """``[steps, batch, input]``, or ``[batch, steps, input]`` with `is_batch_first`."""
    w: Value | ByteWeights
    r: Value | ByteWeights
    bias: Value | None
    lengths: Value | None
    is_batch_first: bool
    hidden: int
    n_gates: int
    directions: tuple[bool, ...]
    """For each direction, whether it is the reverse one."""
    activations: list[Activation]
    clip: float
    rounded: tuple[Value, Value, Value] | None = None
    """The inputs in bytes, where the weights are: with their scale and zero point."""

    @property
    def steps(self) -> int:
        return self.x.shape[1 if self.is_batch_first else 0]

    @property
    def batch(self) -> int:
        return self.x.shape[0 if self.is_batch_first else 1]

    @property
    def number(self) -> DType:
        return self.x.dtype.computed

    def functions(self, d: int) -> list[Activation]:
        """The activations of direction d."""
        each = len(self.activations) // len(self.directions)
        return self.activations[d * each : (d + 1) * each]

    def limit(self, value: Term) -> Term:
        """`value`, clipped as the input of an activation."""
        return minimum(maximum(value, -self.clip), self.clip) if self.clip else value

    def position(self, s: Term, n: Term, is_reverse: bool) -> Operand:
        """The element of sequence n that step s works on (of a step behind the end, any)."""
        if not is_reverse:
            return s
        if self.lengths is None:
            return (self.steps - 1) - s
        return clamp(cast(self.lengths[n], I64) - 1 - s, 0, self.steps - 1)

    def inputs(self, d: int, with_recurrent_bias: Callable[[int], bool]) -> Value:
        """``[element, batch, gate, unit]``: the products with the inputs, and the biases; `with_recurrent_bias` says for which
        gates the bias of the recurrent product is added as well."""
        bias, hidden = self.bias, self.hidden
        shape, half = (self.steps, self.batch, self.n_gates, hidden), self.n_gates * hidden
        both: Value | None = None
        if bias is not None:
            given = bias  # closures do not see that it is there

            def total(g: Term, j: Term) -> Operand:
                first, second = given[d, g * hidden + j], given[d, half + g * hidden + j]
                if all(with_recurrent_bias(k) for k in range(self.n_gates)):
                    return first + second
                condition: Term | None = None
                for k in range(self.n_gates):
                    if with_recurrent_bias(k):
                        condition = g == k if condition is None else condition | (g == k)
                return first if condition is None else first + select(condition, second, 0)

            both = self.b.map((self.n_gates, hidden), self.number, total)
        return self._input_products(d, shape, both)

    def _input_products(self, d: int, shape: tuple[int, ...], start: Value | None) -> Value:
        x, w, b = self.x, self.w, self.b
        if isinstance(w, ByteWeights):
            if self.rounded is None:
                self.rounded = quantize_dynamically(b, x)
            rounded, scale, zero = self.rounded
            number = w.multiply(b, d, rounded, lambda _: scale[()], zero)

            def element(t: Term, n: Term, g: Term, j: Term) -> Operand:
                value = number(t, n, g * self.hidden + j)
                return value if start is None else value + start[g, j]

            return b.map(shape, self.number, element)

        def body(t: Term, n: Term, g: Term, j: Term, k: Term) -> Operand:
            value = x[n, t, k] if self.is_batch_first else x[t, n, k]
            return value * w[d, g * self.hidden + j, k]

        if start is None:
            return b.reduce("add", shape, (x.shape[2],), self.number, body)
        return b.reduce("add", shape, (x.shape[2],), self.number, body, lambda t, n, g, j: start[g, j])

    def recurrent(self, d: int, state: Value, gates: Sequence[int]) -> Callable[..., Term]:
        """``(s, n, g, j)`` to the product of the state before step s with the weights of gate g, one of consecutive `gates`."""
        first, hidden, r = gates[0], self.hidden, self.r
        if isinstance(r, ByteWeights):
            rounded, scales, zeros = self.round_state(state)
            number = r.multiply(self.b, d, rounded, lambda s: scales[s], self.b.view(zeros, (self.steps, 1, 1)))
            return lambda s, n, g, j: number(s, n, g * hidden + j)

        def body(s: Term, n: Term, g: Term, j: Term, k: Term) -> Operand:
            return state[s, n, k] * cast(r[d, (g + first) * hidden + j, k], self.number)

        shape = (self.steps, self.batch, len(gates), hidden)
        sums = self.b.reduce("add", shape, (hidden,), self.number, body)
        return lambda s, n, g, j: sums[s, n, g - first, j]

    def round_state(self, state: Value) -> tuple[Value, Value, Value]:
        """The states before each step as bytes, with a scale and a zero point for each step."""
        b, number, shape = self.b, self.number, (self.batch, self.hidden)
        high = b.reduce("max", (self.steps,), shape, number, lambda s, n, k: state[s, n, k])
        low = b.reduce("min", (self.steps,), shape, number, lambda s, n, k: state[s, n, k])

        def scale(s: Term) -> Operand:
            extent = maximum(high[s], 0) - minimum(low[s], 0)
            return select(extent == 0, 1, extent / 255)

        scales = b.map((self.steps,), number, scale)
        zeros = b.map((self.steps,), U8, lambda s: quantize(-minimum(low[s], 0) / scales[s], 0, U8))
        states = (self.steps, *shape)
        return b.map(states, U8, lambda s, n, k: quantize(state[s, n, k] / scales[s], zeros[s], U8)), scales, zeros

    def start(self, initial: Value | None, d: int) -> Value:
        """The states before each step and after the last, ``[steps + 1, batch, unit]``; the first one is written."""
        b = self.b
        states = b.declare((self.steps + 1, self.batch, self.hidden), self.number)

        def first(_: Term, n: Term, j: Term) -> Operand:
            if initial is None:
                return constant(0, self.number)
            return cast(initial[n, d, j] if self.is_batch_first else initial[d, n, j], self.number)

        b.write(states, (1, self.batch, self.hidden), lambda _, n, j: (0, n, j), first)
        return states

    def advance(self, states: Value, new: Callable[[Term, Term, Term], Operand]) -> None:
        """The state after each step, which is that before it behind the end of a sequence."""

        def body(s: Term, n: Term, j: Term) -> Operand:
            value = new(s, n, j)
            if self.lengths is None:
                return value
            return select(s < cast(self.lengths[n], I64), value, states[s, n, j])

        self.b.write(states, (self.steps, self.batch, self.hidden), lambda s, n, j: (s + 1, n, j), body)

    def outputs(self, states: Sequence[Value]) -> Value:
        """All states in the order of the elements, ``[steps, direction, batch, unit]``; 0 behind the end of a sequence."""
        dtype, n_directions = self.x.dtype, len(states)

        def element(d: int, t: Term, n: Term, j: Term) -> Term:
            if not self.directions[d]:
                value = states[d][t + 1, n, j]
            elif self.lengths is None:
                value = states[d][self.steps - t, n, j]
            else:
                value = states[d][clamp(cast(self.lengths[n], I64) - t, 0, self.steps), n, j]
            if self.lengths is not None:
                value = select(t < cast(self.lengths[n], I64), value, 0)
            return cast(value, dtype.computed)

        if self.is_batch_first:
            shape = (self.batch, self.steps, n_directions, self.hidden)
            return self._join(shape, 2, lambda d, n, t, j: element(d, t, n, j))
        return self._join((self.steps, n_directions, self.batch, self.hidden), 1, element)

    def last(self, states: Sequence[Value]) -> Value:
        """The states after the last step, ``[direction, batch, unit]``; 0 for an empty sequence, as in onnxruntime."""

        def element(d: int, n: Term, j: Term) -> Term:
            value = states[d][self.steps, n, j]
            return value if self.lengths is None else select(cast(self.lengths[n], I64) > 0, value, 0)

        if self.is_batch_first:
            return self._join((self.batch, len(states), self.hidden), 1, element)
        return self._join((len(states), self.batch, self.hidden), 0, element)

    def _join(self, shape: tuple[int, ...], axis: int, element: Callable[..., Term]) -> Value:
        """``element(d, …)`` for each direction d, which stands at `axis`."""
        box = (*shape[:axis], 1, *shape[axis + 1 :])

        def piece(d: int) -> tuple[tuple[int, ...], Callable[..., Sequence[Operand]], Callable[..., Operand]]:
            return (
                box,
                lambda *i: (*i[:axis], d, *i[axis + 1 :]),
                lambda *i: cast(element(d, *i[:axis], *i[axis + 1 :]), self.x.dtype.computed),
            )

        return self.b.parts(shape, self.x.dtype, [piece(d) for d in range(shape[axis])])


def make_layer(
    b: Builder,
    x: Value,
    w: Value | ByteWeights,
    r: Value | ByteWeights,
    bias: Value | None,
    lengths: Value | None,
    n_gates: int,
    defaults: Sequence[str],
    attributes: Attributes,
) -> Layer:
    """The layer with `n_gates` gates; `defaults` are the names of its activations.

    Attributes and shapes that do not fit contradict the node: onnx's reference implementation passes over most of them."""
    b.require_float(x, *(v for v in (w, r) if isinstance(v, Value)))
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(attributes.direction)
    if directions is None:
        b.contradict(f"direction is {attributes.direction}")
    hidden = r.shape[-1] if len(r.shape) == 3 else 0
    if attributes.hidden_size is not None and attributes.hidden_size != hidden:
        b.contradict(f"hidden_size is {attributes.hidden_size}, the recurrent weights are of shape {r.shape}")
    n, rows = len(directions), n_gates * hidden
    if x.rank != 3 or w.shape != (n, rows, x.shape[2]) or r.shape != (n, rows, hidden):
        b.contradict(f"inputs of shape {x.shape}, weights of shapes {w.shape} and {r.shape}")
    if bias is not None and bias.shape != (n, 2 * rows):
        b.contradict(f"biases of shape {bias.shape}")
    batch = x.shape[0 if attributes.layout else 1]
    if lengths is not None and lengths.shape != (batch,):
        b.contradict(f"sequence_lens of shape {lengths.shape} for a batch of {batch}")
    steps = x.shape[1 if attributes.layout else 0]
    if lengths is not None and lengths.known is not None and all(int(v) == steps for v in lengths.known):
        lengths = None
    names = list(attributes.activations) if attributes.activations else list(defaults) * n
    if len(names) == 2 * len(defaults) * n:  # ONNX's own default for RNN names two
        names = names[: len(defaults) * n]
    if len(names) != len(defaults) * n:
        b.contradict(f"{len(names)} activations, {len(defaults) * n} are expected")
    functions = find_activations(b, names, attributes.activation_alpha, attributes.activation_beta)
    is_batch_first = bool(attributes.layout)
    return Layer(b, x, w, r, bias, lengths, is_batch_first, hidden, n_gates, directions, functions, attributes.clip or 0.0)


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes that the three operators share."""

    activations: Sequence[str] | None
    activation_alpha: Sequence[float] | None
    activation_beta: Sequence[float] | None
    clip: float | None
    direction: str
    hidden_size: int | None
    layout: int


def find_activations(
    b: Builder, names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None
) -> list[Activation]:
    """Activations by name, in any case; those with parameters take the next of `alphas` and of `betas`, or ONNX's default."""
    left = {"alpha": list(alphas or ()), "beta": list(betas or ())}

    def take(which: str, default: float) -> float:
        return float(left[which].pop(0)) if left[which] else default

    found: list[Activation] = []
    for name in names:
        key = name.lower()
        if key not in _ACTIVATIONS:
            known = "an activation is one of " + ", ".join(_ACTIVATIONS)
            b.contradict(f"activation {name} is unknown", suggest_name(name, _ACTIVATIONS) or known)
        make, *defaults = _ACTIVATIONS[key]
        found.append(make(*(take(which, d) for which, d in zip(("alpha", "beta"), defaults, strict=False))))
    return found


_ACTIVATIONS: dict[str, tuple[Callable[..., Activation], *tuple[float, ...]]] = {
    "tanh": (lambda: lambda x: call("tanh", x),),
    "sigmoid": (lambda: lambda x: call("sigmoid", x),),
    "relu": (lambda: lambda x: maximum(x, 0),),
    "softsign": (lambda: lambda x: x / (call("abs", x) + 1),),
    "softplus": (lambda: lambda x: maximum(x, 0) + call("log1p", call("exp", -call("abs", x))),),
    "affine": (lambda alpha, beta: lambda x: x * alpha + beta, 1.0, 0.0),
    "leakyrelu": (lambda alpha: lambda x: select(x < 0, x * alpha, x), 0.01),
    "thresholdedrelu": (lambda alpha: lambda x: select(x > alpha, x, 0), 1.0),
    "scaledtanh": (lambda alpha, beta: lambda x: call("tanh", x * beta) * alpha, 1.0, 1.0),
    "hardsigmoid": (lambda alpha, beta: lambda x: maximum(minimum(x * alpha + beta, 1), 0), 0.2, 0.5),
    "elu": (lambda alpha: lambda x: select(x < 0, (call("exp", x) - 1) * alpha, x), 1.0),
}
