"""Virtual environments of the peers: one per package under ``.venv-peers``, so that none shares libraries with polyc.

``python -m benchmarks.environments [NAME…]`` (what ``make peers`` calls) sets them up.  A peer without an environment
runs in the interpreter of the runner where its package happens to be installed there, and is left out otherwise.
"""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent.parent / ".venv-peers"
READY = ".ready"
"""File of a finished environment; holds what was installed, so that changed requirements are installed again."""

REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    "torch": ("numpy", "torch==2.13.0"),
    "jax": ("numpy", "jax", "jaxlib"),
    "onnxruntime": ("numpy", "onnxruntime", "onnx"),
    "opt_einsum": ("numpy", "opt_einsum"),
    "numba": ("numpy", "numba", "scipy"),
    "scipy": ("numpy", "scipy"),
    "dask": ("numpy", "dask[array]", "distributed", "zarr", "scipy", "numba"),
    "halide": ("numpy", "halide"),
    "opencv": ("numpy", "opencv-python-headless"),
}
"""What each environment holds; the worker itself needs NumPy and the standard library (``np.dot`` in numba needs SciPy)."""

PACKAGE: Mapping[str, str] = {
    "torch_compile": "torch",
    "torch_blocked": "torch",
    "polyc_bound": "polyc",
    "halide_mullapudi2016": "halide",
    "halide_adams2019": "halide",
    "halide_li2018": "halide",
}
"""Package (and environment) of the peers that are not called like theirs."""

MODULE, DISTRIBUTION = {"opencv": "cv2"}, {"opencv": "opencv-python-headless"}
"""What a package is called in Python and by pip, where that is not its name here."""


def package_of(side: str) -> str:
    """The package that a side imports, which is also the name of its environment."""
    return PACKAGE.get(side, side)


def environment_python(name: str) -> Path | None:
    """Interpreter of a finished environment."""
    python = FOLDER / name / "bin" / "python"
    return python if (FOLDER / name / READY).exists() and python.exists() else None


@functools.cache
def is_importable(package: str, python: str) -> bool:
    """Whether that interpreter finds the package (looked up, not imported)."""
    if python == sys.executable:
        return importlib.util.find_spec(package) is not None
    check = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    return subprocess.run([python, "-c", check], check=False, capture_output=True).returncode == 0


def find_interpreter(side: str) -> str | None:
    """The interpreter that runs a side: its environment's, else the runner's own, or None where neither has the package."""
    package = package_of(side)
    own = environment_python(package)
    candidates = [sys.executable] if own is None else [str(own), sys.executable]
    return next((python for python in candidates if is_importable(MODULE.get(package, package), python)), None)


def clean(python: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables for an interpreter: one that is not the runner's own is not sent to the runner's packages."""
    leading_back = () if python == sys.executable else ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {n: v for n, v in variables.items() if n not in leading_back}


def make_environment(name: str) -> None:
    """Create or complete one environment; does nothing where it holds the same requirements already.

    Raises ``subprocess.CalledProcessError`` where something cannot be installed; the environment then stays unfinished."""
    place, wanted = FOLDER / name, "\n".join(REQUIREMENTS[name])
    ready = place / READY
    if environment_python(name) and ready.read_text() == wanted:
        return
    ready.unlink(missing_ok=True)
    venv.create(place, with_pip=True, clear=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *REQUIREMENTS[name]], check=True)
    ready.write_text(wanted)


def main(names: list[str]) -> int:
    """Set up the named environments, or all; the number of those that failed."""
    unknown = [n for n in names if n not in REQUIREMENTS]
    if unknown:
        print(f"no peer environment {unknown[0]!r}; there are {', '.join(REQUIREMENTS)}", file=sys.stderr)
        return 1
    failed = 0
    for name in names or REQUIREMENTS:
        print(f"{name}: {' '.join(REQUIREMENTS[name])}", flush=True)
        try:
            make_environment(name)
        except (OSError, subprocess.CalledProcessError) as error:
            failed += 1
            print(f"{name} could not be set up and is left out: {error}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
