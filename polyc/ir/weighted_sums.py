"""Values of equal weight are added before they are multiplied, and weights of one value are added.

    before  ``y[i] = x[i] + 0.125 * (x[i-1] - 2 * x[i] + x[i+1])``
    after   ``y[i] = 0.75 * x[i] + 0.125 * (x[i-1] + x[i+1])``

Stencils are written as sums of differences, each with its factor.  Weights are computed exactly and rounded once.  A sum is
rewritten where that leaves fewer operations, and never where a value is added and subtracted with the same weight: its
infinities and NaN would be lost, and so would rounding errors that are computed so (``c - (c - x)``, ``c = 4097 * x``).
Nor where differences of values that are nearly equal would come after sums of them: ``0.5 * (a - b) + 0.5 * (c - d)`` has few
rounding errors however large the four are, ``0.5 * (a + c - b - d)`` has those of their size.  Nor where there are no weights
to collect, only signs: ``-(x - y)`` is a negative zero where ``y - x`` is a positive one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from math import frexp, isfinite

import numpy as np

from polyc.ir.expr import Call, Const, Expr, count_operations, map_children, reads, type_of
from polyc.ir.program import Statement
from polyc.ir.read_sites import own_distances
from polyc.ir.types import F32, DType

LARGEST = 1e30
"""Numbers up to here, and down to the reciprocal, have full precision in every type of float that is computed in."""

MOST_ERRORS = 4
"""Times the rounding errors of a sum as written that it may have when its values are collected."""

Weights = dict[Expr, list[Fraction]]
"""Values of a sum in the order of the source, with the weights that they are added with."""


def has_free_order(s: Statement) -> bool:
    """Whether elements of the target that a statement reads are those of an earlier step, of which it reads neighbours: where
    each element waits for the one before, how the sum is written says what can wait apart, and whether it is a scan."""
    apart = own_distances(s)
    for step in range(len(s.subscripts)):
        is_earlier = all(at is not None and at < 0 for at in (a[step] for a in apart))
        if is_earlier and any(e != 0 for a in apart for k, e in enumerate(a) if k != step):
            return True
    return not apart


def collect_weights(expr: Expr, inside: Callable[[Expr], Expr], types: Mapping[str, DType]) -> Expr | None:
    """The sum `expr` with its values rewritten by `inside`, and written anew where that saves operations; None for no sum."""
    dtype = type_of(expr, types)
    if not dtype.is_float or dtype.is_storage or not _parts(expr, dtype):
        return None
    weights: Weights = {}
    _collect(expr, Fraction(1), dtype, weights)
    inner = {value: inside(value) for value in weights}
    return _collected(expr, weights, inner, dtype) or _replace(expr, inner)


def _collected(expr: Expr, weights: Weights, inner: Mapping[Expr, Expr], dtype: DType) -> Expr | None:
    """The sum `expr` of `weights`, made of what its values became; None where that saves nothing, loses a value, or a
    weight is out of range."""
    whole: Weights = {}
    for value, found in weights.items():
        whole.setdefault(inner[value], []).extend(found)
    if any(-weight in found for found in whole.values() for weight in found):
        return None
    if all(len(found) == 1 and abs(found[0]) == 1 for found in whole.values()):
        return None
    totals = {value: sum(found, Fraction(0)) for value, found in whole.items()}
    if not all(1 / LARGEST <= abs(weight) <= LARGEST for weight in totals.values()):
        return None
    new = write_sum(totals, dtype)
    if count_operations(new, totals) >= count_operations(expr, weights):
        return None
    return None if _loses_precision(expr, new, inner, dtype) else new


def _loses_precision(old: Expr, new: Expr, inner: Mapping[Expr, Expr], dtype: DType) -> bool:
    """Whether `new` has many more rounding errors than the sum `old`, whose values became those of `inner`, where all values
    are equal, or those of one tensor are and the others zero, or the other way round."""
    tensors = {value: frozenset(read.tensor for read in reads(value)) for value in inner}
    kinds = set(tensors.values())
    for large in (kinds, *({kind} for kind in kinds), *(kinds - {kind} for kind in kinds)):
        sizes = {value: float(kind in large) for value, kind in tensors.items()}
        _, before = _errors(old, sizes, dtype)
        _, after = _errors(new, {inner[value]: size for value, size in sizes.items()}, dtype)
        if after > MOST_ERRORS * before:
            return True
    return False


def _errors(expr: Expr, values: Mapping[Expr, float], dtype: DType) -> tuple[float, float]:
    """The weighted sum `expr` of `values`, and the rounding errors of its operations in units of the precision."""
    if expr in values:
        return values[expr], 0.0
    parts, total, errors = _parts(expr, dtype), 0.0, 0.0
    for part, factor in parts:
        value, own = _errors(part, values, dtype)
        total, errors = total + float(factor) * value, errors + abs(float(factor)) * own
    is_exact = len(parts) == 1 and abs(frexp(parts[0][1])[0]) == 0.5
    return total, errors if is_exact else errors + abs(total)


def _collect(expr: Expr, factor: Fraction, dtype: DType, weights: Weights) -> None:
    """Add the values that `expr` is a weighted sum of, times `factor`, to `weights`."""
    parts = _parts(expr, dtype)
    for part, own in parts:
        _collect(part, factor * own, dtype, weights)
    if not parts:
        weights.setdefault(expr, []).append(factor)


def _parts(expr: Expr, dtype: DType) -> list[tuple[Expr, Fraction]]:
    """The operands that an operator adds up, and their weights; none where it does something else."""
    match expr:
        case Call("add" | "sub", (a, b)):
            return [(a, Fraction(1)), (b, Fraction(1 if expr.op == "add" else -1))]
        case Call("neg", (a,)):
            return [(a, Fraction(-1))]
        case Call("mul", (Const(value), a) | (a, Const(value))) if isfinite(value) and value:
            return [(a, Fraction(float(np.float32(value)) if dtype == F32 else float(value)))]
    return []


def write_sum(weights: Mapping[Expr, Fraction], dtype: DType) -> Expr:
    """The sum of values with these weights; values whose weights are equal but for a sign are added first."""
    groups: dict[Fraction, list[tuple[Expr, bool]]] = {}
    for value, weight in weights.items():
        groups.setdefault(abs(weight), []).append((value, weight < 0))
    terms: list[tuple[Expr, bool]] = []
    for weight, values in groups.items():
        flipped = all(is_negative for _, is_negative in values)
        inner = _add_up([(value, is_negative and not flipped) for value, is_negative in values])
        terms.append((inner if weight == 1 else Const(float(weight), dtype) * inner, flipped))
    if all(is_negative for _, is_negative in terms):
        return -_add_up([(term, False) for term, _ in terms])
    return _add_up(terms)


def _add_up(terms: list[tuple[Expr, bool]]) -> Expr:
    """The sum of terms, of which those with a mark, never all, are subtracted."""
    first, *others = sorted(terms, key=lambda term: term[1])
    return reduce(lambda a, term: Call("sub" if term[1] else "add", (a, term[0])), others, first[0])


def _replace(expr: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """`expr` with other values in the places of those that it is a sum of."""
    return values[expr] if expr in values else map_children(expr, lambda part: _replace(part, values))
