"""Constants as kernels want them: computed and packed once, shared by all plans that want the same.

What is made of a constant is known by the constant's identity, not its name: graphs inside of graphs, and values that
become constants for one plan, may call different arrays the same.  It lives as long as a plan uses it.
"""

from __future__ import annotations

import mmap
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from polyc import jobs
from polyc.config import Options
from polyc.diagnostics import PolycError
from polyc.frontends.onnx.clusters import Cluster
from polyc.frontends.onnx.partition import extents
from polyc.ir.expr import count_operations, evaluate
from polyc.ir.generalize import Numbers, generalize, take_numbers
from polyc.ir.program import Program
from polyc.ir.traced import is_traced
from polyc.ir.views import find_view
from polyc.records import dataclass, replace
from polyc.runtime import memory
from polyc.runtime.kernel import Kernel
from polyc.runtime.packing import lay_in_panels

FEW_OPERATIONS = 1 << 25
"""What runs once takes less than a twentieth of a second without vectors and threads, and as much less to compile."""

Wanted = dict[Program, tuple[Program, Mapping[str, int]]]
"""By program, what is compiled for it: itself, or one for any sizes and the sizes that make it this one."""


@dataclass(frozen=True, slots=True, eq=False)
class Operands:
    """What the constants of a cluster have become.

    `prepared` are the arrays of its signature's constants, in order; `given` those that the code reads as they are, by name
    in the graph; `sources` are kept, so that their identities stay sound."""

    prepared: tuple[np.ndarray, ...]
    given: dict[str, np.ndarray]
    sources: tuple[np.ndarray, ...]


