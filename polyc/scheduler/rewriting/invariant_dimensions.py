"""Drop dimensions of temporaries along which all elements are equal.

Before: ``p[t, i, j] = -c / (a * p[t, i, j-1] + b)``.  After: ``p[j] = -c / (a * p[j-1] + b)``: nothing in the value moves with
t and i but the tensor's own elements at the same t and i.  A recurrence that is written inside a loop over steps, as its source
had it, is computed once.
"""

from __future__ import annotations

from polyc.diagnostics import Remark
from polyc.ir.expr import Index, Pad, mentions, reads, walk
from polyc.ir.program import Program, Statement
from polyc.poly.domains import is_box, is_product, project_domain
from polyc.poly.ranges import Ranges, StatementRanges
from polyc.records import replace
from polyc.scheduler.rewriting.reindexing import drop_dimensions, map_reads


def drop_invariant_dimensions(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Temporaries lose dimensions along which they are constant."""
    remarks: list[Remark] = []
    is_changed = True
    while is_changed:
        is_changed = False
        writers, fixed = program.writers(), _read_beside_or_guarded(program, ranges)
        for t in program.tensors:
            own = writers.get(t.name, []) if t.role == "temporary" and t.name not in fixed else []
            d = next((d for d in range(t.rank) if _is_invariant(own, d, ranges)), None)
            if d is not None:
                remarks.append(Remark("passed", "invariant", f"{t.base} is the same all along its dimension {d}", None))
                program, ranges = drop_dimensions(program, ranges, {t.name: [(k,) for k in range(t.rank) if k != d]})
                is_changed = True
                break
    return program, ranges, remarks


def _is_invariant(writers: list[Statement], d: int, ranges: Ranges) -> bool:
    if not writers or not all(_ignores(s, d, ranges.statements[s.name]) for s in writers):
        return False
    # Parts that lie one behind the other along the dimension would fall together.
    return len(writers) == 1 or all(_fills(s, d, ranges) for s in writers)


def _read_beside_or_guarded(program: Program, ranges: Ranges) -> set[str]:
    """Tensors that are read beside their elements, where the value is another one, or are checked when they are read."""
    guarded = {g.read.tensor for own in ranges.statements.values() for g in own.guards}
    padded = (n for s in program.statements for n in walk(s.value) if isinstance(n, Pad) and n.mode == "value")
    return guarded | {node.read.tensor for node in padded}


def _fills(s: Statement, d: int, ranges: Ranges) -> bool:
    """Whether the statement writes along all of dimension `d` of its target."""
    index, own = s.subscripts[d], ranges.statements[s.name]
    assert isinstance(index, Index)
    moved = project_domain(own.domain, s.indices, s.name, (index.name,))
    return is_box(moved, {index.name: ranges.tensors[s.target][d]}, (index.name,))


def _ignores(s: Statement, d: int, own: StatementRanges) -> bool:
    """Whether the statement computes the same for every value of the index at dimension `d` of its target."""
    index = s.subscripts[d]
    if not isinstance(index, Index) or own.guards or s.reduction is not None:
        return False
    others = [e for n, e in enumerate(s.subscripts) if n != d]
    if any(r.tensor == s.target and r.subscripts[d] != index for r in reads(s.value)):
        return False
    rest = map_reads(s.value, lambda r: replace(r, subscripts=(*r.subscripts[:d], *r.subscripts[d + 1 :])), s.target)
    return not any(mentions(e, index.name) for e in (rest, *others)) and is_product(own.domain, [s.indices.index(index.name)])
