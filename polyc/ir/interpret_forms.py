"""Sums of terms over integers, for the reference interpreter alone: their intervals, and what solves an inequality."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from math import prod

import numpy as np

from polyc.diagnostics import Diagnostic, RangeError
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Read, Select, Size, evaluate, index_names, map_children, walk

Interval = tuple[int, int]
"""Half open: ``lower <= x < upper``."""
Box = dict[str, Interval]
Form = dict[Expr | int, int]
"""A sum of coefficient * term; terms are `Index` nodes or expressions that are not affine; the key 1 holds the constant."""

_MAX_POINTS = 1 << 22


def add_forms(a: Form, b: Form, factor: int = 1) -> Form:
    result = dict(a)
    for term, coefficient in b.items():
        result[term] = result.get(term, 0) + factor * coefficient
    return {term: c for term, c in result.items() if c or term == 1}


def form_of(expr: Expr, sizes: Mapping[str, int]) -> Form:
    match expr:
        case Const():
            return {1: int(expr.value)}
        case Size():
            return {1: sizes[expr.name]}
        case Index():
            return {expr: 1, 1: 0}
        case Cast() if expr.dtype.is_integer:  # subscripts are far from the ends of any integer type that holds them
            return form_of(expr.value, sizes)
        case Call("add", (a, b)):
            return add_forms(form_of(a, sizes), form_of(b, sizes))
        case Call("sub", (a, b)):
            return add_forms(form_of(a, sizes), form_of(b, sizes), -1)
        case Call("neg", (a,)):
            return add_forms({1: 0}, form_of(a, sizes), -1)
        case Call("mul", (a, b)):
            x, y = form_of(a, sizes), form_of(b, sizes)
            if len(x) == 1 and 1 in x:
                return add_forms({1: 0}, y, x[1])
            if len(y) == 1 and 1 in y:
                return add_forms({1: 0}, x, y[1])
    if not any(isinstance(node, (Index, Read)) for node in walk(expr)):
        return {1: evaluate(expr, sizes)}
    return {_fold(expr, sizes): 1, 1: 0}


def _fold(expr: Expr, sizes: Mapping[str, int]) -> Expr:
    """`expr` with operands that hold no index as constants, so that terms can be evaluated without sizes."""
    if isinstance(expr, (Call, Select)):
        return map_children(expr, lambda e: _fold(e, sizes))
    if any(isinstance(node, (Index, Read)) for node in walk(expr)):
        return expr
    return Const(evaluate(expr, sizes))


def multiply_out(form: Form) -> Form:
    """A form that is >= 0 where `form` is, without a floor division by a number: ``i - 2 * k`` for ``i / 2 - k``."""
    for term, factor in form.items():
        match term:
            case Call("floordiv", (dividend, Const() as divisor)) if abs(factor) == 1 and divisor.value > 0:
                d = int(divisor.value)
                rest = {t: c * d for t, c in form.items() if t is not term}
                return add_forms(add_forms(rest, form_of(dividend, {}), factor), {1: 0 if factor > 0 else d - 1})
    return form


def indices_of_form(form: Form) -> frozenset[str]:
    names = (indices_of(term) for term in form if not isinstance(term, int))
    return frozenset().union(*names)


def is_linear_form(form: Form) -> bool:
    return all(isinstance(term, (int, Index)) for term in form)


def indices_of(expr: Expr) -> frozenset[str]:
    return frozenset(index_names(expr))


def interval_of(form: Form, box: Box) -> Interval:
    """Smallest and one beyond the largest value over the box; the bounds as they stand for a plain index."""
    lower, minus_upper = minimum_of(form, box), minimum_of(add_forms({1: 0}, form, -1), box)
    if lower is None or minus_upper is None:
        message = "this left subscript has no range that can be found"
        raise RangeError(Diagnostic("range-unsolved", message, None, "write an index name, or an affine expression"))
    return lower, 1 - minus_upper


def minimum_of(form: Form, box: Box) -> int | None:
    """The least value over the box.  An index with an empty range counts with its bounds as they stand, so that extents
    stay the same formula at every size."""
    for term, factor in form.items():
        if isinstance(term, Select) and any(isinstance(n, Cast) and not n.dtype.is_integer for n in walk(term.condition)):
            # Conditions on real numbers are not evaluated here: either arm may be chosen.
            rest = {t: c for t, c in form.items() if t is not term}
            found = [minimum_of(add_forms(rest, form_of(arm, {}), factor), box) for arm in (term.then, term.other)]
            return None if None in found else min(n for n in found if n is not None)
    total = form.get(1, 0)
    seen: set[str] = set()
    joint: Form = {}
    for term, coefficient in form.items():
        if isinstance(term, int):
            continue
        if isinstance(term, Index):
            lower, upper = box[term.name]
            total += coefficient * (lower if coefficient > 0 else upper - 1)
        else:
            joint[term] = coefficient
        if seen & indices_of(term):
            joint = {t: c for t, c in form.items() if not isinstance(t, int)}
            total = form.get(1, 0)
            break
        seen |= indices_of(term)
    if not joint:
        return total
    names = sorted(indices_of_form(joint))
    if prod(max(box[n][1] - box[n][0], 1) for n in names) > _MAX_POINTS:
        return None
    axes = np.ix_(*(np.arange(box[n][0], max(box[n][1], box[n][0] + 1), dtype=np.int64) for n in names))
    values = dict(zip(names, axes, strict=True))
    sums = sum((c * _evaluate_many(t, values) for t, c in joint.items() if not isinstance(t, int)), np.int64(0))
    return total + int(np.min(sums))


def _evaluate_many(expr: Expr, values: Mapping[str, np.ndarray]) -> np.ndarray:
    names = sorted(indices_of(expr))
    points = np.broadcast_arrays(*(values[n] for n in names))
    flat = [p.ravel().tolist() for p in points]
    results = [evaluate(expr, dict(zip(names, point, strict=True))) for point in zip(*flat, strict=True)]
    return np.array(results, np.int64).reshape(points[0].shape)


# --- Inequalities in one unknown -------------------------------------------------------------------------------------

Bounds = tuple[int | None, int | None]


def solve_nonnegative(form: Form, index: str, box: Box) -> Bounds | None:
    """The interval of `index` where ``form >= 0`` for all values of the other indices; None: not an interval we can find."""
    holding = [t for t in form if not isinstance(t, int) and index in indices_of(t)]
    if not holding:
        return None, None  # says nothing about the index: a precondition
    if len(holding) > 1:
        return None
    term = holding[0]
    rest = {t: c for t, c in form.items() if t != term}
    if indices_of(term) & indices_of_form(rest):
        return None
    least = minimum_of(rest, box)
    if least is None:
        return None
    coefficient = form[term]
    if isinstance(term, Index):
        if coefficient > 0:
            return -(least // coefficient), None
        return None, least // -coefficient + 1
    if coefficient > 0:
        return _peel(term, -(least // coefficient), 1, index, box)
    return _peel(term, least // -coefficient, -1, index, box)


def _peel(term: Expr, bound: int, sign: int, index: str, box: Box) -> Bounds | None:
    """Solve ``term >= bound`` (sign 1) or ``term <= bound`` (sign -1)."""
    match term:
        case Call("floordiv", (a, Const(divisor))) if divisor > 0:
            limit = bound * int(divisor) + (0 if sign > 0 else int(divisor) - 1)
            return solve_nonnegative(_toward(a, limit, sign), index, box)
        case Call("max" | "min" as op, (a, b)):
            parts = [_toward(x, bound, sign) for x in (a, b)]
            if (op == "min") == (sign > 0):  # both must hold
                return intersect_bounds(solve_nonnegative(parts[0], index, box), solve_nonnegative(parts[1], index, box))
            for part, other in itertools.permutations(parts):  # one of them must hold
                if index not in indices_of_form(part) and (least := minimum_of(part, box)) is not None:
                    return (None, None) if least >= 0 else solve_nonnegative(other, index, box)
            return None
    return None


def _toward(expr: Expr, bound: int, sign: int) -> Form:
    """The form that is >= 0 where ``expr >= bound`` (sign 1) or ``expr <= bound`` (sign -1)."""
    return add_forms({1: -sign * bound}, form_of(expr, {}), sign)


def intersect_bounds(a: Bounds | None, b: Bounds | None) -> Bounds | None:
    if a is None or b is None:
        return a or b  # what is known still bounds the index; the rest is checked during evaluation
    lowers = [x for x in (a[0], b[0]) if x is not None]
    uppers = [x for x in (a[1], b[1]) if x is not None]
    return max(lowers, default=None), min(uppers, default=None)
