"""Sums of products of bytes, four at a time: both operands become words of four bytes along an index of the sum.

    before  ``y[m,n] += i32(a[m,k]) * i32(b[k,n])``
    after   ``A[m,w] = a[m,4w] .. a[m,4w+3]  ;  B[w,n] = b[4w,n] .. b[4w+3,n]  ;  y[m,n] += dot4(A[m,w], B[w,n])``

`dot4u8s8` is one instruction on many machines.  It takes unsigned bytes and signed ones: bytes of the other kind are moved by
128, and what that adds, 128 times the sum of the other operand, is taken off the result.  All of it is exact in int32.
"""

from __future__ import annotations

from functools import reduce
from math import prod

from polyc.code_limits import UNKNOWN_EXTENT
from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, identity_of, int_const, lt
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Reduction, Statement, Tensor
from polyc.ir.types import I8, I32, U8, DType
from polyc.poly.domains import box_domain, is_box
from polyc.poly.ranges import Interval, Ranges, StatementRanges, estimate_extent
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.rules.blocks import Change, Edit, change_statements, is_simple

BYTES = 4
"""Bytes of a word."""

ONES = 0x01010101
"""The word whose bytes are 1."""

MIDDLE = 128
"""What signed bytes are moved by to be unsigned ones."""

MINIMUM_TERMS = 16
"""Terms of a sum from which on words pay."""

MINIMUM_USES = 8
"""Results that each byte counts for, from which on writing it into a word pays."""


@dataclass(frozen=True, slots=True)
class _Operand:
    """A read of bytes, perhaps with zeros around the tensor; dimension `dimension` has the index that words lie along."""

    read: Read
    is_padded: bool
    dimension: int
    dtype: DType

    @property
    def indices(self) -> set[str]:
        return {i for e in self.read.subscripts for i in index_coefficients(e) or ()}


