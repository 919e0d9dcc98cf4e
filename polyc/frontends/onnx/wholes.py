"""Fragments on whole numbers, element by element in Python: what computes shapes, where numbers are traced (`ir.traced`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from polyc.frontends.onnx.trace import Fragment
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Read, Select, walk
from polyc.ir.operators import HOST_OPERATORS
from polyc.ir.program import Condition, RangeClause, Statement
from polyc.ir.traced import has_traced, is_traced, plain_array, whole
from polyc.ir.types import BOOL, I64, DType

MOST_POINTS = 512
"""Points of a statement; more are computed when the model runs."""


def compute_fragment(fragment: Fragment, known: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """The contents of the outputs, as arrays of objects where numbers are traced; None where elements are no integers or truth
    values, or where there are many, or their number is itself traced."""
    if any(t.dtype not in (I64, BOOL) for t in fragment.tensors):
        return None
    extents = {v.name: v.shape for v in fragment.outputs}
    for t in fragment.tensors:
        shape = tuple(whole(e.value) for e in t.shape or () if isinstance(e, Const))
        extents[t.name] = shape
    if any(is_traced(n) for shape in extents.values() for n in shape):
        return None
    contents = dict(known) | dict(fragment.constants)
    for t in fragment.tensors:
        contents[t.name] = np.empty(extents[t.name], object)
    for s in fragment.statements:
        if not _run(s, contents):
            return None
    dtypes = {t.name: t.dtype for t in fragment.tensors}
    results = {}
    for v in fragment.outputs:
        name = v.name if v.source is None else v.source.name
        array = v.known if v.known is not None else contents.get(name)
        if array is None:
            return None
        result = _as_numbers(array, dtypes.get(name))
        if result is None:
            return None
        results[v.name] = result.reshape(v.shape)
    return results


def _as_numbers(array: np.ndarray, dtype: DType | None) -> np.ndarray | None:
    if array.dtype != object or dtype is None:
        return array
    if any(n is None for n in array.reshape(-1)):  # an element that nothing writes
        return None
    if has_traced(array):
        return array if dtype == I64 else None
    return plain_array(array).astype(dtype.numpy)


def _run(s: Statement, contents: Mapping[str, np.ndarray]) -> bool:
    """Execute a statement; False where it is not of the kind that can be."""
    ranges = {c.index: c for c in s.where if isinstance(c, RangeClause)}
    expressions = [s.value, *s.subscripts, *([] if s.reduction is None else [s.reduction.init])]
    nodes = [n for e in expressions for n in walk(e)]
    if any(i not in ranges for i in s.indices) or not all(_is_plain(n, contents) for n in nodes):
        return False
    boxes = [(ranges[i].lower, ranges[i].upper) for i in s.indices]
    if not all(isinstance(e, Const) and not is_traced(e.value) for box in boxes for e in box):
        return False
    spans = [range(_value(a, {}, contents), _value(b, {}, contents)) for a, b in boxes]
    if np.prod([len(r) for r in spans], dtype=np.float64) > MOST_POINTS:
        return False
    conditions = [c.condition for c in s.where if isinstance(c, Condition)]
    target = contents[s.target]
    reduction = s.reduction
    if reduction is not None:
        if not isinstance(reduction.init, Const) or reduction.monoid is not None:
            return False
        for place in _elements(s, spans, contents):
            target[place] = reduction.init.value
    for point in product(*spans):
        at = dict(zip(s.indices, point, strict=True))
        if all(_value(c, at, contents) for c in conditions):
            place = tuple(_value(e, at, contents) for e in s.subscripts)
            value = _value(s.value, at, contents)
            target[place] = value if reduction is None else HOST_OPERATORS[reduction.op](target[place], value)
    return True


def _elements(s: Statement, spans: list[range], contents: Mapping[str, np.ndarray]) -> Iterator[tuple[Any, ...]]:
    for point in product(*spans):
        at = dict(zip(s.indices, point, strict=True))
        yield tuple(_value(e, at, contents) for e in s.subscripts)


def _is_plain(node: Expr, contents: Mapping[str, np.ndarray]) -> bool:
    match node:
        case Const(_, dtype) | Cast(_, dtype):
            return dtype in (I64, BOOL)
        case Read(tensor, _):
            array = contents.get(tensor)
            return array is not None and (array.dtype in (np.int64, np.bool_) or array.dtype == object)
        case Call(op, _):
            return op in HOST_OPERATORS
        case Index() | Select():
            return True
        case _:
            return False


def _value(e: Expr, at: Mapping[str, int], contents: Mapping[str, np.ndarray]) -> Any:
    match e:
        case Const():
            return e.value
        case Index():
            return at[e.name]
        case Read():
            found = contents[e.tensor][tuple(_value(s, at, contents) for s in e.subscripts)]
            return found.item() if isinstance(found, np.generic) else found
        case Select():
            return _value(e.then if _value(e.condition, at, contents) else e.other, at, contents)
        case Cast():
            value = _value(e.value, at, contents)
            return bool(value) if e.dtype == BOOL else value + 0
        case Call():
            return HOST_OPERATORS[e.op](*(_value(a, at, contents) for a in e.args))
    raise AssertionError(e)
