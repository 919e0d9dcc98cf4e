"""Operators as pickles: by name where a module has it under its name, as functions are pickled; else by its program."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.api.bind import own_inputs
from polyc.api.sources import FixedSource, FunctionSource
from polyc.config import Options
from polyc.runtime.arrays import argument_error

if TYPE_CHECKING:
    from polyc.api.operator import Operator
    from polyc.api.sources import ProgramSource


def find_name(operator: Operator) -> str | None:
    """The name under which a module has it."""
    function = getattr(operator, "__wrapped__", None)
    if function is not None and getattr(sys.modules.get(function.__module__), function.__qualname__, None) is operator:
        return str(function.__qualname__)
    return None


def fix_source(name: str, source: ProgramSource) -> ProgramSource:
    """A source that needs no function.  An `ArgumentError` where the program depends on the arguments of each call."""
    if not isinstance(source, FunctionSource):
        return source
    if source.fixed is None or source.constants:
        message = f"{name} cannot be pickled: its program depends on the arguments of each call"
        help = "define it at the top of a module under its own name, or annotate all parameters: a: 'f32[N]'"
        raise argument_error("argument-pickle", message, None, help)
    return FixedSource(source.fixed, {f.name: f.default for f in source.formals if f.default is not None})


def restore_operator(
    source: ProgramSource,
    name: str,
    options: Options,
    sizes: dict[str, int],
    bound: dict[str, np.ndarray],
    dynamic: bool | str | tuple[str, ...],
    matrices: Mapping[str, Any],
) -> Any:
    """What `Operator.__reduce__` says.  Bound inputs are owned again: what is unpickled may be writable."""
    from polyc.api.operator import Operator

    owned = own_inputs(name, source.formals, {}, bound) if bound else None
    return Operator(source, name, options, sizes, bound=owned, dynamic=dynamic, matrices=matrices)
