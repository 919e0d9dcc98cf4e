"""Which sizes a kernel is compiled for, and which it takes at each call.

`dynamic` of `polyc.op` and `polyc.compile` says which sizes are symbolic:

* ``"auto"`` (the default): none at first but the numbers of entries of sparse matrices, which seldom are the same twice; each
  combination of the other sizes gets a kernel of its own.  A size becomes symbolic

  - with its third value while all other sizes stay the same,
  - or, where `MAX_COMBINATIONS` combinations have been seen, with its second value.

  It stays symbolic from then on.  Kernels that were compiled before keep serving their own sizes.
* ``True``: all.  ``False``: none.
* ``("B", "S")`` or ``"B"``: these, and no others.

Sizes that `polyc.compile(sizes=…)` fixes or that bound inputs have never vary, and are never symbolic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from polyc.diagnostics import PolycError, Remark
from polyc.ir.expr import Expr
from polyc.ir.factors import program_factors
from polyc.ir.program import Program
from polyc.log import logger
from polyc.records import dataclass
from polyc.runtime.arguments import with_suggestion
from polyc.runtime.arrays import argument_error
from polyc.runtime.sizes import size_names

Dynamic = bool | str | Sequence[str]

MAX_VALUES = 3
"""A size that has had as many values beside the same other sizes becomes symbolic."""
MAX_COMBINATIONS = 8
"""Combinations of sizes with kernels of their own; from then on every size that has had two values is symbolic."""
MAX_PROGRAMS, MAX_SEEN = 256, 1024
"""Programs of one operator (it has one per element types), and combinations of sizes, whose history is remembered."""
ROUNDED_FROM = 128
"""Sizes from which estimates take another one of the same magnitude."""
MAX_EVENTS = 1000
"""Compilations that an operator remembers as remarks; older ones are forgotten."""

FACTOR_ERRORS = frozenset({"range-unsolved", "range-not-affine", "range-written-twice", "unsupported-condition"})
"""What a size that multiplies an index ends in where it is symbolic."""


def check_dynamic(operator: str, dynamic: Any, sizes: Collection[str]) -> bool | str | tuple[str, ...]:
    """`dynamic` as ``"auto"``, a bool or a tuple of names in `sizes`; else an `ArgumentError`."""
    if isinstance(dynamic, bool) or dynamic == "auto":
        result: bool | str = dynamic
        return result
    names = (dynamic,) if isinstance(dynamic, str) else dynamic
    if not isinstance(names, (tuple, list, set, frozenset)) or not all(isinstance(n, str) for n in names):
        message = f"option dynamic cannot be {dynamic!r}"
        raise argument_error(
            "argument-option", message, None, 'it is "auto", True, False, or names of sizes: dynamic=("B", "S")'
        )
    for name in names:
        if name not in sizes:
            listing = with_suggestion(name, list(sizes), "its sizes are")
            raise argument_error("argument-name", f"{operator} has no size named {name}", None, listing)
    return tuple(dict.fromkeys(names))


@dataclass(slots=True)
class _History:
    """Combinations of sizes seen for one program, by the rule of ``"auto"``."""

    program: Any  # kept, so that its identity stays a sound key
    symbolic: frozenset[str] = frozenset()
    reason: str = ""
    refused: frozenset[str] = frozenset()
    """Sizes for any values of which no kernel can be compiled: they are never symbolic again."""
    seen: set[tuple[tuple[str, int], ...]] = field(default_factory=set)


class DynamicSizes:
    """The choice of symbolic sizes of one operator, and the record of its compilations."""

    def __init__(self, dynamic: bool | str | tuple[str, ...], fixed: Collection[str]) -> None:
        self.dynamic = dynamic
        self._fixed = frozenset(fixed)
        self._histories: dict[int, _History] = {}
        self._n_kernels = 0
        self.events: deque[Remark] = deque(maxlen=MAX_EVENTS)

    def symbolic(self, program: Any, sizes: Mapping[str, int]) -> frozenset[str]:
        """Which of `sizes` are symbolic as things stand.  It takes no lock."""
        if self.dynamic is False:
            return frozenset()
        varying = frozenset(n for n in program.sizes if n in sizes) - self._fixed
        history = self._histories.get(id(program))
        if self.dynamic == "auto":
            return varying & (_entry_counts(program) if history is None else history.symbolic)
        if history is not None:
            varying -= history.refused
        return varying if self.dynamic is True else varying & frozenset(self.dynamic)

    def choose(self, program: Any, sizes: Mapping[str, int]) -> tuple[frozenset[str], str]:
        """Which of `sizes` the next kernel takes at the call, and the reason for it.  They count as seen.  The caller holds
        the compile lock."""
        if self.dynamic != "auto":
            return self.symbolic(program, sizes), f"dynamic={self.dynamic!r}"
        history = self._history(program)
        # A kernel that is asked for with some sizes open says nothing about how sizes change.
        is_complete = all(n in sizes for n in program.sizes)
        varying = {n: sizes[n] for n in program.sizes if n not in self._fixed} if is_complete else {}
        is_new = is_complete and see_sizes(history, varying)
        symbolic = self.symbolic(program, sizes)
        if symbolic and history.reason:
            return symbolic, history.reason
        return symbolic, "new sizes" if is_new or not is_complete else "another layout or aliasing"

    def refuse(self, program: Any, names: frozenset[str], error: PolycError) -> bool:
        """Whether some of `names` get kernels for each of their values after all, since `error` came of compiling for any of
        them: those that multiply indices, whatever was asked for, else all of them under ``"auto"``."""
        factors = names & program_factors(program) if error.code in FACTOR_ERRORS else frozenset()
        if self.dynamic != "auto" and not factors:
            return False
        history, names = self._history(program), factors or names
        history.refused |= names
        if names & history.symbolic:
            history.seen.clear()  # combinations without these sizes, which are part of them again
        history.symbolic -= names
        self.note("missed", f"no kernel for any {', '.join(sorted(names))}: {error.diagnostics[0].message}")
        return True

    def _history(self, program: Any) -> _History:
        history = self._histories.get(id(program))
        if history is None:
            if len(self._histories) >= MAX_PROGRAMS:
                self._histories.clear()
            counts = _entry_counts(program)
            reason = f"{', '.join(sorted(counts))} is data of a matrix" if counts else ""
            history = self._histories[id(program)] = _History(program, counts, reason)
        return history

    def count_kernel(self, operator: str, sizes: Mapping[str, int], symbolic: frozenset[str], reason: str) -> None:
        """Note that a kernel was compiled."""
        self._n_kernels += 1
        self.note("analysis", f"{operator}: kernel {self._n_kernels}, {describe_sizes(sizes, symbolic)} ({reason})")

    def note(self, kind: Literal["passed", "missed", "analysis"], message: str) -> None:
        """A remark, and a line in the log ``polyc``."""
        self.events.append(Remark(kind, "dynamic", message))
        logger.info("%s", message)


def _entry_counts(program: Program) -> frozenset[str]:
    """The sizes that are numbers of entries of sparse matrices."""
    return frozenset(m.n_entries.name for m in program.compressed)


def see_sizes(history: _History, sizes: Mapping[str, int]) -> bool:
    """Count one more combination, and say whether it is new; by the rule of the module some sizes may become symbolic."""
    combination = tuple((n, v) for n, v in sizes.items() if n not in history.symbolic)
    if combination in history.seen:
        return False
    if len(history.seen) >= MAX_SEEN:
        history.seen.clear()
    history.seen.add(combination)
    changing: dict[str, str] = {}
    for position, (name, _) in enumerate(combination):
        if name in history.refused:
            continue
        n_values = len({c[position] for c in history.seen if _agree(c, combination, position)})
        if n_values >= MAX_VALUES:
            changing[name] = f"{name} has had {n_values} values while the others stayed"
    if not changing and len(history.seen) >= MAX_COMBINATIONS:
        for position, (name, _) in enumerate(combination):
            if name not in history.refused and len({c[position] for c in history.seen}) > 1:
                changing[name] = f"{name} has changed within {len(history.seen)} combinations of sizes"
    if changing:
        history.symbolic |= changing.keys()
        history.reason = "; ".join(changing.values())
        history.seen = {tuple((n, v) for n, v in c if n not in history.symbolic) for c in history.seen}
    return True


def _agree(a: tuple[tuple[str, int], ...], b: tuple[tuple[str, int], ...], position: int) -> bool:
    return a[:position] == b[:position] and a[position + 1 :] == b[position + 1 :]


def known_strides(
    strides: tuple[int | None, ...] | None,
    extents: tuple[Expr, ...],
    symbolic: frozenset[str],
) -> tuple[int | None, ...] | None:
    """`strides` of a contiguous array as far as they do not depend on symbolic sizes: all inside the last symbolic extent."""
    if strides is None or not symbolic or len(extents) != len(strides):
        return strides
    result: list[int | None] = [None] * len(strides)
    for d in reversed(range(len(strides))):
        result[d] = strides[d]
        if not symbolic.isdisjoint(size_names(extents[d])):
            break
    return tuple(result)


def add_defined(symbolic: frozenset[str], defined: Sequence[tuple[str, Expr]]) -> frozenset[str]:
    """`symbolic` with all sizes that are computed from them."""
    result = set(symbolic)
    for name, expr in defined:
        if not result.isdisjoint(size_names(expr)):
            result.add(name)
    return frozenset(result)


def typical_sizes(sizes: Mapping[str, int], symbolic: Collection[str], steps: Collection[str] = ()) -> dict[str, int]:
    """What the scheduler may take symbolic sizes for.

    Small ones are what they are: the extents of an image with its border, 30 for outputs of 28, decide which index is the
    vector (rounded to 28, a convolution of 3x3 ran at 0.5 of its speed).  From `ROUNDED_FROM` on they are the same for all that
    agree in three significant bits, so that operators first called with similar sizes get the same code: a number in their
    middle that no tile divides.  A round one would be wrong for most: the tiles that divide 256 exactly lose a quarter of the
    speed at 300 and at 512 (measured for matrix products; with 287 no size above 256 loses more than an eighth).

    Counts of `steps` are taken for `ROUNDED_FROM` at least: a first call with a few says little, and many cost the time.
    """
    return {n: _middle(max(v, ROUNDED_FROM) if n in steps else v) for n, v in sizes.items() if n in symbolic}


def _middle(size: int) -> int:
    if size < ROUNDED_FROM:
        return size
    step = 1 << max(0, size.bit_length() - 3)
    return size // step * step + step // 2 - 1


def describe_sizes(sizes: Mapping[str, int], symbolic: Collection[str]) -> str:
    """``B any, S=512``."""
    return ", ".join(f"{n} any" if n in symbolic else f"{n}={v}" for n, v in sizes.items()) or "no sizes"
