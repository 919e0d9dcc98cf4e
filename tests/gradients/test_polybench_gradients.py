"""Derivatives of PolyBench's kernels: both modes agree with each other and with differences.

A sample by default, all with ``POLYC_TEST_GRADIENTS=all``; ``python -m tests.gradients.matrix polybench`` counts."""

from __future__ import annotations

import pytest

from benchmarks.polybench import KERNELS
from tests.gradients.helpers import RIGHT, check_derivatives
from tests.gradients.sources import IS_FULL, polybench_case

SAMPLE = ("gemm", "mvt", "covariance")
"""Kernels whose derivatives must be there; of others a named error may say that they are not."""


@pytest.mark.parametrize("name", KERNELS if IS_FULL else SAMPLE)
def test_both_modes_agree_with_differences(name: str) -> None:
    found = check_derivatives(polybench_case(name))
    if name in SAMPLE:
        assert (found.forward, found.reverse) == (RIGHT, RIGHT)
    elif (found.forward, found.reverse) != (RIGHT, RIGHT):
        pytest.skip(f"forward: {found.forward}, reverse: {found.reverse}")
