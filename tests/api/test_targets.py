"""Code for machines that are not this one is written, not called."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.codegen.objects.host import host_target, physical_host
from polyc.config import default_options
from polyc.machine import MACHINES, X86_64_V2, X86_64_V3, X86_64_V4, is_runnable

TEXT = "def f(float(N, N) x) -> (y) { y(i, j) +=! x(i, k) * x(k, j) }"


def test_code_for_instructions_that_the_machine_lacks_is_written_but_not_called(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("polyc.codegen.objects.host.physical_host", lambda: X86_64_V3)
    operator = polyc.compile(TEXT, target="x86-64-v4")
    x = np.ones((64, 64), np.float32)
    assert "vector(lanes 16" in operator.lower(x).as_text("loops")
    with pytest.raises(polyc.UnsupportedError, match="which lacks some of its instructions"):
        operator(x)


def test_older_instruction_sets_run_on_newer_machines():
    assert is_runnable(X86_64_V2, X86_64_V4) and is_runnable(X86_64_V3, X86_64_V4)
    assert not is_runnable(X86_64_V3, X86_64_V2) and not is_runnable(X86_64_V4, X86_64_V3)


@pytest.mark.parametrize("name", MACHINES)
def test_another_machine_stands_in_the_place_of_the_host(monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setenv("POLYC_MACHINE", name)
    machine = driver.select_target(default_options())
    assert machine == MACHINES[name] == host_target()
    if machine.architecture != X86_64_V2.architecture:
        return
    older = driver.select_target(default_options().replace(target="x86-64-v2"))
    assert (older.features, older.l1, older.l2, older.l3, older.cores) == (
        X86_64_V2.features,
        *(machine.l1, machine.l2, machine.l3, machine.cores),
    )


def test_machines_get_kernels_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("POLYC_CACHE", "1")
    monkeypatch.setenv("POLYC_CACHE_DIR", str(tmp_path))
    x = np.ones((64, 64), np.float32)
    lanes = {"x86-64-v2": 4, "zen3": 8, "skylake-x": 16}
    for name in (*lanes, *lanes):
        monkeypatch.setenv("POLYC_MACHINE", name)
        assert f"vector(lanes {lanes[name]}" in polyc.compile(TEXT).lower(x).as_text("loops")


def test_code_is_run_where_the_machine_and_this_one_have_its_instructions(monkeypatch: pytest.MonkeyPatch):
    x = np.ones((8, 8), np.float32)
    monkeypatch.setenv("POLYC_MACHINE", "small-vm")
    with pytest.raises(polyc.UnsupportedError, match=r"on the machine small-vm \(POLYC_MACHINE\), which lacks some") as caught:
        if physical_host().vector_bits < 512:
            monkeypatch.setattr("polyc.codegen.objects.host.physical_host", lambda: X86_64_V4)
        polyc.compile(TEXT, target="x86-64-v4")(x)
    assert "unset POLYC_MACHINE" in str(caught.value)
    monkeypatch.setenv("POLYC_MACHINE", "sapphire-rapids")
    monkeypatch.setattr("polyc.codegen.objects.host.physical_host", lambda: X86_64_V3)
    with pytest.raises(polyc.UnsupportedError, match=r"on this machine \(.+\), which lacks some"):
        polyc.compile(TEXT)(x)


def test_a_machine_that_nobody_knows_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POLYC_MACHINE", "zen9")
    with pytest.raises(polyc.ArgumentError, match="no machine 'zen9'") as caught:
        polyc.compile(TEXT)(np.ones((8, 8), np.float32))
    assert "small-vm" in str(caught.value)
