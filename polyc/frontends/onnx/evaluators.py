"""Operators evaluated with NumPy here: those whose result has a shape that only data tells, and what sorts.

onnx's own implementations compare box by box, sort all where a few are wanted, and check and copy around each call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyc.frontends.onnx.graph import Node

Arrays = Sequence["np.ndarray | None"]
Suppress = Callable[[np.ndarray, np.ndarray, np.float32], np.ndarray]
"""Which boxes are kept, ``[row, place]``: `boxes`, ``[4, row, place]`` (low, low, high, high), by falling score, where none of
`taken`, ``[4, row, place]``, nor one kept before overlaps by more than this part of their union."""


def choose_boxes(node: Node, inputs: Arrays, suppress: Suppress) -> list[np.ndarray]:
    """`NonMaxSuppression`: boxes by falling score, without those that overlap one taken before; of equal scores the first comes
    first.  All classes of all images are rows of one table."""
    boxes, scores, most, overlap, least = (*inputs, None, None, None)[:5]
    assert boxes is not None and scores is not None
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[2] != 4:
        raise ValueError("boxes have the shape [batch, box, 4], and scores [batch, class, box]")
    n_batch, n_labels, n_boxes = scores.shape
    if boxes.shape[:2] != (n_batch, n_boxes):
        raise ValueError(f"there are {list(boxes.shape[:2])} boxes and scores for {[n_batch, n_boxes]}")
    n_most = int(_first(most) or 0)
    order = _order_candidates(scores.reshape(n_batch * n_labels, n_boxes), _first(least))
    if n_most <= 0 or not len(order):
        return [np.empty((0, 3), np.int64)]
    is_centre = bool(node.attributes.get("center_point_box", 0))
    part = np.float32(_first(overlap) or 0.0)
    rows, places = _keep_apart(boxes, is_centre, order, n_labels, n_boxes, n_most, part, suppress)
    return [np.stack([rows // n_labels, rows % n_labels, places], 1)]


def _first(value: np.ndarray | None) -> Any:
    return None if value is None or value.size == 0 else value.reshape(-1)[0]


def _corners(boxes: np.ndarray, is_centre: bool) -> np.ndarray:
    """Boxes ``[row, place, 4]`` as ``[4, row, place]`` (low, low, high, high), from two opposite corners, or centre and
    extent."""
    turned = boxes.transpose(2, 0, 1)
    first, second = turned[:2], turned[2:]
    found = np.empty(turned.shape, np.float32)
    if is_centre:
        second = second / 2
        np.subtract(first, second, out=found[:2])
        np.add(first, second, out=found[2:])
    else:
        np.minimum(first, second, out=found[:2])
        np.maximum(first, second, out=found[2:])
    return found


def _order_candidates(scores: np.ndarray, least: Any) -> np.ndarray:
    """Positions in ``scores[row, place]`` of those above `least`, row by row, the greatest of each first."""
    flat = scores.reshape(-1)
    found = np.arange(len(flat)) if least is None else (flat > least).nonzero()[0]
    keys = (~_ranks(flat[found])).astype(np.uint64) << np.uint64(32)
    if len(flat) >> 32 or scores.shape[0] >> 16:
        return found[np.lexsort((keys, found // scores.shape[1]))]
    keys |= found.astype(np.uint64)  # no two are equal: any way of sorting is stable
    keys.sort()
    order = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
    if scores.shape[0] == 1:
        return order
    return order[np.argsort((order // scores.shape[1]).astype(np.uint16), kind="stable")]  # by digits, in linear time


def _ranks(values: np.ndarray) -> np.ndarray:
    """Unsigned numbers in the order of `values` (of at most 32 bits), NaN the greatest."""
    if values.dtype.kind == "f":
        values = values.astype(np.float32) + np.float32(0)  # there is one zero
        bits = values.view(np.int32)
        signed = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))
        signed = np.where(values == values, signed, np.int32(0x7FFFFFFF))
        return signed.view(np.uint32) ^ np.uint32(1 << 31)
    if values.dtype.kind in "ub":
        return values.astype(np.uint32)
    return values.astype(np.int32).view(np.uint32) ^ np.uint32(1 << 31)


FEWEST_COMPARED = 128
"""Boxes of a row that are compared at first; then twice as many each time, up to `MOST_COMPARED`: those behind them are
compared with what is taken only."""
MOST_COMPARED = 1024


def _keep_apart(
    boxes: np.ndarray,
    is_centre: bool,
    order: np.ndarray,
    n_labels: int,
    n_boxes: int,
    most: int,
    overlap: np.float32,
    suppress: Suppress,
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and places of the boxes that are taken."""
    row_of = order // n_boxes
    starts = np.concatenate(([0], (row_of[1:] != row_of[:-1]).nonzero()[0] + 1))
    ends = np.concatenate((starts[1:], [len(order)]))
    rows = row_of[starts]
    boxes = boxes.reshape(-1, 4)
    box_of = row_of // n_labels * n_boxes + order % n_boxes
    taken = np.zeros((4, len(rows), 1), np.float32)  # a box without area overlaps none
    counts = np.zeros(len(rows), np.int64)
    found: list[np.ndarray] = []
    size = FEWEST_COMPARED
    active = np.arange(len(rows))
    while len(active):
        first, last = starts[active, None], ends[active, None]
        width = min(size, int((last - first).max()))
        positions = first + np.arange(width)
        is_there = positions < last
        np.minimum(positions, len(order) - 1, out=positions)
        edges = _corners(boxes[box_of[positions]], is_centre)
        edges *= is_there  # what is not there has no area
        is_kept = suppress(edges, taken[:, active], overlap).astype(bool)
        is_kept &= is_there
        before = counts[active]
        numbers = before + is_kept.sum(1)
        if numbers.max() > most:
            is_kept &= is_kept.cumsum(1) + before[:, None] <= most
            np.minimum(numbers, most, out=numbers)
        found.append(positions[is_kept])
        starts[active] += width
        counts[active] = numbers
        is_open = (last[:, 0] > first[:, 0] + width) & (numbers < most)
        if is_open.any():
            line, column = np.nonzero(is_kept)
            grown = np.zeros((4, len(rows), int(counts.max())), np.float32)
            grown[:, :, : taken.shape[2]] = taken[:, :, : grown.shape[2]]
            place = (is_kept.cumsum(1) + before[:, None])[line, column] - 1
            grown[:, active[line], place] = edges[:, line, column]
            taken = grown
        active = active[is_open]
        size = min(2 * size, MOST_COMPARED)
    kept = found[0] if len(found) == 1 else np.sort(np.concatenate(found))
    return row_of[kept], order[kept] % n_boxes


