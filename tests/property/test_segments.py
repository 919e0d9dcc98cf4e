"""Random programs over segments, and ranges that data bounds without being any: kernels and the reference interpreter against
plain loops, beside pages that may not be touched; data that a call has to refuse is named, and nothing is written then.

By hand, for a longer run: ``POLYC_EXAMPLES=200 pytest tests/property/test_segments.py``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from polyc.ir.interpret import interpret
from tests.property.guarded import FILL, PAGE, Region, place, run_apart
from tests.property.pipeline import LEVELS, small_thresholds
from tests.property.ranged import Program
from tests.property.ranged_loops import Array, Data, Refused

N_EXAMPLES = 2
N_CALLS = 8


def guarded(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array for a result that ends at a page that may not be touched."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.frombuffer(Region(-(-n_bytes // PAGE) or 1).contents, np.uint8)
    memory[...] = FILL
    return memory[memory.size - n_bytes :].view(dtype).reshape(shape)


def is_untouched(out: Mapping[str, Array]) -> bool:
    return all(set(a.tobytes()) <= {FILL} for a in out.values())


class Called:
    """A program, compiled, and calls of it."""

    def __init__(self, seed: int, level: str) -> None:
        self.source = source = random.Random(f"{seed} {level}")
        self.program = Program(source)
        self.is_dynamic, self.is_eager = source.random() < 0.5, source.random() < 0.5
        self.operator = polyc.compile(self.program.text, target=level, dynamic=self.is_dynamic)

    def check(self) -> None:
        shape = self.source.randrange(1 << 30)
        with small_thresholds() if self.is_eager else nullcontext():
            for n in range(N_CALLS):
                if self.is_dynamic and n % 3 == 0:
                    shape = self.source.randrange(1 << 30)
                data = self.program.draw_data(random.Random(shape), self.source)
                self.check_call(data if n % 2 == 0 else self.program.spoil(data, self.source))

    def check_call(self, data: Data) -> None:
        try:
            expected, data = self.program.run(data)
        except Refused as refused:
            self.check_refused(data, refused.codes)
            return
        arrays = {n: place(a, self.source, is_result=True).array for n, a in data.arrays.items()}
        numbers = {n: np.array(a) for n, a in data.integers.items()}
        compare(interpret(self.operator.program, {**data.arrays, **numbers}), expected)
        for threads in (1, 2):
            polyc.set_num_threads(threads)
            out = {n: guarded(a.shape, a.dtype) for n, a in expected.items()}
            self.operator(**arrays, **data.integers, out=out)
            compare(out, expected)

    def check_refused(self, data: Data, codes: set[str]) -> None:
        arguments: dict[str, Any] = {**data.arrays, **data.integers}
        out = {}
        if codes != {"range-negative"}:
            out = {n: guarded(shape, self.program.types[n]) for n, shape in self.program.shapes(data).items()}
            arguments["out"] = out
        for threads in (1, 2):
            polyc.set_num_threads(threads)
            with pytest.raises(PolycError) as caught:
                self.operator(**arguments)
            assert caught.value.code in codes, str(caught.value)
            assert is_untouched(out), "something is written"
        with pytest.raises(PolycError) as caught:
            interpret(self.operator.program, {**data.arrays, **{n: np.array(a) for n, a in data.integers.items()}})
        assert caught.value.code in codes, str(caught.value)


def compare(results: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    for name, wanted in expected.items():
        assert results[name].dtype == wanted.dtype, f"{name} is {results[name].dtype}"
        np.testing.assert_array_equal(results[name], wanted, name)


@pytest.mark.optimised
@pytest.mark.parametrize("level", [*(level for level in LEVELS if level != "x86-64-v4"), "host"])
def test_random_segments(level: str) -> None:
    failed = run_apart(lambda seed: Called(seed, level).check(), N_EXAMPLES)
    if failed is not None:
        seed, what = failed
        pytest.fail(f"{level}, seed {seed}: {what}\n{Program(random.Random(f'{seed} {level}')).text}", pytrace=False)


SPREAD = """def f(float(Z) v, {p}(P) ptr, float(R) x) -> (w, y) {{
  w(p) = v(p) * x(i) where i in 0:R, p in ptr(i):ptr(i+1)
  y(i) +=! v(p) where i in 0:R, p in ptr(i):ptr(i+1)
}}"""
REDUCED = SPREAD.replace("  w(p) = v(p) * x(i)", "  w(p) +=! v(p) * x(i)")
PARTS = {
    "decreasing": ([0, 5, 3, 8], True),
    "beyond the end": ([0, 5, 5, 9], True),
    "beyond the end at once": ([0, 9, 9, 9], True),
    "before the beginning": ([-1, 5, 5, 8], True),
    "behind the beginning": ([1, 5, 5, 8], False),
    "the last one short": ([0, 5, 5, 7], False),
    "greatest number": ([0, 5, 5, (1 << 63) - 1], True),
    "least number": ([-(1 << 63), 5, 5, 8], True),
}


@pytest.mark.parametrize("text", [SPREAD, REDUCED], ids=["assigned", "reduced"])
def test_what_is_no_partition_leaves_results_as_they_are(text: str) -> None:
    operators = {kind: polyc.compile(text.format(p=kind), dynamic=True) for kind in ("int32", "int64")}
    v, x = np.arange(8, dtype=np.float32), np.ones(3, np.float32)
    for what, (ptr, is_never) in PARTS.items():
        for kind, operator in operators.items():
            if kind == "int32" and max(map(abs, ptr)) > 1 << 31:
                continue
            out = {"w": guarded((8,), np.float32), "y": guarded((3,), np.float32)}
            call = lambda: operator(v, np.array(ptr, kind), x, out=out)  # noqa: B023, E731
            if not is_never and text is REDUCED:
                call()
                np.testing.assert_array_equal(out["y"], [v[a:b].sum() for a, b in pairwise(ptr)], what)
                continue
            with pytest.raises(PolycError) as caught:
                call()
            assert caught.value.code == "argument-segments", what
            assert is_untouched(out), what
    for ptr in ([0, 3, 8], [0, 3], [0], []):  # segments for each of x there have to be
        out = {"w": guarded((8,), np.float32), "y": guarded((3,), np.float32)}
        with pytest.raises(PolycError) as caught:
            operators["int64"](v, np.array(ptr, np.int64), x, out=out)
        assert caught.value.code == "range-precondition", ptr
        assert is_untouched(out), ptr
    out = {"w": guarded((8,), np.float32), "y": guarded((3,), np.float32)}
    operators["int64"](v, np.array([0, 3, 3, 8, -5], np.int64), x, out=out)  # the first segments count
    np.testing.assert_array_equal(out["y"], [3, 0, 25])
