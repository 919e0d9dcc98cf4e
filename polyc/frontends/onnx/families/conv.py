"""Convolutions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import numpy as np

from polyc.frontends.onnx.builder import Body, Builder, Value
from polyc.frontends.onnx.registry import operator as onnx_operator
from polyc.frontends.onnx.sampling import sample_linear
from polyc.frontends.onnx.terms import Operand, Term, cast
from polyc.frontends.onnx.windows import Windows, per_dimension, place_windows, read_window, split_padding, stored

MAX_PHASES = 16
"""Statements that a transposed convolution may be written in."""


@onnx_operator("Conv")
def conv(
    b: Builder,
    x: Value,
    w: Value,
    bias: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    b.require_float(x)
    kernel = check_filters(b, x, w, group, kernel_shape)
    b.check_vector(bias, w.shape[0], "a bias")
    windows = place_windows(b, x.shape[2:], kernel, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
    return convolve(b, x, w, bias, windows, group)


def check_filters(b: Builder, x: Value, w: Value, group: int, kernel_shape: Sequence[int] | None) -> tuple[int, ...]:
    """The kernel's extents; refuses filters that do not fit the image."""
    if x.rank < 3 or w.rank != x.rank:
        b.refuse(f"an image of rank {x.rank} and filters of rank {w.rank}")
    if group < 1 or w.shape[0] % group or w.shape[1] * group != x.shape[1]:
        b.refuse(f"{x.shape[1]} channels, filters of shape {w.shape} and {group} groups do not fit")
    if kernel_shape is not None and tuple(kernel_shape) != w.shape[2:]:
        b.refuse(f"kernel_shape {tuple(kernel_shape)} is not that of the filters, {w.shape[2:]}")
    return w.shape[2:]


def convolve(b: Builder, x: Value, w: Value, bias: Value | None, windows: Windows, group: int = 1) -> Value:
    """``y[n, m, o] = bias[m] + Σ x[n, c, window k of o] * w[m, c, k]``, for each group of channels."""
    inside, first = windows.inside() if windows.reaches_outside else (windows, ())
    if inside.kernel != windows.kernel:  # a tensor of its own: of constant filters it is made once
        whole = w
        w = b.map((*w.shape[:2], *inside.kernel), w.dtype, lambda m, c, *k: whole[(m, c, *map(operator.add, k, first))])
    return convolve_terms(b, x, w, lambda *i: w[i], bias, inside, group)


def convolve_terms(
    b: Builder,
    x: Value,
    w: Value,
    filters: Callable[..., Term],
    bias: Value | None,
    windows: Windows,
    group: int = 1,
    *,
    multiply: Callable[[Term, Term], Term] = operator.mul,
    outside: Operand = 0,
) -> Value:
    """`convolve` with ``filters(m, c, *k)`` in the place of the elements of `w`, another product of two elements, and another
    number `outside` of the image."""
    if windows.reaches_outside:
        x = stored(b, x)
    in_group, out_group = w.shape[1], w.shape[0] // group
    rank = windows.rank
    over = (in_group, *windows.kernel)
    if group == 1 or in_group == out_group == 1:

        def plain(*i: Term) -> Operand:
            n, m, out, c, k = i[0], i[1], i[2 : 2 + rank], i[2 + rank], i[3 + rank :]
            element = read_window(x, windows, (n, c if group == 1 else m), out, k, outside)
            return multiply(element, filters(m, c, *k))

        init = None if bias is None else lambda n, m, *_: bias[m]
        return b.reduce("add", (x.shape[0], w.shape[0], *windows.output), over, x.dtype, plain, init)

    def grouped(*i: Term) -> Operand:
        n, g, m, out, c, k = i[0], i[1], i[2], i[3 : 3 + rank], i[3 + rank], i[4 + rank :]
        element = read_window(x, windows, (n, g * in_group + c), out, k, outside)
        return multiply(element, filters(g * out_group + m, c, *k))

    start: Body | None = None if bias is None else lambda n, g, m, *_: bias[g * out_group + m]
    y = b.reduce("add", (x.shape[0], group, out_group, *windows.output), over, x.dtype, grouped, start)
    return b.view(y, (x.shape[0], w.shape[0], *windows.output))


