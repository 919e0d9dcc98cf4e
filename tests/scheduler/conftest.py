"""These tests look at the structure of code: caches and cores are pinned, but where a test names its machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.machines import pinned_caches


@pytest.fixture(autouse=True)
def caches(request: pytest.FixtureRequest) -> Iterator[None]:
    with nullcontext() if request.node.get_closest_marker("machine") else pinned_caches():
        yield
