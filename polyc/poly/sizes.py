"""Affine functions of sizes under what is known of the sizes: the arithmetic of range inference."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import islpy

from polyc.ir.expr import Call, Expr, Size, int_const, operands_of
from polyc.poly import isl
from polyc.poly.isl import Affine

Value = islpy.PwAff  # [sizes] -> { [v] }, total


class Bounds:
    """``max(lowers) <= x <= min(uppers)``: the bounds as they were found, and each side's strongest in one function.

    The lists keep domains convex and texts short: ``min(N, M)`` is two uppers, not one function of two pieces.  The functions
    are made when they are asked for, as the minimum of many sizes has many pieces.
    """

    __slots__ = ("_lower", "_upper", "lowers", "uppers")

    def __init__(self, lowers: Sequence[Value], uppers: Sequence[Value]) -> None:
        self.lowers = tuple(lowers)
        self.uppers = tuple(uppers)
        self._lower: Value | None = None
        self._upper: Value | None = None

    @property
    def lower(self) -> Value:
        if self._lower is None:
            self._lower = reduce(lambda a, b: a.max(b), self.lowers)
        return self._lower

    @property
    def upper(self) -> Value:
        if self._upper is None:
            self._upper = reduce(lambda a, b: a.min(b), self.uppers)
        return self._upper


class Sizes:
    """The parameter space, its constants, and `context`: what may be assumed of the sizes (only ever narrowed)."""

    def __init__(self, parameters: Sequence[str]) -> None:
        self.parameters = tuple(parameters)
        space = isl.set_space(self.parameters, None, ()).params()
        self.affine = Affine(space, {})
        self.context = islpy.Set.universe(space)  # [sizes] -> { : }
        self._constants: dict[int, Value] = {}

    def constant(self, value: int) -> Value:
        if value not in self._constants:
            self._constants[value] = self.affine.constant(value)
        return self._constants[value]

    def value(self, expr: Expr) -> Value:
        """An expression over sizes as a function; raises `isl.NotAffine`."""
        return self.affine.pw_aff(expr)

    def assume(self, condition: islpy.Set) -> None:
        """Narrow the context by `condition` where that keeps it convex (a weaker context is always safe)."""
        narrowed = self.context.intersect(condition).coalesce()
        if narrowed.n_basic_set() == 1 and not narrowed.is_empty():
            self.context = narrowed.remove_redundancies()

    def always(self, condition: islpy.Set) -> bool:
        return self.context.is_subset(condition)

    def never(self, condition: islpy.Set) -> bool:
        return self.context.is_disjoint(condition)

    def holds_widely(self, violated: islpy.Set) -> bool:
        """Whether the sizes without the fault are none, or end somewhere: a fault from some size on is the program's."""
        good = self.context.subtract(violated)
        return bool(good.is_empty()) or self._ends(good, self.sizes_in(violated))

    def is_bounded(self, condition: islpy.Set) -> bool:
        """Whether `condition` holds for small values only of some size that may be large."""
        return any(self._ends(condition, [n]) and not self._ends(self.context, [n]) for n in self.sizes_in(condition))

    def _ends(self, condition: islpy.Set, names: list[str]) -> bool:
        """Whether one of the sizes has a largest value on `condition`."""
        for name in names:
            position = self.parameters.index(name)
            as_set = condition.move_dims(islpy.dim_type.set, 0, islpy.dim_type.param, position, 1)
            if as_set.dim_has_upper_bound(islpy.dim_type.set, 0) and as_set.project_out_all_params().is_bounded():
                return True
        return False

    def at_least(self, a: Value, b: Value) -> bool:
        """``a >= b`` for all sizes of the context."""
        return self.always(a.ge_set(b))

    def combine(self, lowers: Sequence[Value], uppers: Sequence[Value]) -> Bounds:
        """Bounds from candidates, without those that others imply."""
        return Bounds(self._strongest(lowers, True), self._strongest(uppers, False))

    def _strongest(self, values: Sequence[Value], largest: bool) -> list[Value]:
        kept: list[Value] = []
        for value in values:
            if any(value.plain_is_equal(k) or (self.at_least(k, value) if largest else self.at_least(value, k)) for k in kept):
                continue
            kept = [k for k in kept if not (self.at_least(value, k) if largest else self.at_least(k, value))]
            kept.append(value)
        return kept

    def hull(self, a: Bounds, b: Bounds) -> Bounds:
        """The smallest interval that holds both."""
        return Bounds([self._larger(a.lower.neg(), b.lower.neg()).neg()], [self._larger(a.upper, b.upper)])

    def _larger(self, a: Value, b: Value) -> Value:
        return a if self.at_least(a, b) else b if self.at_least(b, a) else a.max(b)

    def lower_candidates(self, expr: Expr) -> list[Value]:
        """Bounds that ``x >= expr`` gives; raises `isl.NotAffine`."""
        return [self.value(e) for e in operands_of(expr, "max")]

    def upper_candidates(self, expr: Expr) -> list[Value]:
        """Bounds that ``x < expr`` gives, as largest values; raises `isl.NotAffine`."""
        return [self.value(e).add_constant_val(islpy.Val(-1)) for e in operands_of(expr, "min")]

    def declared(self, extent: Expr) -> Bounds:
        """``0 <= x < extent``; raises `isl.NotAffine`."""
        return self.combine([self.constant(0)], self.upper_candidates(extent))

    def extent_set(self, bounds: Bounds, least: int) -> islpy.Set:
        """The sizes where the interval has at least `least` elements (counting negative extents as they are)."""
        result: islpy.Set | None = None
        for lower in bounds.lowers:
            for upper in bounds.uppers:
                pair = upper.sub(lower).ge_set(self.constant(least - 1))
                result = pair if result is None else result.intersect(pair)
        assert result is not None
        return result

    def lower_expr(self, bounds: Bounds) -> Expr:
        return _fold_exprs("max", [self.expr(v) for v in bounds.lowers])

    def upper_expr(self, bounds: Bounds) -> Expr:
        """One beyond the largest value."""
        one = islpy.Val(1)
        return _fold_exprs("min", [self.expr(v.add_constant_val(one)) for v in bounds.uppers])

    def extent_expr(self, bounds: Bounds) -> Expr:
        one = islpy.Val(1)
        if len(bounds.lowers) == 1:
            lower = bounds.lowers[0]
            return _fold_exprs("min", [self.expr(u.sub(lower).add_constant_val(one)) for u in bounds.uppers])
        if len(bounds.uppers) == 1:
            upper = bounds.uppers[0].add_constant_val(one)
            return _fold_exprs("min", [self.expr(upper.sub(low)) for low in bounds.lowers])
        return self.upper_expr(bounds) - self.lower_expr(bounds)

    def expr(self, value: Value) -> Expr:
        """A function as an expression over sizes, in its simplest form under the context."""
        value = value.gist_params(self.context).coalesce()
        pieces = [aff for _, aff in value.get_pieces()]
        if len(pieces) == 1:
            aff = pieces[0]
            return _aff_expr(aff, self.parameters) or self._ast_expr(value)
        for op in ("min", "max") if len(pieces) <= 4 else ():
            whole = islpy.PwAff.from_aff(pieces[0])
            for aff in pieces[1:]:
                whole = getattr(whole, op)(islpy.PwAff.from_aff(aff))
            if self.always(whole.eq_set(value)):
                return _fold_exprs(op, [self.expr(islpy.PwAff.from_aff(aff)) for aff in pieces])
        return self._ast_expr(value)

    def _ast_expr(self, value: Value) -> Expr:
        build = islpy.AstBuild.from_context(self.context)
        return isl.expr_of_ast(build.expr_from_pw_aff(value), set())

    def condition_expr(self, condition: islpy.Set) -> Expr:
        """A boolean expression that holds exactly on `condition`, for sizes of the context."""
        simple = condition.gist_params(self.context).coalesce()
        build = islpy.AstBuild.from_context(self.context)
        return isl.expr_of_ast(build.expr_from_set(simple), set())

    def sizes_in(self, condition: islpy.Set) -> list[str]:
        """Names of the sizes that `condition` speaks about."""
        simple = condition.gist_params(self.context)
        return [p for n, p in enumerate(self.parameters) if simple.involves_dims(islpy.dim_type.param, n, 1)]


