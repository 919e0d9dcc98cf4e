"""Random segments, and ranges that data bounds without being any: kernels against the reference interpreter and plain loops,
beside pages that may not be touched; data that is no partition is refused, and nothing is written.

By hand, for a longer run: ``POLYC_EXAMPLES=200 pytest tests/property/test_segments.py``.
"""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

import polyc
from polyc.diagnostics import ArgumentError
from polyc.ir.tolerance import check_results, expect_results
from tests.property.guarded import place, run_apart
from tests.property.pipeline import LEVELS

N_EXAMPLES = 3
FOLDS = {"+": np.add, "*": np.multiply, "min": np.minimum, "max": np.maximum}


class Segmented:
    """A text and its arrays: a fold over segments, elements made of that, and a range that is cut off."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        source = random.Random(seed)
        self.op = source.choice(list(FOLDS))
        self.value, self.pointer = (
            source.choice(["float", "double", "int32", "int64"]),
            source.choice(["int32", "int64", "uint32"]),
        )
        self.dynamic, self.dense = source.random() < 0.5, source.random() < 0.5
        n, comma = (", n", ", N") if self.dense else ("", "")
        arrays = f"{self.value}(Z{comma}) v, int32(Z) c, {self.pointer}(P) ptr, {self.value}(K{comma}) X"
        self.text = f"""def f({arrays}) -> (y, w, u) {{
  y(i{n}) {self.op}=! v(p{n}) - X(c(p){n}) where p in ptr(i):ptr(i+1)
  w(p{n}) = v(p{n}) {source.choice(["+", "-"])} y(i{n}) where p in ptr(i):ptr(i+1)
  u(i{n}) +=! v(p{n}) where p in 0:min(ptr(i), {source.randint(0, 9)})
}}"""
        rows, z = source.choice([0, 1, 2, 7, 33]), source.choice([0, 1, 5, 40, 130])
        cuts = sorted(source.choices([0, z, *range(z + 1)], k=max(0, rows - 1)))
        ends = [0, *cuts, z] if rows else [0]
        z = z if rows else 0
        rng = np.random.default_rng(seed)
        extra = (source.choice([1, 3, 17]),) if self.dense else ()
        self.arrays = {
            "v": rng.integers(-3, 4, (z, *extra)),
            "c": rng.integers(0, 4, z),
            "ptr": np.array(ends),
            "X": rng.integers(-3, 4, (4, *extra)),
        }
        self.bad = np.array(ends)
        if rows:
            self.bad[source.randrange(rows + 1)] += source.choice([-1, 1]) * (z + 1)

    def check(self, level: str) -> None:
        operator = polyc.compile(self.text, target=level, dynamic=self.dynamic)
        source = random.Random(self.seed)
        types = {t.name: t.dtype.numpy for t in operator.program.tensors}
        arrays = {n: place(a.astype(types[n]), source, n == "ptr").array for n, a in self.arrays.items()}
        with np.errstate(all="ignore"):
            expected = expect_results(operator.program, arrays, {}, {})
            results = dict(zip("ywu", operator(**arrays), strict=True))
        problem = check_results(results, expected)
        assert problem is None, problem
        ptr, terms = self.arrays["ptr"], (arrays["v"] - arrays["X"][arrays["c"]]).astype(types["v"])
        for k, (first, end) in enumerate(pairwise(ptr)):
            if first < end:
                with np.errstate(all="ignore"):
                    folded = FOLDS[self.op].reduce(terms[first:end], 0)
                np.testing.assert_allclose(results["y"][k], folded, rtol=1e-4)
        if (self.bad == ptr).all():
            return
        out = {name: np.full_like(a, 77) for name, a in results.items()}
        for _ in range(2):
            try:
                operator(**{**arrays, "ptr": self.bad.astype(types["ptr"])}, out=out)
            except ArgumentError as error:
                assert error.code in ("argument-segments", "argument-range")
            else:
                raise AssertionError(f"{self.bad} is taken for segments")
            assert all((a == 77).all() for a in out.values())


@pytest.mark.optimised
@pytest.mark.parametrize("level", [*(level for level in LEVELS if level != "x86-64-v4"), "host"])
def test_random_segments(level: str) -> None:
    failed = run_apart(lambda seed: Segmented(seed).check(level), N_EXAMPLES)
    if failed is not None:
        seed, what = failed
        pytest.fail(f"{level}, seed {seed}: {what}\n{Segmented(seed).text}", pytrace=False)
