"""Peepholes: rules for the value of one statement at a time, which keep its points and its place; `PEEPHOLES` is their table.

A rule gets a node before the nodes inside of it, and answers what stands in its place (`rewrite_value`): of a product it sees
all factors, of a sum all terms.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Read,
    Select,
    Size,
    evaluate,
    index_names,
    map_children,
    mentions,
    operands_of,
    reads,
    type_of,
    walk,
)
from polyc.ir.operators import HOST_OPERATORS
from polyc.ir.program import Condition, Program, RangeClause, Statement
from polyc.ir.types import DType
from polyc.ir.weighted_sums import LARGEST, collect_weights, has_free_order
from polyc.poly.ranges import Ranges
from polyc.records import replace
from polyc.scheduler.rewriting.builder import Change, ProgramBuilder
from polyc.scheduler.rewriting.rules.dependent_reductions import find_deviations, is_maximum

Inside = Callable[[Expr], Expr]
"""The rule applied to another expression."""

Rule = Callable[[Expr, Inside], Expr | None]
"""What stands in the place of an expression; None: itself, with the rule applied to its operands."""

Match = Callable[[Statement, Program, Ranges], Rule | None]
"""The rule for the value of a statement; None where there is none."""


def rewrite_value(expr: Expr, rule: Rule) -> Expr:
    """`expr` by `rule`, outermost nodes first; what says where elements lie stays, as guards are found by it."""
    if isinstance(expr, Read):
        return expr

    def inside(part: Expr) -> Expr:
        return rewrite_value(part, rule)

    made = rule(expr, inside)
    return map_children(expr, inside) if made is None else made


def apply_peephole(name: str, s: Statement, builder: ProgramBuilder) -> Change | None:
    """A statement with another value; None where that is as it was."""
    match, done = PEEPHOLES[name]
    rule = match(s, builder.program, builder.ranges)
    new = s if rule is None else replace(s, value=rewrite_value(s.value, rule))
    return None if new == s else ([new], done.format(target=s.target) if done else ())


# -- weighted sums: x[i] + 0.125 * (x[i-1] - 2 * x[i] + x[i+1])  to  0.75 * x[i] + 0.125 * (x[i-1] + x[i+1])


def _weighted_sums(s: Statement, program: Program, _: Ranges) -> Rule | None:
    """Values of equal weight are added before they are multiplied."""
    if s.reduction is not None or not has_free_order(s):
        return None
    return lambda expr, inside: collect_weights(expr, inside, program.types)


# -- logistic forms: 0.5 * x[i] * (1 + tanh(u[i]))  to  x[i] / (1 + exp(-2 * u[i]))
#
# The tangent is made of an exponential, a quotient and a sum with 1, and loses the digits of results near 0 in adding 1 again:
# where the tangent is -0.999, the sum has three digits less than the tangent.  The logistic function has all of them.

LARGEST_HALF = 0.5
"""Literal factors up to here are doubled: what is then divided is no larger than the other factor."""


def _logistic(s: Statement, program: Program, _: Ranges) -> Rule | None:
    """Hyperbolic tangents that 1 is added to are logistic functions.

    ``1 + tanh(u) = 2 / (1 + exp(-2u))``, where no such tangent is needed for anything else."""
    nodes = list(walk(s.value))
    added = [found[0] for e in nodes if (found := _tangent(e)) is not None]
    if not added or any(nodes.count(t) > added.count(t) for t in added):
        return None

    def rule(expr: Expr, inside: Inside) -> Expr | None:
        dtype = type_of(expr, program.types)
        factors = _factors(expr) if isinstance(expr, Call) and dtype.is_float and not dtype.is_storage else []
        tangents = [found for f in factors if (found := _tangent(f)) is not None]
        dividend = _doubled([f for f in factors if _tangent(f) is None], dtype) if len(tangents) == 1 else None
        if dividend is None:
            return None
        ((tangent, sign),) = tangents
        exponent = _scaled(-2.0 * sign, inside(tangent.args[0]), dtype)
        return Call("truediv", (inside(dividend), Const(1.0, dtype) + Call("exp", (exponent,))))

    return rule


def _factors(expr: Expr) -> list[Expr]:
    """What is multiplied in `expr`; divided by 2, a half."""
    match expr:
        case Call("mul", (a, b)):
            return [*_factors(a), *_factors(b)]
        case Call("truediv", (a, Const(2, dtype))):
            return [*_factors(a), Const(0.5, dtype)]
    return [expr]


def _tangent(expr: Expr) -> tuple[Call, int] | None:
    """The tangent that `expr` adds to 1, or takes from 1, and its sign."""
    match expr:
        case Call("add", (Const(1), Call("tanh") as t)) | Call("add", (Call("tanh") as t, Const(1))):
            return t, 1
        case Call("sub", (Const(1), Call("tanh") as t)):
            return t, -1
    return None


def _doubled(factors: list[Expr], dtype: DType) -> Expr | None:
    """Twice the product of `factors`, where that is as large as one of them at most; None elsewhere.  Of longer products parts
    could overflow, or vanish, which do not in the order of the source."""
    if not factors:
        return Const(2.0, dtype)
    match sorted(factors, key=lambda f: isinstance(f, Const)):
        case [value, Const(0.5)]:
            return value
        case [value, Const(half)] if abs(float(half)) <= LARGEST_HALF:
            return Const(2.0 * float(half), dtype) * value
    return None


def _scaled(factor: float, u: Expr, dtype: DType) -> Expr:
    """``factor * u``, a power of two that joins a literal factor of `u` without rounding."""
    match u:
        case Call("mul", (Const(c), value) | (value, Const(c))) if abs(float(c)) <= LARGEST:
            return Const(factor * float(c), dtype) * value
    return Const(factor, dtype) * u


# -- divisions: m[j] += X[i, j] / f32(200)  to  m[j] += X[i, j] * 0.005  ;  x[n, c] / sqrt(v[c])  to  x[n, c] * rsqrt(v[c])


def _multiply(invert: Callable[[Expr, Expr], Expr | None], through: str) -> Rule:
    """What ``invert(dividend, divisor)`` makes of a divisor is multiplied with instead, in operands of the operators `through`
    and in arms of selections; in their conditions where comparisons are among `through`."""
    operators = through.split()

    def rule(expr: Expr, inside: Inside) -> Expr | None:
        match expr:
            case Call("truediv", (a, b)):
                a, inverse = inside(a), invert(a, b)
                return replace(expr, args=(a, b)) if inverse is None else Call("mul", (a, inverse), expr.span)
            case Select(condition, then, other):
                condition = inside(condition) if "eq" in operators else condition
                return replace(expr, condition=condition, then=inside(then), other=inside(other))
        return None if isinstance(expr, Call) and expr.op in operators else expr

    return rule


def _reciprocals(s: Statement, program: Program, _: Ranges) -> Rule | None:
    """Many quotients by one divisor are products with its reciprocal.

    Terms of a sum that divide by a number divide as often as they add, and a division takes the time of several additions.
    Each product has one rounding more, which is what the order of additions costs as well, so this is for sums alone: a
    quotient that is a result is divided.  Terms do not overflow, as they would where the sum is divided at its end."""
    dtype = program.tensor(s.target).dtype
    if s.reduction is None or s.reduction.op != "add" or not dtype.is_float:
        return None
    multiply = _multiply(lambda _, divisor: _invert_number(divisor, dtype), "add sub mul neg")
    return lambda expr, inside: multiply(expr, inside) if mentions(expr, *s.reduction_indices) else expr


def _invert_number(divisor: Expr, dtype: DType) -> Expr | None:
    """1 / `divisor` where that is a number or made of sizes, and neither it nor the reciprocal leaves the normal floats."""
    if isinstance(divisor, Const):
        is_normal = isfinite(divisor.value) and 1 / LARGEST < abs(divisor.value) < LARGEST
        return Const(1 / divisor.value, dtype) if is_normal else None
    counts = operands_of(divisor, "mul")
    if len(counts) > 2 or not all(isinstance(c, Cast) and _is_count(c.value) for c in counts):
        return None
    if isinstance(divisor, Cast) and not any(isinstance(node, Size) for node in walk(divisor)):
        return _invert_number(Const(float(evaluate(divisor, {})), dtype), dtype)
    return Call("truediv", (Const(1.0, dtype), divisor))


def _is_count(expr: Expr) -> bool:
    """Whether `expr` is an integer made of sizes and numbers."""
    return all(
        isinstance(node, Size)
        or (isinstance(node, (Const, Cast)) and node.dtype.kind in "iu")
        or (isinstance(node, Call) and node.op in HOST_OPERATORS)
        for node in walk(expr)
    )


LARGEST_ADDEND = 1e10
"""What is added to a root, or is the least that it may be, is at most this."""


def _roots(s: Statement, program: Program, _: Ranges) -> Rule | None:
    """Quotients by one square root are products with its reciprocal.

    Where the dividend moves and the root stays, its reciprocal is computed once.  Roots and their reciprocals never leave
    the normal floats but for zero, infinity and NaN, so these come out as of a division, and nothing else overflows or
    vanishes; there is one rounding more, of a divisor that was rounded already.  Those that are compared change as well, so
    that values still equal their maximum."""
    dtype = program.tensor(s.target).dtype
    if not dtype.is_float or dtype.is_storage:
        return None

    def invert(dividend: Expr, divisor: Expr) -> Expr | None:
        if not index_names(dividend) - index_names(divisor):
            return None
        match divisor:
            case Call("sqrt", args):
                return Call("rsqrt", args)
            case Call("add" | "max" | "fmax", (Call("sqrt"), Const(value)) | (Const(value), Call("sqrt"))):
                return Call("truediv", (Const(1.0, dtype), divisor)) if 0 <= value <= LARGEST_ADDEND else None
        return None

    return _multiply(invert, "add sub mul neg max min fmax fmin eq ne lt le gt ge and or not")


# -- bounded exponentials: exp(a * (x[i, k] - m[i])) with a literal a > 0, under m[i] max= x[i, k]  to  exp_below(…)


def _bounded_exponentials(s: Statement, program: Program, ranges: Ranges) -> Rule | None:
    """Exponentials of values under their maximum need no test for overflow.

    Arguments that are not positive need fewer instructions without AVX-512.  `exp_below` has the same bits for arguments up
    to 40, which leaves room for what is rounded: the difference of two products may be a little above 0."""
    if not any(isinstance(e, Call) and e.op == "exp" for e in walk(s.value)):
        return None
    maxima = {t: w[0] for t, w in program.writers().items() if len(w) == 1 and is_maximum(w[0], program)}

    def rule(expr: Expr, inside: Inside) -> Expr | None:
        if not isinstance(expr, Call) or expr.op != "exp":
            return None
        under = (r for r in reads(expr) if r.tensor in maxima)
        is_bounded = any(any(find_deviations(expr.args[0], s, maxima[r.tensor], r, ranges)) for r in under)
        return Call("exp_below", (inside(expr.args[0]),), expr.span) if is_bounded else None

    return rule


PEEPHOLES: dict[str, tuple[Match, str | None]] = {
    "bounded-exponentials": (_bounded_exponentials, None),
    "logistic": (_logistic, "1 + tanh in {target} is computed as a logistic function"),
    "weighted-sums": (_weighted_sums, "values of equal weight in {target} are added before they are multiplied"),
    "reciprocals": (_reciprocals, "terms of {target} are multiplied by a reciprocal instead of divided"),
    "root-reciprocals": (_roots, "{target} is multiplied by the reciprocal of a root instead of divided"),
}
"""By the name of the pass: the rule, whose docstring says first what the pass is for, and the remark about a statement; without
one, that will do."""


def assign_single_value(s: Statement, builder: ProgramBuilder) -> Change | None:
    """Reductions over one point are assignments.

    before  ``y.1[i] = y[i] + sum over nothing of a[i]``
    after   ``y.1[i] = y[i] + a[i]``                         which its reader may compute"""
    if s.reduction is None or s.reduction.monoid is not None or s.reduction_indices or not reads(s.reduction.init):
        return None
    if not s.has_plain_left or any(isinstance(w, (Condition, RangeClause)) for w in s.where):
        return None
    own = builder.own[s.name].indices
    is_whole = tuple(own[e.name] for e in s.subscripts if isinstance(e, Index)) == builder.intervals[s.target]
    if not is_whole or sum(other.target == s.target for other in builder.program.statements) != 1:
        return None
    return [replace(s, value=Call(s.reduction.op, (s.reduction.init, s.value), s.span), reduction=None)], ()
