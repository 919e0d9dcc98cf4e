"""Size symbols at a call: found from the shapes of arrays, checked against each other, in the user's names."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from polyc.diagnostics import PolycError, Span
from polyc.ir.expr import Const, Expr, Size, evaluate, walk
from polyc.ir.types import DType
from polyc.records import dataclass
from polyc.runtime.arrays import argument_error


@dataclass(frozen=True, slots=True)
class Formal:
    """An input as it was declared: `dtype` or `shape` None where the declaration leaves it open."""

    name: str
    dtype: DType | None
    shape: tuple[Expr, ...] | None
    span: Span | None = None
    takes_weak: bool = False
    """Whether a Python number adapts to what it meets, as in NumPy; only where `dtype` is open."""
    default: Any = None
    """The number that it is where a call gives none; None: a call must."""


Reasons = dict[str, str]
"""Why a size has its value, by name: ``"W's dimension 1 is 5"``."""


def size_names(expr: Expr) -> list[str]:
    """Size symbols in an extent, by first appearance."""
    return list(dict.fromkeys(node.name for node in walk(expr) if isinstance(node, Size)))


def solve_sizes(
    formals: Sequence[Formal],
    shapes: Mapping[str, tuple[int, ...]],
    given: Mapping[str, int],
    fixed: Mapping[str, int],
    defined: Sequence[tuple[str, Expr]] = (),
) -> dict[str, int]:
    """Values of all size symbols that arrays of `shapes` and the sizes `given` and `fixed` determine.

    A declared extent that is one symbol gives its value; one that is linear in a single unknown symbol (``2*N + 1``) is
    solved for it.  Symbols in `defined` are computed.  Every declared extent is then compared with the array's: the first
    that differs is an `ArgumentError` with both sizes and where the other one came from.
    """
    values: dict[str, int] = {}
    reasons: Reasons = {}
    for name, value in fixed.items():
        values[name], reasons[name] = value, f"{name}={value} was fixed when the operator was compiled"
    for name, value in given.items():
        if name in values and values[name] != value:
            message = f"{name}={value} was given, but {reasons[name]}"
            raise argument_error("argument-size", message, None, "give that value, or leave it out")
        values.setdefault(name, value)
        reasons.setdefault(name, f"{name}={value} was given")

    extents = [
        (formal, dimension, expr, shapes[formal.name][dimension])
        for formal in formals
        if formal.shape is not None and formal.name in shapes
        for dimension, expr in enumerate(formal.shape)
    ]
    direct = [e for e in extents if isinstance(e[2], Size)]
    computed = [e for e in extents if not isinstance(e[2], (Size, Const))]
    for formal, dimension, expr, actual in direct:
        assert isinstance(expr, Size)
        if expr.name not in values:
            values[expr.name] = actual
            reasons[expr.name] = f"{formal.name}'s dimension {dimension} is {actual}"
    progress = True
    while progress:
        progress = False
        for formal, dimension, expr, actual in computed:
            unknown = [n for n in size_names(expr) if n not in values]
            solution = solve_linear(expr, unknown[0], values, actual) if len(unknown) == 1 else None
            if solution is not None:
                values[unknown[0]], progress = solution, True
                reasons[unknown[0]] = f"{formal.name}'s dimension {dimension} is {actual}"
    for name, expr in defined:
        if all(n in values for n in size_names(expr)):
            values[name] = evaluate(expr, values)
    for formal, dimension, expr, actual in extents:
        if all(n in values for n in size_names(expr)):
            expected = evaluate(expr, values)
            if expected != actual:
                raise extent_error(formal, dimension, expr, actual, expected, reasons)
    return values


def solve_linear(expr: Expr, name: str, values: Mapping[str, int], actual: int) -> int | None:
    """The value of `name` that makes `expr` equal `actual`, found from three values of a linear expression, or None."""
    at = [evaluate(expr, {**values, name: n}) for n in (0, 1, 2)]
    slope = at[1] - at[0]
    if slope == 0 or at[2] - at[1] != slope or (actual - at[0]) % slope:
        return None
    solution = (actual - at[0]) // slope
    # Floor divisions and minima look linear on a few points: the solution must really give the extent.
    return solution if solution >= 0 and evaluate(expr, {**values, name: solution}) == actual else None


def extent_error(formal: Formal, dimension: int, expr: Expr, actual: int, expected: int, reasons: Reasons) -> PolycError:
    """``X has 7 rows (dimension 0), but N is 5 since W's dimension 1 is 5``."""
    rank = len(formal.shape or ())
    unit = ("row", "column")[dimension] if rank == 2 else "element"
    plural = "" if actual == 1 else "s"
    place = f"dimension {dimension}"
    what = f"{actual} {unit}{plural} ({place})" if rank <= 2 else f"extent {actual} in {place}"
    names = size_names(expr)
    match expr:
        case Const():
            # A kernel's own declarations have no place in a text: their numbers are the sizes it was compiled for.
            why = f"it is declared with {expected}" if formal.span is not None else f"this kernel was compiled for {expected}"
        case Size(name) if "." in name and name in reasons:  # which nobody has written
            why = reasons[name]
        case Size(name):
            why = f"{name} is {expected} since {reasons[name]}" if name in reasons else f"{name} is {expected}"
        case _:
            why = f"it must have {expected} since {' and '.join(reasons.get(n, n) for n in names)}"
    help = "extents that share a name must be equal" if names else "pass an array of the declared shape"
    help = "give arrays of one length" if any("." in n for n in names) else help
    return argument_error("argument-size", f"{formal.name} has {what}, but {why}", formal.span, help)


def number_sizes(sizes: Collection[str], formals: Sequence[Formal], arrays: Mapping[str, Any]) -> dict[str, int]:
    """Of inputs that are sizes as well (`ir.program.integer_parameters`), the numbers given for them."""
    both = [f for f in formals if f.name in sizes and f.name in arrays and arrays[f.name].ndim == 0]
    return {f.name: check_size(f.name, int(arrays[f.name]), f.span) for f in both}


def check_size(name: str, value: Any, span: Span | None = None) -> int:
    """A size given by keyword, or (`span`: where it is declared) as an input: a non-negative integer."""
    try:
        number = operator.index(value) if not isinstance(value, bool) else None
    except (TypeError, OverflowError):
        number = None
    if number is None:
        help = f"pass an int: {name}=128" if span is None else "it is an integer: 0, 1, 2, …"
        raise argument_error("argument-type-size", f"size {name} must be an integer, not {value!r}", span, help)
    if not 0 <= number < 2**62:
        message = f"size {name} must not be negative or beyond 2**62, but is {number}"
        help = "a size is a number of elements: 0, 1, 2, …" if span is None else f"{name} bounds ranges: it is 0, 1, 2, …"
        raise argument_error("argument-size", message, span, help)
    return number


def missing_sizes(names: Sequence[str], values: Mapping[str, int], fixed: Collection[str] = ()) -> PolycError | None:
    """The error for sizes that neither an array nor a keyword determines, or for `fixed` names that are none; else None."""
    for name in (n for n in fixed if n not in names):
        help = f"its sizes are: {', '.join(names)}" if names else "it has no sizes"
        return argument_error("argument-name", f"{name}, which sizes= fixes, is no size", None, help)
    missing = [n for n in names if n not in values]
    if not missing:
        return None
    listing = ", ".join(missing)
    return argument_error(
        "argument-size-missing",
        f"no array determines {listing}",
        None,
        "give it by keyword: " + ", ".join(f"{n}=…" for n in missing),
    )
