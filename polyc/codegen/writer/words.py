"""Text of LLVM IR that is the same wherever it is written."""

from __future__ import annotations


def read_word(name: str, table: str, position: int | str, kind: str = "i64") -> str:
    """Two lines that define ``%name`` (an `i64`, or a `ptr`) as the word at `position`, a number or a value, of ``%table``."""
    return f"  %{name}_place = getelementptr i64, ptr %{table}, i64 {position}\n  %{name} = load {kind}, ptr %{name}_place"


PAUSES = {"x86_64": ("llvm.x86.sse2.pause", [], ""), "aarch64": ("llvm.aarch64.hint", ["i32 immarg"], "i32 1")}
"""What makes a waiting core leave others more room, by architecture: an intrinsic, its types, its operands."""
