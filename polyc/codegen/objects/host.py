"""The machine that runs this process, as a `Machine`: features from LLVM's feature map, caches and cores from the system.

The CPU name is never trusted (virtual machines report wrong ones): the instruction set is what the feature map says.  What LLVM
says of a machine may be kept between processes (`adopt_facts`), as asking it means loading it.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from polyc.codegen.objects import calibration_file
from polyc.config import machine_name
from polyc.diagnostics import ArgumentError, Diagnostic
from polyc.digest import sha256
from polyc.records import dataclass, replace

if TYPE_CHECKING:
    from polyc.machine import Machine
    from polyc.machine.calibration import Calibration

_CACHES = "/sys/devices/system/cpu/cpu0/cache"
_RANGES = (16 << 10, 128 << 10), (256 << 10, 4 << 20), (2 << 20, 64 << 20)
"""Of the caches, by level.  Sizes outside are not believed: virtual machines report the last-level cache of the whole host."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What LLVM says of itself and of the machine: `features` are the names of those that it has."""

    triple: str
    features: tuple[str, ...]
    version: str


_known: list[Facts] = []
_PROCESSORS = "/proc/cpuinfo"
_VARYING = ("processor", "cpu MHz", "bogomips", "apicid", "initial apicid", "core id", "physical id", "BogoMIPS")


def facts() -> Facts:
    """LLVM's facts, asked for once."""
    if not _known:
        import llvmlite
        import llvmlite.binding as llvm

        found = llvm.get_host_cpu_features()
        version = f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"
        _known.append(Facts(llvm.get_process_triple(), tuple(sorted(n for n in found if found[n])), version))
    return _known[0]


def are_facts_known() -> bool:
    """Whether `facts` answers without asking LLVM."""
    return bool(_known)


def adopt_facts(kept: Facts) -> None:
    """Take what an earlier process was told for what LLVM would say: machine (`describe_machine`) and llvmlite are the same."""
    if not _known:
        _known.append(kept)


def describe_machine() -> str | None:
    """A digest of all that the system says of its first processor but for clocks and numbers; None where it says nothing."""
    try:
        block = _read_until_blank(_PROCESSORS)
    except (OSError, ValueError):
        return None
    lines = [line for line in block.splitlines() if line.partition(":")[0].strip() not in _VARYING]
    return sha256("\n".join(lines).encode()).hexdigest() if any("lags" in line for line in lines) else None


@cache
def _read_until_blank(place: str) -> str:
    """A file up to its first empty line: a machine may have hundreds of processors, and the system describes what is read."""
    text = ""
    with open(place, encoding="utf-8") as file:
        while "\n\n" not in text:
            more = file.read(1024)
            if not more:
                break
            text += more
    return text.partition("\n\n")[0]


def describe_target(name: str) -> str:
    """All that the machine of option `target` follows from, but for polyc itself, without making the model of any."""
    return f"{name}, {machine_name() or 'this machine'}: {describe_host()}"


def describe_host() -> str:
    """All that `physical_host` follows from."""
    return _describe_host(count_cores())


@cache
def _describe_host(cores: int) -> str:
    found, sizes = facts(), read_cache_sizes()
    caches = " ".join(f"L{level}={size}" for level, size in sorted(sizes.items()))
    return f"{found.triple}, {cores} cores, {caches}, {','.join(found.features)}, {host_calibration() or 'not calibrated'}"


def host_target() -> Machine:
    """The machine that decisions are made for: this one, or that of `POLYC_MACHINE`.

    Raises ArgumentError (``argument-target``) where no machine has that name."""
    name = machine_name()
    if not name:
        return physical_host()
    from polyc.machine import MACHINES

    if name not in MACHINES:
        help = f"POLYC_MACHINE is one of: {', '.join(MACHINES)}; or unset it for this machine"
        raise ArgumentError(Diagnostic("argument-target", f"no machine {name!r}", help=help))
    machine, triple = MACHINES[name], physical_host().triple
    is_same_kind = replace(machine, triple=triple).architecture == machine.architecture
    return replace(machine, triple=triple) if is_same_kind else machine


def physical_host() -> Machine:
    """The model of the machine that runs this process: that of its microarchitecture (`machine.recognise`) with the features,
    caches and cores that it has.  `cpu` is the highest x86-64 level that its features cover, else "generic"."""
    return _host_with(count_cores())


def count_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _host_with(cores: int) -> Machine:
    """The machine does not change while a process runs, but for the cores that it is held to."""
    found, machine = host_calibration(), uncalibrated_host(cores)
    if found is None:
        return machine
    from polyc.machine.calibration import calibrate_model  # only now: few machines are calibrated

    return calibrate_model(machine, found)


@cache
def host_calibration() -> Calibration | None:
    """What `polyc calibrate` measured of this machine, if it was kept."""
    return calibration_file.read(machine_identity())


def machine_identity() -> str:
    """What a calibration belongs to: the processor, its caches, and how many cores there are, whatever this process may use."""
    processor = describe_machine() or f"{facts().triple} {','.join(facts().features)}"
    return f"{processor} {sorted(read_cache_sizes().items())} {os.cpu_count()}"


def read_calibration_again() -> None:
    """Forget what was read, as after another one was kept."""
    for known in (host_calibration, _host_with, _describe_host):
        known.cache_clear()


def uncalibrated_host(cores: int) -> Machine:
    """This machine as its features, caches and cores say."""
    from polyc.machine.presets import recognise

    triple, features = facts().triple, facts().features
    base = recognise(triple, features)
    sizes = read_cache_sizes()
    text = ",".join(f"+{name}" for name in features if name not in _HARMFUL)
    return replace(
        base,
        name="host",
        triple=triple,
        features=text,
        cores=cores,
        l1=sizes.get(1, base.l1),
        l2=sizes.get(2, base.l2),
        l3=sizes.get(3, base.l3),
    )


def describe_llvm() -> str:
    """``llvmlite 0.50.0, LLVM 22.1.0``: versions that object code depends on."""
    return facts().version


_HARMFUL = ("prefer-256-bit", "64bit", "shstk", "prefer-128-bit")
"""Features that say nothing about instructions we use, or that keep LLVM from the widest registers."""


def _read_word(place: str) -> str:
    with open(place, encoding="utf-8") as file:
        return file.read().strip()


def read_cache_sizes(root: str | os.PathLike[str] = _CACHES) -> dict[int, int]:
    """Bytes by level of the data and unified caches of core 0, clamped to what a core can sensibly count on."""
    sizes: dict[int, int] = {}
    try:
        entries = sorted(name for name in os.listdir(root) if name.startswith("index"))
    except OSError:
        return {}
    for entry in entries:
        try:
            number, kind, text = (_read_word(os.path.join(root, entry, name)) for name in ("level", "type", "size"))
            level = int(number)
            size = int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0)
        except (OSError, ValueError):
            continue
        limits = dict(enumerate(_RANGES, 1)).get(level)
        if kind != "Instruction" and limits is not None and size > 0:
            sizes[level] = min(max(size, limits[0]), limits[1])
    return sizes
