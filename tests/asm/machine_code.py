"""Reading assembly text: innermost loops, and what their instructions do."""

from __future__ import annotations

import re
from dataclasses import dataclass

from polyc.machine import Machine

_X86_JUMP = r"\tj\w+\t"
_ARM_JUMP = r"\t(?:b|b\.\w+|cbn?z|tbn?z)\t(?:.*, )?"


def innermost_loops(text: str) -> list[str]:
    """Runs of instructions from a label to a jump back to it, with no other label between."""
    loops, label, lines = [], None, []
    for line in text.splitlines():
        if match := re.match(r"(\.L\w+):", line):
            label, lines = match[1], []
        elif line.startswith("\t") and not line.startswith("\t."):
            lines.append(line.strip())
            if label and re.match(rf"(?:{_X86_JUMP}|{_ARM_JUMP}){re.escape(label)}$", line):
                loops.append("\n".join(lines))
    return loops


@dataclass(frozen=True, slots=True)
class Step:
    """Instructions of one run of a loop, by what they do."""

    products: int
    """Multiply-adds; multiplications where the target has none."""
    additions: int
    """Beside multiply-adds."""
    loads: int
    """Vectors."""
    broadcasts: int
    """Elements that are read to all lanes, or (AArch64) to a lane that multiply-adds select."""
    stack: int
    """Accesses relative to the stack pointer: what did not fit into registers."""


def count_step(loop: str, target: Machine) -> Step:
    return _count_x86(loop.splitlines(), target) if target.architecture == "x86_64" else _count_arm(loop.splitlines())


def _count_x86(lines: list[str], target: Machine) -> Step:
    def count(pattern: str) -> int:
        return sum(re.match(pattern, line) is not None for line in lines)

    products = count(r"vfn?madd\d+p[sd]\t") if target.has_fma else count(r"mulp[sd]\t")
    reads = [x for x in lines if re.search(r"\([^)]*\)(?:\{1to\d+\})?, %[xyz]mm|\([^)]*\), %[xyz]mm\d+, %[xyz]mm", x)]
    # SSE has no broadcast: an element is loaded and shuffled.
    narrow = [x for x in reads if re.match(r"v?(broadcast|movddup|movs[sd]\t)", x) or "{1to" in x]
    return Step(products, count(r"v?addp[sd]\t"), len(reads) - len(narrow), len(narrow), sum("(%rsp" in x for x in lines))


def _count_arm(lines: list[str]) -> Step:
    def registers(letters: str) -> int:
        heads = [line.split("[")[0] for line in lines if re.match(r"ld(p|r|ur)\t", line)]
        return sum(len(re.findall(rf"\b[{letters}]\d+\b", head)) for head in heads)

    def count(pattern: str) -> int:
        return sum(re.match(pattern, line) is not None for line in lines)

    narrow = registers("sd") + count("ld1r\t")
    return Step(count("fmla\t"), count(r"fadd\tv"), registers("q"), narrow, sum("[sp" in x for x in lines))
