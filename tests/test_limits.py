"""Memory that a process may have: limits of containers and of the process itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from polyc.limits import available_memory, group_limits


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def found(tmp_path: Path, membership: str, files: dict[str, str]) -> list[int]:
    write(tmp_path / "membership", membership)
    for name, text in files.items():
        write(tmp_path / "groups" / name, text)
    return sorted(group_limits(tmp_path / "groups", tmp_path / "membership"))


def test_limits_of_groups_around_count_as_well(tmp_path):
    files = {"a/b/memory.max": "max\n", "a/memory.max": "1000\n", "memory.max": "2000\n", "other/memory.max": "1\n"}
    assert found(tmp_path, "0::/a/b\n", files) == [1000, 2000]


def test_the_first_version_of_control_groups(tmp_path):
    membership = "9:name=systemd:/\n4:cpu,memory:/box/run\n0::/\n"
    files = {"memory/box/run/memory.limit_in_bytes": "4096\n", "memory/memory.limit_in_bytes": "9223372036854771712\n"}
    assert found(tmp_path, membership, files) == [4096]


def test_a_container_that_sees_its_own_group_as_the_root(tmp_path):
    assert found(tmp_path, "0::/system.slice/docker-1234.scope\n", {"memory.max": "512\n"}) == [512]


@pytest.mark.parametrize("membership", ["", "nonsense\n", "0::/\n", "4:memory:/gone\n"])
def test_no_limit_is_no_limit(tmp_path, membership):
    assert found(tmp_path, membership, {"memory.max": "max\n"}) == []
    assert list(group_limits(tmp_path / "nowhere", tmp_path / "nothing")) == []


def test_some_memory_is_there():
    assert 1 << 26 < available_memory() <= sys.maxsize


def test_what_exceeds_the_limit_of_the_process_is_refused():
    program = """
import resource, numpy as np, polyc
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
outer = polyc.compile("def outer(float(N) X, float(M) Z) -> (Y) { Y(n,m) = X(n) * Z(m) }")
ones = np.ones(20000, np.float32)
try:
    outer(ones, ones)
except polyc.ArgumentError as error:
    print(error.diagnostics[0].code, error.diagnostics[0].help)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("argument-too-large") and "may have 1 GiB" in done.stdout, done.stderr
