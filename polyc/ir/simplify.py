"""Canonical forms of 64-bit integer expressions: equal affine expressions become equal trees, in a short form.

An ``i64`` expression is collected into a *linear form*: integer coefficients over terms, a term being an `Index`, a `Size`, a
product of such, or any other expression taken as a whole (a read, a floor division, a minimum).  Forms print back with
indices before sizes before other terms, positive before negative, the constant last.

    before  ``(i + 1) * 2 - i + N*M - M*N``   after  ``i + 2``
    before  ``(4*i + 6) // 4``                after  ``i + 1``        (floor division takes whole multiples out)
    before  ``min(N + 1, N)``                 after  ``N``

Values are those of unbounded integers: subscripts, extents and bounds never overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from math import gcd
from operator import mul
from typing import Literal

from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Read,
    Select,
    Size,
    Tree,
    children,
    evaluate,
    int_const,
    operands_of,
    rewrite,
    substitute,
    type_of,
    walk,
    with_children,
)
from polyc.ir.operators import HOST_OPERATORS, OPERATORS
from polyc.ir.types import BOOL, I64

Term = Expr | int
"""A term of a linear form; the integer 1 stands for the constant."""

_MAX_PRODUCT = 64
"""Products of sums with more terms than this are not multiplied out."""


def simplify(expr: Expr) -> Expr:
    """`expr` with every ``i64`` expression in it in canonical form, and comparisons of them folded where they are decided."""
    if not isinstance(expr, Tree):
        return _simplify(expr) if isinstance(expr, Const) else expr
    known: Expr | Literal[0] | None = getattr(expr, "_simple", 0)
    if known == 0:
        known = _simplify(expr)
        _remember_simple(expr, None if known is expr else known)
        if isinstance(known, Tree):
            _remember_simple(known, None)  # itself, without a circle
    return known or expr


_remember_simple, _remember_form, _remember_text = (Tree.__dict__[name].__set__ for name in ("_simple", "_form", "_text"))


def _simplify(expr: Expr) -> Expr:
    if (form := linear_form(expr)) is not None:
        return form_expr(form)
    new = tuple(simplify(child) for child in children(expr))
    expr = with_children(expr, new) if any(a is not b for a, b in zip(children(expr), new, strict=True)) else expr
    return _fold_logic(expr)


def simplify_value(expr: Expr) -> Expr:
    """`simplify` of the subscripts and the comparisons of indices in what is stored, and of nothing else: values wrap around
    where they overflow (``2 * X[i] // 2`` is not ``X[i]``)."""
    if isinstance(expr, Read):
        return replace(expr, subscripts=tuple(map(simplify, expr.subscripts)))
    is_comparison = isinstance(expr, Call) and expr.op in _COMPARE
    if is_comparison and not any(isinstance(e, Read) for e in walk(expr)):
        return simplify(expr)
    new = tuple(simplify_value(child) for child in children(expr))
    expr = with_children(expr, new) if any(a is not b for a, b in zip(children(expr), new, strict=True)) else expr
    return expr if is_comparison else _fold_logic(expr)


def constant_of(expr: Expr) -> int | None:
    """The number that a whole constant is; None for anything else."""
    return int(expr.value) if isinstance(expr, Const) else None


def least_constant(upper: Expr) -> int | None:
    """The least number among the operands of a minimum, which it never exceeds; None where there is none."""
    return min((int(e.value) for e in operands_of(upper, "min") if isinstance(e, Const)), default=None)


def product_of(factors: Iterable[Expr], constant: int = 1) -> Expr:
    return simplify(reduce(mul, factors, int_const(constant)))


def difference(a: Expr, b: Expr) -> int | None:
    """``a - b`` where that is a constant; None where it is not known to be one."""
    return constant_of(simplify(a - b))


def growth(expr: Expr, var: str) -> int | None:
    """By how much it grows as an index grows by one; None where that is not known, or not the same everywhere."""
    return difference(substitute(expr, {var: Index(var) + 1}), expr)


def linear_form(expr: Expr) -> dict[Term, int] | None:
    """Coefficients by term, without zeros, the constant under the key 1; None where `expr` is not an ``i64`` expression.

    Reads have no type of their own: alone they give None, as an operand of an ``i64`` operator they are a term."""
    if not is_i64(expr):
        return None
    return {term: c for term, c in _collect(expr).items() if c}


_OF_OPERANDS = frozenset({"add", "sub", "mul", "floordiv", "mod", "max", "min", "neg", "abs"})
"""Operators whose results are of the type of their operands."""


def is_i64(expr: Expr) -> bool:
    """Whether an expression is known to be one of 64-bit integers: its first operand of a known type says so."""
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Call):
            if node.op not in _OF_OPERANDS:
                return False
            stack.extend(node.args[::-1])
        elif isinstance(node, Select):
            stack += (node.other, node.then)
        elif isinstance(node, (Index, Size)):
            return True
        elif isinstance(node, (Const, Cast)):
            return node.dtype == I64
    return False


