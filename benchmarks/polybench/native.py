"""The kernels in C, compiled by clang where there is one, else by gcc, with ``-O3 -march=native``; called through ctypes."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.polybench.kernel import Kernel, Sizes
from benchmarks.workload import Arrays

SOURCE = Path(__file__).parent / "kernels.c"
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC", "-std=gnu11")


def find_compiler() -> str | None:
    """clang if it is installed, else gcc, else None."""
    return shutil.which("clang") or shutil.which("gcc")


def version() -> str | None:
    """The compiler's first line about itself."""
    compiler = find_compiler()
    if compiler is None:
        return None
    said = subprocess.run([compiler, "--version"], check=False, capture_output=True, text=True).stdout
    return said.partition("\n")[0] or None


@functools.cache
def load() -> ctypes.CDLL:
    """The shared object, compiled once for this text and compiler.

    Raises ``FileNotFoundError`` without a compiler, ``subprocess.CalledProcessError`` where it refuses the text."""
    compiler = find_compiler()
    if compiler is None:
        raise FileNotFoundError("neither clang nor gcc is installed")
    key = hashlib.sha256(SOURCE.read_bytes() + " ".join((compiler, *FLAGS)).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"polyc-polybench-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    place = folder / f"{key}.so"
    if not place.exists():
        new = folder / f"{key}.{os.getpid()}"
        subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", str(new), "-lm"], check=True, capture_output=True)
        new.replace(place)
    return ctypes.CDLL(str(place))


def call(kernel: Kernel, sizes: Sizes, inputs: Arrays, outs: tuple[np.ndarray, ...]) -> None:
    """Compute `outs` from `inputs`: C-contiguous arrays of the kernel's own element types."""
    arguments: list[object] = [ctypes.c_int(n) for n in sizes.values()]
    for array in (*inputs.values(), *outs):
        is_scalar = array.ndim == 0
        arguments.append(ctypes.c_double(float(array)) if is_scalar else ctypes.c_void_p(array.ctypes.data))
    getattr(load(), "k_" + kernel.name.replace("-", "_"))(*arguments)
