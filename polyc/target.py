"""The machine model by its earlier name."""

from __future__ import annotations

from polyc.machine import (
    AARCH64,
    BASELINE,
    MACHINES,
    MODELS,
    PINNED,
    X86_64_V2,
    X86_64_V3,
    X86_64_V4,
    is_runnable,
    select_model,
)
from polyc.machine import Machine as Target

__all__ = [
    "AARCH64",
    "BASELINE",
    "MACHINES",
    "MODELS",
    "PINNED",
    "X86_64_V2",
    "X86_64_V3",
    "X86_64_V4",
    "Target",
    "is_runnable",
    "select_model",
]
