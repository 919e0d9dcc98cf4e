"""What the runners of a session share, what a run is asked for, and the segments of a graph that it goes through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from polyc.config import Options
from polyc.frontends.onnx.graph import Node
from polyc.jobs import Progress
from polyc.onnx.blocks import Blocks
from polyc.onnx.boxes import Suppression
from polyc.onnx.plan import Plan, Step
from polyc.onnx.shapes import Shapes
from polyc.onnx.weights import Weights
from polyc.records import dataclass

Env = dict[str, Any]
"""Values by name."""
Watch = Callable[[Step], Any]
"""Gives a context manager that a kernel runs in."""


@dataclass(slots=True, eq=False)
class Setting:
    """What all runners of a session share."""

    options: Options
    weights: Weights
    strict: bool = False
    progress: Progress | None = None
    shapes: Shapes = field(default_factory=Shapes)
    blocks: Blocks = field(default_factory=Blocks)
    suppression: Suppression = field(init=False)
    fallbacks: dict[str, str] = field(default_factory=dict)
    """Nodes that the reference implementation computes, and why."""
    driven: dict[str, str] = field(default_factory=dict)
    """Loops of which the host runs each iteration by itself, and why."""

    def __post_init__(self) -> None:
        self.suppression = Suppression(self.options)


@dataclass(frozen=True, slots=True)
class Request:
    """How one run is to be done."""

    n_threads: int | None = None
    watch: Watch | None = None
    watch_node: Callable[[Node], Any] | None = None
    watch_segment: Callable[[Segment], object] | None = None
    """Is told of each segment before it runs."""
    out: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Memory for results, where a kernel writes them directly."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Nodes from `start` to `stop` for inputs of known shapes; `node` is what has to be evaluated behind them."""

    plan: Plan
    start: int
    stop: int
    node: Node | None
    reason: str = ""
    """Why that node is not compiled."""