@dataclass(frozen=True, slots=True)
class _Product:
    unsigned: _Operand
    signed: _Operand
    index: str
    extent: int

    @property
    def words(self) -> int:
        return -(-self.extent // BYTES)

    @property
    def word(self) -> str:
        return f"{self.index}.word"


def pack_byte_words(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Sums of products of bytes by instructions that add four products."""

    def change(s: Statement, edit: Edit) -> Change | None:
        product = _find_product(s, program, ranges)
        if product is None:
            return None
        operands = f"{product.unsigned.read.tensor} and {product.signed.read.tensor}"
        return _split(s, product, edit), f"bytes of {operands} are multiplied four at a time"

    return change_statements("byte-words", change, program, ranges)


def _find_product(s: Statement, program: Program, ranges: Ranges) -> _Product | None:
    own = ranges.statements[s.name]
    if s.reduction is None or s.reduction.op != "add" or program.tensor(s.target).dtype != I32 or not is_simple(s, ranges):
        return None
    if len(program.writers()[s.target]) != 1 or not isinstance(s.value, Call) or s.value.op != "mul":
        return None
    summed = s.reduction_indices
    extents = {i: estimate_extent(own.indices[i].extent, ranges.typical) for i in s.indices}
    trips = {i: UNKNOWN_EXTENT if n is None else n for i, n in extents.items()}
    for index in sorted(summed, key=lambda i: trips[i], reverse=True):
        interval = own.indices[index]
        if not isinstance(interval.extent, Const) or interval.lower != int_const(0) or trips[index] < BYTES:
            continue
        found = [_find_operand(a, index, program) for a in s.value.args]
        operands = [o for o in found if o is not None]
        if len(operands) != 2 or not set(summed) <= operands[0].indices & operands[1].indices:
            continue
        uses = [prod(trips[i] for i in s.left_indices if i not in o.indices) for o in operands]
        if prod(trips[i] for i in summed) < MINIMUM_TERMS or min(uses) < MINIMUM_USES:
            continue
        if not is_box(own.domain, own.indices, s.indices):
            return None
        a, b = operands
        # Unsigned bytes first; of two signed ones the padded one is moved, whose borders move with it.
        swap = (a.dtype == I8 and b.dtype == U8) or (a.dtype == b.dtype and (a.dtype == I8) == b.is_padded)
        unsigned, signed = (b, a) if swap else (a, b)
        return _Product(unsigned, signed, index, trips[index])
    return None


def _find_operand(expr: Expr, index: str, program: Program) -> _Operand | None:
    """A converted read of bytes in which `index` stands alone in one subscript and nowhere else."""
    if not isinstance(expr, Cast) or expr.dtype != I32:
        return None
    inner = expr.value
    read = inner.read if isinstance(inner, Pad) else inner
    if isinstance(inner, Pad) and (inner.mode != "value" or not isinstance(inner.value, Const) or inner.value.value != 0):
        return None
    if not isinstance(read, Read) or program.tensor(read.tensor).dtype not in (I8, U8):
        return None
    steps = [index_coefficients(e) for e in read.subscripts]
    places = [d for d, step in enumerate(steps) if step is None or index in step]
    if len(places) != 1 or read.subscripts[places[0]] != Index(index):
        return None
    return _Operand(read, isinstance(inner, Pad), places[0], program.tensor(read.tensor).dtype)


def _split(s: Statement, p: _Product, edit: Edit) -> list[Statement]:
    """Words of both operands, the sum of their products, and what moved bytes have added to it."""
    assert s.reduction is not None
    own = edit.ranges.statements[s.name]
    intervals = own.indices | {p.word: Interval(int_const(0), int_const(p.words))}
    left, summed = s.element_names, tuple(p.word if i == p.index else i for i in s.reduction_indices)
    unsigned, store_unsigned = _store_words(s, p, p.unsigned, MIDDLE if p.unsigned.dtype == I8 else 0, "unsigned", edit)
    signed, store_signed = _store_words(s, p, p.signed, -MIDDLE if p.signed.dtype == U8 else 0, "signed", edit)
    value = Call("dot4u8s8", (unsigned, signed))
    statements = [store_unsigned, store_signed]
    ones = Const(ONES, I32)
    corrections: list[tuple[_Operand, Call]] = []
    if p.unsigned.dtype == I8:
        corrections.append((p.signed, Call("dot4u8s8", (ones, signed))))
    if p.signed.dtype == U8:
        corrections.append((p.unsigned, Call("dot4u8s8", (unsigned, ones))))
    if not corrections:
        edit.own[s.name] = _box(s.name, (*left, *summed), intervals, edit)
        return [*statements, replace(s, indices=(*left, *summed), value=value, where=())]
    zero = Reduction("add", identity_of("add", I32))
    # (a + 128) b = a b + 128 b, and a (b - 128) = a b - 128 a; only one of them happens to two bytes of one kind.
    ((operand, of_one),) = corrections
    factor = -MIDDLE if operand is p.signed else MIDDLE
    total = _sum(s, f"{s.name}_words", f"{s.target}.words", left, summed, value, zero, intervals, edit)
    kept = tuple(i for i in left if i in operand.indices)
    moved = _sum(s, f"{s.name}_moved", f"{s.target}.moved", kept, summed, of_one, zero, intervals, edit)
    parts = Const(factor, I32) * Read(moved.target, moved.subscripts)
    result: Expr = Read(total.target, total.subscripts) + parts
    if s.reduction.init != zero.init:
        result = s.reduction.init + result
    edit.own[s.name] = _box(s.name, left, intervals, edit)
    return [*statements, total, moved, replace(s, indices=left, value=result, reduction=None, where=())]


def _store_words(s: Statement, p: _Product, o: _Operand, moved: int, kind: str, edit: Edit) -> tuple[Expr, Statement]:
    """The words of an operand, and how `s` reads them; bytes behind the last one are 0."""
    name, tensor = f"{s.name}_{kind}", f"{s.target}.{kind}"
    indices = tuple(p.word if d == o.dimension else f"{p.word}.d{d}" for d in range(len(o.read.subscripts)))
    dims = edit.ranges.tensors[o.read.tensor]
    words = Interval(int_const(0), int_const(p.words))
    intervals = {i: words if d == o.dimension else dims[d] for d, i in enumerate(indices)}

    def byte(n: int) -> Expr:
        position = BYTES * Index(p.word) + n
        subscripts = tuple(position if d == o.dimension else Index(i) for d, i in enumerate(indices))
        value: Expr = Cast(Read(o.read.tensor, subscripts), I32)
        if moved:
            value = value + Const(moved, I32)
        if n < BYTES - 1 or moved or o.dtype == I8:
            value = Call("bitand", (value, Const(255, I32)))
        if p.extent % BYTES:
            value = Select(lt(position, p.extent), value, Const(0, I32))
        return value if n == 0 else value * Const(1 << 8 * n, I32)

    value = reduce(lambda a, b: Call("bitor", (a, b)), (byte(n) for n in range(BYTES)))
    edit.tensors.append(Tensor(tensor, I32, len(indices), None, "temporary", tensor, s.span))
    edit.intervals[tensor] = tuple(intervals.values())
    edit.own[name] = _box(name, indices, intervals, edit)
    at = tuple(Index(p.word) if d == o.dimension else e for d, e in enumerate(o.read.subscripts))
    read: Expr = Read(tensor, at)
    if o.is_padded:
        border = (moved & 255) * ONES
        read = Pad(Read(tensor, at), Const(border - (border >> 31 << 32), I32))
    return read, Statement(name, tensor, tuple(map(Index, indices)), indices, value, None, (), s.span)


def _sum(
    s: Statement,
    name: str,
    target: str,
    left: tuple[str, ...],
    summed: tuple[str, ...],
    value: Expr,
    start: Reduction,
    intervals: dict[str, Interval],
    edit: Edit,
) -> Statement:
    edit.tensors.append(Tensor(target, I32, len(left), None, "temporary", target, s.span))
    edit.intervals[target] = tuple(intervals[i] for i in left)
    edit.own[name] = _box(name, (*left, *summed), intervals, edit)
    return Statement(name, target, tuple(map(Index, left)), (*left, *summed), value, start, (), s.span)


def _box(name: str, indices: tuple[str, ...], intervals: dict[str, Interval], edit: Edit) -> StatementRanges:
    own = {i: intervals[i] for i in indices}
    return StatementRanges(own, box_domain(name, indices, own, edit.ranges.parameters))
