"""Convert an input once where a product would convert the same 16-bit float for each vector.

    before  ``H[i, j] += f32(A[i, k]) * f32(B[k, j])``
    after   ``A.f32[i, k] = f32(A[i, k])  ;  H[i, j] += A.f32[i, k] * f32(B[k, j])``

In the loops of a product one operand is broadcast, an element at a time: that conversion is no vector instruction, and it is
repeated for each tile of columns.  As a statement it is one, and the tile that it fills stays in the first-level cache.  The
operand that moves with the columns is converted where it is read, sixteen lanes for a whole column of the tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from polyc.diagnostics import Remark
from polyc.ir.expr import Cast, Expr, Index, Read, Select, children, rewrite
from polyc.ir.program import Program, Statement, Tensor
from polyc.poly.domains import project_domain
from polyc.poly.ranges import Ranges, StatementRanges
from polyc.scheduler.accesses import trip_count

MINIMUM_REUSE = 16
"""Columns that must share a converted element."""


def hoist_conversions(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Give the broadcast 16-bit operands of each sum a statement that converts them."""
    remarks: list[Remark] = []
    for s in program.statements:
        for cast in _find_broadcast(s, program, ranges):
            program, ranges = _add_statement(program, ranges, s.name, cast)
            remarks.append(
                Remark("passed", "hoist-conversions", f"{_tensor_of(cast)} is converted before the sum", s.name, s.span)
            )
    return program, ranges, remarks


def _find_broadcast(s: Statement, program: Program, ranges: Ranges) -> list[Cast]:
    """Casts of inputs, subscripted by plain indices, that do not move with the last index of the left side."""
    left = s.left_indices
    if s.reduction is None or s.reduction.op != "add" or not left:
        return []
    if trip_count(ranges.statements[s.name].indices[left[-1]].extent) < MINIMUM_REUSE:
        return []
    found: dict[Expr, Cast] = {}
    for node in _walk_certain(s.value):
        match node:
            case Cast(Read(tensor, subscripts)) if program.tensor(tensor).dtype.is_storage and not node.dtype.is_storage:
                names = [e.name for e in subscripts if isinstance(e, Index)]
                is_plain = len(names) == len(subscripts) == len(set(names)) > 0
                is_summed = not set(names).isdisjoint(s.reduction_indices)
                if is_plain and is_summed and left[-1] not in names and program.tensor(tensor).role == "input":
                    found[node] = node
    return list(found.values())


def _walk_certain(expr: Expr) -> Iterator[Expr]:
    """The nodes that are evaluated at every point: an arm of `?:` may guard what it reads."""
    yield expr
    for child in (expr.condition,) if isinstance(expr, Select) else children(expr):
        yield from _walk_certain(child)


def _tensor_of(cast: Cast) -> str:
    assert isinstance(cast.value, Read)
    return cast.value.tensor


def _add_statement(program: Program, ranges: Ranges, name: str, cast: Cast) -> tuple[Program, Ranges]:
    s = next(x for x in program.statements if x.name == name)
    assert isinstance(cast.value, Read)
    element = cast.value.subscripts
    indices = tuple(e.name for e in element if isinstance(e, Index))
    source = program.tensor(cast.value.tensor)
    suffix = "_".join((name, *indices))  # a statement may read one input twice
    wide, copy_name = f"{source.name}.{cast.dtype}.{suffix}", f"{suffix}_convert_{source.name}"
    tensor = Tensor(wide, cast.dtype, len(indices), None, "temporary", f"{source.base}.{cast.dtype}", source.span)
    copy = Statement(copy_name, wide, element, indices, cast, None, (), s.span)
    redirected = replace(s, value=rewrite(s.value, lambda e: Read(wide, element, cast.span) if e == cast else None))
    statements = tuple(x for old in program.statements for x in ((copy, redirected) if old is s else (old,)))
    own = ranges.statements[name]
    intervals = {i: own.indices[i] for i in indices}
    copied = StatementRanges(intervals, project_domain(own.domain, s.indices, copy_name, indices))
    return (
        replace(program, statements=statements, tensors=(*program.tensors, tensor)),
        replace(
            ranges,
            statements={**ranges.statements, copy_name: copied},
            tensors={**ranges.tensors, wide: tuple(intervals[i] for i in indices)},
        ),
    )
