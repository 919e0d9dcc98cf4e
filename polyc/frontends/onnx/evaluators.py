"""Operators for onnx's evaluator whose own implementation is too slow to be of use, as onnx lets one add them (`new_ops`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx.reference.op_run import OpRun


class NonMaxSuppression(OpRun):
    """Boxes by falling score, without those that overlap one taken before; one box against all others at a time.

    onnx's own compares box by box in Python: minutes for what a detector gives."""

    op_domain = ""

    def _run(
        self,
        boxes: np.ndarray,
        scores: np.ndarray,
        max_output_boxes_per_class: np.ndarray | None = None,
        iou_threshold: np.ndarray | None = None,
        score_threshold: np.ndarray | None = None,
        center_point_box: int | None = None,
    ) -> tuple[np.ndarray]:
        most = int(_first(max_output_boxes_per_class) or 0)
        overlap = _first(iou_threshold) or 0.0
        least = _first(score_threshold)
        found = [
            (batch, label, box)
            for batch in range(scores.shape[0])
            for label in range(scores.shape[1])
            for box in choose_boxes(corners(boxes[batch], bool(center_point_box)), scores[batch, label], most, overlap, least)
        ]
        return (np.array(found, np.int64).reshape(-1, 3),)


def _first(value: np.ndarray | None) -> float | None:
    return None if value is None or value.size == 0 else value.reshape(-1)[0]


def corners(boxes: np.ndarray, is_centre: bool) -> np.ndarray:
    """Boxes as ``[low, low, high, high]``, from any two opposite corners, or from centre and extent."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if is_centre:
        return np.concatenate([first - second / 2, first + second / 2], 1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], 1)


_BLOCK = 64
"""Boxes that are compared with each other at once."""
_PAIRS = 1 << 18
"""Pairs of boxes that are compared at once."""


def choose_boxes(boxes: np.ndarray, scores: np.ndarray, most: int, overlap: float, least: float | None) -> list[int]:
    """Places of at most `most` boxes with a score above `least`, of which no two overlap (intersection over union) by more than
    `overlap`; of equal scores the first comes first."""
    candidates = np.arange(len(scores)) if least is None else np.flatnonzero(scores > least)
    candidates = candidates[np.argsort(-scores[candidates], kind="stable")]
    chosen: list[int] = []
    first, size = 0, _BLOCK
    while first < len(candidates) and len(chosen) < most:
        some = _without_overlapping(boxes, candidates[first : first + size], chosen, overlap)
        first, size = first + size, 2 * size
        while len(some) and len(chosen) < most:
            block, some = some[:_BLOCK], some[_BLOCK:]
            others = ~_overlaps(boxes[block], boxes[block], overlap)
            alive = np.ones(len(block), bool)
            new: list[int] = []
            for k in range(len(block)):
                if alive[k] and len(chosen) + len(new) < most:
                    new.append(int(block[k]))
                    alive &= others[k]
            chosen += new
            some = _without_overlapping(boxes, some, new, overlap)
    return chosen


def _without_overlapping(boxes: np.ndarray, some: np.ndarray, chosen: Sequence[int], overlap: float) -> np.ndarray:
    """Those of `some` that overlap none of the boxes chosen."""
    first, size = 0, 8  # the best boxes have the most others below them
    while first < len(chosen) and len(some):
        size = min(size, max(1, _PAIRS // len(some)))
        some = some[~_overlaps(boxes[chosen[first : first + size]], boxes[some], overlap).any(axis=0)]
        first, size = first + size, 2 * size
    return some


def _overlaps(first: np.ndarray, second: np.ndarray, overlap: float) -> np.ndarray:
    """Whether the intersection of a box of `first` (rows) and one of `second` (columns) exceeds this part of their union."""
    sides = np.minimum(first[:, None, 2:], second[None, :, 2:]) - np.maximum(first[:, None, :2], second[None, :, :2])
    areas, others = (np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (first, second))
    shared = np.where((sides > 0).all(axis=2), sides[..., 0] * sides[..., 1], 0)
    union = areas[:, None] + others[None, :] - shared
    is_proper = (shared > 0) & (areas[:, None] > 0) & (others[None, :] > 0) & (union > 0)
    ratio = np.divide(shared, union, out=np.zeros_like(shared), where=is_proper)
    found: np.ndarray = is_proper & (ratio > overlap)
    return found


class TopK(OpRun):
    """The greatest or least elements along an axis: of as many as are compiled no more, only those in question are sorted.

    onnx's own sorts all of them."""

    op_domain = ""

    def _run(
        self,
        data: np.ndarray,
        count: np.ndarray | None = None,
        axis: int | None = None,
        k: int | None = None,
        largest: int | None = None,
        sorted: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        n_kept = int(_first(count) or 0) if k is None else k
        axis = -1 if axis is None else axis
        rows = np.moveaxis(data, axis, -1)
        if not 0 <= n_kept <= rows.shape[-1]:
            raise ValueError(f"{n_kept} of {rows.shape[-1]} elements")
        flat = rows.reshape(-1, rows.shape[-1])
        places = np.empty((len(flat), n_kept), np.int64)
        for place, row in zip(places, flat, strict=True):
            place[:] = rank_greatest(row, n_kept) if largest in (None, 1) else rank_least(row, n_kept)
        values = np.take_along_axis(flat, places, 1)
        shape = (*rows.shape[:-1], n_kept)
        return np.moveaxis(values.reshape(shape), -1, axis), np.moveaxis(places.reshape(shape), -1, axis)


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
        parted = np.partition(row, n - n_kept)
        if parted[-1] == parted[-1]:  # NaN would be last
            places = np.flatnonzero(row >= parted[n - n_kept])
    backwards = places[::-1]
    return backwards[np.argsort(row[backwards], kind="stable")[::-1][:n_kept]]


EVALUATORS: list[type[OpRun]] = [NonMaxSuppression, TopK]
