"""Python functions as they are in this process: what tells their code from other code, and what names in them mean."""

from __future__ import annotations

import types

LIBRARIES = frozenset("polyc numpy scipy math cmath builtins torch jax tensorflow cupy numba".split())
"""Modules whose functions are known by their names."""


def look_up(function: types.FunctionType, name: str) -> object | None:
    """What Python would find for a free `name` in the closure or the globals of a function, for ``module.name`` what the module
    has under that name; None if nothing."""
    module, _, attribute = name.rpartition(".")
    if module:
        return getattr(look_up(function, module), attribute, None)
    if name in function.__code__.co_freevars:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        try:
            content: object = cell.cell_contents
            return content
        except ValueError:
            return None
    found: object = function.__globals__.get(name)
    return found


def find_numbers(value: object) -> tuple[object, ...] | None:
    """The elements of a tuple, list or range that holds numbers, or tuples of them; None for anything else."""
    if not isinstance(value, (tuple, list, range)):
        return None
    found = tuple(n if type(n) in (bool, int, float) else find_numbers(n) for n in value)
    return None if any(n is None for n in found) else found


def is_own_function(found: object) -> bool:
    """Whether a name stands for a Python function of the user's, which counts more than one that polyc knows by that name."""
    return isinstance(found, types.FunctionType) and str(found.__module__).split(".")[0] not in LIBRARIES


def describe_code(code: types.CodeType) -> tuple[object, ...]:
    """All of a function's code but where it stands; functions inside of it included."""
    constants = tuple(describe_code(c) if isinstance(c, types.CodeType) else (type(c), _write(c)) for c in code.co_consts)
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return (code.co_code, counts, names, constants)


def _write(constant: object) -> str:
    # Sets have another order in each process.
    return str(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


def write_number(value: object) -> str:
    """All of it, whatever a class of its own shows of its values."""
    plain = next((t for t in (str, int, float, complex) if isinstance(value, t)), None)
    return repr(value) if plain is None else plain.__repr__(value)
