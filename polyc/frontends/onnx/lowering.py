"""A graph for inputs of given shapes → fragments (what nodes compute) and values, as far as they can be told beforehand.

The shapes of all inputs are numbers here, so nearly everything that computes shapes has known contents and is folded on the
host.  Lowering stops where a shape depends on data: in front of a node that must know the contents of a value which is only
computed when the plan runs, and in front of one that polyc does not compile.  Whoever runs the plan computes what is wanted
and lowers the rest, with what is known then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from polyc.config import debugging
from polyc.diagnostics import PolycError, UnsupportedError
from polyc.frontends.onnx import families
from polyc.frontends.onnx.builder import NeedsValue, Value
from polyc.frontends.onnx.clusters import build_cluster
from polyc.frontends.onnx.control import expand_control
from polyc.frontends.onnx.graph import Graph, Node
from polyc.frontends.onnx.reference import fold_node, is_deterministic
from polyc.frontends.onnx.registry import Unsupported
from polyc.frontends.onnx.sizes import estimate_elements
from polyc.frontends.onnx.steps import find_steps, trace_steps
from polyc.frontends.onnx.trace import Fragment, expand_function, trace_node
from polyc.frontends.onnx.wholes import compute_fragment
from polyc.ir.expr import evaluate
from polyc.ir.interpret import interpret
from polyc.ir.traced import has_traced, plain_array
from polyc.ir.types import I64, from_numpy

MOST_FOLDED = 1 << 22
"""Elements of a folded result up to which it replaces its node."""
MOST_WANTED = 1 << 10
"""Elements of an input of a function up to which its contents may be asked for."""
MOST_INTERPRETED = 1 << 14
"""Elements of a folded result up to which the interpreter computes it."""
MAX_DEPTH = 8
"""Functions inside of functions."""


@dataclass(slots=True)
class Lowered:
    """What `lower_graph` found.  `stop` is the position of the first node that it did not take, or the number of nodes.

    `wanted` is the value whose contents are missing in front of that node, `reason` why the node is not compiled."""

    values: dict[str, Value]
    fragments: list[Fragment] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    """Known tensors that fragments may read: weights, tables, what was folded."""
    stop: int = 0
    wanted: str | None = None
    reason: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)


def value_of(name: str, array: np.ndarray, is_literal: bool = False) -> Value | None:
    """A tensor with known contents; None for an element type that compiled code has none for."""
    dtype = I64 if has_traced(array) else from_numpy(array.dtype)
    return None if dtype is None else Value(name, dtype, array.shape, array, is_literal and array.size == 1)


def lower_graph(
    graph: Graph,
    start: int,
    given: Mapping[str, Value],
    known: Mapping[str, np.ndarray],
    literals: Collection[str] = (),
    refused: Mapping[str, str] | None = None,
) -> Lowered:
    """Lower `graph` from node `start` on.

    `given` are values from outside (inputs, and what earlier nodes have computed), `known` contents that are the same in every
    run of the plan; those named in `literals` are the same in every plan.  Nodes that `refused` has, by their labels and with
    the reason, are left out."""
    families.load()
    state = Lowered(dict(given), constants=dict(known), refused=refused or {})
    for name, array in known.items():
        value = value_of(name, array, name in literals)
        if value is not None:
            state.values[name] = value
    fixed = set(literals)
    for position in range(start, len(graph.nodes)):
        state.stop = position
        if not _lower_node(graph, graph.nodes[position], state, fixed, 0):
            return state
    state.stop = len(graph.nodes)
    return state


def _lower_node(graph: Graph, node: Node, state: Lowered, fixed: set[str], depth: int) -> bool:
    """Take one node; False where it stops the plan."""
    names = list(node.used_names)
    missing = [n for n in names if n not in state.values and n not in state.constants]
    if missing:
        state.reason = f"{missing[0]} is no tensor of numbers"
        return False
    arrays = [state.constants.get(n) if n else None for n in node.inputs]
    if (
        is_deterministic(node)
        and all(a is not None for a, n in zip(arrays, node.inputs, strict=True) if n)
        and (estimate_elements(node, [plain_array(a) if has_traced(a) else a for a in arrays]) or 0) <= MOST_FOLDED
    ):
        is_traced = any(has_traced(a) for a in arrays)
        found = _fold_traced(node, state) if is_traced else _fold_own(node, state)
        if found is None and not is_traced:
            try:
                found = fold_node(node, graph, arrays)
            except UnsupportedError:  # onnx does not know it
                found = None
        if found is not None and all(isinstance(a, np.ndarray) and a.size <= MOST_FOLDED for a in found if a is not None):
            is_fixed = all(n in fixed for n in names)
            for name, array in zip(node.outputs, found, strict=True):
                if name and array is not None:
                    _keep(state, name, array, is_fixed, fixed)
            return True
    if node.label in state.refused:
        state.reason = state.refused[node.label]
        return False
    try:
        inputs = {n: _as_tensor(state.values[n]) for n in node.inputs if n in state.values}
        is_loop = find_steps(node) is not None
        fragment = _trace_loop(node, inputs, state, fixed) if is_loop else trace_node(node, inputs)
    except NeedsValue as need:
        state.wanted = need.name
        return False
    except Unsupported as reason:
        return _lower_body(graph, node, state, fixed, depth, str(reason))
    except PolycError:
        raise
    except KeyError as error:  # an input of a type that compiled code has none for
        return _lower_body(graph, node, state, fixed, depth, f"{error} is no tensor that compiled code can read")
    except Exception as error:  # what evaluates a malformed node says what is wrong with it
        if debugging():
            raise
        return _lower_body(graph, node, state, fixed, depth, f"{type(error).__name__}: {error}")
    state.fragments.append(fragment)
    for name, array in fragment.constants.items():
        _keep(state, name, array, True, fixed)
    for t in fragment.tensors:
        extents = tuple(evaluate(e, {}) for e in t.shape or ())
        state.values[t.name] = Value(t.name, t.dtype, extents)
    for value in fragment.outputs:
        if value.source is not None:
            value = replace(value, source=state.values[value.source.name].source or value.source)
        state.values[value.name] = value
        if value.known is not None:
            _keep(state, value.name, value.known, True, fixed)
        elif value.source is not None and value.source.name in state.constants:
            array = state.constants[value.source.name].reshape(value.shape)
            _keep(state, value.name, array, value.source.name in fixed, fixed)
    return True


def _fold_own(node: Node, state: Lowered) -> list[np.ndarray | None] | None:
    """The outputs of a node whose inputs are known, by polyc's own definition of it; None where they are many, or rounded to 16
    bits, or where there is no definition.

    The interpreter of programs computes them, as it is there: onnx's evaluator takes 15 MiB and a tenth of a second."""
    inputs = {n: state.values[n] for n in node.inputs if n in state.values}
    if any(v.dtype.is_storage for v in inputs.values()):
        return None
    try:
        fragment = trace_node(node, inputs)
        if any(t.dtype.is_storage for t in fragment.tensors) or any(v.size > MOST_INTERPRETED for v in fragment.outputs):
            return None
        values = state.values | {v.name: v for v in fragment.outputs}
        known = dict(state.constants) | dict(fragment.constants)
        for name, array in fragment.constants.items():
            table = value_of(name, array)
            if table is not None:
                values[name] = table
        made = {t.name for t in fragment.tensors}
        if fragment.statements:
            cluster = build_cluster([fragment], values, made, known)
            feed = {}
            for parameter, name in zip(cluster.program.parameters, cluster.inputs, strict=True):
                shape = tuple(evaluate(e, {}) for e in cluster.program.tensor(parameter).shape or ())
                feed[parameter] = known[name].reshape(shape)
            with np.errstate(all="ignore"):
                results = interpret(cluster.program, feed)
            known |= {n: a for n, a in zip(cluster.outputs, results.values(), strict=True)}
        found: dict[str, np.ndarray] = {}
        for v in fragment.outputs:
            array = v.known if v.known is not None else known[v.name if v.source is None else v.source.name]
            found[v.name] = array.reshape(v.shape)
    except (NeedsValue, Unsupported, PolycError, KeyError):  # not covered, or wrong: the evaluator, or a run, tells
        return None
    except Exception:  # a malformed node
        if debugging():
            raise
        return None
    return [found.get(o) for o in node.outputs]


