"""Runs without Python in between: the plan of a segment as one planned call (`runtime/fastcalls.py`).

A run of a small model takes as long as what checks its inputs, finds its plan, and fills in addresses: fifteen to twenty
microseconds where all of it is Python.  Where types and layouts alone decide that a plan is the right one, compiled code does
the same in two.
"""

from __future__ import annotations

import ctypes
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from polyc import recall
from polyc.codegen.objects.sequence import ABSOLUTE, IN_ARENA, OF_CALL, PROGRAM, STEP_BIT
from polyc.frontends.onnx.graph import Node
from polyc.onnx.arena import align
from polyc.onnx.plan import Plan, raise_bounds_error
from polyc.records import dataclass
from polyc.runtime import fastcalls
from polyc.runtime.arrays import data_address, result_type

LARGEST = 1 << 20
"""Bytes of intermediates up to which runs are made this way: each thread keeps its own, and a run of more takes so long that
nobody would see the difference."""
MOST_PLANS = 64
"""Layouts that are known at once."""
MOST_CONTENTS = 16
"""Contents of small values, at one place, that are known at once."""
ANY_NUMBER = 1 << 16
"""Of threads: more than there ever are."""
MADE, GIVEN = range(2)
Source = tuple[int, int, bool] | np.ndarray
"""Of a result: an array that kernels make or that is given, by position, and whether it is copied; or known contents."""
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
_WORKSPACE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32)


class DirectPlace:
    """Runs that begin at one place of a graph, where the contents of the values `pinned` are part of what is compiled."""

    def __init__(self, pinned: tuple[str, ...]) -> None:
        self.pinned = pinned
        self._runs: dict[tuple[bytes, ...], DirectRuns] = {}

    def find(self, env: Mapping[str, Any]) -> DirectRuns | None:
        """What may know these values; None where nothing does."""
        if not self.pinned:
            return self._runs.get(())
        try:
            return self._runs.get(tuple([env[n].tobytes() for n in self.pinned]))
        except (KeyError, AttributeError):  # a value is missing, or no array
            return None

    def learn(
        self,
        plan: Plan,
        env: Mapping[str, Any],
        names: tuple[str, ...],
        results: tuple[str, ...],
        stop: int,
        node: Node | None,
        limit: int | None,
    ) -> None:
        """See `DirectRuns.learn`."""
        if not all(isinstance(env.get(n), np.ndarray) for n in self.pinned):
            return
        key = tuple(env[n].tobytes() for n in self.pinned)
        runs = self._runs.get(key)
        if runs is None:
            if len(self._runs) >= MOST_CONTENTS:
                return
            runs = self._runs[key] = DirectRuns(names, results, stop, node, limit)
        if (runs.names, runs.results, runs.stop, runs.node, runs.limit) == (names, results, stop, node, limit):
            runs.learn(plan, env)


class DirectRuns:
    """Runs of one segment of a graph that compiled code makes, for arrays of layouts that have been run before.

    `names` are the values that it is given, `results` those that it gives; at most `limit` threads are used (None: as many as
    `polyc.set_num_threads` says).  `stop` and `node` are what is behind the segment."""

    def __init__(self, names: Sequence[str], results: Sequence[str], stop: int, node: Node | None, limit: int | None) -> None:
        self.names, self.results, self.stop, self.node, self.limit = tuple(names), tuple(results), stop, node, limit
        self._pick = operator.itemgetter(*names)
        self._calls: dict[Plan, _Call | None] = {}
        """What was made of plans; None where nothing can be."""
        self._table: Any = None
        self._call: Callable[..., Any] | None = None
        self._sources: tuple[Source, ...] | None = None
        """Where each result comes from, in all plans."""
        self._is_plain = True
        """Whether they are what kernels give, one after the other."""
        self._views: list[dict[tuple[int, ...], tuple[int, ...]]] = [{} for _ in results]
        """The shapes of results that are copied, by those of what they are copied from."""

    def run(self, env: Mapping[str, Any]) -> Sequence[Any] | None:
        """The results; None where this run has to go the long way."""
        call = self._call
        if call is None:
            return None
        try:
            arrays = self._pick(env)
        except KeyError:
            return None
        if len(self.names) == 1:
            arrays = (arrays,)
        given: Any = call(*arrays)
        if given is None:
            return None
        found: tuple[Any, ...] = given if type(given) is tuple else (given,)
        if self._is_plain or self._sources is None:
            return found
        groups = (found, arrays)
        results = []
        for source, views in zip(self._sources, self._views, strict=True):
            if isinstance(source, np.ndarray):
                results.append(source.copy())
                continue
            group, k, is_copied = source
            array = groups[group][k]
            if is_copied:
                shape = views.get(array.shape)
                if shape is None:
                    return None
                array = array.reshape(shape).copy()
            results.append(array)
        return results

    def learn(self, plan: Plan, env: Mapping[str, Any]) -> None:
        """Let runs like this one, which has gone the long way with `plan`, be made here, where that is possible."""
        arrays: list[Any] = [env.get(n) for n in self.names]
        if not all(map(_is_readable, arrays)) or not fastcalls.is_available():
            return
        if plan not in self._calls:
            if len(self._calls) >= MOST_PLANS:
                self._calls.clear()
            self._calls[plan] = _make_call(plan, self.names, self.results, self.limit, arrays)
        call = self._calls[plan]
        if call is None:
            plan.is_indirect = True
            return
        if self._sources is None:
            self._sources = call.sources
            self._is_plain = all(type(s) is tuple and s[0] == MADE and not s[2] for s in call.sources)
        elif not all(map(_is_same, self._sources, call.sources)):
            return
        if any(views.get(base, shape) != shape for views, (base, shape) in zip(self._views, call.views, strict=True)):
            return
        for views, (base, shape) in zip(self._views, call.views, strict=True):
            views[base] = shape
        if self._table is None:
            self._table = fastcalls.CallTable(0)
        if len(self._table) >= MOST_PLANS:
            self._table.forget(lambda plan: True)
        self._table.add(call, arrays, ())
        self._call = self._table.call


