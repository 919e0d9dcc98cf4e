"""Tests of indices: where in a loop they hold, what is left of a body where they are known, and loops cut accordingly.

Passes that unswitch loops, peel iterations or split index sets choose tests and places; what follows from these is here.

    before  ``for j in 0:n { S[j] = j > 0 ? f(S[j - 1]) : a }``, ``j > 0`` being `span_of` ``1 <= j``
    after   ``for j in 0:1 { S[j] = a }  for j in 1:n { S[j] = f(S[j - 1]) }``
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from math import ceil, floor, inf, isfinite, lcm
from operator import itemgetter
from types import MappingProxyType

from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Read,
    Select,
    Size,
    ge,
    int_const,
    le,
    maximum,
    mentions,
    minimum,
    operands_of,
    reads,
    rewrite,
    substitute,
    walk,
)
from polyc.ir.intervals import COMPARISONS, Interval, range_of
from polyc.ir.loops import Guard, If, Loop, Node, Store, Update, tile_size
from polyc.ir.simplify import Term, difference, form_expr, is_i64, linear_form, simplify
from polyc.ir.types import BOOL, I64, DType
from polyc.ir.walk import Body, nodes_in
from polyc.records import dataclass, replace

Known = Callable[[Expr], bool | None]
"""The outcome of a test, None where it is not known."""


def hold(tests: Iterable[Expr], outcome: bool = True) -> Known:
    """That each of the tests has this outcome."""
    known = frozenset(tests)
    return lambda e: outcome if e in known else None


# -- what is left where tests are known


def fold(condition: Expr, known: Known) -> Expr:
    """The condition without what is known; a constant where that decides it."""
    outcome = known(condition)
    if outcome is not None:
        return Const(outcome, BOOL)
    if not isinstance(condition, Call) or condition.op not in ("and", "or", "not"):
        return condition
    if condition.op == "not":
        inside = fold(condition.args[0], known)
        if isinstance(inside, Const):
            return Const(not inside.value, BOOL)
        return condition if inside is condition.args[0] else Call("not", (inside,))
    a, b = (fold(operand, known) for operand in condition.args)
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Const):
            return y if bool(x.value) == (condition.op == "and") else x
    return condition if (a, b) == condition.args else Call(condition.op, (a, b))


def assume_value(value: Expr, known: Known) -> Expr:
    """The value without the selections that are decided."""

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Select):
            return None
        condition = fold(e.condition, known)
        if isinstance(condition, Const):
            return e.then if condition.value else e.other
        return None if condition is e.condition else replace(e, condition=condition)

    return rewrite(value, rule)


def assume(body: Body, known: Known) -> Body:
    """The nodes without what is decided: tests, bounds of tiles (`tile_tests`), arms that are not taken, stores of what is
    there already, and what is left empty by it."""
    result: list[Node] = []
    for node in body:
        match node:
            case Store() | Update():
                value = assume_value(node.value, known)
                if not isinstance(node, Store) or value != Read(node.buffer, node.subscripts):
                    result.append(replace(node, value=value))
            case If():
                condition = fold(node.condition, known)
                if isinstance(condition, Const):
                    result += assume(node.body if condition.value else node.orelse, known)
                    continue
                then, other = assume(node.body, known), assume(node.orelse, known)
                if then or other:
                    result.append(If(condition, then, other))
            case Guard() if node.condition is not None:
                condition = fold(node.condition, known)
                if not isinstance(condition, Const) or condition.value:
                    result.append(replace(node, condition=None if isinstance(condition, Const) else condition))
            case Loop():
                inside = assume(node.body, known)
                if inside or node.initial:
                    starts = tuple(
                        replace(i, value=assume_value(i.value, known), nest=assume(i.nest, known)) for i in node.initial
                    )
                    result.append(replace(fill_tile(node, known), body=inside, initial=starts))
            case _:
                result.append(node)
    return tuple(result)


# -- tiles that are full


def tile_tests(loop: Loop) -> list[Call]:
    """The tests under which no bound cuts the tile of a loop: one for each bound that is not constant."""
    size = tile_size(loop)
    lower, upper = operands_of(loop.lower, "max"), operands_of(loop.upper, "min")
    tests = [] if size is None else [*(le(a, 0) for a in lower), *(ge(a, size) for a in upper)]
    return [t for t in tests if not isinstance(t.args[0], Const)]


def fill_tile(loop: Loop, known: Known) -> Loop:
    """The loop without the bounds that are known not to cut its tile."""
    size = tile_size(loop)
    if size is None or not any(map(known, tile_tests(loop))):
        return loop
    first = (a for a in operands_of(loop.lower, "max") if not known(le(a, 0)))
    last = (a for a in operands_of(loop.upper, "min") if not known(ge(a, size)))
    return replace(loop, lower=simplify(maximum(int_const(0), *first)), upper=simplify(minimum(int_const(size), *last)))


# -- where tests hold


@dataclass(frozen=True, slots=True)
class Span:
    """The values ``lower <= v < upper`` of a variable, where a test holds; None: no end on that side."""

    lower: Expr | None
    upper: Expr | None


_PLAIN = (Index, Size, Const, Call)
_WITH_LOADS = (*_PLAIN, Read, Cast)


def slack_of(test: Expr, loads: Mapping[str, Interval] | None = None) -> Expr | None:
    """What is not negative exactly where a comparison of integers holds, or zero where an equation does; else None.

    `loads`: data may stand in it, and conversions of indices that keep their values in these ranges."""
    if not isinstance(test, Call) or test.op not in ("ge", "gt", "le", "lt", "eq"):
        return None
    a, b = test.args if loads is None else _widen(test.args, loads)
    a, b = (b, a) if test.op in ("le", "lt") else (a, b)
    slack = a - b
    if linear_form(slack) is None or any(not isinstance(e, _PLAIN if loads is None else _WITH_LOADS) for e in walk(slack)):
        return None
    return slack - 1 if test.op in ("gt", "lt") else slack


def _widen(operands: Sequence[Expr], ranges: Mapping[str, Interval]) -> tuple[Expr, ...]:
    """Operands of a comparison, one of them an index in fewer bits, as integers of 64: ``i32(p) < n`` is ``p < i64(n)``."""
    bare = [e.value if isinstance(e, Cast) and e.dtype == I64 else e for e in operands]
    index = [e.value if isinstance(e, Cast) and e.dtype.is_integer and _fits(e.value, e.dtype, ranges) else None for e in bare]
    if index == [None] * len(bare):
        return tuple(operands)
    return tuple(e if i is None and is_i64(e) else i or Cast(e, I64) for e, i in zip(bare, index, strict=True))


def _fits(expr: Expr, dtype: DType, ranges: Mapping[str, Interval]) -> bool:
    """Whether index arithmetic is a number that a type holds."""
    low, high = range_of(expr, ranges) if is_i64(expr) else (None, None)
    return low is not None and high is not None and dtype.limits[0] <= low <= high <= dtype.limits[1]


def _linear_slack(test: Expr, *variables: str, loads: Mapping[str, Interval] | None = None) -> dict[Term, int] | None:
    """The linear form of `slack_of`, where it is one in all of these variables."""
    slack = slack_of(test, loads)
    form = None if slack is None else linear_form(slack)
    is_linear = form is not None and all(isinstance(t, (int, Index)) or not mentions(t, *variables) for t in form)
    return form if is_linear else None


def span_of(test: Expr, var: str, loads: Mapping[str, Interval] | None = None) -> Span | None:
    """Where a comparison that is linear in the variable holds, an equation at a single value; None for any other test, and for
    one of data unless there are `loads` (`slack_of`)."""
    form = _linear_slack(test, var, loads=loads)
    step = form.pop(Index(var), 0) if form is not None else 0
    is_equation = isinstance(test, Call) and test.op == "eq"
    if form is None or step == 0 or (is_equation and abs(step) != 1):
        return None
    rest = form_expr(form)
    less = form_expr(
        {term: -c for term, c in form.items()}
    )  # a negative is no number of 64 bits to `simplify` if it is a read's
    if is_equation:
        place = less if step > 0 else rest
        return Span(place, place + 1)
    if abs(step) != 1:
        rest = rest // abs(step)
        less = -rest
    return Span(less, None) if step > 0 else Span(None, rest + 1)


MAX_SCALED = 1 << 24
"""Of coefficients times the common multiple of divisors: times indices of 32 bits they stay far inside of 64."""


def certain_span(test: Call, var: str) -> Span | None:
    """Where a comparison surely holds of which quotients and remainders move with the variable; who knows about elsewhere.

    ``j // 2 + 2 * (j % 2) - 1 >= 0`` holds from ``j - 3 >= 0`` on: a quotient of integers is less than one below theirs."""
    slack = slack_of(test)
    form = None if slack is None or test.op == "eq" else linear_form(slack)
    if form is None:
        return None
    quotients = (t.args[1] for t in form if isinstance(t, Call) and t.op == "floordiv" and mentions(t, var))
    scale = lcm(*(int(n.value) for n in quotients if isinstance(n, Const) and n.value > 0))
    if scale * max(map(abs, form.values())) > MAX_SCALED:
        return None
    least: Expr = int_const(0)
    for term, c in form.items():
        match term:
            case int():
                least = least + scale * c
            case Call("floordiv", (inside, Const(n))) if n > 0 and mentions(term, var):
                least = least + c * (scale // int(n)) * (inside - (int(n) - 1 if c > 0 else 0))
            case Call("mod", (_, Const(n))) if n > 0 and mentions(term, var):
                least = least + min(0, scale * c * (int(n) - 1))
            case _:
                least = least + scale * c * term
    return span_of(ge(simplify(least), 0), var)


def hardest(test: Expr, ranges: dict[str, tuple[Expr, Expr]]) -> Expr | None:
    """The test at the point of a nest where it is hardest; None if it does not move inside, or not monotonously.

    `ranges`: first and last value of the loops of the nest, outermost first."""
    if not isinstance(test, Call) or test.op == "eq" or not mentions(test, *ranges):
        return None
    result: Expr = test
    for variable in reversed(ranges):  # innermost first: its bounds may bring in the variables around it
        form = _linear_slack(result, *ranges)
        if form is None:
            return None
        result = substitute(result, {variable: ranges[variable][form.get(Index(variable), 0) < 0]})
    return simplify(result)


def comparisons_in(condition: Expr) -> Iterator[Call]:
    """The comparisons, of no data, that a condition is made of."""
    if isinstance(condition, Call):
        if condition.op in ("and", "or", "not"):
            for a in condition.args:
                yield from comparisons_in(a)
        elif condition.op in COMPARISONS and not reads(condition):
            yield condition


def is_refused(first: Body, test: Expr, var: str, lower: Expr, upper: Expr) -> bool:
    """Whether checks that run `first` refuse a call where a test holds for a value of `var` from one bound up to the other."""
    for node, scope in nodes_in(first):
        if isinstance(node, Guard) and node.bound == int_const(0) and len(scope.loops) == 1:
            (loop,) = scope.loops
            is_same = node.condition == simplify(substitute(test, {var: Index(loop.var)}))
            if is_same and (loop.lower, loop.upper) == (lower, upper):
                return True
    return False


# -- loops cut there


def interior(loop: Loop, spans: Iterable[Span]) -> tuple[Expr, Expr]:
    """Begin and end of the iterations that are in all of the spans: ``lower <= begin <= end``."""
    found = list(spans)
    lowers = [s.lower for s in found if s.lower is not None]
    uppers = [s.upper for s in found if s.upper is not None]
    begin = simplify(minimum(simplify(maximum(loop.lower, *lowers)), loop.upper)) if lowers else loop.lower
    return begin, simplify(maximum(simplify(minimum(loop.upper, *uppers)), begin)) if uppers else loop.upper


def is_empty(lower: Expr, upper: Expr, ranges: Mapping[str, Interval] = MappingProxyType({})) -> bool:
    """Whether a range is known to be empty, where variables are in these ranges."""
    ends = product(operands_of(upper, "min"), operands_of(lower, "max"))
    lengths = (range_of(simplify(above - below), ranges)[1] for above, below in ends)
    return any(length is not None and length <= 0 for length in lengths)


def pieces(loop: Loop, *parts: tuple[Expr, Expr, Body]) -> list[Loop]:
    """The loop from and up to each of several places, with a body of its own there; empty ones are left out."""
    return [replace(loop, lower=low, upper=up, body=body) for low, up, body in parts if not is_empty(low, up)]


MAX_PLACES, MAX_PIECES, SHORT = 2, 8, 16
"""Places near one end of a loop at which it is cut, pieces of it in all, and iterations of a piece that is not cut again."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a loop that begins at `first`, if it runs at all, with `most` iterations at most (None: nobody knows)."""

    loop: Loop
    first: Expr
    most: int | None


def cut(loop: Loop, tests: Iterable[Expr], ranges: Mapping[str, Interval] = MappingProxyType({})) -> list[Piece]:
    """Index-set splitting: a loop of step 1 in pieces, in order, in which tests have one outcome, as far as that is known.

    Tests whose outcomes change near the first iteration cut first, then those near the last one, then those at places that lie
    a known distance from each other.  What is short already keeps the tests of later cuts, and so do iterations between many
    places, but for the longest run of them.  `ranges`: the values of variables around."""
    found = [Piece(loop, loop.lower, None)]
    for chain in _chains(loop, tests):
        new = [p for old in found for p in ([old] if old.most is not None and old.most <= SHORT else _cut(old, chain, ranges))]
        if len(new) > MAX_PIECES:
            break
        found = new
    return found


@dataclass(frozen=True, slots=True)
class _Chain:
    """By test, the distances from an anchor between which it has an outcome, that outcome, and the one elsewhere (None: nobody
    knows)."""

    anchor: Expr
    outcomes: dict[Expr, tuple[float, float, bool, bool | None]]
    ends: tuple[float, float]
    """Distances from the anchor at which the loop is taken to begin and to end."""


def _chains(loop: Loop, tests: Iterable[Expr]) -> Iterator[_Chain]:
    left: dict[Expr, tuple[Span, bool, bool | None]] = {}
    for test in dict.fromkeys(tests):
        is_negated = isinstance(test, Call) and test.op == "ne"
        span = span_of(Call("eq", test.args) if isinstance(test, Call) and is_negated else test, loop.var)
        if span is not None:
            left[test] = span, not is_negated, is_negated
        elif isinstance(test, Call) and (span := certain_span(test, loop.var)) is not None:
            left[test] = span, True, None
    places = [p for span, _, _ in left.values() for p in (span.lower, span.upper) if p is not None]
    near_first = [(e, -inf, float(SHORT), (0.0, inf)) for e in operands_of(loop.lower, "max")]
    near_last = [(e, -float(SHORT), inf, (-inf, 0.0)) for e in operands_of(loop.upper, "min")]
    for anchor, least, greatest, reach in (*near_first, *near_last, *((p, -inf, inf, (0.0, 0.0)) for p in places)):
        chain: dict[Expr, tuple[float, float, bool, bool | None]] = {}
        for test, (span, outcome, elsewhere) in left.items():
            low = -inf if span.lower is None else difference(span.lower, anchor)
            high = inf if span.upper is None else difference(span.upper, anchor)
            if elsewhere is None:  # whole vectors, so that neighbours lie alike in all of them
                low, high = _round(low, loop.lanes, ceil), _round(high, loop.lanes, floor)
            if low is not None and high is not None and all(least <= d <= greatest for d in (low, high) if isfinite(d)):
                chain[test] = low, high, outcome, elsewhere
        left = {test: found for test, found in left.items() if test not in chain}
        if chain:
            yield _Chain(anchor, chain, reach)


def _round(distance: float | None, lanes: int, to: Callable[[float], int]) -> float | None:
    return distance if distance is None or not isfinite(distance) else lanes * to(distance / lanes)


def _cut(piece: Piece, chain: _Chain, ranges: Mapping[str, Interval]) -> list[Piece]:
    loop, result = piece.loop, list[Piece]()
    places = {p: simplify(chain.anchor + int(p)) for ends in chain.outcomes.values() for p in ends[:2] if isfinite(p)}
    start = max((p for p, e in places.items() if is_empty(loop.lower, e, ranges)), default=-inf)
    stop = min((p for p, e in places.items() if is_empty(e, loop.upper, ranges)), default=inf)
    inside = sorted(p for p in places if start < p < stop)
    if len(inside) > MAX_PLACES:
        runs = pairwise((inside[0] + chain.ends[0], *inside, inside[-1] + chain.ends[1]))
        inside = [p for p in max(runs, key=lambda run: run[1] - run[0]) if p in inside]
    for begin, end in pairwise((start, *inside, stop)):
        first = piece.first if begin == start else places[begin]
        behind = loop.upper if end == stop else places[end]

        def known(test: Expr, begin: float = begin, end: float = end) -> bool | None:
            if test not in chain.outcomes:
                return None
            low, high, outcome, elsewhere = chain.outcomes[test]
            if low <= begin and end <= high:
                return outcome
            return elsewhere if end <= low or high <= begin else None

        body = assume(loop.body, known)
        if result and result[-1].loop.body == body:
            first = result.pop().first
        lower, upper = simplify(maximum(loop.lower, first)), simplify(minimum(behind, loop.upper))
        ends = product(operands_of(first, "max"), operands_of(behind, "min"))
        lengths = [(n, a) for a, b in ends if (n := range_of(simplify(b - a), ranges)[1]) is not None]
        most, first = min(lengths, key=itemgetter(0), default=(None, first))
        if most is None or most > 0:
            result.append(Piece(replace(loop, lower=lower, upper=upper, body=body), first, most))
    return result


def straight_nodes(body: Body) -> Iterator[Node]:
    """The nodes of a body and those of branches in it, not of loops."""
    for node in body:
        yield node
        if isinstance(node, If):
            yield from straight_nodes((*node.body, *node.orelse))
