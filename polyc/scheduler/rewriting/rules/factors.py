"""Factors that a sum of products does not sum over leave it.

    before  ``c[i,j] += 0.5 * a[i,k] * b[k,j] * s[i]``
    after   ``t[i,j] += a[i,k] * b[k,j]  ;  c[i,j] = t[i,j] * 0.5 * s[i]``

What is left has two factors, which is what the loops of contractions are made for; the rest is work per result instead of work
per term.  Sums of one factor stay: a mean written as a sum of ``x / N`` must not overflow, and gains nothing.
"""

from __future__ import annotations

from math import prod

from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Read, identity_of, mentions, reads
from polyc.ir.program import Program, Reduction, Statement
from polyc.ir.read_sites import collect_reads
from polyc.poly.domains import fills_box, is_box, is_product, project_domain, reads_within
from polyc.poly.ranges import Ranges, StatementRanges
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import trip_count
from polyc.scheduler.rewriting.rules.blocks import Change, Edit, change_statements, writes_whole

MINIMUM_TERMS = 8
"""Terms of a sum from which a pass over its results costs little beside it."""


@dataclass(frozen=True, slots=True)
class _Product:
    """``summed[0] * summed[1] * kept[0] * … / divisors[0] / …``"""

    summed: tuple[Expr, ...]
    kept: tuple[Expr, ...]
    divisors: tuple[Expr, ...]


def factor_sums(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Sums of products of two operands, with what does not depend on the sum behind it."""

    def change(s: Statement, edit: Edit) -> Change | None:
        product = _find_product(s, program, ranges)
        if product is None:
            return None
        n = len(product.kept) + len(product.divisors)
        message = f"{n} factor{'s' if n > 1 else ''} of {s.target} applied to the sum instead of to its terms"
        return _split(s, product, edit), message

    return change_statements("factor-sums", change, program, ranges)


def _find_product(s: Statement, program: Program, ranges: Ranges) -> _Product | None:
    own = ranges.statements[s.name]
    if s.reduction is None or s.reduction.op != "add" or not program.tensor(s.target).dtype.is_float:
        return None
    if own.guards or not s.has_plain_left or any(r.tensor == s.target for r in reads(s.value)):
        return None
    if len(program.writers()[s.target]) != 1 or not _has_same_terms(s, own):
        return None
    is_whole = is_box(own.domain, own.indices, s.indices) and writes_whole(s, ranges)
    if not is_whole and not _is_read_inside(s, own, program, ranges):
        return None
    extents = [own.indices[i].extent for i in s.reduction_indices]
    # A sum of no terms is 0 whatever its factors are, infinite ones too.
    if not all(isinstance(e, Const) for e in extents) or prod(map(trip_count, extents)) < MINIMUM_TERMS:
        return None
    factors, divisors = _flatten(s.value)
    summed = [f for f in factors if _moves(f, s)]
    kept = [f for f in factors if not _moves(f, s)]
    if len(summed) != 2 or not all(_is_operand(f) for f in summed) or any(_moves(d, s) for d in divisors):
        return None
    return _Product(tuple(summed), tuple(kept), tuple(divisors)) if kept or divisors else None


def _has_same_terms(s: Statement, own: StatementRanges) -> bool:
    """Whether the sum runs over the same points, a box, for every result."""
    summed = [n for n, i in enumerate(s.indices) if i in s.reduction_indices]
    points = project_domain(own.domain, s.indices, s.name, s.reduction_indices)
    return is_product(own.domain, summed) and fills_box(points, own.indices, s.reduction_indices)


def _is_read_inside(s: Statement, own: StatementRanges, program: Program, ranges: Ranges) -> bool:
    """Whether nothing reads the initial values of elements that get no sum."""
    if program.tensor(s.target).role != "temporary":
        return False
    written = project_domain(own.domain, s.indices, s.target, [e.name for e in s.subscripts if isinstance(e, Index)])
    for reader in program.statements:
        domain = ranges.statements[reader.name].domain.intersect_params(ranges.context)
        for site in collect_reads(reader):
            if site.read.tensor == s.target and not reads_within(site, domain, reader.indices, written):
                return False
    return True


def _flatten(expr: Expr) -> tuple[list[Expr], list[Expr]]:
    """Factors and divisors of a product."""
    match expr:
        case Call(op="mul", args=(a, b)):
            (left, over), (right, under) = _flatten(a), _flatten(b)
            return left + right, over + under
        case Call(op="truediv", args=(a, b)):
            left, over = _flatten(a)
            return left, [*over, b]
    return [expr], []


def _moves(expr: Expr, s: Statement) -> bool:
    """Whether the value of `expr` may change along the sum."""
    return mentions(expr, *s.reduction_indices)


def _is_operand(expr: Expr) -> bool:
    return isinstance(expr.value if isinstance(expr, Cast) else expr, Read)


def _split(s: Statement, product: _Product, edit: Edit) -> tuple[Statement, Statement]:
    """The sum of what moves, and the statement that applies the rest."""
    assert s.reduction is not None
    left = s.element_names
    start = Reduction("add", identity_of("add", edit.program.tensor(s.target).dtype))
    inner = edit.define(s, "sum", left, Call("mul", product.summed), s.reduction_indices, start)
    value: Expr = Read(inner.target, s.subscripts)
    for factor in product.kept:
        value = value * factor
    for divisor in product.divisors:
        value = Call("truediv", (value, divisor))
    if s.reduction.init != start.init:
        value = s.reduction.init + value
    edit.set_ranges(s.name, left, edit.own[s.name].indices, s)
    return inner, replace(s, indices=left, value=value, reduction=None, where=())
