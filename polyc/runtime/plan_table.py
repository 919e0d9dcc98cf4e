"""Finding the plan of a call: through compiled code where that is possible, else through Python."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.diagnostics import PolycError
from polyc.runtime import fastcalls
from polyc.runtime.arrays import alias_pattern, data_address
from polyc.runtime.fastcalls import CallTable, Doors
from polyc.runtime.plain import PlainArguments
from polyc.runtime.plan import Plan, layout_key
from polyc.runtime.scalar_tables import NumberRange
from polyc.runtime.sizes import check_size
from polyc.runtime.weak import without_weakness

if TYPE_CHECKING:
    from polyc.runtime.kernel import Kernel


class PlanTable:
    """Plans by the layout of a call's arrays: inputs, and all results or none."""

    MAX_PLANS = 4096
    """Beyond it all are forgotten, which costs a planning each."""
    _MAX_TABLES = 1024
    """The same for `under`."""

    def __init__(
        self,
        numbers: Sequence[Mapping[type, NumberRange]] = (),
        bound: Sequence[np.ndarray | None] = (),
        sizes: Sequence[int] = (),
    ) -> None:
        """`numbers`: of each input, the Python numbers that compiled code takes for an array; `bound`: the array that no
        call of the object gives, which the calls of this table nevertheless do, or None; `sizes`: positions of inputs that are
        sizes as well, on whose values plans depend."""
        self.sizes = tuple(sizes)
        self._numbers = numbers
        self._plans: dict[Any, Plan] = {}
        self._calls: dict[int, CallTable] = {}
        self._named: dict[Hashable, PlanTable] = {}
        self._bound = tuple(bound)
        self._n_free = sum(a is None for a in self._bound)
        self._doors = Doors(bound)
        self.doors = self._doors.words
        """Of an object whose calls give the inputs that are not bound: where compiled code finds tables (`fastcalls.py`)."""

    def with_bound(self, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """All inputs in order, of those that an object's call gives; None unless they are as many as are not bound."""
        if len(inputs) != self._n_free:
            return None
        rest = iter(inputs)
        return tuple([next(rest) if a is None else a for a in self._bound])

    def at(self, inputs: Sequence[Any]) -> PlanTable:
        """The plans of calls with these values of the inputs that are sizes; this table where there are none, or no numbers."""
        if not self.sizes:
            return self
        try:
            return self.with_sizes([operator.index(inputs[p]) for p in self.sizes])
        except (TypeError, OverflowError, IndexError):
            return self

    def with_sizes(self, values: Sequence[int]) -> PlanTable:
        """The plans of calls with these values of the inputs that are sizes."""
        return self.under(tuple(values)) if values else self

    def keep_apart(self, places: Sequence[int], values: Sequence[int], inputs: Sequence[Any]) -> PlanTable:
        """The plans of calls with these values at `places`: inputs that are sizes, as a call has told, from now on."""
        if not set(places) <= set(self.sizes):
            self.sizes = tuple(sorted({*self.sizes, *places}))
        return self.with_sizes(values) if len(places) == len(self.sizes) else self.at(inputs)

    def under(self, named: Hashable) -> PlanTable:
        """The plans of calls that give these sizes and constants by keyword; this table itself for None."""
        if named is None:
            return self
        table = self._named.get(named)
        if table is None:
            if len(self._named) >= self._MAX_TABLES:
                self._named.clear()
            table = self._named[named] = PlanTable(self._numbers)
        return table

    def call(self, *inputs: Any) -> Any:
        """The result of a call (of several results a tuple) as planned, or None; `run` with the rest of the checks follows."""
        # Shadowed by the function of a `CallTable` from the second call of a layout on.
        return unpack(self.run(inputs))

    def call_into(self, *arrays: Any) -> Any:
        """As `call`, where the last of `arrays` is the only result."""
        return unpack(self.run(arrays[:-1], arrays[-1:]))

    def call_into_all(self, inputs: Sequence[Any], outputs: tuple[Any, ...]) -> Any:
        """As `call`, where `outputs` are all results; from the second call of a layout on."""
        table = self._calls.get(len(outputs))
        return None if table is None or not outputs else table.call(*inputs, *outputs)

    def call_converted(self, arguments: PlainArguments, inputs: Sequence[Any], out: Any) -> Any:
        """As `call`, where some of `inputs` are numbers, lists or tensors, and `out` is anything that a call takes."""
        arrays = arguments.inputs(inputs)
        if arrays is None:
            return None
        if out is None:
            result = self.call(*arrays)
            return unpack(self.run(arrays)) if result is None else result
        found = arguments.outputs(out)
        if found is None:
            return None
        given, outputs = found
        if self.call_into_all(arrays, outputs) is None and self.run(arrays, outputs) is None:
            return None
        return unpack(given)

    def read_numbers_again(self) -> None:
        """Let compiled code know that `numbers` have changed."""
        for table in self._calls.values():
            table.read_numbers(self._numbers)
        for named in list(self._named.values()):
            named.read_numbers_again()

    def _speed_up(self, plan: Plan, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Let compiled code find `plan` from now on."""
        table = self._calls.get(len(outputs))
        if table is None:
            table = self._calls[len(outputs)] = CallTable(len(outputs), numbers=self._numbers)
        if len(table) >= self.MAX_PLANS:
            table.forget(lambda plan: True)
        table.add(plan, inputs, outputs)
        if len(outputs) < 2:
            self._doors.open(len(outputs), table)
        if not outputs:
            self.call = table.call  # type: ignore[method-assign]
        elif len(outputs) == 1:
            self.call_into = table.call  # type: ignore[method-assign]

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any] = ()) -> tuple[np.ndarray, ...] | None:
        """Execute as planned; None where there is no plan, or where this call needs the full checks after all."""
        if not outputs:
            plan = self._plans.get(layout_key(inputs))
            if plan is None:
                return None
            addresses = [data_address(a) for a in inputs]
            if not plan.is_aligned(addresses):
                return None
            if fastcalls.is_available():
                self._speed_up(plan, inputs, ())
            return plan.run_at(addresses, (), [])
        layout = layout_key((*inputs, *outputs))
        if layout is None:
            return None
        addresses, given = [data_address(a) for a in inputs], [data_address(a) for a in outputs]
        pattern = alias_pattern(addresses, given)
        plan = self._plans.get((len(inputs), layout, pattern))
        if plan is None or not plan.is_aligned(addresses + given) or not plan.is_clear(addresses, given, pattern):
            return None
        for array in outputs:
            if not array.flags.writeable:
                return None
        if fastcalls.is_available():
            self._speed_up(plan, inputs, outputs)
        return plan.run_at(addresses, outputs, given)

    def forget(self, owner: object) -> None:
        """Drop the plans of one kernel."""
        self._plans = {key: plan for key, plan in self._plans.items() if plan.keepalive is not owner}
        for table in self._calls.values():
            table.forget(lambda plan: plan.keepalive is owner)
        for named in list(self._named.values()):
            named.forget(owner)

    def remember(self, plan: Plan, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray] = ()) -> None:
        """Let calls of this layout, with this pattern of exact aliases, take `plan`."""
        layout = layout_key((*inputs, *outputs))
        if layout is None:
            return
        key: Any = layout
        if outputs:
            pattern = alias_pattern([data_address(a) for a in inputs], [data_address(a) for a in outputs])
            key = (len(inputs), layout, pattern)
        if len(self._plans) >= self.MAX_PLANS:
            self._plans.clear()
            for table in self._calls.values():
                table.forget(lambda plan: True)
        self._plans[key] = plan
        fastcalls.is_available()  # loads what the next call takes: a first call of a layout may take some milliseconds


def unpack(results: tuple[Any, ...] | None) -> Any:
    """What a call returns: the only result, or all."""
    return results[0] if results is not None and len(results) == 1 else results


class Replans:
    """Kernels by the layout of calls that gave no results: they serve calls of the same layout with other numbers, without a
    search for program, layouts and kernel."""

    def __init__(self, plans: PlanTable, plain: PlainArguments) -> None:
        self._plans, self._plain = plans, plain
        self._kernels: dict[Any, tuple[Kernel, tuple[str, ...]]] = {}

    def record(self, plan: Plan, names: Sequence[str], inputs: Sequence[Any]) -> None:
        """Let calls like this one take its kernel, if that is for any value of its sizes `names`, which are all such inputs."""
        kernel: Any = plan.keepalive
        layout = layout_key(inputs)
        if layout is None or len(names) < len(self._plans.sizes):
            return
        if names and kernel.fixed_sizes.keys().isdisjoint(names):
            if len(self._kernels) >= PlanTable.MAX_PLANS:
                self._kernels.clear()
            self._kernels[layout] = kernel, tuple(names)

    def call(self, inputs: Sequence[Any]) -> Any:
        """The result of a call (of several a tuple); None where there is no such kernel, or where something may be wrong."""
        arrays = self._plain.inputs(inputs) if self._kernels else None
        kernel, names = (None, ()) if arrays is None else self._kernels.get(layout_key(arrays), (None, ()))
        if arrays is None or kernel is None or len(names) < len(self._plans.sizes):
            return None
        try:
            plain = [without_weakness(a) for a in arrays]
            values = [check_size(n, int(plain[p])) for n, p in zip(names, self._plans.sizes, strict=True)]
            plan, _ = kernel.plan(plain, (None,) * len(kernel.result_names), dict(zip(names, values, strict=True)))
        except PolycError:  # whoever searches says why
            return None
        results = plan.run(plain)
        self._plans.with_sizes(values).remember(plan, arrays)
        return unpack(results)

    def forget(self, kernel: Kernel) -> None:
        """Drop the plans of a kernel, and the kernel."""
        self._plans.forget(kernel)
        self._kernels = {layout: found for layout, found in self._kernels.items() if found[0] is not kernel}
