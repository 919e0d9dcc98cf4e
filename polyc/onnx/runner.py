"""Runs a graph for whatever shapes its inputs come in.

A run goes through *segments* of the graph.  A segment is lowered, partitioned and compiled for the shapes of what it reads
(`plan`), and ends in front of a node that polyc does not compile, or that must know contents which only a run computes.
Loops and branches are driven by the host, their bodies are graphs with runners of their own; what is left is evaluated by
onnx's reference implementation.  Most models are one segment.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np

from polyc.config import debugging
from polyc.diagnostics import (
    BoundsError,
    CompileBudgetError,
    Diagnostic,
    InternalError,
    PolycError,
    RangeError,
    SemanticError,
    UnsupportedError,
)
from polyc.frontends.onnx.builder import Value
from polyc.frontends.onnx.graph import Graph, Node, Port, node_span
from polyc.frontends.onnx.lowering import Lowered, lower_graph
from polyc.frontends.onnx.reference import Evaluation, prepare_node
from polyc.frontends.onnx.refusals import declared_values, find_refused, strict_problem
from polyc.frontends.onnx.sizes import estimate_elements
from polyc.frontends.onnx.steps import make_steps
from polyc.log import logger
from polyc.onnx.assembly import Assembly, make_plan
from polyc.onnx.compilation import compile_clusters, make_clusters
from polyc.onnx.direct import DirectPlace
from polyc.onnx.growing import Growth, take_out_growing
from polyc.onnx.iterate import is_driven, run_control
from polyc.onnx.outside import as_contiguous, describe_outside, outside_value
from polyc.onnx.plan import in_graph_names
from polyc.onnx.segments import Env, Request, Segment, Setting
from polyc.onnx.shapes import NotTracedError, Shapes
from polyc.onnx.templates import Extents, Place, Template, Varying, kinds_and_extents
from polyc.runtime import memory

MAX_PLANS = 64
"""Plans that a graph keeps; the one used longest ago goes."""
MOST_DIMENSIONS = 64
SMALL = 1024
"""Elements of a value up to which its contents may be part of what a plan is made for."""
MOST_CONTENTS = 6
"""Plans at one place that differ in contents only; beyond it, nodes that need contents are left to the reference."""

OTHER_EXTENT = 256
"""What undeclared extents are taken for, beside 1, to find out what does not depend on them."""


class Runner:
    """Runs `graph`.  `defaults` are inputs with constants for values: a run may be given others.  `given` are the inputs that
    each run is given, where they are checked against what the graph declares."""

    def __init__(
        self, graph: Graph, setting: Setting, defaults: Collection[str] = (), given: Sequence[str] | None = None
    ) -> None:
        self.graph = graph
        self.given = given
        self.setting = setting
        self.defaults = frozenset(defaults)
        self.constants = {n: a for n, a in graph.constants.items() if n not in self.defaults}
        self._segments: OrderedDict[Any, Segment] = OrderedDict()
        self._direct: dict[int, DirectPlace] = {}
        self._places: dict[Any, Place] = {}
        self._pinned: dict[int, set[str]] = {}
        self._counts: dict[Any, int] = {}
        self._unpinned: set[int] = set()
        self._evaluators: dict[int, Evaluation] = {}
        self._live: dict[int, tuple[str, ...]] = {}
        self._runners: dict[Any, Runner] = {}
        self._growing: dict[int, tuple[Graph, Mapping[int, Growth]]] = {}
        self._refused: dict[str, str] = {}
        self._foreseen: tuple[dict[str, Value], Lowered] | None = None
        self._lock = threading.RLock()

    def run(self, env: Env, request: Request) -> Env:
        """`env` with all values that the graph's outputs and later nodes need; it begins with the inputs."""
        for name in self.defaults:
            env.setdefault(name, self.graph.constants[name])
        position = 0
        is_plain = request.watch is None and request.watch_segment is None and not request.out
        while position < len(self.graph.nodes):
            place = self._direct.get(position) if is_plain else None
            direct = None if place is None else place.find(env)
            if direct is not None and direct.limit == request.n_threads:
                found = direct.run(env)
                if found is not None:
                    env.update(zip(direct.results, found, strict=True))
                    position = direct.stop
                    if direct.node is not None:
                        self._run_node(position, direct.node, env, request)
                        position += 1
                    continue
            segment = self._segment(position, env)
            plan = segment.plan
            if request.watch_segment is not None:
                request.watch_segment(segment)
            if plan.steps or plan.results:
                given = {n: as_contiguous(env[n]) for n in plan.inputs}
                results = plan.run(given, request.watch, request.n_threads, request.out)
                if is_plain and not plan.is_indirect:
                    self._learn_direct(segment, env, request.n_threads)
                env |= results
            position = segment.stop
            if segment.node is not None:
                self._run_node(position, segment.node, env, request)
                position += 1
        return env

    def run_whole(self, feed: Any, n_threads: int | None) -> list[Any] | None:
        """All outputs, for inputs like those of an earlier run; None where this run has to go the long way."""
        place = self._direct.get(0)
        if place is None or self.defaults or type(feed) is not dict:
            return None
        direct = place.find(feed)
        if direct is None or direct.node is not None or direct.stop < len(self.graph.nodes):
            return None
        if len(feed) != len(direct.names) or direct.limit != n_threads:
            return None
        if direct.results != tuple(p.name for p in self.graph.outputs):
            return None
        found = direct.run(feed)
        return None if found is None else list(found)

    def _learn_direct(self, segment: Segment, env: Env, n_threads: int | None) -> None:
        """Let compiled code make runs of this segment, where types, layouts and the contents of small values decide what is
        run."""
        start = segment.start
        pinned = tuple(sorted(self._pinned.get(start, ())))
        place = self._direct.get(start)
        if place is None or place.pinned != pinned:
            place = self._direct[start] = DirectPlace(pinned)
        names = dict.fromkeys(n for n in self._read_from(start) if n in env)
        if start == 0 and self.given is not None:
            names = dict.fromkeys((*self.given, *names))
        made = segment.plan.results
        results = dict.fromkeys((*(p.name for p in self.graph.outputs if p.name in made), *made))
        if names and results:
            place.learn(segment.plan, env, tuple(names), tuple(results), segment.stop, segment.node, n_threads)

    def outputs(self, env: Env) -> list[Any]:
        """The results of a run, in order."""
        return [env[p.name] if p.name in env else self.graph.constants[p.name] for p in self.graph.outputs]

    def foresee(self, ports: Collection[Port]) -> list[Diagnostic]:
        """What `strict` can say of the graph before it runs, of all nodes at once.

        Extents that are not declared are tried with two values; what is refused for both, for the same reason, does not
        depend on them."""
        literals = self.constants.keys()
        try:
            values = declared_values(ports, 1)
            refused, lowered = find_refused(self.graph, 0, values, self.constants, literals)
            if not refused and lowered.stop == len(self.graph.nodes):
                self._foreseen = values, lowered  # the first run is often for these very shapes
            if refused and any(not isinstance(d, int) for p in ports for d in p.shape or ()):
                other, _ = find_refused(self.graph, 0, declared_values(ports, OTHER_EXTENT), self.constants, literals)
                refused = {n: r for n, r in refused.items() if other.get(n) == r}
        except PolycError:  # a run says it, for shapes that are those of its inputs
            return []
        return [strict_problem(n, r) for n, r in refused.items()]

    def _take_foreseen(self, position: int, values: Mapping[str, Value], pinned: Collection[str]) -> Lowered | None:
        """What `foresee` has lowered, for the run that it is right for."""
        found, self._foreseen = self._foreseen, None
        if found is None or position or pinned or self._refused or found[0].keys() != values.keys():
            return None
        same = all(v.shape == values[n].shape and v.dtype == values[n].dtype for n, v in found[0].items())
        return found[1] if same else None

    def segments(self) -> list[Segment]:
        """All segments that were made, of the graphs of loops and branches too."""
        return [*self._segments.values(), *(s for r in self._runners.values() for s in r.segments())]

    # --- Segments ------------------------------------------------------------------------------------------------------

    def _segment(self, position: int, env: Env) -> Segment:
        read = self._read_from(position)
        found = self._segments.get(self._key(position, read, env))
        if found is None:
            with self._lock:
                found = self._segments.get(self._key(position, read, env))  # another thread may have been here
                if found is None:
                    found = self._place_segment(position, env, read)
                    self._segments[self._key(position, read, env)] = found
                    while len(self._segments) > MAX_PLANS:
                        self._segments.popitem(last=False)
        return found

    def _key(self, position: int, read: Sequence[str], env: Env) -> Any:
        pinned = self._pinned.get(position, ())
        return (position, tuple(describe_outside(env[n], n in pinned) for n in read if n in env))

    def _place_segment(self, position: int, env: Env, read: Sequence[str]) -> Segment:
        """A segment by a template where there is one for these shapes, or one can be made; else by itself."""
        n_before = self.setting.shapes.template_from
        kinds, extents = kinds_and_extents(env, read)
        pinned = {n: env[n].tobytes() for n in self._pinned.get(position, ()) if n in env}
        place = self._places.setdefault((position, kinds, tuple(sorted(pinned.items()))), Place())
        found = place.find(extents)
        if found is not None:
            return Segment(found[1], position, found[0].stop, found[0].node)
        varying = None if n_before is None else place.see(extents, n_before)
        if varying is not None:
            template = self._make_template(position, env, read, varying, extents)
            if template is not None:
                place.templates.append(template)
                return Segment(template.first, position, template.stop, template.node)
            place.n_attempts += 1
        return self._make_segment(position, env, read)

    def _make_template(
        self, position: int, env: Env, read: Sequence[str], varying: Varying, extents: Extents
    ) -> Template | None:
        """A template for the shapes of `env`; None where shapes are no arithmetic of sizes, or not all can be compiled."""
        trace, numbers = varying.trace(extents)
        values, rest = {}, iter(numbers)
        for n in read:
            if n in env and isinstance(env[n], np.ndarray):
                shape = tuple(next(rest) for _ in env[n].shape)
                v = outside_value(n, env[n])
                if v is not None:
                    values[n] = replace(v, shape=shape)
        known = self.constants | {n: env[n] for n in self._pinned.get(position, ()) if n in env}
        nodes, setting = self.graph.nodes, self.setting
        try:
            lowered = lower_graph(self.graph, position, values, known, self.constants.keys(), self._refused)
            node = nodes[lowered.stop] if lowered.stop < len(nodes) else None
            is_known = node is None or is_driven(node) or node.label in self.setting.fallbacks
            if lowered.wanted is not None or not is_known:
                return None
            live = self._live_behind(lowered, env)
            self._check_memory(lowered)
            clusters = make_clusters(lowered, live)
            choices, compiled = compile_clusters(clusters, setting.options, None, setting.progress, setting.shapes)
            assembly = Assembly(lowered, values, live, clusters, choices, compiled, setting.weights)
            template = Template(varying, trace, assembly, lowered.stop, node, setting.blocks)
            setting.shapes.keep_tried(True)
            return template
        except (PolycError, NotTracedError) as error:  # what is wrong with these shapes, they are told as others are
            logger.info("onnx: no template at node %d: %s", position, error)
            return None
        finally:
            setting.shapes.keep_tried(False)

    def _live_behind(self, lowered: Lowered, env: Env) -> list[str]:
        """Values that were lowered and that nodes behind them, or results, need."""
        names = self._read_from(lowered.stop)
        return [n for n in names if n not in env and n in lowered.values and n not in self.constants]

    @staticmethod
    def _check_memory(lowered: Lowered) -> None:
        for fragment in lowered.fragments:
            for value in fragment.outputs:
                memory.check_memory(f"the result of {fragment.node.label}", value.size * value.dtype.itemsize)
                if value.rank > MOST_DIMENSIONS:
                    message = f"the result of {fragment.node.label} has {value.rank} dimensions, {MOST_DIMENSIONS} are the most"
                    help = "reshape it to fewer"
                    raise SemanticError(Diagnostic("semantic-onnx-shape", message, node_span(fragment.node), help))

    def _make_segment(self, position: int, env: Env, read: Sequence[str]) -> Segment:
        graph = self.graph
        pinned = self._pinned.setdefault(position, set())
        values = {n: v for n in read if n in env and (v := outside_value(n, env[n])) is not None}
        layout = (position, tuple(describe_outside(env[n], False) for n in read if n in env))
        self._counts[layout] = count = self._counts.get(layout, 0) + 1
        if count > MOST_CONTENTS:  # contents differ from run to run: nothing is made for them any more, for no shapes
            self._unpinned.add(position)
            pinned.clear()
        may_pin = position not in self._unpinned
        while True:
            known = self.constants | {n: env[n] for n in pinned}
            lowered = self._take_foreseen(position, values, pinned)
            if lowered is None:
                lowered = lower_graph(graph, position, values, known, self.constants.keys(), self._refused)
            more = self._contents_wanted(position, lowered, env) - pinned if may_pin else set()
            if not more:
                break
            pinned |= more
        node, reason = None, ""
        if lowered.stop < len(graph.nodes):
            stopping = graph.nodes[lowered.stop]
            if lowered.wanted is None or lowered.stop == position or not may_pin:
                node = stopping
                reason = lowered.reason or f"it needs the contents of {lowered.wanted}"
                if not is_driven(node):
                    if self.setting.strict:
                        others, _ = find_refused(graph, position, values, known, self.constants.keys())
                        raise UnsupportedError(*(strict_problem(n, r) for n, r in {node: reason, **others}.items()))
                    self.setting.fallbacks[node.label] = reason
            else:
                self._pinned.setdefault(lowered.stop, set()).add(lowered.wanted)
        live = self._live_behind(lowered, env)
        if lowered.wanted is not None and lowered.wanted in lowered.values and lowered.wanted not in env:
            live = list(dict.fromkeys((*live, lowered.wanted)))
        self._check_memory(lowered)
        setting = self.setting
        try:
            plan = make_plan(
                lowered,
                values,
                live,
                setting.weights,
                setting.options,
                progress=setting.progress,
                shapes=setting.shapes,
                blocks=setting.blocks,
            )
        except (InternalError, UnsupportedError, CompileBudgetError) as error:
            if debugging() or setting.strict or not self._refuse(lowered, live, error):
                raise
            return self._make_segment(position, env, read)
        except RangeError as error:
            self._raise_range_error(lowered, live, error)
        return Segment(plan, position, lowered.stop, node, reason)

    def _refuse(self, lowered: Lowered, live: Sequence[str], error: PolycError) -> bool:
        """Leave the nodes of clusters that cannot be compiled to the reference from now on; False where all can."""
        before = len(self._refused)
        for cluster in make_clusters(lowered, live):
            try:
                compile_clusters([cluster], self.setting.options, 0, None, Shapes(False))
            except PolycError as problem:
                reason = f"{problem.code}: {problem.diagnostics[0].message}" if problem.diagnostics else problem.code
                self._refused |= dict.fromkeys(cluster.labels, reason)
        return len(self._refused) > before

    def _raise_range_error(self, lowered: Lowered, live: Sequence[str], error: RangeError) -> NoReturn:
        """`error`, which some cluster's program has for these shapes, in the names of the graph."""
        for cluster in make_clusters(lowered, live):
            try:
                compile_clusters([cluster], self.setting.options, 0, None, Shapes(False))
            except RangeError as problem:
                help = "check the shapes of the inputs: an index always leaves a tensor without elements"
                found = [replace(in_graph_names(cluster, d), help=help) for d in problem.diagnostics if d.severity == "error"]
                raise BoundsError(*found) from error
        raise error

    def _contents_wanted(self, position: int, lowered: Lowered, env: Env) -> set[str]:
        """Values from outside whose contents decide what a node must know; empty where that is computed in a run."""
        if lowered.wanted is None:
            return set()
        makers = {o: n for n in self.graph.nodes[position : lowered.stop] for o in n.outputs if o}
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
            elif name not in self.constants:
                return set()
        return found

    def _read_from(self, position: int) -> tuple[str, ...]:
        """Names that nodes from `position` on read, or that are outputs, and that none of these nodes makes."""
        found = self._live.get(position)
        if found is None:
            nodes = self.graph.nodes[position:]
            made = {o for n in nodes for o in n.outputs}
            names = dict.fromkeys(n for node in nodes for n in node.used_names)
            names |= dict.fromkeys(p.name for p in self.graph.outputs)
            found = self._live[position] = tuple(n for n in names if n not in made and n not in self.constants)
        return found

    # --- Nodes that are not compiled -----------------------------------------------------------------------------------

    def _run_node(self, position: int, node: Node, env: Env, request: Request) -> None:
        values = {n: env[n] if n in env else self.graph.constants[n] for n in node.used_names}
        if is_driven(node):
            run, steps = partial(self._run_body, request), partial(self._run_steps, request)
            found = run_control(node, values, run, self._split, steps)
        else:
            evaluator = self._evaluators.get(position)
            if evaluator is None:
                reason = self.setting.fallbacks.get(node.label)
                evaluator = prepare_node(node, self.graph, self.setting.suppression, reason)
                self._evaluators[position] = evaluator
            if not evaluator.is_bounded:
                elements = estimate_elements(node, [values.get(n) for n in node.inputs])
                if elements is not None:
                    memory.check_memory(f"the result of {node.label}", elements)
            if request.watch_node is None:
                found = evaluator.run(values)
            else:
                with request.watch_node(node):
                    found = evaluator.run(values)
        for name, value in zip(node.outputs, found, strict=False):
            if name:
                env[name] = value

    def _split(self, body: Graph) -> tuple[Graph, Mapping[int, Growth]]:
        found = self._growing.get(id(body))
        if found is None:
            found = self._growing.setdefault(id(body), take_out_growing(body))
        return found

    def _run_body(self, request: Request, body: Graph, given: Mapping[str, Any]) -> list[Any]:
        """A graph of an attribute.  What it takes from around it and is a constant there is one in it."""
        runner = self._runner(id(body), lambda: body.within(self.constants))
        env = {n: v for n, v in given.items() if n not in runner.constants}
        return runner.outputs(runner.run(env, replace(request, out={}) if request.out else request))

    def _run_steps(
        self, request: Request, node: Node, body: Graph, carried: Sequence[int], n_steps: int, given: Mapping[str, Any]
    ) -> list[Any] | None:
        """Up to `n_steps` iterations of a loop by compiled code; None where no such code can be made."""
        if self.setting.driven and node.label in self.setting.driven:
            return None
        runner = self._runner((id(body), n_steps), lambda: make_steps(node, body, carried, n_steps, self.constants))
        env = {p.name: given[p.name] for p in runner.graph.inputs if p.name not in runner.constants}
        try:
            segment = runner._segment(0, env)
        except PolycError as error:  # what is wrong with an iteration is told by one that is run by itself
            logger.info("onnx: no steps of %s: %s", node.label, error)
            return None
        if segment.node is not None:
            self.setting.driven[node.label] = segment.reason
            return None
        return runner.outputs(runner.run(env, replace(request, out={}) if request.out else request))

    def _runner(self, key: Any, make: Callable[[], Graph]) -> Runner:
        """The runner of a graph inside of this one."""
        found = self._runners.get(key)
        if found is None:
            with self._lock:
                found = self._runners.get(key) or self._runners.setdefault(key, Runner(make(), self.setting))
        return found
