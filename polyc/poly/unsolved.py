"""Errors of range inference about indices without a range, and their ways out."""

from __future__ import annotations

from polyc.diagnostics import Diagnostic, in_notation
from polyc.ir.advice import help_range
from polyc.ir.expr import Expr, Index, index_names, walk
from polyc.ir.factors import find_factors, number_help, with_definitions
from polyc.ir.powers import MAX_COPIES, find_power_indices
from polyc.ir.program import Program, Statement
from polyc.ir.read_sites import collect_reads, is_data_dependent
from polyc.ir.segments import loaded_clauses
from polyc.poly.solve import StatementSolution


def help_number(program: Program, *exprs: Expr) -> str | None:
    """The way out where a symbolic size multiplies an index in `exprs`, or a power holds one; None where none does."""
    factors = sorted(with_definitions(program, frozenset().union(*map(find_factors, exprs))))
    if factors:
        return number_help(factors)
    powers = sorted(find_power_indices(*exprs))
    if not powers:
        return None
    place = next((n.span for e in exprs for n in walk(e) if n.span is not None), None)
    given = in_notation(place, f"where {powers[0]} in 0:10", f"with polyc.where(0 <= {powers[0]} < 10)")
    return f"{powers[0]} stands in a power: give it a range of numbers, {given}, at most {MAX_COPIES}, to be taken one by one"


def unstable_error(program: Program, solution: StatementSolution) -> Diagnostic:
    """Ranges that grow from round to round."""
    s = solution.statement
    base, index = program.tensor(s.target).base, next(i for i in s.indices if i in solution.indices)
    message = f"the ranges of the indices of {base} were not solved in range inference: they grow with what is written"
    return Diagnostic("range-unsolved", message, s.span, f"give them, such as: {help_range(s.span, index)}")


def unsolved_error(program: Program, s: Statement, index: str) -> Diagnostic:
    """No range was found for an index; the message says where it stands."""
    base = program.tensor(s.target).base
    where: Index | None = None
    partners: set[str] = set()
    data = padded = plain = False
    for site in collect_reads(s):
        for sub in site.read.subscripts:
            if index not in index_names(sub):
                continue
            if is_data_dependent(sub) and not plain:
                data = data or not any(index in index_names(r) for r in walk(sub) if r is not sub and hasattr(r, "tensor"))
            elif site.is_padded:
                padded = True
            else:
                plain = True
                partners |= index_names(sub) - {index}
    for node in [n for root in (*s.subscripts, s.value) for n in walk(root)]:
        if isinstance(node, Index) and node.name == index and where is None:
            where = node
    help = f"give it one, such as: {help_range(s.span, index)}"
    if any(clause.index == index for clause in loaded_clauses(s.where)):
        reason = "no tensor is read at it, and sizes cannot follow from the bounds that data gives"
        help += f"; or declare {base} with its sizes"
    elif plain and partners:
        reason = f"it is only bounded together with {', '.join(sorted(partners))}"
    elif plain:
        reason = "what is read does not bound it on both sides"
    elif data:
        reason = "it only stands in subscripts that depend on run-time data"
    elif padded:
        reason = "it only stands in padded reads, which do not bound it"
    else:
        reason = "it stands in no subscript on the right side"
    message = f"the range of index {index} of {base} was not solved in range inference: {reason}"
    span = where.span if where is not None and where.span is not None else s.span
    return Diagnostic("range-unsolved", message, span, help)
