"""Random decorated functions with loops, branches, calls, gathers and scatters: kernels against NumPy.

By hand, for a longer run: ``POLYC_EXAMPLES=3000 pytest tests/property/test_decorated.py``.
"""

from __future__ import annotations

import linecache
import os
import random
import warnings
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import polyc
from polyc.diagnostics import PolycError
from tests.property.decorated import HELPERS, SIZES, make_function
from tests.property.pipeline import LEVELS

EXAMPLES = int(os.environ.get("POLYC_EXAMPLES", "30"))
TYPES = ("f32", "f64", "f32", "i32", "i64")


def run_module(source: str, name: str, space: dict[str, Any]) -> dict[str, Any]:
    """Run text as a module whose source `inspect` finds."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), space)
    return space


def view(chance: random.Random, array: np.ndarray) -> np.ndarray:
    """The same elements, laid out in another way."""
    match chance.randrange(5):
        case 0:
            return np.asfortranarray(array)
        case 1:
            wide = np.zeros(tuple(2 * n + 1 for n in array.shape), array.dtype)[tuple(slice(0, 2 * n, 2) for n in array.shape)]
            wide[...] = array
            return wide
        case 2:
            return np.ascontiguousarray(array[::-1])[::-1]
        case _:
            return array


def make_numpy(source: str) -> Any:
    def mirror(at: Any, n: int) -> Any:
        at = np.abs(at) % max(1, 2 * (n - 1))
        return np.where(at >= n, 2 * (n - 1) - at, at)

    def polynomial(x: Any, degree: int) -> Any:
        y = x
        for step in range(degree):
            y = np.clip(y * x, -8, 8) if step % 2 == 0 else y + step
        return y

    space: dict[str, Any] = {"np": np, "mirror": mirror, "polynomial": polynomial}
    exec(source, space)
    return space["f"]


def check_function(seed: int, n: int) -> None:
    """Compile and run the function of `seed` for size `n`, and compare; AssertionError with the text where they differ."""
    chance = random.Random(seed)
    types = tuple(chance.choice(TYPES) for _ in range(4))
    source, reference = make_function(chance, types)
    rng = np.random.default_rng(seed)
    arrays = [
        view(chance, rng.integers(-4, 5, shape).astype(polyc_type))
        for shape, polyc_type in zip([(n, n), (n, n), n, n], (f"{t[0]}{int(t[1:]) // 8}" for t in types), strict=True)
    ]
    at = rng.integers(0, n, n)

    def grids(count: int) -> list[np.ndarray]:
        return np.meshgrid(*[np.arange(n)] * count, indexing="ij", sparse=True)

    def full2(values: Any) -> np.ndarray:
        return np.broadcast_to(values, (n, n))

    c = chance.choice([2, 3, -1])
    level, dynamic = chance.choice(LEVELS), chance.random() < 0.3
    shown = f"seed={seed} n={n} {level} dynamic={dynamic}\n{source}\n{reference}"
    expected = make_numpy(reference)(*arrays, at, c, n, grids, full2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", polyc.PolycWarning)
        space = run_module(f"{HELPERS}\n{source}", f"<decorated {seed}>", {"__name__": "decorated"})
        try:
            operator = polyc.op(space["f"], target=level, dynamic=dynamic)
            got = operator(*arrays, at, c=c)
        except PolycError as error:
            raise AssertionError(f"{error}\n{shown}") from error
    single = not isinstance(got, tuple)
    for have, want in zip((got,) if single else got, (expected,) if single else expected, strict=True):
        np.testing.assert_array_equal(have, want, err_msg=shown)


@settings(max_examples=EXAMPLES, deadline=None, derandomize="POLYC_EXAMPLES" not in os.environ, database=None)
@given(st.integers(0, 1 << 30), st.sampled_from(SIZES))
def test_functions_agree_with_numpy(seed: int, n: int) -> None:
    check_function(seed, n)
