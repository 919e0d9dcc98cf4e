"""What tasks on arrays in chunks hold: said beforehand, kept to, and less where files are read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import polyc
from polyc.diagnostics import ArgumentError
from tests.blocks.differential import interpreted
from tests.blocks.test_dask import KINDS

da = pytest.importorskip("dask.array")


def test_memory_counts_chunks_that_wait_for_a_second_pass() -> None:
    x = da.zeros((400, 3000), chunks=(400, 300), dtype=np.float32)
    total = polyc.compile("def f(float(N, M) x) -> (s) { s(i) +=! x(i, j) }").blocks(x, dry_run=True)
    softmax = polyc.compile(KINDS["softmax"][0]).blocks(x, dry_run=True)
    chunk_bytes = 4 * 400 * 300
    assert chunk_bytes < total.greatest_memory(1) < 1.1 * chunk_bytes
    assert 3 * chunk_bytes < total.greatest_memory(2) < 3.1 * chunk_bytes  # with one that the C library keeps for a thread
    assert 10 * chunk_bytes < softmax.greatest_memory(1) < 12.2 * chunk_bytes  # all chunks, a result and a copy of dask's


def test_passes_over_a_file_that_does_not_fit_read_it_again(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((8, 4096), np.float32)
    np.save(tmp_path / "x.npy", x)
    file = da.from_array(np.load(tmp_path / "x.npy", mmap_mode="r"), chunks=(8, 512))
    operator = polyc.compile(KINDS["softmax"][0])
    held, read = (operator.blocks(file, memory=m, dry_run=True) for m in ("1 MiB", "48 KiB"))
    assert [s.again for s in held.stages] == [(), ()]
    assert [s.again for s in read.stages] == [(), ("x",)]
    assert "128KiB read (x again)" in str(read)
    assert held.greatest_memory(1) > x.nbytes > 2 * read.greatest_memory(1)
    y = operator.blocks(file, memory="48 KiB")
    np.testing.assert_array_equal(y.compute(), operator.blocks(file).compute())
    for other in (da.from_array(x, chunks=(8, 512)), file + 1):  # what is in memory, or computed, is not made twice
        assert [s.again for s in operator.blocks(other, memory="48 KiB", dry_run=True).stages] == [(), ()]


def test_passes_that_do_not_wait_for_each_other_read_a_file_once(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((8, 4096), np.float32))
    file = da.from_array(np.load(tmp_path / "x.npy", mmap_mode="r"), chunks=(8, 512))
    operator = polyc.compile("def f(float(N, M) x) -> (a, b) { a(i) max=! x(i, j)  b(i) +=! x(i, j) }")
    assert [s.again for s in operator.blocks(file, memory="48 KiB", dry_run=True).stages if s.combines] == [(), ()]


def test_memory_counts_what_a_kernel_stores_of_temporaries() -> None:
    x = da.zeros((1024, 1024), chunks=(512, 1024), dtype=np.float32)
    operator = polyc.compile("def f(float(N, M) x) -> (y) { t(i, j) = x(i, j) + x(i + 1, j)  y(i, j) = t(i, j) * t(i, j) }")
    assert operator.blocks(x, dry_run=True).held < 4 * 1024 * (3 * 513 + 8)  # a region, its copy, a result and no t


def test_results_are_cut_until_a_task_keeps_to_its_memory() -> None:
    x = da.zeros((400, 300), chunks=(100, 300), dtype=np.float32)
    operator = polyc.compile(KINDS["stencil-clamp"][0])
    with interpreted():
        assert operator.blocks(x, memory="150 KiB").chunks == ((100,) * 4, (75,) * 4)
    report = operator.blocks(x, memory="150 KiB", dry_run=True)
    assert report.held <= 150 << 10
    with pytest.raises(ArgumentError, match="a block of y holds") as caught:
        operator.blocks(x, chunks=(100, 300), memory="150 KiB")
    assert caught.value.code == "argument-memory"


def test_a_bound_of_memory_for_which_millions_of_tasks_were_needed_is_an_error() -> None:
    x = da.zeros((1 << 14, 1 << 13), chunks=(1 << 12, 1 << 12), dtype=np.float32)
    with pytest.raises(ArgumentError, match="a block of y holds") as caught:
        polyc.compile(KINDS["stencil-clamp"][0]).blocks(x, memory=200, dry_run=True)
    assert caught.value.code == "argument-memory"
