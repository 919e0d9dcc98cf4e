"""What `polyc.einsum` takes beyond subscripts and arrays, with NumPy's meaning: sublists instead of subscripts, and the
arguments ``dtype``, ``casting``, ``order`` and ``optimize``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyc.api.amortise import EinsumCalls
from polyc.api.numpy_ways import LETTERS, Path
from polyc.diagnostics import ArgumentTypeError, PolycError
from polyc.ir.types import DTYPES, DType, from_numpy, promote_all
from polyc.runtime.arrays import argument_error, check_output, convert_input, has_chunks, in_own_order, overlaps, type_label

CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")
ORDERS = ("C", "F", "A", "K")

FindCalls = Callable[[str, DType | None, Path | None], EinsumCalls]


def join_sublists(arguments: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Subscripts and arrays of ``einsum(A, [0, 1], B, [1, 2], [0, 2])``; without the last list the output is implicit."""
    n = len(arguments) // 2
    if n == 0:
        message = "einsum got one array and no subscripts"
        if not arguments:
            message = "einsum got nothing to compute"
        help = "write einsum('ik,kj->ij', a, b) or einsum(a, [0, 1], b, [1, 2], [0, 2])"
        raise argument_error("argument-type-subscripts", message, None, help)
    subscripts = ",".join(_join_sublist(f"the list of operand {k}", arguments[2 * k + 1]) for k in range(n))
    if len(arguments) % 2:
        subscripts += "->" + _join_sublist("the list of the output", arguments[-1])
    return subscripts, tuple(arguments[0 : 2 * n : 2])


def _join_sublist(what: str, sublist: Any) -> str:
    if not isinstance(sublist, (list, tuple, range)) and not (isinstance(sublist, np.ndarray) and sublist.ndim == 1):
        message = f"{what} is a {type(sublist).__name__}, not a list"
        help = "write einsum('ik,kj->ij', a, b), or a list of numbers behind each array: einsum(a, [0, 1], b, [1, 2], [0, 2])"
        raise argument_error("argument-type-subscripts", message, None, help)
    return "".join(_letter_of(what, label) for label in sublist)


def _letter_of(what: str, label: Any) -> str:
    if label is Ellipsis:
        return "..."
    try:
        number = operator.index(label) if not isinstance(label, (bool, np.bool_)) else None
    except TypeError:
        number = None
    if number is None:
        message = f"{what} holds {label!r}, which is neither an integer nor ..."
        raise argument_error("argument-type-subscripts", message, None, "indices are numbers from 0 to 51, and ... (Ellipsis)")
    if not 0 <= number < len(LETTERS):
        message = f"{what} holds {number}"
        raise argument_error("argument-einsum-label", message, None, "indices are numbers from 0 to 51")
    return LETTERS[number]


def explain_letters(error: PolycError, subscripts: str) -> PolycError:
    """The error of subscripts that were given as lists, with their numbers."""
    named = {LETTERS.index(c): c for c in subscripts if c in LETTERS}
    letters = ", ".join(f"{c} is {n}" for n, c in sorted(named.items()))
    note = f"the lists are read as {subscripts} ({letters})"
    return type(error)(*(replace(d, help=f"{d.help}; {note}" if d.help else note) for d in error.diagnostics))


def run_general(
    subscripts: str, arguments: Sequence[Any], out: Any, dtype: Any, order: Any, casting: Any, optimize: Any, find: FindCalls
) -> Any:
    """``numpy.einsum`` with all its arguments; arrays and results as in `polyc.einsum`."""
    _check_word("casting", casting, CASTINGS)
    order = "K" if order is None else order
    order = order.upper() if isinstance(order, str) else order
    _check_word("order", order, ORDERS)
    path = _read_path(optimize)
    pairs = enumerate(arguments)
    arrays = tuple(a if has_chunks(a) else convert_input(in_own_order(a), f"operand{n}", None) for n, a in pairs)
    given = None if out is None else _as_array(out)
    computed = _choose_type(arrays, given, dtype)
    _check_casts(arrays, given, computed, casting)
    natural = _promote([a.dtype for a in arrays]) if arrays else None
    calls = find(subscripts, None if computed == natural else computed, path)
    if any(map(has_chunks, arrays)):
        return calls(arrays, out)
    is_fortran = order == "F" or (order == "A" and bool(arrays) and all(a.flags.fnc or a.ndim < 2 for a in arrays))
    if given is None and is_fortran:
        shape = calls.result_shape(arrays)
        if shape is not None and len(shape) > 1 and computed is not None:
            return calls(arrays, np.empty(shape, computed.numpy, order="F"))
    is_apart = given is None or not any(overlaps(given, a) for a in arrays)
    if given is None or computed is None or (is_apart and given.dtype == computed.numpy):
        return calls(arrays, out)
    result = calls(arrays, None)
    own_type = from_numpy(given.dtype)
    assert own_type is not None
    check_output(given, "result", own_type, result.shape)
    np.copyto(given, result, casting="unsafe")  # allowed by `casting`
    return out


