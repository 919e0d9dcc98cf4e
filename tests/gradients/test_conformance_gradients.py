"""Derivatives of the programs of Tensor Comprehensions' repository: both modes agree with each other and with differences.

A sample by default, all with ``POLYC_TEST_GRADIENTS=all``; ``python -m tests.gradients.matrix conformance`` counts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gradients.helpers import (
    RIGHT,
    check_derivatives,
    check_exactly,
    float_inputs,
    is_polynomial,
    perturbed,
    run,
    seed_of,
)
from tests.gradients.sources import IS_FULL, compile_text, conformance, conformance_case

SAMPLE = ("mm", "conv", "maxpool2x2", "tensordot", "matmul_bw")
"""Programs whose derivatives must be there; of others a named error may say that they are not."""
COMPILED = ("mm", "conv")


def names(sample: tuple[str, ...]) -> list[str]:
    return [n for n in conformance() if IS_FULL or n in sample]


@pytest.mark.parametrize("name", names(SAMPLE))
def test_both_modes_agree_with_differences(name: str) -> None:
    case = conformance_case(name)
    found = check_derivatives(perturbed(case), seed=seed_of(name))
    if is_polynomial(case.program) and RIGHT in (found.forward, found.reverse):
        check_exactly(case)
    if name in SAMPLE:
        assert (found.forward, found.reverse) == (RIGHT, RIGHT)
    elif (found.forward, found.reverse) != (RIGHT, RIGHT):
        pytest.skip(f"forward: {found.forward}, reverse: {found.reverse}")


@pytest.mark.parametrize("name", names(COMPILED))
def test_kernels_of_gradients_compute_what_the_interpreter_does(name: str) -> None:
    entry, case = conformance()[name], conformance_case(name)
    wrt = float_inputs(case.program)
    gradient = compile_text(entry["text"], entry.get("entry")).vjp(wrt)
    values = run(case)
    rng = np.random.default_rng(seed_of(name))
    cotangents = {f"d_{n}": rng.standard_normal(v.shape).astype(np.float32) for n, v in values.items()}
    found = gradient(*case.arrays.values(), *cotangents.values())
    expected = run(case, gradient.program, list(cotangents.values()))
    for got, (result, wanted) in zip(found if isinstance(found, tuple) else (found,), expected.items(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max(initial=1), err_msg=result)
