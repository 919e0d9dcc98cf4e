"""Windows that slide over the spatial dimensions of convolutions and poolings: where they stand, and reads through them."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.terms import Operand, Term
from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Windows:
    """For each spatial dimension: window k of output o reads the input at ``o * strides + k * dilations - before``."""

    input: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    """Padding that was asked for behind the last element; windows may reach further (`ceil_mode`), or not so far."""
    output: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.input)

    @property
    def reaches_outside(self) -> bool:
        """Whether a window reads an element that is not there."""
        return any(
            p > 0 or (o - 1) * s - p + (k - 1) * d >= n
            for n, k, s, d, p, o in zip(
                self.input, self.kernel, self.strides, self.dilations, self.before, self.output, strict=True
            )
        )

    def inside(self) -> tuple[Windows, tuple[int, ...]]:
        """The windows without elements that no output reads inside the input, and how many each left out in front."""
        first, kernel = [], []
        numbers = zip(self.input, self.kernel, self.strides, self.dilations, self.before, self.output, strict=True)
        for n, k, s, d, p, o in numbers:
            begin = -(((o - 1) * s - p) // d) if (o - 1) * s < p else 0
            end = min(k, (n - 1 + p) // d + 1) if (k - 1) * d >= n + p else k
            if n == 0 or o == 0 or begin >= end:
                begin, end = 0, k
            first.append(begin)
            kernel.append(end - begin)
        before = tuple(p - f * d for p, f, d in zip(self.before, first, self.dilations, strict=True))
        return replace(self, kernel=tuple(kernel), before=before), tuple(first)

    def positions(self, outputs: Sequence[Term], offsets: Sequence[Operand]) -> list[Term]:
        """Subscripts in the input of the element `offsets` of the windows of `outputs`."""
        numbers = zip(outputs, offsets, self.strides, self.dilations, self.before, strict=True)
        return [o * s + k * d - p for o, k, s, d, p in numbers]


def place_windows(
    b: Builder,
    spatial: Sequence[int],
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: int = 0,
) -> Windows:
    """The windows that these attributes of a convolution or pooling mean; refuses a kernel larger than what it slides over."""
    rank = len(spatial)
    strides = per_dimension(b, "strides", strides, rank, 1)
    dilations = per_dimension(b, "dilations", dilations, rank, 1)
    kernel = per_dimension(b, "kernel_shape", kernel, rank, 1)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        output = [-(-n // s) for n, s in zip(spatial, strides, strict=True)]
        total = [max(0, (o - 1) * s + r - n) for n, s, r, o in zip(spatial, strides, reach, output, strict=True)]
        before, after = split_padding(total, auto_pad)
        return Windows(tuple(spatial), kernel, strides, dilations, before, after, tuple(output))
    if auto_pad == "VALID":
        pads = None
    elif auto_pad not in ("NOTSET", ""):
        b.contradict(f"auto_pad is {auto_pad}")
    ends = per_dimension(b, "pads", pads, 2 * rank, 0)
    before, after = ends[:rank], ends[rank:]
    output = []
    for n, s, r, p, q in zip(spatial, strides, reach, before, after, strict=True):
        room = n + p + q - r
        if room < 0:
            b.refuse(f"a window of {r} elements slides over {n + p + q}")
        count = -(-room // s) + 1 if ceil_mode else room // s + 1
        if ceil_mode and (count - 1) * s >= n + p:  # the last window would start behind the input
            count -= 1
        output.append(count)
    return Windows(tuple(spatial), kernel, strides, dilations, before, after, tuple(output))


def split_padding(total: Sequence[int], auto_pad: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and behind: an odd element stands behind with SAME_UPPER, else before."""
    small = tuple(t // 2 for t in total)
    large = tuple(t - t // 2 for t in total)
    return (small, large) if auto_pad == "SAME_UPPER" else (large, small)


def per_dimension(b: Builder, name: str, given: Sequence[int] | None, rank: int, default: int) -> tuple[int, ...]:
    """A list of integers with one entry for each dimension; missing ones are `default`."""
    if not given:
        return (default,) * rank
    if len(given) != rank:
        b.refuse(f"{name} has {len(given)} entries, {rank} are expected")
    if name != "pads" and any(int(v) < 1 for v in given):
        b.refuse(f"{name} {tuple(given)} are not all positive")
    return tuple(int(v) for v in given)


def stored(b: Builder, x: Value) -> Value:
    """`x` as a tensor of its own where it is another one in a different shape, so that it can be read with padding."""
    return x if x.source is None else b.map(x.shape, x.dtype, lambda *i: x[i])


def read_window(
    x: Value, w: Windows, front: Sequence[Operand], outputs: Sequence[Term], offsets: Sequence[Operand], value: Operand = 0
) -> Term:
    """The element of `x` (of `stored`, if windows reach outside) at ``(*front, *w.positions(outputs, offsets))``."""
    subscripts = (*front, *w.positions(outputs, offsets))
    return x.padded(subscripts, value) if w.reaches_outside else x[subscripts]
