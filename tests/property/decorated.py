"""Random decorated functions beside the same computation in NumPy.

Under NumPy the indices are open grids (`i` is a column, `j` a row), so nearly every right side is the same text in both.  All
values are whole numbers that are kept small: whatever the order of summation, results are exact and compared so.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

SIZES = (1, 2, 3, 5, 8, 17, 33)

HELPERS = """
import numpy as np
import polyc


@polyc.op
def twice(X, *, by=2):
    Y[p, q] = by * X[p, q]
    return Y


@polyc.op
def spread(X: "T[P, Q]"):
    top[p] = max(X[p, q])
    low[p] = min(X[p, q])
    return top, low


@polyc.op
def polynomial(x, *, degree=3):
    y[p] = x[p]
    for step in range(degree):
        if step % 2 == 0:
            y[p] = np.clip(y[p] * x[p], -8, 8)
        else:
            y[p] = y[p] + step
    return y


weigh = polyc.compile("def weigh(float(P, Q) X, float(Q) w) -> (Y) { Y(p) +=! X(p, q) * w(q) }")
""".replace('X: "T[P, Q]"', "X")
"""What the functions call, as a module."""


def bounded(text: str) -> str:
    return f"np.clip({text}, -8, 8)"


@dataclass
class Draft:
    """A function in the making: the body for polyc, and the same for NumPy."""

    chance: random.Random
    matrices: list[str] = field(default_factory=lambda: ["A", "B"])
    vectors: list[str] = field(default_factory=lambda: ["x", "y"])
    body: list[str] = field(default_factory=list)
    numpy: list[str] = field(default_factory=list)
    n_names: int = 0

    def name(self) -> str:
        self.n_names += 1
        return f"T{self.n_names}"

    def add(self, body: str, numpy: str, matrix: str | None = None, vector: str | None = None) -> None:
        self.body += body.splitlines()
        self.numpy += numpy.splitlines()
        if matrix is not None:
            self.matrices.append(matrix)
        if vector is not None:
            self.vectors.append(vector)

    def place(self, index: str) -> str:
        """A subscript that stays inside, for an index that runs over 0:N."""
        return self.chance.choice(
            [index, index, index, f"N - 1 - {index}", f"{index} // 2", f"({index} * 3) % N", f"at[{index}]"]
        )

    def cell(self, i: str, j: str) -> str:
        """An element, bounded; `i` and `j` are indices."""
        m, v = self.chance.choice(self.matrices), self.chance.choice(self.vectors)
        forms = [
            f"{m}[{self.place(i)}, {self.place(j)}]",
            f"{m}[{j}, {i}]",
            f"{m}[{i}, {i}]",
            f"{v}[{self.place(i)}]",
            f"{v}[{j}]",
        ]
        return bounded(self.chance.choice(forms))

    def padded(self, i: str) -> tuple[str, str]:
        """A read that may lie outside, for polyc and for NumPy."""
        v, shift = self.chance.choice(self.vectors), self.chance.choice([-2, -1, 1, 2])
        at = f"{i} {'-' if shift < 0 else '+'} {abs(shift)}"
        match self.chance.choice(["wrap", "clamp", "reflect", "value"]):
            case "wrap":
                return bounded(f'pad({v}[{at}], "wrap")'), bounded(f"{v}[({at}) % N]")
            case "clamp":
                return bounded(f'pad({v}[{at}], "clamp")'), bounded(f"{v}[np.clip({at}, 0, N - 1)]")
            case "reflect":
                return bounded(f'pad({v}[{at}], "reflect")'), bounded(f"{v}[mirror({at}, N)]")
            case _:
                inside = f"({at} >= 0) & ({at} < N)"
                return bounded(f"pad({v}[{at}], 3)"), bounded(f"np.where({inside}, {v}[np.clip({at}, 0, N - 1)], 3)")

    def condition(self, i: str, j: str) -> str:
        forms = [
            "{0} <= {1}",
            "{0} < {1}",
            "{0} + {1} < N",
            "{0} != {1}",
            "{0} == {1}",
            "({0} + {1}) % 2 == 0",
            "{0} >= 2 * {1}",
        ]
        return self.chance.choice(forms).format(i, j)

    def expression(self, i: str, j: str, depth: int = 2) -> tuple[str, str]:
        """A whole-number expression of elements, at most 8 in absolute value."""
        if depth == 0 or self.chance.random() < 0.2:
            if self.chance.random() < 0.2:
                return self.padded(i)
            if self.chance.random() < 0.1:
                text = self.chance.choice([i, j, "3", "c", "N", "len(A)", "A.shape[1]", "-1"])
                return bounded(text), bounded(text)
            text = self.cell(i, j)
            return text, text
        (a, b), (x, y) = zip(*(self.expression(i, j, depth - 1) for _ in range(2)), strict=True)
        match self.chance.randrange(8):
            case 0 | 1 | 2:
                op = self.chance.choice("+-*")
                return bounded(f"{a} {op} {b}"), bounded(f"{x} {op} {y}")
            case 3:
                name = self.chance.choice(["maximum", "minimum", "fmax", "subtract"])
                return bounded(f"np.{name}({a}, {b})"), bounded(f"np.{name}({x}, {y})")
            case 4:
                return f"({a} if {a} > {b} else {b})", f"np.where({x} > {y}, {x}, {y})"
            case 5:
                test = self.condition(i, j)
                return f"np.where({test}, {a}, {b})", f"np.where({test}, {x}, {y})"
            case 6:
                return f"np.abs({a})", f"np.abs({x})"
            case _:
                return f"({a} if -2 <= {a} < 3 and not {b} == 1 else {b})", (
                    f"np.where((-2 <= {x}) & ({x} < 3) & ~({y} == 1), {x}, {y})"
                )


def elements(d: Draft) -> None:
    t, (e, f) = d.name(), d.expression("i", "j")
    d.add(f"with polyc.where(0 <= i < N, 0 <= j < N):\n    {t}[i, j] = {e}", f"{t} = full2({f})", matrix=t)


def fold(d: Draft) -> None:
    """A reduction along rows, perhaps of a triangle."""
    t, (e, f), m = d.name(), d.expression("i", "j"), bounded(f"{d.chance.choice(d.matrices)}[i, j]")
    head, numpy, start = d.chance.choice(
        [
            ("+= {}", "sum", "0"),
            ("= sum({})", "sum", "0"),
            ("= max(1.0 * {})", "max", "-np.inf"),
            ("= min(1.0 * {})", "min", "np.inf"),
        ]
    )
    ranges, values = "0 <= i < N, 0 <= j < N", f"full2({f} * {m})"
    if d.chance.random() < 0.5:
        test = d.condition("i", "j")
        ranges, values = f"{ranges}, {test}", f"np.where({test}, {values}, {start})"
    d.add(f"with polyc.where({ranges}):\n    {t}[i] {head.format(f'({e} * {m})')}", f"{t} = {values}.{numpy}(axis=1)", vector=t)


def product(d: Draft) -> None:
    t = d.name()
    a, b = d.cell("i", "k"), f"({d.cell('k', 'j')} + {d.chance.choice(d.vectors)}[k])"
    numpy = f"{t} = np.broadcast_to({a} * {b}, (N, N, N)).sum(axis=2)"
    d.add(
        f"with polyc.where(0 <= i < N, 0 <= j < N, 0 <= k < N):\n    {t}[i, j] += {a} * {b}",
        f"i, j, k = grids(3)\n{numpy}\ni, j = grids(2)",
        matrix=t,
    )


def position(d: Draft) -> None:
    v, p = d.name(), d.name()
    e = f"({d.cell('i', 'j')} + {d.chance.choice(d.matrices)}[i, j])"
    word = d.chance.choice(["max", "min"])
    d.add(
        f"with polyc.where(0 <= i < N, 0 <= j < N):\n    {v}[i], {p}[i] = arg{word}({e})",
        f"{v}, {p} = full2({e}).{word}(axis=1), full2({e}).arg{word}(axis=1)",
        vector=d.chance.choice([v, p]),
    )


def loop(d: Draft) -> None:
    """A loop that is unrolled, with a branch inside."""
    t, v, w = d.name(), d.chance.choice(d.vectors), d.chance.choice(d.vectors)
    rounds, odd, place = d.chance.randint(0, 4), d.chance.randint(0, 2), d.place("i")
    e, f = d.padded("i")

    def text(read: str, target: str, value: str) -> str:
        return (
            f"{target} = {bounded(f'{v}[i]')}\n"
            f"for r in range({rounds}):\n"
            f"    if r % 2 == {odd}:\n"
            f"        {target} = {bounded(f'{read} + r * {w}[{place}]')}\n"
            f"    else:\n"
            f"        {target} = {bounded(f'{read} - {value}')}"
        )

    d.add(text(f"{t}[i]", f"{t}[i]", e), f"{text(t, t, f)}\n{t} = {t}[:, 0]", vector=t)


def call(d: Draft) -> None:
    t, u = d.name(), d.name()
    m, v = d.chance.choice(d.matrices), d.chance.choice(d.vectors)
    match d.chance.randrange(4):
        case 0:
            by = d.chance.choice(["2", "3", "c"])
            d.add(f"{t} = twice({m}, by={by})", f"{t} = {by} * {m}", matrix=t)
        case 1:
            d.add(f"{t}, {u} = spread({m})", f"{t}, {u} = {m}.max(axis=1), {m}.min(axis=1)", vector=t)
            d.vectors.append(u)
        case 2:
            s, degree = d.name(), d.chance.randint(0, 4)
            d.add(
                f"{s}[i] = {bounded(f'{v}[i]')}\n{t} = polynomial({s}, degree={degree})",
                f"{t} = polynomial({bounded(v)}, {degree})",
                vector=t,
            )
        case _:
            s, w = d.name(), d.name()
            narrow = [f"{s}[i, j] = polyc.f32({bounded(f'{m}[i, j]')})", f"{w}[i] = polyc.f32({bounded(f'{v}[i]')})"]
            d.add("\n".join([*narrow, f"{t} = weigh({s}, {w})"]), f"{t} = ({bounded(m)} @ {bounded(v)})", vector=t)


def recurrence(d: Draft) -> None:
    t, v = d.name(), d.chance.choice(d.vectors)
    step = d.chance.choice(
        [bounded(f"{t}[i - 1] + {v}[i]"), f"max({t}[i - 1], {bounded(f'{v}[i]')})", bounded(f"{v}[i] - {t}[i - 1]")]
    )
    first = bounded(f"{v}[0]")
    d.add(
        f"{t}[0] = {first}\nwith polyc.where(1 <= i < N):\n    {t}[i] = {step}",
        f"{t} = np.zeros(N)\n{t}[0] = {first}\nfor i in range(1, N):\n    {t}[i] = {step}\ni, j = grids(2)",
        vector=t,
    )


def parts(d: Draft) -> None:
    """Even and odd elements by statements of their own; read again turned."""
    t, u = d.name(), d.name()
    a, b = d.chance.choice(d.vectors), d.chance.choice(d.vectors)
    body = f"""with polyc.where(0 <= i < N):
    {t}[2 * i] = polyc.f64({bounded(f"{a}[i]")})
    {t}[2 * i + 1] = polyc.f64({bounded(f"{b}[N - 1 - i]")})
