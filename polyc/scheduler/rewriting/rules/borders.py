"""Tensors that windows read beyond their borders get the elements there written once.

    before  ``y[h] += pad(x[h+i-1], wrap)``                                         windows of three
    after   ``b[u] = pad(x[u-1], wrap)  ;  y[h] += b[h+i]``

A wrapped, mirrored or clamped subscript takes a remainder or a comparison for every element, and vectors that touch a border
are put together from single elements.  A copy does that once for each row; the loops of a sum that reads it know no borders.
(Loops over whole rows that sum nothing are split at the borders instead, and need no copy.)

Subscripts that wrap by a remainder of their own, ``x[(h-1) % H]``, are taken for wrapped reads everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from polyc.code_limits import LONG_ROW
from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Pad,
    PadMode,
    Read,
    identity_of,
    index_names,
    int_const,
    map_children,
    reads,
    rewrite,
    walk,
)
from polyc.ir.intervals import range_of
from polyc.ir.linear import index_coefficients, index_steps
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
    """Padded operands of sums are stored with their borders."""
    padded = {s.name: _write_pads(s, program, ranges) for s in program.statements}
    groups = _find_groups(program, padded, ranges)
    builder = ProgramBuilder(program, ranges)
    remarks: list[Remark] = []
    for g in groups.values():
        copy = _write_copy(g, builder)
        builder.statements.append(copy)
        message = f"{g.tensor} is copied with its borders ({g.mode}), for windows of {g.uses} elements"
        remarks.append(Remark("passed", "borders", message, copy.name, copy.span))
    inputs, own = program.parameters, ranges.statements
    values = [_read_copies(padded[s.name], s, groups, own[s.name], inputs) for s in program.statements]
    if all(value is s.value for value, s in zip(values, program.statements, strict=True)):
        return program, ranges, []
    builder.statements += [replace(s, value=value) for value, s in zip(values, program.statements, strict=True)]
    return (*builder.finish(), remarks)


def _find_groups(program: Program, padded: Mapping[str, Expr], ranges: Ranges) -> dict[tuple[str, PadMode], _Group]:
    groups: dict[tuple[str, PadMode], _Group] = {}
    refused, wanted = set[tuple[str, PadMode]](), set[tuple[str, PadMode]]()
    for s in program.statements:
        own = ranges.statements[s.name]
        for pad in dict.fromkeys(_pads(padded[s.name])):
            key, bounds = (pad.read.tensor, pad.mode), _bounds(pad.read.subscripts, own)
            if (uses := _windows(s, pad.read, own)) < MINIMUM_USES:
                continue
            if bounds is None or pad.read.tensor == s.target or own.guards:
                refused.add(key)
                continue
            if program.tensor(pad.read.tensor).role != "input" or not _moves_whole_rows(s, pad.read, bounds, ranges):
                wanted.add(key)
            group = groups.setdefault(key, _Group(*key, _zero(program, pad.read), s, bounds, 0))
            group.bounds = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(group.bounds, bounds, strict=True)]
            group.uses = max(group.uses, uses)
        others = [*s.subscripts, *([] if s.reduction is None else [s.reduction.init])]
        refused |= {(pad.read.tensor, pad.mode) for pad in _pads(*others)}
    shapes = {k: known_shape(ranges.tensors[k[0]]) for k in groups if k in wanted - refused}
    sizes = {k: prod(shape) for k, shape in shapes.items() if shape is not None}
    return {k: groups[k] for k, n in sizes.items() if prod(b - a + 1 for a, b in groups[k].bounds) <= LARGEST * n}


def _moves_whole_rows(s: Statement, read: Read, bounds: Sequence[Bounds], ranges: Ranges) -> bool:
    """Whether a sum goes over long rows one by one, beyond borders across them only: a test for each row tells them."""
    pairs = zip(bounds, map(_ends, ranges.tensors[read.tensor]), strict=True)
    beyond = [d for d, ((a, b), (low, high)) in enumerate(pairs) if low is None or high is None or a < low or b > high]
    (first, last), summed = bounds[-1], set(s.reduction_indices)
    is_across = len(beyond) == 1 and beyond[0] < len(bounds) - 1 and summed <= index_names(read.subscripts[beyond[0]])
    return is_across and summed.isdisjoint(index_names(read.subscripts[-1])) and last - first >= 8 * LONG_ROW


def _pads(*exprs: Expr) -> Iterator[Pad]:
    return (node for e in exprs for node in walk(e) if isinstance(node, Pad) and node.mode != "value")


def _write_pads(s: Statement, program: Program, ranges: Ranges) -> Expr:
    """The value of `s` that wraps by mode where it did by remainders of the extents of what it reads."""
    own = ranges.statements[s.name]

    def visit(node: Expr) -> Expr:
        if isinstance(node, Pad) or own.guards:
            return node
        if not isinstance(node, Read) or node.tensor == s.target:
            return map_children(node, visit)
        pairs = list(zip(node.subscripts, ranges.tensors[node.tensor], strict=True))
        wrapped = [_wrapped(e, interval, own) for e, interval in pairs]
        is_known = all(w is not None or index_coefficients(e) is not None for w, (e, _) in zip(wrapped, pairs, strict=True))
        if not is_known or not any(wrapped):
            return map_children(node, visit)
        subscripts = tuple(w or e for w, e in zip(wrapped, node.subscripts, strict=True))
        return Pad(Read(node.tensor, subscripts), _zero(program, node), mode="wrap")

    return visit(s.value)


def _wrapped(subscript: Expr, whole: Interval, own: StatementRanges) -> Expr | None:
    """``h - 1`` of ``(h - 1) % H``, where H is the extent of the dimension."""
    match subscript:
        case Call(op="mod", args=(inner, Const() as count)) if count == whole.extent and whole.lower == int_const(0):
            bounds = _bounds((inner,), own)
            if bounds is not None and (n := int(count.value)):
                # Any multiple of the extent may be taken off: what is left begins near the tensor's beginning.
                return simplify(inner - round(bounds[0][0] / n) * n)
    return None


def _bounds(subscripts: Sequence[Expr], own: StatementRanges) -> list[Bounds] | None:
    """What each subscript runs over, if these are numbers."""
    if any(index_steps(e) is None or reads(e) for e in subscripts):
        return None
    found = [range_of(simplify(e), {i: _ends(x) for i, x in own.indices.items()}) for e in subscripts]
    known = [(first, last) for first, last in found if first is not None and last is not None]
    return known if len(known) == len(found) else None


def _ends(interval: Interval) -> Bounds | tuple[None, None]:
    lower, extent = constant_of(interval.lower), constant_of(interval.extent)
    return (None, None) if lower is None or extent is None or extent < 1 else (lower, lower + extent - 1)


def _zero(program: Program, read: Read) -> Expr:
    """The value of a padded read, which no mode but "value" uses."""
    return identity_of("add", program.tensor(read.tensor).dtype)


def _windows(s: Statement, read: Read, own: StatementRanges) -> int:
    """How often a sum comes to an element by one read, where its indices, or the shorter ones on the left, move windows."""
    times = 1
    extents = {i: constant_of(own.indices[i].extent) for i in s.indices}
    for subscript in read.subscripts if s.reduction is not None else ():
        steps = index_steps(subscript) or {}
        *shorter, _ = sorted(n for i in steps if i in s.left_indices and (n := extents[i]) is not None) or [1]
        if not set(steps) <= set(s.reduction_indices):
            times *= prod(n for i in steps if i in s.reduction_indices and (n := extents[i]) is not None) * prod(shorter)
    return times


def _write_copy(g: _Group, builder: ProgramBuilder) -> Statement:
    firsts, like = [a for a, _ in g.bounds], builder.program.tensor(g.tensor)
    box = {f"{g.tensor}.d{d}": Interval(int_const(0), int_const(b - a + 1)) for d, (a, b) in enumerate(g.bounds)}
    subscripts = tuple(simplify(Index(i) + a) for i, a in zip(box, firsts, strict=True))
    value = Pad(Read(g.tensor, subscripts), g.value, mode=g.mode)
    name = builder.free_name(f"{g.first.name}_{g.copy.replace('.', '_')}")
    _, (copy,) = builder.materialise(value, builder.box(box), (g.copy, name), like, g.first, g.copy)
    return copy


def _read_copies(
    value: Expr, s: Statement, groups: Mapping[tuple[str, PadMode], _Group], own: StatementRanges, inputs: Sequence[str]
) -> Expr:
    """The value of `s` that reads copies where it reads windows, and as a sum what else of inputs lies inside of them."""

    def rule(node: Expr) -> Expr | None:
        g = groups.get((node.read.tensor, node.mode)) if isinstance(node, Pad) else None
        if g is None or not isinstance(node, Pad):
            return None
        bounds = _bounds(node.read.subscripts, own) if s.reduction is not None and g.tensor in inputs else None
        is_inside = bounds is not None and all(c <= a and b <= d for (a, b), (c, d) in zip(bounds, g.bounds, strict=True))
        if not is_inside and _windows(s, node.read, own) < MINIMUM_USES:
            return None
        return Read(g.copy, tuple(simplify(e - a) for e, (a, _) in zip(node.read.subscripts, g.bounds, strict=True)))

    return rewrite(value, rule)
