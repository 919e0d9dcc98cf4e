"""What tests of several boards share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest


def forget_loops() -> None:
    for name in [n for n in sys.modules if n.startswith("benchmarks.") and ".numba_" in n]:
        del sys.modules[name]


@pytest.fixture(params=[1, 3])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The loops meant for numba run in Python itself, on one thread and dealt out to three."""

    def njit(function: Any = None, **_: Any) -> Any:
        return function or njit

    fake = SimpleNamespace(config=SimpleNamespace(NUMBA_NUM_THREADS=request.param), njit=njit, prange=range)
    monkeypatch.setitem(sys.modules, "numba", fake)  # type: ignore[arg-type]
    forget_loops()
    yield
    forget_loops()
