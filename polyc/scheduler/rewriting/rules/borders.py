"""Tensors that windows read beyond their borders get the elements there written once.

    before  ``y[h] += pad(x[h+i-1], wrap)``                                         windows of three
    after   ``b[u] = pad(x[u-1], wrap)  ;  y[h] += b[h+i]``

A wrapped, mirrored or clamped subscript takes a remainder or a comparison for every element, and vectors that touch a border
are put together from single elements.  A copy does that once for each row; the loops of a sum that reads it know no borders.
(Loops over whole rows that sum nothing are split at the borders instead, and need no copy.)

Subscripts that wrap by a remainder of their own, ``x[(h-1) % H]``, are taken for wrapped reads everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Pad,
    PadMode,
    Read,
    children,
    identity_of,
    int_const,
    map_children,
    reads,
    walk,
)
from polyc.ir.facts import range_of
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement
from polyc.ir.simplify import constant_of, simplify
from polyc.poly.ranges import Interval, Ranges, StatementRanges, known_shape
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.builder import ProgramBuilder

MINIMUM_USES = 2
"""Elements of a window from which on a copy pays."""

LARGEST = 2.0
"""Elements of the copy for each element of the tensor, above which it is not worth its memory."""

Bounds = tuple[int, int]
"""The first and the last value of a subscript."""


@dataclass(slots=True)
class _Group:
    """All reads of one tensor that go beyond its borders in one way."""

    tensor: str
    mode: PadMode
    value: Expr
    first: Statement
    bounds: list[Bounds]
    uses: int

    @property
    def copy(self) -> str:
        return f"{self.tensor}.{self.mode}"


def write_borders(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Copies with borders of the tensors whose wrapped, mirrored or clamped elements windows read."""
    groups = _find_groups(program, ranges)
    values = [_redirect(s, groups, program, ranges) for s in program.statements]
    if all(value is s.value for value, s in zip(values, program.statements, strict=True)):
        return program, ranges, []
    builder = ProgramBuilder(program, ranges)
    remarks: list[Remark] = []
    for g in groups.values():
        copy = _write_copy(g, builder)
        builder.statements.append(copy)
        message = f"{g.tensor} is copied with its borders ({g.mode}), for windows of {g.uses} elements"
        remarks.append(Remark("passed", "borders", message, copy.name, copy.span))
    builder.statements += [replace(s, value=value) for value, s in zip(values, program.statements, strict=True)]
    return (*builder.finish(), remarks)


def _find_groups(program: Program, ranges: Ranges) -> dict[tuple[str, PadMode], _Group]:
    groups: dict[tuple[str, PadMode], _Group] = {}
    refused: set[tuple[str, PadMode]] = set()
    for s in program.statements:
        others = [*s.subscripts, *([] if s.reduction is None else [s.reduction.init])]
        for node in dict.fromkeys(_find_pads(s.value, s, program, ranges)):
            if (uses := _windows(s, node.read, ranges.statements[s.name])) < MINIMUM_USES:
                continue
            key = node.read.tensor, node.mode
            bounds = _bounds(node.read, ranges.statements[s.name])
            if bounds is None or node.read.tensor == s.target or ranges.statements[s.name].guards:
                refused.add(key)
                continue
            group = groups.setdefault(key, _Group(*key, _zero(program, node.read), s, bounds, 0))
            group.bounds = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(group.bounds, bounds, strict=True)]
            group.uses = max(group.uses, uses)
        refused |= {(n.read.tensor, n.mode) for e in others for n in walk(e) if isinstance(n, Pad)}
    return {k: g for k, g in groups.items() if k not in refused and _pays(g, ranges)}


def _find_pads(expr: Expr, s: Statement, program: Program, ranges: Ranges) -> list[Pad]:
    """What is read beyond borders; within padded reads nothing is looked for."""
    if (pad := _as_pad(expr, s, program, ranges)) is not None:
        return [pad]
    return [] if isinstance(expr, Pad) else [p for e in children(expr) for p in _find_pads(e, s, program, ranges)]


