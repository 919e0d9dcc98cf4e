"""Every option and environment variable, typed, in one place (docs/configuration.md is checked against it)."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import cache

from polyc.records import dataclass, replace

VERSION = "0.1.0"
"""The one place that has it: pyproject.toml reads it from here."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may change.  None of them is needed; all are part of a kernel's identity except `verify`."""

    target: str = "host"
    """"host" or a machine model: "x86-64-v2", "x86-64-v3" or "x86-64-v4" with their instruction sets, or "aarch64", 64-bit ARM.
    Code for another kind of processor than the host, or for instructions that it lacks, is written to files, not run."""
    reassociate: bool = True
    """False keeps every reduction in the order of the source (one accumulator, no vector or parallel reduction)."""
    disable: tuple[str, ...] = ()
    """Names of passes that are left out; `polyc passes` lists them, and docs/passes.md says what each is for."""
    scheduler: str = "ilp"
    """"ilp", "isl" (isl's own scheduler) or "source" (the order of the source): the first rung of the ladder."""
    inline: bool = True
    tile: bool = True
    vectorize: bool = True
    parallel: bool = True
    verify: bool = False
    """Run the reference interpreter beside every call and compare (slow; for tests and doubts)."""

    def replace(self, **changes: object) -> Options:
        unknown = set(changes) - {f.name for f in fields(self)} - set(SWITCHES)
        if unknown:
            known = ", ".join(f.name for f in fields(self))
            raise TypeError(f"unknown option {sorted(unknown)[0]!r}; options are: {known}")
        disable = changes.pop("disable", self.disable)
        given = (disable,) if isinstance(disable, str) else disable
        if not isinstance(given, Iterable):
            raise TypeError(f"option disable is the name of a pass, or several, not {disable!r}")
        names = {RENAMED.get(name, name) for name in given}
        for switch in sorted(SWITCHES.keys() & changes.keys()):
            passes, is_on = SWITCHES[switch], changes.pop(switch)
            if not isinstance(is_on, bool):
                raise TypeError(f"option {switch} is True or False, not {is_on!r}")
            names = names - set(passes) if is_on else names | set(passes)
        return replace(self, disable=tuple(sorted(names)), **changes)  # type: ignore[arg-type]


SWITCHES: dict[str, tuple[str, ...]] = {
    "online_softmax": ("online-softmax",),
    "single_pass_moments": ("single-pass-moments",),
    "collect_weights": ("weighted-sums",),
    "logistic_forms": ("logistic",),
    "factor_sums": ("factor-sums",),
    "running_sums": ("running-sums",),
    "separate_products": ("separate-products",),
    "minimal_filtering": ("minimal-filtering",),
    "block_recurrences": ("block-recurrences",),
    "order_contractions": ("order-contractions",),
    "separate_windows": ("separate-windows",),
    "gather_windows": ("gather-windows",),
    "byte_words": ("byte-words",),
}
"""Options of 0.1 that are names in `Options.disable` now."""

RENAMED: dict[str, str] = {
    "align-overlapped-tiles": "align-tiles",
    "align-copies": "align-tiles",
    "prefetch-indirect": "prefetch-accesses",
    "prefetch-windows": "prefetch-accesses",
    "prefetch-steps": "prefetch-accesses",
    "prefetch-next-rows": "prefetch-next",
    "prefetch-panels": "prefetch-next",
    "prefetch-tiles": "prefetch-next",
    "unswitch-domains": "partition-loops",
    "unswitch-selects": "partition-loops",
    "split-interior": "partition-loops",
    "carry-lines": "stage-copies",
    "block-intervals": "block-recurrences",
}
"""Former names of passes, still accepted in `Options.disable`, by the pass that does the same now."""


