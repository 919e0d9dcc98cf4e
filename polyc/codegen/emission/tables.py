"""Look-ups in tables that fit into registers: one permutation instead of a load for each lane.

Before: lanes of ``T[k, c[j]]`` along j loaded one by one or gathered, where a row of T has at most twice as many elements as a
vector has lanes (of bytes 256, where an instruction permutes these, else 16).  After: the row is loaded, and the lanes choose
from its registers.
"""

from __future__ import annotations

from polyc.codegen.emission.linear import index_names
from polyc.codegen.writer import vectors
from polyc.codegen.writer.builder import Function, Val, llvm_type, vector_const, zero_val
from polyc.ir.expr import Const, Expr, int_const, reads
from polyc.ir.loops import Buffer
from polyc.ir.types import DType
from polyc.machine import Machine

_ONE_REGISTER = {
    ("float", 8): "llvm.x86.avx2.permps",
    ("i32", 8): "llvm.x86.avx2.permd",
    ("float", 16): "llvm.x86.avx512.permvar.sf.512",
    ("i32", 16): "llvm.x86.avx512.permvar.si.512",
    ("double", 8): "llvm.x86.avx512.permvar.df.512",
    ("i64", 8): "llvm.x86.avx512.permvar.di.512",
    ("i8", 64): "llvm.x86.avx512.permvar.qi.512",
}
_TWO_REGISTERS = {
    ("float", 16): "llvm.x86.avx512.vpermi2var.ps.512",
    ("i32", 16): "llvm.x86.avx512.vpermi2var.d.512",
    ("double", 8): "llvm.x86.avx512.vpermi2var.pd.512",
    ("i64", 8): "llvm.x86.avx512.vpermi2var.q.512",
    ("i8", 64): "llvm.x86.avx512.vpermi2var.qi.512",
}
_SIXTEEN_BYTES = {16: "llvm.x86.ssse3.pshuf.b.128", 32: "llvm.x86.avx2.pshuf.b", 64: "llvm.x86.avx512.pshuf.b.512"}
"""By lanes: what chooses in every 16 bytes from those of the table there."""


def find_table(
    target: Machine, buffer: Buffer, subscripts: tuple[Expr, ...], lane: str | None, lanes: int
) -> tuple[int, Expr, int] | None:
    """The dimension that data chooses in for each lane, the place there, and the number of elements, where these lie side by
    side and registers hold them."""
    found = find_choice(buffer, subscripts, lane)
    if found is None or target.architecture != "x86_64" or buffer.strides[found[0]] != int_const(buffer.dtype.itemsize):
        return None
    d, size = found
    if not 1 <= size <= largest_table(target, buffer.dtype, lanes):
        return None
    if buffer.dtype.itemsize == 1 and not target.has_masks and size & (size - 1):  # no instruction loads a part of a register
        return None
    return d, subscripts[d], size


def find_choice(buffer: Buffer, subscripts: tuple[Expr, ...], lane: str | None) -> tuple[int, int] | None:
    """The one dimension that data chooses in for each lane, and how many elements it has, where that is known."""
    chosen = [d for d, e in enumerate(subscripts) if reads(e) and lane in index_names(e)]
    extent = buffer.shape[chosen[0]] if len(chosen) == 1 else None
    return (chosen[0], int(extent.value)) if isinstance(extent, Const) else None


def largest_table(target: Machine, dtype: DType, lanes: int) -> int:
    """Elements of a table that as many lanes can choose from; 0: none."""
    type, features = llvm_type(dtype), target.features.split(",")
    if lanes * dtype.itemsize * 8 > target.vector_bits:
        return 0
    if type == "i8" and lanes in _SIXTEEN_BYTES and (lanes < 64 or "+avx512vbmi" not in features):
        return 16 if "+ssse3" in features else 0
    if (type, lanes) not in _ONE_REGISTER or not target.has_gather:
        return 0
    return (4 if type == "i8" else 2 if (type, lanes) in _TWO_REGISTERS else 1) * lanes


def load_from_table(fn: Function, dtype: DType, row: Val, place: Val, size: int, epoch: str, somewhere: Val | None) -> Val:
    """The elements at `place`, one for each lane, of the `size` from `row` on, which is read where `somewhere` holds."""
    lanes, type = place.lanes, llvm_type(dtype)
    full, number = f"<{lanes} x {type}>", f"i{dtype.bits}"
    at = fn.convert("trunc", place, number) if place.type == "i64" else fn.convert("zext", place, number)

    def register(first: int, lanes: int = lanes) -> Val:
        pointer = vectors.offset_pointer(fn, row, first * dtype.itemsize)
        if somewhere is not None:
            pointer = vectors.pointer_or_zeros(fn, somewhere, pointer)
        held = min(lanes, size - first)
        mask = None if held == lanes else vector_const([int(n < held) for n in range(lanes)], "i1")
        return vectors.load_contiguous(fn, dtype, pointer, lanes, mask, epoch)

    if type == "i8" and (size <= 16 or lanes < 64):
        everywhere = fn.shuffle(register(0, 16), None, [n % 16 for n in range(lanes)])
        callee = fn.module.declare(_SIXTEEN_BYTES[lanes], full, [full, full])
        return fn.pure(f"call {full} {callee}({everywhere}, {at})", type, lanes)
    if size <= lanes:
        return permute(fn, [register(0)], at)

    def pair(first: int) -> Val:
        second = register(first + lanes) if size > first + lanes else zero_val(type, lanes)
        return permute(fn, [register(first), second], at)

    if size <= 2 * lanes:
        return pair(0)
    return fn.select(fn.compare("icmp slt", at, zero_val(number, lanes)), pair(2 * lanes), pair(0))  # bytes from 128 on


def permute(fn: Function, registers: list[Val], at: Val) -> Val:
    """The elements of one register, or of two, at the numbers `at`, which are as wide as the elements: `largest_table` says how
    many there may be."""
    type, lanes = registers[0].type, at.lanes
    full, numbers = f"<{lanes} x {type}>", f"<{lanes} x {at.type}>"
    first, *second = registers
    if second:
        callee = fn.module.declare(_TWO_REGISTERS[type, lanes], full, [full, numbers, full])
        return fn.pure(f"call {full} {callee}({first}, {at}, {second[0]})", type, lanes)
    callee = fn.module.declare(_ONE_REGISTER[type, lanes], full, [full, numbers])
    return fn.pure(f"call {full} {callee}({first}, {at})", type, lanes)
