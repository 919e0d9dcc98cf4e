"""Models compiled to libraries, called through the documented entry point, against sessions."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import polyc.onnx
from polyc.cli import main

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def save(path, nodes, inputs, outputs, tensors=()):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs],
        [numpy_helper.from_array(a, n) for n, a in tensors],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def path(tmp_path):
    """Two layers that are one kernel with different weights, beside a view, a constant and the input among the outputs."""
    rng = np.random.default_rng(0)
    tensors = [(n, rng.standard_normal((16, 16)).astype(np.float32)) for n in ("w1", "w2")]
    tensors += [("c", np.arange(5, dtype=np.int64)), ("shape", np.asarray([-1], np.int64))]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
        helper.make_node("Reshape", ["y", "shape"], ["flat"]),
        helper.make_node("Softmax", ["y"], ["p"]),
    ]
    outputs = [("y", FLOAT), ("flat", FLOAT), ("p", FLOAT), ("c", INT), ("x", FLOAT)]
    save(tmp_path / "two-layers.onnx", nodes, [("x", FLOAT, ["n", 16])], outputs, tensors)
    return tmp_path / "two-layers.onnx"


def compile_model(path, *arguments):
    return CliRunner().invoke(main, ["compile", str(path), *arguments])


def call(library, inputs, outputs, weights=None, n_threads=2):
    function, workspace = library.two_layers, library.two_layers_workspace
    workspace.restype = ctypes.c_int64
    memory = np.full(workspace(n_threads), 255, np.uint8)
    tables = [(ctypes.c_void_p * len(a))(*(x.ctypes.data for x in a)) for a in (inputs, outputs)]
    given = [] if weights is None else [ctypes.c_void_p(weights.ctypes.data)]
    return function(*tables, *given, ctypes.c_void_p(memory.ctypes.data), n_threads)


@pytest.mark.parametrize("weights", ["inside", "beside"])
def test_a_library_computes_what_a_session_does(path, tmp_path, weights):
    done = compile_model(path, "--size", "n=7", "--weights", weights)
    assert done.exit_code == 0, done.stderr
    written = [tmp_path / f"two-layers.{e}" for e in ("so", "h", *(["weights"] if weights == "beside" else []))]
    assert done.stdout.split() == [str(w) for w in written] and all(w.exists() for w in written)
    x = np.random.default_rng(1).standard_normal((7, 16)).astype(np.float32)
    expected = polyc.onnx.load(path).run(None, {"x": x})
    data = None
    if weights == "beside":
        size = written[2].stat().st_size
        data = np.empty(size + 64, np.uint8)
        data = data[-data.ctypes.data % 64 :][:size]
        data[:] = np.fromfile(written[2], np.uint8)
    library = ctypes.CDLL(str(written[0]))
    for n_threads in (1, 2):
        found = [np.full_like(e, 77) for e in expected]
        assert call(library, [x], found, data, n_threads) == 0
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_header_and_an_object_work_in_a_c_program(path, tmp_path):
    assert compile_model(path, "--size", "n=2", "-o", str(tmp_path / "net.o")).exit_code == 0
    (tmp_path / "caller.c").write_text(
        """
        #include "net.h"
        #include <stdio.h>
        #include <stdlib.h>
        int main(void) {
          static float x[32], y[32], flat[32], p[32], same[32];
          int64_t c[5];
          const void *inputs[] = {x};
          void *outputs[] = {y, flat, p, c, same};
          for (int k = 0; k < 32; ++k) x[k] = k;
          void *workspace = malloc(net_workspace(1));
          int status = net(inputs, outputs, workspace, 1);
          float sum = 0;
          for (int k = 0; k < 32; ++k) sum += p[k];
          printf("%d %d %.3f %d", status, (int)c[4], sum, same[31] == 31 && y[5] == flat[5]);
          return 0;
        }
        """
    )
    command = ["cc", "-Wall", "-Werror", "caller.c", "net.o", "-o", "caller", "-lgomp", "-lm"]
    linked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if linked.returncode and "gomp" in linked.stderr:
        pytest.skip("no libgomp to link with")
    assert linked.returncode == 0, linked.stderr
    assert subprocess.run([tmp_path / "caller"], capture_output=True, text=True).stdout == "0 4 2.000 1"


def test_a_model_without_kernels(tmp_path):
    save(tmp_path / "same.onnx", [helper.make_node("Identity", ["x"], ["y"])], [("x", FLOAT, [3])], [("y", FLOAT)])
    done = compile_model(tmp_path / "same.onnx")
    assert done.exit_code == 0, done.stderr
    library = ctypes.CDLL(str(tmp_path / "same.so"))
    library.same_workspace.restype = ctypes.c_int64
    x, y, memory = np.float32([1, 2, 3]), np.zeros(3, np.float32), np.zeros(library.same_workspace(1), np.uint8)
    tables = [(ctypes.c_void_p * 1)(a.ctypes.data) for a in (x, y)]
    assert library.same(*tables, ctypes.c_void_p(memory.ctypes.data), 1) == 0
    np.testing.assert_array_equal(x, y)


def test_what_runs_on_the_host_is_refused_and_nothing_is_written(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("NonZero", ["a"], ["y"])]
    save(tmp_path / "m.onnx", nodes, [("x", FLOAT, [3])], [("y", INT)])
    done = compile_model(tmp_path / "m.onnx")
    assert done.exit_code == 1 and "error[unsupported-onnx" in done.stderr and "NonZero" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_no_compiler_is_a_diagnostic(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    done = compile_model(path)
    assert done.exit_code == 1 and done.stderr.startswith("error[unsupported-linker]")
    assert [p.name for p in tmp_path.iterdir()] == ["two-layers.onnx"]


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [(["--emit", "loops"], 2), (["-o", "m.h"], 2), (["--size", "q=1"], 1), (["-o", "/no/such/folder/m.so"], 1)],
)
def test_mistakes(path, arguments, exit_code):
    done = compile_model(path, *arguments)
    assert done.exit_code == exit_code and done.stderr and not done.stdout
