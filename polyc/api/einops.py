"""`rearrange`, `reduce` and `repeat` with the patterns of einops.

As in `polyc.einsum` NumPy computes until calls have lost about as much time as a compilation takes (`polyc.api.amortise` has
the rule; here all shapes of a pattern and element type count together).  From then on an operator does, for which a size that
keeps changing becomes symbolic.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

import numpy as np

from polyc import driver
from polyc.api.amortise import MOST_LOST, WORTH_MEASURING, clock
from polyc.api.operator import Operator
from polyc.api.rates import ASSUMED, measure_rates
from polyc.api.sources import FixedSource
from polyc.config import Options, compiles_every_einsum, default_options
from polyc.crash import name_crashes
from polyc.diagnostics import suggest_name
from polyc.ir.types import from_numpy
from polyc.runtime.arrays import argument_error, convert_input, in_own_order

MAX_OPERANDS = 32
"""Arrays of a list that are operands of their own; longer lists are gathered into one array first."""
MAX_PATTERNS, MAX_SHAPES = 1024, 1024


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> np.ndarray:
    """Transpose, split and join dimensions: what ``einops.rearrange`` computes, always in an array of its own, in C order.

    `tensor` is an array (NumPy or DLPack), or a list of arrays of one shape, which the first axis counts.  `axes_lengths` are
    the lengths of axes that the shape does not tell.

    ::

        polyc.rearrange(x, "b n (h d) -> b h n d", h=8)

    Raises SemanticError for a wrong pattern, ArgumentError for shapes and lengths that do not fit it.
    """
    return _find_calls("rearrange", pattern, None, axes_lengths)(tensor)


def reduce(tensor: Any, pattern: str, reduction: str, **axes_lengths: int) -> np.ndarray:
    """Reduce over the axes that the right side does not have, and rearrange the others: what ``einops.reduce`` computes.

    `reduction` is ``"sum"``, ``"mean"`` (of floating point numbers), ``"min"``, ``"max"``, ``"prod"``, ``"any"`` or ``"all"``;
    element types of results are NumPy's, small integers are summed in 64 bits.  See `rearrange` for the rest.

    ::

        polyc.reduce(x, "b (h 2) (w 2) c -> b h w c", "max")
    """
    return _find_calls("reduce", pattern, reduction, axes_lengths)(tensor)


def repeat(tensor: Any, pattern: str, **axes_lengths: int) -> np.ndarray:
    """Repeat along axes that only the right side has: what ``einops.repeat`` computes.  See `rearrange` for the rest.

    ::

        polyc.repeat(x, "h w -> (h 2) (w k)", k=3)
    """
    return _find_calls("repeat", pattern, None, axes_lengths)(tensor)


@dataclass(slots=True)
class _Structure:
    """Calls whose programs are the same: one operator for all lengths of axes."""

    lost: float = 0
    """Nanoseconds of NumPy beyond those of a kernel."""
    operator: Operator | None = None


@dataclass(slots=True)
class _Shape:
    fitted: Any
    structure: _Structure
    counts_operands: bool
    """Whether each array of a list is an operand of its own."""
    fastest: float = inf
    """Nanoseconds by NumPy."""


@dataclass(slots=True)
class PatternCalls:
    """Calls with one pattern and the same lengths of axes."""

    pattern: Any
    reduction: str | None
    lengths: Mapping[str, int]
    options: Options
    structures: dict[Any, _Structure] = field(default_factory=dict)
    shapes: dict[Any, _Shape] = field(default_factory=dict)

    def __call__(self, tensor: Any) -> np.ndarray:
        is_list = isinstance(tensor, (list, tuple))
        arrays = _convert_list(tensor) if is_list else (convert_input(in_own_order(tensor), "tensor", None),)
        first = arrays[0]
        key = (first.shape, first.dtype, len(arrays) if is_list else None)
        shape = self.shapes.get(key)
        if shape is None:
            shape = self._describe(arrays, is_list)
            if len(self.shapes) >= MAX_SHAPES:
                self.shapes.clear()
            self.shapes[key] = shape
        if is_list and not shape.counts_operands:
            arrays = (np.stack(arrays),)
        return self._run(arrays, shape)

    def _describe(self, arrays: Sequence[np.ndarray], is_list: bool) -> _Shape:
        first = arrays[0]
        dtype = from_numpy(first.dtype)
        assert dtype is not None
        whole = (len(arrays), *first.shape) if is_list else first.shape
        fitted = driver.fit_pattern(self.pattern, whole, self.lengths)
        if fitted.reduced and self.reduction is not None:
            driver.result_type(dtype, self.reduction)
            if self.reduction in ("min", "max") and 0 in (fitted.lengths[a] for a in fitted.reduced):
                message = f"the {self.reduction} of no elements is not defined, and a reduced axis has length 0"
                raise argument_error("argument-einops-size", message, None, "leave empty arrays out")
        is_counted = bool(fitted.left) and fitted.lengths[fitted.left[0]] == len(arrays)
        is_counted = is_counted and len(self.pattern.left[0].axes) == 1 and self.pattern.left[0].axes[0].name != "1"
        counts = is_list and is_counted and len(arrays) <= MAX_OPERANDS
        new = tuple((a, fitted.lengths[a]) for a in fitted.right if a not in fitted.left)
        key = (fitted.left, fitted.right, new, dtype, len(arrays) if counts else None)
        return _Shape(fitted, self.structures.setdefault(key, _Structure()), counts)

    def _run(self, arrays: Sequence[np.ndarray], shape: _Shape) -> np.ndarray:
        fitted, structure = shape.fitted, shape.structure
        split = fitted.split_shape[1:] if shape.counts_operands else fitted.split_shape
        parts = [a.reshape(split) for a in arrays]
        if structure.operator is None:
            is_copy = fitted.left == fitted.right and not shape.counts_operands
            waits = structure.lost < MOST_LOST and not compiles_every_einsum() and not self.options.verify
            if (is_copy or waits) and arrays[0].dtype.kind != "V":  # bfloat16 that NumPy does not know
                start = clock()
                result = self._run_numpy(parts, shape)
                structure.lost += self._lost(shape, clock() - start, arrays[0].itemsize)
                return result
            structure.operator = self._make_operator(parts[0], shape, len(parts))
        computed: np.ndarray = structure.operator(*parts)
        return computed.reshape(fitted.shape)

    def _lost(self, shape: _Shape, elapsed: int, itemsize: int) -> float:
        """Nanoseconds that NumPy's call took beyond a kernel's."""
        shape.fastest = min(shape.fastest, elapsed)
        n_bytes = (prod(shape.fitted.split_shape) + prod(shape.fitted.shape)) * itemsize
        rates = ASSUMED if n_bytes / ASSUMED.copied < WORTH_MEASURING else measure_rates()
        return max(0.0, shape.fastest - rates.time_to_move(n_bytes))

    def _run_numpy(self, parts: Sequence[np.ndarray], shape: _Shape) -> np.ndarray:
        fitted = shape.fitted
        array = np.stack(parts) if shape.counts_operands else parts[0]
        axes = list(fitted.left)
        if fitted.reduced:
            reduced = tuple(axes.index(a) for a in fitted.reduced)
            array = np.asarray(getattr(np, str(self.reduction))(array, axis=reduced))
            axes = [a for a in axes if a not in fitted.reduced]
        kept = [a for a in fitted.right if a in axes]
        array = array.transpose([axes.index(a) for a in kept])
        new = tuple(slice(None) if a in axes else None for a in fitted.right)
        array = np.broadcast_to(array[new], tuple(fitted.lengths[a] for a in fitted.right))
        is_own = fitted.reduced and array.flags.c_contiguous and array.flags.writeable
        return (array if is_own else array.copy("C")).reshape(fitted.shape)

    def _make_operator(self, part: np.ndarray, shape: _Shape, n_parts: int) -> Operator:
        dtype = from_numpy(part.dtype)
        with name_crashes("reading the pattern"):
            n_operands = n_parts if shape.counts_operands else None
            program = driver.read_einops(shape.fitted, dtype, self.reduction, n_operands)
        return Operator(FixedSource(program), self.pattern.operation, self.options)


def _convert_list(tensors: Sequence[Any]) -> tuple[np.ndarray, ...]:
    if not tensors:
        raise argument_error("argument-einops-list", "the list of arrays is empty", None, "give one array at least")
    arrays = tuple(convert_input(in_own_order(t), f"tensor {n}", None) for n, t in enumerate(tensors))
    for n, array in enumerate(arrays):
        if (array.shape, array.dtype) != (arrays[0].shape, arrays[0].dtype):
            first = f"{arrays[0].dtype}{list(arrays[0].shape)}"
            message = f"array {n} of the list is {array.dtype}{list(array.shape)}, and array 0 is {first}"
            raise argument_error("argument-einops-list", message, None, "all arrays of a list have one shape and element type")
    return arrays


def _find_calls(operation: Any, pattern: Any, reduction: Any, lengths: Mapping[str, Any]) -> PatternCalls:
    if not isinstance(pattern, str):
        message = f"the pattern is a {type(pattern).__name__}"
        raise argument_error("argument-type-pattern", message, None, "write for example 'b h w c -> b c h w'")
    numbers = tuple(lengths.items())
    for name, length in numbers:
        if not isinstance(length, (int, np.integer)) or isinstance(length, bool):
            message = f"the length of axis {name} is {length!r}"
            raise argument_error("argument-type-size", message, None, f"give an integer: {name}=2")
    if operation == "reduce" and not isinstance(reduction, str):
        message = f"the reduction is a {type(reduction).__name__}"
        raise argument_error(
            "argument-type-pattern", message, None, "write 'sum', 'mean', 'min', 'max', 'prod', 'any' or 'all'"
        )
    return _make_calls(operation, pattern, reduction, tuple((n, int(v)) for n, v in numbers), default_options())


@functools.lru_cache(maxsize=MAX_PATTERNS)
def _make_calls(
    operation: Any, pattern: str, reduction: str | None, lengths: tuple[tuple[str, int], ...], options: Options
) -> PatternCalls:
    known = ("sum", "mean", "min", "max", "prod", "any", "all")
    if reduction is not None and reduction not in known:
        help = suggest_name(reduction, known) or f"it is one of: {', '.join(known)}"
        raise argument_error("argument-einops-reduction", f"there is no reduction {reduction!r}", None, help)
    with name_crashes("reading the pattern"):
        read = driver.read_pattern(operation, pattern)
        driver.check_lengths(read, dict(lengths))
    return PatternCalls(read, reduction, dict(lengths), options)
