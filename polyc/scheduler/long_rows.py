"""Read what other loops wrote row by row as one long row.

Before: ``R[c, h, w] = max(T[c, h, w], 0) ; P[k, h, w] += G[k, c] * R[c, h, w]``, where T is a sum over windows of h and w.
After: ``R[c, 56*h + w] = max(T[c, h, w], 0) ; P[k, h.w] += G[k, c] * R[c, h.w]``: the windows keep their rows, and the
register tiles of P run over whole images.  Only where both stand in loops apart anyway: a row that they share would be lost.
"""

from __future__ import annotations

from polyc.diagnostics import Remark, UnsupportedError
from polyc.ir.expr import Const, Index, Read, index_names, walk
from polyc.ir.program import Program, Statement
from polyc.machine import Machine
from polyc.poly.dependences import compute_dependences
from polyc.poly.extraction import extract_scop
from polyc.poly.ranges import Ranges
from polyc.poly.rows import Band, Leaf, Node, Sequence, statements_of
from polyc.poly.scop import Scop
from polyc.scheduler.contractions.choice import choose
from polyc.scheduler.contractions.contraction import find_contraction
from polyc.scheduler.distribute import distribute_bands
from polyc.scheduler.rewriting.merge_indices import (
    ByteStrides,
    Pair,
    connected_pairs,
    find_pairs,
    nest_groups,
    rewrite_pairs,
)
from polyc.scheduler.rewriting.reindexing import Groups
from polyc.scheduler.rows.ilp import schedule_statements


def join_long_rows(scop: Scop, strides: ByteStrides, groups: Groups, target: Machine) -> tuple[Scop, Groups, list[Remark]]:
    """`scop` and what indices were merged into (`groups` so far), with rows that only other loops write as one; `strides`: of
    arguments, in bytes, in their merged dimensions."""
    program, ranges = scop.program, scop.ranges
    keeping, dims = _find_writers(program, ranges, strides)
    if not keeping:
        return scop, groups, []
    dependences = compute_dependences(scop)
    if dependences.has_recurrence():
        return scop, groups, []
    try:
        rows = distribute_bands(schedule_statements(scop, dependences), scop, target)
    except UnsupportedError:
        return scop, groups, []
    if not all(_stand_apart(rows, s, reader, scop) for s in keeping.values() for reader in program.readers(s.target)):
        return scop, groups, []
    joined, joined_ranges, own, remarks = rewrite_pairs(program, ranges, dims, keeping=keeping.keys())
    new = extract_scop(joined, joined_ranges)
    readers = [reader.name for s in keeping.values() for reader in program.readers(s.target)]
    if not all(_is_faster(name, scop, new, target) for name in readers):
        return scop, groups, []
    return new, nest_groups(own, groups), remarks


def _find_writers(program: Program, ranges: Ranges, strides: ByteStrides) -> tuple[dict[str, Statement], set[Pair]]:
    """Statements that alone could not write their target as one row, and the pairs of dimensions that are one with them."""
    keeping = {s.name: s for s in program.statements if _may_keep(s, program, ranges)}
    while keeping:
        targets = {s.target for s in keeping.values()}
        dims = connected_pairs(program, find_pairs(program, ranges, strides, keeping.keys()), targets, keeping.keys())
        used = {name for name, _ in dims}
        plain = {
            name: s
            for name, s in keeping.items()
            if s.target in used and not any(isinstance(n, Read) and n.tensor in used for n in walk(s.value))
        }
        if plain.keys() == keeping.keys():
            return keeping, dims
        keeping = plain
    return {}, set()


def _may_keep(s: Statement, program: Program, ranges: Ranges) -> bool:
    """Whether a statement defines a temporary element by element that sums alone read, each element for several results."""
    if s.reduction is not None or not s.has_plain_left or ranges.statements[s.name].guards:
        return False
    readers = program.readers(s.target)
    alone = len(program.writers()[s.target]) == 1 and program.tensor(s.target).role == "temporary"
    return alone and bool(readers) and all(_reads_again(r, s.target, ranges) for r in readers)


def _reads_again(s: Statement, tensor: str, ranges: Ranges) -> bool:
    """Whether a sum reads each element of a tensor for several of its results."""
    if s.reduction is None:
        return False
    own = ranges.statements[s.name].indices
    several = {i for i in s.left_indices if not isinstance(e := own[i].extent, Const) or int(e.value) > 1}
    found = [n for n in walk(s.value) if isinstance(n, Read) and n.tensor == tensor]
    moved = (index_names(*read.subscripts) for read in found)
    return bool(found) and all(several - names for names in moved)


def _stand_apart(node: Node, writer: Statement, reader: Statement, scop: Scop) -> bool:
    """Whether no loop around both statements moves with a row of what the one writes and the other reads."""
    read = {
        n.name
        for e in walk(reader.value)
        if isinstance(e, Read) and e.tensor == writer.target
        for sub in e.subscripts
        for n in walk(sub)
        if isinstance(n, Index)
    }
    match node:
        case Leaf():
            return True
        case Sequence():
            both = [c for c in node.children if {writer.name, reader.name} <= set(statements_of(c))]
            return all(_stand_apart(c, writer, reader, scop) for c in both)
        case Band():
            indices = scop.statement(reader.name).indices
            rows = (m.rows[reader.name].coefficients for m in node.members)
            moved = {indices[p] for row in rows for p, c in enumerate(row) if c}
            return not moved & read and _stand_apart(node.child, writer, reader, scop)


def _is_faster(name: str, before: Scop, after: Scop, target: Machine) -> bool:
    """Whether a sum of products takes fewer cycles, by estimate, in `after` than in `before`."""
    found = (find_contraction(scop.statement(name), scop, target) for scop in (before, after))
    first, second = (None if c is None else choose(c, target) for c in found)
    return second is not None and (first is None or second.total < first.total)
