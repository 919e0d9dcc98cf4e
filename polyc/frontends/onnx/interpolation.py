"""Tables for resizing along one dimension: which elements an output is made of, and with which weights.

They are computed when the graph is compiled, in double precision, from the extents and the attributes of `Resize`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polyc.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Taps:
    """Output o is the sum over k of ``weights[o, k]`` times element ``elements[o, k]``."""

    elements: np.ndarray
    """Inside of the input; int64 ``[output, taps]``."""
    weights: np.ndarray
    """float64 ``[output, taps]``."""
    outside: np.ndarray
    """Outputs that lie outside of the region that is resized (``tf_crop_and_resize``); bool ``[output]``."""


def place_outputs(
    coordinates: str, n: int, length: int, scale: float, region: tuple[float, float] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Where in the input each of `length` outputs lies, and whether that is outside of it; `coordinates` is ONNX's
    ``coordinate_transformation_mode``.  Raises ValueError on an unknown one."""
    o = np.arange(length, dtype=np.float64)
    exact = scale * n  # the extent of the result, before it is rounded
    outside = np.zeros(length, np.bool_)
    match coordinates:
        case "half_pixel":
            return (o + 0.5) / scale - 0.5, outside
        case "pytorch_half_pixel":
            return (np.full(length, -0.5) if length == 1 or exact == 1 else (o + 0.5) / scale - 0.5), outside
        case "half_pixel_symmetric":
            return n / 2 * (1 - length / exact) + (o + 0.5) / scale - 0.5, outside
        case "align_corners":
            return (np.zeros(length) if exact == 1 or length == 1 else o * (n - 1) / (exact - 1)), outside
        case "asymmetric":  # in float32: six steps of the float32 next to 1.2 are five elements, as whoever chose 1.2 counts
            return (np.arange(length, dtype=np.float32) / np.float32(scale)).astype(np.float64), outside
        case "tf_half_pixel_for_nn":
            return (o + 0.5) / scale, outside
        case "tf_crop_and_resize":
            low, high = region if region is not None else (0.0, 1.0)
            if length == 1 or exact == 1:
                x = np.full(length, (high - low) * (n - 1) / 2)
            else:
                x = o * (high - low) * (n - 1) / (exact - 1)
            x = x + low * (n - 1)
            return x, (x < 0) | (x > n - 1)
    raise ValueError(f"coordinate_transformation_mode is {coordinates}")


def nearest_elements(x: np.ndarray, mode: str, n: int) -> np.ndarray:
    """The element nearest to each place by ONNX's ``nearest_mode``.  Raises ValueError on an unknown mode."""
    match mode:
        case "floor":
            found = np.floor(x)
        case "ceil":
            found = np.ceil(x)
        case "round_prefer_floor" | "":
            found = np.ceil(x - 0.5)
        case "round_prefer_ceil":
            found = np.floor(x + 0.5)
        case _:
            raise ValueError(f"nearest_mode is {mode}")
    nearest: np.ndarray = np.clip(found, 0, n - 1).astype(np.int64)
    return nearest


def linear_taps(x: np.ndarray, outside: np.ndarray, n: int, exclude_outside: bool) -> Taps:
    """Two neighbours."""
    low = np.floor(x)
    ratio = x - low
    elements = low[:, None].astype(np.int64) + np.arange(2)
    return _finish(elements, np.stack([1 - ratio, ratio], axis=1), outside, n, exclude_outside)


def cubic_taps(x: np.ndarray, outside: np.ndarray, n: int, a: float, exclude_outside: bool) -> Taps:
    """Four neighbours, by the cubic convolution with parameter `a` (Keys 1981)."""
    low = np.floor(x)
    elements = low[:, None].astype(np.int64) + np.arange(-1, 3)
    return _finish(elements, _keys(elements - x[:, None], a), outside, n, exclude_outside)


def antialias_taps(
    x: np.ndarray,
    outside: np.ndarray,
    n: int,
    scale: float,
    kernel: Callable[[np.ndarray], np.ndarray],
    reach: int,
    exclude: bool,
) -> Taps:
    """All neighbours under `kernel`, which is wider by one over the scale where that is less than 1."""
    scale = min(scale, 1.0)
    start = int(np.floor(-reach / scale)) + 1
    low = np.floor(x)
    # A place on an element belongs to the interval on its left, so that the window is the same one as for the interval.
    is_element = low == x
    base = np.where(is_element, low - 1, low)
    elements = base[:, None].astype(np.int64) + np.arange(start, 2 - start)
    weights = kernel((elements - x[:, None]) * scale)
    total = weights.sum(axis=1, keepdims=True)
    return _finish(elements, weights / np.where(total == 0, 1, total), outside, n, exclude)


def triangle(x: np.ndarray) -> np.ndarray:
    """The kernel of linear interpolation."""
    height: np.ndarray = np.clip(1 - np.abs(x), 0, 1)
    return height


def _keys(x: np.ndarray, a: float) -> np.ndarray:
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    height: np.ndarray = np.where(x <= 1, near, np.where(x < 2, far, 0.0))
    return height


def keys_kernel(a: float) -> Callable[[np.ndarray], np.ndarray]:
    """The kernel of cubic convolution."""
    return lambda x: _keys(x, a)


def _finish(elements: np.ndarray, weights: np.ndarray, outside: np.ndarray, n: int, exclude_outside: bool) -> Taps:
    """Elements outside of the input are those at its border, or (with `exclude_outside`) have no weight."""
    if exclude_outside:
        weights = np.where((elements < 0) | (elements >= n), 0.0, weights)
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    elements = np.clip(elements, 0, n - 1)
    used = np.any(weights != 0, axis=0)
    if used.size and not used.all() and used.any():
        elements, weights = elements[:, used], weights[:, used]
    return Taps(elements, weights, outside)


def as_division(elements: np.ndarray, n: int) -> tuple[int, int, int] | None:
    """(a, c, d) with ``elements[o] == (a * o + c) // d`` for all o, where one of a and d is 1; None where there is none."""
    o = np.arange(len(elements), dtype=np.int64)
    if len(elements) < 2:
        return (1, int(elements[0]), 1) if len(elements) else (1, 0, 1)
    rises = int(elements[-1] - elements[0])
    up = max(1, round((len(elements) - 1) / rises)) if rises > 0 else 0
    candidates = [(1, d) for d in sorted({up, up + 1, max(up - 1, 1), -(-len(elements) // max(n, 1))}) if d > 0]
    candidates += [(int(elements[1] - elements[0]), 1)]
    for a, d in candidates:
        if a < 1:
            continue
        low, high = int(np.max(elements * d - a * o)), int(np.min((elements + 1) * d - a * o)) - 1
        if low <= high:
            return a, (0 if low <= 0 <= high else low), d
    return None
