"""What was decided and why, as text for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyc.ir.text import format_loops, format_program

if TYPE_CHECKING:
    from polyc.driver import Lowered


def format_scop(scop: Any) -> str:
    """Ranges, domains, writes and reads of every statement."""
    lines = [f"context {scop.context}"]
    for t in scop.tensors.values():
        lines.append(f"tensor {t.name}: {t.dtype} ({t.role})")
    for s in scop.statements:
        lines.append(f"{s.name}")
        lines.append(f"  domain {s.domain}")
        if s.init_domain is not None:
            lines.append(f"  init   {s.init_domain}")
        lines.append(f"  write  {s.write}")
        lines += [f"  read   {a.relation}{'' if a.is_exact else '  (over-approximated)'}" for a in s.accesses]
    return "\n".join(lines) + "\n"


def format_schedule(schedule: Any) -> str:
    """The isl schedule tree as YAML; reads back with `islpy.Schedule.read_from_str`."""
    from polyc.poly.tree import format_tree

    return format_tree(schedule)


def summarize(lowered: Lowered) -> str:
    """One line: rows found, parallel and vector loops, inlined and folded tensors."""
    from polyc.poly.rows import format_rows

    parts = [format_rows(lowered.rows, lowered.scop)]
    inlined = sum(r.kind == "passed" and r.pass_name == "inline" for r in lowered.remarks)
    if inlined:
        parts.append(f"{inlined} inlined")
    parts += _loop_kinds(lowered)
    folded = [name for name, f in lowered.storage.items() if any(m is not None for m in f.moduli)]
    if folded:
        parts.append("folded " + ", ".join(folded))
    return "; ".join(parts)


def _loop_kinds(lowered: Lowered) -> list[str]:
    text = format_loops(lowered.nest)
    found = []
    for kind in ("parallel", "vector", "unroll"):
        n = sum(kind in line.split() for line in text.splitlines())
        if n:
            found.append(f"{n} {kind}")
    return found


def explain(lowered: Lowered) -> str:
    """The whole story of one compilation."""
    from polyc.poly.dependences import compute_dependences
    from polyc.poly.rows import format_rows

    sections = [("program", format_program(lowered.program))]
    if lowered.scop.program is not lowered.program:
        sections.append(("program as scheduled", format_program(lowered.scop.program)))
    sections.append(("domains and accesses", format_scop(lowered.scop)))
    flows = compute_dependences(lowered.scop).flows
    sections.append(("dependences", "".join(f"{f.source} -> {f.sink} through {f.tensor}: {f.relation}\n" for f in flows)))
    sections.append(("schedule", format_rows(lowered.rows, lowered.scop) + "\n"))
    sections.append(("decisions", "".join(f"{remark}\n" for remark in lowered.remarks)))
    storage = "".join(f"{name} -> {f.buffer}{list(f.moduli)} ({f.space})\n" for name, f in lowered.storage.items())
    sections.append(("storage", storage))
    sections.append((f"loops for {lowered.target.name}", format_loops(lowered.nest)))
    return "\n".join(f"== {title} ==\n{text}" for title, text in sections)
