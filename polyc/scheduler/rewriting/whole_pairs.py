"""Move complex numbers as one element of eight bytes where nothing computes with them.

Before: ``Y:f32[j, i, 0] = X[i, j, 0]  ;  Y[j, i, 1] = X[i, j, 1]``, the real and the imaginary part (`ir/complex_pairs.py`).
After: ``Y:u64[j, i] = X[i, j]``, with elements that begin at multiples of four bytes.

Vectors of parts lie apart in memory, and a transpose of them is none of whole elements.  A pair of doubles is longer than any
element that there is, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyc.diagnostics import Remark
from polyc.ir.expr import Expr, Read, int_const, reads
from polyc.ir.program import Program, Statement, statement_reads
from polyc.ir.types import F32, PAIR
from polyc.poly.ranges import Interval, Ranges, StatementRanges
from polyc.records import replace
from polyc.scheduler.rewriting.merge_indices import ByteStrides
from polyc.scheduler.rewriting.reindexing import Groups, relayout


def move_pairs(program: Program, ranges: Ranges, strides: ByteStrides) -> tuple[Program, Ranges, Groups, list[Remark]]:
    """The program with arrays of pairs that are only copied as arrays of whole elements; `strides`: of arguments, in bytes."""
    initial = {r.version for r in program.returns if r.initial is not None}
    two = Interval(int_const(0), int_const(2))
    found = {
        t.name
        for t in program.tensors
        if t.dtype == F32 and t.role in ("input", "output") and t.name not in initial
        if (ranges.tensors.get(t.name) or (None,))[-1] == two
        if (strides.get(t.name) or (None,))[-1] == F32.itemsize
    }
    by_name = {s.name: s for s in program.statements}
    pairs: dict[str, str] = {}
    while found:
        pairs = {
            s.name: other.name for s in program.statements if (other := _other_part(s, found, by_name, ranges)) is not None
        }
        whole = {*pairs, *pairs.values()}
        used = {name for s in program.statements if s.name not in whole for name in _touched(s)}
        if not found & used:
            break
        found -= used
    if not found or not pairs:
        return program, ranges, {}, []
    gone = set(pairs.values())
    remarks = [Remark("passed", "move-pairs", "complex numbers are moved as they are", n, by_name[n].span) for n in pairs]
    program = replace(program, statements=tuple(s for s in program.statements if s.name not in gone))
    ranges = replace(ranges, statements={n: own for n, own in ranges.statements.items() if n not in gone})
    groups: Groups = {t.name: tuple((d,) for d in range(t.rank - 1)) for t in program.tensors if t.name in found}
    program, ranges = relayout(program, ranges, groups)
    tensors = tuple(replace(t, dtype=PAIR) if t.name in found else t for t in program.tensors)
    return replace(program, tensors=tensors), ranges, groups, remarks


def _other_part(s: Statement, found: set[str], by_name: Mapping[str, Statement], ranges: Ranges) -> Statement | None:
    """The copy of imaginary parts that belongs to `s`, a copy of real ones between arrays in `found`."""
    other = by_name.get(f"{s.name.removesuffix('.re')}.im")
    if not s.name.endswith(".re") or other is None:
        return None
    if not (_is_copy(s, int_const(0), found) and _is_copy(other, int_const(1), found)):
        return None
    assert isinstance(s.value, Read) and isinstance(other.value, Read)
    if (s.target, s.subscripts[:-1], s.indices) != (other.target, other.subscripts[:-1], other.indices):
        return None
    if (s.value.tensor, s.value.subscripts[:-1]) != (other.value.tensor, other.value.subscripts[:-1]):
        return None
    own, beside = ranges.statements[s.name], ranges.statements[other.name]
    return other if _is_same_domain(own, beside) else None


def _is_same_domain(own: StatementRanges, other: StatementRanges) -> bool:
    if own.guards or other.guards or own.indices != other.indices:
        return False
    renamed = other.domain.set_tuple_name(own.domain.get_tuple_name())
    return bool(own.domain.is_equal(renamed))


def _is_copy(s: Statement, part: Expr, found: set[str]) -> bool:
    """Whether a statement copies `part` of elements, at places that it computes without reading anything."""
    if s.reduction is not None or not isinstance(s.value, Read) or s.target not in found or s.value.tensor not in found:
        return False
    places = (*s.subscripts, *s.value.subscripts)
    if s.value.tensor == s.target or any(True for e in places for _ in reads(e)):
        return False
    return s.subscripts[-1] == s.value.subscripts[-1] == part


def _touched(s: Statement) -> set[str]:
    """All tensors that a statement has to do with."""
    return {s.target, *(r.tensor for r in statement_reads(s))}
