"""Results of programs that only rearrange an input: seen as views of it, they need no code."""

from __future__ import annotations

import numpy as np

from polyc.ir.expr import Const, Expr, Index, Read, int_const, substitute
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, RangeClause
from polyc.ir.simplify import simplify
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """Element ``[i, j, …]`` is the element ``first[d] + steps[d][0]·i + steps[d][1]·j + …`` in each dimension d of `source`."""

    source: str
    shape: tuple[int, ...]
    first: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]

    def take(self, array: np.ndarray) -> np.ndarray | None:
        """The view of `array`, the contents of `source`; None where it would reach outside."""
        if 0 in self.shape:
            return np.empty(self.shape, array.dtype)
        for first, steps, extent in zip(self.first, self.steps, array.shape, strict=True):
            ends = [s * (n - 1) for s, n in zip(steps, self.shape, strict=True)]
            if first + sum(min(e, 0) for e in ends) < 0 or first + sum(max(e, 0) for e in ends) >= extent:
                return None
        strides = [sum(s[k] * b for s, b in zip(self.steps, array.strides, strict=True)) for k in range(len(self.shape))]
        start = array[tuple(slice(f, None) for f in self.first)]
        return np.lib.stride_tricks.as_strided(start, self.shape, strides, writeable=False)


def find_view(program: Program, name: str) -> View | None:
    """How the tensor `name`, for which one statement gives every element, lies in a parameter; None where it does not.

    Before: ``T[i, j] = W[0, 4·i + j] where i in 0:3, j in 0:4``.  After: the view of W with steps (0, 0) and (4, 1)."""
    statements = [s for s in program.statements if s.target == name]
    if len(statements) != 1 or program.sizes:
        return None
    (s,) = statements
    read = s.value
    if s.reduction is not None or not isinstance(read, Read) or read.tensor not in program.parameters:
        return None
    extents: dict[str, int] = {}
    for clause in s.where:
        if not isinstance(clause, RangeClause) or clause.index in extents or not isinstance(clause.upper, Const):
            return None
        if clause.lower != int_const(0):
            return None
        extents[clause.index] = max(0, int(clause.upper.value))
    indices = [e.name for e in s.subscripts if isinstance(e, Index)]
    if len(indices) != len(s.subscripts) or sorted(indices) != sorted(extents):
        return None
    first, steps = [], []
    for e in read.subscripts:
        linear = _linear(e, indices)
        if linear is None:
            return None
        first.append(linear[0])
        steps.append(linear[1])
    return View(read.tensor, tuple(extents[i] for i in indices), tuple(first), tuple(steps))


def _linear(e: Expr, indices: list[str]) -> tuple[int, tuple[int, ...]] | None:
    coefficients = index_coefficients(e)
    origin = simplify(substitute(e, {i: int_const(0) for i in indices}))
    if coefficients is None or not isinstance(origin, Const) or not coefficients.keys() <= set(indices):
        return None
    return int(origin.value), tuple(coefficients.get(i, 0) for i in indices)
