"""Pipelines, or most of their work, as users of OpenCV would have them: where it computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.pipelines.discs import HALF, RADIUS


def distance(cv2: Any, out: Any, X: Any) -> Any:
    return cv2.distanceTransform(X, cv2.DIST_L2, 3, dst=out)


def max_filter(cv2: Any, out: Any, X: Any) -> Any:
    disc = np.zeros((2 * RADIUS + 1, 2 * RADIUS + 1), np.uint8)
    for d, half in enumerate(HALF):
        disc[RADIUS - half : RADIUS + half + 1, d] = 1
    for plane, place in zip(X, out, strict=True):
        cv2.dilate(plane, disc, dst=place, borderType=cv2.BORDER_REPLICATE)
    return out


def unsharp(cv2: Any, out: Any, X: Any, w: Any) -> Any:
    g = cv2.addWeighted(X[0], 0.299, X[1], 0.587, 0)
    g = cv2.scaleAdd(X[2], 0.114, g)
    b = cv2.sepFilter2D(g, cv2.CV_32F, w, w, borderType=cv2.BORDER_REPLICATE)
    r = cv2.divide(cv2.addWeighted(g, 2, b, -1, 0), g)
    for plane, place in zip(X, out, strict=True):
        cv2.multiply(plane, r, dst=place)
    return out


def harris(cv2: Any, out: Any, X: Any) -> Any:
    g = cv2.addWeighted(X[0], 0.299, X[1], 0.587, 0)
    g = cv2.scaleAdd(X[2], 0.114, g)
    u, v = (cv2.Sobel(g, cv2.CV_32F, *d, scale=1 / 12) for d in ((1, 0), (0, 1)))
    a, b, c = (cv2.boxFilter(cv2.multiply(p, q), -1, (3, 3), normalize=False)[2:-2, 2:-2] for p, q in ((u, u), (v, v), (u, v)))
    trace = cv2.add(a, b)
    cv2.subtract(cv2.multiply(a, b), cv2.multiply(c, c), dst=out)
    return cv2.scaleAdd(cv2.multiply(trace, trace), -0.04, out, dst=out)
