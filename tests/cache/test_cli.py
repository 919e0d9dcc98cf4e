"""``polyc cache``, and the verbs that find their kernels on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from polyc.cli import main

SUM = "def total(float(M, N) X) -> (s) {\n  s(m) +=! X(m, n)\n}\n"


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "total.tc"
    path.write_text(SUM)
    return str(path)


def invoke(*arguments: str):
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return result


def test_info_and_clear(source: str, cache_dir: Path) -> None:
    assert invoke("cache", "info").stdout.splitlines() == [
        f"location: {cache_dir}",
        "state:    on",
        "entries:  0",
        "bytes:    0",
        "at most:  536870912",
    ]
    assert not cache_dir.exists()
    invoke("run", source, "--size", "M=3,N=5")
    size = sum(p.stat().st_size for p in (cache_dir / "entries").iterdir())
    lines = invoke("cache", "info").stdout.splitlines()
    assert lines[2:4] == ["entries:  3 (1 kernel, 1 shapes, 1 source)", f"bytes:    {size}"]
    assert invoke("cache", "clear").stdout == f"removed 3 entries from {cache_dir}\n"
    assert invoke("cache", "clear").stdout == f"removed 0 entries from {cache_dir}\n"
    assert list((cache_dir / "entries").iterdir()) == []


def test_info_where_the_cache_is_off_or_limited(cache_dir: Path, monkeypatch) -> None:
    monkeypatch.setenv("POLYC_CACHE", "0")
    monkeypatch.setenv("POLYC_CACHE_SIZE", "3M")
    output = invoke("cache", "info").stdout
    assert "state:    off (POLYC_CACHE=0)" in output and "at most:  3145728" in output


def test_info_where_there_is_no_home(monkeypatch) -> None:
    monkeypatch.delenv("POLYC_CACHE_DIR")
    monkeypatch.setattr("polyc.config._user_cache", lambda xdg, home: None)
    assert invoke("cache", "info").stdout.startswith("location: none")
    assert invoke("cache", "clear").stdout == "removed 0 entries\n"


def test_run_and_compile_find_what_was_compiled(source: str, tmp_path: Path, calls: list[str]) -> None:
    arguments = ("run", source, "--size", "M=3,N=5")
    first = invoke(*arguments).stdout
    assert calls == ["read_tc_with_warnings", "infer_shapes", "lower"]
    assert invoke(*arguments).stdout == first
    assert len(calls) == 3
    contents = []
    for name in ("a", "b"):
        calls.clear()
        invoke("compile", source, "-o", str(tmp_path / f"{name}.o"))
        contents.append(((tmp_path / f"{name}.o").read_bytes(), (tmp_path / f"{name}.h").read_text()))
    assert contents[0] == contents[1]
    assert calls == []
    assert invoke("compile", source, "--emit", "loops").stdout.startswith("nest total")
    assert calls == ["lower"]
