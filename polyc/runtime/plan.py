"""Planned calls: everything about a call that depends on its layout only, worked out once.

A planned call collects addresses, allocates results and jumps.  `plan_table.py` finds the plan of a call.
"""

from __future__ import annotations

import ctypes
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from polyc.diagnostics import ArgumentError, BoundsError, Diagnostic
from polyc.ir.signature import Signature
from polyc.records import dataclass
from polyc.runtime import memory, threads
from polyc.runtime.arrays import data_address

_ERROR = ctypes.c_int64 * 3

Layout = tuple[Any, ...]
"""Shape, strides and element type of each array, one after the other: the key of a plan."""


def layout_key(arrays: Sequence[Any]) -> Layout | None:
    """The layout of plain NumPy arrays; None where one is anything else."""
    key: list[Any] = []
    for array in arrays:
        if type(array) is not np.ndarray:
            return None
        key += (array.shape, array.strides, array.dtype)
    return tuple(key)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A call for one layout: `block` is the argument block of sizes and strides; results that are to be allocated have
    an entry in `allocate`, the others are taken from the caller in order."""

    signature: Signature
    entry: Callable[..., int]
    workspace: Callable[[int, int], int]
    block: ctypes.Array[ctypes.c_int64]
    block_address: int
    addresses: Any
    n_inputs: int
    allocate: tuple[tuple[tuple[int, ...], np.dtype] | None, ...]
    sizes: dict[str, int]
    misaligned: int
    """Bits of an address that must be 0: the largest alignment among the element types, less one."""
    bounds: tuple[tuple[int, int], ...]
    """Byte range of each input, then of each given result, around its address."""
    workspace_sizes: dict[int, int]
    constants: tuple[np.ndarray, ...]
    """What was made of bound inputs; `constant_addresses` in the order of the argument block."""
    constant_addresses: list[int]
    keepalive: object
    """What owns the code: it may be dropped from its cache while plans of it still run."""
    touched: ctypes.Array[ctypes.c_uint8]
    """Its one byte is set by every run; who keeps kernels looks at it to find those that are no longer called."""
    is_parallel: bool
    """Whether the code may start threads; other code is told that there is one."""

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray] = ()) -> tuple[np.ndarray, ...]:
        """Execute on arrays that have exactly this layout; `outputs` are those given by the caller."""
        addresses = [data_address(a) for a in inputs]
        return self.run_at(addresses, outputs, [data_address(a) for a in outputs])

    def run_at(self, addresses: list[int], outputs: Sequence[np.ndarray], given: list[int]) -> tuple[np.ndarray, ...]:
        """As `run`, with the addresses of inputs and given results."""
        results: tuple[np.ndarray, ...]
        self.touched[0] = 1
        if self.constant_addresses:
            addresses = addresses + self.constant_addresses
        if given:
            results, taken = self._merge_results(outputs, given)
            addresses = addresses + taken
        else:
            results = tuple([memory.allocate_result(shape, dtype) for shape, dtype in self.allocate])  # type: ignore[misc]
            addresses = addresses + [data_address(r) for r in results]
        n_threads = threads.team_size() if self.is_parallel else 1
        size = self.workspace_sizes.get(n_threads)
        if size is None:
            size = self.workspace_sizes[n_threads] = self.workspace(self.block_address, n_threads)
        error = _ERROR()
        place, held = memory.hold_workspace(size) if size else (0, None)  # until the code has run
        status = self.entry(self.addresses(*addresses), self.block_address, place, error, n_threads)
        del held
        if status:
            self.raise_bounds_error(status, error[1], error[2])
        return results

    def _merge_results(self, outputs: Sequence[np.ndarray], given: Sequence[int]) -> tuple[tuple[np.ndarray, ...], list[int]]:
        results, taken = [], []
        rest = iter(zip(outputs, given, strict=True))
        for allocation in self.allocate:
            if allocation is None:
                array, address = next(rest)
            else:
                array = memory.allocate_result(*allocation)
                address = data_address(array)
            results.append(array)
            taken.append(address)
        return tuple(results), taken

    def is_clear(self, addresses: Sequence[int], given: Sequence[int], pattern: Sequence[int] = ()) -> bool:
        """Whether the given results certainly overlap nothing but the inputs that `pattern` names, so that the slow
        checks may be skipped."""
        ranges = [(a + low, a + high) for a, (low, high) in zip([*addresses, *given], self.bounds, strict=True)]
        n = self.n_inputs
        for i in range(n, len(ranges)):
            low, high = ranges[i]
            alias = pattern[i - n] if pattern else -1
            for j in range(i):
                other_low, other_high = ranges[j]
                if low < other_high and other_low < high and j != alias:
                    return False
        return True

    def is_aligned(self, addresses: Sequence[int]) -> bool:
        mixed = 0
        for address in addresses:
            mixed |= address
        return not mixed & self.misaligned

    def raise_bounds_error(self, status: int, index: int, bound: int) -> NoReturn:
        """What the code found: check number + 1, the value of the index, its bound."""
        guard = self.signature.guards[status - 1]
        message = format_message(
            guard.message, {**self.sizes, "value": index, "bound": bound, **guard.point(bound, self.sizes)}
        )
        error = ArgumentError if guard.code.startswith("argument-") else BoundsError
        raise error(Diagnostic(guard.code, message, guard.span, guard.help))


class _Fields(string.Formatter):
    """Names of fields are those of sizes, points included: ``{A.nnz}``."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        return kwargs[field_name], field_name


def format_message(message: str, values: Mapping[str, int]) -> str:
    """`message` with its ``{name}`` fields; as it stands where a field has no value."""
    try:
        return _Fields().vformat(message, (), values)
    except (KeyError, IndexError, ValueError):
        return message
