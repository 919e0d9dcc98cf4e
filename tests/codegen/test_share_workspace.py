"""Memory of the workspace that buffers take turns with: less of it, and the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.codegen.objects.host import host_target
from polyc.config import default_options
from polyc.ir.interpret import interpret
from polyc.ir.interpret_loops import interpret_loops
from polyc.records import replace
from polyc.runtime.threads import get_num_threads, set_num_threads
from tests.property.pipeline import small_thresholds, spoil_workspace
from tests.scheduler.test_recurrence_ends import PLANES
from tests.scheduler.test_short_recurrences import small_cache

BORDERS = PLANES["border-copied"]
SIZES = {"N": 150, "M": 90, "T": 5}
PLANES_IN_TURN = """def chain(float(N, N) X) -> (Y) {
  A(i, j) +=! X(i, k) * X(k, j)
  B(i, j) +=! A(i, k) * A(k, j)
  C(i, j) +=! B(i, k) * B(k, j)
  Y(i, j) +=! C(i, k) * C(k, j)
}"""


def lower(text: str, sizes: dict[str, int], fixed: bool = True, **options: Any) -> Any:
    program, chosen = polyc.compile(text).program, default_options().replace(**options)
    return driver.lower(program, sizes=sizes if fixed else None, options=chosen, target=small_cache(host_target()))


def places(lowered: Any) -> dict[str, str]:
    return {b.name: b.memory for b in lowered.nest.buffers if b.memory}


@pytest.mark.pairs
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("text, sizes", [(BORDERS, SIZES), (PLANES_IN_TURN, {"N": 70})], ids=["tiles", "planes"])
@pytest.mark.parametrize("fixed", [True, False], ids=["fixed", "any-sizes"])
def test_shared_memory_holds_what_is_needed(text: str, sizes: dict[str, int], n_threads: int, fixed: bool) -> None:
    lowered = lower(text, sizes, fixed)
    rng = np.random.default_rng(0)
    shapes = {"X": (sizes["N"], sizes.get("M", sizes["N"])), "steps": (sizes.get("T", 1),)}
    arrays = {n: (0.1 * rng.standard_normal(shapes[n])).astype(np.float32) for n in lowered.program.parameters}
    before = get_num_threads()
    set_num_threads(n_threads)
    try:
        kernel = lowered.compile()
        spoil_workspace()
        found = kernel(*arrays.values())
    finally:
        set_num_threads(before)
    expected = interpret(polyc.compile(text).program, arrays)["Y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert places(lowered) or not fixed


def test_a_chain_takes_the_memory_of_two() -> None:
    for text, sizes in ((BORDERS, SIZES), (PLANES_IN_TURN, {"N": 70})):
        shared, apart = lower(text, sizes), lower(text, sizes, disable="share-workspace")
        assert places(shared) and not places(apart)
        spaces = {b.name: b.space for b in apart.nest.buffers if b.space in ("shared", "thread")}
        kept = [name for name in spaces if name not in places(shared)]
        assert len(kept) < len(spaces)


def test_the_interpreter_sees_memory_that_is_taken_too_early() -> None:
    """What buffers in one memory overwrite shows in the oracle."""
    lowered = lower(BORDERS, {**SIZES, "N": 20, "M": 40})
    names = [b.name for b in lowered.nest.buffers if b.space in ("shared", "thread")]
    nest = replace(
        lowered.nest,
        buffers=tuple(
            replace(b, memory="" if b.name == names[0] else names[0]) if b.name in names else b for b in lowered.nest.buffers
        ),
    )
    x, steps = np.ones((20, 40), np.float32) * np.arange(40, dtype=np.float32), np.ones(5, np.float32)
    results = []
    for each in (lowered.nest, nest):
        y = np.zeros_like(x)
        interpret_loops(each, [x, steps, y], {**SIZES, "N": 20, "M": 40})
        results.append(y)
    assert not np.allclose(*results, equal_nan=True)


def test_the_second_buffer_of_a_place_has_values_of_its_own() -> None:
    """LLVM was told that pointers to one piece of memory never meet, and stored to the second before it loaded the first."""
    text = """def f(int16(N, M) A) -> (T) {
      T(i, j) +=! (r >= 0 ? complex64(0.25) : complex64(0.25)) * complex64(A((j + 2) % N, r / 2)) 
        where i in 0:1, j in 0:3, r in 0:M, r <= i
    }"""
    a = np.arange(24, dtype=np.int16).reshape(3, 8)
    with small_thresholds():
        operator = polyc.compile(text)
        assert places(operator.lower(a))
        np.testing.assert_array_equal(operator(a), [[0.25 * a[(j + 2) % 3, 0] for j in range(3)]])
