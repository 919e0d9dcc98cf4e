"""When `polyc.einsum` compiles: not before calls have lost about as much time as compiling takes.

* A call is computed in the way that was fastest so far.  NumPy has several (`polyc.api.numpy_ways`); each whose estimate is not
  hopeless is timed in the first calls.  A kernel is one more way once there is one.
* What a call loses is the time of the fastest way so far beyond what a kernel would take by estimate (`polyc.api.rates`).
* When the calls with one shape and layout have lost `MOST_LOST`, they get a kernel of their own; when those of all shapes of
  these subscripts, ranks and element types have, a kernel with symbolic sizes.  A worker compiles it beside this process, while
  NumPy goes on; where there is no core for that, or where one call alone would lose `TOO_LONG`, it is compiled in the call.

This is the rule of the ski rental: whatever calls follow, no more is spent than about twice what the best choice in hindsight
would have cost (Karlin, Manasse, Rudolph, Sleator, "Competitive snoopy caching", Algorithmica 1988).
"""

from __future__ import annotations

import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from polyc import driver, jobs, recall
from polyc.api.numpy_ways import Path, Term, find_ways
from polyc.api.operator import Operator
from polyc.api.rates import ASSUMED, measure_rates
from polyc.config import Options, compiles_every_einsum, debugging
from polyc.crash import name_crashes
from polyc.diagnostics import ArgumentError, ArgumentTypeError, Remark
from polyc.ir.types import DTYPES, DType, from_numpy
from polyc.log import logger
from polyc.runtime.arguments import convert_inputs, find_aliases
from polyc.runtime.arrays import check_output, has_chunks
from polyc.runtime.kernel import Kernel

MOST_LOST = 100_000_000
"""Nanoseconds that calls lose before a kernel is compiled, which takes about as long again."""
TOO_LONG = 400_000_000
"""Nanoseconds that one call may lose by estimate; else it waits for its kernel."""
WORTH_MEASURING = 100_000
"""Nanoseconds of a call, by careful estimate, from which on the rates of this machine are measured."""
TRIES = 3
"""Calls in which a way is timed before the fastest one is settled."""
WITHIN_REACH = 2.0
"""A way is tried where its estimate is at most so many times the time of the fastest one."""
MAX_SHAPES, MAX_FAMILIES = 1024, 16
"""Shapes, and families of shapes, that are remembered per subscripts; the oldest are forgotten first."""

_WELL_FORMED = re.compile(r"[A-Za-z ]*(\.\.\.)?[A-Za-z ]*(,[A-Za-z ]*(\.\.\.)?[A-Za-z ]*)*(->[A-Za-z ]*(\.\.\.)?[A-Za-z ]*)?")
_TYPES = frozenset(t.numpy for t in DTYPES.values() if not t.is_storage)  # NumPy rounds partial sums of those
Terms = tuple[Term, ...]
clock = time.perf_counter_ns
KERNEL, SYMBOLIC = "a kernel of its own", "a kernel for all sizes"


@dataclass(slots=True, eq=False)
class Way:
    """One of the ways to compute a shape, and its times in nanoseconds."""

    name: str
    run: Callable[[Sequence[np.ndarray]], np.ndarray] | None
    """None: a kernel."""
    estimate: float
    fastest: float = math.inf
    tries: int = 0


@dataclass(slots=True, eq=False)
class Account:
    """What calls have lost, in nanoseconds, and where the kernel is that would end that."""

    lost: float = 0
    state: Literal["none", "running", "ready"] = "none"
    errand: jobs.Errand | None = None
    kernel: Kernel | None = None
    """That of a family; those of shapes are the operator's."""

    def begin(self, begin: Callable[[], jobs.Errand]) -> None:
        """Have the kernel compiled: by a worker, in the next call where there is no core for that, later where all are busy."""
        if not jobs.may_run_errands():
            self.state = "ready"
        elif not jobs.has_many_errands():
            self.state, self.errand = "running", begin()

    def is_ready(self) -> bool:
        """Whether calls may take the kernel: what a worker could not compile is compiled by the call, which says why."""
        if self.errand is not None and self.errand.state != "running":
            self.state, self.errand = "ready", None
        return self.state == "ready"


@dataclass(slots=True, eq=False)
class Shape:
    """What is known of calls with one set of shapes, strides and element types."""

    label: str
    family: tuple[Any, ...]
    dtype: np.dtype
    ways: list[Way]
    kernel_time: float
    is_broadcast: bool
    account: Account = field(default_factory=Account)
    refused: set[str] = field(default_factory=set)
    """Names of ways that failed."""
    settled: Way | None = None
    last: Way | None = None
    n_calls: int = 0

    @property
    def estimate(self) -> float:
        """Nanoseconds of a call by NumPy."""
        return min(w.estimate for w in self.ways)


