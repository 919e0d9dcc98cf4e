"""Reads beyond the border of a tensor in the decorator: ``pad(X[i - 1], 0)``, ``pad(X[i - 1], "clamp")``."""

from __future__ import annotations

import ast

from polyc.frontends.core.padding import describe_unknown_border
from polyc.frontends.core.values import Fault, Value
from polyc.frontends.python.scope import Scope
from polyc.frontends.python.values import POISON, check_size, common_type, convert
from polyc.ir.expr import PAD_MODES, Pad, Read, identity_of


def pad_mode(node: ast.Call) -> str | None:
    """The word in ``pad(X[i - 1], "clamp")``, also as ``mode="clamp"``."""
    given = [*node.args[1:], *(k.value for k in node.keywords if k.arg == "mode")]
    if len(node.args) in (1, 2) and len(given) == 1 and isinstance(given[0], ast.Constant):
        return given[0].value if isinstance(given[0].value, str) else None
    return None


def apply_pad_mode(read: Value, word: str, node: ast.Call, scope: Scope) -> Value:
    """`read` filled beyond the border as the mode called `word` says."""
    mode = next((m for m in PAD_MODES if m == word), None)
    if mode is None:
        raise Fault("semantic-pad", *describe_unknown_border(word))
    if read is POISON:
        return POISON
    if not isinstance(read.expr, Read):
        raise Fault("semantic-pad", "the first argument of pad must be an element of a tensor", 'write pad(X[i - 1], "clamp")')
    pad = Pad(read.expr, identity_of("add", read.dtype), scope.text.span(node), mode)
    return Value(pad, read.dtype, read.weak, 2 + read.n_nodes).made_of(read)


def apply_pad(args: tuple[Value, ...], node: ast.Call, scope: Scope) -> Value:
    """The first of `args` filled beyond the border with the second."""
    if len(args) != 2:
        raise Fault("semantic-arity", f"pad takes 2 arguments, not {len(args)}", "write pad(X[i - 1], 0)")
    read, value = args
    if read is POISON or value is POISON:
        return POISON
    if not isinstance(read.expr, Read):
        raise Fault("semantic-pad", "the first argument of pad must be an element of a tensor", "write pad(X[i - 1], 0)")
    dtype, _ = common_type((read, value))
    if dtype != read.dtype:
        message = f"the padding is {value.dtype}, but the tensor holds {read.dtype}"
        raise Fault("type-pad", message, f"cast the padding: pad(X[i], {read.dtype}(...))")
    filling = convert(value, dtype)
    n_nodes = 1 + read.n_nodes + filling.n_nodes
    check_size(n_nodes)
    return Value(Pad(read.expr, filling.expr, scope.text.span(node)), dtype, read.weak, n_nodes).made_of(read, filling)