def _is_readable(array: Any) -> bool:
    """Whether kernels can read it as it is: compiled code looks for the layout only."""
    if type(array) is not np.ndarray:
        return False
    flags = array.flags
    return flags.c_contiguous and flags.aligned and array.dtype.isnative


def _is_same(a: Source, b: Source) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return False if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else a == b


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """A plan with the fields that `fastcalls.CallTable` wants of one."""

    plan: Plan
    table: Any
    sources: tuple[Source, ...]
    views: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    """Of each result, the shape of what it comes from, and its own."""
    allocate: tuple[tuple[tuple[int, ...], np.dtype], ...]
    misaligned: int
    is_parallel: bool
    entry: Any
    workspace: Any
    constants: tuple[np.ndarray, ...] = ()
    constant_addresses: tuple[int, ...] = ()
    bounds: tuple[tuple[int, int], ...] = ()
    touched: Any = (ctypes.c_uint8 * 1)()

    @property
    def block_address(self) -> int:
        return ctypes.addressof(self.table)

    @property
    def keepalive(self) -> Plan:
        return self.plan

    def raise_bounds_error(self, status: int, index: int, bound: int) -> NoReturn:
        """The error of the kernel that failed, in the names of the graph."""
        step = self.plan.steps[status >> STEP_BIT]
        raise_bounds_error(step, status & ((1 << STEP_BIT) - 1), index, bound)


def _make_call(
    plan: Plan, inputs: Sequence[str], outputs: Sequence[str], limit: int | None, arrays: Sequence[np.ndarray]
) -> _Call | None:
    """`plan` as a call from `inputs` to `outputs`; None where some output is no array that kernels write, nor the elements of
    one, or of an input, in some shape."""
    if plan.arena.size > LARGEST or len(plan.steps) >> (31 - STEP_BIT) or any(n not in inputs for n in plan.inputs):
        return None
    place = {n: k for k, n in enumerate(inputs)}
    allocate: list[tuple[tuple[int, ...], np.dtype]] = []
    sources: list[Source] = []
    for name in outputs:
        value = plan.results.get(name)
        if value is None:
            return None
        if name in plan.constants:
            sources.append(plan.constants[name])
            continue
        base = name if value.source is None else value.source.name
        if base in inputs:
            sources.append((GIVEN, place[base], True))
        elif base in place:
            sources.append((MADE, place[base] - len(inputs), True))
        elif base in plan.fresh:
            sources.append((MADE, len(allocate), False))
            place[base] = len(inputs) + len(allocate)
            allocate.append((value.shape, result_type(base, plan.fresh[base].dtype)))
        else:
            return None
    if not allocate or any(n not in place for n in plan.fresh):
        return None
    most = max((len(s.operands) for s in plan.steps), default=0)
    table = [len(plan.steps), ANY_NUMBER if limit is None else limit, align(8 * most), align(plan.arena.size)]
    for step in plan.steps:
        call = step.call
        table += [_address(call.entry), _address(call.workspace), call.block_address, int(call.is_parallel), len(step.operands)]
        for operand in step.operands:
            match operand:
                case int():
                    table += [IN_ARENA, operand]
                case str():
                    table += [OF_CALL, place[operand]]
                case _:
                    table += [ABSOLUTE, data_address(operand)]
    entry, workspace = _program()
    words = (ctypes.c_int64 * len(table))(*table)
    misaligned = max(a.dtype.alignment for a in arrays) - 1
    is_parallel = any(s.call.is_parallel for s in plan.steps)
    if workspace(ctypes.addressof(words), 1) > 2 * LARGEST:
        return None
    bases = [
        plan.results[n].shape if isinstance(s, np.ndarray) else (allocate[s[1]][0] if s[0] == MADE else arrays[s[1]].shape)
        for n, s in zip(outputs, sources, strict=True)
    ]
    views = tuple((base, plan.results[n].shape) for n, base in zip(outputs, bases, strict=True))
    return _Call(plan, words, tuple(sources), views, tuple(allocate), misaligned, is_parallel, entry, workspace)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@functools.cache
def _program() -> tuple[Any, Any]:
    """The entry point of any such call, and what says how much it works in."""
    code = recall.load_sequence(PROGRAM)  # `recall` keeps it
    return _ENTRY(code.entry_address), _WORKSPACE(code.workspace_address)
