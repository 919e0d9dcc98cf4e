"""Fourier transforms: sums with tables of roots of unity, in two steps where the length has factors (Cooley and Tukey 1965)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.element_types import find_dtype
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, cast, select
from polyc.ir.types import DType

MAX_DIRECT = 32
"""Transforms up to this length are one sum."""

Signal = Callable[..., tuple[Term, Term | None]]
"""``(*batch, n)`` to the real and the imaginary part of element n; None where that is 0."""


@operator("DFT", since=17)
def dft_17(b: Builder, x: Value, length: Value | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0) -> Value:
    return _dft(b, x, length, axis, bool(inverse), bool(onesided))


@operator("DFT", since=20)
def dft(
    b: Builder, x: Value, length: Value | None = None, axis: Value | None = None, *, inverse: int = 0, onesided: int = 0
) -> Value:
    d = -2 if axis is None else b.integer(axis)
    return _dft(b, x, length, d, bool(inverse), bool(onesided))


def _dft(b: Builder, x: Value, length: Value | None, axis: int, is_inverse: bool, is_half: bool) -> Value:
    b.require_float(x)
    axis = b.axis(axis, x.rank)
    if x.rank < 2 or x.shape[-1] not in (1, 2) or axis == x.rank - 1:
        b.refuse(f"a transform along axis {axis} of a tensor of shape {x.shape}")
    given = x.shape[axis]
    if length is not None and length.size:
        n = b.integer(length)
    else:
        n = 2 * (given - 1) if is_inverse and is_half else given
    if n < 1:
        b.refuse(f"a transform of length {n}")
    number, is_complex = x.dtype.computed, x.shape[-1] == 2
    batch = (*x.shape[:axis], *x.shape[axis + 1 : -1])

    def element(i: Sequence[Term], at: Operand, part: int) -> Term:
        return x[(*i[:axis], at, *i[axis:], part)]

    def read(*i: Term) -> tuple[Term, Term | None]:
        front, k = i[:-1], i[-1]
        if is_half and is_inverse:  # the other half mirrors what is given
            mirrored = select(k <= n // 2, k, n - k)
            is_given = mirrored < given
            place = select(is_given, mirrored, 0)
            real = select(is_given, element(front, place, 0), 0)
            if not is_complex:
                return real, None
            imaginary = select(is_given, element(front, place, 1), 0)
            return real, select(k <= n // 2, imaginary, -imaginary)
        held = k < given if n > given else None
        at = k if held is None else select(held, k, 0)
        values = [element(front, at, part) for part in range(2 if is_complex else 1)]
        if held is not None:
            values = [select(held, v, 0) for v in values]
        return values[0], (values[1] if is_complex else None)

    wanted = n // 2 + 1 if is_half and not is_inverse else n
    scale = 1 / n if is_inverse else 1.0
    parts = transform(b, read, batch, n, wanted, number, is_inverse, is_complex)
    n_parts = 1 if is_half and is_inverse else 2
    shape = (*x.shape[:axis], wanted, *x.shape[axis + 1 : -1], n_parts)

    def result(part: int, i: Sequence[Term]) -> Operand:
        value = parts[part](*i[:axis], *i[axis + 1 : -1], i[axis])
        return value if scale == 1.0 else value * scale

    return join_parts(b, shape, x.dtype, result)


def join_parts(b: Builder, shape: Sequence[int], dtype: DType, part: Callable[[int, Sequence[Term]], Operand]) -> Value:
    """A tensor whose last dimension holds the real and imaginary parts."""
    box = (*shape[:-1], 1)
    pieces = [(box, lambda *i, k=k: (*i[:-1], k), lambda *i, k=k: part(k, i)) for k in range(shape[-1])]
    return b.parts(shape, dtype, pieces)


def transform(
    b: Builder,
    read: Signal,
    batch: Sequence[int],
    n: int,
    wanted: int,
    number: DType,
    is_inverse: bool,
    is_complex: bool,
) -> tuple[Callable[..., Term], Callable[..., Term]]:
    """The first `wanted` numbers of the transform of length n of each signal: functions from ``(*batch, k)`` to their real and
    imaginary parts.  With n = A·B, element ``B·a + r`` and number ``k + A·l``: a transform over a, a turn by ``r·k/n``, and a
    transform over r."""
    a = _split(n)
    sign = 1 if is_inverse else -1
    if a == 1:
        real, imaginary = _sum(b, read, batch, n, wanted, number, sign, is_complex)
        return (lambda *i: real[i]), (lambda *i: imaginary[i])
    rest, rank = n // a, len(batch)

    def strided(*i: Term) -> tuple[Term, Term | None]:
        front, r, at = i[:rank], i[rank], i[rank + 1]
        return read(*front, at * rest + r)

    inner = _sum(b, strided, (*batch, rest), a, a, number, sign, is_complex)
    turn = np.exp(sign * 2j * np.pi / n * np.outer(np.arange(rest), np.arange(a)))
    cosine, sine = b.array(turn.real.astype(number.numpy)), b.array(turn.imag.astype(number.numpy))
    shape = (*batch, a, rest)

    def turned(part: int) -> Value:
        def body(*i: Term) -> Operand:
            front, k, r = i[:rank], i[rank], i[rank + 1]
            x, y = inner[0][(*front, r, k)], inner[1][(*front, r, k)]
            return x * cosine[r, k] - y * sine[r, k] if part == 0 else x * sine[r, k] + y * cosine[r, k]

        return b.map(shape, number, body)

    both = turned(0), turned(1)
    outer = _sum(b, lambda *i: (both[0][i], both[1][i]), (*batch, a), rest, -(-wanted // a), number, sign, True)
    return tuple(lambda *i, v=v: v[(*i[:-1], i[-1] % a, i[-1] // a)] for v in outer)  # type: ignore[return-value]


def _split(n: int) -> int:
    """The factor of n nearest to its root; 1 where the transform is one sum."""
    if n <= MAX_DIRECT:
        return 1
    return max(d for d in range(1, int(n**0.5) + 1) if n % d == 0)


def _sum(
    b: Builder,
    read: Signal,
    batch: Sequence[int],
    n: int,
    wanted: int,
    number: DType,
    sign: int,
    is_complex: bool,
) -> tuple[Value, Value]:
    """``X[…, k] = Σ x[…, j] exp(sign 2πi jk / n)`` for `wanted` numbers k: the real and the imaginary parts."""
    roots = np.exp(sign * 2j * np.pi / n * (np.outer(np.arange(n), np.arange(wanted)) % n))
    cosine, sine = b.array(roots.real.astype(number.numpy)), b.array(roots.imag.astype(number.numpy))

    def body(part: int) -> Callable[..., Operand]:
        def term(*i: Term) -> Operand:
            front, k, j = i[:-2], i[-2], i[-1]
            x, y = read(*front, j)
            if part == 0:
                return x * cosine[j, k] - y * sine[j, k] if y is not None else x * cosine[j, k]
            return x * sine[j, k] + y * cosine[j, k] if y is not None else x * sine[j, k]

        return term

    shape = (*batch, wanted)
    return b.reduce("add", shape, (n,), number, body(0)), b.reduce("add", shape, (n,), number, body(1))


@operator("STFT", since=17)
def stft(
    b: Builder, x: Value, step: Value, window: Value | None = None, length: Value | None = None, *, onesided: int = 1
) -> Value:
    """The transforms of overlapping frames of a signal, each under a window: ``[batch, frame, k, part]``."""
    b.require_float(x)
    if x.rank == 2:
        x = b.view(x, (*x.shape, 1))
    if x.rank != 3 or x.shape[2] not in (1, 2):
        b.refuse(f"a signal of shape {x.shape}")
    hop = b.integer(step)
    if length is not None and length.size:
        n = b.integer(length)
    else:
        n = x.shape[1] if window is None else window.size
    if window is not None and window.shape != (n,):
        b.refuse(f"a window of shape {window.shape} for frames of {n}")
    if hop < 1 or n < 1 or n > x.shape[1]:
        b.refuse(f"frames of {n} elements, {hop} apart, of a signal of {x.shape[1]}")
    number, is_complex = x.dtype.computed, x.shape[2] == 2
    n_frames = 1 + (x.shape[1] - n) // hop
    wanted = n // 2 + 1 if onesided else n

    def weighted(part: int) -> Value:
        def body(i: Term, f: Term, j: Term) -> Operand:
            value = x[i, f * hop + j, part]
            return value if window is None else value * cast(window[j], number)

        return b.map((x.shape[0], n_frames, n), number, body)

    frames = [weighted(part) for part in range(2 if is_complex else 1)]

    def read(*i: Term) -> tuple[Term, Term | None]:
        return frames[0][i], (frames[1][i] if is_complex else None)

    parts = transform(b, read, (x.shape[0], n_frames), n, wanted, number, False, is_complex)
    return join_parts(b, (x.shape[0], n_frames, wanted, 2), x.dtype, lambda k, i: parts[k](*i[:-1]))


@operator("MelWeightMatrix", since=17)
def mel_weight_matrix(
    b: Builder, n_bins: Value, length: Value, rate: Value, low: Value, high: Value, *, output_datatype: int = 1
) -> Value:
    """Triangles on the mel scale, as a table: it depends on nothing but numbers that give its shape."""
    dtype = find_dtype(output_datatype)
    if dtype is None or dtype.name == "bf16":
        b.refuse(f"output_datatype is {output_datatype}")
    n, size, samples = b.integer(n_bins), b.integer(length), b.integer(rate)
    b.check_size((max(size // 2 + 1, 0), max(n, 0)), dtype)
    start, end = (2595 * np.log10(1 + float(b.value(v).reshape(-1)[0]) / 700) for v in (low, high))
    mels = np.arange(n + 2) * ((end - start) / (n + 2)) + start
    edges = (((size + 1) * (700 * (10 ** (mels / 2595) - 1))) // samples).astype(np.int64)
    k = np.arange(size // 2 + 1)[:, None]
    left, center, right = edges[:-2], edges[1:-1], edges[2:]
    with np.errstate(all="ignore"):
        rising = np.where(center > left, (k - left) / np.maximum(center - left, 1), (k == center) * 1.0)
        falling = (right - k) / np.maximum(right - center, 1)
    is_falling = (k >= center) & (k < right) & (right > center)
    weights = np.where(is_falling, falling, np.where((k >= left) & (k <= center), rising, 0.0))
    return b.array(weights.astype(dtype.numpy))


def _window(name: str, *weights: float) -> None:
    """Register a window: the sum over k of ``weights[k] · cos(2π·k·n / N)``, where N is the size, or one less."""

    @operator(name, since=17)
    def window(b: Builder, size: Value, *, output_datatype: int = 1, periodic: int = 1) -> Value:
        dtype = find_dtype(output_datatype)
        if dtype is None or dtype.name == "bf16":
            b.refuse(f"output_datatype is {output_datatype}")
        n = b.integer(size)
        if n < 0:
            b.refuse(f"a window of {n} elements")
        b.check_size((n,), dtype)
        period = max(n if periodic else n - 1, 1)
        angles = 2 * np.pi / period * np.arange(n)
        values: np.ndarray = sum((w * np.cos(k * angles) for k, w in enumerate(weights)), np.zeros(n))
        return b.array(values.astype(dtype.numpy))


_window("HannWindow", 0.5, -0.5)
_window("HammingWindow", 25 / 46, -21 / 46)
_window("BlackmanWindow", 0.42, -0.5, 0.08)
