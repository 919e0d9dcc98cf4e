"""The session: a model that is run like one of onnxruntime, compiled for the shapes of its inputs as they come.

A run goes through *segments* of the graph.  A segment is lowered, partitioned and compiled for the shapes of what it reads
(`plan`), and ends in front of a node that polyc does not compile, or that must know contents which only a run computes.
Such a node is evaluated by onnx's reference implementation.  Most models are one segment.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyc.config import Options, default_options
from polyc.diagnostics import Diagnostic, Remark, UnsupportedError
from polyc.frontends.onnx.builder import Value
from polyc.frontends.onnx.graph import Graph, Node, Port, node_span
from polyc.frontends.onnx.lowering import Lowered, lower_graph, value_of
from polyc.frontends.onnx.model import read_model
from polyc.frontends.onnx.passes import simplify
from polyc.frontends.onnx.reference import prepare_node, run_node
from polyc.frontends.onnx.registry import find_implementation
from polyc.frontends.onnx.trace import may_expand
from polyc.jobs import Progress
from polyc.onnx.feed import check_feed, check_output_names
from polyc.onnx.plan import Plan, make_plan
from polyc.onnx.weights import Weights
from polyc.runtime import threads as runtime_threads

MAX_PLANS = 64
"""Plans that a session keeps; the one used longest ago goes."""
SMALL = 1024
"""Elements of a value up to which its contents may be part of what a plan is made for."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Nodes from `start` to `stop` for inputs of known shapes; `node` is what has to be evaluated behind them."""

    plan: Plan
    start: int
    stop: int
    node: Node | None


class Session:
    """A loaded model.

    ``run(output_names, feed)`` gives the outputs as NumPy arrays; `get_inputs` and `get_outputs` tell names, shapes and types.
    The first run with inputs of new shapes compiles for them.  Runs from several threads are allowed.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        strict: bool = False,
        threads: int | None = None,
        options: Options | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._original = graph
        self._graph = simplify(graph)
        self._strict = strict
        self._threads = threads
        self._options = options or default_options()
        self._progress = progress
        self._weights = Weights(self._options)
        self._segments: OrderedDict[Any, Segment] = OrderedDict()
        self._pinned: dict[int, set[str]] = {}
        self._evaluators: dict[int, Any] = {}
        self._fallbacks: dict[str, str] = {}
        self._live: dict[int, tuple[str, ...]] = {}
        self._lock = threading.RLock()
        self._inputs = tuple(p for p in graph.inputs if p.name not in graph.constants)
        self._defaults = {p.name: p for p in graph.inputs if p.name in graph.constants}
        if strict:
            _require_functions(self._graph)

    def get_inputs(self) -> list[Port]:
        """The inputs that have no default: `name`, `shape` (a number, a name or None for each dimension) and `type`."""
        return list(self._inputs)

    def get_outputs(self) -> list[Port]:
        """The outputs, described as in `get_inputs`."""
        return list(self._original.outputs)

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What was decided so far; one remark lists all nodes that onnx's reference implementation computes."""
        if not self._fallbacks:
            return ()
        listed = "; ".join(f"{label} ({reason})" for label, reason in self._fallbacks.items())
        return (Remark("missed", "onnx", f"computed by onnx's reference implementation: {listed}"),)

    def run(self, output_names: Sequence[str] | None, feed: Mapping[str, Any], run_options: object = None) -> list[Any]:
        """The outputs named (None: all), in order, for inputs by name.

        Raises ArgumentError or ArgumentTypeError where inputs are missing, unknown, or of another type or rank than the model
        says, and whatever goes wrong in a node."""
        names = check_output_names(self._original.outputs, output_names)
        env: dict[str, Any] = check_feed(self._inputs, self._defaults, feed)
        for name in self._defaults:
            env.setdefault(name, self._graph.constants[name])
        with nullcontext() if self._threads is None else runtime_threads.limited_to(self._threads):
            self._execute(env)
        return [self._output(env, n) for n in names]

    def _output(self, env: Mapping[str, Any], name: str) -> Any:
        value = env.get(name)
        return self._graph.constants[name].copy() if value is None and name in self._graph.constants else value

    def _execute(self, env: dict[str, Any]) -> None:
        position = 0
        while position < len(self._graph.nodes):
            segment = self._segment(position, env)
            plan = segment.plan
            if plan.steps or plan.results:
                given = {n: as_contiguous(env[n]) for n in plan.inputs}
                env |= plan.run(given)
            position = segment.stop
            if segment.node is not None:
                self._run_node(position, segment.node, env)
                position += 1

    # --- Segments ------------------------------------------------------------------------------------------------------

    def _segment(self, position: int, env: Mapping[str, Any]) -> Segment:
        read = self._read_from(position)
        pinned = self._pinned.get(position, ())
        key = (position, tuple(_describe(env[n], n in pinned) for n in read if n in env))
        found = self._segments.get(key)
        if found is None:
            with self._lock:
                found = self._make_segment(position, env, read)
                pinned = self._pinned.get(position, ())
                key = (position, tuple(_describe(env[n], n in pinned) for n in read if n in env))
                self._segments[key] = found
                while len(self._segments) > MAX_PLANS:
                    self._segments.popitem(last=False)
        return found

    def _make_segment(self, position: int, env: Mapping[str, Any], read: Sequence[str]) -> Segment:
        graph = self._graph
        pinned = self._pinned.setdefault(position, set())
        overridable = self._defaults.keys()
        constants = {n: a for n, a in graph.constants.items() if n not in overridable}
        values = {n: v for n in read if n in env and (v := _outside(n, env[n])) is not None}
        while True:
            known = constants | {n: env[n] for n in pinned}
            lowered = lower_graph(graph, position, values, known, constants.keys())
            more = self._contents_wanted(position, lowered, env) - pinned
            if not more:
                break
            pinned |= more
        node = None
        if lowered.stop < len(graph.nodes):
            if lowered.wanted is None or lowered.stop == position:
                node = graph.nodes[lowered.stop]
                self._note_fallback(node, lowered.reason or f"the contents of {lowered.wanted} are not known")
            else:
                self._pinned.setdefault(lowered.stop, set()).add(lowered.wanted)
        live = [n for n in self._read_from(lowered.stop) if n not in env and n in lowered.values and n not in constants]
        if lowered.wanted is not None and lowered.wanted in lowered.values and lowered.wanted not in env:
            live = list(dict.fromkeys((*live, lowered.wanted)))
        plan = make_plan(lowered, values, live, self._weights, self._options, progress=self._progress)
        return Segment(plan, position, lowered.stop, node)

    def _contents_wanted(self, position: int, lowered: Lowered, env: Mapping[str, Any]) -> set[str]:
        """Values from outside whose contents decide what a node must know; empty where that is computed in a run."""
        if lowered.wanted is None:
            return set()
        makers = {o: n for n in self._graph.nodes[position : lowered.stop] for o in n.outputs if o}
        found: set[str] = set()
        seen: set[str] = set()
        stack = [lowered.wanted]
        while stack:
            name = stack.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in env:
                array = env[name]
                if not isinstance(array, np.ndarray) or array.size > SMALL:
                    return set()
                found.add(name)
            elif name in makers:
                stack += makers[name].used_names
            elif name not in self._graph.constants:
                return set()
        return found

    def _read_from(self, position: int) -> tuple[str, ...]:
        """Names that nodes from `position` on read, or that are outputs, and that none of these nodes makes."""
        found = self._live.get(position)
        if found is None:
            nodes = self._graph.nodes[position:]
            made = {o for n in nodes for o in n.outputs}
            names = dict.fromkeys(n for node in nodes for n in node.used_names)
            names |= dict.fromkeys(p.name for p in self._original.outputs)
            fixed = self._graph.constants.keys() - self._defaults.keys()
            found = self._live[position] = tuple(n for n in names if n not in made and n not in fixed)
        return found

    # --- Nodes that are not compiled -----------------------------------------------------------------------------------

    def _note_fallback(self, node: Node, reason: str) -> None:
        if self._strict:
            message = f"{node.label} is not compiled: {reason}"
            help = "load the model without strict=True to let onnx's reference implementation compute it"
            raise UnsupportedError(Diagnostic("unsupported-onnx-strict", message, node_span(node), help))
        self._fallbacks[node.label] = reason

    def _run_node(self, position: int, node: Node, env: dict[str, Any]) -> None:
        evaluator = self._evaluators.get(position)
        if evaluator is None:
            evaluator = self._evaluators[position] = prepare_node(node, self._graph)
        values = {n: env[n] if n in env else self._graph.constants[n] for n in node.used_names}
        for name, value in zip(node.outputs, run_node(evaluator, node, values), strict=True):
            if name:
                env[name] = value


