"""`If`, `Loop` and `Scan` driven by the host: it decides, counts and stacks; the bodies are graphs that `run` runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from polyc.diagnostics import ArgumentError, Diagnostic, PolycError
from polyc.frontends.onnx.control import ScanPlan, stays_true
from polyc.frontends.onnx.element_types import numpy_type
from polyc.frontends.onnx.graph import Graph, Node, Port, node_span
from polyc.frontends.onnx.steps import FIRST_STEPS, MOST_STEPS, find_steps, steps_limit
from polyc.onnx.growing import Growth, Parts, take_out_growing
from polyc.runtime.memory import check_memory

Values = Mapping[str, Any]
Run = Callable[[Graph, Values], Sequence[Any]]
"""Results of a graph for its inputs and what it takes from around it, by name."""
Split = Callable[[Graph], tuple[Graph, Mapping[int, Growth]]]
Steps = Callable[[Node, Graph, tuple[int, ...], int, Values], "Sequence[Any] | None"]
"""Results of up to so many iterations of a body that hands on some of its results (by number), as `make_steps` says; None where
that cannot be compiled."""

MOST_ITERATIONS = 1 << 36
"""Of a loop that nothing but its count ends: more take days.  Loops with a condition often have the largest count there is."""
_NO_LIMIT = 1 << 62
DRIVEN = frozenset({"If", "Loop", "Scan"})


def is_driven(node: Node) -> bool:
    """Whether `run_control` runs this node, or does what it does."""
    return (not node.domain and node.op in DRIVEN) or find_steps(node) is not None


def run_control(node: Node, values: Values, run: Run, split: Split = take_out_growing, steps: Steps | None = None) -> list[Any]:
    """The outputs of an `If`, `Loop` or `Scan`, in order.  `values` has what it and its subgraphs read, by name; `split` is
    `take_out_growing`, or remembers what that found; `steps` makes several iterations of a `Loop` at once.

    Raises ArgumentError (``argument-onnx-control``) for conditions, counts and sequences that do not fit the node."""
    match node.op:
        case "If":
            condition = _scalar(node, values, node.inputs[0], "condition")
            branch: Graph = node.attributes["then_branch" if condition else "else_branch"]
            return list(run(branch, _outside(branch, values)))
        case "Loop":
            return _run_loop(node, values, run, split, steps)
        case "Scan":
            return _run_scan_of_batches(node, values, run) if node.version < 9 else _run_scan(node, values, run)
    raise AssertionError(node.op)


def _outside(body: Graph, values: Values) -> dict[str, Any]:
    return {n: values[n] for n in body.captures}


def _run_loop(node: Node, values: Values, run: Run, split: Split, steps: Steps | None) -> list[Any]:
    body: Graph = node.attributes["body"]
    limit, start, *initial = (*node.inputs, "", "")[: max(2, len(node.inputs))]
    n_most = int(_scalar(node, values, limit, "trip count")) if limit else None
    goes_on = bool(_scalar(node, values, start, "condition")) if start else True
    state: list[Any] = [values[n] for n in initial]
    _check_body(node, body, len(state) + 2, len(state) + 1)
    if goes_on and n_most is not None and n_most > MOST_ITERATIONS and stays_true(body):
        raise _error(node, f"{node.label} has {n_most} iterations, and its condition is never false")
    body, growths = split(body)
    names = [p.name for p in body.inputs]
    outside = _outside(body, values)
    stacks = [_Stack(node, p) for p in body.outputs[1 + len(state) :]]
    growing = {k: Parts(node.label, growth, np.asarray(state[k])) for k, growth in growths.items()}
    carried = tuple(1 + j for j in range(len(state)) if j not in growing)
    n_limit = np.asarray(_NO_LIMIT if n_most is None else n_most, np.int64)
    limit_name = steps_limit(node, body)
    is_counted = stays_true(body)
    k = 0
    while goes_on and (n_most is None or k < n_most):
        kept = [state[j - 1] for j in carried]
        given = {**outside, **dict(zip(names, (np.asarray(k, np.int64), np.asarray(True), *kept), strict=True))}
        found = None
        if steps is not None and n_most != 1:
            may_be_short = n_most is None or n_most <= FIRST_STEPS or not is_counted
            n_steps = FIRST_STEPS if k == 0 and may_be_short else MOST_STEPS
            found = steps(node, body, carried, n_steps, {**given, limit_name: n_limit})
        if found is None:
            steps = None
            condition, *results = run(body, given)
            rows, count = [() if j in carried else np.asarray(r)[None] for j, r in enumerate(results, 1)], 1
        else:
            n_made, condition, *results = found
            count = int(n_made)
            rows = [() if j in carried else r[:count] for j, r in enumerate(results, 1)]
        goes_on = bool(_one(node, condition, "condition"))
        state = results[: len(state)]
        for j, parts in growing.items():
            for row in rows[j]:
                try:
                    parts.add(np.asarray(row))
                except ValueError as error:
                    raise _error(node, f"{body.outputs[1 + j].name} in {node.label}: {error}") from None
        for stack, more in zip(stacks, rows[len(state) :], strict=True):
            stack.extend(more)
        k += count
    for j, parts in growing.items():
        state[j] = parts.joined()
    return [*state, *(s.stacked(0) for s in stacks)]


def _run_scan(node: Node, values: Values, run: Run) -> list[Any]:
    body: Graph = node.attributes["body"]
    plan = ScanPlan.of(node)
    if plan.n_states < 0 or len(plan.output_axes) + plan.n_states != len(body.outputs):
        raise _error(node, f"{node.label} has fewer inputs than it scans")
    state = [values[n] for n in node.inputs[: plan.n_states]]
    scanned = [np.asarray(values[n]) for n in node.inputs[plan.n_states :]]
    _check_body(node, body, len(node.inputs), plan.n_states)
    moved = []
    for x, axis, is_reversed in zip(scanned, plan.input_axes, plan.input_reversed, strict=True):
        if not -x.ndim <= axis < x.ndim:
            raise _error(node, f"{node.label} scans axis {axis} of a tensor of rank {x.ndim}")
        x = np.moveaxis(x, axis, 0)
        moved.append(x[::-1] if is_reversed else x)
    lengths = {len(x) for x in moved}
    if len(lengths) > 1:
        raise _error(node, f"{node.label} scans sequences of different lengths: {', '.join(map(str, sorted(lengths)))}")
    stacks = [_Stack(node, p) for p in body.outputs[plan.n_states :]]
    names = [p.name for p in body.inputs]
    outside = _outside(body, values)
    for k in range(lengths.pop() if lengths else 0):
        given = (*state, *(np.asarray(x[k], order="C") for x in moved))
        results = list(run(body, {**outside, **dict(zip(names, given, strict=True))}))
        state = results[: plan.n_states]
        for stack, part in zip(stacks, results[plan.n_states :], strict=True):
            stack.add(part)
    for stack, is_reversed in zip(stacks, plan.output_reversed, strict=True):
        if is_reversed:
            stack.parts.reverse()
    return [*state, *(s.stacked(axis) for s, axis in zip(stacks, plan.output_axes, strict=True))]


def _run_scan_of_batches(node: Node, values: Values, run: Run) -> list[Any]:
    """`Scan` of operator set 8: a batch of sequences, each of its own length, along axes 0 and 1."""
    body: Graph = node.attributes["body"]
    n_scans = int(node.attributes["num_scan_inputs"])
    lengths_name, *inputs = node.inputs
    n_states = len(inputs) - n_scans
    _check_body(node, body, len(inputs), n_states)
    directions = node.attributes.get("directions", (0,) * n_scans)
    arrays = [np.asarray(values[n]) for n in inputs]
    if not arrays or any(a.ndim < (1 if k < n_states else 2) for k, a in enumerate(arrays)) or len(directions) != n_scans:
        raise _error(node, f"{node.label} has inputs without a batch or a sequence axis")
    n_batch, n_most = len(arrays[-1]), arrays[-1].shape[1]
    if any(len(a) != n_batch for a in arrays) or any(a.shape[1] != n_most for a in arrays[n_states:]):
        raise _error(node, f"{node.label} has inputs of different batch sizes or lengths")
    lengths = np.asarray(values[lengths_name]) if lengths_name else np.full(n_batch, n_most)
    if lengths.shape != (n_batch,) or np.any(lengths < 0) or np.any(lengths > n_most):
        raise _error(node, f"{node.label} has sequence lengths that do not fit a batch of {n_batch} and {n_most} elements")
    names = [p.name for p in body.inputs]
    outside = _outside(body, values)
    rows: list[list[Any]] = []
    for b in range(n_batch):
        n = int(lengths[b])
        state = [a[b] for a in arrays[:n_states]]
        stacks = [_Stack(node, p) for p in body.outputs[n_states:]]
        sequences = [a[b, :n][::-1] if d else a[b, :n] for a, d in zip(arrays[n_states:], directions, strict=True)]
        for k in range(n):
            given = (*(np.asarray(s, order="C") for s in state), *(np.asarray(s[k], order="C") for s in sequences))
            results = list(run(body, {**outside, **dict(zip(names, given, strict=True))}))
            state = results[:n_states]
            for stack, part in zip(stacks, results[n_states:], strict=True):
                stack.add(part)
        stacked = [np.asarray(s.stacked(0)) for s in stacks]
        padded = [np.concatenate([s, np.zeros((n_most - n, *s.shape[1:]), s.dtype)]) for s in stacked]
        rows.append([*state, *padded])
    return [np.stack(column) for column in zip(*rows, strict=True)]


class _Stack:
    """Results of the iterations, one beside the other."""

    def __init__(self, node: Node, port: Port) -> None:
        self.node, self.port = node, port
        self.parts: list[np.ndarray] = []
        self.size = 0
        self.checked = 1 << 20
        """Bytes up to which nobody asks for memory."""

    def add(self, part: Any) -> None:
        self.extend(np.asarray(part)[None])

    def extend(self, rows: Any) -> None:
        """Results of several iterations."""
        rows = np.asarray(rows)
        if self.parts and (rows.shape[1:] != self.parts[0].shape[1:] or rows.dtype != self.parts[0].dtype):
            first = self.parts[0]
            message = f"{self.node.label} gives {self.port.name} as {first.dtype}{list(first.shape[1:])} in one iteration"
            raise _error(self.node, f"{message} and as {rows.dtype}{list(rows.shape[1:])} in another")
        self.size += rows.nbytes
        if self.size > self.checked:
            check_memory(f"the result of {self.node.label}", 2 * self.size)
            self.checked = 2 * self.size
        # Its memory may be written again by the next iteration.
        self.parts.append(rows.copy())

    def stacked(self, axis: int) -> np.ndarray:
        if self.parts:
            whole = np.concatenate(self.parts)
            return whole if axis == 0 else np.ascontiguousarray(np.moveaxis(whole, 0, axis))
        shape = [n if isinstance(n, int) else 0 for n in self.port.shape or ()]
        shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, 0)
        return np.zeros(shape, numpy_type(self.port.type) or np.dtype(np.float32))


def _scalar(node: Node, values: Values, name: str, what: str) -> Any:
    return _one(node, values[name], what)


def _one(node: Node, value: Any, what: str) -> Any:
    array = np.asarray(value)
    if array.size != 1:
        raise _error(node, f"the {what} of {node.label} has the shape {list(array.shape)} instead of one element")
    return array.reshape(-1)[0]


def _check_body(node: Node, body: Graph, n_inputs: int, n_outputs: int) -> None:
    if len(body.inputs) != n_inputs or len(body.outputs) < n_outputs:
        message = f"the body of {node.label} has {len(body.inputs)} inputs and {len(body.outputs)} outputs, but needs"
        raise _error(node, f"{message} {n_inputs} inputs and at least {n_outputs} outputs")


def _error(node: Node, message: str) -> PolycError:
    help = "check what flows into the node; onnx.checker says more about its subgraphs"
    return ArgumentError(Diagnostic("argument-onnx-control", message, node_span(node), help))
