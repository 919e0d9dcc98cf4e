"""Shapes, and elements that move to places known beforehand: slices, concatenations, transposes, padding."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from polyc.frontends.onnx.builder import Body, Builder, Value
from polyc.frontends.onnx.element_types import find_dtype
from polyc.frontends.onnx.families.elementwise import require_one_type
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, as_term, cast, constant, select
from polyc.ir.expr import PadMode
from polyc.ir.traced import whole, whole_array
from polyc.ir.types import F32, I64, from_numpy

# --- The same elements in another shape ---


@operator("Reshape", since=5)
def reshape(b: Builder, x: Value, shape: Value, *, allowzero: int = 0) -> Value:
    wanted = list(b.integers(shape))
    kept = [d for d, n in enumerate(wanted) if n == 0 and not allowzero]
    if not allowzero:
        if any(n == 0 and d >= x.rank for d, n in enumerate(wanted)):
            b.refuse(f"shape {tuple(wanted)} keeps a dimension that {x.shape} does not have")
        wanted = [x.shape[d] if n == 0 else n for d, n in enumerate(wanted)]
    if wanted.count(-1) > 1 or any(n < -1 for n in wanted):
        b.refuse(f"shape {tuple(wanted)}")
    if -1 in wanted:
        size, others = x.size, prod(n for n in wanted if n != -1)
        if not others:  # of a tensor without elements what is not kept tells: an empty batch keeps its features
            size, others = (prod(n for d, n in enumerate(dims) if d not in kept and n != -1) for dims in (x.shape, wanted))
        wanted[wanted.index(-1)] = size // others if others else 0
    if prod(wanted) != x.size:
        b.refuse(f"{x.size} elements do not have the shape {tuple(wanted)}")
    return b.view(x, wanted)


@operator("Flatten")
def flatten(b: Builder, x: Value, *, axis: int = 1) -> Value:
    if not -x.rank <= axis <= x.rank:
        b.refuse(f"axis {axis} of a tensor of rank {x.rank}")
    axis = axis + x.rank if axis < 0 else axis
    return b.view(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


def _squeeze(b: Builder, x: Value, axes: Sequence[int] | None) -> Value:
    gone = b.axes(axes, x.rank) if axes is not None else [d for d, n in enumerate(x.shape) if n == 1]
    if any(x.shape[d] != 1 for d in gone):
        b.refuse(f"axes {tuple(gone)} of the shape {x.shape} are not all 1")
    return b.view(x, [n for d, n in enumerate(x.shape) if d not in gone])


@operator("Squeeze")
def squeeze_by_attribute(b: Builder, x: Value, *, axes: Sequence[int] | None = None) -> Value:
    return _squeeze(b, x, axes)


@operator("Squeeze", since=13)
def squeeze(b: Builder, x: Value, axes: Value | None = None) -> Value:
    return _squeeze(b, x, None if axes is None else b.integers(axes))


def _unsqueeze(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    rank = x.rank + len(axes)
    new = b.axes(axes, rank)
    rest = iter(x.shape)
    return b.view(x, [1 if d in new else next(rest) for d in range(rank)])


@operator("Unsqueeze")
def unsqueeze_by_attribute(b: Builder, x: Value, *, axes: Sequence[int]) -> Value:
    return _unsqueeze(b, x, axes)


@operator("Unsqueeze", since=13)
def unsqueeze(b: Builder, x: Value, axes: Value) -> Value:
    return _unsqueeze(b, x, b.integers(axes))


# --- Shapes, and tensors that are made of them ---


@operator("Shape")
def shape_of(b: Builder, x: Value, *, start: int = 0, end: int | None = None) -> Value:
    return b.array(whole_array(x.shape[start:end]))


@operator("Size")
def size_of(b: Builder, x: Value) -> Value:
    return b.array(whole_array((x.size,)).reshape(()))


@operator("ConstantOfShape", since=9)
def constant_of_shape(b: Builder, shape: Value, *, value: np.ndarray | None = None) -> Value:
    extents = b.integers(shape)
    if any(n < 0 for n in extents):
        b.refuse(f"shape {extents}")
    dtype = F32 if value is None else from_numpy(value.dtype)
    if dtype is None or (value is not None and value.size != 1):
        b.refuse("a value that is no number")
    number = 0 if value is None else value.reshape(-1)[0]
    return b.map(extents, dtype, lambda *i: constant(number, dtype))


@operator("EyeLike")
def eye_like(b: Builder, x: Value, *, dtype: int | None = None, k: int = 0) -> Value:
    element = x.dtype if dtype is None else find_dtype(dtype)
    if element is None or x.rank != 2:
        b.refuse(f"element type {dtype} or rank {x.rank}")
    shift = _within(k, x)
    return b.map(x.shape, element, lambda i, j: select(j - i == shift, constant(1, element), 0))


def _within(diagonal: int, x: Value) -> int:
    """The number of a diagonal of a matrix, or of one beside it where it is farther away."""
    return max(-x.shape[-2], min(diagonal, x.shape[-1]))


@operator("Range")
def arithmetic_range(b: Builder, start: Value, limit: Value, delta: Value) -> Value:
    """Its length is known when its inputs are."""
    first, last, step = (b.value(v).reshape(-1)[0] for v in (start, limit, delta))
    if step == 0:
        b.contradict("a step of 0")
    count = (
        max(0, int(np.ceil((last - first) / step)))
        if start.dtype.is_float
        else max(0, -((whole(first) - whole(last)) // whole(step)))
    )
    begin, by = constant(first, start.dtype), constant(step, start.dtype)
    return b.map((count,), start.dtype, lambda i: begin + cast(i, start.dtype.computed) * by)


@operator("Expand")
def expand(b: Builder, x: Value, shape: Value) -> Value:
    return b.map(b.broadcast(x.shape, b.integers(shape)), x.dtype, lambda *i: x.spread(i))


@operator("Tile", since=6)
def tile(b: Builder, x: Value, repeats: Value) -> Value:
    counts = b.integers(repeats)
    if len(counts) != x.rank or any(n < 0 for n in counts):
        b.refuse(f"repeats {counts} of a tensor of rank {x.rank}")
    pairs = [n for pair in zip(counts, x.shape, strict=True) for n in pair]
    found = b.map(pairs, x.dtype, lambda *i: x[i[1::2]])
    return b.view(found, [n * r for n, r in zip(x.shape, counts, strict=True)])


# --- Other orders ---


def permute(b: Builder, x: Value, order: Sequence[int]) -> Value:
    """Dimension d of the result is dimension ``order[d]`` of `x`."""
    place = [list(order).index(d) for d in range(x.rank)]
    return b.map([x.shape[d] for d in order], x.dtype, lambda *i: x[tuple(i[p] for p in place)])


@operator("Transpose")
def transpose(b: Builder, x: Value, *, perm: Sequence[int] | None = None) -> Value:
    order = list(range(x.rank))[::-1] if perm is None else list(perm)
    if sorted(order) != list(range(x.rank)):
        b.contradict(f"perm {tuple(perm or ())} of a tensor of rank {x.rank}")
    moved = [d for d in order if x.shape[d] != 1]
    if moved == sorted(moved):
        return b.view(x, [x.shape[d] for d in order])
    return permute(b, x, order)


@operator("DepthToSpace")
def depth_to_space(b: Builder, x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    if x.rank != 4 or blocksize < 1 or x.shape[1] % blocksize**2:
        b.contradict(f"blocks of {blocksize} of the shape {x.shape}")
    n, c, h, w = x.shape
    s, depth = blocksize, c // blocksize**2
    if mode == "DCR":
        found = permute(b, b.view(x, (n, s, s, depth, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        found = permute(b, b.view(x, (n, depth, s, s, h, w)), (0, 1, 4, 2, 5, 3))
    return b.view(found, (n, depth, h * s, w * s))


@operator("SpaceToDepth")
def space_to_depth(b: Builder, x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    s = blocksize
    if x.rank != 4 or s < 1 or x.shape[2] % s or x.shape[3] % s:
        b.contradict(f"blocks of {s} of the shape {x.shape}")
    n, c, h, w = x.shape
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    found = permute(b, b.view(x, (n, c, h // s, s, w // s, s)), order)
    return b.view(found, (n, c * s * s, h // s, w // s))


@operator("ReverseSequence")
def reverse_sequence(b: Builder, x: Value, lengths: Value, *, batch_axis: int = 1, time_axis: int = 0) -> Value:
    if batch_axis == time_axis:
        b.contradict(f"batch_axis and time_axis are both {batch_axis}")
    if {batch_axis, time_axis} != {0, 1} or x.rank < 2 or lengths.shape != (x.shape[batch_axis],):
        b.refuse(f"axes {batch_axis} and {time_axis} of the shape {x.shape}")

    def body(*i: Term) -> Operand:
        n, t = cast(lengths[i[batch_axis]], I64), i[time_axis]
        at = list(i)
        at[time_axis] = select(t < n, n - 1 - t, t)
        return x[tuple(at)]

    return b.map(x.shape, x.dtype, body)


# --- Parts and wholes ---


@operator("Concat", since=4)
def concatenate(b: Builder, *xs: Value, axis: int) -> Value:
    require_one_type(b, *xs)
    axis = b.axis(axis, xs[0].rank)
    frames = [(*x.shape[:axis], *x.shape[axis + 1 :]) for x in xs]
    if any(f != frames[0] for f in frames):
        b.refuse(f"shapes {' and '.join(str(x.shape) for x in xs)} along axis {axis}")
    if len(xs) == 1:
        return xs[0]
    pieces: list[tuple[Sequence[int], Body, Body]] = []
    begin = 0
    for x in xs:
        pieces.append((x.shape, _shifted(axis, begin), _element(x)))
        begin += x.shape[axis]
    return b.parts((*xs[0].shape[:axis], begin, *xs[0].shape[axis + 1 :]), xs[0].dtype, pieces)  # type: ignore[arg-type]


def _shifted(axis: int, by: int) -> Body:
    return lambda *i: (*i[:axis], i[axis] + by, *i[axis + 1 :])  # type: ignore[return-value]


def _element(x: Value) -> Body:
    return lambda *i: x[i]


def _split(b: Builder, x: Value, axis: int, sizes: Sequence[int]) -> tuple[Value, ...]:
    if sum(sizes) != x.shape[axis] or any(n < 0 for n in sizes) or len(sizes) != len(b.node.outputs):
        b.contradict(f"{len(b.node.outputs)} parts of sizes {tuple(sizes)} of {x.shape[axis]} elements")
    begins = [sum(sizes[:n]) for n in range(len(sizes))]
    return tuple(_part(b, x, axis, begin, n) for begin, n in zip(begins, sizes, strict=True))


def _part(b: Builder, x: Value, axis: int, begin: int, extent: int) -> Value:
    shape = (*x.shape[:axis], extent, *x.shape[axis + 1 :])
    return b.map(shape, x.dtype, lambda *i: x[(*i[:axis], i[axis] + begin, *i[axis + 1 :])])


def _equal_parts(b: Builder, extent: int) -> list[int]:
    """Sizes of as many parts as the node has outputs; from version 18 on the last one is shorter where they do not fit."""
    count = len(b.node.outputs)
    if 0 < extent < count or (b.node.version < 18 and extent % count):
        b.contradict(f"{count} equal parts of {extent} elements")
    size = -(-extent // count)
    return [max(0, min(size, extent - n * size)) for n in range(count)]


@operator("Split", since=2)
def split_by_attribute(b: Builder, x: Value, *, axis: int = 0, split: Sequence[int] | None = None) -> tuple[Value, ...]:
    axis = b.axis(axis, x.rank)
    return _split(b, x, axis, split or _equal_parts(b, x.shape[axis]))


@operator("Split", since=13)
def split(
    b: Builder, x: Value, sizes: Value | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Value, ...]:
    axis = b.axis(axis, x.rank)
    if sizes is None:
        return _split(b, x, axis, _equal_parts(b, x.shape[axis]))
    if num_outputs is not None:
        b.contradict("it has both the input split and the attribute num_outputs")
    return _split(b, x, axis, b.integers(sizes))


def _slice(
    b: Builder, x: Value, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None, steps: Sequence[int] | None
) -> Value:
    """As NumPy slices, with ends that may lie anywhere."""
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        b.refuse(f"starts {tuple(starts)}, ends {tuple(ends)}, axes {tuple(axes)}, steps {tuple(steps)}")
    walks = [(0, n, 1) for n in x.shape]
    for start, end, d, step in zip(starts, ends, b.distinct_axes(axes, x.rank), steps, strict=True):
        walks[d] = _walk(x.shape[d], start, end, step)
    if all(w == (0, n, 1) for w, n in zip(walks, x.shape, strict=True)):
        return x

    def body(*i: Term) -> Operand:
        return x[tuple(e * step + first if count else 0 for e, (first, count, step) in zip(i, walks, strict=True))]

    return b.map([count for _, count, _ in walks], x.dtype, body)


def _walk(n: int, start: int, end: int, step: int) -> tuple[int, int, int]:
    """The first element of a slice of n, how many there are, and the step."""
    low, high = (0, n) if step > 0 else (-1, n - 1)
    first, last = (min(max(p + n if p < 0 else p, low), high) for p in (start, end))
    return first, max(0, -((first - last) // step)), step


@operator("Slice")
def slice_by_attribute(
    b: Builder, x: Value, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> Value:
    return _slice(b, x, starts, ends, axes, None)


@operator("Slice", since=10)
def slice_of(b: Builder, x: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None) -> Value:
    along = None if axes is None else b.integers(axes)
    return _slice(b, x, b.integers(starts), b.integers(ends), along, None if steps is None else b.integers(steps))


# --- Padding ---

_MODES: dict[str, PadMode] = {"constant": "value", "edge": "clamp", "reflect": "reflect", "wrap": "wrap"}


def _pad(b: Builder, x: Value, pads: Sequence[int], mode: str, filler: Operand, axes: Sequence[int] | None = None) -> Value:
    """Negative numbers cut elements off."""
    along = list(range(x.rank)) if axes is None else b.distinct_axes(axes, x.rank)
    if len(pads) != 2 * len(along) or mode not in _MODES:
        b.refuse(f"pads {tuple(pads)} of mode {mode} for a tensor of rank {x.rank}")
    before, after = [0] * x.rank, [0] * x.rank
    for n, d in enumerate(along):
        before[d], after[d] = pads[n], pads[len(along) + n]
    if any(n > 0 for n in (*before, *after)) and min((min(0, n) for n in (*before, *after)), default=0) < 0:
        # what is cut off is no source of reflections
        begins, ends = [max(0, -n) for n in before], [n + min(0, a) for n, a in zip(x.shape, after, strict=True)]
        x = _slice(b, x, begins, [max(0, e) for e in ends], None, None)
        before, after = [max(0, n) for n in before], [max(0, n) for n in after]
    shape = [max(0, n + p + q) for n, p, q in zip(x.shape, before, after, strict=True)]
    if not any(before) and not any(after):
        return x
    if not x.size and mode != "constant":
        b.refuse("an empty tensor has nothing to pad with")
    if not x.size:
        return b.map(shape, x.dtype, lambda *i: as_term(filler, x.dtype))
    if mode == "reflect" and any(max(p, q) >= n for n, p, q in zip(x.shape, before, after, strict=True) if p > 0 or q > 0):
        b.refuse("a reflection of more elements than there are")
    if mode == "constant" and isinstance(filler, Term):
        return b.map(shape, x.dtype, lambda *i: _inside(x, [e - p for e, p in zip(i, before, strict=True)], filler))
    source = x if x.source is None else b.map(x.shape, x.dtype, lambda *i: x[i])
    return b.map(
        shape, x.dtype, lambda *i: source.padded([e - p for e, p in zip(i, before, strict=True)], filler, _MODES[mode])
    )


def _inside(x: Value, at: Sequence[Term], filler: Operand) -> Term:
    """The element of `x`, or a computed filler outside."""
    conditions = [c for e, n in zip(at, x.shape, strict=True) for c in (e >= 0, e < n)]
    inside = conditions[0]
    for c in conditions[1:]:
        inside = inside & c
    return select(inside, x[tuple(at)], filler)


@operator("Pad", since=2)
def pad_by_attribute(b: Builder, x: Value, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> Value:
    return _pad(b, x, pads, mode, value)


@operator("Pad", since=11)
def pad(
    b: Builder, x: Value, pads: Value, value: Value | None = None, axes: Value | None = None, *, mode: str = "constant"
) -> Value:
    filler: Operand = 0
    if value is not None and mode == "constant" and value.size == 1:
        require_one_type(b, x, value)
        filler = value.known.reshape(-1)[0].item() if value.known is not None else b.view(value, ())[()]
    return _pad(b, x, b.integers(pads), mode, filler, None if axes is None else b.integers(axes))


@operator("CenterCropPad", since=18)
def center_crop_pad(b: Builder, x: Value, shape: Value, *, axes: Sequence[int] | None = None) -> Value:
    extents, wanted = list(x.shape), b.integers(shape)
    which = b.distinct_axes(axes, x.rank) if axes is not None else list(range(x.rank))
    if len(wanted) != len(which):
        b.contradict(f"{len(wanted)} extents for {len(which)} axes")
    for a, n in zip(which, wanted, strict=True):
        extents[a] = n
    if any(n < 0 for n in extents) or x.rank == 0:
        b.refuse(f"the result would have extents {tuple(extents)}")
    shifts = [(m - n) // 2 if n <= m else -((n - m) // 2) for m, n in zip(x.shape, extents, strict=True)]
    is_padded = any(n > m for m, n in zip(x.shape, extents, strict=True))
    if prod(x.shape) == 0:
        return b.map(extents, x.dtype, lambda *_: constant(0, x.dtype))
    source = x if x.source is None or not is_padded else b.map(x.shape, x.dtype, lambda *i: x[i])

    def body(*i: Term) -> Operand:
        at = [s + k for s, k in zip(i, shifts, strict=True)]
        return source.padded(at) if is_padded else source[tuple(at)]

    return b.map(extents, x.dtype, body)


@operator("Trilu")
def triangle(b: Builder, x: Value, k: Value | None = None, *, upper: int = 1) -> Value:
    if x.rank < 2:
        b.refuse(f"a tensor of rank {x.rank}")
    shift = _within(0 if k is None else b.integers(k)[0], x)
    return b.map(
        x.shape,
        x.dtype,
        lambda *i: select(i[-1] - i[-2] >= shift if upper else i[-1] - i[-2] <= shift, x[i], 0),
    )
