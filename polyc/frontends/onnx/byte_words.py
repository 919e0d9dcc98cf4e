"""Products of bytes, four at a time: both operands are stored as words of four bytes along what is summed, and one operator
(`dot4u8s8`, an instruction of many machines) adds the four products of two words.

The first operand's bytes count as unsigned ones and the second's as signed: bytes of the other kind are moved by 128, and
their zero point with them.  Zero points are taken off the sums: ``Σ (x - p)(w - q) = Σ x w - p Σ w - q Σ x + K p q``, exact in
int32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.terms import Operand, Term, call, cast, constant, select
from polyc.ir.types import I8, I32, U8

BYTES = 4
"""Bytes of a word."""
ONES = 0x01010101


def are_bytes(*values: Value) -> bool:
    """Whether all are tensors of 8-bit integers."""
    return all(v.dtype in (U8, I8) for v in values)


def multiply_words(a: Operand, b: Operand) -> Term:
    """The sum of the products of the bytes of two words."""
    return call("dot4u8s8", a, b)


def store_words(b: Builder, shape: Sequence[int], extent: int, byte: Callable[..., Term]) -> Value:
    """``[*front, word, *back]`` of bytes ``byte(position, *front, *back)``, for a `shape` with -1 where the words stand; 0
    behind the `extent` bytes that there are."""
    axis = tuple(shape).index(-1)
    whole = (*shape[:axis], -(-extent // BYTES), *shape[axis + 1 :])

    def body(*i: Term) -> Operand:
        others = (*i[:axis], *i[axis + 1 :])
        total: Term | None = None
        for k in range(BYTES):
            position = i[axis] * BYTES + k
            value = cast(byte(position, *others), I32) & constant(255, I32)
            if extent % BYTES:
                value = select(position < extent, value, 0)
            part = value if k == 0 else value * constant(_factor(k), I32)
            total = part if total is None else total | part
        assert total is not None
        return total

    return b.map(whole, I32, body)


def _factor(k: int) -> int:
    """2 to the power of 8 k, as int32."""
    return 1 << 8 * k


def unsigned(x: Value, value: Term) -> Term:
    """A byte of `x` as an unsigned one."""
    return value if x.dtype == U8 else cast(value, I32) + 128


def signed(x: Value, value: Term) -> Term:
    """A byte of `x` as a signed one."""
    return value if x.dtype == I8 else cast(value, I32) - 128


def moved_zero(x: Value, zero: Term | None, *, to_unsigned: bool) -> Term:
    """The zero point of `x` (0 without one) for the bytes that `unsigned` or `signed` makes of its own."""
    distance = (0 if x.dtype == U8 else 128) if to_unsigned else (0 if x.dtype == I8 else -128)
    return constant(distance, I32) if zero is None else cast(zero, I32) + distance


def is_zero(x: Value, zero: Value | None, *, to_unsigned: bool) -> bool:
    """Whether the zero point is known to be 0 after the bytes are moved."""
    distance = (0 if x.dtype == U8 else 128) if to_unsigned else (0 if x.dtype == I8 else -128)
    if zero is None:
        return distance == 0
    return zero.known is not None and all(int(v) + distance == 0 for v in zero.known.reshape(-1))


def sum_products(
    b: Builder,
    x: Value,
    y: Value,
    x_zero: Value | None,
    y_zero: Value | None,
    rows: Callable[[Sequence[Term]], Term] | None,
    columns: Callable[[Sequence[Term]], Term] | None,
) -> Value:
    """The matrix product ``[…, M, N]`` of `x` ``[…, M, K]`` and `y` ``[…, K, N]``; `rows` and `columns` are their zero points
    for an element of the product."""
    extent = x.shape[-1]
    batch = b.broadcast(x.shape[:-2], y.shape[:-2])
    left = store_words(b, (*x.shape[:-1], -1), extent, lambda k, *i: unsigned(x, x[(*i, k)]))
    right = store_words(b, (*y.shape[:-2], -1, y.shape[-1]), extent, lambda k, *i: signed(y, y[(*i[:-1], k, i[-1])]))
    n_words = left.shape[-1]
    shape = (*batch, x.shape[-2], y.shape[-1])

    def body(*i: Term) -> Operand:
        front, row, column, k = i[:-3], i[-3], i[-2], i[-1]
        return multiply_words(left.spread((*front, row, k)), right.spread((*front, k, column)))

    sums = b.reduce("add", shape, (n_words,), I32, body)
    has_x_zero, has_y_zero = not is_zero(x, x_zero, to_unsigned=True), not is_zero(y, y_zero, to_unsigned=False)
    if not has_x_zero and not has_y_zero:
        return sums
    ones = constant(ONES, I32)
    of_x = of_y = sums
    if has_y_zero:
        of_x = b.reduce("add", (*x.shape[:-1], 1), (n_words,), I32, lambda *i: multiply_words(left[(*i[:-2], i[-1])], ones))
    if has_x_zero:
        of_y = b.reduce(
            "add",
            (*y.shape[:-2], 1, y.shape[-1]),
            (n_words,),
            I32,
            lambda *i: multiply_words(ones, right[(*i[:-3], i[-1], i[-2])]),
        )

    def corrected(*i: Term) -> Operand:
        p = moved_zero(x, None if rows is None else rows(i), to_unsigned=True)
        q = moved_zero(y, None if columns is None else columns(i), to_unsigned=False)
        value = sums[i]
        if has_x_zero:
            value = value - p * of_y.spread(i)
        if has_y_zero:
            value = value - q * of_x.spread(i)
        if has_x_zero and has_y_zero:
            value = value + p * q * extent
        return value

    return b.map(shape, I32, corrected)
