"""The kernels of one operator: found by what they are wanted for, compiled where there is none, forgotten beyond a number."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from polyc import driver, recall
from polyc.api.bind import Preparations
from polyc.api.dynamic import DynamicSizes, typical_sizes
from polyc.api.layouts import Layout
from polyc.api.result_shapes import ResultShapes
from polyc.api.sources import issue_warnings
from polyc.config import Options
from polyc.crash import name_crashes
from polyc.diagnostics import DOUBTS, PolycError, RangeError
from polyc.ir.program import Program, integer_parameters
from polyc.records import dataclass
from polyc.runtime import threads
from polyc.runtime.arguments import Alias
from polyc.runtime.arrays import unsupported_alias
from polyc.runtime.kernel import Kernel
from polyc.runtime.plan import Plan

if TYPE_CHECKING:
    Compilable = driver.Lowered | recall.Recalled
Made = TypeVar("Made", "driver.Lowered", "Compilable")

MAX_KERNELS = 256
"""Kernels that an operator keeps.  Beyond it those go that were not called lately; they are compiled again when wanted."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a kernel is wanted for: sizes (those that are missing stay open), layouts (None: any), arrays in one memory."""

    program: Program
    sizes: Mapping[str, int]
    inputs: Sequence[Layout] | None
    results: Sequence[Layout] | None
    aliases: tuple[Alias, ...] = ()


