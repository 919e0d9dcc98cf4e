"""The order in which range inference takes the statements of a program, and which of its tensors need each other."""

from __future__ import annotations

from polyc.ir.components import order_components
from polyc.ir.expr import Index, index_names, walk
from polyc.ir.program import Program, Statement
from polyc.ir.read_sites import collect_reads


def find_recurrences(program: Program) -> dict[str, frozenset[str]]:
    """By tensor version that a recurrence writes: all versions that need each other with it, itself included."""
    found = [frozenset(c.versions) for c in order_components(program) if c.is_recurrence]
    return {version: versions for versions in found for version in versions}


def find_open_subscripts(s: Statement) -> dict[int, Index]:
    """Left subscripts of `s`, by dimension, that are an index alone which stands in nothing that is read: what other statements
    write of the tensor may tell its range (``h(0, j) = 0.0``)."""
    read = set().union(*(index_names(sub) for site in collect_reads(s) for sub in site.read.subscripts))
    return {d: sub for d, sub in enumerate(s.subscripts) if isinstance(sub, Index) and sub.name not in read}


def order_statements(program: Program) -> list[Statement]:
    """Statements after those whose tensors they read; source order breaks ties, and cycles where they begin."""
    writers: dict[str, set[str]] = {}
    for s in program.statements:
        writers.setdefault(s.target, set()).add(s.name)
    for s in program.statements:
        if s.reduction is not None:  # the caller's content has the range of the statement that accumulates into it
            for node in walk(s.reduction.init):
                tensor = getattr(node, "tensor", None)
                if tensor is not None and program.tensor(tensor).role == "accumulated":
                    writers.setdefault(tensor, {s.name})
    waiting = {
        s.name: {w for site in collect_reads(s) for w in writers.get(site.read.tensor, ())} - {s.name}
        for s in program.statements
    }
    done: set[str] = set()
    remaining = list(program.statements)
    ordered: list[Statement] = []
    while remaining:
        s = next((s for s in remaining if waiting[s.name] <= done), remaining[0])
        ordered.append(s)
        done.add(s.name)
        remaining.remove(s)
    return ordered
