"""Arithmetic on small integers in 16 bits, where every value on the way fits.

    before  ``S[i,j] += i32(X[i+a,j+b])   ;  Y[i,j] = u8(S[i,j] // 9)``           X of u8, nine terms
    after   ``S[i,j] += u16(X[i+a,j+b])   ;  Y[i,j] = u8(S[i,j] // 9:u16)``

Images hold bytes, and programs compute with them in 32 bits so that nothing overflows.  Intervals of the values show where 16
bits are enough: a vector has twice the lanes, and products and quotients by numbers are one instruction instead of several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial
from math import prod

from polyc.code_limits import MAX_ITEMS
from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Pad,
    Read,
    Select,
    children,
    identity_of,
    padded_reads,
    reads,
    type_of,
    with_children,
)
from polyc.ir.intervals import COMPARISONS, range_of_call
from polyc.ir.program import Program, Statement, all_reads
from polyc.ir.types import I16, U16, DType
from polyc.poly.domains import is_box
from polyc.poly.ranges import Ranges
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.peepholes import rewrite_value
from polyc.scheduler.rewriting.reindexing import change_expressions, map_reads
from polyc.scheduler.rewriting.rules.analysis import has_own_elements

Bounds = tuple[int, int]
"""The least and the greatest value."""

_ARITHMETIC = frozenset(("add", "sub", "mul", "neg", "abs", "max", "min", "floordiv", "mod"))


@dataclass(slots=True)
class _Narrowing:
    """Element types as they are so far, and the bounds of temporaries that were narrowed."""

    types: dict[str, DType]
    bounds: dict[str, Bounds] = field(default_factory=dict)

    def find_bounds(self, expr: Expr) -> Bounds | None:
        """Bounds of an integer expression that holds only operators that `convert` knows; None where it may wrap around."""
        match expr:
            case Const(value, dtype) if dtype.is_integer:
                return int(value), int(value)
            case Read(tensor):
                return self.bounds.get(tensor, self.types[tensor].limits if self.types[tensor].is_integer else None)
            case Pad(read, value):
                return _union(self.find_bounds(read), self.find_bounds(value) if expr.mode == "value" else (0, 0))
            case Cast(value, dtype) if dtype.is_integer:
                source = type_of(value, self.types)
                inner = self.find_bounds(value) if source.is_integer else None
                return inner if inner is not None and _fits(inner, dtype) else None
            case Select(_, then, other):
                return _union(self.find_bounds(then), self.find_bounds(other))
            case Call(op, args) if op in _ARITHMETIC:
                known = [b for a in args if (b := self.find_bounds(a)) is not None]
                low, high = range_of_call(op, known) if len(known) == len(args) else (None, None)
                if low is None or high is None or not _fits((low, high), type_of(expr, self.types)):
                    return None
                return low, high
        return None

    def convert(self, expr: Expr, dtype: DType) -> Expr | None:
        """`expr` computed in `dtype`; None where a value on the way is none of that type."""
        found = self.find_bounds(expr)
        if found is None or not _fits(found, dtype):
            return None
        match expr:
            case Const(value):
                return Const(value, dtype, expr.span)
            case Read() | Pad():
                return None
            case Cast(value):
                source = type_of(value, self.types)
                if source.bits > dtype.bits:
                    return self.convert(value, dtype)
                return value if source == dtype else Cast(value, dtype, expr.span)
        values = children(expr)
        first = [self.narrow(expr.condition)] if isinstance(expr, Select) else []
        new = first + [new for e in values[len(first) :] if (new := self.convert(e, dtype)) is not None]
        return with_children(expr, tuple(new)) if len(new) == len(values) else None

    def choose(self, *exprs: Expr) -> tuple[Expr, ...]:
        """Integer expressions with arithmetic in them, computed in a type of 16 bits where one is enough for all of them."""
        if not any(isinstance(e, (Call, Select)) for e in exprs):
            return ()
        if any(not (t := type_of(e, self.types)).is_integer or t.bits <= U16.bits for e in exprs):
            return ()
        if all(isinstance(n, Const) or not reads(n) for n in exprs):
            return ()
        for dtype in (U16, I16):
            new = [e for e in (self.convert(e, dtype) for e in exprs) if e is not None]
            if len(new) == len(exprs):
                return tuple(new)
        return ()

    def narrow(self, expr: Expr) -> Expr:
        """`expr` with what is converted or compared computed in 16 bits where that is enough."""
        return rewrite_value(expr, self._narrowed)

    def _narrowed(self, expr: Expr, _: Callable[[Expr], Expr]) -> Expr | None:
        match expr:
            case Cast(value, dtype) if not isinstance(value, Read) and (found := self.choose(value)):
                return Cast(found[0], dtype, expr.span)
            case Call(op, args) if op in COMPARISONS and (found := self.choose(*args)):
                return Call(op, found, expr.span)
        return expr if isinstance(expr, Pad) else None


def narrow_integers(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Integers are computed in as many bits as their ranges need."""
    state = _Narrowing(dict(program.types))
    if not any(t.dtype.is_integer and t.dtype.bits < U16.bits for t in program.tensors):
        return program, ranges, []
    remarks: list[Remark] = []
    statements, own = {s.name: s for s in program.statements}, dict(ranges.statements)
    for s in program.statements:
        if (narrow := _narrow_temporary(statements[s.name], program, ranges, state)) is None:
            continue
        statements[s.name], bounds = narrow
        wide, found = state.types[s.target], type_of(statements[s.name].value, state.types)
        state.types[s.target], state.bounds[s.target] = found, bounds

        widen = partial(map_reads, change=partial(_convert, dtype=wide), tensor=s.target)
        for name in statements.keys() - {s.name}:
            statements[name], own[name] = change_expressions(statements[name], own[name], widen)
        remarks.append(
            Remark("passed", "narrow", f"{s.target} is computed in {found}: {bounds[0]} to {bounds[1]}", s.name, s.span)
        )
    for name, s in statements.items():
        value = state.narrow(s.value)
        if value != s.value:
            statements[name] = replace(s, value=value)
            remarks.append(Remark("passed", "narrow", f"values of {s.target} are computed in 16 bits", name, s.span))
    if not remarks:
        return program, ranges, []
    tensors = tuple(replace(t, dtype=state.types[t.name]) for t in program.tensors)
    program = replace(program, tensors=tensors, statements=tuple(statements[s.name] for s in program.statements))
    return program, replace(ranges, statements=own), remarks


