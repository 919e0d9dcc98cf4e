"""Results of recurrences that are a band: what lies beside the band is a statement of its own.

    before  ``L[i, j] = j > i || i > j + 8 ? 0 : f(A[i, j], S[i, j], L[j, j])``      S a sum over earlier elements of L
    after   ``L[i, j] = 0 where j > i``, ``L[i, j] = 0 where i > j + 8``, ``L[i, j] = f(…) where i - 8 <= j <= i``

As one statement the recurrence goes over the whole matrix in its order and asks each element where it is; apart, it goes along
the band, and vectors fill the rest.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.code_limits import LONG_ROW, MAX_PARTS
from polyc.diagnostics import Remark
from polyc.ir.expr import Expr, Select, reads
from polyc.ir.program import Program, Statement
from polyc.poly import isl
from polyc.poly.domains import convex_pieces, has_divs, longest_run, subtract_domain
from polyc.poly.ranges import Ranges, StatementRanges, estimate_extent
from polyc.scheduler.rewriting.builder import find_recurrences

MINIMUM_SHARE = 4
"""Rows are at least so many times as long as the band is wide."""


def part_bands(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Domain splitting: what lies beside a band is a statement of its own."""
    remarks: list[Remark] = []
    cyclic = {s.name: frozenset(r.target for r in group) for group in find_recurrences(program) for s in group}
    statements: list[Statement] = []
    own = dict(ranges.statements)
    for s in program.statements:
        parts = _part(s, cyclic.get(s.name, frozenset()), program, ranges)
        if parts is None:
            statements.append(s)
            continue
        for n, (value, domain) in enumerate(parts):
            name = program.free_name(f"{s.name}_beside{n}") if n else s.name
            statements.append(replace(s, name=name, value=value, where=()))
            own[name] = replace(own[s.name], domain=domain.set_tuple_name(name))
        remarks.append(Remark("passed", "split-bands", f"{s.target} beside its band is computed apart", s.name, s.span))
    if not remarks:
        return program, ranges, remarks
    return replace(program, statements=tuple(statements)), replace(ranges, statements=own), remarks


def _part(s: Statement, cyclic: frozenset[str], program: Program, ranges: Ranges) -> list[tuple[Expr, isl.Set]] | None:
    """Values and domains: of the band, then of the pieces beside it; None where a statement is no such recurrence."""
    own = ranges.statements[s.name]
    if not cyclic or s.reduction is not None or own.guards or not s.has_plain_left or len(s.indices) < 2:
        return None
    if program.tensor(s.target).role != "output" or not isinstance(s.value, Select):
        return None
    then, other = (any(r.tensor in cyclic for r in reads(arm)) for arm in (s.value.then, s.value.other))
    if then == other:
        return None
    try:
        holds = isl.Affine(own.domain.get_space(), {i: n for n, i in enumerate(s.indices)}).condition(s.value.condition)
    except isl.NotAffine:
        return None
    inside = subtract_domain(own.domain, holds) if other else own.domain.intersect(holds).coalesce()
    band, beside = s.value.then if then else s.value.other, s.value.other if then else s.value.then
    if not _is_band(inside, s, own, ranges):
        return None
    pieces = convex_pieces(subtract_domain(own.domain, inside))
    if inside.n_basic_set() != 1 or has_divs(inside) or not 1 <= len(pieces) <= MAX_PARTS or any(map(has_divs, pieces)):
        return None
    return [(band, inside), *((beside, piece) for piece in pieces)]


def _is_band(domain: isl.Set, s: Statement, own: StatementRanges, ranges: Ranges) -> bool:
    """Whether a domain is narrow along one of the indices wherever the others stand."""
    for n, index in enumerate(s.indices):
        extent = estimate_extent(own.indices[index].extent, ranges.typical)
        width = longest_run(domain, n)
        if extent is not None and width is not None and extent >= max(LONG_ROW, MINIMUM_SHARE * width):
            return True
    return False
