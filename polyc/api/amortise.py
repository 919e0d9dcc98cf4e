"""When `polyc.einsum` compiles: not before NumPy has been kept busy for as long as compiling takes.

The rule, by estimates only (no clock, so equal calls are treated equally on every machine):

* `estimate_time` says what NumPy takes for a call: `NUMPY_OVERHEAD` plus the multiplications on its contraction path, at
  `DOT_RATE` where it can call its BLAS and at `LOOP_RATE` elsewhere.
* A shape gets a kernel of its own in the call in which the estimates of all calls with it reach `COMPILE_TIME`.
* Before that, where the estimates of all shapes of these subscripts, ranks and element types have reached it, they share
  one kernel with symbolic sizes.
* Before that, `numpy.einsum` computes.

This is the rule of the ski rental: whatever calls follow, no more is spent than about twice what the best choice in hindsight
would have cost (Karlin, Manasse, Rudolph, Sleator, "Competitive snoopy caching", Algorithmica 1988).
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyc import driver, recall
from polyc.api.operator import Operator
from polyc.config import Options, compiles_every_einsum
from polyc.crash import name_crashes
from polyc.diagnostics import Remark
from polyc.ir.types import DTYPES, DType, from_numpy
from polyc.runtime.arguments import convert_inputs, find_aliases
from polyc.runtime.arrays import check_output
from polyc.runtime.kernel import Kernel

COMPILE_TIME = 200_000_000
"""Nanoseconds that a compilation takes, about."""
NUMPY_OVERHEAD = 5_000
"""Nanoseconds of a call of `numpy.einsum` that computes next to nothing."""
FIND_PATH = 20_000
"""Nanoseconds that NumPy takes to follow one step of a path; below that no path is looked for."""
DOT_RATE = 32
"""Multiplications per nanosecond of a BLAS."""
LOOP_RATE = 4
"""Multiplications per nanosecond of NumPy's own loops."""
SMALL_PRODUCT = 1 << 13
"""Multiplications below which NumPy's own loops are done before its BLAS would be called."""
MAX_SHAPES, MAX_FAMILIES = 1024, 16
"""Shapes, and families of shapes, that are remembered per subscripts; the oldest are forgotten first."""

_WELL_FORMED = re.compile(r"[A-Za-z ]*(\.\.\.)?[A-Za-z ]*(,[A-Za-z ]*(\.\.\.)?[A-Za-z ]*)*(->[A-Za-z ]*(\.\.\.)?[A-Za-z ]*)?")
_TYPES = frozenset(t.numpy for t in DTYPES.values() if not t.is_storage)  # NumPy rounds partial sums of those
Terms = tuple[tuple[str, ...], ...]
Path = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class _Shape:
    """What is known of calls with one set of shapes and element types."""

    label: str
    family: tuple[Any, ...]
    path: Path | None
    """Pairs for NumPy to contract in this order; None: all at once, in its own loops."""
    estimate: int
    is_broadcast: bool
    spent: int = 0
    n_calls: int = 0
    way: str = "numpy"


