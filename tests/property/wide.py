"""Random ``.tc`` programs over tensors of every element type and of different shapes, one kind of statement after the other.

Where `mixed` multiplies features of float matrices of one size, this one varies what they are made of: element types and
conversions between them, ranks 0 to 3, extents that differ, are 1 or are constants, subscripts that divide, wrap, clamp or come
from data, bounds over other indices, and starting values that the caller gives.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from polyc.frontends.tc.types import TYPE_NAMES
from polyc.ir.halves import narrow
from polyc.ir.types import DType

FLOATS = ("float", "float", "float", "double", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
COMPLEX = ("complex64", "complex128")
EXTENTS = ("N", "N", "N", "M", "M", "3", "1")

MONOIDS = {
    "smaller": ("monoid smaller(double a, double b) -> (c = inf) { c = a < b || a != a ? a : b }", ("double",)),
    "peak": ("monoid peak(int32 a, int32 b) -> (c = 1) { c = a * b }", ("int32",)),
    "spread": (
        "monoid spread(float a, float b, float x, float y) -> (low = inf, high = -inf) { low = min(a, x)  high = max(b, y) }",
        ("float", "float"),
    ),
    "count": (
        "monoid count(float a, int32 n, float x, int32 m) -> (total = 0.0, k = 0) { total = a + x  k = n + m }",
        ("float", "int32"),
    ),
}


@dataclass(frozen=True)
class Made:
    """A tensor of the program: its name, the type's word and its extents; `is_exact` where no rounding went into it."""

    name: str
    kind: str
    shape: tuple[str, ...]
    is_exact: bool = True

    @property
    def dtype(self) -> DType:
        return TYPE_NAMES[self.kind]