def suppress_boxes(boxes: np.ndarray, taken: np.ndarray, overlap: np.float32) -> np.ndarray:
    """`Suppress`, one place of all rows after the other."""
    is_alive: np.ndarray = np.logical_not(np.any(_overlap(boxes[:, :, :, None], taken[:, :, None, :], overlap), axis=2))
    for place in range(boxes.shape[2] - 1):
        rest = is_alive[:, place + 1 :]
        rest &= ~(is_alive[:, place, None] & _overlap(boxes[:, :, place, None], boxes[:, :, place + 1 :], overlap))
    return is_alive


def _overlap(a: np.ndarray, b: np.ndarray, overlap: np.float32) -> np.ndarray:
    """Whether the intersection of two boxes exceeds this part of their union."""
    height = np.minimum(a[2], b[2]) - np.maximum(a[0], b[0])
    width = np.minimum(a[3], b[3]) - np.maximum(a[1], b[1])
    area, other = ((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b))
    shared = np.where((height > 0) & (width > 0), height * width, 0)
    union = area + other - shared
    is_proper = (shared > 0) & (area > 0) & (other > 0) & (union > 0)
    ratio = np.divide(shared, union, out=np.zeros_like(shared), where=is_proper)
    found: np.ndarray = is_proper & (ratio > overlap)
    return found


