"""The demonstration runs: what `make demo` starts, on its cheapest operator."""

from __future__ import annotations

import re
import subprocess
import sys


def test_the_demonstration_runs_and_matches_numpy():
    """It broke unseen when the runner that it borrows from was changed."""
    command = [sys.executable, "-m", "examples.run_all", "maxpool"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\b([1-9]\d*) of \1 operators match NumPy", done.stdout)
