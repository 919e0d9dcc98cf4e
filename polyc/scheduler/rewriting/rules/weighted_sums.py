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

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from math import frexp, isfinite

import numpy as np

from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Const, Expr, Read, children, count_operations, int_const, reads, type_of, with_children
from polyc.ir.program import Program, Statement
from polyc.ir.simplify import simplify
from polyc.ir.types import F32, DType
from polyc.poly.ranges import Ranges

_LINEAR = ("add", "sub", "neg", "mul")

_LARGEST = 10**30
"""Weights up to here, and down to the reciprocal, have full precision in every type of float that is computed in."""

MOST_ERRORS = 4
"""Times the rounding errors of a sum as written that it may have when its values are collected."""

Weights = dict[Expr, list[Fraction]]
"""Values of a sum in the order of the source, with the weights that they are added with."""


def collect_weights(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """`program` with the weighted sums of its statements in as few operations as equal weights allow."""
    types = {t.name: t.dtype for t in program.tensors}
    statements: list[Statement] = []
    remarks: list[Remark] = []
    for s in program.statements:
        value = _rewrite(s.value, types) if s.reduction is None and _has_free_order(s) else s.value
        if value != s.value:
            message = f"values of equal weight in {s.target} are added before they are multiplied"
            remarks.append(Remark("passed", "weighted-sums", message, s.name, s.span))
            s = replace(s, value=value)
        statements.append(s)
    return (replace(program, statements=tuple(statements)) if remarks else program), ranges, remarks


def _has_free_order(s: Statement) -> bool:
    """Whether elements of the target that a statement reads are those of an earlier step, of which it reads neighbours: where
    each element waits for the one before, how the sum is written says what can wait apart, and whether it is a scan."""
    own = [read for read in reads(s.value) if read.tensor == s.target]
    apart = [[simplify(Call("sub", pair)) for pair in zip(r.subscripts, s.subscripts, strict=True)] for r in own]
    for step in range(len(s.subscripts)):
        is_earlier = all(isinstance(at := a[step], Const) and at.value < 0 for a in apart)
        if is_earlier and any(e != int_const(0) for a in apart for k, e in enumerate(a) if k != step):
            return True
    return not own


def _rewrite(expr: Expr, types: Mapping[str, DType]) -> Expr:
    """`expr` with each sum in it written anew where that saves operations."""
    if isinstance(expr, Read):
        return expr
    if isinstance(expr, Call) and expr.op in _LINEAR and (dtype := type_of(expr, types)).is_float and not dtype.is_storage:
        weights: Weights = {}
        _collect(expr, Fraction(1), dtype, weights)
        if expr not in weights:
            inner = {value: _rewrite(value, types) for value in weights}
            return _collected(expr, weights, inner, dtype) or _replace(expr, inner)
    return with_children(expr, tuple(_rewrite(child, types) for child in children(expr)))


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
    if not all(1 <= abs(weight) * _LARGEST <= _LARGEST**2 for weight in totals.values()):
        return None
    new = _write(totals, dtype)
    if count_operations(new, totals) >= count_operations(expr, weights):
        return None
    return None if _loses_precision(expr, new, inner) else new


def _loses_precision(old: Expr, new: Expr, inner: Mapping[Expr, Expr]) -> bool:
    """Whether `new` has many more rounding errors than the sum `old`, whose values became those of `inner`, where all values
    are equal, or those of one tensor are and the others zero, or the other way round."""
    tensors = {value: frozenset(read.tensor for read in reads(value)) for value in inner}
    kinds = set(tensors.values())
    for large in (kinds, *({kind} for kind in kinds), *(kinds - {kind} for kind in kinds)):
        sizes = {value: float(kind in large) for value, kind in tensors.items()}
        _, before = _errors(old, sizes)
        _, after = _errors(new, {inner[value]: size for value, size in sizes.items()})
        if after > MOST_ERRORS * before:
            return True
    return False


def _errors(expr: Expr, values: Mapping[Expr, float]) -> tuple[float, float]:
    """The weighted sum `expr` of `values`, and the rounding errors of its operations in units of the precision."""
    if expr in values:
        return values[expr], 0.0
    match expr:
        case Call(op="add" | "sub", args=(a, b)):
            (x, first), (y, second) = _errors(a, values), _errors(b, values)
            total = x + y if expr.op == "add" else x - y
            return total, first + second + abs(total)
        case Call(op="mul", args=(Const(value), a) | (a, Const(value))):
            x, errors = _errors(a, values)
            product, is_exact = float(value) * x, abs(frexp(float(value))[0]) == 0.5
            return product, abs(float(value)) * errors + (0.0 if is_exact else abs(product))
        case Call(op="neg", args=(a,)):
            x, errors = _errors(a, values)
            return -x, errors
    raise AssertionError(f"{expr} is no part of a weighted sum")


def _collect(expr: Expr, factor: Fraction, dtype: DType, weights: Weights) -> None:
    """Add the values that `expr` is a weighted sum of, times `factor`, to `weights`."""
    match expr:
        case Call(op="add" | "sub", args=(a, b)):
            _collect(a, factor, dtype, weights)
            _collect(b, factor if expr.op == "add" else -factor, dtype, weights)
        case Call(op="neg", args=(a,)):
            _collect(a, -factor, dtype, weights)
        case Call(op="mul", args=(Const(value), a) | (a, Const(value))) if isfinite(value) and value:
            _collect(a, factor * _exactly(value, dtype), dtype, weights)
        case _:
            weights.setdefault(expr, []).append(factor)


def _exactly(value: float, dtype: DType) -> Fraction:
    """The number that the literal `value` is as an element of type `dtype`."""
    return Fraction(float(np.float32(value)) if dtype == F32 else float(value))


def _write(weights: Mapping[Expr, Fraction], dtype: DType) -> Expr:
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
    if expr in values:
        return values[expr]
    if isinstance(expr, Call):
        return with_children(expr, tuple(_replace(arg, values) for arg in expr.args))
    return expr