@dataclass(slots=True)
class _Family:
    """Shapes of the same ranks and element types; `kernel` computes all of them once it exists."""

    spent: int = 0
    kernel: Kernel | None = None


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
        self._shapes: OrderedDict[Any, _Shape] = OrderedDict()
        self._families: OrderedDict[Any, _Family] = OrderedDict()

    @property
    def operator(self) -> Operator:
        """The operator, made when it is wanted first: NumPy needs none.  Malformed subscripts are errors here."""
        if self._operator is None:
            operator = self._make_operator()
            operator.remarks_source = self.remarks
            self._operator = operator
        return self._operator

    def __call__(self, arrays: tuple[Any, ...], out: Any) -> Any:
        """The result of ``numpy.einsum(subscripts, *arrays, out=out)``."""
        if self._operator is not None and (out is None or type(out) is np.ndarray):
            result = self._operator.run_planned(arrays, out)
            if result is not None:
                return result
        if self._options.verify or len(arrays) != len(self._terms):
            return self.operator(*arrays, out=out)
        inputs = arrays
        if not all(type(a) is np.ndarray for a in arrays):
            inputs = convert_inputs(self.operator.formals, arrays)
        shape = self._find_shape(inputs)
        if shape is None:
            return self.operator(*arrays, out=out)
        family = self._find_family(shape)
        shape.way = choose_way(shape, family)
        if shape.way == "kernel":
            return self.operator(*inputs, out=out)
        if shape.way == "symbolic":
            return self._run_symbolic(shape, family, inputs, out)
        return self._run_numpy(shape, inputs, out)

    def remarks(self) -> tuple[Remark, ...]:
        """How each shape was computed last, and what its estimates add up to."""
        words = {"numpy": "numpy.einsum", "symbolic": "a kernel for all sizes", "kernel": "a kernel of its own"}
        found = []
        for s in self._shapes.values():
            kind: Any = "missed" if s.way == "numpy" else "passed"
            sums = f"{s.n_calls} calls, {s.spent / 1e6:.3g} ms of {COMPILE_TIME / 1e6:.3g} ms of NumPy's time by estimate"
            found.append(Remark(kind, "amortise", f"{s.label}: {words[s.way]} ({sums})"))
        return tuple(found)

    def _find_shape(self, arrays: Sequence[np.ndarray]) -> _Shape | None:
        """The record of these shapes; None for calls that the operator refuses, so that it says why."""
        key = tuple([(a.shape, a.dtype) for a in arrays])
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._describe(arrays)
            if shape is None:
                return None
            self._shapes[key] = shape
            if len(self._shapes) > MAX_SHAPES:
                self._shapes.popitem(last=False)
        return shape

    def result_shape(self, arrays: Sequence[np.ndarray]) -> tuple[int, ...] | None:
        """The shape of the result, None where subscripts and arrays do not fit."""
        if len(arrays) != len(self._terms):
            return None
        terms = _expand_dots(self._terms, [a.ndim for a in arrays])
        extents = None if terms is None else _find_extents(terms, arrays)
        if terms is None or extents is None:
            return None
        dots = sorted((x for x in extents if x.startswith(".")), key=lambda x: -int(x[1:]))
        letters = [x for t in self._terms for x in t]
        output = sorted(x for x in extents if letters.count(x) == 1 and not x.startswith("."))
        if "->" in self._subscripts:
            right = self._subscripts.split("->")[1].replace(" ", "").replace("...", ".")
            output = [y for x in right for y in (dots if x == "." else [x])]
        else:
            output = [*dots, *output]
        return tuple(extents[x] for x in output) if all(x in extents for x in output) else None

    def _describe(self, arrays: Sequence[np.ndarray]) -> _Shape | None:
        if compiles_every_einsum() or (self._dtype is not None and self._dtype.numpy not in _TYPES):
            return None
        terms = _expand_dots(self._terms, [a.ndim for a in arrays])
        extents = None if terms is None else _find_extents(terms, arrays)
        if terms is None or extents is None or not all(a.dtype in _TYPES for a in arrays):
            return None
        path, estimate = estimate_time(self._subscripts, terms, self._cast(arrays, only_shapes=True), extents)
        if self._path is not None:
            path = self._path
        broadcast = any(extents[x] != n for t, a in zip(terms, arrays, strict=True) for x, n in zip(t, a.shape, strict=True))
        label = ", ".join(f"{a.dtype}{list(a.shape)}" for a in arrays)
        family = tuple((a.ndim, a.dtype) for a in arrays)
        return _Shape(label, family, path, estimate, broadcast)

    def _cast(self, arrays: Sequence[np.ndarray], only_shapes: bool = False) -> Sequence[np.ndarray]:
        """`arrays` in the element type of the computation."""
        if self._dtype is None:
            return arrays
        if only_shapes:
            zero = np.zeros((), self._dtype.numpy)
            return [np.broadcast_to(zero, a.shape) for a in arrays]
        return [a.astype(self._dtype.numpy, copy=False) for a in arrays]

    def _find_family(self, shape: _Shape) -> _Family:
        family = self._families.get(shape.family)
        if family is None:
            family = self._families[shape.family] = _Family()
            if len(self._families) > MAX_FAMILIES:
                self._families.popitem(last=False)
        return family

    def _run_symbolic(self, shape: _Shape, family: _Family, arrays: Sequence[np.ndarray], out: Any) -> Any:
        """Through the kernel for any sizes and strides of the family, which is compiled when first wanted."""
        if family.kernel is None:
            with driver.compiling(), name_crashes("compiling einsum for all sizes"):
                if family.kernel is None:
                    dtypes = [from_numpy(dtype) for _, dtype in shape.family]
                    ranks = [rank for rank, _ in shape.family]
                    program = driver.read_einsum_symbolic(self._subscripts, ranks, dtypes, self._path, self._dtype)
                    family.kernel = recall.compile_program(program, options=self._options).compile()
        return family.kernel(*arrays, out=out)

    def _run_numpy(self, shape: _Shape, arrays: Sequence[np.ndarray], out: Any) -> Any:
        """NumPy's own result as polyc would have given it: an array of its own, in C order."""
        given = None
        if out is not None:
            value = out[0] if isinstance(out, (tuple, list)) and len(out) == 1 else out
            if type(value) is not np.ndarray or find_aliases(_operand_names(arrays), arrays, ("result",), (value,)):
                return self.operator(*arrays, out=out)
            given = value
        operands = self._cast(arrays)
        try:
            if shape.path is None:
                result = np.asarray(np.einsum(self._subscripts, *operands, order="C"))
            else:
                path = ["einsum_path", *shape.path]
                result = np.asarray(np.einsum(self._subscripts, *operands, order="C", optimize=path))
        except Exception:  # more operands than it takes, no memory, …: polyc computes, or says what is wrong
            shape.spent = COMPILE_TIME
            return self.operator(*arrays, out=out)
        if given is not None:
            dtype = from_numpy(result.dtype)
            assert dtype is not None
            check_output(given, "result", dtype, result.shape)[...] = result
            return out
        # NumPy gives views of operands where nothing has to be computed.
        is_view = not result.flags.owndata and any(np.may_share_memory(result, a) for a in arrays)
        return np.array(result, order="C") if is_view or not result.flags.c_contiguous else result


