"""Which function says what an ONNX operator computes.

An operator is registered by the decorator on a plain function::

    @operator("LeakyRelu", since=6)
    def leaky_relu(b: Builder, x: Value, *, alpha: float = 0.01) -> Value:
        return b.map(x.shape, x.dtype, lambda *i: select(x[i] < 0, x[i] * alpha, x[i]))

Its positional parameters are the inputs in ONNX's order, those that may be missing with the type ``Value | None`` (and the
default None, if no other follows that may not); ``*xs`` takes any number.  Its keyword parameters are the attributes, with
ONNX's defaults; a node with an attribute that the function does not name is not supported.  It returns a `Value`, or a tuple
of them, in the order of the outputs.

`since` is the first version of the operator set for which the function is right; one registered with a later version takes
over from there.  `b.node.version` tells versions apart inside a function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from polyc.config import debugging
from polyc.records import dataclass

if TYPE_CHECKING:
    from polyc.frontends.onnx.builder import Builder, Value
    from polyc.frontends.onnx.graph import Node

Function = Callable[..., Any]
Registered = TypeVar("Registered", bound=Function)


class Unsupported(Exception):
    """An operator's function does not cover this node: with these attributes, element types or shapes.  `str` says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Implementation:
    """A registered function and what its signature says."""

    domain: str
    name: str
    since: int
    function: Function
    n_inputs: int
    """Most inputs; -1 for any number."""
    n_required: int
    """How many inputs there are at least, missing ones among them."""
    required: tuple[int, ...]
    """Inputs that may not be missing."""
    attributes: frozenset[str]
    required_attributes: tuple[str, ...]

    def apply(self, b: Builder, inputs: Sequence[Value | None]) -> tuple[Value, ...]:
        """The outputs of `b.node`; raises `Unsupported`, or `builder.NeedsValue`."""
        node: Node = b.node
        unknown = [a for a in node.attributes if a not in self.attributes]
        if unknown:
            raise Unsupported(f"attribute {unknown[0]} is not supported")
        absent = [a for a in self.required_attributes if a not in node.attributes]
        if absent:
            raise Unsupported(f"attribute {absent[0]} is missing")
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        if self.n_inputs >= 0 and len(given) > self.n_inputs:
            raise Unsupported(f"it has {len(given)} inputs, at most {self.n_inputs} are supported")
        missing = [k for k in self.required if k >= len(given) or given[k] is None]
        if missing or len(given) < self.n_required:
            raise Unsupported(f"input {missing[0] if missing else len(given)} is missing")
        try:
            result = self.function(b, *given, **node.attributes)
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
            if debugging():
                raise
            raise Unsupported(f"its inputs or attributes do not fit: {error}") from error  # onnx says better what is wrong
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)


_TABLE: dict[tuple[str, str], list[Implementation]] = {}


def operator(*names: str, since: int = 1, domain: str = "") -> Callable[[Registered], Registered]:
    """Register the decorated function for the operators `names` of `domain` (module docstring)."""

    def register(function: Registered) -> Registered:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        is_variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        attributes = frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        needed = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty)
        n_required = sum(1 for p in positional if p.default is p.empty)
        required = tuple(k for k, p in enumerate(positional[:n_required]) if "None" not in str(p.annotation))
        n_inputs = -1 if is_variadic else len(positional)
        for name in names:
            found = _TABLE.setdefault((domain, name), [])
            assert all(i.since != since for i in found), f"{name} is registered twice since {since}"
            found.append(Implementation(domain, name, since, function, n_inputs, n_required, required, attributes, needed))
            found.sort(key=lambda i: i.since)
        return function

    return register


def find_implementation(domain: str, name: str, version: int) -> Implementation | None:
    """The newest registered function that is not newer than `version`."""
    from polyc.frontends.onnx import families

    families.load()
    found = [i for i in _TABLE.get(("" if domain == "ai.onnx" else domain, name), ()) if i.since <= version]
    return found[-1] if found else None


def registered() -> dict[tuple[str, str], tuple[Implementation, ...]]:
    """All implementations by domain and name."""
    from polyc.frontends.onnx import families

    families.load()
    return {key: tuple(found) for key, found in sorted(_TABLE.items())}
