"""Sizes that stand as factors of indices where a polyhedral model needs numbers: ``C[K * i + k]``, ``where K * i < N``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from polyc.ir.expr import Call, Expr, Index, Size, walk
from polyc.ir.program import Exists, Program, Statement


def find_factors(expr: Expr) -> frozenset[str]:
    """Sizes by which something with an index is multiplied, or divided, in `expr`."""
    found: set[str] = set()
    for node in walk(expr):
        match node:
            case Call("mul" | "floordiv" | "mod", (a, b)):
                for one, other in ((a, b), (b, a)):
                    if any(isinstance(n, Index) for n in walk(one)):
                        found |= {n.name for n in walk(other) if isinstance(n, Size)}
    return frozenset(found)


def statement_factors(s: Statement) -> frozenset[str]:
    """Those of what a statement writes, of its ranges and of its conditions.

    Reads are left out: which element is read may be checked at the call."""
    return frozenset().union(*map(find_factors, _placing(s)))


def program_factors(program: Program) -> frozenset[str]:
    """Sizes of a program that have to be numbers for all of its statements to be compiled."""
    return with_definitions(program, frozenset().union(*map(statement_factors, program.statements)))


def with_definitions(program: Program, names: Iterable[str]) -> frozenset[str]:
    """Sizes of arrays that `names` are, or are computed from."""
    defined = dict(program.defined_sizes)
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in defined:
            waiting += [n.name for n in walk(defined[name]) if isinstance(n, Size)]
        else:
            found.add(name)
    return frozenset(found)


def number_help(factors: Sequence[str]) -> str:
    """What helps where sizes that are not known yet multiply indices."""
    them, they = ("it", f"{factors[0]} multiplies an index")
    if len(factors) > 1:
        them, they = "them", f"{' and '.join(factors)} multiply indices"
    values = ", ".join(f"{f!r}: 64" for f in factors)
    given = f"sizes={{{values}}} (on the command line --size {factors[0]}=64)"
    return f"{they}: compile for numbers, with {given}, or leave {them} out of dynamic="


def _placing(s: Statement) -> Iterator[Expr]:
    yield from s.subscripts
    yield from (e for w in s.where if not isinstance(w, Exists) for e in w.expressions)