@dataclass
class Draft:
    """A program in the making."""

    source: random.Random
    tensors: list[Made] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    monoids: list[str] = field(default_factory=list)
    accumulated: list[Made] = field(default_factory=list)
    """Results that start from what the caller gives."""
    n_names: int = 0

    def name(self) -> str:
        self.n_names += 1
        return f"T{self.n_names}"

    def chance(self, p: float) -> bool:
        return self.source.random() < p

    def pick(self, choices: Sequence[str]) -> str:
        return self.source.choice(choices)

    def tensor(self, wanted: Callable[[Made], bool] = lambda t: True) -> Made | None:
        found = [t for t in self.tensors if wanted(t)]
        return self.source.choice(found) if found else None

    def add(self, name: str, kind: str, shape: Sequence[str], *lines: str, is_exact: bool = True) -> Made:
        made = Made(name, kind, tuple(shape), is_exact)
        self.lines += lines
        self.tensors.append(made)
        return made

    # --- Subscripts and reads

    def subscript(self, extent: str, indices: dict[str, str]) -> str:
        """An expression over `indices` (each from 0 to its extent) that is a position of a dimension of `extent`."""
        same = [i for i, e in indices.items() if e == extent]
        if same and self.chance(0.75):
            i = self.pick(same)
            forms = [i] * 6 + [f"{extent} - 1 - {i}", f"{i} / 2", f"({i} + 1) % {extent}", f"min({i}, {extent} - 1)"]
            return self.pick(forms)
        if extent in ("1", "3") and (not indices or self.chance(0.5)):
            return str(self.source.randrange(int(extent)))
        if not indices:
            return self.pick(["0", f"{extent} - 1", f"{extent} / 2"])
        i = self.pick(list(indices))
        keys = [t for t in self.tensors if t.name.startswith("key") and t.shape == (indices[i],)]
        if keys and self.chance(0.5):
            return f"min({keys[0].name}({i}), {extent} - 1)"
        shift = self.pick(["", " + 1", " + 2"])
        return self.pick(
            [f"({i}{shift}) % {extent}", f"min({i}{shift}, {extent} - 1)", f"max(min({i}{shift} - 1, {extent} - 1), 0)"]
        )

    def read(self, t: Made, indices: dict[str, str]) -> str:
        """An element of `t`: in place, padded, or guarded."""
        subscripts = [self.subscript(e, indices) for e in t.shape]
        if not subscripts:
            return t.name
        kind = self.source.random()
        if kind < 0.75 or not indices:
            return f"{t.name}({', '.join(subscripts)})"
        d = self.source.randrange(len(subscripts))
        i = self.pick(list(indices))
        moved = self.pick([f"{i} + 1", f"{i} - 1", f"{i} - 2", f"2 * {i}", f"2 - {i}"])
        subscripts[d] = moved
        inner = f"{t.name}({', '.join(subscripts)})"
        value = self.literal(t.kind)
        if kind < 0.9:
            return f"pad({inner}, {self.pick(['clamp', 'wrap', 'reflect', value, value])})"
        return f"({moved} >= 0 && {moved} < {t.shape[d]} ? {inner} : {value})"

    def literal(self, kind: str) -> str:
        if kind == "bool":
            return self.pick(["(1 < 2)", "(1 > 2)"])
        if kind in INTEGERS:
            return f"{kind}({self.source.randrange(5)})"
        return f"{kind}({self.pick(['0.5', '0.25', '1.0', '0.0'])})"

    # --- Values

    def convert(self, text: str, old: str, new: str) -> str:
        """`text` of type `old` as `new`, by a conversion that has a meaning for all values."""
        if old == new:
            return text
        if new == "bool":
            return f"({text} != {self.literal(old)})"
        if old in COMPLEX and new not in COMPLEX:
            return self.convert(f"real({text})", "float" if old == "complex64" else "double", new)
        if old in FLOATS and new in INTEGERS:
            return f"{new}({text} > {old}(0.5) ? 1 : 0)"
        return f"{new}({text})"

    def operand(self, kind: str, indices: dict[str, str], exact: bool) -> str:
        """A value of type `kind`; `exact` where it decides about something."""
        t = self.tensor(
            lambda t: t.is_exact or not (exact or (t.kind in (*FLOATS, *COMPLEX) and kind not in (*FLOATS, *COMPLEX)))
        )
        roll = self.source.random()
        if t is None or roll < 0.1:
            return self.literal(kind)
        if roll < 0.2 and indices and kind not in ("bool", *COMPLEX):
            i = self.pick(list(indices))
            return (
                f"{kind}({self.pick([i, f'{i} % 3', f'{i} / 2', f'{i} * {i}', f'N - {i}'])})"
                if kind not in ("uint8", "uint16", "uint32", "uint64", "int8")
                else f"{kind}({i} % 3)"
            )
        return self.convert(self.read(t, indices), t.kind, kind)

    def condition(self, indices: dict[str, str]) -> str:
        t = self.tensor(lambda t: t.is_exact and t.kind not in COMPLEX)
        forms = []
        if len(indices) > 1:
            i, j = self.source.sample(list(indices), 2)
            forms += [f"{i} <= {j}", f"{i} + {j} < N", f"({i} + {j}) % 2 == 0", f"{i} != {j}"]
        if indices:
            i = self.pick(list(indices))
            forms += [f"{i} % 2 == 0", f"{i} > 1", f"{i} * 2 < N"]
        if t is not None:
            value = self.read(t, indices)
            forms += [value if t.kind == "bool" else f"{value} {self.pick(['<', '>=', '==', '!='])} {self.literal(t.kind)}"] * 2
        if not forms:
            return "N > 2"
        text = self.pick(forms)
        if self.chance(0.2):
            return f"!({text})"
        if self.chance(0.2):
            return f"{text} {self.pick(['&&', '||'])} {self.condition(indices)}"
        return text

    def value(self, kind: str, indices: dict[str, str], depth: int = 2, exact: bool = False) -> str:
        """An expression of type `kind`."""
        if depth == 0 or self.chance(0.2):
            return self.operand(kind, indices, exact)
        if kind == "bool":
            return f"({self.condition(indices)})"
        a = self.value(kind, indices, depth - 1, exact)
        b = self.value(kind, indices, depth - 1, exact)
        if self.chance(0.15):
            return f"({self.condition(indices)} ? {a} : {b})"
        if kind in INTEGERS:
            forms = ["{a} + {b}", "{a} - {b}", "{a} * {b}", "min({a}, {b})", "max({a}, {b})", "{a} / {b}", "{a} % {b}", "-{a}"]
        elif kind in COMPLEX:
            forms = ["{a} + {b}", "{a} - {b}", "{a} * {b}", "conj({a})", "-{a}"]
        else:
            forms = ["{a} + {b}", "{a} - {b}", "{a} * {b}", "min({a}, {b})", "max({a}, {b})", "-{a}", "fabs({a})"]
            if not exact:
                forms += ["tanh({a})", "sqrt(fabs({a}))", "{a} / ({one} + fabs({b}))", "fmax({a}, {b})", "floor({x}) + {b}"]
        one, x = f"{kind}(1.5)", self.operand(kind, indices, True)
        text = self.pick(forms).format(a=a, b=b, one=one, x=x)
        return f"{kind}({text})"

    def uses(self, text: str, kind: str, *indices: str) -> str:
        """`text` of type `kind`, made to mention all of `indices`."""
        for i in indices:
            if not re.search(rf"\b{i}\b", text):
                text = f"({i} >= 0 ? {text} : {self.literal(kind)})"
        return text

    def where(self, indices: dict[str, str]) -> str:
        """Ranges of all indices."""
        return " where " + ", ".join(f"{i} in 0:{e}" for i, e in indices.items()) if indices else ""

    def box(self, rank: int | None = None, names: str = "ijk") -> dict[str, str]:
        rank = self.source.choice([0, 1, 1, 2, 2, 2, 3]) if rank is None else rank
        return {i: self.pick(EXTENTS) for i in names[:rank]}

    def kind(self, *more: str) -> str:
        return self.pick([*FLOATS, *INTEGERS, "bool", *COMPLEX, *more])


