"""What is known of tensors without reading them: ``x.shape[0]``, ``x.size``, ``x.ndim``, and numbers such as ``np.pi``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from polyc.diagnostics import Span
from polyc.frontends.core.builder import Version, count_dimensions
from polyc.frontends.core.extents import measure
from polyc.frontends.core.values import Fault, Value
from polyc.frontends.python.operators import binary
from polyc.frontends.python.scope import Scope
from polyc.frontends.python.values import POISON, make_literal
from polyc.ir.expr import Call, Const, Expr
from polyc.ir.simplify import simplify_int
from polyc.ir.types import I64
from polyc.records import replace

_NUMBERS = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan, "tau": math.tau}


def tensor_with_shape(name: str, scope: Scope, span: Span) -> Version | None:
    """The tensor of that name with its extents, which are inferred now where it is assigned; None where it has an error of its
    own."""
    version = scope.current.get(name)
    if version is None:
        raise Fault("semantic-undefined", f"there is no tensor {name}", "only tensors have a shape")
    if version.dtype is None:
        return None
    shape = version.shape if version.shape is not None else measure(scope, version.name, span)
    return None if shape is None else replace(version, shape=shape)


def read_extent(name: str, is_turned: bool, dimension: object, scope: Scope, span: Span) -> Value:
    """``name.shape[dimension]``, or ``name.T.shape[dimension]``."""
    version = tensor_with_shape(name, scope, span)
    if version is None:
        return POISON
    if not isinstance(dimension, int) or version.shape is None or not -len(version.shape) <= dimension < len(version.shape):
        message = f"{name} has {count_dimensions(version.rank or 0)}; the dimension must be a number among them"
        raise Fault("semantic-rank", message, f"write {name}.shape[0] for the first extent")
    return extent_value(version.shape[-1 - dimension if is_turned else dimension])


def extent_value(extent: Expr) -> Value:
    """An extent as a number: weak, as Python's."""
    return make_literal(int(extent.value)) if isinstance(extent, Const) else Value(extent, I64, weak=True)


def read_attribute(module: str, name: str, scope: Scope, span: Span) -> Value:
    """``x.ndim``, ``x.size``, ``np.pi``."""
    if module in scope.current or module in scope.assigned_names:
        if name == "ndim" and module in scope.current and scope.current[module].rank is not None:
            return make_literal(scope.current[module].rank or 0)
        if name == "size" and module in scope.current:
            version = tensor_with_shape(module, scope, span)
            extents = [] if version is None else [extent_value(e) for e in version.shape or ()]
            return reduce(lambda a, b: binary("mul", a, b, span), extents, make_literal(1)) if version is not None else POISON
        help = f"read an element of it: {module}.T[i, j]" if name == "T" else f"write {module}.shape[0] for an extent"
        raise Fault("semantic-expression", f"{module}.{name} has no meaning here", help)
    if name in _NUMBERS:
        return make_literal(_NUMBERS[name], span)
    raise Fault("semantic-expression", f"{module}.{name} is no number that polyc knows", "known are pi, e, tau, inf and nan")


def count_from_the_end(subscripts: tuple[Expr, ...], is_literal: Sequence[bool], version: Version) -> tuple[Expr, ...]:
    """Subscripts that are written as negative numbers count from the end, where the extents are known."""
    if version.shape is None or len(version.shape) != len(subscripts):
        return subscripts
    return tuple(
        simplify_int(Call("add", (extent, s))) if literal and isinstance(s, Const) and s.value < 0 else s
        for s, literal, extent in zip(subscripts, is_literal, version.shape, strict=True)
    )
