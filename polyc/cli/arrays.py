"""What a run reads, writes and prints: arrays in files, a line for each result, and times."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyc.cli.common import file_error
from polyc.diagnostics import ArgumentError, Diagnostic

if TYPE_CHECKING:
    import numpy as np

_ENOUGH_SECONDS = 0.5
_ENOUGH_RUNS = 20


def read_array(path: str) -> np.ndarray:
    """The array in a ``.npy`` file."""
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise file_error(path, error) from error
        with open(path, "rb") as file:  # a device may have no end
            has_header = file.read(6) == b"\x93NUMPY"
        message = f"{path} cannot be read: {error}" if has_header else f"{path} is not a NumPy .npy file"
        raise ArgumentError(Diagnostic("argument-file", message, None, "write it with numpy.save")) from error
    except MemoryError as error:
        message = f"the array in {path} does not fit into memory"
        raise ArgumentError(Diagnostic("argument-too-large", message, None, "give a smaller one")) from error
    if not isinstance(array, np.ndarray):
        raise ArgumentError(Diagnostic("argument-file", f"{path} holds several arrays", None, "give one .npy file per input"))
    return array


def write_results(directory: Path, names: list[str], arrays: list[np.ndarray]) -> None:
    import numpy as np

    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, array in zip(names, arrays, strict=True):
            np.save(directory / f"{name}.npy", array)
    except OSError as error:
        raise file_error(directory, error) from error


def describe_array(name: str, array: np.ndarray) -> str:
    """``O: float32[3, 4] min -1.2 max 3.4 sum 5.6 sha256 0123456789ab``."""
    import numpy as np

    from polyc.ir.halves import widen

    head = f"{name}: {array.dtype}[{', '.join(map(str, array.shape))}]"
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]
    if array.size == 0:
        return f"{head} empty"
    array = widen(array)
    wide = array.astype(np.float64) if array.dtype.kind == "f" else array.astype(object)
    with np.errstate(all="ignore"):
        return f"{head} min {array.min()!s} max {array.max()!s} sum {_number(wide.sum())} sha256 {digest}"


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def time_calls(call: Any) -> float:
    """Seconds of the fastest of several calls."""
    best, total, runs = float("inf"), 0.0, 0
    while runs < _ENOUGH_RUNS and total < _ENOUGH_SECONDS:
        start = time.perf_counter()
        call()
        taken = time.perf_counter() - start
        best, total, runs = min(best, taken), total + taken, runs + 1
    return best


def format_time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"
