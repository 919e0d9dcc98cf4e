"""The peers of the benchmark runner: their environments, what is derived for them, and how they are driven (with fakes)."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import benchmarks
from benchmarks import coordinator, engines, environments, report, sides, statistics
from benchmarks.coordinator import Measurement, Side
from benchmarks.engines import Opaque
from benchmarks.graph import Graph
from benchmarks.workload import Convolution, ShapesOnly, as_tuple
from benchmarks.workloads import GROUPS, WORKLOADS, derived

ROOT = Path(__file__).parents[2]


# -- environments


def fake_environment(folder: Path, name: str, ready: bool = True) -> Path:
    """An environment whose interpreter leaves a mark and hands over to this one."""
    python = folder / name / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho used >> "{folder}/{name}/mark"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    if ready:
        (folder / name / environments.READY).write_text("\n".join(environments.REQUIREMENTS.get(name, ())))
    return python


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    return tmp_path


def test_worker_needs_numpy_and_nothing_else_of_polyc() -> None:
    code = (
        "import sys, json, numpy; known = set(sys.modules); import benchmarks.worker; "
        "print(json.dumps(sorted({m.split('.')[0] for m in set(sys.modules) - known} - sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert json.loads(done.stdout) in (["benchmarks"], ["benchmarks", "numpy"])


def test_finished_environment_comes_first(folder: Path) -> None:
    python = fake_environment(folder, "opt_einsum")
    assert sides.interpreter("opt_einsum") == str(python)
    assert sides.interpreter("polyc") == sys.executable


def test_unfinished_environment_is_not_used(folder: Path) -> None:
    fake_environment(folder, "numpy", ready=False)
    assert sides.interpreter("numpy") == sys.executable


def test_environment_without_its_package_is_left_out(folder: Path) -> None:
    fake_environment(folder, "no_such_package")
    assert sides.interpreter("no_such_package") is None


def test_compiled_and_blocked_pytorch_share_an_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "is_importable", lambda package, python: package == "torch")
    python = fake_environment(folder, "torch")
    assert {sides.interpreter(s) for s in ("torch", "torch_compile", "torch_blocked")} == {str(python)}


def test_worker_runs_in_the_environment_of_its_side(folder: Path) -> None:
    fake_environment(folder, "opt_einsum")
    workload = WORKLOADS["tmm"]
    with coordinator.reference_file(workload) as exact:
        worker = coordinator.Worker(workload, "opt_einsum", 1, False, exact)
        ready = worker.receive()
        worker.close()
    assert ready["error"] <= workload.tolerance and ready["version"].startswith("opt_einsum ")
    assert (folder / "opt_einsum" / "mark").exists()


def test_foreign_interpreter_is_not_sent_to_our_packages() -> None:
    variables = {"PYTHONPATH": "/ours", "HOME": "/home"}
    assert environments.clean("/elsewhere/python", variables) == {"HOME": "/home"}
    assert environments.clean(sys.executable, variables) == variables


def test_failed_installation_leaves_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def create(place: Path, with_pip: bool, clear: bool) -> None:
        fake_environment(folder, place.name, ready=False)

    def install(command: list[str], check: bool) -> None:
        if "jax" in command:
            raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(environments.venv, "create", create)
    monkeypatch.setattr(environments.subprocess, "run", install)
    assert environments.main(["jax", "onnxruntime"]) == 1
    assert "jax could not be set up and is left out" in capsys.readouterr().err
    assert environments.environment_python("jax") is None
    assert environments.environment_python("onnxruntime") is not None


def test_finished_environment_is_made_once_per_requirements(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_environment(folder, "opt_einsum")
    made: list[Any] = []
    monkeypatch.setattr(environments.venv, "create", lambda place, **_: made.append(place))
    monkeypatch.setattr(environments.subprocess, "run", lambda command, check: None)
    assert environments.main(["opt_einsum"]) == 0 and not made
    (folder / "opt_einsum" / environments.READY).write_text("numpy")
    assert environments.main(["opt_einsum"]) == 0 and made == [folder / "opt_einsum"]


def test_unknown_environment_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert environments.main(["mxnet"]) == 1
    assert "no peer environment 'mxnet'" in capsys.readouterr().err


# -- what is derived


@pytest.mark.parametrize(
    ("subscripts", "forms"),
    [
        ("ik,kj->ij", (False, False)),
        ("ki,kj->ij", (True, False)),
        ("ki,jk->ij", (True, True)),
        ("bhqd,bhkd->bhqk", (False, True)),
        ("bik,bkj->bij", (False, False)),
        ("ik,k->i", None),
        ("ij,jk->ki", None),
        ("aebf,dfce->abcd", None),
        ("bda,dc->abc", None),
        ("ii,ij->ij", None),
    ],
)
def test_which_einsums_are_matrix_products(subscripts: str, forms: tuple[bool, bool] | None) -> None:
    left, right = subscripts.split("->")
    assert derived.matrix_product(left.split(","), right) == forms


@pytest.mark.parametrize(
    ("subscripts", "nodes"),
    [
        ("ki,kj->ij", [("Gemm", ("A", "B"), "v0", {"transA": 1, "transB": 0})]),
        ("bqd,bkd->bqk", [("Transpose", ("B",), "v0", {"perm": [0, 2, 1]}), ("MatMul", ("A", "v0"), "v1", {})]),
        ("ik,k->i", [("Einsum", ("A", "B"), "v0", {"equation": "ik,k->i"})]),
    ],
)
def test_graph_of_an_einsum(subscripts: str, nodes: list[Any]) -> None:
    graph = Graph({})
    assert derived.onnx_einsum(subscripts)(graph, None, A="A", B="B") == nodes[-1][2]
    assert graph.nodes == nodes


def test_graph_of_a_convolution() -> None:
    graph = Graph({})
    peer = derived.onnx_convolution(Convolution((1, 8, 4, 4), pad=1, stride=2, groups=4, bias_relu=True))
    assert peer(graph, None, X="X", F="F", B="B") == "v1"
    (conv, relu) = graph.nodes
    assert conv[:2] == ("Conv", ("X", "F", "B")) and conv[3]["group"] == 4 and conv[3]["pads"] == [1, 1, 1, 1]
    assert relu[:2] == ("Relu", ("v0",))


@pytest.mark.parametrize("name", [n for n, w in WORKLOADS.items() if "onnxruntime" in w.peers])
def test_graph_uses_every_input(name: str) -> None:
    workload = WORKLOADS[name]
    inputs = workload.make_inputs(ShapesOnly())  # type: ignore[arg-type]
    graph = Graph({n: a.shape for n, a in inputs.items()}, workload.dtype)
    results = as_tuple(workload.peers["onnxruntime"](graph, None, **{n: n for n in inputs}))
    assert graph.nodes[-1][2] in results and set(results) <= {result for _, _, result, _ in graph.nodes}
    assert {operand for _, operands, _, _ in graph.nodes for operand in operands} >= set(inputs)
    assert set(workload.weights) <= set(inputs)


def test_peers_by_precision() -> None:
    convolving = {"numpy", "torch", "torch_compile", "jax"}
    assert set(WORKLOADS["resnet3x3_14"].peers) == convolving | {"torch_blocked", "onnxruntime"}
    assert set(WORKLOADS["resnet3x3_14_f64"].peers) == convolving
    assert "onnxruntime" in WORKLOADS["mlp3_f64"].peers and "onnxruntime" not in WORKLOADS["matmul_bias_gelu_f64"].peers
    assert set(WORKLOADS["einsum_new_shapes"].peers) == {"polyc", "numpy", "torch"}
    assert set(WORKLOADS["tbmm"].peers) == {"numpy", "torch", "opt_einsum", "torch_compile", "jax", "onnxruntime"}


@pytest.mark.parametrize("name", ["conv3x3_pad", "conv7x7s2", "dwconv3x3", "grouped", "dilated", "depthwise_pad", "conv1x1_s2"])
def test_convolution_numbers_agree_with_the_arrays(name: str) -> None:
    workload = WORKLOADS[name]
    conv, arrays = workload.convolution, workload.inputs()
    assert conv is not None and workload.weights == ("F",)
    image, filters = conv.as_plain(arrays["X"], arrays["F"])
    assert filters.shape[0] == conv.plain_result[1] and filters.shape[1] * conv.groups == image.shape[1]
    for size, window, result in zip(image.shape[2:], filters.shape[2:], conv.plain_result[2:], strict=True):
        assert (size + 2 * conv.pad - conv.dilation * (window - 1) - 1) // conv.stride + 1 == result


# -- how they are driven


def test_threads_of_xla() -> None:
    assert "eigen=false" in sides.environment("jax", 1)["XLA_FLAGS"] and sides.environment("jax", 2)["NPROC"] == "2"
    assert "XLA_FLAGS" not in sides.environment("torch", 1) and sides.environment("torch", 2)["OMP_NUM_THREADS"] == "2"


def test_jax_function_is_jitted_once_and_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Pending:
        def __init__(self, value: np.ndarray) -> None:
            self.value = value

        def block_until_ready(self) -> np.ndarray:
            calls.append("awaited")
            return self.value

    fake = SimpleNamespace(
        numpy=np,
        config=SimpleNamespace(update=lambda *_: None),
        device_put=lambda a: a,
        jit=lambda f: calls.append("jit") or (lambda **arrays: Pending(f(**arrays))),
    )
    monkeypatch.setitem(sys.modules, "jax", fake)
    workload = WORKLOADS["tmm"]
    arrays = workload.inputs()
    run = sides.build("jax", workload, arrays, None, 1)
    np.testing.assert_allclose(run(2), arrays["A"] @ arrays["B"].T, rtol=1e-4, atol=1e-4)
    assert calls == ["jit", "awaited", "awaited"]


def fake_torch(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(
        set_num_threads=lambda _: None, set_grad_enabled=lambda _: None, from_numpy=lambda a: a, matmul=np.matmul, **more
    )


def test_lines_of_pytorch_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[Any] = []
    monkeypatch.setitem(sys.modules, "torch", fake_torch(compile=lambda f, **kw: options.append(kw) or f))
    arrays = WORKLOADS["tmm"].inputs()
    result = sides.build("torch_compile", WORKLOADS["tmm"], arrays, np.empty((128, 256), np.float32), 1)(1)
    np.testing.assert_array_equal(result, arrays["A"] @ arrays["B"].T)
    assert options == [{"dynamic": False, "fullgraph": True}]


def test_onnxruntime_gets_weights_as_constants_and_writes_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def build_model(graph: Graph, inputs: dict[str, Any], weights: tuple[str, ...], result: str, dtype: str) -> bytes:
        seen.update(shapes=graph.shapes, weights=weights, result=result, dtype=dtype)
        return b"model"

    class Binding:
        def bind_cpu_input(self, name: str, array: np.ndarray) -> None:
            seen.setdefault("fed", []).append(name)

        def bind_output(self, name: str, device: str, number: int, dtype: Any, shape: Any, address: int) -> None:
            seen.update(output=(name, shape, address))

    class Session:
        def __init__(self, model: bytes, options: Any, providers: list[str]) -> None:
            seen["threads"] = options.intra_op_num_threads

        def io_binding(self) -> Binding:
            return Binding()

        def run_with_iobinding(self, binding: Binding) -> None:
            seen["runs"] = seen.get("runs", 0) + 1

    monkeypatch.setattr(engines, "build_model", build_model)
    fake = SimpleNamespace(SessionOptions=SimpleNamespace, InferenceSession=Session)
    monkeypatch.setitem(sys.modules, "onnxruntime", fake)
    workload = WORKLOADS["grouped"]
    out = np.zeros((1, 32, 4, 56, 56), np.float32)
    assert sides.build("onnxruntime", workload, workload.inputs(), out, 2)(3) is out
    assert seen["shapes"] == {"X": (1, 128, 56, 56), "F": (128, 4, 3, 3)}
    assert (seen["fed"], seen["weights"], seen["threads"], seen["runs"]) == (["X"], ("F",), 2, 3)
    assert seen["output"] == ("v0", (1, 128, 56, 56), out.ctypes.data)


def test_loops_of_numba_take_inputs_and_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without numba: every workload's loops exist, and take as many arrays as it gives them."""
    parsed = ast.parse((ROOT / "benchmarks" / "numba_loops.py").read_text())
    arity = {f.name: len(f.args.args) for f in parsed.body if isinstance(f, ast.FunctionDef)}
    called: dict[str, int] = {}

    class Loops:
        def __getattr__(self, name: str) -> Any:
            return lambda *arrays: called.update({name: len(arrays)})

    monkeypatch.setattr(benchmarks, "numba_loops", Loops(), raising=False)
    monkeypatch.setitem(sys.modules, "benchmarks.numba_loops", Loops())
    for workload in (WORKLOADS[n] for n in GROUPS["fusion"]):
        workload.peers["numba"](None, None, **workload.make_inputs(ShapesOnly()))  # type: ignore[arg-type]
    assert set(called) <= set(arity) and {n: arity[n] for n in called} == called
    assert {n for n in GROUPS["fusion"] if "numba" not in WORKLOADS[n].peers} == set()


