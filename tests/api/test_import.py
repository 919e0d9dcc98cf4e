"""``import polyc`` stays light."""

import os
import subprocess
import sys

import pytest


def test_import_does_not_load_the_engines():
    code = (
        "import sys, polyc; heavy = 'islpy llvmlite highspy lark opt_einsum rich threadpoolctl onnx torch'.split(); "
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def run_without(package: str, code: str) -> str:
    """Standard error of a process for which `package` is not installed."""
    start = f"import sys; sys.modules[{package!r}] = None\n"
    environment = {**os.environ, "POLYC_CACHE": "0"}
    done = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, check=False, env=environment)
    return done.stderr


def test_a_package_that_is_not_installed_is_named():
    code = "import polyc; polyc.compile('def f(float(N) a) -> (b) { b(i) = a(i) }')([1.0])"
    message = "error[unsupported-package]: finding the shapes of f: the package islpy is not installed"
    last = [f"polyc.diagnostics.UnsupportedError: {message}", "  help: run: pip install 'islpy'"]
    assert run_without("islpy", code).splitlines()[-2:] == last


def test_a_package_of_an_extra_is_named_by_the_command_line(tmp_path):
    onnx = pytest.importorskip("onnx")
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Relu(x) }')
    onnx.save(model, tmp_path / "relu.onnx")
    found = run_without("ml_dtypes", f"from polyc.cli import main; main(['run', {str(tmp_path / 'relu.onnx')!r}])")
    assert (
        found == "error[unsupported-package]: the package ml_dtypes is not installed\n  help: run: pip install 'polyc[onnx]'\n"
    )
