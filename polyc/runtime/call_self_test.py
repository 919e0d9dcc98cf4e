"""Whether planned calls in compiled code do on this interpreter what they should, asked once before they are used."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from polyc.runtime import memory
from polyc.runtime.arrays import data_address
from polyc.runtime.fastcalls import CallTable, Doors, Native, answer
from polyc.runtime.plan import Plan
from polyc.runtime.scalar_tables import NumberRange


def passes_self_test(native: Native) -> bool:
    """Whether calls of a probe give what they should: addresses, results, refusals, errors, and no reference too many."""
    failures: list[tuple[int, ...]] = []

    def fail(*values: int) -> None:
        failures.append(values)
        raise ValueError

    entry_type = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4, ctypes.c_int32)
    workspace_type = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32)
    block = (ctypes.c_int64 * 3)(2, 0, 0)  # see the probe: position of its result, status, bytes of workspace
    constant = np.zeros(1)
    plan: Any = SimpleNamespace(
        bounds=((0, 32), (0, 24)),
        constants=(constant,),
        constant_addresses=[data_address(constant)],
        allocate=(((4,), np.dtype(np.int64)),),
        misaligned=3,
        touched=(ctypes.c_uint8 * 1)(),
        is_parallel=False,
        block_address=ctypes.addressof(block),
        workspace=workspace_type(native.exports["polyc_probe_workspace"]),
        entry=entry_type(native.exports["polyc_probe"]),
        raise_bounds_error=fail,
    )
    x = np.zeros((4, 2), np.float32)
    out = np.zeros(4, np.int64)
    table, into = CallTable(0, native), CallTable(1, native)
    table.add(plan, (x,), ())
    into.add(SimpleNamespace(**{**vars(plan), "allocate": (None,)}), (x,), (out,))  # type: ignore[arg-type]
    refused: list[tuple[Any, ...]] = [(), (x.T,), (x[:3],), ([1.0],), (x, x), (x.view(np.int32),), (x.view(np.recarray),)]
    inside, readonly = x.reshape(-1).view(np.int64), np.zeros(4, np.int64)
    readonly.flags.writeable = False
    refused_into: list[tuple[Any, ...]] = [(x,), (x, inside), (x, readonly), (out, x)]
    counts = sys.getrefcount(x), sys.getrefcount(out)
    result = table.call(x)
    if type(result) is not np.ndarray or result.tolist() != [data_address(x), 1, 0, 0] or plan.touched[0] != 1:
        return False
    if into.call(x, out) is not out or out.tolist() != result.tolist():
        return False
    if any(table.call(*arguments) is not None for arguments in refused):
        return False
    if any(into.call(*arguments) is not None for arguments in refused_into):
        return False
    block[2] = 64
    result = table.call(x)
    if result.tolist() != [data_address(x), 1, memory.workspace_address(64), 0]:
        return False
    if not _takes_numbers(plan, native) or not _answers_calls(native, table, into, x, out):
        return False
    block[1] = 6
    calls: tuple[Callable[[], Any], ...] = (lambda: table.call(x), lambda: into.call(x, out))
    for call in calls:
        try:
            call()
            return False
        except ValueError:
            pass
    return failures == [(6, -7, 5)] * 2 and (sys.getrefcount(x), sys.getrefcount(out)) == counts


def _answers_calls(native: Native, table: CallTable, into: CallTable, x: np.ndarray, out: np.ndarray) -> bool:
    """Whether objects of a class can be called, and give what they do not know to Python, unchanged."""

    class Probe:
        def __init__(self, *bound: np.ndarray | None) -> None:
            self.doors = Doors(bound)
            self._doors = self.doors.words

        def open(self) -> None:
            self.doors.open(0, table)
            self.doors.open(1, into)

        def _call_slowly(self, *inputs: Any, **named: Any) -> Any:
            return inputs, named

    answer(native, Probe)
    probe: Any = Probe()
    shut = probe(x), probe(x, out=out)
    probe.open()
    calls = probe(x), probe(x, out=out), probe(x, 1), probe(x, out=None), probe(y=x), probe(x, out=out, y=1)
    bound: Any = Probe(x)
    bound.open()
    bound_calls = bound(), bound(out=out), bound(x), bound(x, out=out)
    return (
        shut == (((x,), {}), ((x,), {"out": out}))
        and type(calls[0]) is np.ndarray
        and calls[1] is out
        and calls[0].tolist() == out.tolist()
        and type(bound_calls[0]) is np.ndarray
        and bound_calls[0].tolist() == out.tolist()
        and bound_calls[1] is out
        and bound_calls[2:] == (((x,), {}), ((x,), {"out": out}))
        and calls[2:] == (((x, 1), {}), ((x,), {"out": None}), ((), {"y": x}), ((x,), {"out": out, "y": 1}))
    )


def _takes_numbers(plan: Plan, native: Native) -> bool:
    """Whether the probe finds the values of numbers, and calls with numbers that nothing holds are refused."""
    for dtype, low, high, refused in (
        (np.dtype(np.float64), -(2**53), 2**53, [2**53 + 1, -(2**70), True]),
        (np.dtype(np.float32), -(2**24), 2**24, [2**24 + 1, 1e300]),
        (np.dtype(np.int8), -128, 127, [128, -129, 2**70, 0.5]),
    ):
        ranges: dict[type, NumberRange] = {int: (dtype, low, high)}
        if dtype.kind == "f":
            ranges[float] = dtype, -1.0, 1.0
        table = CallTable(0, native, (ranges,))
        table.add(plan, (np.zeros((), dtype),), ())
        taken = [low, high, 0, dtype.type(3), *([0.1, -math.inf] if dtype.kind == "f" else [])]
        for value in taken:
            found = table.call(value)
            if found is None or found[3:].view(dtype)[0] != np.array(value, dtype):
                return False
        if any(table.call(value) is not None for value in refused):
            return False
    return True
