"""Element types against what an operator's schema allows: what compiled code refuses, the reference would promote silently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from polyc.diagnostics import Diagnostic, SemanticError
from polyc.frontends.onnx.element_types import number_name
from polyc.frontends.onnx.graph import Node, node_span


def check_types(node: Node, inputs: Sequence[Any]) -> None:
    """Raise SemanticError (``semantic-onnx-type``) where arrays among `inputs` have types that the operator does not take.

    Operators without a schema are not checked."""
    try:
        schema = onnx.defs.get_schema(node.op, node.version, node.domain)
    except onnx.defs.SchemaError:
        return
    allowed = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
    bound: dict[str, tuple[str, str]] = {}
    formals = list(schema.inputs)
    for position, value in enumerate(inputs):
        if not formals:
            return
        formal = formals[min(position, len(formals) - 1)]
        kind = _type_string(value)
        if kind is None:
            continue
        name = node.inputs[position]
        accepted = allowed.get(formal.type_str, frozenset((formal.type_str,)))
        if accepted and kind not in accepted:
            shown = ", ".join(sorted(accepted)[:6]) + (", …" if len(accepted) > 6 else "")
            _refuse(node, f"the input {formal.name} of {node.label} is {kind}, but takes {shown}")
        is_free = not formal.is_homogeneous and formal is formals[-1]
        if formal.type_str in allowed and not is_free:
            other = bound.setdefault(formal.type_str, (name, kind))
            if other[1] != kind:
                _refuse(node, f"{node.label} gets {other[0]} of {other[1]} and {name} of {kind}, which must be of one type")


def _refuse(node: Node, message: str) -> None:
    raise SemanticError(Diagnostic("semantic-onnx-type", message, node_span(node), "put a Cast in front of it"))


def _type_string(value: Any) -> str | None:
    """``tensor(float)`` of an array of numbers; None for anything else."""
    if not isinstance(value, np.ndarray) or value.dtype == object:
        return None
    try:
        return f"tensor({number_name(onnx.helper.np_dtype_to_tensor_dtype(value.dtype))})"
    except (ValueError, KeyError):
        return None