def left(name: str, subscripts: Sequence[str]) -> str:
    return f"{name}({', '.join(subscripts)})" if subscripts else name


def elements(d: Draft) -> None:
    t, kind, box = d.name(), d.kind(), d.box()
    exact = d.chance(0.5)
    order = list(box)
    d.source.shuffle(order)
    value = d.value(kind, box, 3, exact)
    d.add(
        t,
        kind,
        [box[i] for i in order],
        f"{left(t, order)} = {value}{d.where(box)}",
        is_exact=exact and kind not in ("float16", "bfloat16"),
    )


def bound_clause(d: Draft, inner: str, extent: str, outer: dict[str, str]) -> str:
    """A range of `inner` within 0 and `extent` that another index may decide."""
    same = [i for i, e in outer.items() if e == extent]
    if same and d.chance(0.7):
        i = d.pick(same)
        return d.pick(
            [
                f"{inner} in {i}:{extent}",
                f"{inner} in 0:{i}+1",
                f"{inner} in max({i} - 2, 0):min({i} + 3, {extent})",
                f"{inner} in 0:{i}",
            ]
        )
    return f"{inner} in {d.pick(['0', '0', extent + ' / 2', extent + ' / 3'])}:{extent}"


def reductions(d: Draft) -> None:
    t, kind = d.name(), d.kind()
    outer = d.box(d.source.choice([0, 1, 1, 2]))
    inner = {i: d.pick(EXTENTS) for i in ("r", "s")[: d.source.choice([1, 1, 2])]}
    every = {**outer, **inner}
    if kind == "bool":
        op = d.pick(["&&=!", "||=!"])
    elif kind in COMPLEX:
        op = d.pick(["+=!", "+=!", "*=!"])
    elif kind == "float16":
        op = d.pick(["+=!", "max=!", "min=!"])
    else:
        op = d.pick(["+=!", "+=!", "max=!", "min=!", "*=!"])
    value = d.value(kind, every, 2, True)
    if op == "*=!" and kind not in INTEGERS:
        value = f"({kind}(1.0) + {value} * {kind}(0.125))"
    value = d.uses(value, kind, *inner)
    clauses = [f"{i} in 0:{e}" for i, e in outer.items()] + [bound_clause(d, i, e, outer) for i, e in inner.items()]
    if d.chance(0.3) and len(every) > 1:
        i, j = d.source.sample(list(every), 2)
        clauses.append(
            d.pick(
                [f"{i} <= {j}", f"{i} != {j}", f"{i} + {j} < N", f"({i} + {j}) % 2 == 0", f"{i} == {j}", f"{i} + 2 * {j} >= M"]
            )
        )
    text = f"{left(t, list(outer))} {op} {value} where {', '.join(clauses)}"
    if kind in (*INTEGERS, "bool"):
        d.add(t, kind, list(outer.values()), text)
        return
    # infinities of an empty maximum, and sums that grow, stay out of what follows
    u = d.name()
    clamped = f"{t}{'(' + ', '.join(outer) + ')' if outer else ''}"
    tame = clamped + f" * {kind}(0.0625)" if kind in COMPLEX else f"{kind}(max(min({clamped}, {kind}(4.0)), {kind}(-4.0)))"
    d.add(t, kind, list(outer.values()), text, is_exact=False)
    d.add(u, kind, list(outer.values()), f"{left(u, list(outer))} = {tame}", is_exact=False)


