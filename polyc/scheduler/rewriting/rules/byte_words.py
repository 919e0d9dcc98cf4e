"""Sums of products of bytes, four at a time: both operands become words of four bytes along an index of the sum.

    before  ``y[m,n] += i32(a[m,k]) * i32(b[k,n])``
    after   ``A[m,w] = a[m,4w] .. a[m,4w+3]  ;  B[w,n] = b[4w,n] .. b[4w+3,n]  ;  y[m,n] += dot4(A[m,w], B[w,n])``

`dot4u8s8` is one instruction on many machines.  It takes unsigned bytes and signed ones: bytes of the other kind are moved by
128, and what that adds, 128 times the sum of the other operand, is taken off the result.  All of it is exact in int32.
"""

from __future__ import annotations

from functools import reduce
from math import prod

from polyc.code_limits import MINIMUM_REUSE, UNKNOWN_EXTENT, WORD
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, children, identity_of, int_const, lt
from polyc.ir.program import Program, Reduction, Statement
from polyc.ir.simplify import simplify
from polyc.ir.types import I8, I32, U8, DType
from polyc.poly.ranges import Ranges
from polyc.records import dataclass
from polyc.scheduler.rewriting.builder import Change, ProgramBuilder, Split
from polyc.scheduler.rewriting.rules.analysis import is_whole_box
from polyc.scheduler.rewriting.rules.operands import Operand, find_operands

ONES = sum(1 << 8 * n for n in range(WORD))
"""The word whose bytes are 1."""

