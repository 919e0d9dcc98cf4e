"""The machine model: a plain value that every decision reads and tests pin."""

from __future__ import annotations

from polyc.records import dataclass, replace

PART_OF_L3 = 2
"""Part of the last-level cache from which on results are streamed, whatever is read."""

SMALLER_PART, ALMOST_L3 = 4, 0.875
"""Part of the cache from which on results are streamed where they fill almost all of it together with what is read."""


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of machine.  Cache sizes in bytes, per core for L1 and L2, whole for L3; latency in cycles.

    `features` is LLVM's feature string (``+avx2,+fma``); `cpu` only names a tuning model and may be "generic".
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    n_registers: int
    has_fma: bool
    has_masks: bool
    """Masked loads and stores of 32 and 64 bit elements at full speed (AVX-512)."""
    has_gather: bool
    spare_registers: int = 0
    """Vector registers that a register tile leaves to the code generator: the product where multiply and add are two
    instructions, and on AArch64 broadcasts of which LLVM loads several ahead."""
    fma_latency: int = 4
    fma_per_cycle: int = 2
    loads_per_cycle: int = 2
    """Whole vectors, and elements that are broadcast."""
    cores: int = 2
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 32 << 20
    cache_line: int = 64
    spin_ns: int = 50_000
    """Nanoseconds that a thread without work looks for some before it sleeps: about what waking it takes.  Other libraries'
    threads want the core meanwhile."""
    wake_ns: int = 50_000
    """Nanoseconds of a region that are worth waking a sleeping thread for, which takes the caller a system call."""

    def has_masked_loads(self, itemsize: int) -> bool:
        """Whether vectors of elements of `itemsize` bytes are loaded under a mask in about the time of a whole one: AVX does so
        for 32 and 64 bits, stores under such masks take several times as long (Zen 4: 42 micro-operations)."""
        return self.has_masks or (self.architecture == "x86_64" and "+avx" in self.features.split(",") and itemsize >= 4)

    @property
    def mask_bits(self) -> int:
        """Bits of the widest vector of 32 or 64 bit elements that is loaded and stored under one mask: without AVX-512, LLVM
        (22.1) makes wrong code of wider ones (`codegen.writer.masks`)."""
        return self.vector_bits if self.has_masked_loads(4) and not self.has_masks else 1 << 30

    @property
    def has_byte_products(self) -> bool:
        """Whether one instruction adds four products of bytes to each 32-bit lane (VNNI)."""
        wanted = "+avx512vnni" if self.vector_bits == 512 else "+avxvnni"
        return self.architecture == "x86_64" and wanted in self.features.split(",")

    @property
    def has_register_tables(self) -> bool:
        """Whether one instruction looks each 32-bit lane up in a register of eight (AVX2)."""
        return self.architecture == "x86_64" and "+avx2" in self.features.split(",")

    @property
    def has_fast_gather(self) -> bool:
        """Whether a gather takes less time than a load for each of its lanes.

        Not with AVX-512 and a first-level cache of 32 KiB (Zen 4: 4000 floats by position 3.6 us gathered, 2.8 by lanes)."""
        return self.has_gather and (self.vector_bits < 512 or self.l1 > 32 << 10)

    @property
    def architecture(self) -> str:
        """The kind of processor, by LLVM's name: ``x86_64``, ``aarch64``."""
        name = self.triple.partition("-")[0]
        return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)

    @property
    def streaming_sizes(self) -> tuple[int, int, int] | None:
        """When a result goes to memory directly, because little of it is left in the cache when it is complete: from the first
        number of bytes on, and from the second on if it is the third together with what is read meanwhile.

        None where that was not measured to pay."""
        if self.architecture != "x86_64":
            return None
        return -(-self.l3 // PART_OF_L3), -(-self.l3 // SMALLER_PART), int(ALMOST_L3 * self.l3)

    def is_streamed(self, size: int, read: int) -> bool:
        """Whether a result of `size` bytes goes to memory directly where `read` bytes are read meanwhile."""
        if self.streaming_sizes is None:
            return False
        alone, least, together = self.streaming_sizes
        return size >= alone or (size >= least and size + read >= together)

    def lanes(self, itemsize: int) -> int:
        """Elements of `itemsize` bytes in one vector register (at least 1)."""
        return max(1, self.vector_bits // 8 // itemsize)


_V2 = "+cx16,+sahf,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2"
_V3 = _V2 + ",+avx,+avx2,+fma,+bmi,+bmi2,+f16c,+lzcnt,+movbe"
_V4 = _V3 + ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
_TRIPLE = "x86_64-unknown-linux-gnu"

X86_64_V2 = Target("x86-64-v2", _TRIPLE, "x86-64-v2", _V2, 128, 16, False, False, False, 1)
X86_64_V3 = Target("x86-64-v3", _TRIPLE, "x86-64-v3", _V3, 256, 16, True, False, True)
X86_64_V4 = Target("x86-64-v4", _TRIPLE, "x86-64-v4", _V4, 512, 32, True, True, True)
BASELINE = Target("generic", _TRIPLE, "generic", "", 128, 16, False, False, False, 1)

AARCH64 = Target(
    "aarch64", "aarch64-unknown-linux-gnu", "generic", "+neon,+fp-armv8", 128, 32, True, False, False, 2, l1=64 << 10
)
"""NEON as every 64-bit ARM core has it: no masks and no gathers, but twice the registers of SSE and AVX."""

PINNED: dict[str, Target] = {t.name: t for t in (X86_64_V2, X86_64_V3, X86_64_V4)}
"""Machine models for golden files, for hosts that are to use an older instruction set, and for files for other machines."""

MODELS: dict[str, Target] = {**PINNED, AARCH64.name: AARCH64}
"""All machine models that may be asked for by name; where the host is none of their kind, code for them is not run."""

_VNNI = _V4 + ",+avx512vnni,+avx512bf16,+avx512vbmi"

MACHINES: dict[str, Target] = PINNED | {
    t.name: t
    for t in (
        replace(X86_64_V3, name="zen3", l2=512 << 10),
        replace(X86_64_V4, name="skylake-x", cores=8, l3=11 << 20),
        replace(X86_64_V4, name="sapphire-rapids", features=_VNNI, cores=4, l1=48 << 10, l2=2 << 20, l3=64 << 20),
        replace(X86_64_V3, name="small-vm", cores=1, l2=256 << 10, l3=4 << 20),
    )
}
"""Whole machines that `POLYC_MACHINE` puts in the place of the host.  Of the instructions those are named that change code."""


def is_runnable(target: Target, host: Target) -> bool:
    """Whether the host is a processor of the kind of `target`, with all of its instructions."""
    return target.architecture == host.architecture and set(target.features.split(",")) <= {*host.features.split(","), ""}


def select_model(host: Target, level: str) -> Target:
    """The model `level` with the caches and cores of `host`; as it is where that is another kind of processor than the host."""
    pinned = MODELS[level]
    if pinned.architecture != host.architecture:
        return pinned
    return replace(pinned, cores=host.cores, l1=host.l1, l2=host.l2, l3=host.l3, cache_line=host.cache_line, triple=host.triple)