def choose_way(shape: _Shape, family: _Family) -> str:
    """``"numpy"``, ``"symbolic"`` or ``"kernel"`` for one more call, by the rule of the module."""
    shape.n_calls += 1
    shape.spent += shape.estimate
    if shape.spent >= COMPILE_TIME:
        return "kernel"
    if shape.is_broadcast:  # a kernel for all sizes holds an index to one extent
        return "numpy"
    family.spent += shape.estimate
    return "symbolic" if family.spent >= COMPILE_TIME else "numpy"


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


def estimate_time(
    subscripts: str, terms: Terms, arrays: Sequence[np.ndarray], extents: dict[str, int]
) -> tuple[Path | None, int]:
    """NumPy's contraction path (None: its own loops over all indices at once) and nanoseconds for it."""
    points = math.prod(extents.values())
    at_once = NUMPY_OVERHEAD + points // LOOP_RATE
    kinds = {a.dtype for a in arrays}
    if len(terms) < 2 or len(kinds) > 1 or points < SMALL_PRODUCT:
        # Pairs of operands of several types would be multiplied in a narrower type than the result's.
        return None, at_once
    if len(terms) == 2:
        is_dot = next(iter(kinds)).kind == "f" and _is_dot(subscripts, terms, arrays, extents)
        return (((0, 1),), NUMPY_OVERHEAD + points // DOT_RATE) if is_dot else (None, at_once)
    if at_once < FIND_PATH:
        return None, at_once
    path = tuple(tuple(step) for step in np.einsum_path(subscripts, *arrays, optimize="greedy")[0][1:])
    in_pairs = FIND_PATH * len(path) + _count_steps(subscripts, terms, extents, path) // LOOP_RATE
    return (path, in_pairs) if in_pairs < at_once else (None, at_once)


def _is_dot(subscripts: str, terms: Terms, arrays: Sequence[np.ndarray], extents: dict[str, int]) -> bool:
    """Whether a product of two operands is one matrix product: no index repeated, broadcast or in all three terms."""
    a, b = terms
    if "." in subscripts or len(set(a)) < len(a) or len(set(b)) < len(b):
        return False
    if any(extents[x] != n for t, array in zip(terms, arrays, strict=True) for x, n in zip(t, array.shape, strict=True)):
        return False
    both = set(a) & set(b)
    output = _output_letters(subscripts, terms)
    return bool(both) and not both & output and (set(a) | set(b)) - both == output


def _output_letters(subscripts: str, terms: Terms) -> set[str]:
    if "->" in subscripts:
        return set(subscripts.split("->")[1]) - {" ", "."}
    letters = [x for t in terms for x in t]
    return {x for x in letters if letters.count(x) == 1}


def _count_steps(subscripts: str, terms: Terms, extents: dict[str, int], path: Path) -> int:
    """Multiplications of all steps of a path."""
    left = [set(t) for t in terms]
    output = _output_letters(subscripts, terms) | {x for t in left for x in t if x.startswith(".")}
    total = 0
    for step in path:
        used = set().union(*(left[p] for p in step))
        left = [t for p, t in enumerate(left) if p not in step]
        total += math.prod(extents[x] for x in used)
        left.append(used & (output | set().union(*left)))
    return total


def _operand_names(arrays: Sequence[np.ndarray]) -> list[str]:
    return [f"operand{n}" for n in range(len(arrays))]
