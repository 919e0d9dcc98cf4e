"""Random ``.tc`` programs that mix every feature of the language, statement upon statement."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

HELPERS = """
def normalise(float(P, Q) X) -> (Y) {
  top(p) max=! X(p, q)
  total(p) +=! exp(X(p, q) - top(p))
  Y(p, q) = exp(X(p, q) - top(p)) / total(p)
}
def project(float(P, Q) X, float(R, Q) W, float(P) b) -> (Y, Z) {
  Y(p, r) +=! X(p, q) * W(r, q)
  Z(p) = b(p) * 0.5
}
"""
"""Definitions to call."""

MONOIDS = """
monoid rotated(float a, float b, float x, float y) -> (p = 1.0, q = 0.0) { p = a * x - b * y  q = a * y + b * x }
monoid largest(float a, float b) -> (c = -inf) { c = a > b ? a : b }
"""

PADDINGS = ("clamp", "wrap", "reflect", "symmetric", "0.0", "0.5")
COMPARISONS = ("{a} <= {b}", "{a} < {b}", "{a} + {b} < N", "{a} != {b}", "{a} == {b}", "{a} + {b} >= N / 2", "{a} % 2 == 0")


@dataclass
class Draft:
    """A program in the making: all tensors are N by N (`matrices`) or of N elements (`vectors`), of small values."""

    source: random.Random
    matrices: list[str] = field(default_factory=lambda: ["A", "B"])
    vectors: list[str] = field(default_factory=lambda: ["x", "y"])
    lines: list[str] = field(default_factory=list)
    uses_calls: bool = False
    n_names: int = 0

    def name(self) -> str:
        self.n_names += 1
        return f"T{self.n_names}"

    def matrix(self) -> str:
        return self.source.choice(self.matrices)

    def vector(self) -> str:
        return self.source.choice(self.vectors)

    def cell(self, i: str, j: str) -> str:
        """An element of a matrix, turned or not, or of a vector."""
        forms = [f"{self.matrix()}({i}, {j})", f"{self.matrix()}({j}, {i})", f"{self.vector()}({i})", f"{self.vector()}({j})"]
        return self.source.choice(forms)

    def condition(self, *indices: str) -> str:
        a, b = self.source.sample(indices, 2)
        return self.source.choice(COMPARISONS).format(a=a, b=b)

    def where(self, *indices: str) -> str:
        """Ranges of indices and perhaps a condition."""
        text = ", ".join(f"{i} in 0:N" for i in indices)
        return f" where {text}" + (f", {self.condition(*indices)}" if self.source.random() < 0.4 else "")

    def padding(self) -> str:
        return self.source.choice(PADDINGS)

    def add(self, *lines: str, matrix: str | None = None, vector: str | None = None) -> None:
        self.lines += lines
        if matrix is not None:
            self.matrices.append(matrix)
        if vector is not None:
            self.vectors.append(vector)


def elements(d: Draft) -> None:
    t = d.name()
    a, b = d.cell("i", "j"), d.cell("i", "j")
    forms = [
        "tanh({a} + {b})",
        "{a} * 0.5 - {b} * 0.25",
        "max({a}, {b} * 0.5)",
        "exp(min({a}, 1.0)) * 0.3 + {b} * 0.1",
        "x(i) > 0.0 ? {a} : {b}",
        "i < j ? {a} : {b} * 0.5",
        "{a} / (1.5 + fabs({b}))",
        "float(i % 3) * 0.2 + {a}",
        "sqrt(fabs({a})) - float(N) * 0.01 + {b} * 0.1",
        "sin({a}) * cos({b})",
    ]
    d.add(f"{t}(i, j) = {d.source.choice(forms).format(a=a, b=b)} where i in 0:N, j in 0:N", matrix=t)


def halves(d: Draft) -> None:
    t, h = d.name(), d.name()
    kind = d.source.choice(["float16", "bfloat16"])
    d.add(f"{h}(i, j) = {kind}({d.matrix()}(i, j))", f"{t}(i, j) = float({h}(i, j)) * 0.5", matrix=t)


def doubles(d: Draft) -> None:
    t, h = d.name(), d.name()
    d.add(f"{h}(i) +=! double({d.matrix()}(i, j))", f"{t}(i) = float({h}(i)) * 0.1", vector=t)


def complexes(d: Draft) -> None:
    t, c, p = d.name(), d.name(), d.name()
    product = d.source.choice([f"{c}(i, k) * conj({c}(j, k))", f"{c}(i, k) * {c}(k, j)", f"{c}(k, i) * {d.matrix()}(k, j)"])
    d.add(
        f"{c}(i, j) = complex({d.matrix()}(i, j), {d.matrix()}(j, i)) * 0.3",
        f"{p}(i, j) +=! {product}",
        f"{t}(i, j) = {d.source.choice(['real', 'imag', 'fabs'])}({p}(i, j)) / float(N)",
        matrix=t,
    )


def sums(d: Draft) -> None:
    t = d.name()
    op = d.source.choice(["+=!", "max=!", "min=!"])
    scale = "0.2" if op == "+=!" else "0.9"
    d.add(f"{t}(i) {op} ({d.cell('i', 'j')} + y(j)) * {scale}{d.where('i', 'j')}")
    if op == "+=!":
        d.vectors.append(t)
    else:  # infinities where a condition leaves nothing
        u = d.name()
        d.add(f"{u}(i) = max(min({t}(i), 2.0), -2.0)", vector=u)


def products(d: Draft) -> None:
    t = d.name()
    left = d.source.choice([f"{d.matrix()}(i, k)", f"{d.matrix()}(k, i)"])
    right = d.source.choice([f"{d.matrix()}(k, j)", f"{d.matrix()}(j, k)", f"{d.vector()}(k)", f"tanh({d.matrix()}(k, j))"])
    condition = d.source.choice(["", "", f", {d.condition('i', 'j', 'k')}"])
    d.add(f"{t}(i, j) +=! {left} * {right} * 0.1 where i in 0:N, j in 0:N, k in 0:N{condition}", matrix=t)


def continued(d: Draft) -> None:
    t = d.name()
    d.add(
        f"{t}(i, j) = {d.cell('i', 'j')} where i in 0:N, j in 0:N",
        f"{t}(i, j) += {d.matrix()}(i, k) * {d.matrix()}(k, j) * 0.1",
    )
    if d.source.random() < 0.5:
        d.add(f"{t}(i, j) = {t}(i, j) * 0.5 + {t}(j, i) * 0.25")
    d.matrices.append(t)


def stencils(d: Draft) -> None:
    t, m = d.name(), d.matrix()
    a, b = (d.source.choice([-2, -1, 1, 2]) for _ in range(2))
    left, right = f"pad({m}(i + {a}, j), {d.padding()})", f"pad({m}(i, j + {b}), {d.padding()})"
    d.add(f"{t}(i, j) = {left} * 0.4 + {right} * 0.3 + {m}(i, j) * 0.3 where i in 0:N, j in 0:N", matrix=t)


def windows(d: Draft) -> None:
    t, m = d.name(), d.matrix()
    step = d.source.choice([1, 1, 2])
    read = f"pad({m}({step} * i + r - 1, j + s - 1), {d.padding()})"
    op, scale = d.source.choice([("+=!", "0.1"), ("max=!", "1.0")])
    d.add(f"{t}(i, j) {op} {read} * {scale} where i in 0:N, j in 0:N, r in 0:3, s in 0:3", matrix=t)


def parts(d: Draft) -> None:
    t = d.name()
    cut = d.source.choice(["N / 2", "N / 3", "(N + 1) / 2"])
    d.add(
        f"{t}(i, j) = {d.cell('i', 'j')} where i in 0:{cut}, j in 0:N",
        f"{t}(i, j) = {d.cell('i', 'j')} * 0.5 where i in {cut}:N, j in 0:N",
        matrix=t,
    )


def reversed_parts(d: Draft) -> None:
    t = d.name()
    d.add(f"{t}(N - 1 - i) = {d.vector()}(i) * 0.5 where i in 0:N", vector=t)


def diagonals(d: Draft) -> None:
    t = d.name()
    if d.source.random() < 0.5:
        d.add(f"{t}(k, k) +=! {d.matrix()}(k, l) * 0.2", matrix=t)
    else:
        d.add(f"{t}(i, j) = {d.matrix()}(i, j)", f"{t}(k, k) += {d.vector()}(k) * 0.5 where k in 0:N", matrix=t)


def scattered(d: Draft) -> None:
    t = d.name()
    d.add(f"{t}(i) = {d.vector()}(i)", f"{t}(key(i)) += {d.vector()}(i) * 0.2", vector=t)


def gathered(d: Draft) -> None:
    t = d.name()
    d.add(f"{t}(i, j) = {d.matrix()}(key(i), j) * 0.7", matrix=t)


def scans(d: Draft) -> None:
    t, v = d.name(), d.vector()
    step = d.source.choice([f"{t}(i-1) * 0.5 + {v}(i)", f"max({t}(i-1), {v}(i))", f"{t}(i-1) * x(i) * 0.2 + {v}(i) * 0.5"])
    d.add(f"{t}(0) = {v}(0)", f"{t}(i) = {step} where i in 1:N", vector=t)


def steps(d: Draft) -> None:
    t, s, v = d.name(), d.name(), d.vector()
    step = d.source.choice(
        [
            f"{s}(t-1, j) * 0.5 + {v}(j) * 0.5",
            f"{s}(t-1, j) * 0.5 + pad({s}(t-1, j-1), clamp) * 0.5",
            f"j == 0 ? {s}(t-1, j) : {s}(t, j-1) * 0.5 + {s}(t-1, j) * 0.5",
            f"{s}(t-1, j) * 0.4 + pad({s}(t-1, j+1), 0.0) * 0.3 + pad({s}(t-1, j-1), 0.0) * 0.3",
        ]
    )
    d.add(f"{s}(0, j) = {v}(j)", f"{s}(t, j) = {step} where t in 1:5, j in 0:N", f"{t}(j) = {s}(4, j)", vector=t)


def solves(d: Draft) -> None:
    t, s, m = d.name(), d.name(), d.matrix()
    d.add(f"{s}(i) +=! {m}(i, j) * {t}(j) * 0.05 where j < i", f"{t}(i) = {d.vector()}(i) - {s}(i)", vector=t)


def positions(d: Draft) -> None:
    t, p = d.name(), d.name()
    d.add(
        f"{p}(i) {d.source.choice(['argmax', 'argmin'])}=! {d.source.choice('AB')}(i, j)",
        f"{t}(i) = float({p}(i)) / float(N) + {d.vector()}(i) * 0.5",
        vector=t,
    )


def monoids(d: Draft) -> None:
    t, p, q = d.name(), d.name(), d.name()
    condition = d.source.choice(["", " where j <= i", " where i in 0:N, j in 0:N, i + j < N"])
    if d.source.random() < 0.5:
        values = f"({d.matrix()}(i, j) * 0.5, {d.cell('i', 'j')} * 0.5)"
        d.add(f"({p}(i), {q}(i)) rotated=! {values}{condition}", f"{t}(i) = {p}(i) + {q}(i) * 0.5", vector=t)
    else:
        d.add(f"{p}(i) largest=! ({d.matrix()}(i, j)){condition}", f"{t}(i) = max({p}(i), -2.0)", vector=t)


def bytes_and_bits(d: Draft) -> None:
    t, b, m, n = d.name(), d.name(), d.name(), d.name()
    kind = d.source.choice(["int8", "uint8", "int16"])
    d.add(
        f"{b}(i, j) = {kind}(min(max({d.matrix()}(i, j) * 50.0, 0.0), 100.0))",
        f"{m}(i) {d.source.choice(['&&=!', '||=!'])} {b}(i, j) > {kind}(20)",
        f"{n}(i) +=! int32({b}(i, j)) * int32({b}(j, i))",
        f"{t}(i) = {m}(i) ? float({n}(i)) * 0.0001 : {d.vector()}(i)",
        vector=t,
    )


def greatest_by_key(d: Draft) -> None:
    t, u = d.name(), d.name()
    op = d.source.choice(["max", "min", "+"])
    d.add(f"{u}(i) = {d.vector()}(i)", f"{u}(key(i)) {op}= {d.vector()}(i) * 0.5", f"{t}(i) = {u}(i) * 0.5", vector=t)


def updates(d: Draft) -> None:
    t = d.name()
    ops = [f"{t}(i, j) {d.source.choice(['+=', 'max=', 'min='])} {d.cell('j', 'i')} * 0.5" for _ in range(3)]
    d.add(f"{t}(i, j) = {d.cell('i', 'j')} where i in 0:N, j in 0:N", *ops, matrix=t)


def calls(d: Draft) -> None:
    t = d.name()
    d.uses_calls = True
    if d.source.random() < 0.5:
        d.add(f"{t} = normalise({d.matrix()})", matrix=t)
    else:
        u, v = d.name(), d.name()
        d.add(
            f"({u}, {v}) = project({d.matrix()}, {d.matrix()}, {d.vector()})",
            f"{t}(i, j) = {u}(i, j) * 0.1",
            matrix=t,
            vector=v,
        )


FEATURES: tuple[Callable[[Draft], None], ...] = (
    *(elements, halves, doubles, complexes, sums, products, products, continued, stencils, windows, parts, reversed_parts),
    *(diagonals, scattered, gathered, scans, steps, solves, positions, calls),
    *(monoids, bytes_and_bits, greatest_by_key, updates),
)


def make_program(source: random.Random, most: int = 5) -> str:
    """The text of a program f(A, B, x, y, key) with one to `most` features and up to three results."""
    d = Draft(source)
    for _ in range(source.randint(1, most)):
        source.choice(FEATURES)(d)
    made = [t for t in (*d.matrices, *d.vectors) if t.startswith("T")]
    results = dict.fromkeys([made[-1], *source.sample(made, min(len(made), source.randint(1, 3)))])
    body = "\n".join(f"  {line}" for line in d.lines)
    head = "def f(float(N, N) A, float(N, N) B, float(N) x, float(N) y, int32(N) key)"
    helpers = (MONOIDS if "rotated=!" in body or "largest=!" in body else "") + (HELPERS if d.uses_calls else "")
    return f"{helpers}{head} -> ({', '.join(results)}) {{\n{body}\n}}\n"


def make_arrays(seed: int, n: int) -> dict[str, np.ndarray]:
    """Inputs of `make_program`, some of them in unusual layouts."""
    rng = np.random.default_rng(seed)
    arrays = {
        name: rng.uniform(-1, 1, shape).astype("f4") for name, shape in (("A", (n, n)), ("B", (n, n)), ("x", n), ("y", n))
    }
    arrays["key"] = rng.integers(0, max(n, 1), n).astype("i4")
    layouts: list[Callable[[np.ndarray], np.ndarray]] = [
        lambda a: a,
        lambda a: np.asfortranarray(a),
        lambda a: a[::-1],
        lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    ]
    return {name: layouts[rng.choice(4, p=[0.7, 0.1, 0.1, 0.1])](a) for name, a in arrays.items()}
