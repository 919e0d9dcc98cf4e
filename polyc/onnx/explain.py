"""What a session does: clusters, what is fused in them, which kernels are shared, and the plan of the memory."""

from __future__ import annotations

from polyc.frontends.onnx.graph import Graph
from polyc.frontends.onnx.partition import is_contraction
from polyc.ir.expr import evaluate
from polyc.ir.program import Program
from polyc.onnx.segments import Segment
from polyc.onnx.session import Session

_MOST_NODES = 12
"""Nodes of a cluster that are listed."""


def explain_session(session: Session) -> str:
    """Of everything that was compiled so far: a session that has not run has compiled nothing."""
    graph: Graph = session.runner.graph
    segments = session.runner.segments()
    lines = [
        "== model ==",
        f"{len(session.original.nodes)} nodes, {len(graph.nodes)} after simplification; "
        f"{len(graph.constants)} constants of {sum(a.nbytes for a in graph.constants.values()) / 2**20:.2f} MiB",
    ]
    codes: dict[int, int] = {}
    for number, segment in enumerate(segments):
        lines += _explain_segment(number, len(segments), segment, codes)
    lines += ["", "== not compiled =="]
    lines += [f"{r}" for r in session.remarks] or [
        "nothing: every node is computed by compiled code, or while the model is loaded"
    ]
    return "\n".join(lines)


def _explain_segment(number: int, count: int, segment: Segment, codes: dict[int, int]) -> list[str]:
    plan = segment.plan
    title = "clusters" if count == 1 else f"clusters of part {number + 1} of {count}"
    lines = ["", f"== {title} =="]
    inputs = ", ".join(f"{n} {v.dtype.label}{list(v.shape)}" for n, v in plan.inputs.items())
    lines.append(f"for {inputs or 'no inputs'}")
    for k, step in enumerate(plan.steps):
        kernel = codes.setdefault(id(step.call), len(codes))
        program = step.cluster.program
        labels = step.cluster.labels
        shown = ", ".join(labels[:_MOST_NODES]) + (
            f", and {len(labels) - _MOST_NODES} more" if len(labels) > _MOST_NODES else ""
        )
        lines.append(f"{k:>4}  kernel {kernel} {program.name}: {_signature(program)}")
        lines.append(f"      {shown}")
        lines.append(f"      {_content(program)}")
    distinct = len({id(s.call) for s in plan.steps})
    lines.append(f"{len(plan.steps)} clusters, {distinct} different kernels")
    lines.append(f"memory: {plan.arena}")
    if segment.node is not None:
        lines.append(f"then, on the host: {segment.node.label}")
    return lines


def _signature(program: Program) -> str:
    def shapes(names: tuple[str, ...]) -> str:
        found = []
        for n in names:
            t = program.tensor(n)
            found.append(f"{n} {t.dtype.label}[{', '.join(str(evaluate(e, {})) for e in t.shape or ())}]")
        return ", ".join(found)

    return f"({shapes(program.parameters)}) → {shapes(tuple(r.version for r in program.returns))}"


def _content(program: Program) -> str:
    contractions = sum(is_contraction(s) for s in program.statements)
    reductions = sum(s.reduction is not None for s in program.statements) - contractions
    n = len(program.statements)
    parts = [f"{n} statement{'s' if n > 1 else ''}"]
    parts += [f"{contractions} contraction{'s' if contractions > 1 else ''}"] if contractions else []
    parts += [f"{reductions} other reduction{'s' if reductions > 1 else ''}"] if reductions else []
    return ", ".join(parts) + (" in one kernel" if n > 1 else "")
