"""Sequences of different lengths as arguments and results: packed values and offsets, by their attributes.

A pair ``(values, offsets)``, any object with these attributes or methods (PyTorch's nested tensors in the jagged layout), and
Awkward arrays of one list level over numbers.  Nothing is copied, and no package is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from polyc.diagnostics import PolycError
from polyc.ir.ragged import Ragged
from polyc.records import dataclass, replace
from polyc.runtime.arrays import argument_error, is_same_memory

CODE = "argument-type-ragged"


@dataclass(frozen=True, slots=True)
class Packed:
    """Sequences behind each other along one axis of `values`; sequence b is at ``offsets[b]:offsets[b + 1]``.

    ``values, offsets = packed`` takes it apart."""

    values: Any
    offsets: Any

    def __iter__(self) -> Iterator[Any]:
        return iter((self.values, self.offsets))

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the values."""
        return tuple(self.values.shape)


def read_ragged(value: Any, m: Ragged) -> Packed:
    """The arrays behind an argument.  Errors: no packed sequences, values that no sequence has."""
    packed = _take_apart(value, m)
    try:
        first, last = int(packed.offsets[0]), int(packed.offsets[-1])
        n = int(packed.values.shape[m.axis - 1])
    except (IndexError, TypeError, ValueError, AttributeError):
        return packed  # no arrays of numbers, or of other dimensions: told where arrays are read
    if first != 0 or last != n:
        message = f"the offsets of {m.name} go from {first} to {last}, and its values from 0 to {n}"
        help = f"{m.axes[m.axis]} covers all values: the offsets begin with 0 and end with their number"
        raise argument_error("argument-segments", message, m.span, help)
    return packed


def _take_apart(value: Any, m: Ragged) -> Packed:
    layout: Any = getattr(value, "layout", None)
    if str(layout) == "torch.jagged":
        if value.lengths() is not None:
            raise _refuse(m, "a nested tensor with gaps between sequences", f"pass {m.name}.contiguous()")
        axis = getattr(value, "_ragged_idx", 1)
        if axis != m.axis:
            found = f"a nested tensor whose dimension {axis} varies, not {m.axis}"
            raise _refuse(m, found, f"pass {m.name}.transpose({m.axis}, {axis})")
        return Packed(value.values(), value.offsets())
    if str(layout).startswith("torch."):
        nested = " nested" if getattr(value, "is_nested", False) else ""
        help = "pass torch.nested.nested_tensor(sequences, layout=torch.jagged), or the pair (values, offsets)"
        raise _refuse(m, f"a{nested} tensor in the layout {layout}", help)
    if isinstance(value, tuple) and len(value) == 2:
        return Packed(*value)
    content: Any = getattr(layout, "content", None)
    if hasattr(layout, "offsets") and hasattr(content, "data"):  # an Awkward array
        start, stop = int(layout.offsets.data[0]), int(layout.offsets.data[-1])
        data = content.data if start == 0 and len(content.data) == stop else None
        if data is None:
            raise _refuse(m, "a part of an Awkward array", f"pass ak.to_packed({m.name})")
        return Packed(data, layout.offsets.data)
    if hasattr(value, "values") and hasattr(value, "offsets"):
        return Packed(*(a() if callable(a) else a for a in (value.values, value.offsets)))
    found = f"a list of {len(value)}" if isinstance(value, list) else f"of type {type(value).__name__}"
    many = isinstance(value, list) and value
    pack = f"(np.concatenate({m.name}), np.cumsum([0, *map(len, {m.name})]))"
    raise _refuse(m, found, f"pass {pack}, which copies" if many else "pass the pair (values, offsets)")


def _refuse(m: Ragged, found: str, help: str) -> PolycError:
    return argument_error(CODE, f"{m.name} is to be ragged, packed values with offsets, and is {found}", m.span, help)


def make_like(value: Any, data: Any, offsets: Any, axis: int) -> Any:
    """Sequences of the kind of `value` (of PyTorch a nested tensor, else a `Packed`) along dimension `axis`."""
    torch = sys.modules.get("torch")
    if str(getattr(value, "layout", "")) == "torch.jagged" and torch is not None:
        is_bf16 = data.dtype.name == "bfloat16"
        values = torch.from_numpy(data.view(np.int16)).view(torch.bfloat16) if is_bf16 else torch.from_numpy(data)
        ends = torch.from_numpy(offsets) if isinstance(offsets, np.ndarray) else offsets
        return torch.nested.nested_tensor_from_jagged(values, offsets=ends, jagged_dim=axis)
    return Packed(data, offsets)


def check_same_offsets(first: Any, other: Any, m: Ragged) -> None:
    """Raise where the sequences of `m`, which are `other`, have other lengths than those of `first`."""
    a, b = first.offsets, other.offsets
    if a is b:
        return
    a, b = np.asarray(a), np.asarray(b)
    if not is_same_memory(a, b) and not np.array_equal(a, b):
        message = f"the sequences of {m.shares} and {m.name} have other lengths"
        if a.ndim == b.ndim == 1 and a.shape != b.shape:
            message = f"{m.shares} has {len(a) - 1} sequences, and {m.name} {len(b) - 1}"
        help = f"both are declared with {m.axes[m.axis]}: give a length that may differ another name"
        raise argument_error("argument-segments", message, m.span, help)


def take_values(value: Any, name: str, m: Ragged, arrays: Mapping[str, np.ndarray], axis: int) -> Any:
    """The array behind what a call gives for the result `name`, packed like `m`: an array of values, or sequences of the
    same lengths.  Errors: others."""
    if isinstance(value, np.ndarray) or str(getattr(value, "layout", "")) == "torch.strided":
        return value
    packed = _take_apart(value, replace(m, axes=tuple("*" * (k == axis) for k in range(axis + 1))))
    if not np.array_equal(np.asarray(packed.offsets), arrays[m.indptr]):
        message = f"out for {name} has sequences of other lengths than {m.name}"
        help = f"give the offsets of {m.name} with it, or an array for its values"
        raise argument_error("argument-out-ragged", message, m.span, help)
    return packed.values
