"""Nodes evaluated by onnx itself: constants folded when a graph is compiled, and what compiled code does not cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from polyc.diagnostics import Diagnostic, PolycError, UnsupportedError
from polyc.frontends.onnx.graph import Graph, Node, node_span
from polyc.frontends.onnx.model import array_from_constant
from polyc.frontends.onnx.type_constraints import check_types

if TYPE_CHECKING:
    from onnx.reference import ReferenceEvaluator

_RANDOM = frozenset("RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli".split())


def is_deterministic(node: Node) -> bool:
    """Whether equal inputs give equal outputs, so that the node may be computed once."""
    has_drawn = node.op == "Dropout" and len(node.inputs) > 2
    return not (node.op in _RANDOM or has_drawn or node.has_subgraphs)


def prepare_node(node: Node, graph: Graph) -> ReferenceEvaluator:
    """An evaluator of this node alone; raises UnsupportedError where onnx has none either."""
    from onnx.reference import ReferenceEvaluator  # hundreds of modules, which many models do without

    from polyc.frontends.onnx.evaluators import EVALUATORS

    proto = onnx.GraphProto()
    proto.name = "node"
    proto.node.append(node.proto)
    names = list(dict.fromkeys(node.used_names))
    proto.input.extend(onnx.ValueInfoProto(name=n) for n in names)
    proto.output.extend(onnx.ValueInfoProto(name=n) for n in node.outputs if n)
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    model.graph.CopyFrom(proto)
    try:
        return ReferenceEvaluator(model, new_ops=EVALUATORS)
    except Exception as error:
        raise _unsupported(node, str(error)) from error


def run_node(evaluator: ReferenceEvaluator, node: Node, values: Mapping[str, Any]) -> list[Any]:
    """The outputs of `node`, in order, the missing ones None; `values` has its inputs by name."""
    feed = {n: values[n] for n in node.used_names}
    check_types(node, [values[n] if n else None for n in node.inputs])
    try:
        with np.errstate(all="ignore"):
            found = dict(zip((o for o in node.outputs if o), evaluator.run(None, feed), strict=True))
    except PolycError:
        raise
    except Exception as error:
        given = ", ".join(_describe(values[n]) for n in node.inputs if n)
        problem = _find_cause(error)
        message = f"{node.label} cannot be computed for {given or 'no inputs'}: {type(problem).__name__}: {problem}"
        help = "check the shapes, types and attributes of the node"
        raise UnsupportedError(Diagnostic("unsupported-onnx-evaluation", message, node_span(node), help)) from error
    return [as_array(found[o]) if o else None for o in node.outputs]


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
    return run_node(prepare_node(node, graph), node, values)


def as_array(value: Any) -> Any:
    """NumPy scalars, which the evaluator gives at times, as arrays."""
    return np.asarray(value) if isinstance(value, (np.generic, bool, int, float)) else value


def _unsupported(node: Node, why: str) -> PolycError:
    message = f"{node.label} is not known to polyc, nor to onnx: {why}"
    help = "onnx is asked for what polyc does not compile; a newer version of it may know the operator"
    return UnsupportedError(Diagnostic("unsupported-onnx-operator", message, node_span(node), help))
