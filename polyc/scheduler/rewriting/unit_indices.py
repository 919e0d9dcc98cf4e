"""Drop reduction indices that take one value, and write subscripts in canonical form.

Before: ``O[h, w] += X[1*h + r, w + s] * F[r, s]`` with r and s in 0:1.  After: ``O[h, w] += X[h, w] * F[0, 0]``, whose
indices stand alone and can be merged, vectorised and packed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from polyc.ir.expr import Const, Expr, Read, rewrite, substitute
from polyc.ir.program import Program, Statement
from polyc.ir.simplify import simplify
from polyc.poly.domains import project_domain
from polyc.poly.ranges import GuardedSubscript, Ranges, StatementRanges


def drop_unit_indices(program: Program, ranges: Ranges) -> tuple[Program, Ranges]:
    """The program without indices of extent one that only reduce."""
    own = dict(ranges.statements)
    statements = []
    for s in program.statements:
        new, own[s.name] = _drop(s, own[s.name])
        statements.append(new)
    return replace(program, statements=tuple(statements)), replace(ranges, statements=own)


def _drop(s: Statement, own: StatementRanges) -> tuple[Statement, StatementRanges]:
    units: dict[str, Expr] = {}
    for i in s.reduction_indices:
        extent = own.indices[i].extent
        if isinstance(extent, Const) and extent.value == 1:
            units[i] = own.indices[i].lower

    def canonical(expr: Expr) -> Expr:
        def rule(node: Expr) -> Expr | None:
            if isinstance(node, Read):
                return Read(node.tensor, tuple(map(simplify, node.subscripts)), node.span)
            return None

        return rewrite(substitute(expr, units), rule)

    value = canonical(s.value)
    if not units and value == s.value:
        return s, own
    kept = tuple(i for i in s.indices if i not in units)
    guards = tuple(_canonical_guard(g, canonical) for g in own.guards)
    domain = project_domain(own.domain, s.indices, s.name, kept) if units else own.domain
    new_own = StatementRanges({i: own.indices[i] for i in kept}, domain, guards)
    return replace(s, indices=kept, value=value), new_own


def _canonical_guard(guard: GuardedSubscript, canonical: Callable[[Expr], Expr]) -> GuardedSubscript:
    read = canonical(guard.read)
    assert isinstance(read, Read)
    return replace(guard, read=read, condition=None if guard.condition is None else canonical(guard.condition))
