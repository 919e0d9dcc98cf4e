"""Sizes that stand for all others where versions of a kernel are ranked: in a grid, drawn, and near those of the first call."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product

from polyc.code_limits import MAX_ITEMS
from polyc.ir.expr import Index, Size, index_names, walk
from polyc.poly.scop import ScopStatement

SMALLEST, LARGEST, LARGEST_WINDOW = 8, 1024, 7
"""The sizes that are drawn; extents of windows are smaller."""

FEWEST = 2
"""The smallest of other sizes beside those that windows move over: images have few channels."""

SMALL, LARGE, WINDOW = 14, 719, 3
"""Sizes of the representatives, of which each is one or the other."""

SIDES, OTHERS = (60, 300), (16, 64)
"""The same of what windows move over, and of other sizes beside these: channels are fewer than columns."""

MAX_OTHERS = 2
"""Sizes beside those that windows move over that are small or large in all ways; more of them are those of the first call."""


def window_sizes(statements: Sequence[ScopStatement]) -> set[str]:
    """Sizes that are extents of windows: of reduction indices that stand beside another index in a subscript."""
    found: set[str] = set()
    for s in statements:
        for subscript in (e for a in s.accesses for e in a.read.subscripts):
            names = [node.name for node in walk(subscript) if isinstance(node, Index)]
            if len(names) < 2:
                continue
            for i in set(names) & set(s.reduction_indices):
                found |= {node.name for node in walk(s.extents[i]) if isinstance(node, Size)}
    return found


def side_sizes(statements: Sequence[ScopStatement]) -> set[str]:
    """Sizes of what windows move over: of left indices that stand beside an index of the sum in a subscript."""
    found: set[str] = set()
    for s in statements:
        for subscript in (e for a in s.accesses for e in a.read.subscripts):
            names = index_names(subscript)
            if names & set(s.reduction_indices):
                sizes = (node.name for i in names & set(s.left) for node in walk(s.extents[i]) if isinstance(node, Size))
                found |= set(sizes)
    return found - window_sizes(statements)


def with_sides(
    first: Mapping[str, int], windows: Collection[str], sides: Collection[str], kept: Collection[str]
) -> Iterator[dict[str, int]]:
    """All sizes small, then each small or large in all ways.  What windows move over is one: tiles for long and narrow images,
    which are seldom, cost others much.  `kept`: sizes of the first call that do not change."""
    yield {name: size if name in windows or name in kept else SMALL for name, size in first.items()}
    others = [name for name in first if name not in windows and name not in sides and name not in kept][:MAX_OTHERS]
    for side, *values in product(SIDES, *(OTHERS for _ in others)):
        yield {**first, **dict.fromkeys(sides, side), **dict(zip(others, values, strict=True))}


def grid(first: Mapping[str, int], windows: Collection[str], mixed: bool) -> Iterator[dict[str, int]]:
    """All sizes large, all small, and (`mixed`) then in all pairs of ways: a fractional factorial design."""
    plain = [name for name in first if name not in windows]
    runs = [[n % 2 == 0] * len(plain) for n in range(2)]
    runs += [[(run & (n % 7 + 1)).bit_count() % 2 == 0 for n in range(len(plain))] for run in range(1, 8) if mixed]
    for run in runs:
        large = dict(zip(plain, run, strict=True))
        yield {name: WINDOW if name in windows else LARGE if large[name] else SMALL for name in first}


def draw_sizes(first: Mapping[str, int], windows: Collection[str], sides: Collection[str]) -> Iterator[dict[str, int]]:
    """Sizes of all magnitudes, the same at every run; of half of the samples some are those of the first call, as not all of
    a program's sizes change, extents of windows least of all.  What windows move over is about as long as wide."""
    draw = random.Random(0)
    for n in range(MAX_ITEMS):
        scale = draw.random() if n % 3 == 0 else None  # of a third all sizes are about as large
        side = draw.random() if sides and scale is None else scale
        sizes = {}
        for name in first:
            near = side if name in sides else scale
            position = draw.random() if near is None else min(1.0, max(0.0, near + draw.uniform(-0.1, 0.1)))
            if n % 2 and (draw.random() < 0.5 or name in windows):
                sizes[name] = first[name]
            elif name in windows:
                sizes[name] = 1 + int(position * LARGEST_WINDOW)
            else:
                smallest = FEWEST if sides and name not in sides else SMALLEST
                sizes[name] = int(smallest * (LARGEST / smallest) ** position)
        yield sizes
