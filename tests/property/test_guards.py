"""Programs whose reads stand under conditions of rows and of 1 to 40 columns: kernels against the reference interpreter,
beside pages that may not be touched.

By hand, for a longer run: ``POLYC_EXAMPLES=500 pytest tests/property/test_guards.py``.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import polyc
from polyc.ir.tolerance import check_results, expect_results
from tests.property.guarded import place, run_apart
from tests.property.pipeline import LEVELS

N_EXAMPLES = 3
TYPES = ("float", "float", "double", "double", "int32", "int64", "float16", "bfloat16", "int8", "uint8")
PADS = ("0.0", "1.0", "clamp", "reflect", "wrap")


class Guarded:
    """A text and its arrays: ``O = f(y + x under conditions)`` of one plane or the second of two, or sums of rows."""

    def __init__(self, seed: int) -> None:
        self.random = source = random.Random(seed)
        self.rows, self.width = source.choice([1, 2, 3, 6]), source.randint(1, 40)
        self.kinds = [source.choice(TYPES) for _ in "xy"]
        self.computed = source.choice(["float", "double"])
        self.dynamic = source.random() < 0.2
        value = f"{self.read(1)} + {self.read(0)}"
        if source.random() < 0.3:
            value = f"{value} * {self.read(0)}"
        value = source.choice(["{}", "tanh({})", "fmax({}, {}(0.5))", "1 / (1 + exp(-({})))"]).format(value, self.computed)
        domain = f"where i in 0:{self.rows}, j in 0:{self.width}"
        statements = source.choice(
            [
                f"O(i,j) = {value} {domain}",
                f"O(0,i,j) = {self.computed}(y(i,j)) {domain}\n  O(1,i,j) = {value} + O(0,i,j) {domain}",
                f"O(i) +=! {value} {domain}",
                f"O(i) max=! {value} {domain}",
                f"""V(i,j) = {value} {domain}
  M(i) max=! V(i,j)
  E(i,j) = exp(V(i,j) - M(i))
  Z(i) +=! E(i,j)
  O(i,j) = E(i,j) / Z(i)""",
            ]
        )
        x, y = (f"{kind}({self.rows},{self.width})" for kind in self.kinds)
        self.text = f"def f({x} x, {y} y) -> (O) {{\n  {statements}\n}}"
        rng = np.random.default_rng(seed)
        self.seed = seed
        self.values = [rng.integers(0, 7, (self.rows, self.width)) for _ in "xy"]

    def read(self, array: int) -> str:
        """An element near (i, j), or what stands in for it."""
        source, name = self.random, "xy"[array]
        di, dj = source.choice([0, 0, -1, 1]), source.choice([0, 0, source.randint(-self.width, self.width)])
        row, column = f"i + {di}", source.choice([f"j + {dj}", f"j + {dj}", f"2 * j + {dj}", f"{self.width - 1} - j"])
        if source.random() < 0.25:
            pads = PADS if self.rows > 1 and self.width > 1 else PADS[:3]
            pad = source.choice(pads)
            pad = pad if pad.isalpha() else f"{self.kinds[array]}({pad[0]})"
            return f"{self.computed}(pad({name}({row}, {column}), {pad}))"
        needed = [f"{row} >= 0", f"{row} < {self.rows}", f"{column} >= 0", f"{column} < {self.width}"]
        others = [
            f"i {source.choice(['>', '<', '=='])} {source.randrange(self.rows + 1)}",
            f"j {source.choice(['>=', '<'])} {source.randint(0, self.width)}",
            f"i + j < {source.randint(0, self.width)}",
            "j % 2 == 0",
            "y(i,j) > y(0,0)",
        ]
        conditions = " && ".join(needed + source.sample(others, source.randrange(3)))
        if source.random() < 0.15:
            conditions = f"({conditions}) && ({' || '.join(source.sample(others, 2))})"
        return f"({conditions} ? {self.computed}({name}({row}, {column})) : {self.computed}(0))"

    def check(self, level: str) -> None:
        operator = polyc.compile(self.text, target=level, dynamic=self.dynamic)
        source = random.Random(self.seed)
        types = {t.name: t.dtype for t in operator.program.tensors}
        arrays = {}
        for name, values in zip("xy", self.values, strict=True):
            arrays[name] = place(values.astype(types[name].numpy), source).array
        with np.errstate(all="ignore"):
            expected = expect_results(operator.program, arrays, {}, {})
        problem = check_results({"O": operator(**arrays)}, expected)
        assert problem is None, problem


@pytest.mark.optimised
@pytest.mark.parametrize("level", [*(level for level in LEVELS if level != "x86-64-v4"), "host"])
def test_guarded_reads_of_any_width(level: str) -> None:
    failed = run_apart(lambda seed: Guarded(seed).check(level), N_EXAMPLES)
    if failed is not None:
        seed, what = failed
        pytest.fail(f"{level}, seed {seed}: {what}\n{Guarded(seed).text}", pytrace=False)