def continued(d: Draft) -> None:
    """Several reductions into one tensor, which starts from an assignment or from what the caller gives."""
    t, kind = d.name(), d.pick([*FLOATS, *INTEGERS])
    outer = d.box(d.source.choice([0, 1, 1, 2]))
    made = Made(t, kind, tuple(outer.values()), False)
    given = d.chance(0.4)
    if not given:
        d.lines.append(f"{left(t, list(outer))} = {d.value(kind, outer, 1, True)}{d.where(outer)}")
    else:
        d.accumulated.append(made)
    for _ in range(d.source.choice([1, 1, 2])):
        op = d.pick(["+=", "max=", "min="])
        every = {**outer, "r": d.pick(EXTENTS)} if d.chance(0.7) else outer
        if not given or every != outer or op:
            d.lines.append(f"{left(t, list(outer))} {op} {d.uses(d.value(kind, every, 1, True), kind, *every)}{d.where(every)}")
    d.tensors.append(made)


def scattered(d: Draft) -> None:
    kind = d.pick([*FLOATS, *INTEGERS, "bool", *COMPLEX])
    key = d.tensor(lambda t: t.name.startswith("key"))
    base = d.tensor(lambda t: t.kind == kind and len(t.shape) > 0 and t.is_exact)
    if key is None or base is None:
        return
    t = d.name()
    indices = [f"i{k}" for k in range(len(base.shape))]
    op = {"bool": d.pick(["&&=", "||="])}.get(kind) or ("+=" if kind in COMPLEX else d.pick(["+=", "+=", "max=", "min="]))
    outer = {"i": key.shape[0]}
    places = [f"max(min({key.name}(i), {base.shape[0]} - 1), 0)"]
    for d_ in range(1, len(base.shape)):
        if d.chance(0.5):
            outer[f"c{d_}"] = base.shape[d_]
            places.append(f"c{d_}")
        else:
            places.append(f"{base.shape[d_]} - 1")
    d.add(
        t,
        kind,
        base.shape,
        f"{left(t, indices)} = {left(base.name, indices)}",
        f"{left(t, places)} {op} {d.uses(d.value(kind, outer, 1, True), kind, *outer)}{d.where(outer)}",
        is_exact=False,
    )


def positions(d: Draft) -> None:
    kind = d.pick([*FLOATS, *INTEGERS])
    outer = d.box(d.source.choice([0, 1, 1, 2]))
    inner = {i: d.pick(EXTENTS) for i in ("r", "s")[: d.source.choice([1, 1, 2])]}
    names = [d.name() for _ in inner]
    targets = [left(n, list(outer)) for n in names]
    with_value = d.chance(0.5)
    v = d.name()
    if with_value:
        targets.insert(0, left(v, list(outer)))
    head = f"({', '.join(targets)})" if len(targets) > 1 else targets[0]
    clauses = [f"{i} in 0:{e}" for i, e in {**outer, **inner}.items()]
    if d.chance(0.3) and outer:
        clauses.append(f"r {d.pick(['<=', '>=', '!='])} {d.pick(list(outer))}")
    value = d.uses(d.value(kind, {**outer, **inner}, 1, True), kind, *inner)
    d.lines.append(f"{head} {d.pick(['argmax', 'argmin'])}=! {value} where {', '.join(clauses)}")
    shape = tuple(outer.values())
    for n in names:
        d.tensors.append(Made(n, "int64", shape, False))  # exact, but hardly a good subscript
    if with_value and kind not in ("float16", "bfloat16"):  # those are float where the value is computed, else themselves
        d.tensors.append(Made(v, kind, shape, False))


def combined(d: Draft) -> None:
    word = d.pick(list(MONOIDS))
    text, kinds = MONOIDS[word]
    if text not in d.monoids:
        d.monoids.append(text)
    outer = d.box(d.source.choice([0, 1, 1, 2]))
    inner = {"r": d.pick(EXTENTS)}
    every = {**outer, **inner}
    names = [d.name() for _ in kinds]
    targets = [left(n, list(outer)) for n in names]
    values = [d.uses(d.value(k, every, 1, True), k, "r") for k in kinds]
    clauses = [f"{i} in 0:{e}" for i, e in outer.items()] + [bound_clause(d, i, e, outer) for i, e in inner.items()]
    many = len(kinds) > 1
    head, value = (f"({', '.join(x)})" if many else x[0] for x in (targets, values))
    d.lines.append(f"{head} {word}=! {value} where {', '.join(clauses)}")
    for n, k in zip(names, kinds, strict=True):
        d.tensors.append(Made(n, k, tuple(outer.values()), False))


