"""Random ``.tc`` programs of three kinds, each around one difficulty: results that may lie over inputs, left sides in which
terms of a sum meet or leave gaps, and points of a few components."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sketch:
    """A program; the type's word and the extents of each parameter, and the sizes."""

    text: str
    parameters: dict[str, tuple[str, tuple[str, ...]]]
    sizes: dict[str, int]

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.sizes[e] if e in self.sizes else int(e) for e in self.parameters[name][1])


@dataclass
class _Draft:
    kind: str
    lines: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    def finish(
        self, source: random.Random, parameters: dict[str, tuple[str, tuple[str, ...]]], sizes: dict[str, int]
    ) -> Sketch:
        """The program that returns the last tensor, those that nobody reads and some others."""
        read = " ".join(line.split("=", 1)[1] for line in self.lines)
        results = [t for t in self.made if t == self.made[-1] or f"{t}(" not in read or source.random() < 0.3]
        arguments = ", ".join(f"{kind}({', '.join(shape)}) {name}" for name, (kind, shape) in parameters.items())
        text = f"def f({arguments}) -> ({', '.join(results)}) {{\n  " + "\n  ".join(self.lines) + "\n}"
        return Sketch(text, parameters, sizes)


def draw_size(source: random.Random, high: int) -> int:
    """A number from 1 to `high`, small ones as often as large ones."""
    return round(high ** source.random())


def pipeline(source: random.Random) -> Sketch:
    """Steps that keep the shape of two inputs."""
    kind, rank = (
        source.choice(["float", "float", "double", "int32", "uint8", "float16", "complex64"]),
        source.choice([1, 2, 2, 3]),
    )
    is_square = source.random() < 0.4
    names = ["N"] * rank if is_square else list("NMK"[:rank])
    sizes = {n: draw_size(source, {1: 300, 2: 70, 3: 20}[rank]) for n in names}
    indices = list("ijk"[:rank])
    every = ", ".join(indices)
    where = " where " + ", ".join(f"{i} in 0:{n}" for i, n in zip(indices, names, strict=True))
    draft, have = _Draft(kind), ["A", "B"]
    forms = "point row shift back turn scan triangle half stencil".split() + ["extreme", "choice"] * (kind != "complex64")
    for step in range(source.randint(1, 4)):
        t, u, a, b = f"T{step}", f"U{step}", source.choice(have[-2:]), source.choice(have)
        d = source.randrange(rank)
        i, n, others = indices[d], names[d], [x for e, x in enumerate(indices) if e != d]

        def at(tensor: str, subscript: str, d: int = d) -> str:
            return f"{tensor}({', '.join(subscript if e == d else x for e, x in enumerate(indices))})"

        row = f"{u}({', '.join(others)})" if others else u
        match source.choice(forms):
            case "row":
                draft.lines += [f"{row} +=! {a}({every}){where}", f"{t}({every}) = {b}({every}) - {row}{where}"]
            case "extreme":
                draft.lines += [f"{row} max=! {a}({every}){where}", f"{t}({every}) = {b}({every}) - {row}{where}"]
            case "choice":
                draft.lines.append(f"{t}({every}) = {a}({every}) > {b}({every}) ? {a}({every}) : {kind}(2)")
            case "shift":
                border = source.choice([f"{kind}(1)", "clamp", "wrap"])
                moved = at(a, f"{i} {source.choice(['- 2', '- 1', '+ 1', '+ 5'])}")
                draft.lines.append(f"{t}({every}) = pad({moved}, {border}) + {b}({every}){where}")
            case "back":
                draft.lines.append(f"{t}({every}) = {at(a, f'{n} - 1 - {i}')} + {b}({every}){where}")
            case "turn" if is_square:
                turned = source.sample(indices, rank)
                draft.lines.append(f"{t}({every}) = {a}({', '.join(turned)}) - {b}({every})")
            case "scan":
                draft.lines.append(f"{t}({every}) = {i} == 0 ? {a}({every}) : {at(t, f'{i} - 1')} + {a}({every}){where}")
            case "triangle" if is_square and rank > 1:
                draft.lines.append(f"{t}({every}) = i <= j ? {a}({every}) : {b}({every}) + {kind}(1)")
            case "half":
                draft.lines.append(f"{t}({every}) = {at(a, f'{i} / 2')} + {b}({every}){where}")
            case "stencil":
                sides = f"pad({at(a, f'{i} - 1')}, clamp) + {a}({every}) + pad({at(a, f'{i} + 1')}, clamp)"
                draft.lines.append(f"{t}({every}) = {sides}{where}")
            case _:
                draft.lines.append(f"{t}({every}) = {a}({every}) * {b}({every}) + {a}({every})")
        have.append(t)
        draft.made.append(t)
    shape = tuple(names)
    return draft.finish(source, {"A": (kind, shape), "B": (kind, shape)}, sizes)


