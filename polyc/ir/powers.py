"""Indices of which subscripts or bounds hold powers: a statement for each of their values.

No affine function is ``2**s`` of an index, but for each number it is one.  Where `s` ranges over numbers (``s in 0:4``), the
statement is taken once for each of them, and all that reads subscripts afterwards sees affine ones:

    before  ``X(s + 1, q + 2**s * p) = X(s, q + 4 * p)``   where s in 0:2, q in 0:2**s
    after   ``X(1, q + p) = X(0, q + 4 * p)``              where q in 0:1
            ``X(2, q + 2 * p) = X(1, q + 4 * p)``          where q in 0:2

A reduction over such an index becomes a tensor of partial results, one for each value of it, and the reduction of these:

    before  ``y(i) +=! x(i, 2**s)``   where s in 0:2
    after   ``T(0, i) +=! x(i, 1)``, ``T(1, i) +=! x(i, 2)``, ``y(i) +=! T(s, i)``   where s in 0:2

Full unrolling (Allen and Kennedy, "Optimizing Compilers for Modern Architectures", 2001, section 8.2) of loops chosen by what
their variables stand in.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Read,
    identity_of,
    index_names,
    int_const,
    lt,
    reads,
    rewrite,
    substitute,
    walk,
)
from polyc.ir.program import (
    Condition,
    Exists,
    RangeClause,
    Reduction,
    Statement,
    Tensor,
    Where,
    map_statement,
    place_statement,
    statement_reads,
)
from polyc.ir.read_sites import collect_reads, is_data_dependent
from polyc.ir.simplify import simplify_int
from polyc.ir.types import I64
from polyc.records import replace

MAX_COPIES = 64
"""Statements that one may become."""

_POWERS = ("pow", "shl", "shr")
_ZERO = int_const(0)


class BadPower(Exception):
    """A power of a number that 64 bits do not hold, or that is a fraction; the statement that it stands in."""

    def __init__(self, statement: Statement) -> None:
        self.statement = statement


def find_power_indices(*exprs: Expr) -> set[str]:
    """Indices in powers and shifts by them, as subscripts and bounds hold them."""
    powers = (n for e in exprs for n in walk(e) if isinstance(n, Call) and n.op in _POWERS)
    return {name for n in powers for name in index_names(*(n.args[1:] if index_names(n.args[1]) else n.args))}


def unroll_powers(s: Statement, tensors: dict[str, Tensor]) -> list[Statement]:
    """The statement, or copies of it where it holds powers of indices of constant ranges; `tensors` gets those of partial
    results.  Raises `BadPower`."""
    powers = find_power_indices(*_placing(s))
    return _unroll(s, powers, tensors) if powers else [s]


def _placing(s: Statement) -> Iterator[Expr]:
    """Subscripts of what is written and read, and bounds."""
    yield from s.subscripts
    for read in statement_reads(s):
        yield from (e for e in read.subscripts if not is_data_dependent(e))  # those are guarded by data in any case
    yield from (e for w in s.where if not isinstance(w, Exists) for e in w.expressions)


def _unroll(s: Statement, powers: set[str], tensors: dict[str, Tensor]) -> list[Statement]:
    ranges = _constant_ranges(s)
    chosen = sorted(powers & ranges.keys(), key=s.indices.index)
    n_copies = 1
    for i in chosen:
        n_copies *= len(ranges[i])
    is_plain = s.reduction is None or (s.reduction.monoid is None and not any(reads(e) for e in s.subscripts))
    if not chosen or not is_plain or not 0 < n_copies <= MAX_COPIES:
        return [s]
    reduced = [i for i in chosen if i not in s.left_indices]
    last: list[Statement] = []
    if reduced:
        s, last = _split_reduction(s, reduced, tensors)
    copies = []
    rounds = [dict(zip(chosen, values, strict=True)) for values in product(*(ranges[i] for i in chosen))]
    together = _find_open_reads(s, chosen)
    for values in rounds:
        copy = _take(s, values)
        if copy is not None:
            if any(isinstance(n, Call) and n.op in _POWERS and not index_names(n) for e in _placing(copy) for n in walk(e)):
                raise BadPower(copy)
            others = (_substitute(read, other) for read in together for other in rounds if other is not values)
            known = {read for read in statement_reads(copy)}
            exists = (Exists(read, copy.span) for read in dict.fromkeys(others) if read not in known)
            copies.append(replace(copy, where=(*copy.where, *exists)))
    return [*copies, *last]


def _find_open_reads(s: Statement, chosen: list[str]) -> list[Read]:
    """Reads that bound indices by powers: all copies of the statement run over the points at which those of all copies can be
    made, as a statement does over the values of any index."""
    sides = {(w.index, side) for w in s.where if isinstance(w, RangeClause) for side in ("lower", "upper")}
    for w in s.where:
        match w:
            case Condition(Call("ge" | "gt" | "le" | "lt" as op, (a, b))):
                kinds = ("lower", "upper") if op in ("ge", "gt") else ("upper", "lower")
                sides |= {(e.name, side) for e, side in zip((a, b), kinds, strict=True) if isinstance(e, Index)}
    bounded = {i for i, side in sides if (i, "lower") in sides and (i, "upper") in sides} | set(chosen)
    found: dict[Read, None] = {}
    for site in collect_reads(s):
        names = index_names(*site.read.subscripts)
        if site.place == "value" and not site.conditions and not site.is_padded and names & set(chosen) and names - bounded:
            found[site.read] = None
    return list(found)


def _constant_ranges(s: Statement) -> dict[str, range]:
    """Indices that ranges bound by numbers on both sides, or else conditions."""
    lower: dict[str, int] = {}
    upper: dict[str, int] = {}
    given = {w.index for w in s.where if isinstance(w, RangeClause)}
    for index, low, high in _bounds(tuple(w for w in s.where if isinstance(w, RangeClause) or not _indices_of(w) & given)):
        if low is not None:
            lower[index] = max(low, lower.get(index, low))
        if high is not None:
            upper[index] = min(high, upper.get(index, high))
    return {i: range(lower[i], upper[i]) for i in s.indices if i in lower and i in upper}


def _bounds(where: tuple[Where, ...]) -> Iterator[tuple[str, int | None, int | None]]:
    """``low <= index < high`` for each clause that says so with numbers."""
    for clause in where:
        match clause:
            case RangeClause(index, lower, upper):
                yield index, _number(lower), _number(upper)
            case Condition(Call("ge" | "gt" | "le" | "lt" as op, (a, b))):
                is_below = op in ("le", "lt")
                if isinstance(b, Index):
                    a, b, is_below = b, a, not is_below
                bound = _number(b)
                if isinstance(a, Index) and bound is not None:
                    bound += is_below == (op in ("le", "ge"))
                    yield (a.name, None, bound) if is_below else (a.name, bound, None)


def _number(expr: Expr) -> int | None:
    return int(expr.value) if isinstance(expr, Const) and expr.dtype == I64 else None


def _split_reduction(s: Statement, reduced: list[str], tensors: dict[str, Tensor]) -> tuple[Statement, list[Statement]]:
    """The reduction into partial results, by the values of some indices, and that of these."""
    assert s.reduction is not None
    target, left = tensors[s.target], s.left_indices
    name = f"{s.target}.parts"
    while name in tensors:
        name += "_"
    dtype = target.dtype.computed if target.dtype.is_storage else target.dtype
    tensors[name] = Tensor(name, dtype, len(reduced) + len(left), None, "temporary", target.base, s.span)
    element = tuple(Index(i) for i in (*reduced, *left))
    rest = tuple(i for i in s.indices if i not in (*left, *reduced))
    op = s.reduction.op
    reduction = Reduction(op, identity_of(op, dtype))
    parts = replace(s, target=name, subscripts=element, indices=(*reduced, *left, *rest), reduction=reduction)
    known = {*left, *reduced}
    where = tuple(w for w in s.where if not isinstance(w, Exists) and _indices_of(w) <= known)
    # What a condition with a power of a reduced index leaves out holds the identity in `parts`.
    where = tuple(w for w in where if not (isinstance(w, Condition) and find_power_indices(w.condition) & set(reduced)))
    return parts, [replace(s, indices=(*left, *reduced), value=Read(name, element, s.span), where=where)]


def _indices_of(clause: Where) -> set[str]:
    own = {clause.index} if isinstance(clause, RangeClause) else set()
    return own | index_names(*clause.expressions)


def _take(s: Statement, values: dict[str, int]) -> Statement | None:
    """The statement for some values of indices; None for an assignment whose conditions leave out all points."""
    given = tuple(w for w in s.where if not (isinstance(w, RangeClause) and w.index in values))
    here = ", ".join(f"{i} = {v}" for i, v in values.items())
    copy = place_statement(map_statement(replace(s, where=given), lambda e: _substitute(e, values)), here)
    decided = [w for w in copy.where if isinstance(w, Condition) and isinstance(w.condition, Const)]
    where = tuple(w for w in copy.where if w not in decided)
    copy = replace(copy, indices=tuple(i for i in s.indices if i not in values), where=where)
    is_empty = not all(w.condition.value for w in decided)  # type: ignore[union-attr]
    if is_empty and s.reduction is None:
        return None
    if is_empty or any(_has_no_value(where, i) for i in copy.reduction_indices):
        return _start_only(copy)
    return replace(copy, where=tuple(_join_bounds(where)))


def _has_no_value(where: tuple[Where, ...], index: str) -> bool:
    """Whether numbers bound an index so that no value is left; a range that ends before it begins stays an error."""
    sides = [(low, high, isinstance(w, RangeClause)) for w in where for i, low, high in _bounds((w,)) if i == index]
    if any(is_range and low is not None and high is not None and high < low for low, high, is_range in sides):
        return False
    lows, highs = [low for low, _, _ in sides if low is not None], [high for _, high, _ in sides if high is not None]
    return bool(lows and highs) and max(lows) >= min(highs)


def _start_only(s: Statement) -> Statement:
    """A reduction whose elements no point reaches: they have the starting value."""
    assert s.reduction is not None
    left = s.left_indices
    if index_names(s.reduction.init) <= set(left):
        where = tuple(w for w in s.where if not isinstance(w, Exists) and _indices_of(w) <= set(left))
        return replace(s, indices=left, value=s.reduction.init, reduction=None, where=where)
    return replace(s, where=(*s.where, Condition(lt(_ZERO, 0), s.span)))


def _substitute(expr: Expr, values: dict[str, int]) -> Expr:
    if not index_names(expr) & values.keys():
        return expr
    return _fold(substitute(expr, {i: int_const(v) for i, v in values.items()}))


def _join_bounds(where: tuple[Where, ...]) -> list[Where]:
    """Conditions that bound one index by numbers as a range, as they were written before another index had a value."""
    spoken = {w.index for w in where if isinstance(w, RangeClause)}
    sides: dict[str, list[Where]] = {}
    for w in where:
        for index, _, _ in _bounds((w,)) if isinstance(w, Condition) else ():
            sides.setdefault(index, []).append(w)
    joined: list[Where] = []
    dropped: set[int] = set()
    for index, clauses in sides.items():
        known = [(low, high) for _, low, high in _bounds(tuple(clauses))]
        lows, highs = [low for low, _ in known if low is not None], [high for _, high in known if high is not None]
        if index not in spoken and lows and highs and max(lows) < min(highs):
            joined.append(RangeClause(index, int_const(max(lows)), int_const(min(highs)), clauses[0].span))
            dropped |= {id(w) for w in clauses}
    return [*joined, *(w for w in where if id(w) not in dropped)]


def _fold(expr: Expr) -> Expr:
    """Powers and shifts of numbers as the numbers that they are; those that 64 bits do not hold are left."""

    def rule(node: Expr) -> Expr | None:
        match node:
            case Call("add" | "sub" | "mul" | "neg", args) if all(isinstance(a, Const) and a.dtype == I64 for a in args):
                return simplify_int(node)
            case Call("pow" | "shl" | "shr" as op, (Const() as a, Const() as b)) if (
                a.dtype == b.dtype == I64 and 0 <= b.value < 63
            ):
                x, n = int(a.value), int(b.value)
                value = x**n if op == "pow" else x << n if op == "shl" else x >> n
                return int_const(value) if abs(value) < 1 << 62 else None
            case Call("shl", (a, Const() as b)) if b.dtype == I64 and 0 <= b.value < 62:
                return Call("mul", (a, int_const(1 << int(b.value))), node.span)
            case Call("shr", (a, Const() as b)) if b.dtype == I64 and 0 <= b.value < 62:
                return Call("floordiv", (a, int_const(1 << int(b.value))), node.span)
            case Cast(Const() as inner, dtype) if dtype == I64 == inner.dtype:
                return inner
        return None

    return _simplify_places(rewrite(expr, rule))


def _simplify_places(expr: Expr) -> Expr:
    """Subscripts, and what is no value of elements, with constants folded."""
    if not any(isinstance(n, Read) for n in walk(expr)):
        return simplify_int(expr)

    def rule(node: Expr) -> Expr | None:
        return replace(node, subscripts=tuple(simplify_int(e) for e in node.subscripts)) if isinstance(node, Read) else None

    return rewrite(expr, rule)
