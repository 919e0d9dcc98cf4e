"""Partial results that a block makes with its own result of another reduction, and what of them the whole results are.

Expressions say it, of which some are parts of a block's program and some are evaluated where partial results are combined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyc.blocks.plan import evaluate_all
from polyc.ir.expr import Call, Const, Expr, Index, Select, eq
from polyc.ir.types import DType

PART = "part"
"""The partial result itself, in the term of a law."""


@dataclass(frozen=True)
class Use:
    """A name in the term of a law: the partial result of the same block at a `place`, or with `is_total` what all of these are
    combined to; its dimensions are `dims` of the partial results that the law is of."""

    name: str
    place: int
    is_total: bool
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Law:
    """Each partial result counts as `term`, an expression of `PART` and the names of `uses`."""

    term: Expr
    uses: tuple[Use, ...]

    @property
    def needs_whole(self) -> bool:
        """Whether an element needs others of a used result than that at its own place: then only terms are cut, not results."""
        return any(use.dims != tuple(range(len(use.dims))) for use in self.uses)

    def apply(self, part: np.ndarray, own: Sequence[np.ndarray], totals: Sequence[np.ndarray]) -> np.ndarray:
        """The term of a partial result: `own` are the partial results of its block, `totals` are known at the places used."""
        values = {PART: part}
        for use in self.uses:
            array = (totals if use.is_total else own)[use.place]
            order = np.argsort(use.dims)
            shape = [part.shape[d] if d in use.dims else 1 for d in range(part.ndim)]
            values[use.name] = array.transpose(order).reshape(shape)
        return np.asarray(evaluate_all(self.term, values), part.dtype)


def refer_to_maximum(maximum: Expr, dtype: DType) -> Expr:
    """What is subtracted in the place of a maximum: nothing from values that all are -inf."""
    return Select(eq(maximum, Const(float("-inf"), dtype)), Const(0.0, dtype), maximum)


def exponential_law(scale: float, rank: int, dtype: DType) -> Law:
    """Of sums of exponentials of `scale` times what the block's maximum (at place 0, of so many dimensions) is subtracted
    from."""
    dims = tuple(range(rank))
    apart = Index("own") - refer_to_maximum(Index("whole"), dtype)
    weight = Call("exp", (Call("mul", (Const(scale, dtype), apart)),))
    return Law(Call("mul", (Index(PART), weight)), (Use("own", 0, False, dims), Use("whole", 0, True, dims)))


def deviation_law(scale: float, n: int, dims: Sequence[tuple[int, ...]], dtype: DType) -> Law:
    """Of sums of products of two deviations from means of `n` points, each from the block's mean: `dims` are those of the
    means in both factors.  The sum that a mean is made of is at place 0, the number of points at place 1."""
    uses: list[Use] = []
    term: Expr = Call("mul", (Const(scale, dtype), Index("own_count")))
    for k, along in enumerate(dims):
        apart: list[Expr] = []
        for side, is_total in (("own", False), ("whole", True)):
            uses += [Use(f"{side}_{k}", 0, is_total, along), Use(f"{side}_count_{k}", 1, is_total, along)]
            share = Call("truediv", (Const(float(n), dtype), Index(f"{side}_count_{k}")))
            apart.append(Call("mul", (Index(f"{side}_{k}"), share)))
        term = Call("mul", (term, apart[0] - apart[1]))
    uses.append(Use("own_count", 1, False, dims[0]))
    return Law(Call("add", (Index(PART), term)), tuple(uses))
