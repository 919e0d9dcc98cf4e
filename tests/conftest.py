"""Options of the whole test suite."""

from __future__ import annotations

import os

import pytest

# Every test compiles anew, whatever earlier runs left behind; POLYC_CACHE=1 and a POLYC_CACHE_DIR run the suite warm.
os.environ.setdefault("POLYC_CACHE", "0")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="Rewrite the golden files of tests/golden instead of comparing."
    )