def left_sides(source: random.Random) -> Sketch:
    """A sum, or an extreme, whose left side has several computed subscripts."""
    kind = source.choice(["float", "float", "double", "int32", "float16", "uint8", "complex64"])
    free, extents, subscripts = source.sample("ijklpq", 6), dict[str, int](), list[str]()

    def index(high: int, extent: int | None = None) -> str:
        name = free.pop()
        extents[name] = draw_size(source, high) if extent is None else extent
        return name

    for _ in range(source.randint(1, 3)):
        if len(free) < 3:
            break
        match source.choice("plain plain meet phase stride half back remainder diagonal".split()):
            case "meet":
                i, j = index(40), index(5)
                subscripts.append(source.choice([f"{i} + {j}", f"{i} + 2 * {j}", f"{i} + 3 * {j}", f"2 * {i} + {j}"]))
            case "phase":
                n = source.choice([2, 3, 4])
                i, j = index(40), index(0, n)
                subscripts.append(source.choice([f"{n} * {i} + {j}", f"{j} + {n} * {i}"]))
            case "stride":
                subscripts.append(f"{source.choice([2, 3])} * {index(40)} + {source.randint(0, 2)}")
            case "half":
                subscripts.append(f"{index(40)} / {source.choice([2, 3])}")
            case "back":
                i = index(40)
                subscripts.append(f"{extents[i]} - 1 - {i}")
            case "remainder":
                subscripts.append(f"{index(40)} % {source.choice([2, 3, 5])}")
            case "diagonal":
                subscripts += [index(6)] * 2
            case _:
                subscripts.append(index(40))
    while free and len(extents) < 4 and source.random() < 0.5:
        index(source.choice([4, 20]))
    while (total := _product(extents)) > 20_000:
        longest = max(extents, key=lambda i: extents[i])
        if any(str(extents[longest]) in s for s in subscripts if longest in s):
            return left_sides(source)  # the extent is written out
        extents[longest] = max(1, extents[longest] * 20_000 // total)
    own = [i for i in extents if source.random() < 0.6] or list(extents)
    other = [i for i in extents if i not in own or source.random() < 0.4] or list(extents)
    parameters, reads = {}, []
    for name, indices in (("A", own), ("B", other)):
        source.shuffle(indices)
        parameters[name] = kind, tuple(str(extents[i]) for i in indices)
        reads.append(f"{name}({', '.join(source.choice([i, i, i, f'{extents[i]} - 1 - {i}']) for i in indices)})")
    op = "+=!" if kind == "complex64" else source.choice(["+=!", "+=!", "+=!", "max=!", "min=!"])
    value = f"{reads[0]} {source.choice(['*', '*', '+'])} {reads[1]}"
    ranges = ", ".join(f"{i} in 0:{n}" for i, n in extents.items())
    draft = _Draft(kind, [f"T({', '.join(subscripts)}) {op} {value} where {ranges}"], ["T"])
    if source.random() < 0.4:
        every = ", ".join("abcdef"[: len(subscripts)])
        draft.lines.append(f"Y({every}) = T({every}) + {kind}(1)")
        draft.made.append("Y")
    return draft.finish(source, parameters, {})


def _product(extents: dict[str, int]) -> int:
    total = 1
    for n in extents.values():
        total *= n
    return total


def components(source: random.Random) -> Sketch:
    """Points of two to four components: cross products, single components, sums over them and over points."""
    kind, n = source.choice(["float", "float", "double"]), source.choice([2, 3, 3, 4])
    draft, have, scalars = _Draft(kind), ["A", "B"], list[str]()
    points = f"where n in 0:N, k in 0:{n}"
    for step in range(source.randint(2, 5)):
        t, a, b, one = f"C{step}", source.choice(have), source.choice(have), source.randrange(n)
        is_scalar = False
        match source.choice("cross pick use dot mean pad window choice outer part".split()):
            case "pick":
                draft.lines.append(f"{t}(n) = {a}(n, {one}) * {b}(n, {source.randrange(n)})")
                is_scalar = True
            case "use" if scalars:
                draft.lines.append(f"{t}(n, k) = {a}(n, k) * {source.choice(scalars)}(n)")
            case "dot":
                draft.lines.append(f"{t}(n) +=! {a}(n, k) * {b}(n, (k + 1) % {n}) {points}")
                is_scalar = True
            case "mean":
                draft.lines.append(f"M{step}(k) +=! {a}(n, (k + 1) % {n}) {points}")
                draft.lines.append(f"{t}(n, k) = {a}(n, k) - M{step}(k) * {kind}(0.1) {points}")
            case "pad":
                border = source.choice(["clamp", "wrap", f"{kind}(0.5)"])
                draft.lines.append(f"{t}(n, k) = pad({a}(n - 1, {one}), {border}) * {b}(n, k) {points}")
            case "window":
                op = source.choice(["+=!", "max=!"])
                draft.lines.append(f"{t}(n) {op} pad({a}(n + r - 1, (r + 1) % {n}), clamp) where n in 0:N, r in 0:3")
                is_scalar = True
            case "choice":
                draft.lines.append(f"{t}(n, k) = k < {n - 1} ? {a}(n, k + 1) : {b}(n, 0) {points}")
            case "outer":
                draft.lines.append(f"P{step}(n, k, l) = {a}(n, k) * {b}(n, (l + k) % {n}) {points}, l in 0:{n}")
                draft.lines.append(f"{t}(n, k) = P{step}(n, k, 0) + P{step}(n, 1, k)")
            case "part":
                draft.lines.append(f"{t}(n, k) = {a}(n, (k + 1) % {n}) where n in 0:N, k in 0:{n - 1}")
                draft.lines.append(f"{t}(n, {n - 1}) = {b}(n, 0) where n in 0:N")
            case _:
                draft.lines.append(f"{t}(n, k) = {a}(n, (k + 1) % {n}) * {b}(n, (k + 2) % {n}) - {a}(n, k) {points}")
        (scalars if is_scalar else have).append(t)
        draft.made.append(t)
    shape = ("N", str(n))
    return draft.finish(source, {"A": (kind, shape), "B": (kind, shape)}, {"N": draw_size(source, 150)})
