"""Text of LLVM IR that is the same wherever it is written."""

from __future__ import annotations

from collections.abc import Sequence


def read_word(name: str, table: str, position: int | str, kind: str = "i64") -> str:
    """Two lines that define ``%name`` (an `i64`, or a `ptr`) as the word at `position`, a number or a value, of ``%table``."""
    return f"  %{name}_place = getelementptr i64, ptr %{table}, i64 {position}\n  %{name} = load {kind}, ptr %{name}_place"


def read_field(fields: Sequence[str], table: str, name: str, kind: str = "i64") -> str:
    """The same of the field `name` of a record with these `fields`, each one word."""
    return read_word(name, table, fields.index(name), kind)


PAUSES = {"x86_64": ("llvm.x86.sse2.pause", [], ""), "aarch64": ("llvm.aarch64.hint", ["i32 immarg"], "i32 1")}
"""What makes a waiting core leave others more room, by architecture: an intrinsic, its types, its operands."""
