"""Drop dimensions of temporaries along which all elements are equal.

Before: ``p[t, i, j] = -c / (a * p[t, i, j-1] + b)``.  After: ``p[j] = -c / (a * p[j-1] + b)``: nothing in the value moves with
t and i but the tensor's own elements at the same t and i.  A recurrence that is written inside a loop over steps, as its source
had it, is computed once.
"""

from __future__ import annotations

from polyc.diagnostics import Remark
from polyc.ir.expr import Index, Pad, index_names, mentions, reads, walk
from polyc.ir.program import Program, Statement, Tensor
from polyc.poly.domains import is_box, is_product, project_domain
from polyc.poly.ranges import Ranges, StatementRanges
from polyc.records import replace
from polyc.scheduler.rewriting.reindexing import map_reads, relayout, without_indices


def drop_invariant_dimensions(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """The program whose temporaries have no dimension that tells nothing."""
    remarks: list[Remark] = []
    while (found := _find(program, ranges)) is not None:
        tensor, d = found
        remarks.append(Remark("passed", "invariant", f"{tensor.base} is the same all along its dimension {d}", None))
        program, ranges = _drop(tensor.name, d, program, ranges)
    return program, ranges, remarks


def _find(program: Program, ranges: Ranges) -> tuple[Tensor, int] | None:
    """A temporary, and a dimension along which all that its statements compute is equal.

    No tensor that is read beside its elements, where the value is another one, or is checked when it is read."""
    fixed = {g.read.tensor for own in ranges.statements.values() for g in own.guards}
    fixed |= {n.read.tensor for s in program.statements for n in walk(s.value) if isinstance(n, Pad) and n.mode == "value"}
    writers = program.writers()
    for t in program.tensors:
        own = writers.get(t.name, []) if t.role == "temporary" and t.name not in fixed else []
        for d in range(t.rank if own else 0):
            # Parts that lie one behind the other along the dimension would fall together.
            is_one = all(_ignores(s, d, ranges.statements[s.name]) for s in own)
            if is_one and (len(own) == 1 or all(_fills(s, d, ranges) for s in own)):
                return t, d
    return None


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


def _drop(tensor: str, d: int, program: Program, ranges: Ranges) -> tuple[Program, Ranges]:
    """The program with one dimension less of a tensor, and one index less in what writes it."""
    gone = {s.name: index_names(s.subscripts[d]) for s in program.statements if s.target == tensor}
    kept = [k for k in range(program.tensor(tensor).rank) if k != d]
    program, ranges = relayout(program, ranges, {tensor: kept})
    own = dict(ranges.statements)
    statements = list(program.statements)
    for n, s in enumerate(statements):
        if s.name in gone:
            statements[n], own[s.name] = without_indices(s, own[s.name], gone[s.name])
    return replace(program, statements=tuple(statements)), replace(ranges, statements=own)
