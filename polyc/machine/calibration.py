"""What was measured of this machine (`polyc calibrate`), and the model that follows from it.

A calibration changes which of several right kernels is chosen, nothing else: each number is held to what a machine can be, so
that one that was measured beside other processes, or edited, does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import inf, isfinite
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

    def rates(own: Rates, values: tuple[float, float, float]) -> Rates:
        """Farther is never faster; levels whose transfers are part of the arithmetic stay so."""
        l2, l3, rest = values
        l2 = inf if own.l2 == inf else l2
        l3 = min(l3, l2)
        return Rates(own.l1, l2, l3, min(rest, l3))

    return replace(
        machine,
        fma_latency=round(found.fma_latency),
        fma_per_cycle=round(found.fma_per_cycle),
        loads_per_cycle=round(found.loads_per_cycle),
        gather=found.gather,
        memory=replace(
            memory,
            read=rates(memory.read, found.read),
            read_strided=rates(memory.read_strided, found.read_strided),
            read_prefetched=rates(memory.read_prefetched, found.read_prefetched),
            written=rates(memory.written, found.written),
            passed=rates(memory.passed, found.passed),
            streamed=found.streamed,
        ),
        threads=replace(threads, fork=round(found.fork), spin_ns=round(found.wake), wake_ns=round(found.wake)),
    )


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