with polyc.where(0 <= i < N):
    {u}[i] = {t}[2 * N - 1 - i] + {t}[i]"""
    numpy = f"""{t} = np.stack([{bounded(a)}, {bounded(f"{b}[::-1]")}], axis=1).reshape(-1)
{u} = {t}[::-1][:N] + {t}[:N]"""
    d.add(body, numpy, vector=u)


def scatter(d: Draft) -> None:
    t, a, b = d.name(), d.chance.choice(d.vectors), d.chance.choice(d.vectors)
    d.add(
        f"{t}[i] = polyc.f64({bounded(f'{a}[i]')})\nwith polyc.where(0 <= i < N):\n    {t}[at[i]] += {bounded(f'{b}[i]')}",
        f"{t} = {bounded(a)} + 0.0\nnp.add.at({t}, at, {bounded(b)})",
        vector=t,
    )


KINDS: tuple[Callable[[Draft], None], ...] = (elements, fold, product, position, loop, call, recurrence, parts, scatter)


def make_function(chance: random.Random, types: tuple[str, str, str, str]) -> tuple[str, str]:
    """The source of a decorated function `f(A, B, x, y, at, *, c)`, and of one for NumPy with `N` behind; both return the last
    tensors, vectors before matrices."""
    draft = Draft(chance)
    for _ in range(chance.randint(1, 5)):
        chance.choice(KINDS)(draft)
    vectors = [v for v in draft.vectors if v not in ("x", "y")][-2:]
    matrices = [m for m in draft.matrices if m not in ("A", "B")][-2:]
    names = ", ".join(vectors + matrices)
    annotated = f"A: '{types[0]}[N, N]', B: '{types[1]}[N, N]', x: '{types[2]}[N]', y: '{types[3]}[N]', at: 'i64[N]', *, c=2"
    body = "\n".join("    " + line for line in draft.body)
    numpy = "\n".join("    " + line for line in ["i, j = grids(2)", *draft.numpy])
    return (
        f"def f({annotated}):\n{body}\n    return {names}\n",
        f"def f(A, B, x, y, at, c, N, grids, full2):\n{numpy}\n    return {names}\n",
    )
