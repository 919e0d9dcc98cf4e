"""Models that are loaded cold: what is written is well formed, and differences of results are seen."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.cold_loads import differ
from benchmarks.models.cold import CASES, MODELS


@pytest.mark.parametrize("name", [*MODELS, "conv3x3"])
def test_models_are_well_formed(name, tmp_path):
    path = tmp_path / f"{name}.onnx"
    {**MODELS, **CASES}[name](path)
    onnx.checker.check_model(str(path), full_check=True)
    assert all(d.dim_value for o in onnx.load(path).graph.output for d in o.type.tensor_type.shape.dim)


def test_differences_are_parts_of_the_largest_element(tmp_path):
    a, b = tmp_path / "a.npz", tmp_path / "b.npz"
    np.savez(a, np.array([2.0, -4.0]), np.array([1.0]))
    np.savez(b, np.array([2.0, -4.5]), np.array([1.0]))
    assert differ(a, b) == 0.125