# --- Collecting ------------------------------------------------------------------------------------------------------


def _collect(expr: Expr) -> dict[Term, int]:
    """The linear form, which is not to be changed: the expression keeps it."""
    if isinstance(expr, Const):
        return {1: int(expr.value)}
    if isinstance(expr, (Index, Size)):
        return {expr: 1}
    form: dict[Term, int] | None = getattr(expr, "_form", None)
    if form is None:
        form = _collect_tree(expr)
        _remember_form(expr, form)
    return form


def _collect_tree(expr: Expr) -> dict[Term, int]:
    match expr:
        case Call("add", (a, b)):
            return add_forms(_collect(a), _collect(b), 1)
        case Call("sub", (a, b)):
            return add_forms(_collect(a), _collect(b), -1)
        case Call("neg", (a,)):
            return add_forms({}, _collect(a), -1)
        case Call("mul", (a, b)):
            return _multiply(_collect(a), _collect(b))
        case Call("floordiv", (a, b)):
            return _floor_divide(_collect(a), _collect(b))
        case Call("mod", (a, b)):
            return _modulo(_collect(a), _collect(b))
        case Call("max" | "min" as op, _):
            return _extreme(op, expr)
        case Call("abs", (a,)):
            form = _collect(a)
            return {1: abs(form.get(1, 0))} if _is_constant(form) else {Call("abs", (form_expr(form),), expr.span): 1}
        case Select():
            condition = simplify(expr.condition)
            then, other = _collect(expr.then), _collect(expr.other)
            if isinstance(condition, Const):
                return then if condition.value else other
            if clean_form(then) == clean_form(other):
                return then
            return {Select(condition, form_expr(then), form_expr(other), expr.span): 1}
        case Cast() if is_i64(expr.value):
            return _collect(expr.value)
        case _:
            new = tuple(simplify(child) for child in children(expr))
            return {with_children(expr, new): 1}


def clean_form(form: dict[Term, int]) -> dict[Term, int]:
    """A linear form without zeros."""
    return {term: c for term, c in form.items() if c}


def _is_constant(form: dict[Term, int]) -> bool:
    return all(term == 1 or c == 0 for term, c in form.items())


def add_forms(a: dict[Term, int], b: dict[Term, int], factor: int) -> dict[Term, int]:
    """``a + factor * b`` for two linear forms."""
    result = dict(a)
    for term, coefficient in b.items():
        result[term] = result.get(term, 0) + factor * coefficient
    return clean_form(result)


def factors_of(term: Term) -> list[Expr]:
    """The factors of a product of terms; of any other term itself."""
    if isinstance(term, int):
        return []
    if isinstance(term, Call) and term.op == "mul":
        return factors_of(term.args[0]) + factors_of(term.args[1])
    return [term]