def choose_greatest(node: Node, inputs: Arrays) -> list[np.ndarray]:
    """`TopK`: of as many as are compiled no more, only those in question are sorted."""
    data, count = (*inputs, None)[:2]
    assert data is not None
    n_kept = int(node.attributes["k"] if count is None else _first(count))
    axis = int(node.attributes.get("axis", -1))
    rows = np.moveaxis(data, axis, -1)
    n = rows.shape[-1]
    if not 0 <= n_kept <= n:
        raise ValueError(f"{n_kept} of {n} elements")
    is_largest = bool(node.attributes.get("largest", 1))
    flat = rows.reshape(math.prod(rows.shape[:-1]), n)
    if data.dtype.itemsize <= 4 and 0 < len(flat) * n <= 1 << 16:
        places = _rank_rows(flat, n_kept, is_largest)
    else:
        rank = rank_greatest if is_largest else rank_least
        places = np.empty((len(flat), n_kept), np.int64)
        for place, row in zip(places, flat, strict=True):
            place[:] = rank(row, n_kept)
    values = np.take_along_axis(flat, places, 1)
    shape = (*rows.shape[:-1], n_kept)
    return [np.moveaxis(values.reshape(shape), -1, axis), np.moveaxis(places.reshape(shape), -1, axis)]


def _rank_rows(rows: np.ndarray, n_kept: int, is_largest: bool) -> np.ndarray:
    """Places of the greatest (or least) elements of each row, of types of at most 32 bits: numbers made of rank and place
    are sorted."""
    ranks = _ranks(rows)
    keys = (~ranks if is_largest else ranks).astype(np.uint64) << np.uint64(32)
    keys |= np.arange(rows.shape[1], dtype=np.uint64)
    if n_kept < rows.shape[1]:
        keys.partition(n_kept, axis=1)
        keys = keys[:, :n_kept]
    keys = np.sort(keys, axis=1)
    return (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)


def rank_least(row: np.ndarray, n_kept: int) -> np.ndarray:
    """Places of the `n_kept` least elements of a vector, in order; of equal ones the first comes first, NaN is the greatest."""
    if 0 < n_kept < len(row):
        limit = np.partition(row, n_kept - 1)[n_kept - 1]
        places = np.flatnonzero(row <= limit) if limit == limit else np.arange(len(row))
    else:
        places = np.arange(len(row))
    return places[np.argsort(row[places], kind="stable")[:n_kept]]


def rank_greatest(row: np.ndarray, n_kept: int) -> np.ndarray:
    """As `rank_least`, of the greatest."""
    n = len(row)
    places = np.arange(n)
    if 0 < n_kept < n:
        kept = np.partition(row, n - n_kept)[n - n_kept :]
        if not np.any(kept != kept):  # NaN would be among them, in no order
            places = np.flatnonzero(row >= kept[0])
    backwards = places[::-1]
    return backwards[np.argsort(row[backwards], kind="stable")[::-1][:n_kept]]


def find_non_zero(node: Node, inputs: Arrays) -> list[np.ndarray]:
    """`NonZero`: where elements are not zero, a row for each dimension."""
    (x,) = inputs
    assert x is not None
    if x.ndim == 0:
        return [np.empty((0, np.count_nonzero(x)), np.int64)]
    return [np.stack(np.nonzero(x)).astype(np.int64)]


def compress(node: Node, inputs: Arrays) -> list[np.ndarray]:
    """`Compress`: the slices along an axis for which a condition holds."""
    x, condition = inputs
    assert x is not None and condition is not None
    axis = node.attributes.get("axis")
    return [np.compress(condition, x, axis=None if axis is None else int(axis))]


def find_unique(node: Node, inputs: Arrays) -> list[np.ndarray]:
    """`Unique`: each element or slice once, sorted or in the order in which they come first; the places of the first ones,
    which of the results every element is, and how often each is there."""
    (x,) = inputs
    assert x is not None
    axis = node.attributes.get("axis")
    found, first, which, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=None if axis is None else int(axis)
    )
    which = which.reshape(-1)
    if not node.attributes.get("sorted", 1):
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        found = np.take(found, order, 0 if axis is None else int(axis))
        first, which, counts = first[order], place[which], counts[order]
    return [found, *(numbers.astype(np.int64) for numbers in (first, which, counts))]


EVALUATORS: dict[str, Callable[[Node, Arrays], list[np.ndarray]]] = {
    "TopK": choose_greatest,
    "NonZero": find_non_zero,
    "Compress": compress,
    "Unique": find_unique,
}
"""By operator of ONNX's own domain: the outputs of a node for its inputs, None where one is missing; and `choose_boxes`."""
