"""The kernels in C, with ``-O3 -march=native``: by gcc, clang, clang with Polly, and tiled by hand; called through ctypes."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.polybench.kernel import Kernel, Sizes
from benchmarks.workload import Arrays

SOURCE = Path(__file__).parent / "kernels.c"
TILED = Path(__file__).parent / "tiled.c"
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC", "-std=gnu11")
POLLY = ("-mllvm", "-polly")
SIDES: dict[str, tuple[str, ...]] = {
    "gcc": (),
    "clang": (),
    "clang_polly": POLLY,
    "clang_polly_parallel": (*POLLY, "-mllvm", "-polly-parallel", "-lgomp"),
    "tiled_c": ("-ffast-math", "-lgomp"),
}
"""Peers by name, and what their compiler is given besides `FLAGS`.  All but the last two run on one thread."""


def source_of(side: str) -> Path:
    """The text that is compiled for a side."""
    return TILED if side == "tiled_c" else SOURCE


def function_name(kernel: Kernel) -> str:
    """What the kernel's function is called."""
    return "k_" + kernel.name.replace("-", "_")


def is_written(side: str, kernel: Kernel) -> bool:
    """Whether the side's text has the kernel: tiled, only the stencils that tiling in time is measured by are."""
    return side != "tiled_c" or f"void {function_name(kernel)}(" in TILED.read_text()


@functools.cache
def find_compiler(side: str) -> str | None:
    """The compiler of a side: the newest clang, or gcc; None where there is none, or none with Polly."""
    if side == "gcc":
        return shutil.which("gcc")
    names = ["clang", *(f"clang-{n}" for n in range(40, 10, -1))]
    found = sorted((path for name in names if (path := shutil.which(name))), key=_release, reverse=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.c"
        source.write_text("int nothing;\n")
        for path in found:
            command = [path, *FLAGS, *SIDES[side], str(source), "-o", str(Path(folder) / "empty.so")]
            if subprocess.run(command, check=False, capture_output=True).returncode == 0:
                return path
    return None


def _release(compiler: str) -> int:
    """The number of a clang's release; 0 where it says none."""
    said = subprocess.run([compiler, "--version"], check=False, capture_output=True, text=True).stdout
    found = re.search(r"version (\d+)\.", said)
    return int(found.group(1)) if found else 0


def version(side: str) -> str | None:
    """The compiler's first line about itself."""
    compiler = find_compiler(side)
    if compiler is None:
        return None
    said = subprocess.run([compiler, "--version"], check=False, capture_output=True, text=True).stdout
    return said.partition("\n")[0] or None


@functools.cache
def load(side: str) -> ctypes.CDLL:
    """The shared object, compiled once for this text and compiler.

    Raises ``FileNotFoundError`` without a compiler, ``subprocess.CalledProcessError`` where it refuses the text."""
    compiler = find_compiler(side)
    if compiler is None:
        raise FileNotFoundError(f"no compiler for {side} is installed")
    key = hashlib.sha256(source_of(side).read_bytes() + " ".join((compiler, *FLAGS, *SIDES[side])).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"polyc-polybench-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    place = folder / f"{key}.so"
    if not place.exists():
        new = folder / f"{key}.{os.getpid()}"
        command = [compiler, *FLAGS, str(source_of(side)), *SIDES[side], "-o", str(new), "-lm"]
        subprocess.run(command, check=True, capture_output=True)
        new.replace(place)
    return ctypes.CDLL(str(place))


def call(side: str, kernel: Kernel, sizes: Sizes, inputs: Arrays, outs: tuple[np.ndarray, ...]) -> None:
    """Compute `outs` from `inputs`: C-contiguous arrays of the kernel's own element types."""
    arguments: list[object] = [ctypes.c_int(n) for n in sizes.values()]
    for array in (*inputs.values(), *outs):
        is_scalar = array.ndim == 0
        arguments.append(ctypes.c_double(float(array)) if is_scalar else ctypes.c_void_p(array.ctypes.data))
    getattr(load(side), function_name(kernel))(*arguments)
