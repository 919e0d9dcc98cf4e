"""Attention as onnxruntime has it (domain ``com.microsoft``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.families.attention import Heads, Scores, as_heads, attend, join_rows, rotary_embedding
from polyc.frontends.onnx.families.contrib import DOMAIN
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, cast, constant, select
from polyc.ir.types import I64, DType


def _additive_mask(
    b: Builder, mask: Value | None, batch: int, rows: int, n_keys: int, filter_value: float, number: DType
) -> Callable[..., Term] | None:
    """``(batch, head, row, key)`` to what hides a key: `filter_value` where the mask is 0, or from the end of a sequence on."""
    if mask is None:
        return None
    low = constant(filter_value, number)
    if mask.rank == 1 and mask.shape == (batch,):
        return lambda n, h, i, j: select(j < cast(mask[n], I64), 0, low)
    if mask.rank == 2 and mask.shape == (batch, n_keys):
        return lambda n, h, i, j: select(mask[n, j] != 0, 0, low)
    if mask.rank == 3 and mask.shape == (batch, rows, n_keys):
        return lambda n, h, i, j: select(mask[n, i, j] != 0, 0, low)
    b.refuse(f"a mask of shape {mask.shape}")


def _sum_of(*functions: Callable[..., Term] | None) -> Callable[..., Term] | None:
    """The sum of those that are there."""
    given = [f for f in functions if f is not None]
    if not given:
        return None

    def total(*i: Term) -> Term:
        value = given[0](*i)
        for f in given[1:]:
            value = value + f(*i)
        return value

    return total


def _spread_bias(b: Builder, bias: Value | None, shape: tuple[int, ...]) -> Callable[..., Term] | None:
    if bias is None:
        return None
    if b.broadcast(bias.shape, shape) != shape:
        b.refuse(f"a bias of shape {bias.shape} for products of shape {shape}")
    return lambda *i: bias.spread(i)


@operator("Attention", domain=DOMAIN)
def contrib_attention(
    b: Builder,
    x: Value,
    w: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    past: Value | None = None,
    added: Value | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    qkv_hidden_sizes: Sequence[int] | None = None,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Value, ...]:
    """Rows, keys and values are one product of the input with a matrix; then attention."""
    b.require_float(x, w)
    if x.rank != 3 or w.rank != 2 or w.shape[0] != x.shape[2]:
        b.refuse(f"an input of shape {x.shape}, weights of shape {w.shape}")
    sizes = list(qkv_hidden_sizes) if qkv_hidden_sizes else [w.shape[1] // 3] * 3
    if sum(sizes) != w.shape[1] or any(n % num_heads for n in sizes):
        b.refuse(f"{num_heads} heads of {sizes}")
    batch, rows = x.shape[:2]
    init = None if bias is None else lambda n, i, c: bias[c]
    projected = b.reduce(
        "add", (batch, rows, w.shape[1]), (x.shape[2],), x.dtype, lambda n, i, c, k: x[n, i, k] * w[k, c], init
    )

    def part(first: int, size: int) -> Heads:
        each = size // num_heads
        return Heads(lambda n, h, i, d: projected[n, i, h * each + d + first], (batch, num_heads, rows, each))

    q, k, v = part(0, sizes[0]), part(sizes[0], sizes[1]), part(sizes[0] + sizes[1], sizes[2])
    before, outputs = 0, []
    if past is not None or any(b.node.outputs[1:]):
        if sizes[1] != sizes[2] or (past is not None and (past.rank != 5 or past.shape[0] != 2)):
            b.refuse("kept keys and values of different shapes")
        before = 0 if past is None else past.shape[3]
        kept = None if past is None else past

        def one(which: int, new: Heads) -> tuple[Sequence[int], Callable[..., Sequence[Operand]], Callable[..., Operand]]:
            return (
                (1, *new.shape),
                lambda _, n, h, i, d: (which, n, h, i + before, d),
                lambda _, n, h, i, d: new.read(n, h, i, d),
            )

        pieces = [one(0, k), one(1, v)]
        if kept is not None:
            pieces.append((kept.shape, lambda *i: i, lambda *i: kept[i]))
        present = b.parts((2, batch, num_heads, before + rows, k.shape[3]), x.dtype, pieces)
        k = Heads(lambda n, h, i, d: present[0, n, h, i, d], (batch, num_heads, before + rows, k.shape[3]))
        v = Heads(lambda n, h, i, d: present[1, n, h, i, d], (batch, num_heads, before + rows, v.shape[3]))
        outputs.append(present)
    number, n_keys = x.dtype.computed, before + rows
    total = _sum_of(
        _additive_mask(b, mask, batch, rows, n_keys, mask_filter_value, number),
        _spread_bias(b, added, (batch, num_heads, rows, n_keys)),
    )
    allowed: Callable[..., Term | None] | None = (lambda n, h, i, j: j <= i + before) if unidirectional else None
    scores = Scores(scale or 1 / sqrt(max(q.shape[3], 1)), 0.0, total, allowed)
    y, _ = attend(b, q, k, v, scores, x.dtype, number)
    return b.view(y, (batch, rows, sizes[2])), *outputs


@operator("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(
    b: Builder,
    query: Value,
    key: Value | None = None,
    value: Value | None = None,
    bias: Value | None = None,
    mask: Value | None = None,
    added: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Value, ...]:
    b.require_float(query)
    if query.rank != 3 or key is None or value is None or key.rank not in (3, 4) or value.rank not in (3, 4):
        b.refuse("rows, keys and values that are packed in one tensor")
    q, k, v = (as_heads(b, t, num_heads) for t in (query, key, value))
    if bias is not None:
        first = 0
        parts = []
        for heads in (q, k, v):
            each = heads.shape[3]
            parts.append(_with_bias(heads, bias, first, each))
            first += num_heads * each
        if bias.shape != (first,):
            b.refuse(f"a bias of shape {bias.shape}")
        q, k, v = parts
    outputs: list[Value] = []
    before = 0 if past_key is None else past_key.shape[2]
    if past_key is not None or any(b.node.outputs[1:]):
        outputs = [join_rows(b, past_key, k, query.dtype), join_rows(b, past_value, v, query.dtype)]
        k, v = as_heads(b, outputs[0], None), as_heads(b, outputs[1], None)
    number = query.dtype.computed
    shape = (q.shape[0], num_heads, q.shape[2], k.shape[2])
    total = _sum_of(
        _additive_mask(b, mask, shape[0], shape[2], shape[3], mask_filter_value, number), _spread_bias(b, added, shape)
    )

    def sees(n: Term, h: Term, i: Term, j: Term) -> Term:
        """As in onnxruntime, the last row sees all keys where the model has joined them: a decoder's step has one row."""
        in_front = j <= i + before
        return in_front if before + shape[2] >= shape[3] else in_front | (i == shape[2] - 1)

    scores = Scores(scale or 1 / sqrt(max(q.shape[3], 1)), 0.0, total, sees if unidirectional else None)
    y, _ = attend(b, q, k, v, scores, query.dtype, number)
    return b.view(y, (*y.shape[:2], y.shape[2] * y.shape[3])), *outputs


