"""Compute functions of few indices once where a statement would compute them for each value of its others.

    before  ``T[d, v] = C[d, v] * log(N / F[v])``
    after   ``E[v] = log(N / F[v])  ;  T[d, v] = C[d, v] * E[v]``

What does not change along the loop that is innermost leaves it by itself; what changes along it would be computed anew for
each iteration of the loops around.  Such a function becomes a temporary like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from polyc.code_limits import FUNCTION_WORK
from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Expr, Index, Pad, Read, Select, children, index_names, reads, type_of, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement
from polyc.poly.domains import project_domain
from polyc.poly.ranges import Ranges
from polyc.scheduler.accesses import call_weight, trip_count
from polyc.scheduler.rewriting.temporaries import compute_before, read_instead

_SLOW = ("truediv", "sqrt", "rsqrt")
"""Operations that count as functions: they take as long as several loads."""

MINIMUM_REPEATS = 4
"""Times that a value would be computed from which on storing and loading it costs less."""


def store_repeated_functions(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """A statement of its own for each function that a statement computes again and again."""
    remarks: list[Remark] = []
    made: list[Statement] = []
    for s in program.statements:
        for value, indices in _find_functions(s, program, ranges):
            program, ranges = _store(program, ranges, s.name, value, indices, made)
            message = f"{_functions(value)} of {', '.join(indices)} is computed once, before {s.target}"
            remarks.append(Remark("passed", "store-functions", message, s.name, s.span))
    return program, ranges, remarks


def _find_functions(s: Statement, program: Program, ranges: Ranges) -> list[tuple[Expr, tuple[str, ...]]]:
    """The largest such expressions of a statement and their indices, in the order of memory."""
    own = ranges.statements[s.name]
    if own.guards or _is_product(s):
        return []
    trips = {i: trip_count(own.indices[i].extent) for i in s.indices}
    moving = {*s.reduction_indices, *s.left_indices[-1:]}
    found: dict[Expr, tuple[str, ...]] = {}

    def visit(expr: Expr) -> None:
        if not isinstance(expr, (Call, Select)) or not any(True for _ in _calls(expr)):
            return
        if _is_free(expr, s, program):
            names = index_names(expr)
            repeats = prod(trips[i] for i in s.indices if i not in names)
            if names & moving and repeats >= MINIMUM_REPEATS:
                found[expr] = tuple(i for i in s.indices if i in names)
                return
        # An arm that is not taken may read outside.
        for child in (expr.condition,) if isinstance(expr, Select) else children(expr):
            visit(child)

    visit(s.value)
    return list(found.items())


def _is_product(s: Statement) -> bool:
    """Whether this is a sum of products of two, which takes functions along when it copies its operands."""
    return s.reduction is not None and s.reduction.op == "add" and isinstance(s.value, Call) and s.value.op in ("mul", "fma")


def _is_free(expr: Expr, s: Statement, program: Program) -> bool:
    """Whether an expression calls functions of elements that plain places name, which need nothing of the statement."""
    if not any(isinstance(n, Call) for n in _calls(expr)) or not type_of(expr, program.types).is_float:
        return False
    if any(isinstance(n, Pad) for n in walk(expr)):
        return False
    forms = [index_coefficients(e) for r in reads(expr) for e in r.subscripts]
    if any(f is None or len(f) > 1 for f in forms):
        return False  # windows would be stored once for each position in them
    return not program.made_from(s.target) & {r.tensor for r in reads(expr)}


def _calls(expr: Expr) -> Iterator[Call]:
    return (n for n in walk(expr) if isinstance(n, Call) and (n.op in _SLOW or call_weight(n) >= FUNCTION_WORK))


def _functions(expr: Expr) -> str:
    return ", ".join(dict.fromkeys(call.op for call in _calls(expr)))


def _store(
    program: Program, ranges: Ranges, name: str, value: Expr, indices: tuple[str, ...], made: list[Statement]
) -> tuple[Program, Ranges]:
    """The program with `value` as a statement of its own, or as one of those that were `made` before."""
    s = next(x for x in program.statements if x.name == name)
    own = ranges.statements[name]
    element = tuple(map(Index, indices))
    intervals = {i: own.indices[i] for i in indices}
    for known in made:
        theirs = ranges.statements[known.name]
        domain = project_domain(own.domain, s.indices, known.name, indices)
        if known.value == value and theirs.indices == intervals and domain.is_subset(theirs.domain):
            return read_instead(program, s, value, Read(known.target, element)), ranges
    names = program.free_name(f"{s.target}.function"), program.free_name(f"{name}_function")
    base = f"{program.tensor(s.target).base}.function"
    program, ranges, first = compute_before(program, ranges, s, value, indices, names, base)
    made.append(first)
    return program, ranges
