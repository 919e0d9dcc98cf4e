"""The description of an entry point, from a program and what was inferred of it."""

from __future__ import annotations

from collections.abc import Mapping

from polyc.ir.program import Program
from polyc.ir.signature import ArrayRole, ArraySpec, RuntimeGuard, Signature, Strides, make_entry_name
from polyc.ir.types import DType
from polyc.poly.ranges import Ranges
from polyc.poly.scop import Scop


def memory_strides(program: Program, strides: Strides) -> Strides:
    """Strides of the arrays as compiled code sees them (`ArraySpec.memory`)."""
    types = [program.types[n] for n in (*program.parameters, *(r.version for r in program.returns))]
    return tuple(
        (*own, dtype.part.itemsize) if own is not None and dtype.is_complex else own
        for own, dtype in zip(strides, types, strict=True)
    )


def make_signature(
    program: Program, types: Mapping[str, DType], ranges: Ranges, scop: Scop, strides: Strides | None
) -> Signature:
    """The entry point's description: parameters in source order, then returns; `types` are those of the caller's arrays."""
    arrays: list[ArraySpec] = []
    for name in program.parameters:
        t = program.tensor(name)
        intervals = ranges.tensors[name]
        arrays.append(
            ArraySpec(t.base, t.dtype, tuple(i.extent for i in intervals), tuple(i.lower for i in intervals), "input")
        )
    for r in program.returns:
        t = program.tensor(r.version)
        intervals = ranges.tensors[r.version]
        role: ArrayRole = "output" if r.initial is None else "inout"
        arrays.append(ArraySpec(r.name, t.dtype, tuple(i.extent for i in intervals), tuple(i.lower for i in intervals), role))
    if strides is not None:
        arrays = [ArraySpec(a.name, a.dtype, a.shape, a.lower, a.role, s) for a, s in zip(arrays, strides, strict=True)]
    versions = (*program.parameters, *(r.version for r in program.returns))
    arrays = [_in_callers_terms(a, types[v]) for a, v in zip(arrays, versions, strict=True)]
    guards = [RuntimeGuard(g.message, g.span or s.origin.span) for s in scop.statements for g in s.guards]
    for c in ranges.data_checks:
        box = tuple((interval.lower, interval.extent) for _, interval in c.box)
        guards.append(RuntimeGuard(c.message, c.span, c.code, c.help, box))
    entry = make_entry_name(program.name)
    return Signature(entry, program.sizes, program.defined_sizes, tuple(arrays), ranges.checks, tuple(guards))


def _in_callers_terms(array: ArraySpec, dtype: DType) -> ArraySpec:
    """The array whose `memory` is `array`."""
    if not dtype.is_complex:
        return array
    strides = None if array.strides is None else array.strides[:-1]
    return ArraySpec(array.name, dtype, array.shape[:-1], array.lower[:-1], array.role, strides)
