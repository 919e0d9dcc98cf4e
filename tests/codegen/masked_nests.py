"""Random loop nests whose reads and writes stand under guards: rows of 1 to 40 elements of every type, and any number of lanes.

Subscripts that leave their array are guarded by conditions that keep them inside, alone or together with others: of the row, of
the lane, of both, of data.  Values are small integers, so that any order of operations gives the same bits.
"""

from __future__ import annotations

import functools
import random

import numpy as np

from polyc.ir.expr import Call, Cast, Const, Expr, Pad, Read, Select
from polyc.ir.halves import narrow
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Store, Update
from polyc.ir.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, DType
from tests.property.guarded import Placed, place

from .support import c, i, n, op

TYPES = (F32, F32, F32, F64, F64, F16, BF16, I8, I16, I32, I32, I64, U8, U16, BOOL)
VALUES = {F16: F32, BF16: F32, BOOL: I32, I8: I32, I16: I32, U8: I32, U16: I32}
"""What elements of other types are computed in."""
LANES = (1, 2, 3, 4, 5, 7, 8, 8, 8, 12, 13, 16, 16, 16, 24, 32, 32, 64)


class MaskedNest:
    """The nest of a seed and its arrays.

    ``b[row, lane] = f(x[…], y[…])`` or ``b[row] += …``, each term under a guard; `p` is a number that is not known before."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows, self.width = self.pick(1, 2, 3, 5), self.random.randint(1, 40)
        self.known = self.random.random() < 0.6
        """Whether the width is a constant."""
        self.computed = self.pick(F32, F32, F64, I32, I64)
        self.shapes = {"x": self.shape(), "y": self.shape(), "k": (self.width,), "b": (self.rows, 3 * self.width)}
        self.types = {"x": self.pick(*TYPES), "y": self.pick(*TYPES), "k": self.pick(I32, I64), "b": self.pick(*TYPES)}
        self.names = list(self.shapes)
        self.seed = self.random.randrange(1 << 30)
        self.sizes = {"N": self.width, "p": self.random.randint(0, self.width)}
        self.nest = self.draw()

    def pick(self, *options):  # type: ignore[no-untyped-def]
        return self.random.choice(options)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def shape(self) -> tuple[int, int]:
        return self.rows + self.pick(0, 0, 0, -1, 1) or 1, max(
            1, self.width + self.pick(0, 0, 0, -1, 1, -self.width // 2, self.width)
        )

    # -- expressions

    def extent(self) -> Expr:
        return c(self.width) if self.known else n("N")

    def atom(self) -> Expr:
        """A condition of the row, of the lane, of both, or of data."""
        at = self.random.randint(-1, self.width + 1)
        match self.random.randrange(8):
            case 0 | 1:
                return op(self.pick("lt", "ge", "gt", "eq"), i("i"), c(self.random.randrange(self.rows + 1)))
            case 2 | 3:
                return op(self.pick("lt", "ge", "gt", "le"), i("j"), c(at))
            case 4:
                return op(self.pick("lt", "ge"), op("add", i("j"), i("i")), c(at))
            case 5:
                return op(self.pick("lt", "ge"), i("j"), n("p"))
            case 6:
                return op("eq", op("mod", i("j"), c(self.pick(2, 3))), c(0))
        return op(self.pick("lt", "ge"), self.convert(Read("k", (i("j"),)), self.types["k"], I64), c(at))

    def condition(self, depth: int = 2) -> Expr:
        if depth == 0 or self.chance(0.35):
            return self.atom()
        parts = tuple(self.condition(depth - 1) for _ in range(2))
        return self.pick(Call("and", parts), Call("and", parts), Call("or", parts), Call("not", parts[:1]))

    def subscript(self, extent: int) -> tuple[Expr, list[Expr]]:
        """Along the lanes, and the conditions that keep it within `extent`."""
        width, shift = self.width, self.random.randint(-self.width, self.width)
        last = c(width - 1) if self.known else op("sub", n("N"), c(1))
        place, low, high = self.pick(
            (i("j"), 0, width - 1),
            (i("j"), 0, width - 1),
            (op("add", i("j"), c(shift)), shift, width - 1 + shift),
            (op("add", i("j"), c(shift)), shift, width - 1 + shift),
            (op("mul", i("j"), c(2)), 0, 2 * (width - 1)),
            (op("mul", i("j"), c(3)), 0, 3 * (width - 1)),
            (op("sub", last, i("j")), 0, width - 1),
            (op("floordiv", i("j"), c(2)), 0, (width - 1) // 2),
            (op("sub", op("mul", i("j"), c(2)), c(3)), -3, 2 * width - 5),
            (self.convert(Read("k", (i("j"),)), self.types["k"], I64), 0, width - 1),
            (i("i"), 0, self.rows - 1),
        )
        return place, self.inside(place, low, high, extent)

    def inside(self, place: Expr, low: int, high: int, extent: int) -> list[Expr]:
        lower = [op("ge", place, c(0))] if low < 0 else []
        return lower + ([op("lt", place, c(extent))] if high >= extent or not self.known else [])

    def convert(self, value: Expr, old: DType, new: DType) -> Expr:
        if old == new:
            return value
        if old == BOOL:
            return Select(value, Const(1, new), Const(0, new))
        return Cast(value, new)

    def read(self) -> Expr:
        """An element of `x` or `y` under the conditions that it needs, and others."""
        name = self.pick("x", "y")
        shift = self.pick(0, 0, 0, -1, 1)
        row = op("add", i("i"), c(shift)) if shift else i("i")
        place, conditions = self.subscript(self.shapes[name][1])
        conditions += self.inside(row, shift, self.rows - 1 + shift, self.shapes[name][0])
        element = Read(name, (row, place))
        dtype, padding = self.types[name], Const(self.pick(0, 0, 1), self.computed)
        if conditions and self.chance(0.3):
            return self.convert(Pad(element, Const(self.pick(0, 1), dtype)), dtype, self.computed)
        value = self.convert(element, dtype, self.computed)
        conditions += [self.condition() for _ in range(self.pick(0, 1, 1, 2))]
        self.random.shuffle(conditions)
        if not conditions:
            return value
        whole = functools.reduce(lambda a, b: op("and", a, b), conditions)
        if self.chance(0.15):
            return Select(op("not", whole), padding, value)
        return Select(whole, value, padding)

    def value(self) -> Expr:
        total = self.read()
        for _ in range(self.pick(0, 1, 1, 2)):
            other = self.read()
            if self.chance(0.2):
                other = Select(self.condition(), other, total)
            total = op(self.pick("add", "add", "sub", "max", "min", "mul"), total, other)
        if self.computed.is_float and self.chance(0.3):
            root = self.chance(0.3) and self.pick("abs", "sqrt") == "sqrt"
            total = op("max", total, Const(0, self.computed))
            total = op("floor", op("sqrt", total)) if root else op("abs", total)  # whole numbers, whose sums have no order
        return total

    # -- the nest

    def stored(self, value: Expr) -> Expr:
        dtype = self.types["b"]
        if dtype.kind == "b":
            return op("ne", value, Const(0, self.computed))
        if dtype == self.computed:
            return value
        if dtype.kind in "iu" and self.computed.is_float:  # what is outside of small types
            value = op(
                "max", op("min", value, Const(100, self.computed)), Const(0 if dtype.kind == "u" else -100, self.computed)
            )
        return Cast(value, dtype)

    def draw(self) -> LoopNest:
        buffers = [self.buffer(name, position) for position, name in enumerate(self.names)]
        if self.chance(0.75) or self.types["b"].kind == "b" or self.types["b"].is_storage:
            shift = self.random.randrange(self.width)
            place = self.pick(
                i("j"),
                i("j"),
                i("j"),
                op("mul", i("j"), c(2)),
                op("add", op("mul", i("j"), c(3)), c(1)),
                op("sub", c(3 * self.width - 1), i("j")),
                op("add", i("j"), c(shift)),
                Read("k", (i("j"),)) if self.types["k"] == I64 else i("j"),
            )
            body: tuple[Node, ...] = (Store("b", (i("i"), place), self.stored(self.value())),)
            held: tuple[str, ...] = ()
        else:
            monoid = self.pick("add", "max", "min")
            body = (Update("b", (i("i"), c(0)), monoid, self.stored(self.value())),)
            held = ("b",) if self.chance(0.8) else ()
        if self.chance(0.4):
            body = (If(self.condition(), body),)
        lanes, lower = self.pick(*LANES), c(self.pick(0, 0, 0, 1) if self.known else 0)
        trip = 40 if self.chance(0.4) and (lower == c(0)) else None
        upper = self.pick(self.extent(), self.extent(), n("p")) if held or self.chance(0.3) else self.extent()
        kind = "vector" if lanes > 1 else self.pick("serial", "unroll" if trip else "serial")
        inner = Loop("j", lower, upper, 1, kind, body, trip, lanes, self.pick(1, 1, 2, 4) if lanes > 1 else 1, held)
        outer = Loop("i", c(0), c(self.rows), 1, self.pick("serial", "serial", "unroll"), (inner,), None)
        if outer.kind == "unroll":
            outer = Loop("i", c(0), c(self.rows), 1, "unroll", (inner,), self.rows)
        strides = tuple(f"{b.name}.stride{d}" for b in buffers for d, s in enumerate(b.strides) if not isinstance(s, Const))
        return LoopNest("f", ("N", "p", *strides), tuple(buffers), (outer,))

    # -- arrays

    def make_arrays(self) -> dict[str, Placed]:
        """Always the same, in memory that begins or ends at a page that may not be touched."""
        source, rng = random.Random(self.seed), np.random.default_rng(self.seed)
        arrays = {}
        for name in self.names:
            dtype, shape = self.types[name], self.shapes[name]
            values = rng.integers(0 if dtype.kind in "ub" else -4, 2 if dtype.kind == "b" else 5, shape)
            if name == "k":
                values = rng.permutation(self.width)
            stored = narrow(values.astype(np.float32), dtype) if dtype.is_storage else values.astype(dtype.numpy)
            arrays[name] = place(stored, source, is_result=name == "b")
        return arrays

    def buffer(self, name: str, position: int) -> Buffer:
        """With the strides of its array, or such that are not known before."""
        array = self.make_arrays()[name].array
        shape: list[Expr] = [c(extent) for extent in self.shapes[name]]
        if name == "k" and not self.known:
            shape = [n("N")]
        known = self.chance(0.7)
        strides = [c(s) if known else n(f"{name}.stride{d}") for d, s in enumerate(array.strides)]
        return Buffer(name, self.types[name], tuple(shape), tuple(strides), "argument", position)
