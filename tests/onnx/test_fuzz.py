"""Mutated models in a process of their own: whatever they say, it ends by itself, with results or named errors.  Random graphs:
they are compiled, and compute what they should.

POLYC_FUZZ_MODELS is the number of models (40), POLYC_FUZZ_GRAPHS that of graphs (25), POLYC_FUZZ_SEED the seed (0)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.onnx.random_graphs import find_fault

SEED = os.environ.get("POLYC_FUZZ_SEED", "0")
COUNT = int(os.environ.get("POLYC_FUZZ_MODELS", "40"))
GRAPHS = int(os.environ.get("POLYC_FUZZ_GRAPHS", "25"))
PATIENCE = 300 + 5 * COUNT
"""Seconds after which a process counts as one that hangs."""


def test_mutated_models_give_results_or_named_errors():
    command = [sys.executable, "-m", "tests.onnx.fuzzing", SEED, str(COUNT)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "results" in done.stdout and "semantic-onnx" in done.stdout


def test_random_graphs_compute_what_the_reference_computes():
    faults = [fault for k in range(GRAPHS) if (fault := find_fault(int(SEED) + k)) is not None]
    assert not faults, "\n".join(faults)