def _fold_exprs(op: str, exprs: list[Expr]) -> Expr:
    result = exprs[0]
    for expr in exprs[1:]:
        result = Call(op, (result, expr))
    return result


def _aff_expr(aff: islpy.Aff, parameters: tuple[str, ...]) -> Expr | None:
    """A function of one piece with at most one floor division; None: leave it to isl."""
    n_divisions = aff.dim(islpy.dim_type.div)
    if n_divisions > 1 or int(aff.get_denominator_val().to_python()) != 1:  # halves of sizes known to be even, say
        return None
    outer, constant = _coefficients(aff, parameters, 1)
    if n_divisions == 0:
        return _linear_expr(outer, constant, parameters, None)
    factor = int(aff.get_coefficient_val(islpy.dim_type.div, 0).to_python())
    division = aff.get_div(0)
    d = int(division.get_denominator_val().to_python())
    if abs(factor) != 1:
        inner, inner_constant = _coefficients(division, parameters, d)
        quotient = _linear_expr(inner, inner_constant, parameters, None) // d
        return _linear_expr(outer, constant, parameters, (factor, quotient))
    # isl keeps coefficients inside the division positive; move whole terms in where that makes them shorter:
    # -K + floor((H + K + 1)/2) is floor((H - K + 1)/2).
    inner, inner_constant = _coefficients(division, parameters, d)
    for n in range(len(parameters)):
        total = inner[n] + d * factor * outer[n]
        moved = 0 if abs(total) < d else (abs(total) // d) * (1 if total > 0 else -1)
        inner[n], outer[n] = total - d * moved, factor * moved
    total = inner_constant + d * factor * constant
    inner_constant, constant = total % d, factor * (total // d)
    quotient = _linear_expr(inner, inner_constant, parameters, None) // d
    return _linear_expr(outer, constant, parameters, (factor, quotient))


def _coefficients(aff: islpy.Aff, parameters: tuple[str, ...], denominator: int) -> tuple[list[int], int]:
    """Numerators over `denominator` of the parameters' coefficients and of the constant."""
    scale = islpy.Val(denominator)
    values = [aff.get_coefficient_val(islpy.dim_type.param, n) for n in range(len(parameters))]
    # Not get_num_si: it makes 0 of what does not fit into 64 bits.
    return [int(v.mul(scale).to_python()) for v in values], int(aff.get_constant_val().mul(scale).to_python())


def _linear_expr(coefficients: list[int], constant: int, parameters: tuple[str, ...], extra: tuple[int, Expr] | None) -> Expr:
    """``N - M + 1``: positive terms first, the constant last (first where every term is negative)."""
    terms: list[tuple[int, Expr]] = [(c, Size(p)) for c, p in zip(coefficients, parameters, strict=True) if c]
    terms += [extra] if extra is not None else []
    result: Expr | None = None
    if constant > 0 and all(c < 0 for c, _ in terms):
        result, constant = int_const(constant), 0
    for coefficient, factor in [t for t in terms if t[0] > 0] + [t for t in terms if t[0] < 0]:
        size = abs(coefficient)
        term: Expr = factor if size == 1 else size * factor
        if result is None:
            result = term if coefficient > 0 else -term
        else:
            result = Call("add" if coefficient > 0 else "sub", (result, term))
    if result is None:
        return int_const(constant)
    if constant:
        result = Call("add" if constant > 0 else "sub", (result, int_const(abs(constant))))
    return result
