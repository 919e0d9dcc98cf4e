"""Golden files: texts that a person has read once, compared by every run and rewritten by ``pytest --update-golden``."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
_MAX_LINES = 60


def compare_golden(name: str, text: str, config: pytest.Config) -> None:
    """Compare `text` with the file `name` below tests/golden, or write it there."""
    path = FOLDER / name
    text = text if text.endswith("\n") else text + "\n"
    if config.getoption("--update-golden"):
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return
    assert path.exists(), f"{path} is missing: pytest tests/golden --update-golden writes it"
    expected = path.read_text()
    if text == expected:
        return
    lines = list(difflib.unified_diff(expected.split("\n"), text.split("\n"), str(path), "now", lineterm=""))
    shown = "\n".join(lines[:_MAX_LINES]) + (f"\n… {len(lines) - _MAX_LINES} more lines" if len(lines) > _MAX_LINES else "")
    pytest.fail(
        f"{shown}\n\nIf this is what you wanted: pytest tests/golden --update-golden, and read the difference.", pytrace=False
    )
