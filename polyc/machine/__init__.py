"""The machine model, and the machines that have names."""

from __future__ import annotations

from polyc.machine.costs import Threads
from polyc.machine.memory import Level, Memory, Prefetchers, Rates, RowBlocks, Share
from polyc.machine.model import Machine, is_runnable
from polyc.machine.presets import AARCH64, BASELINE, MACHINES, MODELS, PINNED, X86_64_V2, X86_64_V3, X86_64_V4, select_model

__all__ = [
    "AARCH64",
    "BASELINE",
    "MACHINES",
    "MODELS",
    "PINNED",
    "X86_64_V2",
    "X86_64_V3",
    "X86_64_V4",
    "Level",
    "Machine",
    "Memory",
    "Prefetchers",
    "Rates",
    "RowBlocks",
    "Share",
    "Threads",
    "is_runnable",
    "select_model",
]
