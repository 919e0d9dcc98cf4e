"""Sums of several products, one after the other.

    before  ``c[i,j] += a[i,k] * b[j,k] + b[i,k] * a[j,k]``
    after   ``t[i,j] += a[i,k] * b[j,k]  ;  c[i,j] += b[i,k] * a[j,k]``, from t on

Loops of contractions hold one product: two operands that are copied into panels, and results that stay in registers.  These are
written and read once more for each further product, which is little beside a long sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Cast, Const, Expr, Read, index_names, walk
from polyc.ir.program import Program, Reduction, Statement
from polyc.poly.ranges import Ranges, estimate_extent
from polyc.scheduler.rewriting.rules.blocks import Change, Edit, change_statements, is_simple

MINIMUM_TERMS = 16
"""Terms of each sum from which writing and reading its results once more costs little beside it."""

MINIMUM_WORK = 1 << 15
"""Products of all sums together below which one pass is as fast."""

MOST_PRODUCTS = 4
"""Products of a sum beyond which it stays as it is: each is a statement to be scheduled."""


def separate_products(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """A statement for each product of a sum of several that are contractions."""

    def change(s: Statement, edit: Edit) -> Change | None:
        terms = _find_terms(s, program, ranges)
        return None if terms is None else (_separate(s, terms, edit), f"{len(terms)} products are summed one after the other")

    return change_statements("separate-products", change, program, ranges)


def _find_terms(s: Statement, program: Program, ranges: Ranges) -> list[Expr] | None:
    """The addends, if there are several and each is a product with rows and columns."""
    dtype = program.tensor(s.target).dtype
    if s.reduction is None or s.reduction.op != "add" or s.reduction.monoid is not None or dtype.is_complex:
        return None
    if not is_simple(s, ranges) or ranges.statements[s.name].region is not None or len(program.writers()[s.target]) != 1:
        return None
    terms = list(_addends(s.value, False))
    if not 2 <= len(terms) <= MOST_PRODUCTS or not all(_is_contraction(t, s) for t in terms):
        return None
    if len({frozenset(n for n in walk(t) if isinstance(n, Read)) for t in terms}) < len(terms):
        return None  # the same operands in other functions: one pass over them
    own = ranges.statements[s.name].indices
    extents = {i: estimate_extent(own[i].extent, ranges.typical) for i in s.indices}
    if any(extents[i] is not None and (extents[i] or 0) < MINIMUM_TERMS for i in s.reduction_indices[:1]):
        return None
    if None not in extents.values() and prod(n or 0 for n in extents.values()) < MINIMUM_WORK:
        return None
    return terms


def _addends(expr: Expr, is_negative: bool) -> Iterator[Expr]:
    match expr:
        case Call(op=("add" | "sub") as op, args=(a, b)):
            yield from _addends(a, is_negative)
            yield from _addends(b, is_negative != (op == "sub"))
        case Call(op="neg", args=(a,)):
            yield from _addends(a, not is_negative)
        case Call(op="mul", args=(a, b)) if is_negative:
            yield a * -b
        case _:
            yield -expr if is_negative else expr


def _is_contraction(term: Expr, s: Statement) -> bool:
    """Whether a term is a product of two operands, each with left indices that leave the other one alone."""
    match term:
        case Call(op="mul", args=(a, b)):
            operands = [_operand(a), _operand(b)]
        case _:
            return False
    if None in operands:
        return False
    first, second = (index_names(r) for r in operands if r is not None)
    summed, left = set(s.reduction_indices), set(s.left_indices)
    return bool(first & summed and second & summed and left & (first - second) and left & (second - first))


def _operand(expr: Expr) -> Read | None:
    match expr:
        case Read():
            return expr
        case Cast(value=Read() as read) | Call(op="neg", args=(Read() as read,)):
            return read
        case Call(op="neg", args=(Cast(value=Read() as read),)):
            return read
        case Call(op="mul", args=(Const(), inner)) | Call(op="mul", args=(inner, Const())):
            return _operand(inner)
    return None


def _separate(s: Statement, terms: list[Expr], edit: Edit) -> list[Statement]:
    """One sum for each term: each begins with what the one before has summed."""
    assert s.reduction is not None
    init = s.reduction.init
    result: list[Statement] = []
    for n, term in enumerate(terms[:-1]):
        made = edit.define(s, f"product{n}", s.element_names, term, s.reduction_indices, Reduction("add", init))
        result.append(made)
        init = Read(made.target, s.subscripts)
    return [*result, replace(s, value=terms[-1], reduction=replace(s.reduction, init=init), where=())]
