"""Random programs over ranges that data bounds, and their arguments.

Values are small whole numbers, so that sums are exact in any order and results are compared bit by bit."""

from __future__ import annotations

import math
import operator
import random
import re
from typing import Any

import numpy as np

from tests.property.ranged_loops import (
    ARITHMETIC,
    EXTREMES,
    FOLDS,
    PLACES,
    Array,
    Data,
    Elements,
    Env,
    Range,
    Refused,
    Statement,
    Term,
    add,
    choose,
    dtype_of,
    greatest,
    index,
    join,
    least,
    number,
    number_named,
    read,
    segment,
    signed,
)

BOUND_TYPES = ("int32", "int64", "int32", "int64", "uint32", "int16", "uint16", "int8", "uint8")
VALUES = ("v", "X", "r", "M")
BOUNDS = ("ptr", "outer", "many", "first", "last", "n", "m")


class Program:
    """A text of one to four statements over the same segments and ranges, and its meaning.

    Rows are counted by i (`is_declared`: up to a size; else as far as there are both ends of a segment), elements by p, in
    pairs also by q; d is a dense dimension, k runs in a triangle or a range of its own, and g counts groups of rows."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.value = source.choice(["float", "double", "int32", "int64"])
        self.is_declared, self.is_dense = source.random() < 0.5, source.random() < 0.35
        self.integers = ["T", "U"][: source.choice([0, 0, 1, 2])]
        self.of_rows: list[Term] = []
        self.of_elements: list[Term] = []
        self.flags: list[Term] = []
        self.types: dict[str, np.dtype[Any]] = {}
        self.returned: list[str] = []
        self.statements = [self.draw_statement(f"y{n}") for n in range(source.choice([1, 2, 2, 3, 4]))]
        self.text, self.parameters = self.write()

    def write(self) -> tuple[str, dict[str, np.dtype[Any]]]:
        """The text, and the types of its arrays."""
        body = "\n  ".join(s.text for s in self.statements)
        rows, dense = "R" if self.is_declared else "P", ", N" if self.is_dense else ""
        shapes = {"v": f"Z{dense}", "X": f"K{dense}", "c": "Z", "r": rows, "M": f"L, {rows}", "ptr": "P", "outer": "Q"}
        shapes |= dict.fromkeys(("first", "last", "n", "m", "h"), rows)
        shapes["many"] = "B, W"
        kinds = {n: self.source.choice(BOUND_TYPES) for n in BOUNDS} | dict.fromkeys(VALUES, self.value) | {"c": "int32"}
        kinds["h"] = self.source.choice(["int8", "int32", "int64", "uint8", "uint64"])
        is_used = {n: re.search(rf"\b{n}\(", body) is not None for n in shapes}
        used = [n for n in shapes if is_used[n] or (n == "r" and "0:R" in body)]
        parameters = [f"{kinds[n]}({shapes[n]}) {n}" for n in used] + [f"int64 {n}" for n in self.integers]
        text = f"def f({', '.join(parameters)}) -> ({', '.join(self.returned)}) {{\n  {body}\n}}"
        return text, {n: dtype_of(kinds[n]) for n in used}

    # -- terms

    def pick(self, *choices: Any) -> Any:
        return self.source.choice(choices)

    def literal(self, value: int) -> Term:
        return Term(f"{self.value}({value})", lambda env: value)

    def small(self) -> Term:
        """A number, or an argument."""
        return self.pick(number(self.source.randint(0, 4)), *map(number_named, self.integers))  # type: ignore[no-any-return]

    def element(self, name: str, *subscripts: Term) -> Term:
        return read(name, *subscripts, *([index("d")] if self.is_dense else []))

    def clamped(self, term: Term) -> Term:
        """What is small again."""
        return join("max(min({}, {}), {})", lambda a, b, c: greatest(least(a, b), c), term, self.literal(9), self.literal(-9))

    def main(self) -> Term:
        """What stands in each value: it gives their ranges to p and d."""
        return self.pick(self.element("v", index("p")), self.element("v", index("p")), self.element("X", read("c", index("p"))))  # type: ignore[no-any-return]

    def atom(self, names: set[str]) -> Term:
        found = [self.main(), join(f"{self.value}({{}} % 5)", lambda a: a % 5, index("p")), *self.of_elements]
        if "i" in names:
            i = index("i")
            found += [read("r", i), join(f"{self.value}({{}} % 3)", lambda a: a % 3, i), *self.of_rows, *self.of_rows]
        return self.pick(*found, self.neighbour())  # type: ignore[no-any-return]

    def neighbour(self) -> Term:
        """The element before p, or nothing."""
        read, zero = self.element("v", join("{} - {}", operator.sub, index("p"), number(1))), self.literal(0)
        text = f"pad({read.text}, {zero.text})"
        return Term(text, lambda env: read.at(env) if env["p"] > 0 else 0, read.names, True)

    def condition(self, names: set[str], depth: int = 0) -> Term:
        """One on data, for ``?:``."""
        if depth < 2 and self.source.random() < 0.3:
            a, b = self.condition(names, depth + 1), self.condition(names, depth + 1)
            both, either = lambda a, b: a and b, lambda a, b: a or b
            return self.pick(join("({} && {})", both, a, b), join("({} || {})", either, a, b), join("!({})", operator.not_, a))  # type: ignore[no-any-return]
        i, p = index("i"), index("p")
        found = [
            join("({} > {})", operator.gt, self.atom(names), self.literal(self.source.randint(-1, 1))),
            join("({} != {})", operator.ne, self.atom(names), self.literal(0)),
            join("({} % 2 == 0)", lambda a: a % 2 == 0, p),
            join("({} < {})", operator.lt, p, self.small()),
        ]
        if "i" in names:
            found += [
                join("({} < {})", operator.lt, p, read("n", i)),
                join("({} <= {})", lambda a, b: signed(a) <= b, read("h", i), p),
                join("({} <= {})", lambda a, b: a <= signed(b), p, read("h", i)),
                join("({} < {})", operator.lt, i, read("c", p)),
                join("({} == {})", operator.eq, p, read("first", i)),
                *self.flags,
            ]
        return self.pick(*found)  # type: ignore[no-any-return]

    def draw_value(self, names: set[str]) -> Term:
        a, b = self.main(), self.atom(names)
        made = self.pick(a, *(join(f"{{}} {op} {{}}", apply, a, b) for op, apply in ARITHMETIC.items()))
        if self.source.random() < 0.5:
            arms = made, self.pick(self.literal(0), self.literal(1), self.atom(names))
            made = choose(self.condition(names), *(arms if self.source.random() < 0.5 else arms[::-1]))
        if "k" in names:
            made = join("{} * ({})", operator.mul, read("M", index("k"), index("i")), made)
        if "q" in names:
            made = join("{} * ({})", operator.mul, self.element("v", index("q")), made)
        return made  # type: ignore[no-any-return]

    def draw_range(self) -> Range:
        """Between which ends p runs, in row i."""
        if self.source.random() < 0.4:
            return segment("p", "ptr", "i")
        i, a, none = index("i"), self.small(), number(0)
        begin, end = read("ptr", i), read("ptr", add(i, number(1)))
        first, last, n = read("first", i), read("last", i), read("n", i)
        near = join("max({}, 0)", lambda a: max(a, 0), join("{} - {}", operator.sub, begin, number(2)))
        cut = join("min({}, {})", min, end, add(a, number(1)))
        ends = [(first, last), (first, last), (none, n), (none, n), (first, add(first, n)), (first, add(n, first))]
        ends += [(join("max({}, {})", max, begin, number(2)), cut), (near, end), (add(begin, number(1)), end)]
        ends += [(n, number_named("Z")), (a, last), (first, a), (join("2 * {}", lambda a: 2 * a, n), last)]
        ends += [(i, last), (first, add(i, number(2))), (join("{} - {}", operator.sub, first, a), last)]
        return Range("p", *self.pick(*ends))

    # -- statements

    def draw_statement(self, name: str) -> Statement:
        dense = ("d",) * self.is_dense
        form = self.pick(
            "rows",
            "rows",
            "rows",
            "elements",
            "assigned",
            "total",
            "inner",
            "groups",
            "spread",
            "pairs",
            "onto",
            "batched",
            "scattered",
        )
        left = {"elements": ("p",), "assigned": ("p",), "spread": ("p",), "total": (), "groups": ("g",)}.get(
            form, ("i",)
        ) + dense
        ranges, order, conditions = [self.draw_range()], ["i", "p"], list[Term]()
        op = self.pick(*FOLDS, *FOLDS, "argmin", "argmax")
        place = read("c", index("p")) if form == "scattered" else None
        if form == "batched":
            left, ranges, order = ("b", "j", *dense), [segment("p", "many", "j", "b")], ["b", "j", "p"]
        if form == "scattered":
            left = dense
        if form in ("assigned", "spread", "groups", "pairs"):
            ranges = [segment("p", "ptr", "i")]
        if form in ("spread", "groups"):
            ranges, order = [segment("i", "outer", "g"), *ranges], ["g", *order]
        if form == "pairs":
            ranges, order = [*ranges, segment("q", "ptr", "i")], [*order, "q"]
            left = () if self.is_dense else self.pick(("p", "q"), ("i",), ("p",))
        if form == "inner":
            order.insert(1, "k")
            ends = self.pick((number(0), add(index("i"), number(1))), (number(0), read("m", index("i"))))
            ranges.append(Range("k", *ends))
        order += dense
        if form in ("rows", "total", "inner", "onto") and self.source.random() < 0.35:
            conditions += [self.draw_clause() for _ in range(self.pick(1, 1, 2))]
        if form in ("assigned", "spread"):
            op = "="
        elif form in ("onto", "scattered"):
            op = op if op in FOLDS else "+"
        if "i" in order and "i" not in [r.index for r in ranges] and "0:R" not in ranges[0].text and self.is_declared:
            ranges = [Range("i", number(0), number_named("R")), *ranges]
        exists = [read("ptr", add(index("i"), number(1)))]
        is_bounded = self.is_declared or "i" not in order or any("ptr(i + 1)" in r.text for r in ranges)
        names = set(order)
        value, dtype = self.draw_value(names), dtype_of(self.value)
        if op in ("&&", "||"):
            value = join("{} > {}", operator.gt, value, self.literal(self.source.randint(-2, 2)))
            dtype = dtype_of("bool")
        elif op == "*":
            factors = (2, -1) if dtype.kind == "f" else (1, -1)
            value = choose(join("({} > {})", operator.gt, value, self.literal(0)), *map(self.literal, factors))
        onto = (
            read("r", index("i"))
            if form == "onto" and self.is_declared and left == ("i",) and op in ARITHMETIC | EXTREMES
            else None
        )
        found = [n for n in re.findall(r"\b[bdgijkpq]\b", value.text) if n not in left]
        if op.startswith("arg") and not found:
            op = "max"
        counted = tuple(dict.fromkeys(found)) if op.startswith("arg") else ()
        targets = (name, *(f"{name}_{n}_at" for n in counted))[self.pick(0, min(1, len(counted))) :]
        made = Statement(
            targets,
            left,
            op,
            value,
            tuple(order),
            tuple(ranges),
            tuple(conditions),
            () if is_bounded else tuple(exists),
            dtype,
            onto,
            place,
            counted,
        )
        shape = "" if place is None else f"({PLACES}{', N' * self.is_dense})"
        self.returned += [t if place is None else f"{'bool' if dtype.kind == 'b' else self.value}{shape} {t}" for t in targets]
        self.types |= {t: dtype_of("int64") if t.endswith("_at") else dtype for t in targets}
        self.offer(made)
        return made

    def draw_clause(self) -> Term:
        """One that leaves points out."""
        i, p = index("i"), index("p")
        found = [(">", operator.gt, p, i), ("!=", operator.ne, p, i), ("<", operator.lt, add(i, p), number(9))]
        found += [("<=", operator.le, p, self.small()), (">=", operator.ge, p, self.small()), ("<=", operator.le, i, p)]
        name, apply, a, b = self.pick(*found)
        return join(f"{{}} {name} {{}}", apply, a, b)

    def offer(self, s: Statement) -> None:
        """Let statements behind `s` read it."""
        if s.place is not None or s.targets[0].endswith("_at") or s.left[1:] != ("d",) * self.is_dense:
            return
        whole = all(e.is_loaded or e.names or e.text in ("0", "Z", "R") for r in s.ranges for e in (r.lower, r.upper))
        made = self.element(s.targets[0], *(index(n) for n in s.left[:1]))
        if s.left[:1] == ("i",):
            (self.flags if s.dtype == bool else self.of_rows).append(made if s.dtype == bool else self.clamped(made))
        elif s.left[:1] == ("p",) and whole and s.dtype != bool:
            self.of_elements.append(self.clamped(made))

    # -- data

    def draw_data(self, shape: random.Random, source: random.Random) -> Data:
        """Arguments with sizes from `shape`."""
        rows, z = shape.choice([0, 1, 2, 7, 33]), shape.choice([0, 1, 5, 40, 120])
        if any("q" in s.order for s in self.statements):
            z = min(z, 11)
        n, k, m, groups = shape.choice([1, 3, 9]), 4, shape.choice([1, 3, 8]), shape.choice([1, 2, 5])
        integers = {name: shape.randint(0, 6) for name in self.integers}
        z = z if rows else 0
        held = rows if self.is_declared else rows + 1
        first = [source.randint(0, z) for _ in range(held)]
        values = {"v": (z,), "X": (k,)} if not self.is_dense else {"v": (z, n), "X": (k, n)}
        drawn: dict[str, Any] = {
            **{name: draw_values(source, s) for name, s in {**values, "r": (held,), "M": (m, held)}.items()},
            "c": [source.randrange(k) for _ in range(z)],
            "ptr": draw_partition(source, rows, z),
            "outer": draw_partition(source, groups if rows else 0, rows),
            "first": first,
            "last": [source.randint(0, z) for _ in range(held)],
            "n": [source.randint(0, z - a) for a in first],
            "m": [source.randint(0, m) for _ in range(held)],
        }
        batches, parts = shape.choice([1, 3]), shape.choice([0, 1, 4, 40]) if z else 1
        drawn["many"] = [draw_partition(source, parts, z) for _ in range(batches)]
        if "h" in self.parameters:
            limits = np.iinfo(self.parameters["h"])
            ends = [limits.min, limits.max, limits.max - 1, limits.max // 2, limits.max // 2 + 1]
            drawn["h"] = [source.choice([*ends, *range(min(z, 100) + 1)]) for _ in range(held)]
        arrays = {name: np.array(drawn[name], dtype) for name, dtype in self.parameters.items()}
        if np.dtype(self.parameters.get("v", int)).kind == "f" and source.random() < 0.2:
            arrays["v"][...] = np.where(np.arange(arrays["v"].size).reshape(arrays["v"].shape) % 7 == 3, np.nan, arrays["v"])
        box = {"i": (0, rows), "p": (0, z), "q": (0, z), "d": (0, n), "k": (0, m), "g": (0, len(drawn["outer"]) - 1)}
        box |= {"b": (0, batches), "j": (0, parts)}
        return Data(arrays, integers, box)

    def spoil(self, data: Data, source: random.Random) -> Data:
        """The same with other numbers in an array that bounds, which may be wrong or not."""
        found = [n for n in BOUNDS if n in data.arrays and data.arrays[n].size]
        if not found:
            return data
        name = source.choice(found)
        values = data.arrays[name].astype(object)
        at, limits = tuple(map(source.randrange, values.shape)), np.iinfo(data.arrays[name].dtype)
        change = source.choice([-1, 1, -121, 121, -values[at], None])
        value = source.choice([limits.min, limits.max, limits.max - 1]) if change is None else values[at] + change
        values[at] = min(max(value, limits.min), limits.max)
        return Data({**data.arrays, name: values.astype(data.arrays[name].dtype)}, data.integers, data.box)

    def shapes(self, data: Data) -> dict[str, tuple[int, ...]]:
        """Those of the results, whatever is in the arrays that bound."""
        boxes = [(s, s.cut_box(data.box, dict(data.numbers))) for s in self.statements]
        return {t: s.shape(box) for s, box in boxes for t in s.targets}

    def run(self, data: Data) -> tuple[dict[str, Array], Data]:
        """The results, and the arguments with anything in elements that nothing reads."""
        arrays = {n: Elements(a) for n, a in data.arrays.items()}
        env: Env = {**data.numbers, **arrays}
        boxes = [s.cut_box(data.box, env) for s in self.statements]
        refused = set[str]().union(*(s.check_bounds(box, env) for s, box in zip(self.statements, boxes, strict=True)))
        if refused:
            raise Refused(refused)
        results: dict[str, Array] = {}
        for s, box in zip(self.statements, boxes, strict=True):
            made = s.run(box, env)
            results |= {n: a.astype(self.types[n]) for n, a in made.items()}
            env |= {n: Elements(a) for n, a in made.items()}
        return results, Data({n: a.spoil_unread() for n, a in arrays.items()}, data.integers, data.box)


def draw_values(source: random.Random, shape: tuple[int, ...]) -> Array:
    return np.array([source.randint(-3, 3) for _ in range(math.prod(shape))]).reshape(shape)


def draw_partition(source: random.Random, parts: int, size: int) -> list[int]:
    """Where parts of `size` elements begin and end: random ones, empty ones, one that has nearly everything."""
    if parts == 0:
        return [0]
    some = source.choice(
        [[0, size], [size // 2], [0, size, *range(size + 1)], range(size + 1), [min(1, size), max(0, size - 1)]]
    )
    return [0, *sorted(source.choices(some, k=parts - 1)), size]
