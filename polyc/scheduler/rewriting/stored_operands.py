"""Compute an operand once where a product would compute it for each of its many results.

    before  ``P[i, j] += (k <= i ? A[i, k] : A[k, i]) * B[k, j]``
    after   ``S[i, k] = k <= i ? A[i, k] : A[k, i]  ;  P[i, j] += S[i, k] * B[k, j]``

The loops of contractions take operands that lie in one array each, which they copy into panels where that pays.  What is made
of several reads becomes a temporary like any other: it shares loops or tiles with the product where it can.
"""

from __future__ import annotations

from math import prod

from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Expr, Index, Pad, Read, index_names, reads, substitute, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement
from polyc.poly.domains import project_domain
from polyc.poly.ranges import Ranges, estimate_extent
from polyc.scheduler.rewriting.rules.blocks import is_simple
from polyc.scheduler.rewriting.temporaries import compute_before, read_instead

MINIMUM_REUSE = 16
"""Products that must share an element of the operand."""

MINIMUM_WORK = 1 << 15
"""Products below which computing the operand again costs nothing that counts."""


def store_operands(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """A statement of its own for each operand of a contraction that is made of several reads."""
    remarks: list[Remark] = []
    for s in program.statements:
        for operand in _find_operands(s, program, ranges):
            program, ranges = _store(program, ranges, s.name, operand)
            remarks.append(Remark("passed", "store-operands", "an operand of the sum is computed before it", s.name, s.span))
    return program, ranges, remarks


def _find_operands(s: Statement, program: Program, ranges: Ranges) -> list[Expr]:
    """Factors of a sum of two, each with left indices of its own, that are made of several reads."""
    if s.reduction is None or s.reduction.op != "add" or not is_simple(s, ranges):
        return []
    match s.value:
        case Call(op="mul", args=(a, b)):
            factors = (a, b)
        case _:
            return []
    own = ranges.statements[s.name].indices
    extents = {i: estimate_extent(own[i].extent, ranges.typical) for i in s.indices}
    names = [index_names(f) for f in factors]
    left, summed = set(s.left_indices), set(s.reduction_indices)
    if not all(n & summed for n in names) or not left & (names[0] - names[1]) or not left & (names[1] - names[0]):
        return []
    if prod(extents[i] or MINIMUM_REUSE for i in s.indices) < MINIMUM_WORK:
        return []
    found = []
    for factor, moving in zip(factors, names, strict=True):
        reuse = prod(extents[i] or MINIMUM_REUSE for i in s.indices if i not in moving)
        if reuse >= MINIMUM_REUSE and _is_composed(factor):
            found.append(factor)
    return found


def _is_composed(factor: Expr) -> bool:
    """Whether a factor has several reads, none of them of a window, which would be stored once for each position in it."""
    found = list(dict.fromkeys(reads(factor)))
    if len(found) < 2 or any(isinstance(n, Pad) for n in walk(factor)):
        return False
    forms = [index_coefficients(e) for r in found for e in r.subscripts]
    return all(f is not None and len(f) <= 1 for f in forms)


def _store(program: Program, ranges: Ranges, name: str, operand: Expr) -> tuple[Program, Ranges]:
    s = next(x for x in program.statements if x.name == name)
    own = ranges.statements[name]
    indices = _order(operand)
    element = tuple(map(Index, indices))
    intervals = {i: own.indices[i] for i in indices}
    for other in program.statements:  # the same operand in other indices, as of a product with its own transposed
        if other.name.startswith(f"{name}_operand"):
            same = dict(zip(other.indices, element, strict=False))
            theirs = ranges.statements[other.name]
            domain = project_domain(own.domain, s.indices, other.name, indices)
            is_same = len(same) == len(indices) == len(other.indices) and substitute(other.value, same) == operand
            if is_same and list(theirs.indices.values()) == list(intervals.values()) and domain.is_subset(theirs.domain):
                return read_instead(program, s, operand, Read(other.target, element)), ranges
    n = sum(other.name.startswith(f"{name}_operand") for other in program.statements)
    names = f"{s.target}.operand{n}", f"{name}_operand{n}"
    base = f"{program.tensor(s.target).base}.operand"
    program, ranges, _ = compute_before(program, ranges, s, operand, indices, names, base)
    return program, ranges


def _order(operand: Expr) -> tuple[str, ...]:
    """Its indices as its first read has them in memory, then the others."""
    found = [n.name for read in reads(operand) for e in read.subscripts for n in walk(e) if isinstance(n, Index)]
    return tuple(dict.fromkeys([*found, *(n.name for n in walk(operand) if isinstance(n, Index))]))