def concatenated(d: Draft) -> None:
    """One tensor of several parts: behind each other, interleaved, reversed or a diagonal apart."""
    t, kind, e = d.name(), d.pick([*FLOATS, *INTEGERS, "bool", *COMPLEX]), d.pick(["N", "M"])
    i = {"i": e}
    values = [d.value(kind, i, 1, True) for _ in range(3)]
    match d.source.randrange(5):
        case 0:
            d.add(t, kind, [f"2 * {e}"], *(f"{t}(2 * i + {k}) = {values[k]} where i in 0:{e}" for k in (0, 1)))
        case 1:
            d.add(
                t,
                kind,
                [f"({e} + {e})"],
                f"{t}(i) = {values[0]} where i in 0:{e}",
                f"{t}({e} + {e} - 1 - i) = {values[1]} where i in 0:{e}",
            )
        case 2:
            i = {"i": e, "j": "3"}
            first, second = (d.value(kind, i, 1, True) for _ in range(2))
            d.add(
                t,
                kind,
                [e, "6"],
                f"{t}(i, j) = {first} where i in 0:{e}, j in 0:3",
                f"{t}(i, 5 - j) = {second} where i in 0:{e}, j in 0:3",
            )
        case 3:
            i = {"i": e, "j": e}
            d.add(
                t,
                kind,
                [e, e],
                f"{t}(i, j) = {d.value(kind, i, 1, True)} where i in 0:{e}, j in 0:{e}, i < j",
                f"{t}(i, i) = {values[0]} where i in 0:{e}",
                f"{t}(i, j) = {d.value(kind, i, 1, True)} where i in 0:{e}, j in 0:{e}, i > j",
            )
        case _:
            d.add(t, kind, ["3", e], *(f"{t}({k}, i) = {values[k]} where i in 0:{e}" for k in range(3)))


def recurred(d: Draft) -> None:
    kind, e = (
        d.pick(["float", "float", "double", "int32", "int64", "bfloat16", "uint8", "complex64", "bool"]),
        d.pick(["N", "M"]),
    )
    t = d.name()
    if kind == "bool":
        first, step = d.value(kind, {}, 1, True), f"{t}(i - 1) {d.pick(['&&', '||'])} {d.value(kind, {'i': e}, 1, True)}"
    else:
        half = f"{kind}(0.5)" if kind not in INTEGERS else f"{kind}(3)"
        x = d.value(kind, {"i": e}, 1, True)
        first = d.value(kind, {}, 1, True)
        steps = [f"{t}(i - 1) + {x}", f"{t}(i - 1) * {half} + {x}", f"{t}(i - 1) * {x}"]
        if kind not in COMPLEX:
            steps += [
                f"max({t}(i - 1), {x})",
                f"min({t}(i - 1) - {half}, {x})",
                f"({d.condition({'i': e})} ? {t}(i - 1) : {x})",
            ]
        steps += [f"i > 1 ? {t}(i - 2) * {half} + {x} : {x}"]
        step = d.pick(steps)
    if d.chance(0.4):
        row = {"i": e, "j": d.pick(EXTENTS)}
        step = step.replace(f"{t}(i - 1)", f"{t}(i - 1, j)").replace(f"{t}(i - 2)", f"{t}(i - 2, j)")
        d.add(
            t,
            kind,
            [e, row["j"]],
            f"{t}(0, j) = {d.value(kind, {'j': row['j']}, 1, True)} where j in 0:{row['j']}",
            f"{t}(i, j) = {step} where i in 1:{e}, j in 0:{row['j']}",
            is_exact=False,
        )
    elif d.chance(0.2):  # from the end
        back = step.replace("(i - 1)", "(i + 1)").replace("(i - 2)", "(i + 2)").replace("i > 1", f"i < {e} - 2")
        d.add(t, kind, [e], f"{t}({e} - 1) = {first}", f"{t}(i) = {back} where i in 0:{e} - 1", is_exact=False)
    else:
        d.add(t, kind, [e], f"{t}(0) = {first}", f"{t}(i) = {step} where i in 1:{e}", is_exact=False)


def grids(d: Draft) -> None:
    """Dynamic programming over two indices, whole or a triangle of it."""
    t, kind, e, f = d.name(), d.pick(["float", "int32", "double", "int64"]), d.pick(["N", "M"]), d.pick(["N", "M"])
    box = {"i": e, "j": f}
    x = d.value(kind, box, 1, True)
    one = f"{kind}(1)" if kind in INTEGERS else f"{kind}(0.25)"
    steps = [
        f"max({t}(i - 1, j), {t}(i, j - 1)) + {x} * {one}",
        f"min(min({t}(i - 1, j) + {one}, {t}(i, j - 1) + {one}), {t}(i - 1, j - 1) + {x})",
        f"({d.condition(box)} ? {t}(i - 1, j - 1) + {one} : max({t}(i - 1, j), {t}(i, j - 1)))",
    ]
    d.add(
        t,
        kind,
        [e, f],
        f"{t}(0, j) = {d.value(kind, {'j': f}, 1, True)} where j in 0:{f}",
        f"{t}(i, 0) = {d.value(kind, {'i': e}, 1, True)} where i in 1:{e}",
        f"{t}(i, j) = {d.pick(steps)} where i in 1:{e}, j in 1:{f}",
        is_exact=False,
    )


