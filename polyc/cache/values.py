"""Values ↔ plain data: what JSON can hold, and nothing that could run.

A tuple is a list; a dataclass of `CLASSES` is ``{"Name": [its fields in order]}``; an element type ``{"DType": name}``; a dict
``{"dict": [[key, value], …]}``.  Places in the user's source go through a `Places`, which knows what they refer to.
Reading makes values of these classes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from polyc.diagnostics import Diagnostic, Remark, Source, Span
from polyc.ir.custom_rules import Rule
from polyc.ir.expr import Call, Cast, Const, Index, Pad, Read, Select, Size
from polyc.ir.program import (
    Compressed,
    Condition,
    Exists,
    Monoid,
    Program,
    RangeClause,
    Reduction,
    Return,
    Statement,
    Tensor,
)
from polyc.ir.ragged import Ragged
from polyc.ir.signature import ArraySpec, HostCheck, RuntimeGuard, Signature
from polyc.ir.types import DTYPES, DType
from polyc.poly.storage import Panel

Plain = Any
"""None, bool, int, float, str, a list of such, or a dict from str to such."""

CLASSES: dict[str, type] = {
    c.__name__: c
    for c in (
        *(Const, Index, Size, Read, Pad, Call, Select, Cast),
        *(Program, Tensor, Return, Statement, Reduction, Monoid, RangeClause, Condition, Exists, Compressed, Ragged, Rule),
        *(Signature, ArraySpec, HostCheck, RuntimeGuard),
        *(Diagnostic, Remark, Panel),
    )
}
"""Everything that an entry can be made of."""
FIELDS: dict[str, tuple[str, ...]] = {name: tuple(f.name for f in fields(c) if f.init) for name, c in CLASSES.items()}


class Unstorable(Exception):
    """A value that has no plain form: its program is not cached."""


class Unreadable(Exception):
    """Plain data that no value has."""


if TYPE_CHECKING:
    from typing import Protocol

    class Places(Protocol):
        """How spans and sources are written; each has a plain form that the same kind of `Places` reads."""

        def write_span(self, span: Span) -> Plain: ...
        def read_span(self, plain: Plain) -> Span: ...
        def write_source(self, source: Source) -> Plain: ...
        def read_source(self, plain: Plain) -> Source: ...


def encode(value: Any, places: Places) -> Plain:
    """The plain form of `value`.  Raises `Unstorable`."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if type(value) is int:
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, tuple):
        return [encode(v, places) for v in value]
    if isinstance(value, Span):
        return {"Span": places.write_span(value)}
    if isinstance(value, Source):
        return {"Source": places.write_source(value)}
    if isinstance(value, DType):
        return {"DType": value.name}
    if isinstance(value, Mapping):
        return {"dict": [[encode(k, places), encode(v, places)] for k, v in value.items()]}
    name = type(value).__name__
    if CLASSES.get(name) is not type(value):
        raise Unstorable(f"a {name} has no plain form")
    return {name: [encode(getattr(value, f), places) for f in FIELDS[name]]}


def decode(plain: Plain, places: Places) -> Any:
    """The value of a plain form.  Raises `Unreadable`."""
    if plain is None or isinstance(plain, (bool, int, float, str)):
        return plain
    if isinstance(plain, list):
        return tuple([decode(p, places) for p in plain])
    if not isinstance(plain, dict) or len(plain) != 1:
        raise Unreadable("no known form")
    ((name, body),) = plain.items()
    try:
        if name == "Span":
            return places.read_span(body)
        if name == "Source":
            return places.read_source(body)
        if name == "DType":
            return DTYPES[body]
        if name == "dict":
            return {decode(k, places): decode(v, places) for k, v in body}
        if len(body) != len(FIELDS[name]):
            raise Unreadable(f"{name} has {len(FIELDS[name])} fields, not {len(body)}")
        return CLASSES[name](*[decode(part, places) for part in body])
    except (LookupError, TypeError, ValueError) as error:
        raise Unreadable(f"{name}: {error}") from error