class EinsumCalls:
    """Calls of `polyc.einsum` with one string of subscripts, and how each is computed."""

    def __init__(
        self,
        subscripts: str,
        options: Options,
        make_operator: Callable[[], Operator],
        dtype: DType | None = None,
        path: Path | None = None,
    ) -> None:
        """`dtype`: what operands are cast to, where that is not their common type.  `path`: the order of contraction that
        was asked for."""
        self._subscripts = subscripts
        self._dtype = dtype
        self._path = path
        self._options = options
        self._make_operator = make_operator
        self._operator: Operator | None = None
        self._terms = _split_terms(subscripts)
        self._shapes: OrderedDict[Any, Shape] = OrderedDict()
        self._families: OrderedDict[Any, Account] = OrderedDict()
        self._n_open = 0
        """Shapes whose kernel is not, or not yet, known to be the fastest way."""

    @property
    def operator(self) -> Operator:
        """The operator, made when it is wanted first: NumPy needs none.  Malformed subscripts are errors here."""
        if self._operator is None:
            self._operator = self._make_operator()
        return self._operator

    def __call__(self, arrays: tuple[Any, ...], out: Any) -> Any:
        """The result of ``numpy.einsum(subscripts, *arrays, out=out)``."""
        if self._operator is not None and not self._n_open and (out is None or type(out) is np.ndarray):
            result = self._operator.run_planned(arrays, out)
            if result is not None:
                return result
        if self._options.verify or len(arrays) != len(self._terms):
            return self.operator(*arrays, out=out)
        inputs = arrays
        if not all(type(a) is np.ndarray for a in arrays):
            if any(map(has_chunks, arrays)):
                return self.operator(*arrays, out=out)
            inputs = convert_inputs(self.operator.formals, arrays)
        shape = self._find_shape(inputs)
        if shape is None:
            return self.operator(*arrays, out=out)
        family = self._find_family(shape)
        self._compile_where_due(shape, family, inputs)
        shape.n_calls += 1
        while True:
            way = shape.last = shape.settled or self._choose(shape)
            start = clock()
            try:
                result = self._run(way, shape, family, inputs, out)
            except Exception as error:
                if way.run is None and (way.tries or debugging() or len(shape.ways) == 1):
                    raise
                if isinstance(error, (ArgumentError, ArgumentTypeError)):
                    raise
                logger.info("einsum %s: %s fails: %s", self._subscripts, way.name, error)
                self._drop(shape, way)
            else:
                _count(shape, family, way, clock() - start)
                return result

    def remarks(self) -> tuple[Remark, ...]:
        """How each shape was computed last, and what its calls have lost."""
        found = []
        for s in self._shapes.values():
            name = "nothing yet" if s.last is None else s.last.name
            kind: Any = "passed" if s.last is not None and s.last.run is None else "missed"
            sums = f"{s.n_calls} calls, {s.account.lost / 1e6:.3g} ms of {MOST_LOST / 1e6:.3g} ms lost"
            found.append(Remark(kind, "amortise", f"{s.label}: {name} ({sums})"))
        return tuple(found)

    def _choose(self, shape: Shape) -> Way:
        """The way for this call: one that is not known well enough, else the fastest."""
        fastest = min(w.fastest for w in shape.ways)
        untried = [w for w in shape.ways if w.tries < TRIES and w.estimate <= WITHIN_REACH * fastest]
        if untried:
            return min(untried, key=lambda w: (w.tries, w.estimate))
        way = shape.settled = min(shape.ways, key=lambda w: w.fastest)
        if way.run is None and way.name == KERNEL:
            self._n_open -= 1
        return way

    def _run(self, way: Way, shape: Shape, family: Account, inputs: Sequence[np.ndarray], out: Any) -> Any:
        if way.run is not None:
            return self._run_numpy(way.run, shape, inputs, out)
        if way.name == KERNEL:
            return self.operator(*inputs, out=out)
        return self._symbolic_kernel(shape, family)(*inputs, out=out)

    def _drop(self, shape: Shape, way: Way) -> None:
        """Leave a way that fails: NumPy takes fewer operands than polyc, memory does not suffice, …"""
        shape.ways.remove(way)
        shape.settled = None
        self._n_open -= way.name == KERNEL
        shape.refused.add(way.name)
        if not shape.ways:
            self._add(shape, KERNEL)

    def _compile_where_due(self, shape: Shape, family: Account, inputs: Sequence[np.ndarray]) -> None:
        """Begin to compile what has lost enough, and take up what was compiled meanwhile."""
        own = shape.account
        if own.state == "none" and not shape.n_calls and shape.estimate - shape.kernel_time >= TOO_LONG:
            own.state = "ready"
            shape.ways.clear()  # the call waits for its kernel
        elif own.state == "none" and own.lost >= MOST_LOST:
            own.begin(lambda: self.operator.compile_meanwhile(inputs))
        elif family.state == "none" and family.lost >= MOST_LOST and not shape.is_broadcast:
            family.begin(lambda: self._compile_symbolic(shape, family))
        if own.is_ready():
            self._add(shape, KERNEL)
        elif family.is_ready() and not shape.is_broadcast:  # a kernel for all sizes holds an index to one extent
            self._add(shape, SYMBOLIC)

    def _add(self, shape: Shape, name: str) -> None:
        if name not in shape.refused and all(w.name != name for w in shape.ways):
            shape.ways.append(Way(name, None, 0))
            shape.settled = None
            self._n_open += name == KERNEL

    def _find_shape(self, arrays: Sequence[np.ndarray]) -> Shape | None:
        """The record of these shapes; None for calls that the operator refuses, so that it says why."""
        key = tuple([(a.shape, a.strides, a.dtype) for a in arrays])
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._describe(arrays)
            if shape is None:
                return None
            self._shapes[key] = shape
            if len(self._shapes) > MAX_SHAPES:
                _, oldest = self._shapes.popitem(last=False)
                is_open = oldest.settled is None or oldest.settled.name != KERNEL
                self._n_open -= is_open and any(w.name == KERNEL for w in oldest.ways)
        return shape

    def result_shape(self, arrays: Sequence[np.ndarray]) -> tuple[int, ...] | None:
        """The shape of the result, None where subscripts and arrays do not fit."""
        if len(arrays) != len(self._terms):
            return None
        terms = _expand_dots(self._terms, [a.ndim for a in arrays])
        extents = None if terms is None else _find_extents(terms, arrays)
        if terms is None or extents is None:
            return None
        output = self._output(extents)
        return None if output is None else tuple(extents[x] for x in output)

    def _output(self, extents: dict[str, int]) -> Term | None:
        """The indices of the result; None where subscripts are wrong."""
        dots = sorted((x for x in extents if x.startswith(".")), key=lambda x: -int(x[1:]))
        letters = [x for t in self._terms for x in t]
        output = sorted(x for x in extents if letters.count(x) == 1 and not x.startswith("."))
        if "->" in self._subscripts:
            right = self._subscripts.split("->")[1].replace(" ", "").replace("...", ".")
            output = [y for x in right for y in (dots if x == "." else [x])]
            if dots and "." not in right:
                return None
        else:
            output = [*dots, *output]
        return tuple(output) if all(x in extents for x in output) and len(set(output)) == len(output) else None

    def _describe(self, arrays: Sequence[np.ndarray]) -> Shape | None:
        if compiles_every_einsum() or (self._dtype is not None and self._dtype.numpy not in _TYPES):
            return None
        terms = _expand_dots(self._terms, [a.ndim for a in arrays])
        extents = None if terms is None else _find_extents(terms, arrays)
        output = None if extents is None else self._output(extents)
        if terms is None or extents is None or output is None or not all(a.dtype in _TYPES for a in arrays):
            return None
        dtype = np.result_type(*(a.dtype for a in arrays)) if self._dtype is None else self._dtype.numpy
        shapes = [a.shape for a in arrays]
        try:
            ways, multiplications = find_ways(terms, output, shapes, dtype, self._path)
        except ValueError:  # a path that leads nowhere, more indices than letters
            return None
        n_bytes = sum(a.nbytes for a in arrays) + math.prod(extents[x] for x in output) * dtype.itemsize
        estimates = [ASSUMED.time_of(cost, dtype) for _, _, cost in ways]
        rates = ASSUMED if min(estimates) < WORTH_MEASURING else measure_rates()
        broadcast = any(extents[x] != n for t, a in zip(terms, arrays, strict=True) for x, n in zip(t, a.shape, strict=True))
        return Shape(
            label=", ".join(f"{a.dtype}{list(a.shape)}" for a in arrays),
            family=tuple((a.ndim, a.dtype) for a in arrays),
            dtype=dtype,
            ways=[Way(name, run, rates.time_of(cost, dtype)) for name, run, cost in ways],
            kernel_time=rates.time_of_kernel(multiplications, n_bytes, dtype),
            is_broadcast=broadcast,
        )

    def _find_family(self, shape: Shape) -> Account:
        family = self._families.get(shape.family)
        if family is None:
            family = self._families[shape.family] = Account()
            if len(self._families) > MAX_FAMILIES:
                self._families.popitem(last=False)
        return family

    def _read_symbolic(self, shape: Shape) -> Any:
        dtypes = [from_numpy(dtype) for _, dtype in shape.family]
        ranks = [rank for rank, _ in shape.family]
        return driver.read_einsum_symbolic(self._subscripts, ranks, dtypes, self._path, self._dtype)

    def _symbolic_kernel(self, shape: Shape, family: Account) -> Kernel:
        """The kernel for any sizes and strides of the family, which is compiled where no worker has done so."""
        if family.kernel is None:
            with driver.compiling(), name_crashes("compiling einsum for all sizes"):
                if family.kernel is None:
                    family.kernel = recall.compile_program(self._read_symbolic(shape), options=self._options).compile()
        return family.kernel

    def _compile_symbolic(self, shape: Shape, family: Account) -> jobs.Errand:
        def keep(lowered: driver.Lowered | recall.Recalled) -> None:
            family.kernel = lowered.compile()

        return jobs.Errand(lambda: jobs.Job(self._read_symbolic(shape), {}, None, self._options), keep)

    def _run_numpy(
        self, run: Callable[[Sequence[np.ndarray]], np.ndarray], shape: Shape, arrays: Sequence[np.ndarray], out: Any
    ) -> Any:
        """NumPy's result as a kernel would have given it."""
        given = None
        if out is not None:
            value = out[0] if isinstance(out, (tuple, list)) and len(out) == 1 else out
            if type(value) is not np.ndarray or find_aliases(_operand_names(arrays), arrays, ("result",), (value,)):
                return self.operator(*arrays, out=out)
            given = value
        result = run([a if a.dtype == shape.dtype else a.astype(shape.dtype) for a in arrays])
        if given is None:
            return result
        dtype = from_numpy(result.dtype)
        assert dtype is not None
        check_output(given, "result", dtype, result.shape)[...] = result
        return out


