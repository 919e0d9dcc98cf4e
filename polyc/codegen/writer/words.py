"""Text of LLVM IR that reads tables of machine words."""

from __future__ import annotations


def read_word(name: str, table: str, position: int, kind: str = "i64") -> str:
    """Two lines that define ``%name`` (an `i64`, or a `ptr`) as the word at `position` of the table at ``%table``."""
    return f"  %{name}_place = getelementptr i64, ptr %{table}, i64 {position}\n  %{name} = load {kind}, ptr %{name}_place"
