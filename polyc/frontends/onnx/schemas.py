"""What a node says of itself against the schema of its operator: the numbers of inputs and outputs, and attributes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

import onnx
import onnx.defs
from onnx import AttributeProto, NodeProto

from polyc.diagnostics import suggest_name

EXPORT = "export the model again"
NEWEST = 1 << 30
"""An operator set behind all that there are."""
_SHOWN = 80

Contradiction = tuple[str, str, str]
"""The code of a diagnostic, its message, and what helps."""


def show(name: str) -> str:
    """A name as it may stand in a message: one line, and not too long."""
    text = "".join(c if c.isprintable() else "?" for c in name[: _SHOWN + 1])
    return text if len(name) <= _SHOWN else f"{text[:_SHOWN]}…"


@cache
def find_schema(op: str, version: int, domain: str) -> onnx.defs.OpSchema | None:
    """What onnx says of an operator; None where it does not know it."""
    try:
        return onnx.defs.get_schema(op, version, domain)
    except (onnx.defs.SchemaError, TypeError):
        return None


def find_contradictions(node: NodeProto, schema: onnx.defs.OpSchema) -> Iterator[Contradiction]:
    """Everything in which the node is none of its operator's, as far as this shows without shapes."""
    inputs = list(node.input)
    while len(inputs) > schema.min_input and not inputs[-1]:
        inputs.pop()
    for what, names, least, most in (
        ("inputs", inputs, schema.min_input, schema.max_input),
        ("outputs", list(node.output), schema.min_output, schema.max_output),
    ):
        if not least <= len(names) <= most:
            wanted = f"{least}" if least == most else f"{least} or more" if most > 1 << 20 else f"{least} to {most}"
            message = f"{node.op_type} has {len(names)} {what}, operator set {schema.since_version} says {wanted}"
            yield "semantic-onnx-node", message, EXPORT
    for name, formal in zip(inputs, schema.inputs, strict=False):
        if not name and formal.option == onnx.defs.OpSchema.FormalParameterOption.Single:
            yield "semantic-onnx-node", f"the input {formal.name} of {node.op_type} is missing", EXPORT
    given = {a.name: a for a in node.attribute}
    for name in given:
        if name not in schema.attributes:
            message = f"{node.op_type} has no attribute {show(name)} in operator set {schema.since_version}"
            near = suggest_name(name, [n for n in schema.attributes if n not in given])
            yield "semantic-onnx-attribute", message, near or f"remove it, or {EXPORT}"
    for name, declared in schema.attributes.items():
        attribute = given.get(name)
        if attribute is None:
            if declared.required:
                yield "semantic-onnx-attribute", f"{node.op_type} needs the attribute {name}", EXPORT
            continue
        declared_type: int = declared.type.value  # type: ignore[attr-defined]
        if attribute.type and attribute.type != declared_type and not attribute.ref_attr_name:
            is_of, should = (AttributeProto.AttributeType.Name(t) for t in (attribute.type, declared_type))
            message = f"the attribute {name} of {node.op_type} is of type {is_of}, the operator's is {should}"
            yield "semantic-onnx-attribute", message, EXPORT
        elif not attribute.ref_attr_name:
            yield from _find_value(node, attribute)


def _find_value(node: NodeProto, attribute: AttributeProto) -> Iterator[Contradiction]:
    """A value of an attribute that no tensor fits, and that onnx's shape inference does not come back from, or passes over."""
    match node.op_type, attribute.name:
        case "Einsum", "equation" if not is_equation(attribute.s):
            message = f"the equation of Einsum is {show(attribute.s.decode(errors='replace'))!r}"
            yield "semantic-onnx-attribute", message, "terms are letters and one ..., as in ij,jk->ik"
        case "Split", "num_outputs" if attribute.i != len(node.output):
            message = f"Split has {len(node.output)} outputs, but its num_outputs is {attribute.i}"
            yield "semantic-onnx-node", message, EXPORT
        case "Transpose", "perm" if sorted(attribute.ints) != list(range(len(attribute.ints))):
            message = f"the perm of Transpose is {_list(attribute.ints)}, which does not have each dimension once"
            yield (
                "semantic-onnx-attribute",
                message,
                "dimension d of the result is dimension perm[d] of the input, counted from 0",
            )


def _list(numbers: Sequence[int]) -> str:
    return f"[{', '.join(map(str, numbers[:8]))}{', …' if len(numbers) > 8 else ''}]"


def is_equation(text: bytes) -> bool:
    """Whether a text can be the equation of an Einsum; onnx's shape inference does not come back from others."""
    return (
        re.fullmatch(rb"(TERM)(,(TERM))*(->(TERM))?".replace(b"TERM", rb"[A-Za-z]*(\.\.\.)?[A-Za-z]*"), b"".join(text.split()))
        is not None
    )
