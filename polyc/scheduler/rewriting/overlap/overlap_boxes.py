"""Which part of every producer one tile of a consumer needs: boxes that move with the tile, of constant size.

A tile fixes ``T*t <= i - lower < T*(t + 1)`` for some indices of the consumer.  Through the subscripts of its reads that gives
a box of each tensor that it reads, through the statements that write those a box of what they read, and so on: the box hull of
the composed access relations, computed on their linear forms ("bounds inference" in Halide:
Ragan-Kelley et al., PLDI 2013).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from polyc.ir.expr import Const, Expr, Index, Size
from polyc.ir.program import Statement
from polyc.ir.read_sites import ReadSite
from polyc.ir.simplify import Term, clean_form, linear_form
from polyc.poly.ranges import Interval, Ranges
from polyc.records import dataclass

Form = dict[Term, int]
"""A linear form over tile indices and sizes, the constant under the key 1."""


@dataclass(frozen=True, slots=True)
class Box:
    """``lower <= x < lower + extent`` where `lower` moves with the tile."""

    lower: Form
    extent: int

    @property
    def moving(self) -> Form:
        """`lower` without its constant."""
        return {term: c for term, c in self.lower.items() if term != 1}

    @property
    def start(self) -> int:
        return self.lower.get(1, 0)

    def depends_on(self, tile: str) -> bool:
        return Index(tile) in self.lower


@dataclass(frozen=True, slots=True)
class Root:
    """A consumer in tiles; `tiles`: for each of its indices that are cut, the index that gives the tile its name."""

    statement: Statement
    tiles: dict[str, str]

    def moved(self, sizes: Mapping[str, int], ranges: Ranges) -> dict[str, Box | None]:
        """Where its indices run in tiles of `sizes`, by the name of the tile."""
        own = ranges.statements[self.statement.name].indices
        return {i: tile_box(tile, sizes[tile], own[i]) for i, tile in self.tiles.items()}


Boxes = dict[str, tuple[Box | None, ...]]
"""By tensor, the box of a tile in each dimension; None: the whole dimension."""


def tile_name(index: str) -> str:
    """The index that counts the tiles of `index`."""
    return f"{index}.tile"


Sites = Mapping[str, Sequence[ReadSite]]
"""The reads of every statement, by its name."""


def tile_boxes(
    roots: Sequence[Root], producers: Sequence[Statement], sizes: Mapping[str, int], ranges: Ranges, sites: Sites
) -> Boxes | None:
    """Boxes of the tensors that `producers` write, for one tile of all `roots`; None where there are none.

    `producers` are in an order in which every reader of a tensor comes before its writer."""
    targets = {s.target for s in producers}
    boxes: Boxes = {}
    consumers = {root.statement.name: root for root in roots}
    for s in (*(root.statement for root in roots), *producers):
        own = ranges.statements[s.name].indices
        if s.name in consumers:
            moved = consumers[s.name].moved(sizes, ranges)
            if any(box is None for box in moved.values()):
                return None
        elif s.target not in boxes:
            return None
        else:
            moved = {
                sub.name: box
                for sub, box in zip(s.subscripts, boxes[s.target], strict=True)
                if isinstance(sub, Index) and box is not None
            }
        for site in sites[s.name]:
            name = site.read.tensor
            if name not in targets:
                continue
            found = tuple(
                _read_box(sub, moved, own, site, ranges.tensors[name][d]) for d, sub in enumerate(site.read.subscripts)
            )
            known = boxes.get(name)
            boxes[name] = found if known is None else tuple(_hull(a, b) for a, b in zip(known, found, strict=True))
    return boxes


def tile_box(tile: str, size: int, interval: Interval) -> Box | None:
    """Where an index with this range runs inside a tile; None where the range is not linear in the sizes."""
    lower = linear_form(interval.lower)
    return None if lower is None else Box(clean_form({**lower, Index(tile_name(tile)): size}), size)


def _read_box(
    subscript: Expr, moved: Mapping[str, Box | None], own: Mapping[str, Interval], site: ReadSite, whole: Interval
) -> Box | None:
    """The box of a subscript; None where it does not move with the tile, or its size is not known."""
    form = linear_form(subscript)
    if form is None or not any(isinstance(t, Index) and moved.get(t.name) is not None for t in form):
        return None
    lower: Form = {}
    extent = 1
    for term, c in form.items():
        if isinstance(term, (int, Size)):
            _add(lower, {term: c})
            continue
        if not isinstance(term, Index):
            return None
        box = moved.get(term.name) or _constant_box(own[term.name])
        if box is None:
            return None
        _add(lower, box.lower, c)
        if c < 0:
            _add(lower, {1: c * (box.extent - 1)})
        extent += abs(c) * (box.extent - 1)
    found = Box(clean_form(lower), extent)
    return _with_border(found, site, whole) if site.is_padded else found


def _constant_box(interval: Interval) -> Box | None:
    lower = linear_form(interval.lower)
    return None if lower is None or not isinstance(interval.extent, Const) else Box(lower, int(interval.extent.value))


def _add(form: Form, other: Mapping[Term, int], factor: int = 1) -> None:
    for term, c in other.items():
        form[term] = form.get(term, 0) + factor * c


def _with_border(box: Box, site: ReadSite, whole: Interval) -> Box | None:
    """The box with what takes the place of elements outside: the nearest ones, or mirrored ones; wrapped around they are far.

    Only a proposal: what is read is proved to lie inside when the program is made."""
    if site.mode == "value":
        return box
    if site.mode == "wrap" or not isinstance(whole.lower, Const):
        return None
    step = max((abs(c) for t, c in box.lower.items() if isinstance(t, Index)), default=1)
    start, end = box.start - int(whole.lower.value), box.start - int(whole.lower.value) + box.extent
    if site.mode == "clamp":
        first, last = min(start, 0), max(end, step)
    else:
        first, last = min(start, step - end), max(end, step - start)
    return Box(clean_form({**box.lower, 1: first + int(whole.lower.value)}), last - first)


def _hull(a: Box | None, b: Box | None) -> Box | None:
    """The smallest box around two; None where they do not move alike."""
    if a is None or b is None or a.moving != b.moving:
        return None
    start = min(a.start, b.start)
    end = max(a.start + a.extent, b.start + b.extent)
    return Box(clean_form({**a.moving, 1: start}), end - start)


def moves_with_all(boxes: Iterable[Box | None], tiles: Iterable[str]) -> bool:
    """Whether a tensor with these boxes is another part for every tile: what does not move would be computed again for each."""
    found = [box for box in boxes if box is not None]
    return all(any(box.depends_on(tile) for box in found) for tile in tiles)
