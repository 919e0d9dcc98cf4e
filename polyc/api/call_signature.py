"""What `inspect.signature`, `help` and editors show of a call."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from polyc.ir.expr import Const, Expr, Size
from polyc.records import replace
from polyc.runtime.sizes import Formal

if TYPE_CHECKING:
    from polyc.api.sources import ProgramSource


class CallSignature:
    """A descriptor: the `inspect.Signature` of an operator's call, made when somebody asks; none for the class itself."""

    def __get__(self, operator: Any, owner: type) -> inspect.Signature:
        if operator is None:
            raise AttributeError("__signature__")  # that of `Operator.__init__` is found instead
        try:
            return make_signature(operator)
        except ValueError as problem:  # a parameter whose name is a word of Python's
            raise AttributeError("__signature__") from problem


def make_signature(operator: Any) -> inspect.Signature:
    """Inputs that are not bound and constants, with their defaults, ``out``, and sizes, which arrays tell."""
    function = getattr(operator, "__wrapped__", None)
    own = inspect.signature(function).parameters if function is not None else {}
    defaults = {f.name: f.default for f in operator.formals if f.default is not None}
    inputs = [_named(own, n, defaults.get(n, inspect.Parameter.empty)) for n in operator.input_names]
    constants = [p for p in own.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    taken = {p.name for p in (*inputs, *constants)}
    rest = [n for n in ("out", *operator.size_names) if n not in taken and "." not in n]
    return inspect.Signature(
        [*inputs, *constants, *(inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None) for n in rest)]
    )


def _named(own: Any, name: str, default: Any) -> inspect.Parameter:
    found = own.get(name)
    annotation = inspect.Parameter.empty if found is None else found.annotation
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)


def describe_formal(formal: Formal) -> str:
    """``X: f32[M, K]``, for the representation of an operator."""
    if formal.default is not None:
        return f"{describe_formal(replace(formal, default=None))} = {formal.default!r}"
    if formal.dtype is None or formal.shape is None:
        return formal.name
    return f"{formal.name}: {formal.dtype}{_describe_shape(formal.shape)}"


def _describe_shape(shape: Sequence[Expr]) -> str:
    extents = [e.name if isinstance(e, Size) else str(e.value) if isinstance(e, Const) else "…" for e in shape]
    return f"[{', '.join(extents)}]" if extents else ""


def describe_formals(source: ProgramSource, bound: Collection[str]) -> list[str]:
    """The inputs of a call, without those that are `bound`; a matrix, ``A: csr f32[M, N]``, for the arrays that hold it."""
    by_data = {m.data: m for m in source.compressed}
    hidden = {*bound, *(name for m in source.compressed for name in m.subscripts)}
    return [
        f"{by_data[f.name].name}: {by_data[f.name].format} {f.dtype}{_describe_shape(by_data[f.name].shape)}"
        if f.name in by_data
        else describe_formal(f)
        for f in source.formals
        if f.name not in hidden
    ]
