"""Attention, and the rotation of positions into its operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.element_types import find_dtype
from polyc.frontends.onnx.families.norm import wider
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, call, cast, constant, select
from polyc.ir.types import BOOL, I64, DType
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Heads:
    """A tensor as heads of rows: ``read(batch, head, row, d)``."""

    read: Callable[..., Term]
    shape: tuple[int, int, int, int]
    """batch, heads, rows, and elements of a row"""


def as_heads(b: Builder, x: Value, n_heads: int | None) -> Heads:
    """``[batch, head, row, d]``, or ``[batch, row, head · d]`` with a number of heads."""
    if x.rank == 4:
        if n_heads is not None and n_heads != x.shape[1]:
            b.refuse(f"{n_heads} heads of a tensor of shape {x.shape}")
        return Heads(lambda n, h, i, d: x[n, h, i, d], (x.shape[0], x.shape[1], x.shape[2], x.shape[3]))
    if x.rank != 3:
        b.refuse(f"{n_heads} heads of a tensor of shape {x.shape}")
    if not n_heads or x.shape[2] % n_heads:
        b.contradict(f"{n_heads or 'an unknown number of'} heads of a tensor of shape {x.shape}")
    rows = b.view(x, (*x.shape[:2], n_heads, x.shape[2] // n_heads))
    return Heads(lambda n, h, i, d: rows[n, i, h, d], (x.shape[0], n_heads, x.shape[1], x.shape[2] // n_heads))


def join_rows(b: Builder, past: Value | None, new: Heads, dtype: DType) -> Value:
    """``[batch, head, row, d]``: the rows that are kept from before, and the new ones."""
    n, h, rows, d = new.shape
    if past is None:
        return b.map(new.shape, dtype, lambda *i: new.read(*i))
    if past.rank != 4 or past.shape[:2] != (n, h) or past.shape[3] != d:
        b.refuse(f"kept rows of shape {past.shape} before rows of shape {new.shape}")
    before = past.shape[2]
    pieces = [
        (past.shape, lambda *i: i, lambda *i: past[i]),
        (new.shape, lambda n, h, i, d: (n, h, i + before, d), lambda *i: new.read(*i)),
    ]
    return b.parts((n, h, before + rows, d), dtype, pieces)


@dataclass(frozen=True, slots=True)
class Scores:
    """How products of rows become weights."""

    scale: float
    softcap: float = 0.0
    bias: Callable[..., Term] | None = None
    """``(batch, head, row, key)`` to what is added."""
    allowed: Callable[..., Term | None] | None = None
    """``(batch, head, row, key)`` to whether a row sees a key; None where it always does."""


def attend(
    b: Builder, q: Heads, k: Heads, v: Heads, scores: Scores, dtype: DType, softmax: DType, wanted: int | None = None
) -> tuple[Value, Value | None]:
    """``[batch, row, head, d]``, and what is `wanted` of the way there.

    That is: 0 the products, 1 these after the soft cap, 2 with what is added, 3 the weights.
    Heads of `q` share those of `k` and `v`.  A row that sees no key is 0."""
    batch, heads, rows, size = q.shape
    if k.shape[1] == 0 or heads % k.shape[1] or k.shape[0] != batch or k.shape[3] != size or v.shape[:3] != k.shape[:3]:
        b.refuse(f"rows of shape {q.shape}, keys of shape {k.shape} and values of shape {v.shape}")
    share, n_keys, number = heads // k.shape[1], k.shape[2], dtype.computed

    def shared(h: Term) -> Operand:
        return h // share if share > 1 else h

    shape = (batch, heads, rows, n_keys)
    products = b.reduce("add", shape, (size,), number, lambda n, h, i, j, d: q.read(n, h, i, d) * k.read(n, shared(h), j, d))

    def scaled(*i: Term) -> Term:
        return products[i] * scores.scale

    def capped(*i: Term) -> Term:
        return call("tanh", scaled(*i) / scores.softcap) * scores.softcap if scores.softcap else scaled(*i)

    is_masked = scores.allowed is not None

    def biased(*i: Term) -> Term:
        value = capped(*i)
        if scores.bias is not None:
            value = value + scores.bias(*i)
        held = scores.allowed(*i) if scores.allowed is not None else None
        return value if held is None else select(held, value, float("-inf"))

    logits = b.map(shape, softmax, lambda *i: cast(biased(*i), softmax))
    greatest = b.reduce("max", shape[:3], (n_keys,), softmax, lambda *i: logits[i])

    def weight(*i: Term) -> Term:
        top = greatest[i[:3]]
        if is_masked or scores.bias is not None:  # a row that sees nothing
            top = select(top == float("-inf"), 0, top)
        return call("exp", logits[i] - top)

    weights = b.map(shape, softmax, weight)
    sums = b.reduce("add", shape[:3], (n_keys,), softmax, lambda *i: weights[i])
    mixed = b.reduce(
        "add",
        (batch, rows, heads, v.shape[3]),
        (n_keys,),
        number,
        lambda n, i, h, d, j: cast(weights[n, h, i, j], number) * v.read(n, shared(h), j, d),
    )

    def divisor(n: Term, h: Term, i: Term) -> Term:
        total = cast(sums[n, h, i], number)
        return select(total == 0, 1, total) if is_masked or scores.bias is not None else total

    y = b.map(mixed.shape, dtype, lambda n, i, h, d: mixed[n, i, h, d] / divisor(n, h, i))
    if wanted is None:
        return y, None
    kinds: list[Callable[..., Term]] = [
        scaled,
        capped,
        biased,
        lambda *i: cast(weights[i], number) / divisor(*i[:3]),
    ]
    return y, b.map(shape, dtype, lambda *i: kinds[wanted](*i))


@operator("Attention", since=23)
def attention(
    b: Builder,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    n_valid: Value | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[Value, ...]:
    b.require_float(query, key, value)
    dtype = query.dtype
    if key.dtype != dtype or value.dtype != dtype:
        b.refuse("rows, keys and values of different types")
    softmax = find_dtype(softmax_precision) if softmax_precision else dtype
    if softmax is None or not softmax.is_float:
        b.refuse(f"softmax_precision is {softmax_precision}")
    q = as_heads(b, query, q_num_heads)
    k, v = as_heads(b, key, kv_num_heads), as_heads(b, value, kv_num_heads)
    wants_cache = any(b.node.outputs[1:3])
    present = None
    if past_key is not None or past_value is not None or wants_cache:
        present = join_rows(b, past_key, k, dtype), join_rows(b, past_value, v, dtype)
        k, v = as_heads(b, present[0], None), as_heads(b, present[1], None)
    rows, n_keys = q.shape[2], k.shape[2]
    before = past_key.shape[2] if past_key is not None else 0

    def first(n: Term) -> Operand:
        """The position of the first row among the keys."""
        return before if n_valid is None or past_key is not None else cast(n_valid[n], I64) - rows

    def allowed(n: Term, h: Term, i: Term, j: Term) -> Term | None:
        held: list[Term] = []
        at = i + first(n)
        if is_causal:
            held.append(j <= at)
        if left_window_size >= 0:
            held.append(at - j <= left_window_size)
        if right_window_size >= 0:
            held.append(j - at <= right_window_size)
        if n_valid is not None:
            held.append(j < cast(n_valid[n], I64))
        if mask is not None and (mask.dtype == BOOL or mask.shape[-1] < n_keys):
            held += seen(n, h, i, j)
        result: Term | None = None
        for one in held:
            result = one if result is None else result & one
        return result

    def masked(*i: Term) -> Term:
        """The element of the mask; of a key behind its end, any."""
        assert mask is not None
        at = i[4 - mask.rank :]
        last = at[-1] if mask.shape[-1] >= n_keys else select(at[-1] < mask.shape[-1], at[-1], 0)
        return mask[tuple(0 if m == 1 and n != 1 else s for s, m, n in zip((*at[:-1], last), mask.shape, goal, strict=True))]

    def seen(*i: Term) -> list[Term]:
        assert mask is not None
        held = [i[3] < mask.shape[-1]] if mask.shape[-1] < n_keys else []
        return [*held, masked(*i)] if mask.dtype == BOOL else held

    goal: tuple[int, ...] = ()
    if mask is not None:
        goal = (q.shape[0], q.shape[1], rows, n_keys)[4 - mask.rank :] if 0 < mask.rank <= 4 else ()
        fits = [m in (1, n) for m, n in zip(mask.shape[:-1], goal[:-1], strict=bool(goal))]
        if not goal or not all(fits) or mask.shape[-1] > n_keys or (mask.shape[-1] == 0 and n_keys):
            b.refuse(f"a mask of shape {mask.shape} for {q.shape[1]} heads of {rows} rows and {n_keys} keys")
        if mask.dtype != BOOL and not mask.dtype.is_float:
            b.refuse(f"a mask of type {mask.dtype.label}")
    number = dtype.computed
    is_limited = is_causal or left_window_size >= 0 or right_window_size >= 0 or n_valid is not None
    is_hiding = is_limited or (mask is not None and (mask.dtype == BOOL or mask.shape[-1] < n_keys))
    bias = None if mask is None or mask.dtype == BOOL else lambda *i: cast(masked(*i), number)
    factor = scale if scale is not None else 1 / sqrt(max(q.shape[3], 1))
    scores = Scores(factor, softcap, bias, allowed if is_hiding else None)
    wanted = qk_matmul_output_mode if len(b.node.outputs) > 3 and b.node.outputs[3] else None
    if wanted is not None and wanted not in (0, 1, 2, 3):
        b.refuse(f"qk_matmul_output_mode is {wanted}")
    y, products = attend(b, q, k, v, scores, dtype, softmax.computed, wanted)
    if query.rank == 3:
        y = b.view(y, (*y.shape[:2], y.shape[2] * y.shape[3]))
    else:
        transposed = y
        y = b.map((y.shape[0], y.shape[2], y.shape[1], y.shape[3]), dtype, lambda n, h, i, d: transposed[n, i, h, d])
    outputs: list[Value] = [y]
    if wants_cache or products is not None:
        if present is None:
            present = join_rows(b, None, k, dtype), join_rows(b, None, v, dtype)
        outputs += present
    if products is not None:
        outputs.append(products)
    return tuple(outputs)


@operator("RotaryEmbedding", since=23)
def rotary_embedding(
    b: Builder,
    x: Value,
    cosine: Value,
    sine: Value,
    positions: Value | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> Value:
    """Pairs of elements of a row, turned by an angle that depends on its position.

    The angles are ``[position, pair]``, or without `positions` ``[batch, row, pair]``."""
    b.require_float(x)
    heads = as_heads(b, x, num_heads or None)
    n, h, rows, size = heads.shape
    turned = rotary_embedding_dim or size
    half = turned // 2
    if turned > size or turned % 2 or cosine.shape != sine.shape or cosine.shape[-1] < half:
        b.refuse(f"{turned} of {size} elements are turned, by angles of shape {cosine.shape}")
    if positions is None and cosine.shape[:2] != (n, rows):
        b.refuse(f"angles of shape {cosine.shape} for {n} times {rows} rows")
    if positions is not None and (cosine.rank != 2 or positions.rank != 2):
        b.refuse(f"positions of shape {positions.shape} among angles of shape {cosine.shape}")
    number = x.dtype.computed

    def angle(table: Value, i: Term, row: Term, pair: Term) -> Term:
        if positions is None:
            return cast(table[i, row, pair], number)
        m = positions.shape
        at = positions[i if m[0] > 1 else 0, row]
        return cast(table[cast(at, I64), pair], number)

    def element(i: Term, row: Term, head: Term, d: Operand) -> Term:
        return heads.read(i, head, row, d)

    step = 2 if interleaved else 1
    second = 1 if interleaved else half

    def real(i: Term, row: Term, head: Term, p: Term) -> Operand:
        x1, x2 = element(i, row, head, p * step), element(i, row, head, p * step + second)
        return x1 * angle(cosine, i, row, p) - x2 * angle(sine, i, row, p)

    def imaginary(i: Term, row: Term, head: Term, p: Term) -> Operand:
        x1, x2 = element(i, row, head, p * step), element(i, row, head, p * step + second)
        return x1 * angle(sine, i, row, p) + x2 * angle(cosine, i, row, p)

    def at(offset: int, stride: int) -> Callable[..., Sequence[Operand]]:
        if x.rank == 4:
            return lambda i, row, head, p: (i, head, row, p * stride + offset)
        return lambda i, row, head, p: (i, row, head, p * stride + offset)

    box = (n, rows, h, half)
    pieces = [(box, at(0, step), real), (box, at(second, step), imaginary)]
    if turned < size:
        rest = (n, rows, h, size - turned)
        pieces.append((rest, at(turned, 1), lambda i, row, head, p: element(i, row, head, p + turned)))
    shape = x.shape if x.rank == 4 else (n, rows, h, size)
    return b.view(b.parts(shape, x.dtype, pieces), x.shape)


@operator("LinearAttention", since=27)
def linear_attention(
    b: Builder,
    query: Value,
    key: Value,
    value: Value,
    past: Value | None = None,
    decay: Value | None = None,
    beta: Value | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Value, Value]:
    """Rows read a state ``S[key element, value element]``, which each row first decays and adds its key and value to; with a
    rule of deltas, only what the key does not find in the state already."""
    b.require_float(query, key, value)
    q, k, v = as_heads(b, query, q_num_heads), as_heads(b, key, kv_num_heads), as_heads(b, value, kv_num_heads)
    batch, heads, steps, size = k.shape
    width = v.shape[3]
    if query.rank != 3 or q.shape[3] != size or q.shape[1] % heads or v.shape[:3] != k.shape[:3] or steps != q.shape[2]:
        b.refuse(f"rows of shape {q.shape}, keys of shape {k.shape} and values of shape {v.shape}")
    rules = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}
    if rules.get(update_rule) != (decay is not None, beta is not None):
        b.refuse(f"update_rule {update_rule} with these inputs")
    if decay is not None and decay.shape not in ((batch, steps, heads), (batch, steps, heads * size)):
        b.refuse(f"a decay of shape {decay.shape}")
    if beta is not None and beta.shape not in ((batch, steps, heads), (batch, steps, 1)):
        b.refuse(f"rates of shape {beta.shape}")
    number, shape = wider(query.dtype, key.dtype), (batch, heads, size, width)
    states = b.declare((steps + 1, *shape), number)

    def first(_: Term, n: Term, h: Term, i: Term, j: Term) -> Operand:
        return constant(0, number) if past is None else cast(past[n, h, i, j], number)

    b.write(states, (1, *shape), lambda _, n, h, i, j: (0, n, h, i, j), first)

    def kept(t: Term, n: Term, h: Term, i: Term, j: Term) -> Term:
        """The state that row t finds, decayed."""
        before = states[t, n, h, i, j]
        if decay is None:
            return before
        rate = decay[n, t, h] if decay.shape[2] == heads else decay[n, t, h * size + i]
        return before * call("exp", cast(rate, number))

    def element(heads: Heads, n: Term, h: Term, t: Term, d: Term) -> Term:
        return cast(heads.read(n, h, t, d), number)

    found = None
    if beta is not None:
        found = b.reduce(
            "add",
            (steps, batch, heads, width),
            (size,),
            number,
            lambda t, n, h, j, i: kept(t, n, h, i, j) * element(k, n, h, t, i),
        )

    def written(t: Term, n: Term, h: Term, i: Term, j: Term) -> Operand:
        new = element(v, n, h, t, j)
        if beta is not None and found is not None:
            rate = beta[n, t, h] if beta.shape[2] == heads else beta[n, t, 0]
            new = (new - found[t, n, h, j]) * cast(rate, number)
        return kept(t, n, h, i, j) + element(k, n, h, t, i) * new

    b.write(states, (steps, *shape), lambda t, n, h, i, j: (t + 1, n, h, i, j), written)
    share, factor = q.shape[1] // heads, scale or 1 / sqrt(max(size, 1))

    def reads(n: Term, t: Term, h: Term, j: Term, i: Term) -> Operand:
        return element(q, n, h, t, i) * states[t + 1, n, h // share if share > 1 else h, i, j]

    sums = b.reduce("add", (batch, steps, q.shape[1], width), (size,), number, reads)
    y = b.map(sums.shape, query.dtype, lambda *i: cast(sums[i] * factor, query.dtype.computed))
    kind = query.dtype if past is None else past.dtype
    last = b.map(shape, kind, lambda *i: cast(states[(steps, *i)], kind.computed))
    return b.view(y, (batch, steps, q.shape[1] * width)), last
