"""Random inputs for a model, from what it declares of them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np

from polyc.diagnostics import ArgumentError, BoundsError, Diagnostic, suggest_name
from polyc.frontends.onnx.element_types import numpy_type
from polyc.frontends.onnx.graph import Port
from polyc.onnx.feed import describe_port
from polyc.runtime.memory import check_memory

Results = TypeVar("Results")
Shapes = Mapping[str, tuple[int, ...]]
NO_SHAPES: Shapes = {}
UNKNOWN = 1
"""Extent of a dimension that has neither a number nor a size."""


def draw_feed(
    ports: Sequence[Port], sizes: Mapping[str, int], seed: int, given: Mapping[str, np.ndarray], shapes: Shapes = NO_SHAPES
) -> dict[str, np.ndarray]:
    """`given`, and random arrays for the other inputs; the same for the same name, shape and seed.

    `shapes` gives whole shapes by input; other dimensions with a name are as `sizes` or the arrays given say, else 1.
    Floats are standard normal; integers are 0 or 1,
    which are indices of most things.  Raises ArgumentError for a size that no dimension has, or an input without a shape."""
    names = {d for p in ports for d in p.shape or () if isinstance(d, str)}
    for name in sizes:
        if name not in names:
            help = suggest_name(name, names) or f"named dimensions are: {', '.join(sorted(names)) or 'none'}"
            raise ArgumentError(Diagnostic("argument-name", f"no dimension of the inputs is named {name!r}", None, help))
    known = dict(sizes)
    for p in ports:
        if p.name in given:
            for d, n in zip(p.shape or (), given[p.name].shape, strict=False):
                if isinstance(d, str):
                    known.setdefault(d, n)
    for name in shapes:
        if name not in {p.name for p in ports}:
            help = f"inputs are: {', '.join(p.name for p in ports) or 'none'}"
            raise ArgumentError(Diagnostic("argument-name", f"no input is named {name!r}", None, help))
    return {p.name: given[p.name] if p.name in given else _draw(p, known, seed, shapes.get(p.name)) for p in ports}


def run_drawn(run: Callable[[dict[str, np.ndarray]], Results], feed: dict[str, np.ndarray], drawn: Collection[str]) -> Results:
    """What `run` gives for `feed`.

    Where an index leaves its tensor, integers that were `drawn` become 0 in `feed`: an index of whatever has elements."""
    try:
        return run(feed)
    except BoundsError:
        indices = {n: np.zeros_like(feed[n]) for n in drawn if feed[n].dtype.kind in "iu" and feed[n].any()}
        if not indices:
            raise
        feed.update(indices)
        return run(feed)


def _draw(port: Port, sizes: Mapping[str, int], seed: int, shape: tuple[int, ...] | None) -> np.ndarray:
    dtype = numpy_type(port.type)
    if dtype is None or (port.shape is None and shape is None):
        message = f"the input {port.name} ({describe_port(port)}) cannot be drawn at random"
        raise ArgumentError(Diagnostic("argument-onnx-input", message, None, "give it, or its shape"))
    if shape is None:
        shape = tuple(d if isinstance(d, int) else sizes.get(d, UNKNOWN) if d else UNKNOWN for d in port.shape or ())
    check_memory(f"the input {port.name}", math.prod(shape) * max(dtype.itemsize, 8))
    rng = np.random.default_rng([seed, zlib.crc32(port.name.encode())])
    if dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)
