"""`monoid`: ways to combine that users define, for reductions in decorated functions."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from polyc import driver
from polyc.diagnostics import Diagnostic, SemanticError


def monoid(combine: Callable[..., Any] | None = None, identity: Any = None, *, name: str | None = None) -> Any:
    """A reduction operator for decorated functions, from a function that combines two values and its identity.

    `combine(a, b)` is a function of two numbers, or of two tuples of them, that returns what they make together; its source is
    read like that of an operator, and may assign names and return expressions.  `identity` is the number, or the tuple, that
    changes nothing it is combined with.  In an operator ``y[i] = m(x[i, j])`` then reduces over the indices that are not on the
    left, and ``p[i], q[i] = m(x[i, j], z[i, j])`` reduces tuples.  The values may have different element types.

    That `combine` is associative and commutative is the caller's promise: the order in which values are combined is not defined
    (``reassociate=False`` keeps that of the source).  Without `combine` this is a decorator::

        @polyc.monoid(identity=(1, 0))
        def product(a, b):                       # of complex numbers
            return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]

    Raises SemanticError where `combine` is no function, or where `identity` holds something else than numbers.
    """
    if combine is None and identity is not None:
        return functools.partial(monoid, identity=identity, name=name)
    if not isinstance(combine, types.FunctionType):
        raise _error("a monoid needs a function of two values", "polyc.monoid(combine, identity=0)")
    numbers = identity if isinstance(identity, tuple) else (identity,)
    found = tuple(v.item() if isinstance(v, np.generic) else v for v in numbers)
    if not found or not all(isinstance(v, (bool, int, float)) for v in found):
        shown = "missing" if identity is None else repr(identity)
        raise _error(f"the identity of {combine.__name__} is {shown}", "give a number, or a tuple of numbers")
    return driver.UserMonoid(combine, found, name or combine.__name__)


def _error(message: str, help: str) -> SemanticError:
    return SemanticError(Diagnostic("semantic-monoid", message, None, help))