def _fold_traced(node: Node, state: Lowered) -> list[np.ndarray | None] | None:
    """`_fold_own` where contents are traced whole numbers."""
    inputs = {n: state.values[n] for n in node.inputs if n in state.values}
    try:
        found = compute_fragment(trace_node(node, inputs), state.constants)
    except (NeedsValue, Unsupported, PolycError, KeyError):
        return None
    except Exception:  # a malformed node
        if debugging():
            raise
        return None
    return None if found is None else [found.get(o) for o in node.outputs]


def _as_tensor(value: Value) -> Value:
    """A value as a tensor of its own: a view is read in its own shape, and `clusters` sees what memory that is."""
    return value if value.source is None else replace(value, source=None)


def _lower_body(graph: Graph, node: Node, state: Lowered, fixed: set[str], depth: int, reason: str) -> bool:
    """Take the nodes that stand for one that is no operator of polyc's: a function's body, or that of a loop or branch."""
    try:
        body = expand_control(node, state.constants.get, lambda n: _shape(state, n))
        if body is None and depth < MAX_DEPTH and not node.has_subgraphs:
            body = expand_function(node, state.values, graph)
    except PolycError:
        raise
    except Exception as error:  # a malformed node, as above
        if debugging():
            raise
        body, reason = None, f"{type(error).__name__}: {error}"
    if body is None:
        state.reason = reason
        if node.op == "If" and not node.domain and node.inputs[0] in state.values:
            state.wanted = node.inputs[0]  # the branch that is taken is compiled with what is behind it
        return False
    before = len(state.fragments)
    for inner in body:
        if not _lower_node(graph, inner, state, fixed, depth + 1):
            del state.fragments[before:]
            state.reason = state.reason or reason
            if any(state.wanted in n.outputs for n in body):  # nobody will compute it: what it comes from must be known
                state.wanted = _find_origin(node, body, state)
            return False
    return True