def _check_word(name: str, value: Any, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        message = f"{name} cannot be {value!r}"
        raise argument_error("argument-einsum-option", message, None, f"it is one of: {', '.join(known)}")


def _read_path(optimize: Any) -> Path | None:
    """The order of contraction where `optimize` gives one; for anything else polyc chooses."""
    if optimize is None or isinstance(optimize, (bool, np.bool_)) or optimize in ("greedy", "optimal"):
        return None
    parts = list(optimize) if isinstance(optimize, (list, tuple)) else []
    if len(parts) == 2 and parts[0] in ("greedy", "optimal") and isinstance(parts[1], (int, float)):
        return None  # a limit of memory for intermediate results, which are as small as their tiles here
    if parts and parts[0] == "einsum_path":
        try:
            return tuple(tuple(operator.index(p) for p in step) for step in parts[1:])
        except TypeError:
            pass
    message = f"optimize cannot be {optimize!r}"
    help = "it is True, False, 'greedy', 'optimal', or a path: ['einsum_path', (0, 1), …]"
    raise argument_error("argument-type-einsum", message, None, help)


def _as_array(out: Any) -> np.ndarray:
    value = out[0] if isinstance(out, (tuple, list)) and len(out) == 1 else out
    if not isinstance(value, np.ndarray):
        raise argument_error("argument-type-out", f"out is a {type(value).__name__}", None, "pass a NumPy array")
    if from_numpy(value.dtype) is None:
        raise argument_error("argument-type-out", f"out has the element type {value.dtype}", None, _KNOWN)
    return value


_KNOWN = f"element types are: {', '.join(type_label(t) for t in DTYPES.values())}"


def _promote(dtypes: Sequence[np.dtype]) -> DType:
    """The common type of element types that polyc has."""
    known = [from_numpy(d) for d in dtypes]
    assert None not in known
    return promote_all(d for d in known if d is not None)


def _choose_type(arrays: Sequence[np.ndarray], given: np.ndarray | None, dtype: Any) -> DType | None:
    """The element type of the computation: `dtype`, else what all arrays and `out` have in common."""
    if dtype is None:
        dtypes = [*(a.dtype for a in arrays), *([] if given is None else [given.dtype])]
        return _promote(dtypes) if arrays else None
    try:
        asked = np.dtype(dtype)
    except TypeError as problem:
        raise argument_error("argument-type-einsum", f"dtype cannot be {dtype!r}", None, _KNOWN) from problem
    found = from_numpy(asked)
    if found is None:
        raise argument_error("argument-type-einsum", f"the element type {asked} is not supported", None, _KNOWN)
    return found


def _check_casts(arrays: Sequence[np.ndarray], given: np.ndarray | None, computed: DType | None, casting: Any) -> None:
    if computed is None:
        return
    for n, array in enumerate(arrays):
        if array.dtype != computed.numpy and not np.can_cast(array.dtype, computed.numpy, casting):
            raise _cast_error(f"operand {n} is {array.dtype}", type_label(computed), casting)
    if given is not None and given.dtype != computed.numpy and not np.can_cast(computed.numpy, given.dtype, casting):
        raise _cast_error(f"the result is {type_label(computed)}", f"the {given.dtype} of out", casting)


def _cast_error(what: str, target: str, casting: str) -> ArgumentTypeError:
    message = f"{what}, and cannot be cast to {target} by the rule '{casting}'"
    help = "allow it with casting='same_kind' or casting='unsafe', or convert the array"
    found = argument_error("argument-type-einsum", message, None, help)
    assert isinstance(found, ArgumentTypeError)
    return found
