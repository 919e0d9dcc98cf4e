"""The Kernel: one compiled specialisation, callable on arrays.

A call is planned once per layout of its arguments (shapes, strides, element types): checks, sizes, strides and result
shapes do not change until the layout does (`plan.py`).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from polyc.diagnostics import ArgumentError, Diagnostic, PolycError, RangeError, Remark
from polyc.ir.expr import evaluate
from polyc.ir.signature import HostCheck, Signature
from polyc.runtime import fastcalls, memory, threads
from polyc.runtime.arguments import (
    Alias,
    check_input_strides,
    constant_specs,
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
    argument_error,
    byte_bounds,
    contiguous_strides,
    data_address,
    result_type,
    unsupported_alias,
)
from polyc.runtime.plain import PlainArguments
from polyc.runtime.plan import Plan, format_message
from polyc.runtime.plan_table import PlanTable, unpack
from polyc.runtime.sizes import missing_sizes, number_sizes, solve_sizes

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
_WORKSPACE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32)


def no_alias_is_safe(output: str, source: str) -> bool:
    return False


class Kernel:
    """One compiled specialisation of an operator.

    Call it as the operator: ``kernel(*arrays, out=None)`` gives the results (an array, or a tuple of several).  It takes
    only the element types, sizes and layouts it was compiled for; others are an `ArgumentError`.

    `alias_is_safe(result, input)` says whether the code may write a result over an input in exactly the same memory.
    `fixed_sizes` are the sizes baked into the code.  `bound` are inputs that no call gives, `constants` what
    was made of them.  `is_parallel` is False for code that starts no threads.
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
        constants: Sequence[np.ndarray] = (),
        bound: Mapping[str, np.ndarray] | None = None,
        is_parallel: bool = True,
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
        self._constants = tuple(constants)
        self._bound = dict(bound or {})
        self._is_parallel = is_parallel
        self._input_names = [a.name for a in self._inputs if a.name not in self._bound]
        self.touched = (ctypes.c_uint8 * 1)()
        self._plain = PlainArguments(self._formals, [a.name for a in self._results])
        places = [p for p, a in enumerate(self._inputs) if a.name in signature.sizes and not a.shape and a.dtype.is_integer]
        self._plans = PlanTable(self._plain.numbers, [self._bound.get(a.name) for a in self._inputs], places)
        self._doors = self._plans.doors
        # ABI order is parameters, constants, returns; `run` relies on it to concatenate addresses.
        assert tuple(signature.arrays) == (*self._inputs, *constant_specs(signature), *self._results)

    @property
    def name(self) -> str:
        return self.signature.name

    @property
    def result_names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self._results)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{a.name}: {a.dtype}" for a in self._inputs if a.name not in self._bound)
        results = ", ".join(a.name for a in self._results)
        sizes = "".join(f" {n}={v}" for n, v in self.fixed_sizes.items())
        return f"<polyc kernel {self.name}({inputs}) -> ({results}){sizes}>"

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Kernel:
        """The kernel itself, as for functions: nothing of it that calls see ever changes."""
        return self

    def __reduce__(self) -> NoReturn:
        """Kernels are machine code at an address of this process."""
        help = "pickle the operator, and ask it for its kernel where that is needed: the code comes from the disk cache"
        raise argument_error("argument-pickle", f"the kernel {self.name} cannot be pickled", None, help)

    def __call__(self, /, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run.  `named` are inputs by name, and sizes that no array determines."""
        if self._bound:
            if named or len(arrays) != len(self._input_names):
                call = sort_arguments(self.name, self._input_names, self.signature.sizes, (), arrays, named)
                arrays, named = tuple(call.inputs), dict(call.sizes)
            arrays = self._plans.with_bound(arrays) or arrays
        if not named:
            plans = self._plans.at(arrays)
            if out is None:
                result = plans.call(*arrays)
            elif type(out) is np.ndarray:
                result = plans.call_into(*arrays, out)
            else:
                result = plans.call_into_all(arrays, out) if type(out) is tuple else None
            if result is None:
                result = plans.call_converted(self._plain, arrays, out)
            if result is not None:
                return result
        call = sort_arguments(self.name, [a.name for a in self._inputs], self.signature.sizes, (), arrays, named)
        inputs = convert_inputs(self._formals, call.inputs)
        names = [a.name for a in self._results]
        values = sort_outputs(names, {a.name for a in self._results if a.role == "inout"}, out)
        return unpack(self.run(inputs, values, call.sizes))

    _call_slowly = __call__

    def run(
        self, inputs: Sequence[np.ndarray], out: Sequence[Any], sizes: Mapping[str, int], proved_aliases: Sequence[Alias] = ()
    ) -> tuple[Any, ...]:
        """Check and execute.  `inputs` have the declared types and ranks; `out` has one entry per result, None: allocate.

        What was given in `out` is returned as it was given, whatever its type."""
        plan, outputs = self.plan(inputs, out, sizes, proved_aliases)
        results = plan.run(inputs, outputs)
        if not sizes and len(outputs) in (0, len(results)):
            numbers = [plan.sizes[self._inputs[p].name] for p in self._plans.sizes]
            self._plans.with_sizes(numbers).remember(plan, inputs, outputs)
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
        return self._make_plan(inputs, checked, values), outputs

    def _solve(self, inputs: Sequence[np.ndarray], sizes: Mapping[str, int]) -> dict[str, int]:
        """All sizes, or the error that names the one that does not fit."""
        shapes = {s.name: a.shape for s, a in zip(self._inputs, inputs, strict=True)}
        arrays = {s.name: a for s, a in zip(self._inputs, inputs, strict=True)} if self._plans.sizes else {}
        given = {**number_sizes(self.signature.sizes, self._formals, arrays), **sizes}
        values = solve_sizes(self._formals, shapes, given, self.fixed_sizes, self.signature.defined_sizes)
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
            words += _memory_strides(array.strides, array.dtype)
        for spec, array in zip(constant_specs(self.signature), self._constants, strict=True):
            assert array.shape == result_shape(spec, values), f"what was prepared for {spec.name} has another shape"
            words += array.strides
        allocate: list[tuple[tuple[int, ...], np.dtype] | None] = []
        for spec, output in zip(self._results, outputs, strict=True):
            if output is None:
                shape, dtype = result_shape(spec, values), result_type(spec.name, spec.dtype)
                memory.check_result(shape, dtype)
                allocate.append((shape, dtype))
                words += _memory_strides(contiguous_strides(shape, dtype.itemsize), dtype)
            else:
                allocate.append(None)
                words += _memory_strides(output.strides, output.dtype)
        block = (ctypes.c_int64 * max(1, len(words)))(*words)
        # One by one they may fit where all together do not.
        needed = sum(math.prod(shape) * dtype.itemsize for shape, dtype in filter(None, allocate))
        needed += self._workspace(ctypes.addressof(block), threads.team_size())
        memory.check_memory(f"{self.name} with its results and temporaries", needed)
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
            constants=self._constants,
            constant_addresses=[data_address(a) for a in self._constants],
            keepalive=self,
            touched=self.touched,
            is_parallel=self._is_parallel,
        )


fastcalls.answer_calls(Kernel)


def _memory_strides(strides: tuple[int, ...], dtype: np.dtype) -> tuple[int, ...]:
    """The strides that compiled code is told: `ArraySpec.memory`."""
    return (*strides, dtype.itemsize // 2) if dtype.kind == "c" else strides


def host_check_error(check: HostCheck, values: Mapping[str, int]) -> PolycError:
    """The error of a precondition on sizes that does not hold."""
    message = format_message(check.message, values)
    help = "call it with sizes for which this holds, or restrict the index with a where clause"
    cls = RangeError if check.code.startswith("range") else ArgumentError
    return cls(Diagnostic(check.code, message, check.span, help))
