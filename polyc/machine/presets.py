"""Machines by name: instruction sets for files and tests (`MODELS`), and whole machines for `POLYC_MACHINE` (`MACHINES`)."""

from __future__ import annotations

from collections.abc import Collection

from polyc.machine.costs import LoopCosts
from polyc.machine.model import Machine, with_caches_of
from polyc.records import replace

_V2 = "+cx16,+sahf,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2"
_V3 = _V2 + ",+avx,+avx2,+fma,+bmi,+bmi2,+f16c,+lzcnt,+movbe"
_V4 = _V3 + ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
_VNNI = _V4 + ",+avx512vnni,+avx512bf16,+avx512vbmi"
_TRIPLE = "x86_64-unknown-linux-gnu"

X86_64_V2 = Machine("x86-64-v2", _TRIPLE, "x86-64-v2", _V2, 128, 16, False, False, False, 1)
X86_64_V3 = Machine("x86-64-v3", _TRIPLE, "x86-64-v3", _V3, 256, 16, True, False, True)
X86_64_V4 = Machine("x86-64-v4", _TRIPLE, "x86-64-v4", _V4, 512, 32, True, True, True)
BASELINE = Machine("generic", _TRIPLE, "generic", "", 128, 16, False, False, False, 1)

AARCH64 = Machine(
    "aarch64", "aarch64-unknown-linux-gnu", "generic", "+neon,+fp-armv8", 128, 32, True, False, False, 2, l1=64 << 10
)
"""NEON as every 64-bit ARM core has it: no masks and no gathers, but twice the registers of SSE and AVX."""

PINNED: dict[str, Machine] = {t.name: t for t in (X86_64_V2, X86_64_V3, X86_64_V4)}
"""Machine models for golden files, for hosts that are to use an older instruction set, and for files for other machines."""

MODELS: dict[str, Machine] = {**PINNED, AARCH64.name: AARCH64}
"""All machine models that may be asked for by name; where the host is none of their kind, code for them is not run."""

ZEN2 = replace(X86_64_V3, name="zen2", fma_latency=5, cores=8, l2=512 << 10, l3=16 << 20)
ZEN3 = replace(X86_64_V3, name="zen3", l2=512 << 10)
ZEN4 = replace(
    X86_64_V4,
    name="zen4",
    features=_VNNI,
    fma_per_cycle=1,
    loads_per_cycle=1,
    cores=8,
    loops=LoopCosts(reads_on=True),
)
"""Vectors of 512 bits are computed and loaded in two halves."""
ZEN5 = replace(X86_64_V4, name="zen5", features=_VNNI + ",+avx512vp2intersect", cores=8, l1=48 << 10)
SKYLAKE_X = replace(X86_64_V4, name="skylake-x", cores=8, l3=11 << 20, gather=1.7)
"""Its gathers are those of an Ice Lake server, the only one of these that was measured (docs/decisions/0657)."""
SAPPHIRE_RAPIDS = replace(X86_64_V4, name="sapphire-rapids", features=_VNNI, cores=4, l1=48 << 10, l2=2 << 20, l3=64 << 20)
SMALL_VM = replace(X86_64_V3, name="small-vm", cores=1, l2=256 << 10, l3=4 << 20)
NEOVERSE = replace(AARCH64, name="neoverse", cores=16)

MACHINES: dict[str, Machine] = PINNED | {
    t.name: t for t in (ZEN2, ZEN3, ZEN4, ZEN5, SKYLAKE_X, SAPPHIRE_RAPIDS, NEOVERSE, SMALL_VM)
}
"""Whole machines that `POLYC_MACHINE` puts in the place of the host.  Of the instructions those are named that change code."""


def recognise(triple: str, features: Collection[str]) -> Machine:
    """The machine nearest to a processor with these features, by LLVM's names.

    ``sse4a`` is of AMD alone; ``avx512vp2intersect`` came to it with cores that compute vectors of 512 bits at once (Zen 5),
    ``vaes`` with Zen 3; ``amx-tile`` to Intel with Sapphire Rapids."""
    if replace(BASELINE, triple=triple).architecture == AARCH64.architecture:
        return NEOVERSE
    level = BASELINE
    for pinned in PINNED.values():
        if triple.startswith("x86_64") and all(f.lstrip("+") in features for f in pinned.features.split(",")):
            level = pinned
    if level is X86_64_V4:
        if "sse4a" in features:
            return ZEN5 if "avx512vp2intersect" in features else ZEN4
        return SAPPHIRE_RAPIDS if "amx-tile" in features else SKYLAKE_X
    if level is X86_64_V3 and "sse4a" in features:
        return ZEN3 if "vaes" in features else ZEN2
    return level


def select_model(host: Machine, level: str) -> Machine:
    """The model `level` on `host`; as it is where that is another kind of processor than the host."""
    pinned = MODELS[level]
    return with_caches_of(pinned, host) if pinned.architecture == host.architecture else pinned
