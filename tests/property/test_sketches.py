"""Random programs in memory that ends at forbidden pages, with results over inputs, on one to seven threads.

By hand, for a longer run: ``POLYC_EXAMPLES=100 pytest tests/property/test_sketches.py``.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyc
from polyc.diagnostics import PolycError
from polyc.frontends.tc.types import TYPE_NAMES
from polyc.ir.tolerance import Expectation, check_results, expect_results
from polyc.runtime import memory
from polyc.runtime.threads import limited_to
from tests.property.guarded import place
from tests.property.pipeline import LEVELS, profile, small_thresholds, spoil_workspace
from tests.property.sketches import Sketch, components, left_sides, pipeline

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are protected through the C library")


class Trial:
    """The program of `seed`, compiled, with inputs and the results that the interpreter gives."""

    def __init__(self, make: Callable[[random.Random], Sketch], seed: int) -> None:
        self.source, rng = random.Random(seed), np.random.default_rng(seed)
        self.sketch = make(self.source)
        level, is_dynamic = self.source.choice(LEVELS), bool(self.sketch.sizes) and self.source.random() < 0.3
        self.is_eager = self.source.random() < 0.3
        self.inputs = {
            name: (rng.integers(0, 17, self.sketch.shape(name)) / (1 if TYPE_NAMES[kind].is_integer else 16)).astype(
                TYPE_NAMES[kind].numpy
            )
            for name, (kind, _) in self.sketch.parameters.items()
        }
        self.where = f"seed={seed} {level} dynamic={is_dynamic} eager={self.is_eager} {self.sketch.sizes}\n{self.sketch.text}"
        self.operator = polyc.compile(self.sketch.text, "f", target=level, dynamic=is_dynamic)
        self.names = [r.name for r in self.operator.program.returns]

    def expect(self, inputs: dict[str, np.ndarray]) -> Expectation:
        with np.errstate(all="ignore"):
            return expect_results(self.operator.program, inputs, self.sketch.sizes, {})

    def run(self, inputs: dict[str, np.ndarray], out: dict[str, np.ndarray], n_threads: int) -> dict[str, np.ndarray]:
        memory.workspace_address(1 << 12)
        spoil_workspace(self.source.choice([0xFF, 0x7F]))
        with small_thresholds() if self.is_eager else nullcontext(), limited_to(n_threads):
            got = self.operator(**inputs, out=out)
        return dict(zip(self.names, got if isinstance(got, tuple) else (got,), strict=True))


def check_memory(make: Callable[[random.Random], Sketch], seed: int) -> None:
    """Nothing but elements is touched, nothing but results written, and the number of threads does not matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", polyc.PolycWarning)
        trial = Trial(make, seed)
        inputs = {name: place(values, trial.source) for name, values in trial.inputs.items()}
        before = {name: p.memory.copy() for name, p in inputs.items()}
        expected = trial.expect({name: p.array.copy() for name, p in inputs.items()})
        results = {name: place(np.full_like(values, 77), trial.source, True) for name, values in expected.plain.items()}
        gaps = {name: p.gaps().copy() for name, p in results.items()}
        bits = []
        for n_threads in trial.source.sample([1, 2, 3, 7], 2):
            got = trial.run({n: p.array for n, p in inputs.items()}, {n: p.array for n, p in results.items()}, n_threads)
            problem = check_results(got, expected)
            assert problem is None, f"{problem}\n{trial.where}"
            bits.append({name: array.tobytes() for name, array in got.items()})
    assert bits[0] == bits[1], trial.where
    for name, placed in inputs.items():
        np.testing.assert_array_equal(placed.memory, before[name], trial.where)
    for name, placed in results.items():
        np.testing.assert_array_equal(placed.gaps(), gaps[name], trial.where)


@profile(20)
@given(st.integers(0, 1 << 30))
def test_no_byte_beside_elements_is_touched(seed: int) -> None:
    check_memory(pipeline, seed)


@profile(20)
@given(st.integers(0, 1 << 30))
def test_sums_into_computed_places(seed: int) -> None:
    check_memory(left_sides, seed)


@profile(20)
@given(st.integers(0, 1 << 30))
def test_points_of_few_components(seed: int) -> None:
    check_memory(components, seed)


@profile(30)
@given(st.integers(0, 1 << 30))
def test_results_over_inputs_are_right_or_refused(seed: int) -> None:
    check_in_place(seed)


def check_in_place(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", polyc.PolycWarning)
        trial = Trial(pipeline, seed)
        expected = trial.expect(trial.inputs)
        inputs = {name: place(values, trial.source, True).array for name, values in trial.inputs.items()}
        out = {name: np.full_like(values, 77) for name, values in expected.plain.items()}
        same = [n for n, a in out.items() if a.size and (a.shape, a.dtype) == (inputs["A"].shape, inputs["A"].dtype)]
        shared = dict(zip(trial.source.sample(same, min(len(same), trial.source.randint(1, 2))), "AB", strict=False))
        out |= {result: inputs[name] for result, name in shared.items()}
        for _ in range(2):
            for name, values in trial.inputs.items():
                inputs[name][...] = values
            try:
                got = trial.run(inputs, out, trial.source.choice([1, 2, 3]))
            except PolycError as error:
                assert error.code == "unsupported-alias", f"{error}\n{shared} {trial.where}"
                kept = tuple(inputs)
            else:
                problem = check_results(got, expected)
                assert problem is None, f"{problem}\n{shared} {trial.where}"
                kept = tuple(n for n in inputs if n not in shared.values())
            for name in kept:
                np.testing.assert_array_equal(inputs[name], trial.inputs[name], trial.where)
