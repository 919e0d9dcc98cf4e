"""Machines that tests pin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from polyc.codegen.objects import host
from polyc.machine import Machine
from polyc.records import replace

CACHES = {"l1": 32 << 10, "l2": 1 << 20, "l3": 32 << 20, "cores": 2}
"""What tests of structure count on, whatever the machine has that they run on; its instructions are its own."""


@contextmanager
def pinned_caches() -> Iterator[None]:
    """The host with `CACHES`, also where `POLYC_MACHINE` names another one."""
    before = host._host_with
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("POLYC_MACHINE", raising=False)
        patch.setattr(host, "_host_with", lambda cores: replace(before(cores), **CACHES))
        yield


def stream_all_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result is long enough to pass the caches by, on machines that stream any."""
    monkeypatch.setattr(Machine, "streaming_sizes", property(lambda m: (1, 1, 1) if m.architecture == "x86_64" else None))