def _multiply(a: dict[Term, int], b: dict[Term, int]) -> dict[Term, int]:
    if len(a) * len(b) > _MAX_PRODUCT:
        a, b = _as_one_term(a), _as_one_term(b)
    result: dict[Term, int] = {}
    for s, x in a.items():
        for t, y in b.items():
            factors = sorted(factors_of(s) + factors_of(t), key=_order)
            term: Term = 1
            for factor in factors:
                term = factor if isinstance(term, int) else Call("mul", (term, factor))
            result[term] = result.get(term, 0) + x * y
    return clean_form(result)


def _as_one_term(form: dict[Term, int]) -> dict[Term, int]:
    return form if _is_constant(form) else {form_expr(form): 1}


def _floor_divide(a: dict[Term, int], b: dict[Term, int]) -> dict[Term, int]:
    a, b = clean_form(a), clean_form(b)
    if not _is_constant(b):
        return {Call("floordiv", (form_expr(a), form_expr(b))): 1}
    divisor = b.get(1, 0)
    if divisor == 0:
        return {}
    if divisor < 0:  # floor(a / -c) = floor(-a / c)
        a, divisor = {t: -c for t, c in a.items()}, -divisor
    whole = {t: c // divisor for t, c in a.items() if c % divisor == 0 or t == 1}
    rest = {t: c for t, c in a.items() if c % divisor and t != 1}
    constant = a.get(1, 0) % divisor
    if not rest:
        return clean_form(whole)
    # g*r + k over g*d is floor(r + k // g) over d, as g*r is a multiple of g
    common = gcd(divisor, *rest.values())
    rest, constant, divisor = {t: c // common for t, c in rest.items()}, constant // common, divisor // common
    if divisor == 1:
        return add_forms(add_forms(whole, rest, 1), {1: constant}, 1)
    if constant:
        rest[1] = constant
    if len(rest) == 1:
        (inner,) = rest
        if isinstance(inner, Call) and inner.op == "floordiv" and rest[inner] == 1:
            by = inner.args[1]
            if isinstance(by, Const) and by.value > 0:  # (x // a) // b = x // (a*b)
                return add_forms(whole, _floor_divide(_collect(inner.args[0]), {1: int(by.value) * divisor}), 1)
    return add_forms(whole, {Call("floordiv", (form_expr(rest), int_const(divisor))): 1}, 1)


def _modulo(a: dict[Term, int], b: dict[Term, int]) -> dict[Term, int]:
    a, b = clean_form(a), clean_form(b)
    divisor = b.get(1, 0)
    if not _is_constant(b) or divisor < 0:
        return {Call("mod", (form_expr(a), form_expr(b))): 1}
    if divisor == 0:
        return {}
    rest = {t: (c % divisor if t == 1 else _balanced(c, divisor)) for t, c in a.items()}
    rest = clean_form(rest)
    if _is_constant(rest):
        return rest
    common = gcd(divisor, *rest.values())
    if common > 1:  # (g*r) % (g*d) = g * (r % d)
        inner = _modulo({t: c // common for t, c in rest.items()}, {1: divisor // common})
        return {t: c * common for t, c in inner.items()}
    return {Call("mod", (form_expr(rest), int_const(divisor))): 1}


def _balanced(value: int, divisor: int) -> int:
    """The representative of `value` modulo `divisor` that is closest to zero."""
    value %= divisor
    return value - divisor if 2 * value > divisor else value


def _extreme(op: str, expr: Expr) -> dict[Term, int]:
    """A minimum or maximum: operands flattened, those dropped that another one beats by a constant."""
    candidates: list[dict[Term, int]] = []
    pending = [expr]
    while pending:
        node = pending.pop()
        if isinstance(node, Call) and node.op == op:
            pending.extend(reversed(node.args))
            continue
        form = clean_form(_collect(node))
        if len(form) == 1 and (term := next(iter(form))) != 1 and form[term] == 1 and isinstance(term, Call) and term.op == op:
            pending.extend(reversed(term.args))
            continue
        for k, known in enumerate(candidates):
            difference = add_forms(form, known, -1)
            if _is_constant(difference):
                ahead = difference.get(1, 0)
                if (ahead > 0) == (op == "max"):
                    candidates[k] = form
                break
        else:
            candidates.append(form)
    if len(candidates) == 1:
        return candidates[0]
    operands = sorted((form_expr(c) for c in candidates), key=_order)
    result = operands[0]
    for operand in operands[1:]:
        result = Call(op, (result, operand))
    return {result: 1}


# --- Printing back ---------------------------------------------------------------------------------------------------


def _order(expr: Expr) -> tuple[int, str]:
    match expr:
        case Index():
            return 0, expr.name
        case Size():
            return 1, expr.name
        case Const():
            return 3, str(expr.value)
    text: str | None = getattr(expr, "_text", None)
    if text is None:
        text = repr(expr)
        _remember_text(expr, text)
    return 2, text


def form_expr(form: dict[Term, int]) -> Expr:
    """A linear form as the expression that `simplify` makes of it."""
    constant = form.get(1, 0)
    terms = sorted(((t, c) for t, c in form.items() if not isinstance(t, int) and c), key=lambda tc: (tc[1] < 0, _order(tc[0])))
    result: Expr | None = None
    if terms and terms[0][1] < 0 and constant > 0:  # 10 - i rather than -i + 10
        result, constant = int_const(constant), 0
    for term, coefficient in terms:
        scaled = term if abs(coefficient) == 1 else Call("mul", (int_const(abs(coefficient)), term))
        if result is None:
            if coefficient > 0:
                result = scaled
            else:
                result = Call("neg", (term,)) if coefficient == -1 else Call("mul", (int_const(coefficient), term))
        else:
            result = Call("add" if coefficient > 0 else "sub", (result, scaled))
    if result is None:
        return int_const(constant)
    if constant:
        result = Call("add" if constant > 0 else "sub", (result, int_const(abs(constant))))
    return result


_COMPARE: dict[str, Callable[[int], bool]] = {
    "lt": lambda d: d < 0,
    "le": lambda d: d <= 0,
    "gt": lambda d: d > 0,
    "ge": lambda d: d >= 0,
    "eq": lambda d: d == 0,
    "ne": lambda d: d != 0,
}


def _fold_logic(expr: Expr) -> Expr:
    match expr:
        case Call("lt" | "le" | "gt" | "ge" | "eq" | "ne" as op, (a, b)) if is_i64(a) or is_i64(b):
            difference = add_forms(_collect(a), _collect(b), -1)
            return Const(_COMPARE[op](difference.get(1, 0)), BOOL) if _is_constant(difference) else expr
        case Call("and" | "or" as op, (a, b)):
            for x, y in ((a, b), (b, a)):
                if isinstance(x, Const):
                    return y if bool(x.value) == (op == "and") else Const(op == "or", BOOL)
            return a if a == b else expr
        case Call("not", (Const() as a,)):
            return Const(not a.value, BOOL)
        case Call("not", (Call("not", (a,)),)):
            return a
        case Select(condition=Const() as condition):
            return expr.then if condition.value else expr.other
    return expr


# --- Without reordering ---------------------------------------------------------------------------------------------


def simplify_int(expr: Expr) -> Expr:
    """Fold constants and drop neutral elements in an integer expression; never changes its value."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Call) or node.op not in HOST_OPERATORS:
            return None
        if all(isinstance(a, Const) for a in node.args) and all(type_of(a, {}) == I64 for a in node.args):
            value = evaluate(node, {})
            return Const(bool(value), BOOL) if OPERATORS[node.op].result == "bool" else int_const(value)
        match node:
            case Call("add", (a, Const(0))) | Call("add", (Const(0), a)) | Call("sub", (a, Const(0))):
                return a
            case Call("mul", (a, Const(1))) | Call("mul", (Const(1), a)) | Call("floordiv", (a, Const(1))):
                return a
            case Call("mul", (_, Const(0))) | Call("mul", (Const(0), _)):
                return int_const(0)
            case Call("max" | "min", (a, b)) if a == b:
                return a
        return None

    return rewrite(expr, rule)