def inferred(d: Draft) -> None:
    """Ranges that follow from what is read, which may not start at 0."""
    t = d.tensor(lambda t: len(t.shape) in (1, 2) and all(e in ("N", "M") for e in t.shape))
    if t is None:
        return
    a, b = d.name(), d.name()
    last = ", j" if len(t.shape) == 2 else ""
    form = d.pick(
        [
            f"{a}(i{last}) = {t.name}(i - 3{last})",
            f"{a}(i{last}) = {t.name}(i + 2{last})",
            f"{a}(i{last}) = {t.name}(2 * i{last})",
            f"{a}(i{last}) = {t.name}({t.shape[0]} - 1 - i{last})",
        ]
    )
    d.lines.append(form)
    if t.kind in ("bool",):
        d.lines.append(f"{b} ||=! {a}(i{last})")
    elif t.kind in COMPLEX or t.kind in FLOATS:
        d.lines.append(f"{b} +=! {a}(i{last}) * {t.kind}(0.125)")
    else:
        d.lines.append(f"{b} +=! {a}(i{last})")
    d.tensors.append(Made(b, t.kind, (), t.is_exact and t.kind in (*INTEGERS, "bool")))


def lets(d: Draft) -> None:
    t, kind, box = d.name(), d.pick([*FLOATS, *INTEGERS]), d.box(d.source.choice([1, 2]))
    value = d.value(kind, box, 2, True)
    square = d.pick(["z * z", "z + z", "max(z, z)", "z - z"])
    d.add(
        t, kind, list(box.values()), f"{left(t, list(box))} = {square} where z = {value}, " + d.where(box)[7:], is_exact=False
    )


def windows(d: Draft) -> None:
    """Sums, maxima and minima over windows whose reads are padded twice over."""
    x = d.tensor(lambda t: len(t.shape) == 2 and t.kind not in ("bool", *COMPLEX))
    if x is None:
        return
    t = d.name()
    mode, other = (d.pick(["clamp", "wrap", "reflect", "symmetric", d.literal(x.kind)]) for _ in range(2))
    step, shift = d.pick(["", "2 * "]), d.pick(["- 1", "- 2", "+ 1", "- 5"])
    op = d.pick(["+=!", "max=!", "min=!"])
    e, f = x.shape
    read = f"pad({x.name}({step}i + r {shift}, j), {mode})"
    scale = f" * {x.kind}(0.25)" if x.kind in FLOATS and op == "+=!" else ""
    h, u = d.name(), d.name()
    d.add(h, x.kind, x.shape, f"{h}(i, j) {op} {read}{scale} where i in 0:{e}, j in 0:{f}, r in 0:3", is_exact=False)
    d.add(
        u,
        x.kind,
        x.shape,
        f"{u}(i, j) {op} pad({h}(i, j + s {shift}), {other}){scale} where i in 0:{e}, j in 0:{f}, s in 0:3",
        is_exact=False,
    )
    del t


def contracted(d: Draft) -> None:
    kind = d.pick(["float", "float", "double", "float16", "bfloat16", "complex64", "complex128", "int32", "int64"])
    t, n, m, k = d.name(), d.pick(EXTENTS), d.pick(EXTENTS), d.pick(EXTENTS)
    box = {"i": n, "j": m, "r": k}
    a, b = (d.operand(kind, {x: box[x] for x in pair}, True) for pair in (("i", "r"), ("r", "j")))
    a = d.uses(a, kind, "r")
    scale = "" if kind in INTEGERS else f" * {kind}(0.125)"
    cond = d.pick(["", "", "", ", r <= i", ", r >= j", ", i != j"])
    d.add(t, kind, [n, m], f"{t}(i, j) +=! {a} * {b}{scale}{d.where(box)}{cond}", is_exact=False)


