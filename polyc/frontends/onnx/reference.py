"""Nodes evaluated by onnx itself: constants folded when a graph is compiled, and what compiled code does not cover."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from polyc.diagnostics import Diagnostic, PolycError, UnsupportedError, suggest_name
from polyc.frontends.onnx.evaluators import EVALUATORS, Suppress, choose_boxes, suppress_boxes
from polyc.frontends.onnx.graph import Graph, Node, node_span
from polyc.frontends.onnx.model import array_from_constant
from polyc.frontends.onnx.registry import find_implementation
from polyc.frontends.onnx.sizes import find_misfit
from polyc.frontends.onnx.type_constraints import check_types

MOST_LAYOUTS = 256
"""Combinations of types and shapes that are remembered for a node."""
_RANDOM = frozenset("RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli".split())


def is_deterministic(node: Node) -> bool:
    """Whether equal inputs give equal outputs, so that the node may be computed once."""
    has_drawn = node.op == "Dropout" and len(node.inputs) > 2
    return not (node.op in _RANDOM or has_drawn or node.has_subgraphs)


class Evaluation:
    """Computes one node: with NumPy (`evaluators`), or by onnx's evaluator of this node alone."""

    def __init__(
        self,
        node: Node,
        function: Callable[[Sequence[Any]], Sequence[Any]],
        *,
        is_bounded: bool = False,
        reason: str | None = None,
    ) -> None:
        self.node = node
        self.is_bounded = is_bounded
        """Whether results are no larger than the inputs, but for a factor."""
        self._function = function
        self._reason = reason
        self._checked: set[tuple[Any, ...]] = set()
        """Element types and shapes that the operator takes."""

    def run(self, values: Mapping[str, Any]) -> list[Any]:
        """The outputs, in order, the missing ones None; `values` has the inputs by name.

        Raises SemanticError for element types that the operator does not take, UnsupportedError for what it cannot do."""
        node = self.node
        inputs = [values[n] if n else None for n in node.inputs]
        layout = tuple([(v.dtype, v.shape) if isinstance(v, np.ndarray) else type(v) for v in inputs])
        if layout not in self._checked:
            check_types(node, inputs)
            misfit = find_misfit(node, inputs)
            if misfit is not None:
                raise self._refuse(values, misfit)
            if len(self._checked) == MOST_LAYOUTS:
                self._checked.clear()
            self._checked.add(layout)
        try:
            with np.errstate(all="ignore"):
                found = self._function(inputs)
        except PolycError:
            raise
        except Exception as error:
            problem = _find_cause(error)
            raise self._refuse(values, f"{type(problem).__name__}: {problem}") from error
        return [as_array(v) if o else None for o, v in zip(node.outputs, found, strict=False)]

    def _refuse(self, values: Mapping[str, Any], why: str) -> UnsupportedError:
        given = ", ".join(_describe(values[n]) for n in self.node.inputs if n)
        message = f"{self.node.label} cannot be computed for {given or 'no inputs'}: {why}"
        if self._reason is not None:
            message = (
                f"{self.node.label} is not compiled: {self._reason}; nor can onnx compute it for {given or 'no inputs'}: {why}"
            )
        help = "check the shapes, types and attributes of the node"
        return UnsupportedError(Diagnostic("unsupported-onnx-evaluation", message, node_span(self.node), help))


def prepare_node(node: Node, graph: Graph, suppress: Suppress = suppress_boxes, reason: str | None = None) -> Evaluation:
    """What computes this node alone, `suppress` the boxes that overlap; raises UnsupportedError where onnx has nothing for it
    either.  `reason`: why polyc does not compile it, which errors begin with."""
    if find_implementation(node.domain, node.op, node.version) is None:
        reason = None  # there is nothing to say but that
    is_own = node.domain in ("", "ai.onnx")
    own: Any = EVALUATORS.get(node.op) if is_own else None
    if is_own and node.op == "NonMaxSuppression":
        own = functools.partial(choose_boxes, suppress=suppress)
    if own is not None:
        return Evaluation(node, functools.partial(own, node), is_bounded=True, reason=reason)
    from onnx.reference import ReferenceEvaluator  # hundreds of modules, which many models do without

    proto = onnx.GraphProto()
    proto.name = "node"
    proto.node.append(node.proto)
    names = list(dict.fromkeys(node.used_names))
    outputs = [n for n in node.outputs if n]
    proto.input.extend(onnx.ValueInfoProto(name=n) for n in names)
    proto.output.extend(onnx.ValueInfoProto(name=n) for n in outputs)
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    model.graph.CopyFrom(proto)
    try:
        evaluator = ReferenceEvaluator(model)
    except Exception as error:
        raise _unsupported(node, reason, str(error)) from error

    def evaluate(inputs: Sequence[Any]) -> list[Any]:
        feed = {n: v for n, v in zip(node.inputs, inputs, strict=True) if n}
        found = dict(zip(outputs, evaluator.run(None, feed), strict=True))
        return [found[o] if o else None for o in node.outputs]

    return Evaluation(node, evaluate, reason=reason)


def _describe(value: Any) -> str:
    """``float32[2, 3]``."""
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__


def _find_cause(error: BaseException) -> BaseException:
    """What an error of the reference implementation was raised from: it hides NumPy's own, which have the sizes."""
    while isinstance(error.__cause__, Exception) and str(error.__cause__):
        error = error.__cause__
    return error


def fold_node(node: Node, graph: Graph, inputs: Sequence[np.ndarray | None]) -> list[Any]:
    """The outputs of a node whose inputs are known."""
    if node.op == "Constant" and not node.domain:
        constant = array_from_constant(node)
        if constant is not None:
            return [constant]
    values = {n: v for n, v in zip(node.inputs, inputs, strict=True) if n}
    return prepare_node(node, graph).run(values)


def as_array(value: Any) -> Any:
    """NumPy scalars, which the evaluator gives at times, as arrays."""
    return np.asarray(value) if isinstance(value, (np.generic, bool, int, float)) else value


def _unsupported(node: Node, reason: str | None, why: str) -> PolycError:
    why = why.split(". Did you recompile")[0]
    if reason is not None:
        message = f"{node.label} is not compiled: {reason}; nor does onnx's reference implementation have it: {why}"
        help = "write it another way, such as in operators of ONNX (docs/onnx_support.md lists what is compiled)"
        return UnsupportedError(Diagnostic("unsupported-onnx-operator", message, node_span(node), help))
    message = f"{node.label} is not known to polyc, nor to onnx: {why}"
    names = {s.name for s in onnx.defs.get_all_schemas() if s.domain == node.domain}
    help = suggest_name(node.op, sorted(names)) or "a newer version of polyc or onnx may know the operator"
    return UnsupportedError(Diagnostic("unsupported-onnx-operator", message, node_span(node), help))