class Kernels:
    """`bound` are the inputs that never change; `forgotten` is told of every kernel that goes."""

    def __init__(
        self,
        name: str,
        options: Options,
        bound: Mapping[str, np.ndarray],
        dynamic: DynamicSizes,
        shapes: ResultShapes,
        forgotten: Callable[[Kernel], None],
    ) -> None:
        self._name, self._options, self._bound = name, options, bound
        self._dynamic, self._shapes, self._forgotten = dynamic, shapes, forgotten
        self._kernels: OrderedDict[Hashable, Kernel] = OrderedDict()
        self.preparations = Preparations(bound, options)

    def __len__(self) -> int:
        return len(self._kernels)

    def __iter__(self) -> Iterator[Kernel]:
        return iter(tuple(self._kernels.values()))

    def find(self, wanted: Wanted, *, is_degenerate: bool = False) -> Kernel:
        """The kernel for exactly these sizes where there is one, else that for any values of those that vary.

        `is_degenerate`: the latter refuses these sizes, so that it is to be the former."""
        varying = frozenset[str]() if is_degenerate else self._dynamic.symbolic(wanted.program, wanted.sizes)
        for symbolic in (frozenset[str](), varying):
            found = self._kernels.get(self._key(wanted, symbolic))
            if found is not None:
                return found
        with driver.compiling(), name_crashes(f"compiling {self._name}"):
            symbolic, reason = self._dynamic.choose(wanted.program, wanted.sizes)
            if is_degenerate:
                symbolic, reason = frozenset(), "a range ends before it begins"
            key = self._key(wanted, symbolic)
            found = self._kernels.get(key)
            if found is not None:  # another thread was faster
                return found
            try:
                lowered = self._lower(recall.compile_program, wanted, symbolic)
                _tell_doubts(lowered)
            except PolycError as error:
                if not symbolic or not self._dynamic.refuse(wanted.program, symbolic, error):
                    raise
                return self.find(wanted)
            for output, source in wanted.aliases:
                if not lowered.alias_is_safe(output, source):
                    raise unsupported_alias(output, source)
            return self._keep(key, lowered, wanted, symbolic, reason)

    def _keep(self, key: Hashable, lowered: Compilable, wanted: Wanted, symbolic: frozenset[str], reason: str) -> Kernel:
        constants = self.preparations.make(lowered, wanted.sizes) if self._bound else ()
        kernel: Kernel = lowered.compile(constants, self._bound) if self._bound else lowered.compile()
        self._make_room()
        self._kernels[key] = kernel
        known = {n: wanted.sizes[n] for n in wanted.program.sizes if n in wanted.sizes}
        self._dynamic.count_kernel(self._name, known, symbolic, reason)
        return kernel

    def adopt(self, wanted: Wanted, lowered: Compilable) -> None:
        """Keep what was compiled elsewhere for exactly these sizes, without bound inputs."""
        with driver.compiling(), name_crashes(f"loading {self._name}"):
            key = self._key(wanted, frozenset())
            if key not in self._kernels:
                self._keep(key, lowered, wanted, frozenset(), "compiled meanwhile")

    def known_strides(self, wanted: Wanted) -> driver.Strides | None:
        """Strides that a kernel for exactly these sizes relies on."""
        return self._shapes.known_strides(wanted.program, wanted.inputs, wanted.results, frozenset())

    def plan(self, wanted: Wanted, inputs: Sequence[np.ndarray], given: Sequence[Any]) -> tuple[Plan, tuple[np.ndarray, ...]]:
        """How the kernel for `wanted` runs on these arrays, and the arrays behind `given`; see `Kernel.plan`."""
        try:
            return self.find(wanted).plan(inputs, given, wanted.sizes, wanted.aliases)
        except RangeError as error:
            if error.code != "range-negative" or not self._dynamic.symbolic(wanted.program, wanted.sizes):
                raise
            # Where all points of a range are left out, these sizes may have a kernel nevertheless.
            return self.find(wanted, is_degenerate=True).plan(inputs, given, wanted.sizes, wanted.aliases)

    def temporary_bytes(self, wanted: Wanted, inputs: Sequence[np.ndarray]) -> int:
        """What the kernel for `wanted` takes beside arguments and results, on as many threads as calls have."""
        plan, _ = self.plan(wanted, inputs, [None] * len(wanted.program.returns))
        return plan.workspace(plan.block_address, threads.team_size() if plan.is_parallel else 1)

    def lower(self, lower: Callable[..., Made], wanted: Wanted) -> Made:
        """What `lower` (`driver.lower`, or the same through the disk cache) makes for `wanted` as things stand."""
        symbolic = self._dynamic.symbolic(wanted.program, wanted.sizes)
        try:
            made = self._lower(lower, wanted, symbolic)
            _tell_doubts(made)
            return made
        except PolycError as error:
            if not symbolic or not self._dynamic.refuse(wanted.program, symbolic, error):
                raise
            return self.lower(lower, wanted)

    def _lower(self, lower: Callable[..., Made], wanted: Wanted, symbolic: frozenset[str]) -> Made:
        with driver.compiling(), name_crashes(f"compiling {self._name}"):
            program, sizes = wanted.program, wanted.sizes
            strides = self._shapes.known_strides(program, wanted.inputs, wanted.results, symbolic)
            kept = {n: v for n, v in sizes.items() if n not in symbolic}
            make = functools.partial(
                lower, program, sizes=kept or None, strides=strides, aliases=wanted.aliases, options=self._options
            )
            if symbolic:
                steps: Collection[str] = ()
                if integer_parameters(program):
                    from polyc.ir.components import find_step_counts  # only now: other programs do without

                    steps = find_step_counts(program)
                make = functools.partial(make, typical=typical_sizes(sizes, symbolic, steps))
            if self._bound:
                lowered = make(constants=tuple(n for n in program.parameters if program.tensor(n).base in self._bound))
                if all(n in kept for p in lowered.preparations for n in p.sizes):
                    return lowered
                # What could be computed once depends on sizes that are still open: each call computes it.
            return make()

    def _key(self, wanted: Wanted, symbolic: frozenset[str]) -> Hashable:
        # Kernels keep their programs alive, so identity is a sound key.
        program = wanted.program
        kept = tuple(sorted((n, v) for n, v in wanted.sizes.items() if n not in symbolic))
        strides = self._shapes.known_strides(program, wanted.inputs, wanted.results, symbolic)
        return id(program), kept, strides, wanted.aliases, symbolic

    def _make_room(self) -> None:
        """Make room for one more kernel: the oldest goes, unless it ran since it was last looked at (a clock)."""
        while len(self._kernels) >= MAX_KERNELS:
            key, kernel = self._kernels.popitem(last=False)
            if kernel.touched[0]:
                kernel.touched[0] = 0
                self._kernels[key] = kernel
            else:
                self._forgotten(kernel)
                self._dynamic.note("analysis", f"{self._name}: a kernel was forgotten, there are {MAX_KERNELS}: {kernel!r}")


def _tell_doubts(lowered: Compilable) -> None:
    """Warn of ranges that are hardly meant; kernels with such are not kept on disk, so that every process is told."""
    ranges = getattr(lowered, "ranges", None)
    if ranges is not None:  # it was not recalled
        issue_warnings(d for d in ranges.warnings if d.code in DOUBTS)
