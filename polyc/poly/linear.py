"""Inequalities between subscripts and extents, and solving them for one index *for all values* of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy

from polyc.ir.expr import Call, Cast, Const, Expr, Index, index_names
from polyc.poly import isl
from polyc.poly.isl import Affine, NotAffine
from polyc.poly.sizes import Bounds, Sizes, Value
from polyc.records import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class Linear:
    """``sum(coefficients[i] * i) + factor * atom + rest``.

    `atom` is at most one quasi-affine term (a floor division, remainder, minimum, maximum or absolute value).
    """

    coefficients: dict[str, int]
    rest: Value
    atom: Expr | None = None
    factor: int = 0

    def indices(self) -> set[str]:
        return set(self.coefficients) | (index_names(self.atom) if self.atom is not None else set())


_ATOMS = ("floordiv", "mod", "max", "min", "fmax", "fmin", "abs")


def linear_form(expr: Expr, sizes: Sizes) -> Linear:
    """The form of a subscript; raises `NotAffine` (a read, a product of indices, two quasi-affine terms)."""
    match expr:
        case Index():
            return Linear({expr.name: 1}, sizes.constant(0))
        case Const() if not expr.dtype.is_float:
            return Linear({}, sizes.constant(int(expr.value)))
        case Cast() if expr.dtype.is_integer and expr.dtype.bits >= 32:
            return linear_form(expr.value, sizes)
        case Call("add", (a, b)):
            return add_forms(linear_form(a, sizes), linear_form(b, sizes))
        case Call("sub", (a, b)):
            return add_forms(linear_form(a, sizes), scale_form(linear_form(b, sizes), -1))
        case Call("neg", (a,)):
            return scale_form(linear_form(a, sizes), -1)
        case Call("mul", (a, b)):
            x, y = linear_form(a, sizes), linear_form(b, sizes)
            for p, q in ((x, y), (y, x)):
                if not p.coefficients and p.atom is None and p.rest.is_cst():
                    return scale_form(q, int(p.rest.max_val().to_python()))
            raise NotAffine
    if not index_names(expr):
        return Linear({}, sizes.value(expr))
    if isinstance(expr, Call) and expr.op in _ATOMS:
        # Operands must be affine themselves; whether this one is shows when isl reads it.
        isl.Affine(isl.set_space(sizes.parameters, None, sorted(index_names(expr))), _positions(expr)).pw_aff(expr)
        return Linear({}, sizes.constant(0), expr, 1)
    raise NotAffine


def _positions(expr: Expr) -> dict[str, int]:
    return {name: n for n, name in enumerate(sorted(index_names(expr)))}


def add_forms(a: Linear, b: Linear) -> Linear:
    """The sum; raises `NotAffine` where both hold a quasi-affine term."""
    if a.atom is not None and b.atom is not None:
        raise NotAffine
    coefficients = dict(a.coefficients)
    for name, c in b.coefficients.items():
        coefficients[name] = coefficients.get(name, 0) + c
    kept = {name: c for name, c in coefficients.items() if c}
    holder = a if a.atom is not None else b
    return Linear(kept, a.rest.add(b.rest), holder.atom, holder.factor)


def scale_form(form: Linear, factor: int) -> Linear:
    if factor == 0:
        return Linear({}, form.rest.sub(form.rest))
    rest = form.rest.neg() if factor == -1 else form.rest.scale_val(islpy.Val(factor))
    return Linear({n: c * factor for n, c in form.coefficients.items()}, rest, form.atom, form.factor * factor)


def shift_form(form: Linear, value: Value) -> Linear:
    return Linear(form.coefficients, form.rest.add(value), form.atom, form.factor)


def multiply_out(form: Linear, sizes: Sizes) -> Linear:
    """A form that is >= 0 where `form` is, without a floor division by a number: ``i - 2 * k`` for ``i / 2 - k``."""
    match form.atom:
        case Call("floordiv", (dividend, Const() as divisor)) if abs(form.factor) == 1:
            d = int(divisor.value)
            try:
                inside = scale_form(linear_form(dividend, sizes), form.factor)
            except NotAffine:
                return form
            if d <= 0 or inside.atom is not None:
                return form
            rest = scale_form(Linear(form.coefficients, form.rest), d)
            return shift_form(add_forms(inside, rest), sizes.constant(0 if form.factor > 0 else d - 1))
    return form


def subscript_inequalities(form: Linear, bounds: Bounds) -> list[Linear]:
    """Forms that are >= 0 exactly where the subscript is inside `bounds`."""
    negative = scale_form(form, -1)
    return [shift_form(form, low.neg()) for low in bounds.lowers] + [shift_form(negative, up) for up in bounds.uppers]


def substitute_solved(form: Linear, solved: Mapping[str, Bounds], sizes: Sizes) -> list[Linear]:
    """``form >= 0`` *for all* values of the solved indices, as forms over the others.

    A linear form over a box is least at a corner: the lower bound where the coefficient is positive, else the upper.  An
    index with an empty range counts with its bounds as they stand, so that extents are one formula for all sizes.
    """
    rest = form.rest
    coefficients = {}
    inside = index_names(form.atom) if form.atom is not None else set()
    for name, c in form.coefficients.items():
        if name in solved and name not in inside:
            bound = solved[name].lower if c > 0 else solved[name].upper
            rest = rest.add(bound if c == 1 else bound.scale_val(islpy.Val(c)))
        else:
            coefficients[name] = c
    if form.atom is None:
        return [Linear(coefficients, rest)]
    if inside <= solved.keys():
        if inside & coefficients.keys() or not inside:
            return [Linear(coefficients, rest, form.atom, form.factor)]
        least = _least_value(form.atom, form.factor, solved, sizes)
        return [Linear(coefficients, rest.add(least))]
    if not coefficients:
        return [g for f in peel_atom(form.atom, form.factor, rest, sizes) for g in _resubstitute(f, solved, sizes)]
    return [Linear(coefficients, rest, form.atom, form.factor)]


def relax_solved(form: Linear, index: str, solved: Mapping[str, Bounds]) -> Linear | None:
    """``form >= 0`` for *some* values of the solved indices, as a form over `index` alone; None where it has other indices."""
    if form.atom is not None or index not in form.coefficients:
        return None
    rest = form.rest
    for name, c in form.coefficients.items():
        if name == index:
            continue
        if name not in solved:
            return None
        bound = solved[name].upper if c > 0 else solved[name].lower
        rest = rest.add(bound if c == 1 else bound.scale_val(islpy.Val(c)))
    return Linear({index: form.coefficients[index]}, rest)


def _resubstitute(form: Linear, solved: Mapping[str, Bounds], sizes: Sizes) -> list[Linear]:
    return substitute_solved(form, solved, sizes) if form.indices() & solved.keys() or form.atom is not None else [form]


def _least_value(atom: Expr, factor: int, solved: Mapping[str, Bounds], sizes: Sizes) -> Value:
    """The least value of ``factor * atom`` over the box of its indices."""
    names = sorted(index_names(atom))
    space = isl.set_space(sizes.parameters, None, names)
    affine = Affine(space, {n: k for k, n in enumerate(names)})
    box = islpy.Set.universe(space)
    for name in names:
        index, bounds = affine.pw_aff(Index(name)), solved[name]
        last = bounds.upper.max(bounds.lower)  # never empty: the minimum is defined for all sizes
        box = box.intersect(index.ge_set(bounds.lower.insert_domain(space)))
        box = box.intersect(index.le_set(last.insert_domain(space)))
    value = affine.pw_aff(atom).scale_val(islpy.Val(factor)).intersect_domain(box)
    return islpy.Map.from_pw_aff(value).range().dim_min(0)


def peel_atom(atom: Expr, factor: int, rest: Value, sizes: Sizes) -> list[Linear]:
    """``factor * atom + rest >= 0`` as forms over the operands of `atom`; empty where it bounds nothing we can name."""
    upward = factor > 0
    bound = divide_rounding(rest.neg() if upward else rest, abs(factor), up=upward)  # atom >= bound, or atom <= bound

    def toward(expr: Expr, limit: Value) -> list[Linear]:
        try:
            form = linear_form(expr, sizes)
        except NotAffine:
            return []
        form = shift_form(form, limit.neg())
        return [form if upward else scale_form(form, -1)]

    match atom:
        case Call("floordiv", (a, divisor)):
            d = int(linear_form(divisor, sizes).rest.max_val().to_python())
            limit = bound.scale_val(islpy.Val(d))
            return toward(a, limit if upward else limit.add_constant_val(islpy.Val(d - 1)))
        case Call("max" | "min" | "fmax" | "fmin" as op, (a, b)):
            if (op in ("min", "fmin")) == upward:  # both must hold
                return toward(a, bound) + toward(b, bound)
            for part, other in ((a, b), (b, a)):  # one of them must hold
                if index_names(part):
                    continue
                limit = sizes.value(part)
                holds = limit.ge_set(bound) if upward else limit.le_set(bound)
                return toward(other, bound) if sizes.never(holds) else []
        case Call("abs", (a,)) if not upward:
            negated = -a
            return toward(a, bound) + toward(negated, bound)
    return []


def divide_rounding(value: Value, divisor: int, up: bool) -> Value:
    if divisor == 1:
        return value
    quotient = value.scale_down_val(islpy.Val(divisor))
    return quotient.ceil() if up else quotient.floor()


def index_candidates(index: str, forms: Sequence[Linear]) -> tuple[list[Value], list[Value], list[Linear]]:
    """Lower and upper bounds of `index` from the forms in which it stands alone, and those forms."""
    lowers: list[Value] = []
    uppers: list[Value] = []
    used: list[Linear] = []
    for form in forms:
        if form.atom is not None or len(form.coefficients) != 1 or index not in form.coefficients:
            continue
        c = form.coefficients[index]
        if c > 0:
            lowers.append(divide_rounding(form.rest.neg(), c, up=True))
        else:
            uppers.append(divide_rounding(form.rest, -c, up=False))
        used.append(form)
    return lowers, uppers, used
