"""From files to files: ``.npy``, Zarr and HDF5."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import polyc
from polyc.api.dask_files import open_array
from polyc.cli import main
from polyc.diagnostics import UnsupportedError
from tests.blocks.test_dask import KINDS

da = pytest.importorskip("dask.array")


def test_command_line_runs_from_files_to_files(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((60, 40), np.float32)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "op.tc").write_text(
        text := "def f(float(N, M) x) -> (y, s) { y(i, j) = x(i, j) + x(i + 1, j)  s() +=! x(i, j) }"
    )
    arguments = ["run", str(tmp_path / "op.tc"), "--input", str(tmp_path / "x.npy"), "--memory", "8K", "--threads", "1"]
    done = CliRunner().invoke(main, [*arguments, "--output", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    y, s = polyc.compile(text)(x)
    np.testing.assert_array_equal(np.load(tmp_path / "out/y.npy"), y)
    np.testing.assert_allclose(np.load(tmp_path / "out/s.npy"), s, rtol=1e-5)
    assert "parts of s, combined by add" in done.output
    assert CliRunner().invoke(main, arguments).exit_code == 2  # no --output


def test_command_line_reads_and_writes_zarr(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    x = np.random.default_rng(0).random((30, 8), np.float32)
    da.from_array(x, chunks=(7, 8)).to_zarr(str(tmp_path / "x.zarr"))
    (tmp_path / "op.tc").write_text(KINDS["pointwise"][0])
    arguments = ["run", str(tmp_path / "op.tc"), "--input", f"x={tmp_path / 'x.zarr'}", "--memory", "1M"]
    done = CliRunner().invoke(main, [*arguments, "--output", str(tmp_path / "y.zarr")])
    assert done.exit_code == 0, done.output
    np.testing.assert_array_equal(da.from_zarr(str(tmp_path / "y.zarr")).compute(), polyc.compile(KINDS["pointwise"][0])(x))


def test_command_line_reads_and_writes_hdf5(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    x = np.random.default_rng(0).random((30, 8), np.float32)
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.create_dataset("fields/x", data=x, chunks=(7, 8))
        file.create_dataset("other", data=x)
        file.create_dataset("swapped", data=x.astype(">f4"))
    (tmp_path / "op.tc").write_text("def f(float(N, M) x) -> (y, s) { y(i, j) = 2.0 * x(i, j)  s(i) +=! x(i, j) }")

    def run(given: str, output: str) -> Any:
        arguments = ["--input", f"x={tmp_path / given}", "--output", str(tmp_path / output), "--memory", "1K", "--threads", "2"]
        return CliRunner().invoke(main, ["run", str(tmp_path / "op.tc"), *arguments])

    for given, output, place in (
        ("in.h5:/fields/x", "out.h5", ""),
        ("in.h5:/other", "out.h5:/again", "again/"),
        ("in.h5:swapped", "out.h5", ""),  # once more: other arrays of the file stay
    ):
        done = run(given, output)
        assert done.exit_code == 0, done.output
        with h5py.File(tmp_path / "out.h5", "r") as file:
            np.testing.assert_array_equal(file[f"{place}y"][:], 2 * x)
            np.testing.assert_allclose(file[f"{place}s"][:], x.sum(1), rtol=1e-5)
            assert "again" in file or not place
    for given, output, message in (
        ("in.h5", "out.h5", "does not hold one array"),
        ("in.h5:/nothing", "out.h5", "has no array /nothing"),
        ("in.h5:/fields", "out.h5", "name one: .*in.h5:/fields/x, .*in.h5:/other"),
        ("none.h5:/x", "out.h5", "No such file or directory"),
        ("op.tc", "out.h5", "cannot be read"),
        ("in.h5:/other", "in.h5:/result", "cannot be written"),
        ("in.h5:/other", "out.h5:/again/y/deep", "cannot hold an array"),
        ("in.h5:/other", "out.h5:/..", "no name of an array"),
    ):
        done = run(given, output)
        assert done.exit_code == 1
        assert "argument-file" in done.output
        assert re.search(message, done.output), done.output


def test_a_group_of_an_hdf5_file_is_not_replaced_by_an_array(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "out.h5", "w") as file:
        file["group/kept"] = np.ones(3)
    np.save(tmp_path / "x.npy", np.zeros((0, 8), np.float32))
    (tmp_path / "op.tc").write_text("def f(float(N, M) x) -> (y) { y(i, j) = 2.0 * x(i, j) }")
    arguments = ["run", str(tmp_path / "op.tc"), "--input", str(tmp_path / "x.npy"), "--output"]
    done = CliRunner().invoke(main, [*arguments, str(tmp_path / "out.h5:/group"), "--memory", "1K"])
    assert done.exit_code == 1 and "cannot hold an array group" in done.output
    done = CliRunner().invoke(main, [*arguments, str(tmp_path / "out.h5:/empty"), "--memory", "1K"])
    assert done.exit_code == 0, done.output
    with h5py.File(tmp_path / "out.h5", "r") as file:
        assert file["empty"].shape == (0, 8) and len(file["group/kept"]) == 3


def test_hdf5_files_without_a_bound_of_memory_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "op.tc").write_text("def f(float(N) x) -> (y) { y(i) = 2.0 * x(i) }")
    for option in ("--input", "--output"):
        done = CliRunner().invoke(main, ["run", str(tmp_path / "op.tc"), "--size", "N=4", option, "a.h5:/x"])
        assert done.exit_code == 2 and "with --memory" in done.output


def test_hdf5_without_its_package_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UnsupportedError, match="HDF5 files need h5py") as caught:
        open_array("x.h5:/x", 1000)
    assert caught.value.code == "unsupported-package"