def called(d: Draft) -> None:
    """A definition of its own, over the element type and the extents that it is given."""
    x = d.tensor(lambda t: len(t.shape) == 2 and t.kind not in ("bool", *COMPLEX))
    if x is None:
        return
    t, s, f = d.name(), d.name(), f"g{d.n_names}"
    half = f"{x.kind}(2)" if x.kind in INTEGERS else f"{x.kind}(0.5)"
    inner = d.pick(
        [
            f"X(p, q) * {half}",
            f"pad(X(p - 1, q), {d.pick(['clamp', 'wrap', d.literal(x.kind)])})",
            "X(p, Q - 1 - q)",
            "max(X(p, q), low(p))",
        ]
    )
    d.monoids.append(
        f"def {f}({x.kind}(P, Q) X, {x.kind} a) -> (Y, low) {{\n  low(p) min=! X(p, q)\n  Y(p, q) = {x.kind}({inner} + a)"
        f" where p in 0:P, q in 0:Q\n}}"
    )
    arg = f"{x.kind}({d.source.randrange(3)})"
    d.lines.append(f"({t}, {s}) = {f}({x.name}, {arg})")
    d.tensors.append(Made(t, x.kind, x.shape, x.kind in INTEGERS))
    if x.kind in INTEGERS:
        d.tensors.append(Made(s, x.kind, x.shape[:1], True))
    else:
        u = d.name()
        d.add(u, x.kind, x.shape[:1], f"{u}(i) = max(min({s}(i), {x.kind}(4.0)), {x.kind}(-4.0))", is_exact=False)


def partly_read(d: Draft) -> None:
    """A temporary of which only the elements that are read later have a value."""
    t, u, kind, e = d.name(), d.name(), d.pick([*FLOATS, *INTEGERS, "bool", "complex64"]), d.pick(["N", "M"])
    box = {"i": e, "j": e}
    value = d.value(kind, box, 1, True)
    if d.chance(0.3):
        line = f"{t}(2 * i) = {d.value(kind, {'i': e}, 1, True)} where i in 0:{e}"
        other = d.literal(kind)
        read = f"i % 2 == 0 ? {t}(i) : {other}" if d.chance(0.5) else f"{t}(2 * i)"
        d.add(u, kind, [e], line, f"{u}(i) = {read} where i in 0:{e}", is_exact=False)
        return
    relation = d.pick(["i <= j", "j < i", "i + j < N", "(i + j) % 2 == 0"])
    d.lines.append(f"{t}(i, j) = {value} where i in 0:{e}, j in 0:{e}, {relation}")
    form = d.source.randrange(3)
    if form == 0:
        d.add(
            u,
            kind,
            [e, e],
            f"{u}(i, j) = {relation} ? {t}(i, j) : {d.literal(kind)} where i in 0:{e}, j in 0:{e}",
            is_exact=False,
        )
    elif form == 1:
        guard = f"({d.condition(box)}) && {relation}"
        d.add(
            u, kind, [e, e], f"{u}(i, j) = {guard} ? {t}(i, j) : {d.literal(kind)} where i in 0:{e}, j in 0:{e}", is_exact=False
        )
    elif kind == "bool":
        d.add(u, kind, [e], f"{u}(i) ||=! {t}(i, j) where {relation}", is_exact=False)
    else:
        factor = d.operand(kind, {"j": e, "k": "M"}, True)
        scale = "" if kind in INTEGERS else f" * {kind}(0.125)"
        k = d.uses(factor, kind, "k")
        d.add(
            u,
            kind,
            [e, "M"],
            f"{u}(i, k) +=! {t}(i, j) * {k}{scale} where i in 0:{e}, j in 0:{e}, k in 0:M, {relation}",
            is_exact=False,
        )


def guarded_recurrence(d: Draft) -> None:
    """A recurrence whose first elements both an index and data guard."""
    t, kind, e = d.name(), d.pick(["float", "double", "int32"]), d.pick(["N", "M"])
    i = {"i": e}
    x, more = d.value(kind, i, 1, True), d.condition(i)
    step = d.pick([1, 2])
    read = f"{t}(i - {step}) * {kind}(0.5)" if kind != "int32" else f"{t}(i - {step})"
    forms = [
        f"i >= {step} && ({more}) ? {read} + {x} : {x}",
        f"({more}) && i > {step - 1} ? {read} + {x} : {x}",
        f"i < {step} || ({more}) ? {x} : {read} + {x}",
        f"!(({more}) && i >= {step}) ? {x} : {read}",
        f"i >= {step} && ({more}) ? min({read}, {x}) : {x}",
    ]
    d.add(t, kind, [e], f"{t}(i) = {d.pick(forms)} where i in 0:{e}", is_exact=False)


def again(d: Draft) -> None:
    """A name assigned anew from its old elements."""
    t = d.tensor(lambda t: len(t.shape) in (1, 2) and set(t.shape) <= {"N", "M", "3", "1"} and t.kind != "bool")
    if t is None:
        return
    u, indices = d.name(), list("ij"[: len(t.shape)])
    box = dict(zip(indices, t.shape, strict=True))
    turned = [f"{e} - 1 - {i}" for i, e in box.items()]
    d.add(
        u,
        t.kind,
        t.shape,
        f"{left(u, indices)} = {left(t.name, indices)}",
        f"{left(u, indices)} = {t.kind}({left(u, turned)} + {d.operand(t.kind, box, True)})",
        is_exact=False,
    )


