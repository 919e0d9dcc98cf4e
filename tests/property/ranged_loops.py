"""What statements over ranges that data bounds mean: plain loops over Python's numbers, written from the page on the language.
Nothing of polyc takes part in that."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from polyc.records import dataclass

Env = dict[str, Any]
Box = dict[str, tuple[int, int]]
Array = np.ndarray[Any, Any]

DTYPES = {"float": np.float32, "double": np.float64, "bool": np.bool_}
PLACES = 4
"""How many there are where data tells the place."""
FARTHEST, LARGEST = 1 << 48, 1 << 63


def dtype_of(kind: str) -> np.dtype[Any]:
    return np.dtype(DTYPES.get(kind, kind))


class Refused(Exception):
    """That a call has to be an error, and what it may be called."""

    def __init__(self, codes: set[str]) -> None:
        super().__init__(codes)
        self.codes = codes


class Elements:
    """An array that remembers which of its elements were read."""

    def __init__(self, values: Array) -> None:
        self.values = values
        self.seen = np.zeros(values.shape, bool)

    def __call__(self, *place: int) -> Any:
        assert all(0 <= p < n for p, n in zip(place, self.values.shape, strict=True)), place
        self.seen[place] = True
        value = self.values[place]
        return value.item() if isinstance(value, np.generic) else value

    def spoil_unread(self) -> Array:
        """The array, with what no index and no bound may be in the elements that were not read."""
        made = self.values.copy()
        made[~self.seen] = np.nan if made.dtype.kind == "f" else np.iinfo(made.dtype).max
        return made


@dataclass(frozen=True, slots=True)
class Term:
    """A piece of text, its value, and the indices in it."""

    text: str
    at: Callable[[Env], Any]
    names: frozenset[str] = frozenset()
    is_loaded: bool = False
    operands: tuple[Term, ...] = ()
    """What it calculates with, but for comparing it."""


def join(form: str, combine: Callable[..., Any], *terms: Term) -> Term:
    """A term of others; `form`: its text, with ``{}`` for theirs."""
    names = frozenset[str]().union(*(t.names for t in terms))
    text = form.format(*(t.text for t in terms))
    operands = sum((t.operands for t in terms), terms if combine not in (min, max) else ())
    return Term(text, lambda env: combine(*(t.at(env) for t in terms)), names, any(t.is_loaded for t in terms), operands)


def number(value: int) -> Term:
    return Term(str(value), lambda env: value)


def index(name: str) -> Term:
    return Term(name, lambda env: env[name], frozenset({name}))


def read(name: str, *subscripts: Term) -> Term:
    names = frozenset[str]().union(*(t.names for t in subscripts))
    text = f"{name}({', '.join(t.text for t in subscripts)})"
    return Term(text, lambda env: env[name](*(t.at(env) for t in subscripts)), names, True)


def choose(condition: Term, a: Term, b: Term) -> Term:
    """``?:``, of which one arm is evaluated."""
    made = join("({} ? {} : {})", max, condition, a, b)
    return Term(made.text, lambda env: (a if condition.at(env) else b).at(env), made.names, made.is_loaded)


def number_named(name: str) -> Term:
    """A size, or an integer argument."""
    return Term(name, lambda env: env[name])


def add(a: Term, b: Term) -> Term:
    return join("{} + {}", operator.add, a, b)


def least(a: Any, b: Any) -> Any:
    return math.nan if a != a or b != b else min(a, b)


def greatest(a: Any, b: Any) -> Any:
    return math.nan if a != a or b != b else max(a, b)


def signed(a: int) -> int:
    """As an int64: the type of what is made of an index and a uint64."""
    return (a + LARGEST) % (2 * LARGEST) - LARGEST


FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "min": least,
    "max": greatest,
    "&&": lambda a, b: a and b,
    "||": lambda a, b: a or b,
}


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
EXTREMES = {"min": least, "max": greatest}


def start_of(op: str, dtype: np.dtype[Any]) -> Any:
    """What changes nothing."""
    if op in ("&&", "||"):
        return op == "&&"
    if op in ("+", "*"):
        return 0 if op == "+" else 1
    low, high = (-math.inf, math.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return high if op in ("min", "argmin") else low


def precedes(op: str, a: Any, b: Any) -> bool:
    """Whether a value is chosen before one that stands in front of it."""
    if b != b:
        return False
    return bool(a != a or (a < b if op == "argmin" else a > b))


@dataclass(frozen=True, slots=True)
class Range:
    """A clause; `along`: the index that counts the segments that it is one of."""

    index: str
    lower: Term
    upper: Term
    along: str | None = None

    @property
    def text(self) -> str:
        return f"{self.index} in {self.lower.text}:{self.upper.text}"

    @property
    def is_loaded(self) -> bool:
        return self.lower.is_loaded or self.upper.is_loaded


def segment(name: str, ends: str, along: str, *others: str) -> Range:
    first = [index(n) for n in others]
    return Range(name, read(ends, *first, index(along)), read(ends, *first, add(index(along), number(1))), along)


@dataclass(frozen=True, slots=True)
class Statement:
    """``targets(left) op value``; op: ``=``, one of `FOLDS`, ``argmin`` or ``argmax``; `onto`: what the elements held before;
    `place`: a subscript before the others, that data tells; `counted`: the indices whose positions are told.

    `order`: the indices, those that name the bounds of others before these."""

    targets: tuple[str, ...]
    left: tuple[str, ...]
    op: str
    value: Term
    order: tuple[str, ...]
    ranges: tuple[Range, ...]
    conditions: tuple[Term, ...] = ()
    exists: tuple[Term, ...] = ()
    dtype: np.dtype[Any] = np.dtype(np.float32)
    onto: Term | None = None
    place: Term | None = None
    counted: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        subscripts = [*([] if self.place is None else [self.place.text]), *self.left]
        left = f"({', '.join(subscripts)})" if subscripts else ""
        targets = ", ".join(t + left for t in self.targets)
        targets = f"({targets})" if len(self.targets) > 1 else targets
        op = "=" if self.op == "=" else f"{self.op}=" if self.onto is not None else f"{self.op}=!"
        clauses = [
            *(r.text for r in self.ranges),
            *(c.text for c in self.conditions),
            *(f"exists {e.text}" for e in self.exists),
        ]
        where = f" where {', '.join(clauses)}" if clauses else ""
        before = "" if self.onto is None else f"{self.targets[0]}{left} = {self.onto.text}\n  "
        return f"{before}{targets} {op} {self.value.text}{where}"

    def cut_box(self, sizes: Box, env: Env) -> Box:
        """The ranges of the indices: those of what is read, and bounds that need no data and no index."""
        box = {n: sizes[n] for n in self.order}
        for r in self.ranges:
            low, high = box[r.index]
            if not r.lower.is_loaded and not r.lower.names:
                low = max(low, r.lower.at(env))
            if not r.upper.is_loaded and not r.upper.names:
                high = min(high, r.upper.at(env))
            box[r.index] = low, high
        if any(high < low for low, high in box.values()):
            raise Refused({"range-negative"})
        return box

    def check_bounds(self, box: Box, env: Env) -> set[str]:
        """The errors that the data asks for."""
        found = set()
        for r in (r for r in self.ranges if r.is_loaded):
            named = sorted(r.lower.names | r.upper.names)
            first, end = box[r.index]
            is_covering = self.op == "=" and r.along is not None and r.along not in self.left
            if is_covering and box[r.along][0] == box[r.along][1] and first < end:  # type: ignore[index]
                found.add("argument-segments")
            for place in itertools.product(*(range(*box[n]) for n in named)):
                inner = {**env, **dict(zip(named, place, strict=True))}
                low, high = r.lower.at(inner), r.upper.at(inner)
                if r.along is None:
                    far = any(abs(e.at(inner)) > FARTHEST for bound in (r.lower, r.upper) for e in bound.operands)
                    if far or (low < high and (low < first or high > end)):
                        found.add("argument-range")
                    continue
                is_first, is_last = inner[r.along] == box[r.along][0], inner[r.along] == box[r.along][1] - 1
                if high < low or low < first or high > end:
                    found.add("argument-segments")
                if is_covering and ((is_first and low != first) or (is_last and high != end)):
                    found.add("argument-segments")
        return found

    def shape(self, box: Box) -> tuple[int, ...]:
        return (PLACES,) * (self.place is not None) + tuple(box[n][1] - box[n][0] for n in self.left)

    def points(self, box: Box, env: Env) -> Iterator[Env]:
        """What is inside of all ranges and conditions, in order."""

        def enter(names: Sequence[str], outer: Env) -> Iterator[Env]:
            if not names:
                if all(c.at(outer) for c in self.conditions):
                    yield outer
                return
            low, high = box[names[0]]
            for r in self.ranges:
                if r.index == names[0]:
                    low, high = max(low, r.lower.at(outer)), min(high, r.upper.at(outer))
            for value in range(low, high):
                yield from enter(names[1:], {**outer, names[0]: value})

        return enter(self.order, env)

    def run(self, box: Box, env: Env) -> dict[str, Array]:
        """The targets."""
        shape, lows = self.shape(box), [box[n][0] for n in self.left]
        best = np.full(shape, start_of(self.op if self.op != "=" else "+", self.dtype), object)
        last = np.iinfo(np.int64).max
        places = [np.full(shape, last, object) for _ in self.counted]
        if self.onto is not None:
            for point in itertools.product(*(range(*box[n]) for n in self.left)):
                best[point] = self.onto.at({**env, **dict(zip(self.left, point, strict=True))})
        for point in self.points(box, env):
            at, value = tuple(point[n] - low for n, low in zip(self.left, lows, strict=True)), self.value.at(point)
            at = at if self.place is None else (self.place.at(point), *at)
            if self.op in FOLDS:
                best[at] = FOLDS[self.op](best[at], value)
            elif self.op == "=":
                best[at] = value
            else:
                before, here = [a[at] for a in places], [point[n] for n in self.counted]
                is_first = last in before or precedes(self.op, value, best[at])
                if is_first or (here < before and not precedes(self.op, best[at], value)):
                    best[at] = value
                    for a, n in zip(places, here, strict=True):
                        a[at] = n
        return dict(zip(self.targets, [best, *places][-len(self.targets) :], strict=True))


@dataclass(frozen=True, slots=True)
class Data:
    """Arguments of a call: arrays and integers; `box`: the ranges that reads of arrays give to indices."""

    arrays: dict[str, Array]
    integers: dict[str, int]
    box: Box

    @property
    def numbers(self) -> dict[str, int]:
        """By the names that texts give them."""
        return {"Z": self.box["p"][1], "R": self.box["i"][1], **self.integers}
