"""Code for machines that are not this one is written, not called."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.target import X86_64_V2, X86_64_V3, X86_64_V4, is_runnable

TEXT = "def f(float(N, N) x) -> (y) { y(i, j) +=! x(i, k) * x(k, j) }"


def test_code_for_instructions_that_the_machine_lacks_is_written_but_not_called(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("polyc.codegen.objects.host.host_target", lambda: X86_64_V3)
    operator = polyc.compile(TEXT, target="x86-64-v4")
    x = np.ones((64, 64), np.float32)
    assert "vector(lanes 16" in operator.lower(x).as_text("loops")
    with pytest.raises(polyc.UnsupportedError, match="which lacks some of its instructions"):
        operator(x)


def test_older_instruction_sets_run_on_newer_machines():
    assert is_runnable(X86_64_V2, X86_64_V4) and is_runnable(X86_64_V3, X86_64_V4)
    assert not is_runnable(X86_64_V3, X86_64_V2) and not is_runnable(X86_64_V4, X86_64_V3)
