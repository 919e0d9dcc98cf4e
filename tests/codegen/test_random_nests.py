"""Random loop nests over integers (any grouping of iterations gives the same bits): compiled against interpreted."""

from __future__ import annotations

import random

import numpy as np
import pytest

from polyc.ir.expr import Cast, Const, Expr, Pad, Read, Select
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Store, Update
from polyc.ir.types import I16, I32
from polyc.ir.verify_loops import verify_loops

from .support import LEVELS, argument, c, check_with_interpreter, compiled, i, n, op, rd, strides_of

EXTENTS = {"i": "M", "j": "N", "k": "K"}
SIZES = ({"M": 5, "N": 18, "K": 3}, {"M": 1, "N": 33, "K": 7}, {"M": 7, "N": 3, "K": 16}, {"M": 2, "N": 0, "K": 4})
CAP = 40
"""No extent is larger: short loops are expanded up to it."""


class Generator:
    """Draws one nest: `C[i, j] op= f(A[i, k], B[k, j], …)` under loops of random order, kinds and nesting."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, *options):
        return self.random.choice(options)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def condition(self, names: list[str]) -> Expr:
        name = self.pick(*names)
        left: Expr = i(name)
        if self.chance(0.3):
            left = op("mod", left, c(3))
        elif self.chance(0.4) and len(names) > 1:
            left = op(self.pick("add", "sub"), left, i(self.pick(*[x for x in names if x != name])))
        return op(self.pick("lt", "le", "gt", "ge", "eq", "ne"), left, self.pick(c(2), c(9), op("sub", n(EXTENTS[name]), c(3))))

    def value(self, names: list[str], depth: int = 2) -> Expr:
        choices = ["const", "index"] + ["a", "b", "pad", "d"] * 3
        if depth:
            choices += ["binary"] * 6 + ["select"] * 3
        match self.pick(*choices):
            case "const":
                return Const(self.pick(0, 3, -5), I32)
            case "index":
                return Cast(i(self.pick(*names)), I32)
            case "a" if {"i", "k"} <= set(names):
                return rd("A", i("i"), i("k"))
            case "b" if {"k", "j"} <= set(names):
                return rd("B", i("k"), i("j"))
            case "pad" if "j" in names:
                return Pad(Read("D", (op("sub", i("j"), c(self.pick(1, 2, 20))),)), Const(self.pick(0, 4), I32))
            case "d" if "j" in names:
                backwards = op("sub", op("sub", n("N"), c(1)), i("j"))
                return rd("D", self.pick(i("j"), backwards, op("floordiv", i("j"), c(2))))
            case "binary":
                operator = self.pick("add", "sub", "mul", "max", "min", "floordiv", "mod")
                return op(operator, self.value(names, depth - 1), self.value(names, depth - 1))
            case "select":
                arms = self.value(names, depth - 1), self.value(names, depth - 1)
                return Select(self.condition(names), *arms)
        return Cast(Cast(i(self.pick(*names)), I16), I32)

    def loop(self, name: str, body: tuple[Node, ...], registers: tuple[str, ...], outermost: bool) -> Loop:
        upper: Expr = n(EXTENTS[name])
        kinds = ["serial", "vector", "short vector", "unroll"] + ["parallel"] * (3 if outermost else 0)
        kind = self.pick(*kinds)
        lanes = self.pick(1, 2, 4, 8, 16)
        interleave = self.pick(1, 1, 2, 4)
        match kind:
            case "short vector":
                return Loop(name, c(0), upper, 1, "vector", body, CAP, lanes, interleave, registers)
            case "vector":
                return Loop(name, c(0), upper, 1, "vector", body, None, lanes, interleave, registers)
            case "unroll":
                return Loop(name, c(0), upper, 1, "unroll", body, CAP, registers=registers)
            case "parallel":
                return Loop(name, c(0), upper, self.pick(1, 1, 2), "parallel", body)
            case _:
                return Loop(name, c(0), upper, self.pick(1, 1, 3), "serial", body, registers=registers)

    def nest(self) -> LoopNest:
        order = self.pick("ijk", "ikj", "kij", "jik", "kji", "jki", "ij", "ji", "jk", "j", "kj")
        names = list(order)
        target, subscripts = "C", (i("i"), i("j"))
        if not {"i", "j"} <= set(names):
            target, subscripts = "E", (i("j"),) if self.chance(0.6) else (c(0),)
        operator = self.pick("add", "mul", "max", "min")
        body: tuple[Node, ...] = (Update(target, subscripts, operator, self.value(names)),)
        if set(names) == {"i", "j"} and self.chance(0.5):
            body = (Store("C", subscripts, self.value(names)),)
        if self.chance(0.3):
            body = (If(self.condition(names), body, body if self.chance(0.3) else ()),)
        for number, name in enumerate(reversed(names)):
            registers = (target,) if self.chance(0.5) else ()
            used = {x for s in subscripts for x in ("i", "j") if s == i(x)}
            outermost = number == len(names) - 1 and name in used
            body = (self.loop(name, body, registers, outermost),)
            if self.chance(0.15):
                outer = [x for x in names[: len(names) - 1 - number]]
                if outer:
                    body = (If(self.condition(outer), body),)
        a, b = argument("A", I32, (n("M"), n("K")), 0), argument("B", I32, (n("K"), n("N")), 1, self.chance(0.8))
        out, d = argument("C", I32, (n("M"), n("N")), 2), argument("D", I32, (n("N"),), 3)
        e = argument("E", I32, (op("add", n("N"), c(1)),), 4)
        buffers: tuple[Buffer, ...] = (a, b, out, d, e)
        return LoopNest("f", ("M", "N", "K", *strides_of(*buffers)), buffers, body)


def is_small(body: tuple[Node, ...], copies: int = 1) -> bool:
    """Whether expansion stays within a few hundred statements, so that the test stays quick."""
    for node in body:
        match node:
            case Loop():
                inner = copies
                if node.max_trip is not None:
                    inner *= -(-node.max_trip // (node.lanes if node.kind == "vector" else 1))
                if not is_small(node.body, inner):
                    return False
            case If():
                if not (is_small(node.body, copies) and is_small(node.orelse, copies)):
                    return False
            case _:
                if copies > 20:
                    return False
    return True


def run_seed(seed: int) -> None:
    nest = Generator(seed).nest()
    if not is_small(nest.body):
        return
    verify_loops(nest)
    rng = np.random.default_rng(seed)
    level = LEVELS[seed % len(LEVELS)] if LEVELS else "host"
    code = compiled(nest, level)
    for sizes in SIZES:
        m, k, j = sizes["M"], sizes["K"], sizes["N"]
        shapes = {"A": (m, k), "B": (k, j), "C": (m, j), "D": (j,), "E": (j + 1,)}
        arrays = {name: rng.integers(-9, 9, shape).astype("i4") for name, shape in shapes.items()}
        check_with_interpreter(nest, arrays, sizes, level, code, threads=1 + seed % 3)


@pytest.mark.parametrize("seed", range(60))
def test_random_nest(seed):
    run_seed(seed)
