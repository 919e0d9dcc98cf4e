"""New values of numbers that are sizes, for kernels that take any: planned without a search for program, layouts and kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyc.diagnostics import PolycError
from polyc.runtime.kernel import Kernel
from polyc.runtime.plain import PlainArguments
from polyc.runtime.plan import Plan, layout_key
from polyc.runtime.plan_table import PlanTable, unpack
from polyc.runtime.sizes import check_size
from polyc.runtime.weak import without_weakness


class Replans:
    """Kernels by the layout of calls that gave no results: they serve calls of the same layout with other numbers."""

    def __init__(self, plans: PlanTable, plain: PlainArguments) -> None:
        self._plans, self._plain = plans, plain
        self._kernels: dict[Any, tuple[Kernel, tuple[str, ...]]] = {}

    def record(self, plan: Plan, names: Sequence[str], inputs: Sequence[Any]) -> None:
        """Let calls like this one take its kernel, if that is for any value of its sizes `names`, which are all such inputs."""
        kernel, layout = plan.keepalive, layout_key(inputs)
        if not isinstance(kernel, Kernel) or layout is None or len(names) < len(self._plans.sizes):
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
