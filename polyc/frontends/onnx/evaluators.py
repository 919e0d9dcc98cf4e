"""Operators for onnx's evaluator whose own implementation is too slow to be of use, as onnx lets one add them (`new_ops`)."""

from __future__ import annotations

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


def choose_boxes(boxes: np.ndarray, scores: np.ndarray, most: int, overlap: float, least: float | None) -> list[int]:
    """Places of at most `most` boxes with a score above `least`, of which no two overlap (intersection over union) by more than
    `overlap`; of equal scores the first comes first."""
    candidates = np.arange(len(scores)) if least is None else np.flatnonzero(scores > least)
    candidates = candidates[np.argsort(-scores[candidates], kind="stable")]
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    chosen: list[int] = []
    while len(candidates) and len(chosen) < most:
        best, candidates = int(candidates[0]), candidates[1:]
        chosen.append(best)
        sides = np.minimum(boxes[best, 2:], boxes[candidates, 2:]) - np.maximum(boxes[best, :2], boxes[candidates, :2])
        shared = np.where((sides > 0).all(axis=1), sides[:, 0] * sides[:, 1], 0)
        union = areas[best] + areas[candidates] - shared
        is_proper = (shared > 0) & (areas[best] > 0) & (areas[candidates] > 0) & (union > 0)
        ratio = np.divide(shared, union, out=np.zeros_like(shared), where=is_proper)
        candidates = candidates[~(is_proper & (ratio > overlap))]
    return chosen


EVALUATORS: list[type[OpRun]] = [NonMaxSuppression]