MIDDLE = -min(I8.limits)
"""What signed bytes are moved by to be unsigned ones."""


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Bytes that are read, perhaps with zeros around the tensor; words lie along a dimension."""

    operand: Operand
    dimension: int
    dtype: DType


def pack_byte_words(s: Statement, builder: ProgramBuilder) -> Change | None:
    """Dot products of bytes, four at a time."""
    product = _find_product(s, builder.program, builder.ranges)
    if product is None:
        return None
    operands = " and ".join(o.operand.read.tensor for o in product[:2])
    return _split(s, *product, builder), f"bytes of {operands} are multiplied four at a time"


def _find_product(s: Statement, program: Program, ranges: Ranges) -> tuple[_Bytes, _Bytes, Split] | None:
    """The operands of a sum of products of bytes, unsigned ones first, and the words along an index of the sum."""
    if s.reduction is None or s.reduction.op != "add" or program.tensor(s.target).dtype != I32:
        return None
    factors = find_operands(s.value)
    if not factors or not all(_is_bytes(f) for f in children(s.value)) or not is_whole_box(s, program, ranges):
        return None
    summed = s.reduction_indices
    trips = {i: UNKNOWN_EXTENT if n is None else n for i, n in ranges.trips(s.name).items()}
    for index in sorted(summed, key=lambda i: trips[i], reverse=True):
        interval = ranges.statements[s.name].indices[index]
        if not isinstance(interval.extent, Const) or interval.lower != int_const(0) or trips[index] < WORD:
            continue
        found = ((o, o.dimension_of(index), program.tensor(o.read.tensor).dtype) for o in factors)
        operands = [_Bytes(o, d, dtype) for o, d, dtype in found if d is not None and dtype in (I8, U8)]
        if len(operands) != 2 or not set(summed) <= factors[0].indices & factors[1].indices:
            continue
        uses = [prod(trips[i] for i in s.left_indices if i not in o.indices) for o in factors]
        if prod(trips[i] for i in summed) < MINIMUM_REUSE or min(uses) < MINIMUM_REUSE // 2:
            continue
        a, b = operands
        # Of two signed ones the padded one is moved, whose borders move with it.
        swap = (a.dtype == I8 and b.dtype == U8) or (a.dtype == b.dtype and (a.dtype == I8) == (b.operand.pad is not None))
        return *((b, a) if swap else (a, b)), Split(index, WORD, interval)
    return None


def _is_bytes(factor: Expr) -> bool:
    """Whether a factor is converted to 32 bits, from a tensor with nothing but zeros around it."""
    if not isinstance(factor, Cast) or factor.dtype != I32:
        return False
    pad = factor.value
    return not isinstance(pad, Pad) or (pad.mode == "value" and isinstance(pad.value, Const) and pad.value.value == 0)


def _split(s: Statement, a: _Bytes, b: _Bytes, split: Split, builder: ProgramBuilder) -> list[Statement]:
    """Words of both operands, the sum of their products, and what moved bytes have added to it."""
    assert s.reduction is not None
    intervals = builder.own[s.name].indices | split.intervals
    left, summed = s.element_names, tuple(split.block if i == split.index else i for i in s.reduction_indices)
    unsigned, store_unsigned = _store_words(s, split, a, MIDDLE if a.dtype == I8 else 0, "unsigned", builder)
    signed, store_signed = _store_words(s, split, b, -MIDDLE if b.dtype == U8 else 0, "signed", builder)
    value, zero = Call("dot4u8s8", (unsigned, signed)), Reduction("add", identity_of("add", I32))
    # (a + 128) b = a b + 128 b, and a (b - 128) = a b - 128 a; only one of them happens to two bytes of one kind.
    if a.dtype == U8 and b.dtype == I8:
        return [store_unsigned, store_signed, builder.change(s, builder.box(intervals, (*left, *summed)), value=value)]
    is_moved = a.dtype == I8
    operand, factor, ones = b if is_moved else a, -MIDDLE if is_moved else MIDDLE, Const(ONES, I32)
    of_one = Call("dot4u8s8", (ones, signed) if is_moved else (unsigned, ones))
    total = builder.define(s, "words", left, value, summed, zero, intervals)
    moved = builder.define(s, "moved", [i for i in left if i in operand.operand.indices], of_one, summed, zero, intervals)
    result = Read(total.target, total.subscripts) + Const(factor, I32) * Read(moved.target, moved.subscripts)
    if s.reduction.init != zero.init:
        result = s.reduction.init + result
    whole = builder.change(s, builder.box(intervals, left), value=result, reduction=None)
    return [store_unsigned, store_signed, total, moved, whole]


def _store_words(
    s: Statement, split: Split, o: _Bytes, moved: int, kind: str, builder: ProgramBuilder
) -> tuple[Expr, Statement]:
    """The words of an operand, and how `s` reads them; bytes behind the last one are 0."""
    indices = tuple(split.block if d == o.dimension else f"{split.block}.d{d}" for d in range(len(o.operand.read.subscripts)))
    dims = builder.ranges.tensors[o.operand.read.tensor]
    intervals = {i: split.blocks if d == o.dimension else dims[d] for d, i in enumerate(indices)}

    def byte(n: int) -> Expr:
        position = WORD * Index(split.block) + n
        subscripts = tuple(position if d == o.dimension else Index(i) for d, i in enumerate(indices))
        value: Expr = Cast(Read(o.operand.read.tensor, subscripts), I32)
        if moved:
            value = value + Const(moved, I32)
        if n < WORD - 1 or moved or o.dtype == I8:
            value = Call("bitand", (value, Const(255, I32)))
        if simplify(split.blocks.extent * WORD) != split.interval.extent:
            value = Select(lt(position, split.interval.extent), value, Const(0, I32))
        return value if n == 0 else value * Const(1 << 8 * n, I32)

    words = builder.define(s, kind, indices, reduce(lambda a, b: Call("bitor", (a, b)), map(byte, range(WORD))), over=intervals)
    subscripts = (Index(split.block) if d == o.dimension else e for d, e in enumerate(o.operand.read.subscripts))
    read = Read(words.target, tuple(subscripts))
    if o.operand.pad is not None:
        border = (moved & 255) * ONES
        return Pad(read, Const(border - (border >> 31 << 32), I32)), words
    return read, words
