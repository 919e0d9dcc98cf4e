"""Calibrations: what they change in the model, how they are kept, and what the command says."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import polyc
from polyc import driver
from polyc.api import calibration
from polyc.api.rates import measure_rates
from polyc.cli import main
from polyc.codegen.objects import calibration_file, host
from polyc.config import default_options
from polyc.machine import MACHINES, X86_64_V4, Machine
from polyc.machine.calibration import FITTED, RANGES, Calibration, calibrate_model, clamp, from_plain, to_plain
from polyc.records import replace

FOUND = Calibration(
    fma_latency=4.1,
    fma_per_cycle=1.01,
    loads_per_cycle=1.9,
    gather=0.7,
    read=(32.0, 24.0, 4.4),
    read_strided=(19.0, 9.0, 1.8),
    read_prefetched=(17.0, 8.0, 1.8),
    written=(12.0, 4.0, 3.8),
    passed=(8.0, 6.2, 2.1),
    streamed=17.5,
    fork=2000.0,
    wake=100_000.0,
    numpy_product=50.0,
    numpy_step=5.0,
    numpy_copied=20.0,
)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A disk cache of its own, in which a calibration may be kept."""
    monkeypatch.setenv("POLYC_CACHE", "1")
    monkeypatch.setenv("POLYC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("POLYC_MACHINE", raising=False)
    host.read_calibration_again()
    measure_rates.cache_clear()
    yield tmp_path / "cache"
    monkeypatch.undo()
    host.read_calibration_again()
    measure_rates.cache_clear()


def keep(found: Calibration) -> Path:
    file = calibration_file.write(calibration.machine_identity(), found)
    host.read_calibration_again()
    return file


def test_a_model_takes_what_was_measured() -> None:
    machine = calibrate_model(X86_64_V4, FOUND)
    assert (machine.fma_latency, machine.fma_per_cycle, machine.loads_per_cycle) == (4, 1, 2)
    assert machine.has_fast_gather and machine.memory.read == replace(X86_64_V4.memory.read, memory=6.0)
    assert machine.memory.streamed == X86_64_V4.memory.streamed
    assert machine.memory.written.l2 == inf  # near caches take results meanwhile
    assert machine.threads.fork == 2048 and machine.threads.least_work == 1 << 15 and machine.threads.spin_ns == 100_000
    assert (machine.l1, machine.features) == (X86_64_V4.l1, X86_64_V4.features)


def test_results_are_streamed_only_where_that_is_faster() -> None:
    assert calibrate_model(X86_64_V4, FOUND).is_streamed(1 << 30, 0)
    slow = replace(FOUND, streamed=1.0)
    assert not calibrate_model(X86_64_V4, slow).is_streamed(1 << 30, 0)
    assert calibrate_model(X86_64_V4, slow).memory.filled == inf


def test_farther_is_never_faster() -> None:
    machine = calibrate_model(X86_64_V4, replace(FOUND, read=(1.0, 25.0, 30.0)))
    assert machine.memory.read.l2 == machine.memory.read.l3 == machine.memory.read.memory < 2


def test_a_second_calibration_that_says_about_the_same_changes_nothing() -> None:
    assert calibrate_model(X86_64_V4, replace(FITTED, fma_per_cycle=2, loads_per_cycle=2)) == replace(
        X86_64_V4, gather=calibrate_model(X86_64_V4, FITTED).gather
    )
    near = replace(FOUND, read=(33.0, 25.5, 4.3), fork=2100.0, gather=0.72, fma_latency=3.9)
    assert calibrate_model(X86_64_V4, near) == calibrate_model(X86_64_V4, FOUND)


@pytest.mark.parametrize("value", [0.0, -1.0, nan, inf, -inf, 1e300])
def test_numbers_that_no_machine_has_are_held_to_what_one_may_have(value: float) -> None:
    shapes = {f.name: isinstance(getattr(FOUND, f.name), tuple) for f in fields(Calibration)}
    wrong = Calibration(**{name: (value,) * 3 if is_three else value for name, is_three in shapes.items()})
    for name, number in to_plain(wrong).items():
        for n in number if isinstance(number, list) else [number]:
            assert RANGES[name][0] <= n <= RANGES[name][1] and isfinite(n)
    assert calibrate_model(X86_64_V4, wrong) == calibrate_model(X86_64_V4, clamp(wrong))


def test_every_measured_number_changes_the_model_or_numpys_rates() -> None:
    before = calibrate_model(X86_64_V4, FOUND)
    for f in fields(Calibration):
        value = getattr(FOUND, f.name)
        changed = replace(FOUND, **{f.name: tuple(v / 2 for v in value) if isinstance(value, tuple) else value * 2})
        assert f.name.startswith("numpy_") or calibrate_model(X86_64_V4, changed) != before, f.name


@pytest.mark.parametrize(
    "plain",
    [None, [], {}, {**to_plain(FOUND), "fork": "1"}, {**to_plain(FOUND), "read": [1.0]}, {**to_plain(FOUND), "more": 1}],
)
def test_what_is_no_calibration_is_refused(plain: Any) -> None:
    with pytest.raises(ValueError):
        from_plain(plain)
    assert from_plain(json.loads(json.dumps(to_plain(FOUND)))) == clamp(FOUND)


def test_a_kept_calibration_is_used_and_part_of_the_key_of_kernels(directory: Path) -> None:
    text = "def f(float(N, N) x) -> (y) { y(i, j) +=! x(i, k) * x(k, j) }"
    x = np.eye(64, dtype=np.float32)
    plain = driver.select_target(default_options())
    polyc.compile(text)(x)
    kept = {p.name for p in directory.rglob("*") if p.is_file()}
    file = keep(FOUND)
    assert (os.stat(file.parent).st_mode & 0o777) == 0o700
    machine = driver.select_target(default_options())
    assert machine.memory.read.memory == 6.0 != plain.memory.read.memory and machine.threads.fork == 2048
    assert driver.select_target(default_options().replace(target="x86-64-v2")).memory == machine.memory
    np.testing.assert_array_equal(polyc.compile(text)(x), x)
    assert len({p.name for p in directory.rglob("*") if p.is_file()} - kept) >= 2  # the calibration, and another kernel
    rates = measure_rates()
    assert (rates.product, rates.step, rates.copied) == (50.0, 5.0, 20.0)


def test_another_machine_overrides_a_calibration(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(FOUND)
    monkeypatch.setenv("POLYC_MACHINE", "zen3")
    assert driver.select_target(default_options()) == MACHINES["zen3"]


def test_a_damaged_calibration_is_not_used(directory: Path) -> None:
    file = keep(FOUND)
    broken = ({"fork": None}, {"fork": 10**400})
    for text in ("", "{", "[]", "[" * 100_000, *(json.dumps({**to_plain(FOUND), **values}) for values in broken)):
        file.write_text(text)
        host.read_calibration_again()
        assert host.host_calibration() is None


def test_a_calibration_is_another_machines_where_processor_caches_or_cores_are_others(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(FOUND)
    assert host.host_calibration() is not None
    for name, value in (("read_cache_sizes", lambda: {2: 1}), ("describe_machine", lambda: "z80")):
        with monkeypatch.context() as patch:
            patch.setattr(host, name, value)
            host.host_calibration.cache_clear()
            assert host.host_calibration() is None
    with monkeypatch.context() as patch:
        patch.setattr(os, "cpu_count", lambda: 1000)
        host.host_calibration.cache_clear()
        assert host.host_calibration() is None


def test_without_a_disk_cache_there_is_no_calibration(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(FOUND)
    monkeypatch.setenv("POLYC_CACHE", "0")
    host.read_calibration_again()
    assert host.host_calibration() is None
    done = CliRunner().invoke(main, ["calibrate", "--quick"])
    assert done.exit_code == 1 and not done.stdout and "the disk cache is off" in done.stderr


def test_this_machine_is_measured_kept_shown_and_forgotten(directory: Path) -> None:
    def invoke(*words: str) -> Any:
        return CliRunner().invoke(main, list(words))

    assert "not calibrated" in invoke("doctor").stdout
    done = invoke("calibrate", "--quick", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"file", "values"} and Path(found["file"]).is_file() and "measuring" in done.stderr
    values = from_plain(found["values"])
    machine = driver.select_target(default_options())
    assert 3 <= machine.fma_latency <= 8 or not machine.has_fma
    assert (values.gather is None) == (not machine.has_gather)
    assert values == host.host_calibration() and values != FOUND
    assert "calibrated (polyc calibrate --forget removes it)" in invoke("doctor").stdout
    done = invoke("calibrate", "--forget")
    assert done.exit_code == 0 and done.stdout == f"removed {found['file']}\n" and not done.stderr
    assert driver.select_target(default_options()) == host.uncalibrated_host(machine.cores)
    assert json.loads(invoke("calibrate", "--forget", "--json").stdout) == {"file": None, "values": None}


def test_a_place_that_cannot_be_written_is_an_error(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory.parent / "file").write_text("")
    monkeypatch.setenv("POLYC_CACHE_DIR", str(directory.parent / "file" / "cache"))
    done = CliRunner().invoke(main, ["calibrate", "--quick"])
    assert done.exit_code == 1 and not done.stdout and "argument-file" in done.stderr


KERNELS = {
    "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }": (lambda a, b: a @ b, ((70, 130), (130, 67))),
    "def f(float(N,M) X) -> (Y) { Y(j,i) = 2 * X(i,j) }": (lambda x: 2 * x.T, ((131, 77),)),
    "def f(float(V) T, float(N) X) -> (Y) { Y(i) = T(int32(X(i))) where i in 0:N }": (
        lambda t, x: t[x.astype(np.int32)],
        ((40,), (301,)),
    ),
    """def f(float(N,M) X) -> (Y) {
      A(i,j) = X(i,j) + X(i,j+1) + X(i,j+2) where i in 0:N, j in 0:M-2
      Y(i,j) = A(i,j) + A(i+1,j) + A(i+2,j) where i in 0:N-2, j in 0:M-2 }""": (
        lambda x: sum(x[r : len(x) - 2 + r, s : x.shape[1] - 2 + s] for r in range(3) for s in range(3)),
        ((90, 301),),
    ),
}


def any_machine(seed: int) -> Machine:
    """This machine with numbers from anywhere in their ranges, and other caches and cores."""
    rng = np.random.default_rng(seed)

    def draw(name: str) -> float:
        least, most = RANGES[name]
        return float(rng.choice([least, most, least * (most / least) ** rng.random()]))

    drawn = {
        f.name: tuple(draw(f.name) for _ in range(3)) if isinstance(getattr(FOUND, f.name), tuple) else draw(f.name)
        for f in fields(Calibration)
    }
    caches = {"l1": 1 << int(rng.integers(14, 18)), "l2": 1 << int(rng.integers(16, 23)), "l3": 1 << int(rng.integers(20, 27))}
    machine = replace(host.uncalibrated_host(int(rng.integers(1, 9))), **caches)
    return calibrate_model(machine, Calibration(**drawn))


@pytest.mark.parametrize("seed", range(6))
def test_kernels_are_right_whatever_was_measured(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = any_machine(seed)
    monkeypatch.setattr(host, "_host_with", lambda cores: machine)
    rng = np.random.default_rng(seed)
    for text, (expected, shapes) in KERNELS.items():
        arrays = [rng.integers(0, 40, shape).astype(np.float32) for shape in shapes]
        np.testing.assert_array_equal(polyc.compile(text, dynamic=seed % 2 == 1)(*arrays), expected(*arrays))