def _with_bias(heads: Heads, bias: Value, first: int, each: int) -> Heads:
    return Heads(lambda n, h, i, d: heads.read(n, h, i, d) + bias[h * each + d + first], heads.shape)


@operator("RotaryEmbedding", domain=DOMAIN)
def contrib_rotary_embedding(
    b: Builder,
    x: Value,
    positions: Value,
    cosine: Value,
    sine: Value,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Value:
    if scale != 1.0 or is_packed_batching:
        b.refuse("scaled or packed positions")
    if x.rank not in (3, 4) or cosine.rank != 2:
        b.refuse(f"a tensor of shape {x.shape}, angles of shape {cosine.shape}")
    batch, rows = x.shape[0], x.shape[2 if x.rank == 4 else 1]
    if positions.size not in (1, batch * rows):
        b.refuse(f"positions of shape {positions.shape} for {batch} times {rows} rows")
    heads = num_heads or (x.shape[2] // (2 * cosine.shape[1]) if x.rank == 3 and cosine.shape[1] else 0)
    if positions.size == 1:  # the position of the first row
        start = b.view(positions, ())
        at = b.map((batch, rows), I64, lambda n, i: cast(start[()], I64) + i)
    else:
        at = b.view(positions, (batch, rows))
    turned: Value = rotary_embedding(
        b,
        x,
        cosine,
        sine,
        at,
        interleaved=interleaved,
        num_heads=heads if x.rank == 3 else None,
        rotary_embedding_dim=rotary_embedding_dim,
    )
    return turned
