"""What is hardly meant: sums over nothing, written ranges that reads cut short, and sizes in the place of indices."""

from __future__ import annotations

from collections.abc import Iterator

from polyc.diagnostics import Diagnostic, Span
from polyc.ir.expr import Index, Size, ge, index_names, lt
from polyc.ir.program import Program, RangeClause
from polyc.ir.read_sites import collect_reads
from polyc.ir.segments import is_loaded
from polyc.poly.bounds import make_box, statement_domain
from polyc.poly.describe import print_expr
from polyc.poly.sizes import Sizes
from polyc.poly.solve import StatementSolution

_USUAL = 4
"""Values of an index from which on a triangle is not expected to be empty."""


def find_doubts(program: Program, solutions: list[StatementSolution], sizes: Sizes) -> Iterator[Diagnostic]:
    """Warnings about statements with conditions; boxes are what they look like."""
    for solution in solutions:
        if solution.conditions:
            base = program.tensor(solution.statement.target).base
            yield from _find_empty_sum(base, solution, sizes)
            yield from _find_cut_range(base, solution, sizes)


def name_sizes(errors: list[Diagnostic], program: Program) -> list[Diagnostic]:
    """`errors`, where those about a subscript that is its dimension's own size, ``x(i)`` of ``float(i) x``, say so.

    `program`: as it was before its sizes became numbers."""
    found: dict[Span, list[Diagnostic]] = {}  # by the span of the read, and by that of the subscript
    for read in (site.read for s in program.statements for site in collect_reads(s)):
        tensor = program.tensor(read.tensor)
        for d, (subscript, extent) in enumerate(zip(read.subscripts, tensor.shape or (), strict=False)):
            span = subscript.span or read.span
            if isinstance(subscript, Size) and subscript == extent and span is not None:
                n = subscript.name
                message = f"{n} is the size of dimension {d} of {tensor.base}: no element has that number"
                help = f"an index needs a name of its own; the last element is number {n} - 1"
                for place in dict.fromkeys((read.span or span, span)):
                    found.setdefault(place, []).append(Diagnostic("range-out-of-bounds", message, span, help))
    return [
        found[e.span].pop(0) if e.code == "range-out-of-bounds" and e.span is not None and found.get(e.span) else e
        for e in errors
    ]


def _find_empty_sum(base: str, solution: StatementSolution, sizes: Sizes) -> Iterator[Diagnostic]:
    """A reduction whose conditions leave no point though each of its indices has some values."""
    s = solution.statement
    if s.reduction is None:
        return
    usual = sizes.context
    for bounds in solution.indices.values():
        usual = usual.intersect(sizes.extent_set(bounds, _USUAL))
    if usual.is_empty() or not statement_domain(solution).intersect_params(usual).is_empty():
        return
    message = f"nothing is combined into {base}: its conditions leave no point, and it holds the starting value"
    yield Diagnostic("range-empty-sum", message, _clause_span(solution), "check the comparisons of the where clause", "warning")


def _find_cut_range(base: str, solution: StatementSolution, sizes: Sizes) -> Iterator[Diagnostic]:
    """A range with both ends, one of them over other indices, of which reads leave out a part at all sizes that count."""
    s = solution.statement
    for clause in s.where:
        if not isinstance(clause, RangeClause) or clause.index not in solution.indices:
            continue
        if is_loaded(clause.lower) or is_loaded(clause.upper) or not index_names(clause.lower, clause.upper):
            continue
        others = {name: bounds for name, bounds in solution.indices.items() if name != clause.index}
        index, affine = Index(clause.index), solution.affine
        own = [affine.condition(ge(index, clause.lower)), affine.condition(lt(index, clause.upper))]
        written = make_box(affine, others, (*solution.conditions, *own))
        left_out = written.intersect_params(sizes.context).subtract(statement_domain(solution))
        if left_out.is_empty() or not sizes.context.is_subset(left_out.params()):
            continue
        bounds = solution.indices[clause.index]
        low, high = print_expr(sizes.lower_expr(bounds)), print_expr(sizes.upper_expr(bounds))
        ends = f"{print_expr(clause.lower)}:{print_expr(clause.upper)}"
        message = f"{clause.index} in {ends} is cut to {low}:{high}, where all that is read stays inside its tensor"
        help = "extents that are equal need one name; or guard the reads: pad(…, 0), or c ? a : b"
        yield Diagnostic("range-cut", message, clause.span or s.span, help, "warning")


def _clause_span(solution: StatementSolution) -> Span | None:
    return next((c.span for c in solution.statement.where if c.span is not None), solution.statement.span)
