"""Object files of ``polyc compile``, linked by the system's C compiler and called through the documented entry point."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess

import numpy as np
import pytest
from click.testing import CliRunner

from polyc.cli import main
from polyc.codegen.objects import aot

SOFTMAX = """
def softmax(float(N, D) X) -> (O) {
  M(n) max=! X(n, d)
  E(n, d) = exp(X(n, d) - M(n))
  Z(n) +=! E(n, d)
  O(n, d) = E(n, d) / Z(n)
}
"""
CALLER = """
#include "softmax.h"
#include <stdlib.h>
int call(float *x, float *o, int64_t n, int64_t d, int threads) {
  void *data[] = {x, o};
  int64_t block[] = {n, d, 4 * d, 4, 4 * d, 4}, error[3] = {0, 0, 0};
  int64_t size = softmax_workspace(block, threads);
  void *workspace = aligned_alloc(64, (size + 64) / 64 * 64);
  int result = softmax(data, block, workspace, error, threads);
  free(workspace);
  return result;
}
"""


@pytest.mark.parametrize("sizes", [[], ["--size", "N=5,D=37"]])
def test_object_and_header_work_from_c(tmp_path, sizes):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "softmax.tc").write_text(SOFTMAX)
    done = CliRunner().invoke(main, ["compile", str(tmp_path / "softmax.tc"), *sizes])
    assert done.exit_code == 0, done.output
    (tmp_path / "caller.c").write_text(CALLER)
    library = tmp_path / "caller.so"
    command = [compiler, "-Wall", "-Werror", "-shared", "-fPIC", "caller.c", "softmax.o", "-o", str(library), "-lgomp", "-lm"]
    linked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if "gomp" in linked.stderr and linked.returncode:
        pytest.skip("no libgomp to link with")
    assert linked.returncode == 0, linked.stderr
    call = ctypes.CDLL(str(library)).call
    x = np.random.default_rng(0).standard_normal((5, 37)).astype(np.float32)
    expected = np.exp(x - x.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    for n_threads in (1, 2):
        o = np.zeros_like(x)
        pointers = (ctypes.c_void_p(a.ctypes.data) for a in (x, o))
        assert call(*pointers, ctypes.c_int64(5), ctypes.c_int64(37), n_threads) == 0
        np.testing.assert_allclose(o, expected, rtol=1e-5)


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    def fail(descriptor: int, mode: str) -> None:
        os.close(descriptor)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "softmax.tc").write_text(SOFTMAX)
    (tmp_path / "softmax.o").write_bytes(b"before")
    monkeypatch.setattr(aot.os, "fdopen", fail)
    done = CliRunner().invoke(main, ["compile", str(tmp_path / "softmax.tc"), "--size", "N=3,D=4"])
    assert done.exit_code == 1 and "No space left on device" in done.output
    assert (tmp_path / "softmax.o").read_bytes() == b"before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["softmax.o", "softmax.tc"]


def test_a_device_is_written_to_and_not_replaced():
    aot.write_object(b"code", os.devnull)
    assert not os.path.isfile(os.devnull)
