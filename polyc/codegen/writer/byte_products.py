"""Sums of four products of bytes in one lane (`dot4u8s8`): one instruction with VNNI, two on other x86.

Every form gives the same bits: nothing saturates, and sums wrap around as those of int32 do.
"""

from __future__ import annotations

from polyc.codegen.writer.builder import Function, Val, int_val
from polyc.machine import Machine

_PAIRS = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
"""Sums of two products of signed 16-bit numbers, by lanes of 32 bits."""


def add_byte_products(fn: Function, target: Machine, a: Val, b: Val, old: Val | None = None) -> Val:
    """``old + Σ u8(a, k) * s8(b, k)`` over the four bytes of each lane (i32); without `old`, the sum alone."""
    a, b = fn.unify(a, b)
    width = min(a.lanes, target.lanes(4))
    if width not in _PAIRS or a.lanes % width or not target.triple.startswith("x86_64"):
        return _added(fn, _by_lane(fn, a, b), old)
    if target.has_byte_products:
        start = int_val(0, "i32", a.lanes) if old is None else old
        return fn.map_registers(lambda v: _in_one(fn, width, *v), width, start, a, b)
    return _added(fn, fn.map_registers(lambda v: _by_pairs(fn, width, *v), width, a, b), old)


def _added(fn: Function, value: Val, old: Val | None) -> Val:
    return value if old is None else fn.binary("add", old, value)


def _in_one(fn: Function, width: int, old: Val, a: Val, b: Val) -> Val:
    full = old.full_type
    callee = fn.module.declare(f"llvm.x86.avx512.vpdpbusd.{32 * width}", full, [full] * 3)
    return fn.pure(f"call {full} {callee}({old}, {a}, {b})", "i32", width)


def _by_pairs(fn: Function, width: int, a: Val, b: Val) -> Val:
    """The even and the odd bytes as 16-bit numbers."""
    low, eight = int_val(0x00FF00FF, "i32", width), int_val(8, "i16", 2 * width)
    evens = fn.binary("and", a, low)
    odds = fn.binary("and", fn.binary("lshr", a, int_val(8, "i32", width)), low)
    halves = _as_halves(fn, b)
    left, right = fn.binary("ashr", fn.binary("shl", halves, eight), eight), fn.binary("ashr", halves, eight)
    full, pairs = f"<{width} x i32>", f"<{2 * width} x i16>"
    callee = fn.module.declare(_PAIRS[width], full, [pairs, pairs])

    def multiply(x: Val, y: Val) -> Val:
        return fn.pure(f"call {full} {callee}({_as_halves(fn, x)}, {y})", "i32", width)

    return fn.binary("add", multiply(evens, left), multiply(odds, right))


def _as_halves(fn: Function, x: Val) -> Val:
    return fn.pure(f"bitcast {x} to <{2 * x.lanes} x i16>", "i16", 2 * x.lanes)


def _by_lane(fn: Function, a: Val, b: Val) -> Val:
    total: Val | None = None
    for place in (0, 8, 16, 24):
        x = fn.binary("and", fn.binary("lshr", a, int_val(place, "i32", a.lanes)), int_val(255, "i32", a.lanes))
        y = fn.binary("shl", b, int_val(24 - place, "i32", b.lanes))
        product = fn.binary("mul", x, fn.binary("ashr", y, int_val(24, "i32", b.lanes)))
        total = product if total is None else fn.binary("add", total, product)
    assert total is not None
    return total
