"""What environment variables say that polyc cannot do: one warning for each, wherever the first of them would count."""

from __future__ import annotations

import os
import warnings

from polyc.config import EINSUM_COMPILES, ENVIRONMENT, FLAG_WORDS, MAX_THREADS, parse_bytes, parse_flag, parse_threads
from polyc.diagnostics import Diagnostic, PolycWarning, suggest_name, user_stacklevel

_PREFIX = "POLYC_"
_FLAGS = ("POLYC_VERIFY", "POLYC_CACHE", "POLYC_DEBUG")
_BYTES = ("POLYC_CACHE_SIZE", "POLYC_HELD_MEMORY")
_told: set[tuple[str, str]] = set()


def warn_of_environment() -> None:
    """``argument-environment``, once in a process for each variable and value that mean nothing."""
    for name, value in [(n, v) for n, v in os.environ.items() if n.startswith(_PREFIX) and v and (n, v) not in _told]:
        _told.add((name, value))
        found = _find_problem(name, value)
        if found is not None:
            problem, help = found
            shown = value if value.isprintable() else repr(value)
            diagnostic = Diagnostic("argument-environment", f"{name}={shown} {problem}, and is ignored", None, help, "warning")
            warnings.warn(PolycWarning(diagnostic), stacklevel=user_stacklevel())


def _find_problem(name: str, value: str) -> tuple[str, str] | None:
    """What is wrong with a variable, and what to write; None where it is fine, or not polyc's."""
    if name in _FLAGS and parse_flag(value) is None:
        return "is neither on nor off", f"write one of: {', '.join(FLAG_WORDS)}"
    if name in _BYTES and parse_bytes(value) is None:
        return "is no number of bytes", f"write it with K, M or G for powers of 1024: {name}=256M"
    if name == "POLYC_NUM_THREADS" and parse_threads(value) is None:
        return f"is no number of threads from 1 to {MAX_THREADS}", "set it to such a number, or not at all"
    if name == "POLYC_EINSUM" and value != EINSUM_COMPILES:
        return "says nothing", f"POLYC_EINSUM={EINSUM_COMPILES} compiles at the first call; without it, NumPy computes at first"
    if name not in ENVIRONMENT:
        near = suggest_name(name.removeprefix(_PREFIX), [n.removeprefix(_PREFIX) for n in ENVIRONMENT])
        return None if near is None else ("is no variable of polyc", near.replace("mean ", f"mean {_PREFIX}"))
    return None