def _convert(read: Read, dtype: DType) -> Expr:
    return Cast(read, dtype, read.span)


def _narrow_temporary(s: Statement, program: Program, ranges: Ranges, state: _Narrowing) -> tuple[Statement, Bounds] | None:
    """`s` over values of 16 bits, and their bounds; None where its target stays as it is."""
    tensor, own = program.tensor(s.target), ranges.statements[s.name]
    wide = state.types[s.target]
    if tensor.role != "temporary" or not wide.is_integer or wide.bits <= U16.bits or len(program.writers()[s.target]) != 1:
        return None
    if not _may_change_type(s.target, program, ranges):
        return None
    found, start = state.find_bounds(s.value), None
    if found is not None and s.reduction is not None:
        counts = [own.indices[i].extent for i in s.reduction_indices]
        terms = prod(int(e.value) if isinstance(e, Const) else 0 for e in counts)
        is_plain = s.reduction.monoid is None and s.reduction.op in ("add", "max", "min") and own.region is None
        if not is_plain or not 1 <= terms <= MAX_ITEMS or not is_box(own.domain, own.indices, s.indices):
            return None
        if not has_own_elements(s, ranges):
            return None  # the terms of an element are more than the values of the indices that are summed up
        if s.reduction.init != identity_of(s.reduction.op, wide):
            return None
        start = s.reduction.op
        if start == "add":
            found = min(0, terms * found[0]), max(0, terms * found[1])
    dtype = None if found is None else next((d for d in (U16, I16) if _fits(found, d)), None)
    if dtype is None or found is None:
        return None
    value = state.convert(s.value, dtype) or Cast(s.value, dtype, s.span)
    reduction = s.reduction if start is None or s.reduction is None else replace(s.reduction, init=identity_of(start, dtype))
    return replace(s, value=value, reduction=reduction), found


def _may_change_type(tensor: str, program: Program, ranges: Ranges) -> bool:
    """Whether conversions may stand in the places of all reads of a tensor: not at borders, where reads are checked, nor where
    they say what is read or written."""
    kept = [g.read for own in ranges.statements.values() for g in own.guards]
    for s in program.statements:
        kept += padded_reads(s.value)
        kept += (r for access in (Read(s.target, s.subscripts), *all_reads(s)) for e in access.subscripts for r in reads(e))
        kept += (r for r in all_reads(s) if r.tensor == s.target)
    return all(r.tensor != tensor for r in kept)


def _fits(bounds: Bounds, dtype: DType) -> bool:
    return dtype.is_integer and dtype.limits[0] <= bounds[0] and bounds[1] <= dtype.limits[1]


def _union(a: Bounds | None, b: Bounds | None) -> Bounds | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
