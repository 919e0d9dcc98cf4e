"""What numbers index arithmetic may be: interval arithmetic over loop variables, and what the ranges decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import add
from types import MappingProxyType

from polyc.ir.expr import Call, Const, Expr, Index, Size, int_const, rewrite
from polyc.ir.loops import Loop
from polyc.ir.simplify import simplify
from polyc.ir.walk import Fact, Scope

COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))

Interval = tuple[int | None, int | None]
"""The least and the greatest number that a value may be, None where none is known."""


def ranges_in(scope: Scope) -> Mapping[str, Interval]:
    """The values of loop variables."""
    ranges: dict[str, Interval] = {}
    steps: dict[str, tuple[int, int]] = {}
    for step in scope.path:
        if isinstance(step, Loop):
            low, upper = range_of(step.lower, ranges)[0], range_of(step.upper, ranges)[1]
            ranges[step.var] = (low, None if upper is None else upper - 1)
            if isinstance(step.lower, Const):
                steps[step.var] = int(step.lower.value), step.step
        else:
            ranges |= _narrow(ranges, step)
        for name, (first, size) in steps.items():
            low, high = ranges[name]
            ranges[name] = low, None if high is None else first + (high - first) // size * size
    return ranges


_OPPOSITES = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


def _narrow(ranges: Mapping[str, Interval], fact: Fact) -> Mapping[str, Interval]:
    """The range of the variable that a fact compares with a number."""
    match fact.condition:
        case Call(op, (Index(name), Const(value))) if op in COMPARISONS and name in ranges:
            low, high = ranges[name]
            number, op = int(value), op if fact.outcome else _OPPOSITES[op]
            if op in ("gt", "ge", "eq"):
                least = number + (op == "gt")
                low = least if low is None else max(low, least)
            if op in ("lt", "le", "eq"):
                most = number - (op == "lt")
                high = most if high is None else min(high, most)
            if op == "ne":
                low = number + 1 if low == number else low
                high = number - 1 if high == number else high
            return {name: (low, high)}
    return {}


def range_of(expr: Expr, ranges: Mapping[str, Interval] = MappingProxyType({})) -> Interval:
    """Bounds of index arithmetic over variables in these ranges, and sizes, which are not negative; byte strides of arguments
    (``A.stride0``) may be."""
    match expr:
        case Const(value):
            return int(value), int(value)
        case Index(name):
            return ranges.get(name, (None, None))
        case Size(name):
            return None if ".stride" in name else 0, None
        case Call("mod", (_, Const(n))) if n > 0:
            return 0, int(n) - 1
        case Call(op, args):
            return range_of_call(op, [range_of(a, ranges) for a in args])
    return None, None


def range_of_call(op: str, args: Sequence[Interval]) -> Interval:
    """Bounds of what an operator makes of values in these ranges."""
    (a_low, a_high), (b_low, b_high) = args[0], args[-1]
    match op:
        case "neg":
            return None if a_high is None else -a_high, None if a_low is None else -a_low
        case "abs":
            below, above = range_of_call("neg", args)
            return max(0, a_low or 0, below or 0), _both(a_high, above, max)
        case "add":
            return _both(a_low, b_low, add), _both(a_high, b_high, add)
        case "sub":
            return range_of_call("add", (args[0], range_of_call("neg", args[1:])))
        case "min":
            return _both(a_low, b_low, min), min((n for n in (a_high, b_high) if n is not None), default=None)
        case "max":
            return max((n for n in (a_low, b_low) if n is not None), default=None), _both(a_high, b_high, max)
        case "mul" if a_low is not None and a_high is not None and b_low is not None and b_high is not None:
            corners = [p * q for p in (a_low, a_high) for q in (b_low, b_high)]
            return min(corners), max(corners)
        case "mul" if a_low == a_high and a_low is not None:
            ends = [None if n is None else a_low * n for n in (b_low, b_high)]
            return (ends[0], ends[1]) if a_low >= 0 else (ends[1], ends[0])
        case "floordiv" if b_low == b_high and b_low is not None and b_low > 0:
            return None if a_low is None else a_low // b_low, None if a_high is None else a_high // b_low
        case "mod" if b_low == b_high and b_low is not None and b_low > 0:
            return 0, b_low - 1
    return None, None


def _both(a: int | None, b: int | None, combine: Callable[[int, int], int]) -> int | None:
    return None if a is None or b is None else combine(a, b)


def tighten(expr: Expr, ranges: Mapping[str, Interval]) -> Expr:
    """Index arithmetic without the variables, minima, maxima and remainders that these ranges decide."""

    def decide(e: Expr) -> Expr | None:
        match e:
            case Index(name):
                low, high = ranges.get(name, (None, None))
                return int_const(low) if low is not None and low == high else None
            case Call("min" | "max" as op, (a, b)):
                low, high = range_of(simplify(a - b), ranges)
                if low == high == 0:
                    return a if isinstance(a, Const) else b
                if high is not None and high <= 0:
                    return a if op == "min" else b
                if low is not None and low >= 0:
                    return b if op == "min" else a
            case Call("mod", (a, Const(n))) if n > 0:
                low, high = range_of(simplify(a), ranges)
                if low is not None and high is not None and low // int(n) == high // int(n):
                    return a - low // int(n) * int(n)
        return None

    return simplify(rewrite(expr, decide))
