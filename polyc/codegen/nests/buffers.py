"""Buffers of a nest: memory of arguments and of what steps pass on, with strides that do not meet in a few sets of a cache."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from polyc.ir.expr import Const, Expr, Select, Size, evaluate, ge, int_const
from polyc.ir.loops import Buffer
from polyc.ir.signature import Signature
from polyc.ir.simplify import product_of, simplify
from polyc.machine.memory import LINE, PAGE
from polyc.poly.ranges import estimate_extent
from polyc.poly.scop import Scop
from polyc.poly.storage import Folding

APART, NEAR = PAGE * 5 // 8, PAGE // 8
"""How far apart in a page steps begin: those of several tensors, one behind the other, are apart, too.  And bytes that a vector
loop reads ahead of what it writes, up to which reads wait for writes that they do not overlap (docs/decisions/0870)."""

PADDED_ROW = LINE
"""Elements from which rows of what steps pass on are padded."""


def make_buffers(
    scop: Scop,
    storage: Mapping[str, Folding],
    signature: Signature,
    aliases: tuple[tuple[str, str], ...],
    groups: Mapping[str, tuple[tuple[int, ...], ...]],
) -> tuple[Buffer, ...]:
    """The buffers of a scop: its arguments, and what steps pass on, folded as `storage` says."""
    buffers: list[Buffer] = []
    versions = {r.name: r.version for r in scop.program.returns}
    names = {a.name: (a.name if a.role in ("input", "constant") else versions[a.name]) for a in signature.arrays}
    shared: dict[str, tuple[str, ...]] = {}
    for out, source in aliases:
        shared[names[out]] = (*shared.get(names[out], ()), names[source])
        shared[names[source]] = (*shared.get(names[source], ()), names[out])
    for position, array in enumerate(a.memory for a in signature.arrays):
        name = names[array.name]
        known = array.strides or [None] * len(array.shape)
        strides: tuple[Expr, ...] = tuple(
            Size(f"{array.name}.stride{d}") if v is None else int_const(v) for d, v in enumerate(known)
        )
        shape = array.shape
        if name in groups:
            shape = tuple(product_of(shape[d] for d in g) for g in groups[name])
            strides = tuple(strides[g[-1]] for g in groups[name])
        dtype = scop.tensors[name].dtype if name in scop.tensors else array.dtype
        buffers.append(Buffer(name, dtype, shape, strides, "argument", position, shared.get(name, ())))
    present = {b.name for b in buffers}
    for version, folding in storage.items():
        if folding.buffer in present or folding.space == "argument":
            continue
        present.add(folding.buffer)
        t = scop.tensors[version]
        shape = tuple(e if m is None else int_const(m) for e, m in zip(scop.memory_shape(t), folding.moduli, strict=True))
        strides = row_major_strides(shape, t.dtype.itemsize)
        if folding.space in ("shared", "thread") and any(m is not None for m in folding.moduli):
            # Versions of a kernel for any sizes share what they have in common where rows of tiles lie alike.
            expected = scop.ranges.typical if folding.space == "shared" else {}
            strides = pad_rows(shape, t.dtype.itemsize, expected)
            steps = [d for d, m in enumerate(folding.moduli) if m is not None]
            if steps == [0] and folding.moduli[0] != 1:
                strides = (keep_apart(strides[0], shape[1:], strides[-1], expected), *strides[1:])
        buffers.append(Buffer(folding.buffer, t.dtype, shape, strides, folding.space))
    return tuple(buffers)


def pad_rows(shape: tuple[Expr, ...], itemsize: int, typical: Mapping[str, int]) -> tuple[Expr, ...]:
    """Byte strides of a C-ordered array whose rows begin at whole cache lines, where long enough for that to cost little;
    and not all in the same few sets of a cache, as rows of a power of two would.  `typical`: what sizes are expected to be;
    where that leaves the length unknown, it is the call's that counts."""
    *outer, last = shape
    length = estimate_extent(last, typical)
    if all(e == int_const(1) for e in outer) or (length is not None and length < PADDED_ROW):
        return row_major_strides(shape, itemsize)
    if isinstance(last, Const):
        n_bytes = -(-int(last.value) * itemsize // LINE) * LINE
        row: Expr = int_const(n_bytes + (LINE if n_bytes % (PAGE // 2) == 0 else 0))
    else:  # an odd number of lines
        n_bytes_up = last * itemsize + (LINE - 1)
        pairs = n_bytes_up // (2 * LINE)
        row = simplify(pairs * (2 * LINE) + LINE)
        if length is None:
            is_long = ge(last, PADDED_ROW)
            row = Select(is_long, row, simplify(last * itemsize))
    return (*row_major_strides(tuple(outer), row), int_const(itemsize))


def keep_apart(distance: Expr, shape: tuple[Expr, ...], element: Expr, typical: Mapping[str, int]) -> Expr:
    """The byte distance of steps that elements of `shape` have, or a little more: what is written to one step and what is read
    of another shortly after must not agree in the bits of their addresses that processors compare first, those in a page."""
    if isinstance(distance, Const):
        if distance.value < PAGE // 2 or distance.value % (PAGE // 2) >= NEAR:
            return distance
    else:
        extents = [estimate_extent(e, typical) for e in shape]
        if None in extents or prod(e for e in extents if e is not None) * evaluate(element, {}) < PAGE // 2:
            return distance
    pages = (distance + (PAGE - APART - 1)) // PAGE
    return simplify(pages * PAGE + APART)


def row_major_strides(shape: tuple[Expr, ...], element: int | Expr) -> tuple[Expr, ...]:
    """Byte strides of a C-ordered array; `element`: that of the last dimension."""
    strides: list[Expr] = []
    step: Expr = int_const(element) if isinstance(element, int) else element
    for extent in reversed(shape):
        strides.append(step)
        step = simplify(step * extent)
    return tuple(reversed(strides))
