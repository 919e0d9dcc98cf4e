"""The Kernel: one compiled specialisation, callable on arrays.

A call is planned once per layout of its arguments (shapes, strides, element types): checks, sizes, strides and result
shapes do not change until the layout does.  A planned call only collects addresses, allocates results and jumps.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyc.diagnostics import ArgumentError, BoundsError, Diagnostic, PolycError, RangeError, Remark
from polyc.ir.expr import evaluate
from polyc.ir.signature import HostCheck, Signature
from polyc.runtime import memory, threads
from polyc.runtime.arguments import (
    Alias,
    check_input_strides,
    convert_inputs,
    convert_outputs,
    find_aliases,
    input_specs,
    result_shape,
    result_specs,
    signature_formals,
    sort_arguments,
    sort_outputs,
)
from polyc.runtime.arrays import (
    byte_bounds,
    contiguous_strides,
    data_address,
    unsupported_alias,
)
from polyc.runtime.sizes import missing_sizes, solve_sizes

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
_WORKSPACE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32)
_ERROR = ctypes.c_int64 * 3

_MAX_PLANS = 1024
"""Layouts remembered per kernel; beyond it all are forgotten, which costs a planning each."""

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


def no_alias_is_safe(output: str, source: str) -> bool:
    return False


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

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray] = ()) -> tuple[np.ndarray, ...]:
        """Execute on arrays that have exactly this layout; `outputs` are those given by the caller."""
        addresses = [data_address(a) for a in inputs]
        return self.run_at(addresses, outputs, [data_address(a) for a in outputs])

    def run_at(self, addresses: list[int], outputs: Sequence[np.ndarray], given: list[int]) -> tuple[np.ndarray, ...]:
        """As `run`, with the addresses of inputs and given results."""
        results: tuple[np.ndarray, ...]
        if given:
            results, taken = self._merge_results(outputs, given)
            addresses = addresses + taken
        else:
            results = tuple([memory.allocate_result(shape, dtype) for shape, dtype in self.allocate])  # type: ignore[misc]
            addresses = addresses + [data_address(r) for r in results]
        n_threads = threads.team_size()
        size = self.workspace_sizes.get(n_threads)
        if size is None:
            size = self.workspace_sizes[n_threads] = self.workspace(self.block_address, n_threads)
        error = _ERROR()
        place = memory.workspace_address(size) if size else 0
        status = self.entry(self.addresses(*addresses), self.block_address, place, error, n_threads)
        if status:
            raise self._bounds_error(status, error)
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

    def is_clear(self, addresses: Sequence[int], given: Sequence[int]) -> bool:
        """Whether the given results are aligned and certainly overlap nothing, so that the slow checks may be skipped."""
        ranges = [(a + low, a + high) for a, (low, high) in zip([*addresses, *given], self.bounds, strict=True)]
        n = self.n_inputs
        for i in range(n, len(ranges)):
            low, high = ranges[i]
            for other_low, other_high in ranges[:i]:
                if low < other_high and other_low < high:
                    return False
        return True

    def is_aligned(self, addresses: Sequence[int]) -> bool:
        mixed = 0
        for address in addresses:
            mixed |= address
        return not mixed & self.misaligned

    def _bounds_error(self, status: int, error: ctypes.Array[ctypes.c_int64]) -> PolycError:
        guard = self.signature.guards[status - 1]
        message = format_message(guard.message, {**self.sizes, "value": int(error[1]), "bound": int(error[2])})
        return BoundsError(
            Diagnostic("bounds-index", message, guard.span, "check the index values, or clamp the subscript with min and max")
        )


def format_message(message: str, values: Mapping[str, int]) -> str:
    """`message` with its ``{name}`` fields; as it stands where a field has no value."""
    try:
        return message.format_map(values)
    except (KeyError, IndexError, ValueError):
        return message


class Kernel:
    """One compiled specialisation of an operator.

    Call it as the operator: ``kernel(*arrays, out=None)`` gives the results (an array, or a tuple of several).  It takes
    only the element types, sizes and layouts it was compiled for; others are an `ArgumentError`.

    `alias_is_safe(result, input)` says whether the code may write a result over an input in exactly the same memory.
    `fixed_sizes` are the sizes baked into the code.
    """

    def __init__(
        self,
        signature: Signature,
        entry_address: int,
        workspace_address: int,
        keepalive: object,
        *,
        fixed_sizes: Mapping[str, int] | None = None,
        remarks: Sequence[Remark] = (),
        alias_is_safe: Callable[[str, str], bool] = no_alias_is_safe,
    ) -> None:
        self.signature = signature
        self.remarks = tuple(remarks)
        self.fixed_sizes = dict(fixed_sizes or {})
        self._alias_is_safe = alias_is_safe
        self._keepalive = keepalive
        self._entry = _ENTRY(entry_address)
        self._workspace = _WORKSPACE(workspace_address)
        self._addresses = ctypes.c_void_p * max(1, len(signature.arrays))
        self._formals = signature_formals(signature)
        self._inputs = input_specs(signature)
        self._results = result_specs(signature)
        self._plans: dict[Layout, Plan] = {}
        self._lock = threading.Lock()
        # ABI order is parameters, then returns; `run` relies on it to concatenate addresses.
        assert tuple(signature.arrays) == (*self._inputs, *self._results)

    @property
    def name(self) -> str:
        return self.signature.name

    def __repr__(self) -> str:
        inputs = ", ".join(f"{a.name}: {a.dtype}" for a in self._inputs)
        results = ", ".join(a.name for a in self._results)
        sizes = "".join(f" {n}={v}" for n, v in self.fixed_sizes.items())
        return f"<polyc kernel {self.name}({inputs}) -> ({results}){sizes}>"

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run.  `named` are inputs by name, and sizes that no array determines."""
        if out is None and not named:
            key = layout_key(arrays)
            plan = self._plans.get(key) if key is not None else None
            if plan is not None:
                addresses = [data_address(a) for a in arrays]
                if plan.is_aligned(addresses):
                    results = plan.run_at(addresses, (), [])
                    return results[0] if len(results) == 1 else results
        call = sort_arguments(self.name, [a.name for a in self._inputs], self.signature.sizes, (), arrays, named)
        inputs = convert_inputs(self._formals, call.inputs)
        names = [a.name for a in self._results]
        values = sort_outputs(names, {a.name for a in self._results if a.role == "inout"}, out)
        results = self.run(inputs, values, call.sizes)
        return results[0] if len(results) == 1 else results

    def run(
        self, inputs: Sequence[np.ndarray], out: Sequence[Any], sizes: Mapping[str, int], proved_aliases: Sequence[Alias] = ()
    ) -> tuple[Any, ...]:
        """Check and execute.  `inputs` have the declared types and ranks; `out` has one entry per result, None: allocate.

        What was given in `out` is returned as it was given, whatever its type."""
        plan, outputs = self.plan(inputs, out, sizes, proved_aliases)
        results = plan.run(inputs, outputs)
        return tuple(r if given is None else given for r, given in zip(results, out, strict=True))

    def plan(
        self, inputs: Sequence[np.ndarray], out: Sequence[Any], sizes: Mapping[str, int], proved_aliases: Sequence[Alias] = ()
    ) -> tuple[Plan, tuple[np.ndarray, ...]]:
        """All checks for these arguments, and the plan that runs every call of the same layout; the arrays behind `out`."""
        values = self._solve(inputs, sizes)
        for spec, array in zip(self._inputs, inputs, strict=True):
            check_input_strides(spec, array.shape, array.strides)
        checked = convert_outputs(self._results, out, values)
        for spec, result in zip(self._results, checked, strict=True):
            if result is not None:
                check_input_strides(spec, result.shape, result.strides)
        names = [a.name for a in self._inputs]
        for output, source in find_aliases(names, inputs, [a.name for a in self._results], checked):
            if (output, source) not in proved_aliases and not self._alias_is_safe(output, source):
                raise unsupported_alias(output, source)
        outputs = tuple(o for o in checked if o is not None)
        key = layout_key(inputs)
        if any(o is not None for o in checked) or sizes or key is None:
            return self._make_plan(inputs, checked, values), outputs
        with self._lock:
            plan = self._plans.get(key)
            if plan is None:
                if len(self._plans) >= _MAX_PLANS:
                    self._plans.clear()
                plan = self._plans[key] = self._make_plan(inputs, checked, values)
        return plan, outputs

    def _solve(self, inputs: Sequence[np.ndarray], sizes: Mapping[str, int]) -> dict[str, int]:
        """All sizes, or the error that names the one that does not fit."""
        shapes = {s.name: a.shape for s, a in zip(self._inputs, inputs, strict=True)}
        values = solve_sizes(self._formals, shapes, sizes, self.fixed_sizes, self.signature.defined_sizes)
        problem = missing_sizes(self.signature.sizes, values)
        if problem is not None:
            raise problem
        for check in self.signature.host_checks:
            if not evaluate(check.condition, values):
                raise host_check_error(check, values)
        return values

    def _make_plan(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray | None], values: dict[str, int]) -> Plan:
        words = [values[n] for n in self.signature.sizes]
        words += [values[n] for n, _ in self.signature.defined_sizes]
        for array in inputs:
            words += array.strides
        allocate: list[tuple[tuple[int, ...], np.dtype] | None] = []
        for spec, output in zip(self._results, outputs, strict=True):
            if output is None:
                shape, dtype = result_shape(spec, values), spec.dtype.numpy
                allocate.append((shape, dtype))
                words += contiguous_strides(shape, dtype.itemsize)
            else:
                allocate.append(None)
                words += output.strides
        block = (ctypes.c_int64 * max(1, len(words)))(*words)
        given = [*inputs, *(o for o in outputs if o is not None)]
        return Plan(
            signature=self.signature,
            entry=self._entry,
            workspace=self._workspace,
            block=block,
            block_address=ctypes.addressof(block),
            addresses=self._addresses,
            n_inputs=len(inputs),
            allocate=tuple(allocate),
            sizes=values,
            misaligned=max((a.dtype.alignment for a in given), default=1) - 1,
            bounds=tuple(byte_bounds(a.shape, a.strides, a.itemsize) for a in given),
            workspace_sizes={},
        )


def host_check_error(check: HostCheck, values: Mapping[str, int]) -> PolycError:
    """The error of a precondition on sizes that does not hold."""
    message = format_message(check.message, values)
    help = "call it with sizes for which this holds, or restrict the index with a where clause"
    cls = RangeError if check.code.startswith("range") else ArgumentError
    return cls(Diagnostic(check.code, message, check.span, help))
