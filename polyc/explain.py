"""What was decided and why, as text for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyc.code_limits import UNKNOWN_EXTENT
from polyc.ir.expr import Call, Const
from polyc.ir.loops_text import format_loops
from polyc.ir.simplify import simplify
from polyc.ir.text import format_expr, format_program, format_statement

if TYPE_CHECKING:
    from polyc.driver.lowered import Lowered


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
    """One line: ``parallel h(56); tile o 6 x w 64, vectors of 16; packed W; folded T; inlined 2``.

    Loops are those of the statement with the most work."""
    from polyc.scheduler.describe import is_folded, summarize_plan

    scop = lowered.scop
    parts = summarize_plan(lowered.plan, scop)
    bases = {t.name: t.base for t in (*lowered.program.tensors, *scop.program.tensors)}
    packed = [bases[r.name].removesuffix(".packed") for r in scop.program.tensors if r.base.endswith(".packed")]
    folded = [bases[name] for name, f in lowered.storage.items() if is_folded(f) and not bases[name].endswith(".packed")]
    split = [r for r in lowered.remarks if r.kind == "passed" and r.pass_name == "split"]
    inlined = sum(r.kind == "passed" and r.pass_name == "inline" for r in lowered.remarks)
    for verb, names in (("packed", packed), ("folded", folded)):
        if names:
            parts.append(f"{verb} {', '.join(dict.fromkeys(names))}")
    if split:
        parts.append("sums in parts" if len(split) > 1 else "sum in parts")
    if inlined:
        parts.append(f"inlined {inlined}")
    taken = next((r.message for r in lowered.remarks if r.kind == "passed" and r.pass_name == "schedule"), "")
    if not taken.startswith("ilp:"):
        parts.append(f"schedule of {taken.partition(':')[0]}")
    return "; ".join(parts) or "no loops"


def explain_statements(lowered: Lowered) -> str:
    """Per statement: ranges of its indices, the loops around it, why this vector and this tile, what was packed for it."""

    from polyc.scheduler.contractions.describe_contraction import compulsory_bytes
    from polyc.scheduler.describe import describe_loops, describe_register_tile, describe_vector

    lines = []
    for s in lowered.scop.statements:
        lines.append(format_statement(s.origin))
        own = lowered.scop.ranges.statements[s.name].indices
        ends = {i: simplify(Call("add", (own[i].lower, own[i].extent))) for i in s.indices}
        facts: list[tuple[str, str | None]] = [
            ("ranges", ", ".join(f"{i} in {format_expr(own[i].lower)}:{format_expr(ends[i])}" for i in s.indices) or None),
            ("loops", describe_loops(lowered.plan, s)),
            ("vector", describe_vector(lowered.plan, s)),
            ("tile", describe_register_tile(lowered.plan, s, lowered.target)),
        ]
        touched = compulsory_bytes(s, lowered.scop)
        facts.append(("bytes", f"{', '.join(f'{name} {n}' for name, n in touched.items())}: each at least once"))
        facts += [(r.pass_name, r.message) for r in lowered.remarks if r.statement == s.name and r.pass_name != "schedule"]
        lines += [f"  {title:8} {text}" for title, text in facts if text is not None]
    if any(not isinstance(e, Const) for s in lowered.scop.statements for e in s.extents.values()):
        lines.append(f"sizes that are not given count as {UNKNOWN_EXTENT} in these estimates")
    return "\n".join(lines) + "\n"


def explain_contractions(lowered: Lowered) -> str:
    """Per contraction: roles of the indices, register tile, copies, blocks, and estimated cycles and bytes."""
    from polyc.scheduler.contractions.describe_contraction import describe_contraction

    lines = []
    for name, choice in lowered.choices.items():
        s = lowered.scop.statement(name)
        lines.append(format_statement(s.origin))
        facts = describe_contraction(choice, s, lowered.scop, lowered.target)
        lines += [f"  {title:8} {text}" for title, text in facts]
    return "".join(f"{line}\n" for line in lines)


def explain(lowered: Lowered) -> str:
    """The whole story of one compilation, from the program to the loops; the summary comes first."""
    from polyc.poly.dependences import compute_dependences
    from polyc.poly.rows import format_rows
    from polyc.scheduler.describe import describe_storage

    flows = compute_dependences(lowered.scop).flows
    sections = [
        ("summary", summarize(lowered) + "\n"),
        ("program", format_program(lowered.program)),
    ]
    if lowered.scop.program is not lowered.program:
        sections.append(("program as scheduled", format_program(lowered.scop.program)))
    sections += [
        ("domains and accesses", format_scop(lowered.scop)),
        ("dependences", "".join(f"{f.source} -> {f.sink} through {f.tensor}: {f.relation}\n" for f in flows)),
        ("schedule", format_rows(lowered.rows, lowered.scop) + "\n"),
        ("statements", explain_statements(lowered)),
        ("contractions", explain_contractions(lowered)),
        ("decisions", "".join(f"{remark}\n" for remark in lowered.remarks)),
        ("storage", "".join(f"{line}\n" for line in describe_storage(lowered.storage, lowered.scop))),
        (f"loops for {lowered.target.name}", format_loops(lowered.nest)),
    ]
    sections += [(f"once, of bound inputs ({n + 1})", format_program(p)) for n, p in enumerate(lowered.preparations)]
    return "\n".join(f"== {title} ==\n{text}" for title, text in sections if text)