@onnx_operator("ConvTranspose")
def conv_transpose(
    b: Builder,
    x: Value,
    w: Value,
    bias: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """Element o of the output is of phase ``(o + before) mod stride``.

    Each phase is a convolution of stride 1 with the filter's elements of that phase.  Where all phases of a dimension have
    equally many elements, the phase is an index of one statement, else each is a statement of its own."""
    b.require_float(x)
    rank = x.rank - 2
    if rank < 1 or w.rank != x.rank or w.shape[0] != x.shape[1] or group < 1 or x.shape[1] % group:
        b.refuse(f"an image of shape {x.shape}, filters of shape {w.shape} and {group} groups do not fit")
    if kernel_shape is not None and tuple(kernel_shape) != w.shape[2:]:
        b.refuse(f"kernel_shape {tuple(kernel_shape)} is not that of the filters, {w.shape[2:]}")
    b.check_vector(bias, w.shape[1] * group, "a bias")
    stride = per_dimension(b, "strides", strides, rank, 1)
    dilation = per_dimension(b, "dilations", dilations, rank, 1)
    extra = tuple(int(v) for v in output_padding) if output_padding else (0,) * rank
    full = [
        (n - 1) * s + p + (k - 1) * d + 1
        for n, s, p, k, d in zip(x.shape[2:], stride, extra, w.shape[2:], dilation, strict=True)
    ]
    ends = per_dimension(b, "pads", pads, 2 * rank, 0)
    before, output = ends[:rank], tuple(f - p - q for f, p, q in zip(full, ends[:rank], ends[rank:], strict=True))
    if output_shape or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(output_shape)[-rank:] if output_shape else tuple(n * s for n, s in zip(x.shape[2:], stride, strict=True))
        before, _ = split_padding([max(0, f - o) for f, o in zip(full, wanted, strict=True)], auto_pad)
        output = wanted
    elif auto_pad == "VALID":
        before, output = (0,) * rank, tuple(full)
    elif auto_pad not in ("NOTSET", ""):
        b.contradict(f"auto_pad is {auto_pad}")
    if any(o < 0 for o in output):
        b.refuse(f"the result would have extents {output}")
    t = _Transposed(b, x, w, bias, group, stride, dilation, before, output)
    return t.build()


class _Transposed:
    """A transposed convolution; per spatial dimension stride s, dilation d, padding before p, input n, output o, kernel k."""

    def __init__(
        self,
        b: Builder,
        x: Value,
        w: Value,
        bias: Value | None,
        group: int,
        stride: tuple[int, ...],
        dilation: tuple[int, ...],
        before: tuple[int, ...],
        output: tuple[int, ...],
    ) -> None:
        self.b, self.w, self.bias, self.group = b, w, bias, group
        self.stride, self.dilation, self.before, self.output = stride, dilation, before, output
        self.rank = len(stride)
        self.x = stored(b, x)
        self.filters = w.shape[1]
        self.per_group = x.shape[1] // group
        self.columns: Value | None = None
        """``[n, g, m, k, …, i, …]``: the sums over channels, where a zero beside the input might not give a zero."""

    def build(self) -> Value:
        b, output = self.b, self.output
        if any(d > 1 and s > 1 for d, s in zip(self.dilation, self.stride, strict=True)):
            self.dilate_filters()
        if self.w.known is None or not np.isfinite(self.w.known.astype(np.float64)).all():
            self.columns = self.sum_channels()
        kernel = self.w.shape[2:]
        is_index = [k % s == 0 for k, s in zip(kernel, self.stride, strict=True)]
        choices = [(None,) if even else tuple(range(s)) for even, s in zip(is_index, self.stride, strict=True)]
        if prod(len(c) for c in choices) > MAX_PHASES:
            choices = [(None,)] * self.rank
        # Steps of the input that outputs stand at: from the first, which may be before the input's, to the last.
        first = [p // s for p, s in zip(self.before, self.stride, strict=True)]
        count = [(o + p - 1) // s - f + 1 for o, p, s, f in zip(output, self.before, self.stride, first, strict=True)]
        count = [max(c, 0) for c in count]
        whole = (self.x.shape[0], self.w.shape[1] * self.group, *output)
        phases = [self.phase(chosen, first, count) for chosen in product(*choices)]
        if len(phases) == 1:
            steps = [m for c, s in zip(count, self.stride, strict=True) for m in (c, s)]
            spread = b.view(phases[0], (*whole[:2], *steps))
            offset = [p - f * s for p, f, s in zip(self.before, first, self.stride, strict=True)]
            if not any(offset) and all(c * s == o for c, s, o in zip(count, self.stride, output, strict=True)):
                return b.view(spread, whole)

            def crop(n: Term, m: Term, *o: Term) -> Operand:
                at = [e + p for e, p in zip(o, offset, strict=True)]
                pairs = [v for a, s in zip(at, self.stride, strict=True) for v in (a // s, a % s if s > 1 else 0)]
                return spread[(n, m, *pairs)]

            return b.map(whole, self.x.dtype, crop)
        pieces = [self.piece(chosen, phase, first, whole) for chosen, phase in zip(product(*choices), phases, strict=True)]
        return b.parts(whole, self.x.dtype, pieces)

    def dilate_filters(self) -> None:
        """Write the filters with the zeros between their elements."""
        w, dilation = self.w, self.dilation
        shape = (*w.shape[:2], *((k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)))

        def body(c: Term, m: Term, *k: Term) -> Operand:
            value = w[(c, m, *(i // d for i, d in zip(k, dilation, strict=True)))]
            for i, d in zip(k, dilation, strict=True):
                if d > 1:
                    value = choose(i % d == 0, value, 0)
            return value

        from polyc.frontends.onnx.terms import select as choose

        self.w = self.b.map(shape, w.dtype, body)
        self.dilation = (1,) * self.rank

    def sum_channels(self) -> Value:
        x, w, rank = self.x, self.w, self.rank

        def body(*i: Term) -> Operand:
            n, g, m, c = i[0], i[1], i[2], i[3 + 2 * rank]
            channel = c if self.group == 1 else g * self.per_group + c
            return x[(n, channel, *i[3 + rank : 3 + 2 * rank])] * w[(channel, m, *i[3 : 3 + rank])]

        shape = (x.shape[0], self.group, self.filters, *w.shape[2:], *x.shape[2:])
        return self.b.reduce("add", shape, (self.per_group,), x.dtype, body)

    def phase(self, chosen: Sequence[int | None], first: Sequence[int], count: Sequence[int]) -> Value:
        """``[n, g, m, q, r, …]`` for the chosen phases r; a phase that is an index keeps its dimension."""
        b, x, w, stride, kernel = self.b, self.x, self.w, self.stride, self.w.shape[2:]
        per_group, filters, group, columns = self.per_group, self.filters, self.group, self.columns
        phases = [s if r is None else 1 for r, s in zip(chosen, stride, strict=True)]
        # Elements of the filter in a phase.
        taps = [-(-k // s) if r is None else len(range(r, k, s)) for r, k, s in zip(chosen, kernel, stride, strict=True)]
        uneven = [d for d in range(self.rank) if chosen[d] is None and kernel[d] % stride[d]]
        left = (x.shape[0], group, filters, *(m for c, s in zip(count, phases, strict=True) for m in (c, s)))

        def split(i: Sequence[Term]) -> tuple[Term, Term, Term, list[Term], list[Operand], Term, list[Term]]:
            n, g, m, c = i[0], i[1], i[2], i[3 + 2 * self.rank]
            q = list(i[3 : 3 + 2 * self.rank : 2])
            r: list[Operand] = [i[4 + 2 * d] if chosen[d] is None else int(chosen[d] or 0) for d in range(self.rank)]
            return n, g, m, q, r, c, list(i[4 + 2 * self.rank :])

        def body(*i: Term) -> Operand:
            n, g, m, q, r, c, t = split(i)
            at = [a + f - e * d for a, f, e, d in zip(q, first, t, self.dilation, strict=True)]
            k = [e * s + a for e, s, a in zip(t, stride, r, strict=True)]
            if columns is not None:
                return columns.padded((n, g, m, *k, *at))
            channel = c if group == 1 else g * per_group + c
            return x.padded((n, channel, *at)) * w[(channel, m, *k)]

        def where(*i: Term) -> Operand:
            _, _, _, _, r, _, t = split(i)
            held = [t[d] * stride[d] + r[d] < kernel[d] for d in uneven]
            result = held[0]
            for other in held[1:]:
                result = result & other
            return result

        bias = self.bias
        init: Body | None = None if bias is None else lambda n, g, m, *_: bias[m if group == 1 else g * filters + m]
        over = (1 if columns is not None else per_group, *taps)
        return b.reduce("add", left, over, x.dtype, body, init, where if uneven else None)

    def piece(
        self, chosen: Sequence[int | None], phase: Value, first: Sequence[int], whole: tuple[int, ...]
    ) -> tuple[tuple[int, ...], Callable[..., Sequence[Operand]], Body]:
        """Where the elements of one phase stand in the output, as `Builder.parts` takes it."""
        stride, before, output, rank = self.stride, self.before, self.output, self.rank
        # Output o = step * j + start is element (o + before - r) / stride - first of phase r.
        start = [0 if r is None else (r - p) % s for r, p, s in zip(chosen, before, stride, strict=True)]
        step = [1 if r is None else s for r, s in zip(chosen, stride, strict=True)]
        box = [max(0, -(-(o - a) // s)) for o, a, s in zip(output, start, step, strict=True)]
        filters = self.filters

        def place(n: Term, m: Term, *j: Term) -> list[Operand]:
            return [n, m, *(i * s + a for i, s, a in zip(j, step, start, strict=True))]

        def body(n: Term, m: Term, *j: Term) -> Operand:
            subscripts: list[Operand] = [n, *((0, m) if self.group == 1 else (m // filters, m % filters))]
            for d in range(rank):
                r = chosen[d]
                if r is None:
                    at = j[d] + (before[d] - first[d] * stride[d])
                    subscripts += [at // stride[d], at % stride[d] if stride[d] > 1 else 0]
                else:
                    subscripts += [j[d] + ((start[d] + before[d] - r) // stride[d] - first[d]), 0]
            return phase[tuple(subscripts)]

        return (*whole[:2], *box), place, body


@onnx_operator("DeformConv", since=19)
def deform_conv(
    b: Builder,
    x: Value,
    w: Value,
    offset: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """The elements of each window are taken at places between elements, by linear interpolation; then it is a convolution."""
    b.require_float(x, offset)
    kernel = check_filters(b, x, w, group, kernel_shape)
    at = place_windows(b, x.shape[2:], kernel, strides=strides, dilations=dilations, pads=pads, auto_pad="NOTSET")
    rank, n_points, channels = at.rank, prod(kernel), x.shape[1]
    if offset_group < 1 or channels % offset_group:
        b.refuse(f"{channels} channels in {offset_group} groups of offsets")
    if offset.shape != (x.shape[0], offset_group * n_points * rank, *at.output):
        b.refuse(f"offsets of shape {offset.shape}")
    if mask is not None and mask.shape != (x.shape[0], offset_group * n_points, *at.output):
        b.refuse(f"a mask of shape {mask.shape}")
    offsets = b.view(offset, (x.shape[0], offset_group, *kernel, rank, *at.output))
    masks = None if mask is None else b.view(mask, (x.shape[0], offset_group, *kernel, *at.output))
    per_group = channels // offset_group
    number = x.dtype.computed

    def sampled(n: Term, c: Term, *i: Term) -> Operand:
        k, out = i[:rank], i[rank:]
        group_of = c // per_group if offset_group > 1 else 0
        regular = at.positions(out, k)
        places = [cast(p, number) + cast(offsets[(n, group_of, *k, d, *out)], number) for d, p in enumerate(regular)]
        value = sample_linear(lambda *s: x[(n, c, *s)], places, x.shape[2:])
        return value if masks is None else value * cast(masks[(n, group_of, *k, *out)], number)

    columns = b.map((x.shape[0], channels, *kernel, *at.output), x.dtype, sampled)
    filters, in_group = w.shape[0] // group, w.shape[1]

    def body(*i: Term) -> Operand:
        n, g, m, out, c, k = i[0], i[1], i[2], i[3 : 3 + rank], i[3 + rank], i[4 + rank :]
        return columns[(n, g * in_group + c, *k, *out)] * w[(g * filters + m, c, *k)]

    init = None if bias is None else lambda n, g, m, *_: bias[g * filters + m]
    y = b.reduce("add", (x.shape[0], group, filters, *at.output), (in_group, *kernel), x.dtype, body, init)
    return b.view(y, (x.shape[0], w.shape[0], *at.output))


@onnx_operator("Col2Im", since=18)
def col2im(
    b: Builder,
    x: Value,
    image_shape: Value,
    block_shape: Value,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """The elements of all windows, added up where the windows overlap."""
    image, block = b.integers(image_shape), b.integers(block_shape)
    at = place_windows(b, image, block, strides=strides, dilations=dilations, pads=pads, auto_pad="NOTSET")
    rank, n_points = at.rank, prod(block)
    if x.rank != 3 or not n_points or x.shape[1] % n_points or x.shape[2] != prod(at.output):
        b.refuse(f"blocks of shape {x.shape} for an image of {image} and windows of {block}")
    columns = stored(b, b.view(x, (x.shape[0], x.shape[1] // n_points, *block, *at.output)))

    def body(*i: Term) -> Operand:
        front, place, k = i[:2], i[2 : 2 + rank], i[2 + rank :]
        distance = [p + a - e * d for p, a, e, d in zip(place, at.before, k, at.dilations, strict=True)]
        value = columns.padded((*front, *k, *(e // s for e, s in zip(distance, at.strides, strict=True))))
        for e, s in zip(distance, at.strides, strict=True):
            if s > 1:
                value = when(e % s == 0, value)
        return value

    from polyc.frontends.onnx.terms import select

    def when(condition: Term, value: Term) -> Term:
        return select(condition, value, 0)

    return b.reduce("add", (*columns.shape[:2], *image), block, x.dtype, body)
