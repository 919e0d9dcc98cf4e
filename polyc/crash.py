"""Faults of polyc's own, as named errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from polyc.diagnostics import Diagnostic, InternalError, PolycError, UnsupportedError

_EXTRAS = {"onnx": "onnx", "ml_dtypes": "onnx", "matplotlib": "plot", "torch": "bench"}
"""Extras of polyc that bring a package."""


def describe_crash(error: Exception, what: str = "") -> InternalError | UnsupportedError:
    """A fault of polyc's own, in one line, with the place where it happened; `what` is what was being done.

    A package that is not installed is none: the error names it (``unsupported-package``)."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else "polyc"
    if package and package != "polyc":
        message = f"{what}{': ' if what else ''}the package {package} is not installed"
        wanted = f"polyc[{_EXTRAS[package]}]" if package in _EXTRAS else package
        return UnsupportedError(Diagnostic("unsupported-package", message, None, f"run: pip install '{wanted}'"))
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return InternalError(
        Diagnostic(
            "internal-crash",
            f"{what}{': ' if what else ''}{type(error).__name__}: {error}{place}",
            None,
            "this is a bug in polyc; please report it with the operator and the sizes",
        )
    )


@contextmanager
def name_crashes(what: str) -> Iterator[None]:
    """Turn any exception that is not a named error into an `InternalError`; its cause keeps the traceback."""
    try:
        yield
    except (PolycError, MemoryError):
        raise
    except Exception as error:
        raise describe_crash(error, what) from error
