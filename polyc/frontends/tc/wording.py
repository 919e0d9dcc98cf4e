"""How `.tc` texts spell and word what `polyc.frontends.core` refuses."""

from __future__ import annotations

from polyc.diagnostics import Span
from polyc.frontends.core.builder import Notation
from polyc.frontends.core.values import Fault
from polyc.frontends.tc.types import convert, spell_type
from polyc.ir.types import DType

NOTATION = Notation(
    spell_type,
    convert,
    {
        "part-rank": "expected {rank} but found {found}",
        "part-rank-help": "{name} has {rank} above, and this assigns a part of it",
        "part-of-result": "make a new tensor of it, as in T(i) = i == 0 ? 1.0 : {name}(i)",
        "selection-left": "write for example (v(i), p(i)) argmax=! X(i, j)",
        "selection-complex": "complex numbers have no order, so there is no {op}",
        "selection-complex-help": "compare a part of them, or their size: {op} fabs(z(i))",
        "combination-left": "write for example (p(i), q(i)) product=! (A(i, j), B(i, j))",
    },
)


def narrowing(found: DType, target: DType, span: Span | None = None, help: str | None = None) -> Fault:
    """A value that is assigned to a type that cannot hold all of it."""
    message = f"attempting to assign type {spell_type(found)} to narrower type {spell_type(target)} without an explicit cast"
    return Fault("type-narrowing", message, help or f"convert explicitly: {spell_type(target)}(…)", span)