def _trace_loop(node: Node, inputs: Mapping[str, Value], state: Lowered, fixed: Collection[str]) -> Fragment:
    """The fragment of iterations of a loop (`steps`), whose body is lowered as any graph is, with a condition that holds."""
    body: Graph = node.attributes["body"]
    changing = {node.inputs[0], *(p.name for p in body.inputs[2:])}
    condition = body.inputs[1].name
    own = {n: a for n, a in body.constants.items() if n not in {p.name for p in body.inputs}}
    known = {n: v.known for n, v in inputs.items() if v.known is not None and n not in changing}
    known |= own | {condition: np.asarray(True)}
    literals = {n for n in known if n in fixed} | own.keys() | {condition}
    inner = lower_graph(body, 0, {n: inputs[n] for n in node.inputs if n not in known}, known, literals, state.refused)
    if inner.stop == len(body.nodes):
        return trace_steps(node, inputs, inner)
    stopping = body.nodes[inner.stop]
    if inner.wanted is None:
        reason = "is run by the host" if stopping.has_subgraphs else f"is not compiled: {inner.reason}"
        raise Unsupported(f"{stopping.label} in its body {reason}")
    origin = _find_origin(node, body.nodes[: inner.stop], inner)
    if origin is None or origin in changing:
        raise Unsupported(f"{stopping.label} in its body needs the contents of {inner.wanted}, which an iteration computes")
    raise NeedsValue(origin)


def _find_origin(node: Node, body: Sequence[Node], state: Lowered) -> str | None:
    """An input of `node` whose contents have to be known for those of `state.wanted`, a value of its body, to be; None where
    one of them is large."""
    makers = {o: n for n in body for o in n.outputs if o}
    origins: list[str] = []
    seen: set[str] = set()
    stack = [state.wanted] if state.wanted else []
    while stack:
        name = stack.pop()
        if name in seen or name in state.constants:
            continue
        seen.add(name)
        if name in makers:
            stack += makers[name].used_names
        elif name in node.inputs:
            origins.append(name)
    are_small = all(n in state.values and state.values[n].size <= MOST_WANTED for n in origins)
    return origins[0] if origins and are_small else None


def _shape(state: Lowered, name: str) -> tuple[int, ...] | None:
    value, array = state.values.get(name), state.constants.get(name)
    return value.shape if value is not None else None if array is None else array.shape


def _keep(state: Lowered, name: str, array: np.ndarray, is_fixed: bool, fixed: set[str]) -> None:
    state.constants[name] = array
    value = value_of(name, array, is_fixed)
    if value is not None:
        state.values[name] = value
    if is_fixed:
        fixed.add(name)