def load(
    model: Any,
    *,
    strict: bool = False,
    threads: int | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Session:
    """A session of a model: a path, the bytes of a file, or a ``ModelProto``.

    `strict`: an operator that polyc does not compile is an error, instead of being left to onnx's reference implementation.
    `threads`: at most so many in each run (None: as `polyc.set_num_threads` says).  `progress` is told how many of how many
    kernels are done while a model is compiled, at its first run.

    Raises `PolycError` for what is no model."""
    return Session(read_model(model), strict=strict, threads=threads, options=options, progress=progress)


def _require_functions(graph: Graph) -> None:
    """UnsupportedError for all nodes at once whose operators polyc has no function for."""
    errors = []
    for node in graph.nodes:
        if find_implementation(node.domain, node.op, node.version) is None and not may_expand(node):
            message = f"{node.label} is not compiled: polyc has no function for it"
            help = "load the model without strict=True to let onnx's reference implementation compute it"
            errors.append(Diagnostic("unsupported-onnx-strict", message, node_span(node), help))
    if errors:
        raise UnsupportedError(*errors)


def _outside(name: str, value: Any) -> Value | None:
    """A value from outside as compiled code sees it; None for what it cannot read."""
    if not isinstance(value, np.ndarray):
        return None
    found = value_of(name, value)
    return None if found is None else Value(name, found.dtype, found.shape)


def _describe(value: Any, with_contents: bool) -> Any:
    """The part of a plan's key that one value is."""
    if not isinstance(value, np.ndarray):
        return type(value).__name__
    key = (value.dtype, value.shape)
    return (*key, value.tobytes()) if with_contents else key


def as_contiguous(array: np.ndarray) -> np.ndarray:
    """The array in C order at an address that its element type allows."""
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.require(array, None, ("C", "A"))


__all__ = ["Session", "load"]