def test_schedule_of_halide_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Pipeline:
        def __init__(self, function: Any) -> None:
            self.function = function

        def apply_autoscheduler(self, target: str, parameters: Any) -> None:
            seen.append(parameters)

        def compile_jit(self, target: str) -> None:
            seen.append(target)

        def realize(self, place: np.ndarray, target: str) -> None:
            place[...] = 7

    fake = SimpleNamespace(
        __file__="/wheel/halide/__init__.py",
        load_plugin=seen.append,
        Buffer=lambda array: array,
        Pipeline=Pipeline,
        AutoschedulerParams=lambda name, extra: (name, extra),
        get_jit_target_from_environment=lambda: "host",
        TargetFeature=SimpleNamespace(),
    )
    monkeypatch.setitem(sys.modules, "halide", fake)
    function = SimpleNamespace(set_estimates=seen.append)
    peers = dict.fromkeys(engines.AUTOSCHEDULERS, lambda halide, out, A, B: (function, (2, 3)))
    workload = replace(WORKLOADS["tmm"], peers=peers)
    out = np.zeros((2, 3), np.float32)
    run = sides.build("halide_adams2019", workload, workload.inputs(), out, 2)
    assert run(3) is out and (out == 7).all()
    plugin = "/wheel/halide/lib64/libautoschedule_adams2019.so"
    assert seen == [plugin, [(0, 3), (0, 2)], ("Adams2019", {"parallelism": "2"}), "host"]


