"""Plans for shapes that keep changing: one is made with traced sizes, and serves all shapes that would have led to the same.

A plan follows from the shapes of inputs by much Python code: operators' functions, folding, partitioning.  Where shapes at one
place of a graph keep changing, that code runs once on traced numbers (`ir.traced`).  What it has made, and the conditions under
which it would have made it, are a `Template`; a new shape that meets the conditions costs the computation of its numbers
and the addresses of its operands, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from polyc.ir.traced import Trace, Traced, is_traced, plain, whole
from polyc.onnx.assembly import Assembly
from polyc.onnx.blocks import Blocks
from polyc.onnx.plan import Plan
from polyc.records import dataclass

MOST_SEEN = 8
MOST_TEMPLATES = 8
MOST_ATTEMPTS = 4

Extents = tuple[int, ...]
"""Of all inputs, one after the other."""


@dataclass(frozen=True, slots=True)
class Varying:
    """Which extents are sizes: those that were seen to vary; the same ones where they never differed."""

    place: tuple[int | None, ...]
    """For each extent its size, or None where it is `fixed`."""
    fixed: Extents

    @classmethod
    def of(cls, seen: Sequence[Extents]) -> Varying | None:
        """None where nothing varies."""
        columns = list(zip(*seen, strict=True))
        sizes = {c: k for k, c in enumerate(dict.fromkeys(c for c in columns if len(set(c)) > 1))}
        return cls(tuple(sizes.get(c) for c in columns), seen[-1]) if sizes else None

    def sizes(self, extents: Extents) -> tuple[int, ...] | None:
        """The sizes of other extents; None where they differ in what is fixed, or in what was the same."""
        found: dict[int, int] = {}
        for k, known, n in zip(self.place, self.fixed, extents, strict=True):
            if (known if k is None else found.setdefault(k, n)) != n:
                return None
        return tuple(found[k] for k in sorted(found))

    def trace(self, extents: Extents) -> tuple[Trace, tuple[int, ...]]:
        """The sizes of these extents, traced, and the extents with them."""
        sizes = self.sizes(extents)
        assert sizes is not None
        trace = Trace(sizes)
        numbers = trace.numbers()
        return trace, tuple(n if k is None else whole(numbers[k]) for k, n in zip(self.place, self.fixed, strict=True))


class Template:
    """A plan whose numbers are computed; `stop` and `node` as `segments.Segment` has them."""

    def __init__(self, varying: Varying, trace: Trace, assembly: Assembly, stop: int, node: Any, blocks: Blocks) -> None:
        self.stop, self.node = stop, node
        self._varying, self._trace, self._assembly, self._blocks = varying, trace, assembly, blocks
        numbers: dict[int, Traced] = {}

        def collect(n: Any) -> int:
            if is_traced(n):
                numbers[id(n)] = n
            return plain(n)

        self.first = assembly.plan(blocks, collect)
        """The plan for the sizes that were traced."""
        self._index = {key: k for k, key in enumerate(numbers)}
        self._compute = trace.function(numbers.values())
        self._kept = tuple(numbers.values())

    def plan(self, extents: Extents) -> Plan | None:
        """The plan for these extents of the inputs; None where another may be right."""
        sizes = self._varying.sizes(extents)
        if sizes is None:
            return None
        numbers = self._compute(sizes)
        if numbers is None:
            return None
        index = self._index

        def number(n: Any) -> int:
            k = index.get(id(n))
            if k is not None:
                return numbers[k]
            if not is_traced(n):
                return int(n)
            found = self._trace.function([n])(sizes)  # for a profile, say
            assert found is not None
            return found[0]

        return self._assembly.plan(self._blocks, number)


@dataclass(slots=True)
class Place:
    """What is known of one place of a graph, for inputs of these types and ranks."""

    seen: list[Extents] = field(default_factory=list)
    templates: list[Template] = field(default_factory=list)
    n_attempts: int = 0

    def find(self, extents: Extents) -> tuple[Template, Plan] | None:
        """A template that is right for these extents, and its plan."""
        for template in self.templates:
            plan = template.plan(extents)
            if plan is not None:
                return template, plan
        return None

    def see(self, extents: Extents, n_before: int) -> Varying | None:
        """Note these extents; what has varied in the last ones, where `n_before` others have been seen and a template is worth
        an attempt."""
        if extents not in self.seen:
            self.seen.append(extents)
            del self.seen[:-MOST_SEEN]
        is_due = len(self.seen) > n_before and len(self.templates) < MOST_TEMPLATES and self.n_attempts < MOST_ATTEMPTS
        return Varying.of(self.seen[-n_before - 1 :]) if is_due else None


def kinds_and_extents(values: Mapping[str, Any], names: Sequence[str]) -> tuple[tuple[Any, ...], Extents]:
    """Types and ranks of the values that there are of `names`, and all extents of those that are arrays."""
    kinds: list[Any] = []
    extents: list[int] = []
    for n in names:
        if n in values:
            value = values[n]
            if isinstance(value, np.ndarray):
                kinds.append((n, value.dtype, value.ndim))
                extents += value.shape
            else:
                kinds.append((n, type(value).__name__))
    return tuple(kinds), tuple(extents)
