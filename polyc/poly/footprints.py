"""Which part of every producer one tile of a consumer needs: boxes that move with the tile, of constant size.

A tile fixes ``T*t <= i - lower < T*(t + 1)`` for some indices of the consumer.  Through the subscripts of its reads that gives
a box of each tensor that it reads, through the statements that write those a box of what they read, and so on: the box hull of
the composed access relations, computed on their linear forms ("bounds inference" in Halide:
Ragan-Kelley et al., PLDI 2013).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce

from polyc.ir.expr import Call, Const, Expr, Index, PadMode, Size, index_names, int_const
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Statement
from polyc.ir.read_sites import ReadSite
from polyc.ir.simplify import Term, add_forms, clean_form, linear_form
from polyc.poly.ranges import Interval, Ranges
from polyc.records import dataclass

TILE = ".tile"
"""What the names of temporaries of a tile end with, and those of the indices that count such tiles."""

Form = dict[Term, int]
"""A linear form over tile indices and sizes, the constant under the key 1."""


@dataclass(frozen=True, slots=True)
class Box:
    """``lower <= x < lower + extent`` where ``lower = moving + start``: a form without constant moves with the tile."""

    moving: Form
    start: int
    extent: int

    @property
    def lower(self) -> Form:
        return add_forms(self.moving, {1: self.start}, 1)

    @property
    def interval(self) -> Interval:
        """Of an index that counts from `lower` on."""
        return Interval(int_const(0), int_const(self.extent))

    def moves_with(self, index: str) -> bool:
        """Whether tiles along an index of the consumer have boxes of their own."""
        return Index(tile_name(index)) in self.moving


Boxes = dict[str, tuple[Box | None, ...]]
"""By tensor, the box of a tile in each dimension; None: the whole dimension."""

Roots = Mapping[str, Mapping[str, Box]]
"""By consumer, where its indices that are cut run inside a tile."""

Run = tuple[Form | None, int, PadMode | None]
"""Subscripts that differ by constants: the first, how far behind it the last one is, and the mode where reads are padded."""

Accesses = Mapping[str, Sequence[Sequence[Run]]]
"""By tensor, the subscripts of all reads of a statement along each dimension: a stencil, a transformed or unrolled window reads
some hundred elements in few runs along each."""


def collect_accesses(sites: Iterable[ReadSite]) -> Accesses:
    """The `Accesses` of a statement with these reads."""
    found: dict[str, list[dict[tuple[Expr, PadMode | None], None]]] = {}
    for site in sites:
        along = found.setdefault(site.read.tensor, [{} for _ in site.read.subscripts])
        for seen, subscript in zip(along, site.read.subscripts, strict=True):
            seen[subscript, site.mode if site.is_padded else None] = None
    return {tensor: [_find_runs(seen) for seen in along] for tensor, along in found.items()}


def _find_runs(subscripts: Iterable[tuple[Expr, PadMode | None]]) -> list[Run]:
    ends: dict[tuple[frozenset[tuple[Term, int]], PadMode | None], tuple[int, int]] = {}
    others: list[Run] = []
    for e, mode in subscripts:
        form = linear_form(e)
        if form is None:
            others.append((None, 0, mode))
            continue
        start = form.pop(1, 0)
        first, last = ends.get(key := (frozenset(form.items()), mode), (start, start))
        ends[key] = min(first, start), max(last, start)
    return [*others, *((dict(moving) | {1: first}, last - first, mode) for (moving, mode), (first, last) in ends.items())]


def has_steps_left(s: Statement) -> bool:
    """Whether each index of a statement stands in one subscript on the left, times a positive number, with something added."""
    steps = [index_coefficients(e) for e in s.subscripts]
    names = [i for found in steps if found is not None for i in found]
    return sorted(names) == sorted(s.indices) and all(
        found is not None and len(found) < 2 and min(found.values(), default=1) > 0 for found in steps
    )


def tile_name(index: str) -> str:
    """The index that counts the tiles of `index`."""
    return index + TILE


def root_boxes(roots: Sequence[Statement], sizes: Mapping[str, int], ranges: Ranges) -> Roots:
    """Consumers in tiles: `sizes` are by index of the first one, and the others have theirs at the same places."""

    def box(s: Statement, index: str, name: str) -> Box:
        lower = linear_form(ranges.statements[s.name].indices[index].lower) or {}
        return _make_box(add_forms(lower, {Index(tile_name(name)): 1}, sizes[name]), sizes[name])

    pairs = {s.name: zip(s.left_indices, roots[0].left_indices, strict=True) for s in roots}
    return {s.name: {i: box(s, i, name) for i, name in pairs[s.name] if name in sizes} for s in roots}


def index_boxes(s: Statement, roots: Roots, boxes: Boxes) -> Mapping[str, Box]:
    """Where each index of a statement runs inside a tile, for those that the tile confines."""
    if s.name in roots:
        return roots[s.name]
    pairs = zip(s.subscripts, boxes[s.target], strict=True)
    return dict(found for e, box in pairs if box is not None and (found := _place_box(e, box)) is not None)


def _place_box(e: Expr, box: Box) -> tuple[str, Box] | None:
    """The index of a left subscript ``c*i + b`` that writes into a box, and where it runs: from ``ceil((lower - b) / c)`` on.

    None without an index, or where it does not start alike in all tiles."""
    form = linear_form(e) or {}
    name, c = next(((t.name, c) for t, c in form.items() if isinstance(t, Index)), ("", 1))
    rest = add_forms(box.lower, {t: k for t, k in form.items() if t != Index(name)}, -1)
    start = rest.pop(1, 0)
    if not name or any(k % c for k in rest.values()):
        return None
    first, last = -(-start // c), (start + box.extent - 1) // c
    # One value at least, whether or not it writes into this box: the domain is exact.
    return name, Box({t: k // c for t, k in rest.items()}, first, max(1, last - first + 1))


def moving_tiles(s: Statement, subscripts: Iterable[Expr], roots: Roots, boxes: Boxes) -> set[str]:
    """The indices of consumers along whose tiles these subscripts of a statement move."""
    inside = index_boxes(s, roots, boxes)
    moving = (inside[i].moving for i in index_names(*subscripts) if i in inside)
    return {t.name.removesuffix(TILE) for form in moving for t in form if isinstance(t, Index)}


def tile_boxes(
    consumers: Sequence[Statement],
    producers: Sequence[Statement],
    roots: Roots,
    ranges: Ranges,
    accesses: Mapping[str, Accesses],
) -> Boxes:
    """Boxes of the tensors that `producers` write, for one tile of all `consumers`; `accesses` by name of the statement.

    `producers` are in an order in which every reader of a tensor comes before its writer."""
    targets = {s.target for s in producers}
    boxes: Boxes = {}
    for s in (*consumers, *producers):
        widen_boxes(boxes, s, targets, roots, ranges, accesses)
    return boxes


def widen_boxes(
    boxes: Boxes,
    s: Statement,
    targets: Collection[str],
    roots: Roots,
    ranges: Ranges,
    accesses: Mapping[str, Accesses],
) -> None:
    """Make room in the boxes of `targets` for what one more statement reads of them, for which its own is complete."""
    own, inside = ranges.statements[s.name].indices, index_boxes(s, roots, boxes)
    for name, dimensions in accesses[s.name].items():
        if name in targets:
            pairs = zip(dimensions, ranges.tensors[name], strict=True)
            found = tuple(reduce(_hull, (_read_box(*run, inside, own, whole) for run in runs)) for runs, whole in pairs)
            boxes[name] = tuple(map(_hull, boxes[name], found)) if name in boxes else found


def _make_box(lower: Form, extent: int) -> Box:
    moving = clean_form(lower)
    return Box(moving, moving.pop(1, 0), extent)


def _read_box(
    form: Form | None, span: int, mode: PadMode | None, inside: Mapping[str, Box], own: Mapping[str, Interval], whole: Interval
) -> Box | None:
    """The box of a run of subscripts; None where it does not move with the tile, or its size is not known."""
    box = None if form is None else _form_box(form, inside, own, span)
    if box is None or not any(isinstance(t, Index) for t in box.moving):
        return None
    return box if mode is None else _with_border(box, mode, whole)


def _form_box(form: Form, inside: Mapping[str, Box], own: Mapping[str, Interval], span: int = 0) -> Box | None:
    moving, start, extent = Form(), 0, 1 + span
    for term, c in form.items():
        part = _term_box(term, inside, own)
        if part is None:
            return None
        extent += abs(c) * (part.extent - 1)
        start += c * (part.start + part.extent - 1 if c < 0 else part.start)
        moving = add_forms(moving, part.moving, c)
    return Box(moving, start, extent)


def _term_box(term: Term, inside: Mapping[str, Box], own: Mapping[str, Interval]) -> Box | None:
    match term:
        case int():
            return Box({}, 1, 1)
        case Size():
            return Box({term: 1}, 0, 1)
        case Index():
            return inside.get(term.name) or _constant_box(own[term.name])
        case Call("mod", (_, Const(n))) if n > 0:
            return Box({}, 0, int(n))
        case Call("floordiv", (dividend, Const(n))) if n > 0:
            form = linear_form(dividend)
            box = None if form is None else _form_box(form, inside, own)
            if box is not None and not any(c % n for c in box.moving.values()):
                first, last = box.start // int(n), (box.start + box.extent - 1) // int(n)
                return Box({t: c // int(n) for t, c in box.moving.items()}, first, last - first + 1)
        case Call("min", (Call("max", (place, Const() as lower)), _)):  # the nearest place inside
            form = linear_form(place)
            box = None if form is None else _form_box(form, inside, own)
            return None if box is None else _with_border(box, "clamp", Interval(lower, int_const(1)))
    return None


def _constant_box(interval: Interval) -> Box | None:
    extent = interval.extent
    return _make_box(linear_form(interval.lower) or {}, int(extent.value)) if isinstance(extent, Const) else None


def _with_border(box: Box, mode: PadMode, whole: Interval) -> Box | None:
    """The box with what takes the place of elements outside: the nearest ones, or mirrored ones; wrapped around they are far.

    Only a proposal: what is read is proved to lie inside when the program is made."""
    if mode == "value":
        return box
    if mode == "wrap" or not isinstance(whole.lower, Const):
        return None
    step = max((abs(c) for t, c in box.moving.items() if isinstance(t, Index)), default=1)
    lower = int(whole.lower.value)
    start, end = box.start - lower, box.start - lower + box.extent
    if mode == "clamp":
        first, last = min(start, 0), max(end, step)
    else:
        first, last = min(start, step - end), max(end, step - start)
    return Box(box.moving, first + lower, last - first)


def _hull(a: Box | None, b: Box | None) -> Box | None:
    """The smallest box around two; None where they do not move alike."""
    if a is None or b is None or a.moving != b.moving:
        return None
    start, end = min(a.start, b.start), max(a.start + a.extent, b.start + b.extent)
    return Box(a.moving, start, end - start)
