"""Random arguments for an operator: what `polyc run` uses where the user gives no input."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from polyc.ir.expr import Cast, Const, Expr, Read, evaluate, reads, walk
from polyc.ir.program import Condition, Exists, Program, Statement
from polyc.ir.types import DType
from polyc.runtime.sizes import size_names


def draw_array(name: str, dtype: DType, shape: Sequence[int], seed: int, upper: int | None = None) -> np.ndarray:
    """The same numbers for the same name, type, shape and seed, whatever else is drawn.

    Floats are standard normal, integers small; with `upper`, integers lie in ``[0, upper)``, as index values must."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    shape = tuple(shape)
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    limit = 1 << (dtype.bits - 1)
    low, high = (0, upper) if upper is not None else (0 if dtype.kind == "u" else -8, 9)
    return rng.integers(low, max(low + 1, min(high, limit)), shape).astype(dtype.numpy)


def index_limits(program: Program, extents: Mapping[str, Sequence[int] | None]) -> dict[str, int]:
    """Exclusive upper limits for inputs whose elements serve as subscripts, from the `extents` of what they index."""
    limits: dict[str, int] = {}
    for statement in program.statements:
        for root in _expressions(statement):
            for outer in reads(root):
                shape = extents.get(outer.tensor)
                for dimension, subscript in enumerate(outer.subscripts):
                    for inner in reads(subscript):
                        if shape is not None:
                            limit = max(1, shape[dimension] - _reserve(subscript))
                            limits[inner.tensor] = min(limits.get(inner.tensor, limit), limit)
    return limits


def _reserve(subscript: Expr) -> int:
    """Room to leave for what is added to an index value: all, for a plain one; the literals in it otherwise."""
    plain = subscript
    while isinstance(plain, Cast):
        plain = plain.value
    if isinstance(plain, Read):
        return 0
    return sum(abs(int(node.value)) for node in walk(subscript) if isinstance(node, Const))


def _expressions(statement: Statement) -> list[Expr]:
    conditions = [w.condition for w in statement.where if isinstance(w, Condition)]
    return [statement.value, *statement.subscripts, *conditions, *(w.value for w in statement.where if isinstance(w, Exists))]


def declared_extents(program: Program, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...] | None]:
    """Extents of the inputs at `sizes`; None where they are not declared or a size is open."""
    table: dict[str, tuple[int, ...] | None] = {}
    for name in program.parameters:
        shape = program.tensor(name).shape
        known = shape is not None and all(n in sizes for e in shape for n in size_names(e))
        table[name] = tuple(evaluate(e, sizes) for e in shape) if shape is not None and known else None
    return table