def _as_pad(node: Expr, s: Statement, program: Program, ranges: Ranges) -> Pad | None:
    """`node` if it reads beyond borders, by its mode or by remainders of the tensor's extents."""
    own = ranges.statements[s.name]
    if isinstance(node, Pad):
        return node if node.mode != "value" else None
    if not isinstance(node, Read) or node.tensor == s.target or own.guards:
        return None
    subscripts: list[Expr] = []
    for subscript, interval in zip(node.subscripts, ranges.tensors[node.tensor], strict=True):
        match subscript:
            case Call(op="mod", args=(inner, Const() as count)) if count == interval.extent and interval.lower == int_const(0):
                ends = _subscript_bounds(inner, own)
                if ends is None or count == int_const(0):
                    return None
                # Any multiple of the extent may be taken off: what is left begins near the tensor's beginning.
                subscripts.append(simplify(inner - round(ends[0] / int(count.value)) * int(count.value)))
            case _ if index_coefficients(subscript) is None:
                return None
            case _:
                subscripts.append(subscript)
    if tuple(subscripts) == node.subscripts:
        return None
    return Pad(Read(node.tensor, tuple(subscripts)), _zero(program, node), mode="wrap")


def _bounds(read: Read, own: StatementRanges) -> list[Bounds] | None:
    """What each subscript runs over, if these are numbers."""
    found = [_subscript_bounds(e, own) for e in read.subscripts]
    known = [b for b in found if b is not None]
    return known if len(known) == len(found) else None


def _subscript_bounds(subscript: Expr, own: StatementRanges) -> Bounds | None:
    if index_coefficients(subscript) is None or reads(subscript):
        return None
    first, last = range_of(simplify(subscript), {i: _ends(x) for i, x in own.indices.items()})
    return None if first is None or last is None else (first, last)


def _ends(interval: Interval) -> Bounds | tuple[None, None]:
    lower, extent = constant_of(interval.lower), constant_of(interval.extent)
    return (None, None) if lower is None or extent is None or extent < 1 else (lower, lower + extent - 1)


def _zero(program: Program, read: Read) -> Expr:
    """The value of a padded read, which no mode but "value" uses."""
    return identity_of("add", program.tensor(read.tensor).dtype)


def _windows(s: Statement, read: Read, own: StatementRanges) -> int:
    """How often a statement comes to an element by one read, where the indices of its sum move windows."""
    times = 1
    for subscript in read.subscripts:
        steps = index_coefficients(subscript) or {}
        moved = [i for i in steps if i in s.reduction_indices]
        if len(steps) > len(moved):
            times *= prod(n for i in moved if (n := constant_of(own.indices[i].extent)) is not None)
    return times


def _pays(g: _Group, ranges: Ranges) -> bool:
    shape = known_shape(ranges.tensors[g.tensor])
    return shape is not None and prod(b - a + 1 for a, b in g.bounds) <= LARGEST * prod(shape)


def _write_copy(g: _Group, builder: ProgramBuilder) -> Statement:
    firsts, like = [a for a, _ in g.bounds], builder.program.tensor(g.tensor)
    box = {f"{g.tensor}.d{d}": Interval(int_const(0), int_const(b - a + 1)) for d, (a, b) in enumerate(g.bounds)}
    subscripts = tuple(simplify(Index(i) + a) for i, a in zip(box, firsts, strict=True))
    value = Pad(Read(g.tensor, subscripts), g.value, mode=g.mode)
    name = builder.free_name(f"{g.first.name}_{g.copy.replace('.', '_')}")
    _, (copy,) = builder.materialise(value, builder.box(box), (g.copy, name), like, g.first, g.copy)
    return copy


def _redirect(s: Statement, groups: Mapping[tuple[str, PadMode], _Group], program: Program, ranges: Ranges) -> Expr:
    """The value of `s` that reads copies where it reads windows, and that wraps by mode where it did by remainders."""

    def visit(node: Expr) -> Expr:
        pad = _as_pad(node, s, program, ranges)
        if pad is None:
            return node if isinstance(node, Pad) else map_children(node, visit)
        g = groups.get((pad.read.tensor, pad.mode))
        if g is None or _windows(s, pad.read, ranges.statements[s.name]) < MINIMUM_USES:
            return pad
        return Read(g.copy, tuple(simplify(e - a) for e, (a, _) in zip(pad.read.subscripts, g.bounds, strict=True)))

    return visit(s.value)