def _count(shape: Shape, family: Account, way: Way, elapsed: int) -> None:
    """Note the time of a call, and what it has lost."""
    # The first call includes what happens once: imports, the threads of a BLAS.
    typical = min(way.fastest, elapsed) if way.tries else min(way.estimate, elapsed)
    way.fastest = min(way.fastest, elapsed)
    way.tries += 1
    if way.name != KERNEL:
        lost = max(0.0, typical - shape.kernel_time)
        shape.account.lost += lost
        if way.name != SYMBOLIC and not shape.is_broadcast:
            family.lost += lost


def _split_terms(subscripts: str) -> Terms:
    """The letters of each operand, ``.`` for ``...``; nothing for what is certainly malformed."""
    if not _WELL_FORMED.fullmatch(subscripts):
        return ()
    left = subscripts.split("->")[0].replace(" ", "").replace("...", ".")
    return tuple(tuple(term) for term in left.split(","))


def _expand_dots(terms: Terms, ranks: Sequence[int]) -> Terms | None:
    """`terms` with a name for each dimension behind ``...``, aligned on the right; None where ranks do not fit."""
    expanded = []
    for term, rank in zip(terms, ranks, strict=True):
        if "." in term:
            at, extra = term.index("."), rank - len(term) + 1
            term = (*term[:at], *(f".{d}" for d in range(extra, 0, -1)), *term[at + 1 :])
        if len(term) != rank:
            return None
        expanded.append(term)
    return tuple(expanded)


def _find_extents(terms: Terms, arrays: Sequence[np.ndarray]) -> dict[str, int] | None:
    """The extent of each index, 1 giving way to any other; None where they do not fit."""
    extents: dict[str, int] = {}
    for term, array in zip(terms, arrays, strict=True):
        here: dict[str, int] = {}
        for name, extent in zip(term, array.shape, strict=True):
            if here.setdefault(name, extent) != extent:
                return None
            known = extents.get(name, 1)
            if known == 1:
                extents[name] = extent
            elif extent not in (1, known):
                return None
    return extents


def _operand_names(arrays: Sequence[np.ndarray]) -> list[str]:
    return [f"operand{n}" for n in range(len(arrays))]
