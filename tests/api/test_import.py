"""``import polyc`` stays light."""

import subprocess
import sys


def test_import_does_not_load_the_engines():
    code = (
        "import sys, polyc; heavy = 'islpy llvmlite highspy lark opt_einsum rich threadpoolctl onnx torch'.split(); "
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
