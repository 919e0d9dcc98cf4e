"""Drop reduction indices that take one value, and write subscripts in canonical form.

Before: ``O[h, w] += X[1*h + r, w + s] * F[r, s]`` with r and s in 0:1.  After: ``O[h, w] += X[h, w] * F[0, 0]``, whose
indices stand alone and can be merged, vectorised and packed.
"""

from __future__ import annotations

from polyc.ir.expr import Expr, int_const, substitute
from polyc.ir.program import Program
from polyc.poly.ranges import Ranges
from polyc.records import replace
from polyc.scheduler.rewriting.reindexing import simplify_subscripts, without_indices


def drop_unit_indices(program: Program, ranges: Ranges) -> tuple[Program, Ranges]:
    """The program without indices of extent one that only reduce."""
    own = dict(ranges.statements)
    statements = []
    for s in program.statements:
        intervals = own[s.name].indices
        units = {i: intervals[i].lower for i in s.reduction_indices if intervals[i].extent == int_const(1)}

        def canonical(expr: Expr, units: dict[str, Expr] = units) -> Expr:
            return simplify_subscripts(substitute(expr, units))

        new = replace(s, value=canonical(s.value))
        own[s.name] = replace(own[s.name], guards=tuple(g.map(canonical) for g in own[s.name].guards))
        if units:
            new, own[s.name] = without_indices(new, own[s.name], units)
        statements.append(new)
    return replace(program, statements=tuple(statements)), replace(ranges, statements=own)
