"""Move complex numbers as one element of eight bytes where nothing computes with them.

Before: ``Y:f32[j, i, 0] = X[i, j, 0]  ;  Y[j, i, 1] = X[i, j, 1]``, the real and the imaginary part (`ir/complex_pairs.py`).
After: ``Y:u64[j, i] = X[i, j]``, with elements that begin at multiples of four bytes.

Vectors of parts lie apart in memory, and a transpose of them is none of whole elements.  A pair of doubles is longer than any
element that there is, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Set

from polyc.diagnostics import Remark
from polyc.ir.expr import Read, int_const, reads
from polyc.ir.program import Program, Statement, statement_reads
from polyc.ir.types import F32, PAIR
from polyc.poly.ranges import Interval, Ranges
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
    while True:
        other = {s.name: by_name.get(f"{s.name.removesuffix('.re')}.im") for s in program.statements if s.name.endswith(".re")}
        pairs = {n: im.name for n, im in other.items() if im is not None and _are_parts(by_name[n], im, found, ranges)}
        rest = (s for s in program.statements if s.name not in {*pairs, *pairs.values()})
        used = {name for s in rest for name in (s.target, *(r.tensor for r in statement_reads(s)))}
        if not found & used:
            break
        found -= used
    if not pairs:
        return program, ranges, {}, []
    gone = set(pairs.values())
    remarks = [Remark("passed", "move-pairs", "complex numbers are moved as they are", n, by_name[n].span) for n in pairs]
    program = replace(program, statements=tuple(s for s in program.statements if s.name not in gone))
    ranges = replace(ranges, statements={n: own for n, own in ranges.statements.items() if n not in gone})
    groups: Groups = {t.name: tuple((d,) for d in range(t.rank - 1)) for t in program.tensors if t.name in found}
    program, ranges = relayout(program, ranges, groups)
    tensors = tuple(replace(t, dtype=PAIR) if t.name in found else t for t in program.tensors)
    return replace(program, tensors=tensors), ranges, groups, remarks


def _are_parts(re: Statement, im: Statement, found: Set[str], ranges: Ranges) -> bool:
    """Whether two statements copy the real and the imaginary parts of the same elements between two arrays in `found`, at
    places that they compute without reading anything."""
    if re.reduction is not None or not isinstance(re.value, Read) or not {re.target, re.value.tensor} <= found:
        return False
    places, one = (*re.subscripts, *re.value.subscripts), int_const(1)
    if re.value.tensor == re.target or any(map(reads, places)) or not places[-1] == re.subscripts[-1] == int_const(0):
        return False
    value = replace(re.value, subscripts=(*re.value.subscripts[:-1], one))
    own, beside = ranges.statements[re.name], ranges.statements[im.name]
    is_same = im == replace(re, name=im.name, subscripts=(*re.subscripts[:-1], one), value=value)
    is_same = is_same and not own.guards and not beside.guards and own.indices == beside.indices
    return is_same and bool(own.domain.is_equal(beside.domain.set_tuple_name(own.domain.get_tuple_name())))
