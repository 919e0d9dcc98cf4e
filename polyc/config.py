"""Every option and environment variable, typed, in one place (docs/configuration.md is checked against it)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may change.  None of them is needed; all are part of a kernel's identity except `verify`."""

    target: str = "host"
    """"host" or a pinned machine model ("x86-64-v2", "x86-64-v3", "x86-64-v4"): restricts the instruction set."""
    reassociate: bool = True
    """False keeps every reduction in the order of the source (one accumulator, no vector or parallel reduction)."""
    scheduler: str = "ilp"
    """"ilp", "isl" (isl's own scheduler) or "source" (the order of the source): the first rung of the ladder."""
    inline: bool = True
    tile: bool = True
    vectorize: bool = True
    parallel: bool = True
    verify: bool = False
    """Run the reference interpreter beside every call and compare (slow; for tests and doubts)."""

    def replace(self, **changes: object) -> Options:
        unknown = set(changes) - {f.name for f in fields(self)}
        if unknown:
            known = ", ".join(f.name for f in fields(self))
            raise TypeError(f"unknown option {sorted(unknown)[0]!r}; options are: {known}")
        return replace(self, **changes)  # type: ignore[arg-type]


ENVIRONMENT: dict[str, str] = {
    "POLYC_TARGET": "machine model to restrict to: x86-64-v2, x86-64-v3 or x86-64-v4 (default: the host)",
    "POLYC_NUM_THREADS": "threads per kernel (default: OMP_NUM_THREADS, else the number of cores)",
    "POLYC_VERIFY": "1 compares every call with the reference interpreter",
    "POLYC_EINSUM": "compile lets polyc.einsum compile at once, instead of when NumPy has taken as long as a compilation",
    "POLYC_DEBUG": "1 lets internal faults of the scheduler surface instead of taking a simpler schedule",
}


def debugging() -> bool:
    """Whether internal faults should surface (set in polyc's own tests)."""
    return os.environ.get("POLYC_DEBUG", "") not in ("", "0")


def compiles_every_einsum() -> bool:
    """Whether `polyc.einsum` compiles at the first call already, whatever it costs."""
    return os.environ.get("POLYC_EINSUM", "") == "compile"


def default_options() -> Options:
    """Options from the environment."""
    return Options(
        target=os.environ.get("POLYC_TARGET", "host") or "host",
        verify=os.environ.get("POLYC_VERIFY", "") not in ("", "0"),
    )


def _c_getenv() -> Callable[[bytes], bytes | None]:
    """The C library's `getenv`: `os.environ` writes through to it, and takes four times as long to read."""
    try:
        return ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.c_char_p)(("getenv", ctypes.pythonapi))
    except AttributeError:  # a C library that Python's own library does not lead to
        return os.environb.get if os.supports_bytes_environ else lambda name: os.environ.get(name.decode(), "").encode()


_getenv = _c_getenv()


def default_options_key() -> tuple[bytes | None, bytes | None]:
    """What `default_options` depends on, for those who remember what they made of it."""
    return _getenv(b"POLYC_TARGET"), _getenv(b"POLYC_VERIFY")