def test_onnxruntime_binds_every_result(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[Any] = []
    binding = SimpleNamespace(bind_cpu_input=lambda *_: None, bind_output=lambda *given: bound.append(given))
    session = SimpleNamespace(io_binding=lambda: binding, run_with_iobinding=lambda _: None)
    fake = SimpleNamespace(SessionOptions=SimpleNamespace, InferenceSession=lambda *_, **__: session)
    monkeypatch.setitem(sys.modules, "onnxruntime", fake)
    monkeypatch.setattr(engines, "build_model", lambda graph, inputs, weights, results, dtype: b"")
    workload = WORKLOADS["mean_var_rows"]
    out = np.zeros(4096, np.float32), np.zeros(4096, np.float32)
    assert sides.build("onnxruntime", workload, {"X": np.zeros((4096, 1024), np.float32)}, out, 1)(1) is out
    assert [(given[-2], given[-1]) for given in bound] == [(o.shape, o.ctypes.data) for o in out]


def test_opaque_result_is_read_in_the_shape_of_the_workload() -> None:
    tensor = SimpleNamespace(to_dense=lambda: SimpleNamespace(numpy=lambda: np.arange(6.0)))
    np.testing.assert_array_equal(np.asarray(Opaque(tensor, (2, 3))), np.arange(6.0).reshape(2, 3))


def test_fastest_layout_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 0.0}

    def taking(seconds: float) -> Any:
        def run() -> float:
            clock["now"] += seconds
            return seconds

        return run

    monkeypatch.setattr(engines.time, "perf_counter", lambda: clock["now"])
    assert engines.fastest([taking(3), taking(1), taking(2)])() == 1


def measured(**seconds: float) -> Measurement:
    return Measurement(WORKLOADS["tmm"], 1, False, {n: Side(n, [t], error=0.0) for n, t in seconds.items()})


def test_wrong_peer_is_not_the_bar() -> None:
    m = measured(polyc=2, numpy=4, jax=1)
    m.sides["jax"].error = 1.0
    assert statistics.summarise(m, "polyc").best_peer == "numpy"


def test_polyc_is_no_peer_of_itself() -> None:
    assert statistics.summarise(measured(polyc=2, polyc_bound=1, numpy=4), "polyc").best_peer == "numpy"


@pytest.mark.parametrize("width", [105, 300])
def test_narrow_table_keeps_the_best_peer(width: int) -> None:
    console = Console(width=width, record=True, file=io.StringIO())
    report.print_table(console, [measured(polyc=2e-3, numpy=4e-3, torch=9e-3, jax=9e-3)], "polyc", ["numpy", "torch", "jax"])
    text = console.export_text()
    assert "2.00 (2.00) numpy" in text
    assert ("too narrow to show torch, jax" in text) == (width == 105)
