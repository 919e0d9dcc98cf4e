"""The verbs on ONNX models: what goes where, exit codes, files that are written."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from polyc.cli import main


def invoke(*arguments: str):
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture
def path(tmp_path):
    """y = relu(x W + b), z/../z = its mean: one name is no file name."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in (("w", (4, 3)), ("b", (3,)))]
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["g"]),
        helper.make_node("Relu", ["g"], ["y"]),
        helper.make_node("ReduceMean", ["y"], ["../../z"], axes=[1], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "../../z")],
        weights,
    )
    file = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)
    return str(file)


def test_run_prints_results_and_writes_files_inside_the_folder(path, tmp_path):
    x = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "a" / "b" / "out"
    done = invoke("run", path, "--input", str(tmp_path / "x.npy"), "--output", str(out), "--verify", "--strict")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("y: float32[5, 3] ") and "verified" in done.stdout
    assert "first run" in done.stderr and "first run" not in done.stdout
    files = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.npy"))
    assert files == ["a/b/out/_.._z.npy", "a/b/out/y.npy", "x.npy"]
    w, b = (numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer)
    np.testing.assert_allclose(np.load(out / "y.npy"), np.maximum(x @ w + b, 0), rtol=1e-5)


def test_random_indices_fit_dimensions_of_one(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]),
            helper.make_tensor_value_info("i", TensorProto.INT64, [9]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [9, 3])],
    )
    file = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)
    done = invoke("compile", str(file), "-o", str(tmp_path / "m.so"))
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "m.h").exists()


def test_sizes_and_shapes_of_random_inputs(path):
    first = invoke("run", path, "--size", "batch=7")
    assert first.exit_code == 0 and "y: float32[7, 3]" in first.stdout
    assert invoke("run", path, "--shape", "x=7,4").stdout == first.stdout
    assert invoke("run", path, "--size", "batch=7", "--seed", "1").stdout != first.stdout


@pytest.mark.parametrize(
    ("arguments", "exit_code", "text"),
    [
        (["--size", "bath=7"], 1, "did you mean batch"),
        (["--size", "batch=?"], 2, "give numbers"),
        (["--shape", "x=7"], 1, "argument-onnx-shape"),
        (["--shape", "q=7"], 1, "argument-name"),
        (["--shape", "7,4"], 2, "of the form"),
        (["--shape", "x=99999999999,4"], 1, "argument-too-large"),
        (["--input", "q=x.npy"], 2, "no input is named q"),
        (["--input", "missing.npy"], 1, "argument-file"),
        (["--entry", "f"], 2, "does not apply"),
        (["--threads", "0"], 2, "threads"),
    ],
)
def test_mistakes_are_usage_errors_or_diagnostics(path, arguments, exit_code, text):
    done = invoke("run", path, *arguments)
    assert done.exit_code == exit_code and text in done.stderr and not done.stdout


def test_files_that_are_no_model(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x07 this is no model")
    for verb in (["run"], ["explain"], ["bench"]):
        for name in ("bad.onnx", "missing.onnx"):
            done = invoke(*verb, str(tmp_path / name))
            assert done.exit_code == 1 and done.stderr.startswith("error[") and not done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.onnx"]


def test_options_of_models_do_not_apply_to_operators(tmp_path):
    (tmp_path / "s.tc").write_text("def total(float(N) X) -> (s) {\n  s() +=! X(n)\n}\n")
    done = invoke("run", str(tmp_path / "s.tc"), "--size", "N=3", "--strict")
    assert done.exit_code == 2 and "does not apply" in done.stderr
    assert invoke("bench", str(tmp_path / "s.tc")).exit_code == 2


def test_explain_shows_clusters_memory_and_measurements(path):
    done = invoke("explain", path, "--size", "batch=3", "--measure")
    assert done.exit_code == 0, done.stderr
    for part in (
        "== clusters ==",
        "Gemm",
        "float32[3, 4]",
        "memory: arena",
        "== not compiled ==\nnothing",
        "== measured ==",
        "GFLOP/s",
    ):
        assert part in done.stdout


def test_bench_compares_with_onnxruntime_and_writes_a_trace(path, tmp_path):
    pytest.importorskip("onnxruntime")
    trace = tmp_path / "trace.json"
    done = invoke(
        "bench", path, "--peers", "onnxruntime", "--seconds", "0.05", "--threads", "1", "--profile", "--trace", str(trace)
    )
    assert done.exit_code == 0, done.stderr
    assert "polyc" in done.stdout and "times as fast" in done.stdout and "largest difference" in done.stdout
    events = json.loads(trace.read_text())["traceEvents"]
    assert any("Gemm" in " ".join(e["args"].get("nodes", ())) for e in events) and all(e["dur"] >= 0 for e in events)


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1"])
def test_bench_asks_for_a_length_of_time(path, seconds):
    done = invoke("bench", path, "--seconds", seconds)
    assert done.exit_code == 2 and "--seconds" in done.stderr


def test_an_unknown_peer_is_a_usage_error(path):
    assert invoke("bench", path, "--peers", "tvm").exit_code == 2
