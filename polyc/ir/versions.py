"""Which of the versions of one kernel a call takes: the one that costs least at its sizes.

`costs` are whole numbers over the sizes of a call, one expression for each version, all in the same unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np

from polyc.ir.expr import Call, Const, Expr, Select, Size, evaluate, int_const, le

NEVER = int_const((1 << 63) - 1)
"""Cost of a version that cannot run."""


def cheapest(costs: Sequence[Expr]) -> Expr:
    """The number of the version that costs least, of equal ones the first."""
    number: Expr = int_const(len(costs) - 1)
    for n in reversed(range(len(costs) - 1)):
        tests = [le(costs[n], other) for other in costs[n + 1 :]]
        number = Select(reduce(lambda a, b: Call("and", (a, b)), tests), int_const(n), number)
    return number


def take_version(costs: Sequence[Expr], sizes: Mapping[str, int]) -> int:
    """The number of the version that a call with these sizes takes."""
    return evaluate(cheapest(costs), sizes)


def _bits(apply: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """An operator on bits, of arrays of whole floating-point numbers."""
    return lambda *operands: apply(*(x.astype(np.int64) for x in operands)).astype(np.float64)


_APPLY: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "max": np.maximum,
    "min": np.minimum,
    "neg": np.negative,
    "bitand": _bits(np.bitwise_and),
    "bitor": _bits(np.bitwise_or),
    "lt": np.less,
    "gt": np.greater,
    "le": np.less_equal,
    "ge": np.greater_equal,
    "eq": np.equal,
    "and": np.logical_and,
    "or": np.logical_or,
}


def sizes_as_arrays(samples: Sequence[Mapping[str, int]], defined: Sequence[tuple[str, Expr]]) -> dict[str, np.ndarray]:
    """By size its values in all samples, those of `defined` computed."""
    values = {name: np.array([sizes[name] for sizes in samples], np.float64) for name in samples[0]}
    for name, expr in defined:
        values[name] = evaluate_arrays(expr, values)
    return values


def evaluate_arrays(expr: Expr, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """A whole number over sizes that have many values, as floating-point numbers: products may be larger than 64 bits hold."""
    known: dict[int, np.ndarray] = {}

    def value_of(node: Expr) -> np.ndarray:
        if id(node) not in known:
            match node:
                case Const():
                    known[id(node)] = np.asarray(node.value, np.float64)
                case Size():
                    known[id(node)] = values[node.name]
                case Call():
                    known[id(node)] = _APPLY[node.op](*map(value_of, node.args))
                case Select():
                    known[id(node)] = np.where(value_of(node.condition), value_of(node.then), value_of(node.other))
                case _:
                    raise ValueError("costs are over sizes alone")
        return known[id(node)]

    shape = next(iter(values.values())).shape
    return np.broadcast_to(value_of(expr), shape)
