"""Boxes that overlap none taken before, by a kernel: what `NonMaxSuppression` does most of its work in.

A detector gives another number of candidates at each run, so one kernel serves all sizes; it is compiled when a session first
meets the operator."""

from __future__ import annotations

import functools
import threading

import numpy as np

from polyc import jobs, recall
from polyc.config import Options
from polyc.diagnostics import PolycError
from polyc.frontends.onnx.evaluators import Suppress, suppress_boxes
from polyc.log import logger
from polyc.runtime.kernel import Kernel

SUPPRESS = """
def suppress(float(4, R, P) box, float(4, R, M) taken, float overlap) -> (kept) {
  area(r, i) = (box(2, r, i) - box(0, r, i)) * (box(3, r, i) - box(1, r, i))
  other(r, m) = (taken(2, r, m) - taken(0, r, m)) * (taken(3, r, m) - taken(1, r, m))
  hidden(r, i) max=! shared > 0.0 && area(r, i) > 0.0 && other(r, m) > 0.0
      && shared / (area(r, i) + other(r, m) - shared) > overlap ? 1 : 0
    where height = min(box(2, r, i), taken(2, r, m)) - max(box(0, r, i), taken(0, r, m)),
      width = min(box(3, r, i), taken(3, r, m)) - max(box(1, r, i), taken(1, r, m)),
      shared = height > 0.0 && width > 0.0 ? height * width : 0.0
  shadow(r, i) max=! shared > 0.0 && area(r, i) > 0.0 && area(r, j) > 0.0
      && shared / (area(r, i) + area(r, j) - shared) > overlap ? kept(r, j) : 0
    where height = min(box(2, r, i), box(2, r, j)) - max(box(0, r, i), box(0, r, j)),
      width = min(box(3, r, i), box(3, r, j)) - max(box(1, r, i), box(1, r, j)),
      shared = height > 0.0 && width > 0.0 ? height * width : 0.0, j < i, i in 0:P, j in 0:P
  kept(r, i) = max(hidden(r, i), shadow(r, i)) > 0 ? 0 : 1 where i in 0:P
}
"""
"""`evaluators.Suppress`: rows r, boxes i by falling score, m of those taken."""


class Suppression:
    """`evaluators.Suppress` by a kernel, or by NumPy where it cannot be compiled."""

    def __init__(self, options: Options) -> None:
        self._options = options.replace(verify=False)
        self._run: Suppress | None = None

    def __call__(self, boxes: np.ndarray, taken: np.ndarray, overlap: np.float32) -> np.ndarray:
        run = self._run
        if run is None:
            with _LOCK:
                run = self._run = _compile(self._options)
        return run(boxes, taken, overlap)


_LOCK = threading.Lock()


@functools.cache
def _compile(options: Options) -> Suppress:
    try:
        (program,), _ = recall.read_tc(SUPPRESS, "suppress.tc")
        (code,) = jobs.compile_all([jobs.Job(program, {}, None, options)])
        kernel: Kernel = code.compile()
    except PolycError as error:
        logger.warning("onnx: boxes are compared by NumPy: %s", error)
        return suppress_boxes

    def run(boxes: np.ndarray, taken: np.ndarray, overlap: np.float32) -> np.ndarray:
        found: np.ndarray = kernel(boxes, taken, np.array(overlap))
        return found

    return run
