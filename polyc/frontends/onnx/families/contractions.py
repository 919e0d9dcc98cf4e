"""Matrix products and Einstein sums."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.families.elementwise import require_one_type
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, cast
from polyc.ir.contraction_paths import find_path
from polyc.ir.traced import plain


def narrowed(b: Builder, x: Value, like: Value) -> Value:
    """Sums of 16-bit floats, which are float32, in the type of an operand."""
    return x if x.dtype == like.dtype else b.map(x.shape, like.dtype, lambda *i: cast(x[i], like.dtype.computed))


@operator("MatMul")
def matrix_product(b: Builder, x: Value, y: Value) -> Value:
    require_one_type(b, x, y)
    if not x.rank or not y.rank:
        b.refuse("a scalar operand")
    rows = b.view(x, (1, *x.shape)) if x.rank == 1 else x
    columns = b.view(y, (*y.shape, 1)) if y.rank == 1 else y
    batch = b.broadcast(rows.shape[:-2], columns.shape[:-2])
    depth = rows.shape[-1]
    if columns.shape[-2] != depth:
        b.refuse(f"shapes {x.shape} and {y.shape} do not fit")

    def body(*i: Term) -> Operand:
        outer, m, n, k = i[:-3], i[-3], i[-2], i[-1]
        return rows.spread((*outer, m, k)) * columns.spread((*outer, k, n))

    shape = (*batch, rows.shape[-2], columns.shape[-1])
    found = narrowed(b, b.reduce("add", shape, (depth,), x.dtype.computed, body), x)
    return b.view(found, (*batch, *(shape[-2:-1] if x.rank > 1 else ()), *(shape[-1:] if y.rank > 1 else ())))


@operator("Gemm", since=7)
def general_product(
    b: Builder,
    x: Value,
    y: Value,
    c: Value | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    require_one_type(b, x, y, *([] if c is None else [c]))
    if x.rank != 2 or y.rank != 2:
        b.refuse(f"shapes {x.shape} and {y.shape}")
    (m, depth), (other, n) = x.shape[:: -1 if transA else 1], y.shape[:: -1 if transB else 1]
    if depth != other or (c is not None and b.broadcast(c.shape, (m, n)) != (m, n)):
        b.refuse(f"shapes {x.shape} and {y.shape} do not fit")

    def body(i: Term, j: Term, k: Term) -> Operand:
        return x[(k, i) if transA else (i, k)] * y[(j, k) if transB else (k, j)]

    number = x.dtype.computed
    bias = c if c is not None and beta != 0 else None
    scales = [s if number.is_float else int(s) for s in (alpha, beta)]
    if alpha == 1.0 and beta == 1.0 and bias is not None and number == x.dtype:
        start = bias
        return b.reduce("add", (m, n), (depth,), number, body, init=lambda i, j: start.spread((i, j)))
    sums = b.reduce("add", (m, n), (depth,), number, body)
    if alpha == 1.0 and bias is None:
        return narrowed(b, sums, x)

    def last(i: Term, j: Term) -> Operand:
        value = sums[i, j] if alpha == 1.0 else sums[i, j] * scales[0]
        if bias is None:
            return value
        return value + (bias.spread((i, j)) if beta == 1.0 else bias.spread((i, j)) * scales[1])

    return b.map((m, n), x.dtype, last)


@operator("Einsum")
def einstein_sum(b: Builder, *xs: Value, equation: str) -> Value:
    """Two operands at a time, along the path that opt_einsum finds."""
    require_one_type(b, *xs)
    operands, result = _labels(b, equation.replace(" ", ""), [x.rank for x in xs])
    extents: dict[str, int] = {}
    for x, labels in zip(xs, operands, strict=True):
        for label, n in zip(labels, x.shape, strict=True):
            if extents.setdefault(label, n) != n:
                if 1 not in (n, extents[label]):
                    b.refuse(f"index {label} is {extents[label]} and {n} long")
                extents[label] = max(n, extents[label])
    if any(label not in extents for label in result):
        b.refuse(f"an index of the result of {equation} is in no operand")
    pool = list(zip(xs, operands, strict=True))
    sizes = {label: plain(n) for label, n in extents.items()}  # a good order for one size is right for any
    for pair in find_path(operands, result, sizes):
        taken = [pool[n] for n in pair]
        pool = [p for n, p in enumerate(pool) if n not in pair]
        rest = set(chain(result, *(labels for _, labels in pool)))
        left = [label for label in dict.fromkeys(chain(*(labels for _, labels in taken))) if label in rest]
        pool.append((_contract(b, taken, left if pool else list(result), extents), left if pool else list(result)))
    return narrowed(b, pool[0][0], xs[0])


def _contract(b: Builder, taken: Sequence[tuple[Value, list[str]]], left: list[str], extents: dict[str, int]) -> Value:
    summed = [label for label in dict.fromkeys(chain(*(labels for _, labels in taken))) if label not in left]

    def body(*i: Term) -> Operand:
        at = dict(zip((*left, *summed), i, strict=True))
        factors = [x[tuple(at[s] if n > 1 else 0 for s, n in zip(labels, x.shape, strict=True))] for x, labels in taken]
        result = factors[0]
        for f in factors[1:]:
            result = result * f
        return result

    number = taken[0][0].dtype.computed
    return b.reduce("add", [extents[s] for s in left], [extents[s] for s in summed], number, body)


def _labels(b: Builder, equation: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """The indices of each operand and of the result; the dimensions of an ellipsis are named by their number from the end."""
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks) or not ranks:
        b.refuse(f"equation {equation} is for {len(texts)} operands, {len(ranks)} are given")
    operands = []
    for text, rank in zip(texts, ranks, strict=True):
        before, dots, after = text.partition("...")
        n = rank - len(before) - len(after)
        if n < 0 or (n and not dots) or not (before + after).isalpha() * bool(before + after) + (not before + after):
            b.refuse(f"{text} does not fit an operand of rank {rank}")
        operands.append([*before, *(f".{k}" for k in range(n, 0, -1)), *after])
    dotted = sorted({s for o in operands for s in o if s.startswith(".")}, key=lambda s: -int(s[1:]))
    if not arrow:
        letters = sorted(s for s in set(left) if s.isalpha() and left.count(s) == 1)
        return operands, [*dotted, *letters]
    before, dots, after = right.partition("...")
    if len(set(before + after)) != len(before + after):
        b.refuse(f"an index stands twice in the result of {equation}")
    return operands, [*before, *(dotted if dots else ()), *after]
