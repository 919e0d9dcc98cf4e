"""Which function a call is of: an operator, a function of elements, or one that polyc knows by its name."""

from __future__ import annotations

import ast
import types
from functools import lru_cache

from polyc.diagnostics import PolycError
from polyc.frontends.python.functions import KNOWN
from polyc.frontends.python.scope import Scope
from polyc.frontends.python.source import load_function
from polyc.live import is_own_function

ITSELF = object()
"""A function that is still being defined."""


def find_callee(value: ast.expr, scope: Scope) -> object | None:
    """The operator that an expression calls; None where it is an expression over elements."""
    found = find_function(value, scope)
    return None if isinstance(found, types.FunctionType) and returns_elements(found) else found


def find_function(value: ast.expr, scope: Scope) -> object | None:
    """The operator or Python function that an expression calls; None where it is none of the program around."""
    if not isinstance(value, ast.Call):
        return None
    match value.func:
        case ast.Name(name) if name == scope.text.definition.name:
            found = scope.text.lookup(name) or scope.text.function or ITSELF
        case ast.Name(name):
            found = scope.text.lookup(name)
            if name in KNOWN and not is_own_function(found):
                return None
        case ast.Attribute(ast.Name(module), name) if isinstance(scope.text.lookup(module), types.ModuleType):
            found = scope.text.lookup(f"{module}.{name}")
        case _:
            return None
    if found is ITSELF:
        return found
    return found if is_own_function(found) or (hasattr(found, "formals") and hasattr(found, "input_names")) else None


def find_targets(node: ast.Assign) -> list[ast.Name] | None:
    """The names that an assignment of a call gives its results; None where its left side is made of something else."""
    if len(node.targets) != 1:
        return None
    targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else [node.targets[0]]
    names = [t for t in targets if isinstance(t, ast.Name)]
    return names if len(names) == len(targets) else None


def find_results(scope: Scope) -> set[str]:
    """Names that calls in the function give their results."""
    calls = [
        n for n in ast.walk(scope.text.definition) if isinstance(n, ast.Assign) and find_callee(n.value, scope) is not None
    ]
    return {t.id for node in calls for t in find_targets(node) or ()}


@lru_cache(maxsize=256)
def returns_elements(function: types.FunctionType) -> bool:
    """Whether a function can only be one of numbers: it returns an expression, where an operator returns names of tensors."""
    try:
        definition = load_function(function).definition
    except PolycError:
        return False
    returned = [n.value for n in ast.walk(definition) if isinstance(n, ast.Return)]
    parts = [p for value in returned for p in (value.elts if isinstance(value, ast.Tuple) else [value])]
    return any(p is not None and not isinstance(p, (ast.Name, ast.Call)) for p in parts)