ENVIRONMENT: dict[str, str] = {
    "POLYC_TARGET": "machine model: x86-64-v2, x86-64-v3, x86-64-v4 or aarch64 (default: the host)",
    "POLYC_MACHINE": "machine in the place of this one: zen2 to zen5, skylake-x, sapphire-rapids, neoverse, small-vm, a level",
    "POLYC_NUM_THREADS": "threads per kernel (default: OMP_NUM_THREADS, else the number of cores)",
    "POLYC_VERIFY": "1 compares every call with the reference interpreter",
    "POLYC_EINSUM": "compile lets polyc.einsum compile at once, instead of when calls have lost as much time as that takes",
    "POLYC_CACHE": "0 switches the disk cache off",
    "POLYC_CACHE_DIR": "where compiled kernels are kept (default: polyc below the user's cache directory, ~/.cache)",
    "POLYC_CACHE_SIZE": "most bytes that it may take, with K, M or G for powers of 1024 (default: 512M)",
    "POLYC_HELD_MEMORY": "most bytes of dropped results kept for later calls, with K, M or G (default: 512M; 0 keeps none)",
    "POLYC_DEBUG": "1 lets internal faults of the scheduler surface instead of taking a simpler schedule",
}


def machine_name() -> str:
    """The machine that stands in the place of the host; empty for the host itself."""
    return os.environ.get("POLYC_MACHINE", "")


DEFAULT_CACHE_SIZE = 512 << 20
"""Bytes."""


def cache_settings() -> tuple[str, int] | None:
    """Directory and most bytes of the disk cache; None where it is switched off, or nobody knows a place for it."""
    if parse_flag(os.environ.get("POLYC_CACHE", "")) is False:
        return None
    directory = cache_directory()
    if directory is None:
        return None
    return directory, cache_size()


def cache_size() -> int:
    """The most bytes that the disk cache may take."""
    size = parse_bytes(os.environ.get("POLYC_CACHE_SIZE", ""))
    return DEFAULT_CACHE_SIZE if size is None else size


def cache_directory() -> str | None:
    """Where the disk cache is, or would be; None where there is neither a home nor `POLYC_CACHE_DIR`."""
    named = os.environ.get("POLYC_CACHE_DIR", "")
    if named:
        return os.path.abspath(named)
    return _user_cache(os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("HOME", ""))


@cache
def _user_cache(xdg: str, home: str) -> str | None:
    """`platformdirs`' answer, on Linux without it; it depends on the two variables."""
    if sys.platform == "linux" and "ANDROID_ROOT" not in os.environ:
        path = os.path.join(xdg if xdg.strip() else os.path.expanduser("~/.cache"), "polyc")
    else:
        from platformdirs import user_cache_dir

        path = user_cache_dir("polyc")
    return path if os.path.isabs(path) else None


def parse_bytes(text: str) -> int | None:
    """``"512M"`` in bytes; None for what is no number of bytes."""
    match = re.fullmatch(r"\s*(\d{1,15})\s*([KMG]?)(?:i?B)?\s*", text, re.IGNORECASE)
    return None if match is None else int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]


FLAG_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
"""What a variable that switches something may say, in any case of letters."""


def parse_flag(text: str) -> bool | None:
    """Whether a variable switches something on or off; None where it says neither."""
    return FLAG_WORDS.get(text.strip().casefold())


MAX_THREADS = 4096
"""More than any machine has; OpenMP runtimes abort the process where they cannot start a thread."""


def parse_threads(text: str) -> int | None:
    """A number of threads; None for what is none."""
    text = text.strip()
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    return int(text) if is_number and 1 <= int(text) <= MAX_THREADS else None


def debugging() -> bool:
    """Whether internal faults should surface (set in polyc's own tests)."""
    return parse_flag(os.environ.get("POLYC_DEBUG", "")) is True


EINSUM_COMPILES = "compile"


def compiles_every_einsum() -> bool:
    """Whether `polyc.einsum` compiles at the first call already, whatever it costs."""
    return os.environ.get("POLYC_EINSUM", "") == EINSUM_COMPILES


def default_options() -> Options:
    """Options from the environment."""
    return Options(
        target=os.environ.get("POLYC_TARGET", "host") or "host",
        verify=parse_flag(os.environ.get("POLYC_VERIFY", "")) is True,
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