class Weights:
    """What was made of constants, as long as somebody uses it."""

    def __init__(self, options: Options) -> None:
        self._options = options.replace(verify=False)
        self._made: WeakValueDictionary[Hashable, np.ndarray] = WeakValueDictionary()
        self._kernels: dict[Program, tuple[Kernel, Mapping[str, int]]] = {}

    def compile(self, codes: Sequence[Any], n_workers: int | None = None) -> None:
        """Compile all programs at once that the constants of `codes` are made by."""
        self._compile([p for code in codes for p in code.preparations if not _is_rearranged(p)], n_workers)

    def _compile(self, programs: Sequence[Program], n_workers: int | None = None) -> None:
        own: Wanted = {replace(p, source=None): (p, {}) for p in programs}
        own = {key: wanted for key, wanted in own.items() if key not in self._kernels}
        if not own:
            return
        try:
            self._kernels |= self._make(own | _share(own), n_workers)
        except PolycError:
            self._kernels |= self._make(own, n_workers)

    def _make(self, wanted: Wanted, n_workers: int | None) -> dict[Program, tuple[Kernel, Mapping[str, int]]]:
        typical = dict(wanted.values())
        made = jobs.compile_all([self._job(p, sizes) for p, sizes in typical.items()], n_workers)
        kernels = {p: code.compile() for p, code in zip(typical, made, strict=True)}
        return {key: (kernels[p], sizes) for key, (p, sizes) in wanted.items()}

    def _job(self, program: Program, typical: Mapping[str, int]) -> jobs.Job:
        options = self._options.replace(vectorize=False, parallel=False) if _is_small(program) else self._options
        return jobs.Job(program, {}, None, options, typical=typical)

    def prepare(self, code: Any, cluster: Cluster, constants: Mapping[str, np.ndarray]) -> Operands:
        """The operands for the code of a cluster.  Memory that was needed on the way goes back to the system: as much may never
        be needed again."""
        before = memory.store.count()
        try:
            return self._prepare(code, cluster, constants)
        finally:
            memory.store.release(before)

    def _prepare(self, code: Any, cluster: Cluster, constants: Mapping[str, np.ndarray]) -> Operands:
        names = dict(zip(cluster.program.parameters, cluster.inputs, strict=True))
        sources = {p: constants[names[p]] for p in cluster.constants}
        making = _Making(self, sources, code.preparations)
        prepared = []
        for spec in code.signature.arrays:
            if spec.role == "constant":
                panel = code.panels.get(spec.name)
                key = (making.origin[spec.name], panel)
                array = self._made.get(key)
                if array is None:
                    if panel is None:
                        array = making.value(spec.name)
                    else:  # wherever the elements lie: they are copied
                        whole = making.find(spec.name)
                        array = lay_in_panels(whole, panel.dimension, panel.size)
                        drop_pages(whole)
                        del whole
                        making.forget(spec.name)
                    self._made[key] = array
                prepared.append(array)
        given = {}
        for p in cluster.constants:
            if p in code.unread:
                given[names[p]] = np.empty(0, sources[p].dtype)  # its address is passed, and not looked at
                continue
            key = (id(sources[p]), "as it is")
            array = self._made.get(key)
            if array is None:
                array = self._made[key] = making.value(p)
            given[names[p]] = array
        for array in sources.values():
            drop_pages(array)
        return Operands(tuple(prepared), given, tuple(sources.values()))

    def run(self, program: Program, values: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        """The results of a program that depends on constants only."""
        self._compile([program])
        kernel, sizes = self._kernels[replace(program, source=None)]
        arrays = []
        for name, value in zip(program.parameters, values, strict=True):
            # A dimension of the program may stand for several neighbouring ones of the constant.
            shape = tuple(evaluate(e, {}) for e in program.tensor(name).shape or ())
            arrays.append(value.reshape(shape))
        found: tuple[np.ndarray, ...] = kernel.run(arrays, (None,) * len(program.returns), sizes)
        return found


class _Making:
    """What the programs of one cluster's code make of its constants, computed when it is asked for."""

    def __init__(self, weights: Weights, sources: Mapping[str, np.ndarray], programs: tuple[Program, ...]) -> None:
        self._weights = weights
        self._sources = sources
        self._makers: dict[str, Program] = {}
        self._values: dict[str, np.ndarray] = {}
        self._read = {p for program in programs for p in program.parameters}
        self.origin: dict[str, Hashable] = {p: id(a) for p, a in sources.items()}
        for program in programs:
            key = (replace(program, name="", source=None), tuple(self.origin[p] for p in program.parameters))
            for position, r in enumerate(program.returns):
                self.origin[r.version] = (key, position)
                self._makers[r.version] = program

    def find(self, name: str) -> np.ndarray:
        """As `value`, but wherever the elements lie; what only rearranges another array is a view of it."""
        if name in self._sources:
            return self._sources[name]
        found = self._values.get(name)
        if found is None:
            found = self._rearranged(name)
        return self.value(name) if found is None else found

    def value(self, name: str) -> np.ndarray:
        """A parameter of the cluster or a result of one of the programs; contiguous and aligned."""
        found = self._values.get(name)
        if found is None:
            if name in self._sources:
                self._values[name] = np.require(self._sources[name], None, ("C", "A"))
            elif (view := self._rearranged(name)) is not None:
                self._values[name] = copy = memory.allocate_result(view.shape, view.dtype)
                copy[...] = view
            else:
                program = self._makers[name]
                made = self._weights.run(program, [self.value(p) for p in program.parameters])
                self._values |= zip((r.version for r in program.returns), made, strict=True)
            found = self._values[name]
        return found

    def _rearranged(self, name: str) -> np.ndarray | None:
        """The view of another array that a result is."""
        program = self._makers[name]
        view = find_view(program, name)
        if view is None:
            return None
        shape = tuple(evaluate(e, {}) for e in program.tensor(view.source).shape or ())
        return view.take(self.find(view.source).reshape(shape))

    def forget(self, name: str) -> None:
        """Keep a value no longer that has been copied, unless others are made of it."""
        if name not in self._read:
            self._values.pop(name, None)


def _is_small(program: Program) -> bool:
    n_operations = sum(prod(extents(s).values()) * (1 + count_operations(s.value)) for s in program.statements)
    return n_operations <= FEW_OPERATIONS


def _share(programs: Iterable[Program]) -> Wanted:
    """One program for small ones that differ in numbers only, as those for filters of all layers do (`ir.generalize`)."""
    forms: dict[Program, dict[Program, Numbers]] = {}
    for program in filter(_is_small, programs):
        form, numbers = take_numbers(program)
        if not any(map(is_traced, numbers)):
            forms.setdefault(form, {})[program] = numbers
    shared: Wanted = {}
    for members in forms.values():
        made = generalize(next(iter(members)), list(members.values()))
        for program, numbers in members.items():
            if made is not None and (sizes := made.sizes_of(numbers)) is not None:
                shared[program] = made.program, sizes
    return shared


def _is_rearranged(program: Program) -> bool:
    """Whether all that a program makes is views of constants."""
    return all(find_view(program, r.version) is not None for r in program.returns)


def drop_pages(array: np.ndarray) -> None:
    """Let the system forget the pages of a file that an array is a view of; they are read again where it is looked at."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED)