FEATURES: tuple[Callable[[Draft], None], ...] = (
    *(elements, elements, elements, reductions, reductions, reductions, continued, scattered, positions, combined),
    *(concatenated, recurred, recurred, grids, inferred, lets, windows, contracted, contracted, again, called),
    *(partly_read, partly_read, guarded_recurrence),
)


def make_program(source: random.Random, most: int = 4) -> tuple[str, list[Made], list[Made]]:
    """The text of a program `f`, its parameters, and the results that continue from what the caller gives."""
    d = Draft(source)
    for k in range(source.choice([2, 3, 4])):
        shape = [source.choice(EXTENTS) for _ in range(source.choice([0, 1, 1, 2, 2, 2, 3]))]
        d.tensors.append(Made(f"A{k}", d.kind("float", "float", "float"), tuple(shape)))
    d.tensors.append(Made("A8", "float", ("N", "M")))  # gives both sizes
    d.tensors.append(Made("keys", source.choice(["int32", "int64", "uint8", "int16"]), (source.choice(["N", "M"]),)))
    parameters = list(d.tensors)
    while not d.lines:
        for _ in range(source.randint(1, most)):
            source.choice(FEATURES)(d)
    made = [t for t in d.tensors if t not in parameters]
    results = dict.fromkeys(
        t.name for t in (made[-1], *d.accumulated, *source.sample(made, min(len(made), source.randint(1, 3))))
    )
    declared = ", ".join(f"{t.kind}({', '.join(t.shape)}) {t.name}" if t.shape else f"{t.kind} {t.name}" for t in parameters)
    kinds = {t.name: t for t in d.accumulated}
    shown = ", ".join(
        f"{kinds[r].kind}{'(' + ', '.join(kinds[r].shape) + ')' if kinds[r].shape else ''} {r}" if r in kinds else r
        for r in results
    )
    body = "\n".join(f"  {line}" for line in d.lines)
    text = "".join(f"{m}\n" for m in d.monoids) + f"def f({declared}) -> ({shown}) {{\n{body}\n}}\n"
    return text, parameters, d.accumulated


def make_array(rng: np.random.Generator, made: Made, sizes: dict[str, int], special: bool) -> np.ndarray:
    """Values that float16 holds exactly; with `special`, some are infinite, NaN or the ends of the type."""
    shape = tuple(sizes.get(e, 0) if e in sizes else int(e) for e in made.shape)
    dtype = made.dtype
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape), bool)
    if made.name == "keys":
        return np.asarray(rng.integers(0, 5, shape)).astype(dtype.numpy)
    if dtype.is_integer:
        values = np.asarray(rng.integers(-9 if dtype.is_signed else 0, 10, shape)).astype(dtype.numpy)
        ends = np.array([np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max], dtype.numpy)
        return np.where(rng.random(shape) < 0.1, rng.choice(ends, shape), values) if special else values
    values = np.asarray(rng.integers(-16, 17, shape) / 8)
    if special and not dtype.is_complex:
        values = np.where(rng.random(shape) < 0.1, rng.choice([np.nan, np.inf, -np.inf, -0.0], shape), values)
    if dtype.is_complex:
        values = values + 1j * rng.integers(-16, 17, shape) / 8
    return narrow(values, dtype) if dtype.is_storage else values.astype(dtype.numpy)


LAYOUTS: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda a: a,
    lambda a: np.asfortranarray(a),
    lambda a: a[::-1] if a.ndim else a,
    lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    lambda a: np.repeat(a[..., ::-1], 3, axis=-1)[..., ::-3] if a.ndim else a,
    lambda a: np.broadcast_to(a[:1], a.shape) if a.ndim and a.shape[0] else a,
]


def make_arrays(
    source: random.Random, parameters: Sequence[Made], accumulated: Sequence[Made], sizes: dict[str, int]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Inputs, some of them in unusual layouts, and what the accumulated results start from."""
    rng = np.random.default_rng(source.randrange(1 << 30))
    special = source.random() < 0.2
    arrays = {}
    for made in parameters:
        layout = source.choices(LAYOUTS, [14, 2, 2, 2, 2, 1])[0]
        arrays[made.name] = layout(make_array(rng, made, sizes, special))
    return arrays, {made.name: make_array(rng, made, sizes, False) for made in accumulated}
