"""A cache of its own for each test, and what is asked of the compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyc import driver, recall
from polyc.cache import store
from polyc.codegen.objects.host import host_target
from polyc.recall import entries


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the test's cache, switched on; empty at first."""
    for kind in recall.GLUE:
        recall.glue_code(kind)  # whether this process has asked yet is no matter of these tests
    recall.check_code_generator(host_target())
    directory = tmp_path / "cache"
    monkeypatch.setenv("POLYC_CACHE", "1")
    monkeypatch.setenv("POLYC_CACHE_DIR", str(directory))
    monkeypatch.delenv("POLYC_CACHE_SIZE", raising=False)
    monkeypatch.delenv("POLYC_DEBUG", raising=False)
    monkeypatch.setattr(store, "_opened", {})
    # The files of polyc may be edited while the tests run; one test is about that.
    monkeypatch.setattr(entries, "package_state", lambda: entries._PACKAGE)
    return directory


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the driver's functions in the order in which they are called."""
    seen: list[str] = []
    for name in ("lower", "infer_shapes", "infer_extents", "read_tc_with_warnings", "read_function", "read_signature"):
        real = getattr(driver, name)

        def counted(*args, real=real, name=name, **options):
            seen.append(name)
            return real(*args, **options)

        monkeypatch.setattr(driver, name, counted, raising=False)
    return seen


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What the logger ``polyc`` says, all of it."""
    caplog.set_level("DEBUG", "polyc")
    return caplog
