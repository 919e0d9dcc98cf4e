"""Compute values once, in a statement in front, where a statement would compute them for each value of its other indices.

    before  ``H[i, j] += f32(A[i, k]) * f32(B[k, j])``                     a conversion of an operand that is broadcast
    after   ``A.f32[i, k] = f32(A[i, k])  ;  H[i, j] += A.f32[i, k] * f32(B[k, j])``

    before  ``P[i, j] += (k <= i ? A[i, k] : A[k, i]) * B[k, j]``          an operand that is made of several reads
    after   ``S[i, k] = k <= i ? A[i, k] : A[k, i]  ;  P[i, j] += S[i, k] * B[k, j]``

    before  ``T[d, v] = C[d, v] * log(N / F[v])``                          a function of few indices
    after   ``E[v] = log(N / F[v])  ;  T[d, v] = C[d, v] * E[v]``

In the loops of a product one operand is broadcast, an element at a time: converting that is no vector instruction, and is
repeated for each tile of columns.  As a statement it is one, and the tile that it fills stays in the first-level cache.  The
operand that moves with the columns is converted where it is read, sixteen lanes for a whole column of the tile.

The loops of contractions take operands that lie in one array each, which they copy into panels where that pays.

A function that does not change along the loop that is innermost leaves it by itself; what changes along it would be computed
anew for each iteration of the loops around.  All of these become temporaries like any others, which share loops or tiles with
their readers where they can.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod

from polyc.code_limits import FUNCTION_WORK, MINIMUM_REUSE, SMALL_WORK
from polyc.ir.expr import Call, Cast, Expr, Index, Read, Select, children, index_names, padded_reads, reads, type_of, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement
from polyc.poly.ranges import Ranges
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import call_weight, trip_count
from polyc.scheduler.rewriting.builder import Change, ProgramBuilder
from polyc.scheduler.rewriting.rules.analysis import is_matrix_product, is_simple, replace_node

_SLOW = ("truediv", "sqrt", "rsqrt")
"""Operations that count as functions: they take as long as several loads."""

MINIMUM_REPEATS = 4
"""Times that a function would be computed from which on storing and loading its value costs less."""


@dataclass(frozen=True, slots=True)
class _Value:
    """A value to compute once, for each point of `indices`, and what users are told."""

    value: Expr
    indices: tuple[str, ...]
    message: str
    tensor: str | None = None
    """What its temporary is named after, if not the target of the statement."""


def _store(s: Statement, suffix: str, found: list[_Value], builder: ProgramBuilder) -> Change | None:
    """A statement of its own for each value, unless there is one with the same values."""
    new, made, program = s, list[Statement](), builder.program
    for v in found:
        kind = suffix if v.tensor is None else str(type_of(v.value, program.types))
        like, points = program.tensor(v.tensor or s.target), builder.points(s).project(v.indices)
        names = builder.free_name(f"{like.name}.{kind}"), builder.free_name(f"{s.name}_{suffix}")
        read, computed = builder.materialise(v.value, points, names, like, s, f"{like.base}.{kind}")
        made += computed
        stored, own = partial(replace_node, old=v.value, new=read), builder.own[s.name]
        new = replace(new, value=stored(new.value))
        builder.own[s.name] = replace(own, guards=tuple(g.map(stored) for g in own.guards))
    return ([*made, new], [v.message for v in found]) if found else None


# -- conversions


def hoist_conversions(s: Statement, builder: ProgramBuilder) -> Change | None:
    """Operands are converted before the sum that reads them often."""
    return _store(s, "converted", _find_conversions(s, builder.program, builder.ranges), builder)


def _find_conversions(s: Statement, program: Program, ranges: Ranges) -> list[_Value]:
    """Casts of inputs, subscripted by plain indices, that do not move with the last index of the left side."""
    left = s.left_indices
    if s.reduction is None or s.reduction.op != "add" or not left:
        return []
    if trip_count(ranges.statements[s.name].indices[left[-1]].extent) < MINIMUM_REUSE:
        return []
    found: dict[Expr, _Value] = {}
    for node in _walk_certain(s.value):
        match node:
            case Cast(Read(tensor, subscripts)) if program.tensor(tensor).dtype.is_storage and not node.dtype.is_storage:
                names = tuple(e.name for e in subscripts if isinstance(e, Index))
                is_plain = len(names) == len(subscripts) == len(set(names)) > 0
                is_summed = not set(names).isdisjoint(s.reduction_indices)
                if is_plain and is_summed and left[-1] not in names and program.tensor(tensor).role == "input":
                    found[node] = _Value(node, names, f"{tensor} is converted before the sum", tensor)
    return list(found.values())


def _walk_certain(expr: Expr) -> Iterator[Expr]:
    """The nodes that are evaluated at every point: an arm of `?:` may guard what it reads."""
    yield expr
    for child in _certain_children(expr):
        yield from _walk_certain(child)


def _certain_children(expr: Expr) -> tuple[Expr, ...]:
    return (expr.condition,) if isinstance(expr, Select) else children(expr)


# -- operands of contractions


def store_operands(s: Statement, builder: ProgramBuilder) -> Change | None:
    """Computed operands of contractions are stored before them."""
    return _store(s, "operand", _find_operands(s, builder.program, builder.ranges), builder)


def _find_operands(s: Statement, program: Program, ranges: Ranges) -> list[_Value]:
    """Factors of a sum of two, each with left indices of its own, that are made of several reads."""
    if s.reduction is None or s.reduction.op != "add" or not is_simple(s, ranges):
        return []
    factors = s.value.args if isinstance(s.value, Call) and s.value.op == "mul" else ()
    if not is_matrix_product(s, factors, ranges):
        return []
    extents = ranges.trips(s.name)
    if prod(extents[i] or MINIMUM_REUSE for i in s.indices) < SMALL_WORK:
        return []
    found = []
    for factor in factors:
        reuse = prod(extents[i] or MINIMUM_REUSE for i in s.indices if i not in index_names(factor))
        # A window would be stored once for each position in it.
        if reuse >= MINIMUM_REUSE and len(set(reads(factor))) > 1 and _is_without_windows(factor):
            found.append(_Value(factor, _order(factor), "an operand of the sum is computed before it"))
    return found


def _is_without_windows(expr: Expr) -> bool:
    forms = [index_coefficients(e) for r in reads(expr) for e in r.subscripts]
    return all(f is not None and len(f) <= 1 for f in forms) and not padded_reads(expr)


def _order(operand: Expr) -> tuple[str, ...]:
    """Its indices as its first read has them in memory, then the others."""
    found = [n.name for read in reads(operand) for e in read.subscripts for n in walk(e) if isinstance(n, Index)]
    return tuple(dict.fromkeys([*found, *(n.name for n in walk(operand) if isinstance(n, Index))]))


# -- functions


def store_functions(s: Statement, builder: ProgramBuilder) -> Change | None:
    """Functions that are computed again and again are stored."""
    return _store(s, "function", _find_functions(s, builder.program, builder.ranges), builder)


def _find_functions(s: Statement, program: Program, ranges: Ranges) -> list[_Value]:
    """The largest such expressions of a statement and their indices, in the order of memory."""
    own = ranges.statements[s.name]
    is_sum = s.reduction is not None and s.reduction.op == "add"
    if own.guards or (is_sum and isinstance(s.value, Call) and s.value.op in ("mul", "fma")):
        return []  # a sum of products of two takes functions along when it copies its operands
    trips = {i: trip_count(own.indices[i].extent) for i in s.indices}
    moving = {*s.reduction_indices, *s.left_indices[-1:]}
    found: dict[Expr, _Value] = {}

    def visit(expr: Expr) -> None:
        functions = ", ".join(dict.fromkeys(call.op for call in _calls(expr)))
        if not functions or not isinstance(expr, (Call, Select)):
            return
        if _is_free(expr, s, program):
            indices = tuple(i for i in s.indices if i in index_names(expr))
            repeats = prod(trips[i] for i in s.indices if i not in indices)
            if moving & set(indices) and repeats >= MINIMUM_REPEATS:
                message = f"{functions} of {', '.join(indices)} is computed once, before {s.target}"
                found[expr] = _Value(expr, indices, message)
                return
        for child in _certain_children(expr):  # an arm that is not taken may read outside
            visit(child)

    visit(s.value)
    return list(found.values())


def _is_free(expr: Expr, s: Statement, program: Program) -> bool:
    """Whether an expression calls functions of elements that plain places name, which need nothing of the statement."""
    if not type_of(expr, program.types).is_float or not _is_without_windows(expr):
        return False
    return not program.made_from(s.target) & {r.tensor for r in reads(expr)}


def _calls(expr: Expr) -> Iterator[Call]:
    return (n for n in walk(expr) if isinstance(n, Call) and (n.op in _SLOW or call_weight(n) >= FUNCTION_WORK))
