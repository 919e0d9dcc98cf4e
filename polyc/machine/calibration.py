"""What was measured of this machine (`polyc calibrate`), and the model that follows from it.

Literals of a model are rates that kernels reach, which are others than those of a loop that does nothing else.  So a
measurement changes them by its ratio to what the same measurement gave where they were fitted (`FITTED`), in steps of the
square root of two: smaller differences are those of two runs beside other processes.

A calibration changes which of several right kernels is chosen, nothing else: each number is held to what a machine can be, so
that one that was measured beside other processes, or edited, does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import inf, isfinite, log2
from typing import Any

from polyc.machine.memory import Rates
from polyc.machine.model import Machine
from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Calibration:
    """Bytes per cycle of a core while all cores are busy, by level; cycles, nanoseconds, and NumPy's rates per nanosecond."""

    fma_latency: float
    fma_per_cycle: float
    loads_per_cycle: float
    gather: float | None
    """Time of a gather over that of a load for each of its lanes; None where there are no gathers."""
    read: tuple[float, float, float]
    """From the second-level cache, the third-level one and memory; so are the next four."""
    read_strided: tuple[float, float, float]
    read_prefetched: tuple[float, float, float]
    written: tuple[float, float, float]
    passed: tuple[float, float, float]
    streamed: float
    """Non-temporal stores to memory."""
    fork: float
    """Cycles of a fork and join of all threads."""
    wake: float
    """Nanoseconds until a sleeping thread runs.  Threads look for work for at least as long as a call of Python's takes."""
    numpy_product: float
    numpy_step: float
    numpy_copied: float
    """As `api.rates.Rates`."""


RANGES: Mapping[str, tuple[float, float]] = {
    "fma_latency": (2, 8),
    "fma_per_cycle": (1, 4),
    "loads_per_cycle": (1, 4),
    "gather": (0.05, 20),
    "read": (0.5, 256),
    "read_strided": (0.2, 128),
    "read_prefetched": (0.2, 256),
    "written": (0.2, 128),
    "passed": (0.2, 128),
    "streamed": (0.2, 64),
    "fork": (256, 1 << 16),
    "wake": (50_000, 200_000),
    "numpy_product": (0.1, 10_000),
    "numpy_step": (0.05, 1_000),
    "numpy_copied": (0.1, 10_000),
}
"""What each number is held to."""


FITTED = Calibration(
    fma_latency=4,
    fma_per_cycle=1,
    loads_per_cycle=1,
    gather=1.5,
    read=(32.5, 25.4, 9.0),
    read_strided=(38.2, 20.2, 3.7),
    read_prefetched=(34.3, 20.4, 3.6),
    written=(24.0, 9.3, 7.5),
    passed=(15.8, 12.8, 4.4),
    streamed=17.5,
    fork=4096,
    wake=50_000,
    numpy_product=60,
    numpy_step=5.5,
    numpy_copied=46,
)
"""AMD Zen 4, two cores with 1 MiB of L2 each and 32 MiB of L3."""


def clamp(measured: Calibration) -> Calibration:
    """`measured` with numbers that a machine can have."""

    def held(name: str, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, tuple):
            return tuple(held(name, v) for v in value)
        least, most = RANGES[name]
        return min(max(float(value), least), most) if isfinite(value) else most if value == inf else least

    return Calibration(**{f.name: held(f.name, getattr(measured, f.name)) for f in fields(Calibration)})


def calibrate_model(machine: Machine, measured: Calibration) -> Machine:
    """The model of `machine` with what was measured of it."""
    found = clamp(measured)
    memory, threads = machine.memory, machine.threads

    def rates(name: str) -> Rates:
        """Farther is never faster; levels whose transfers are part of the arithmetic stay so."""
        own: Rates = getattr(memory, name)
        l2, l3, rest = (_in_steps(a, b) for a, b in zip(getattr(found, name), getattr(FITTED, name), strict=True))
        near = own.l2 * l2
        middle = min(own.l3 * l3, near)
        return Rates(own.l1, near, middle, min(own.memory * rest, middle))

    return replace(
        machine,
        fma_latency=round(found.fma_latency),
        fma_per_cycle=round(found.fma_per_cycle),
        loads_per_cycle=round(found.loads_per_cycle),
        gather=found.gather and _in_steps(found.gather),
        memory=replace(
            memory,
            read=rates("read"),
            read_strided=rates("read_strided"),
            read_prefetched=rates("read_prefetched"),
            written=rates("written"),
            passed=rates("passed"),
            streamed=memory.streamed * _in_steps(found.streamed, FITTED.streamed),
        ),
        threads=replace(
            threads,
            fork=round(threads.fork * _in_steps(found.fork, FITTED.fork)),
            spin_ns=round(threads.spin_ns * _in_steps(found.wake, FITTED.wake)),
            wake_ns=round(threads.wake_ns * _in_steps(found.wake, FITTED.wake)),
        ),
    )


def _in_steps(value: float, of: float = 1.0) -> float:
    """The ratio, as the nearest power of the square root of two."""
    return float(2.0 ** (round(2 * log2(value / of)) / 2))


def to_plain(measured: Calibration) -> dict[str, Any]:
    """As JSON has it."""
    found = clamp(measured)
    return {f.name: list(v) if isinstance(v := getattr(found, f.name), tuple) else v for f in fields(Calibration)}


def from_plain(plain: Any) -> Calibration:
    """Raises ValueError where `plain` is no calibration."""
    if not isinstance(plain, dict) or plain.keys() != {f.name for f in fields(Calibration)}:
        raise ValueError("no calibration")

    def read(name: str, value: Any, kind: str) -> Any:
        if kind.startswith("tuple"):
            if not isinstance(value, list) or len(value) != 3:
                raise ValueError(f"{name} is not three numbers")
            return tuple(read(name, v, "float") for v in value)
        if value is None and "None" in kind:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{name} is no number")
        return float(value)

    return clamp(Calibration(**{f.name: read(f.name, plain[f.name], str(f.type)) for f in fields(Calibration)}))
