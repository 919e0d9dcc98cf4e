"""Operators on labelled arrays: `apply` gives what an operator makes of DataArrays dims, coordinates and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from polyc import driver
from polyc.api.operator import Operator
from polyc.api.sources import program_formals
from polyc.diagnostics import Diagnostic, UnsupportedError
from polyc.driver.sized import size_program
from polyc.ir.components import order_components
from polyc.ir.expr import Expr, Index, evaluate, index_names, int_const, reads, substitute
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program
from polyc.poly.ranges import Ranges
from polyc.records import dataclass
from polyc.runtime.arrays import argument_error


def apply(operator: Operator, /, *inputs: Any, dims: Any = None, keep_attrs: bool = True, **named: Any) -> Any:
    """`operator` on `xarray.DataArray`s (others as they are), on dask arrays inside of them by blocks; several results are a
    tuple of DataArrays.

    A dimension of a result has the name and the coordinates of the one of an input that is read at the same index: shifted,
    strided and reversed with the subscript, and only where each of its positions has one.  It is called ``dim_0``, ``dim_1``, …
    where there is none; names that come twice get a number.  `dims` are other names: a sequence, of several results a dict by
    name.  Attributes are those of the first DataArray, unless `keep_attrs` is False.

    Raises what a call of the operator does; UnsupportedError (``unsupported-package``) without xarray; ArgumentError
    (``argument-dims``) where `dims` are not as many as a result has dimensions."""
    xarray = _load_xarray()
    labelled = [a for a in (*inputs, *named.values()) if isinstance(a, xarray.DataArray)]
    plain = [a.data if isinstance(a, xarray.DataArray) else a for a in inputs]
    plain_named = {n: a.data if isinstance(a, xarray.DataArray) else a for n, a in named.items()}
    made = operator(*plain, **plain_named)
    call = operator.sort_call(inputs, named)
    wanted = operator._describe(plain, plain_named)
    formals = zip(program_formals(wanted.program), call.inputs, strict=True)
    arrays = {f.name: a for f, a in formals if isinstance(a, xarray.DataArray)}
    with driver.compiling():
        sized = size_program(wanted.program, wanted.sizes)
        origins = _find_origins(sized.program, sized.ranges)
    attrs = dict(labelled[0].attrs) if labelled and keep_attrs else {}
    results = made if isinstance(made, tuple) else (made,)
    found = []
    for r, value in zip(wanted.program.returns, results, strict=True):
        asked = dims.get(r.name) if isinstance(dims, Mapping) else dims
        if asked is not None and (isinstance(asked, str) or len(asked) != value.ndim):
            message = f"dims={asked!r} does not name the {value.ndim} dimensions of {r.name}"
            raise argument_error("argument-dims", message, None, "give a name for each dimension, in a sequence")
        names = _name_dimensions(arrays, origins[r.version]) if asked is None else [str(n) for n in asked]
        coords = _take_coordinates(arrays, origins[r.version], names, value.shape)
        found.append(xarray.DataArray(value, dims=names, coords=coords, attrs=attrs, name=r.name))
    return tuple(found) if isinstance(made, tuple) else found[0]


def _load_xarray() -> Any:
    try:
        import xarray
    except ImportError as problem:
        message = "labelled arrays need xarray, which is not installed"
        help = "pip install 'polyc[xarray]'"
        raise UnsupportedError(Diagnostic("unsupported-package", message, None, help)) from problem
    return xarray


@dataclass(frozen=True, slots=True)
class _Origin:
    """Position p of a dimension has the label at ``stride * p + offset`` of a dimension of an input."""

    input: str
    dimension: int
    stride: int = 1
    offset: int = 0

    def at(self, stride: int, offset: int) -> _Origin:
        """That of a dimension whose position p is at ``stride * p + offset`` of this one."""
        return _Origin(self.input, self.dimension, self.stride * stride, self.stride * offset + self.offset)


def _find_origins(program: Program, ranges: Ranges) -> dict[str, list[_Origin | None]]:
    """For each dimension of all tensors, counted from 0, where its labels come from."""
    found: dict[str, list[_Origin | None]] = {
        p: [_Origin(p, d) for d in range(program.tensor(p).rank)] for p in program.parameters
    }
    lowers = {name: [evaluate(i.lower, {}) for i in box] for name, box in ranges.tensors.items()}
    for component in order_components(program):
        for version in component.versions:
            found[version] = [None] * program.tensor(version).rank
        for s in component.statements:
            places = [(r, e) for r in reads(s.value) for e in range(len(r.subscripts))]
            for d, left in enumerate(s.subscripts):
                if not isinstance(left, Index) or found[s.target][d] is not None:
                    continue
                known = [
                    origin.at(line[0], line[1] + line[0] * lowers[s.target][d] - lowers.get(r.tensor, [0] * (e + 1))[e])
                    for r, e in places
                    if r.tensor in found
                    and (origin := found[r.tensor][e]) is not None
                    and (line := _read_line(r.subscripts[e], left.name)) is not None
                ]
                found[s.target][d] = min(known, key=lambda o: (abs(o.stride - 1), abs(o.offset)), default=None)
    return found


def _read_line(subscript: Expr, index: str) -> tuple[int, int] | None:
    """Coefficient and constant of a subscript that moves with one index alone."""
    coefficients = index_coefficients(subscript)
    if coefficients is None or index_names(subscript) != {index} or not coefficients.get(index):
        return None
    return coefficients[index], evaluate(substitute(subscript, {index: int_const(0)}), {})


def _name_dimensions(arrays: Mapping[str, Any], origins: Sequence[_Origin | None]) -> list[str]:
    names: list[str] = []
    for d, origin in enumerate(origins):
        array = None if origin is None else arrays.get(origin.input)
        name = f"dim_{d}" if origin is None or array is None else str(array.dims[origin.dimension])
        names.append(next(n for k in count(1) if (n := f"{name}_{k}" if k > 1 else name) not in names))
    return names


def _take_coordinates(
    arrays: Mapping[str, Any], origins: Sequence[_Origin | None], names: Sequence[str], shape: Sequence[int]
) -> dict[str, Any]:
    """Coordinates of a result, from each input those whose dimensions all are dimensions of the result."""
    coords: dict[str, Any] = {}
    for key, array in arrays.items():
        taken: dict[Any, tuple[str, np.ndarray]] = {}
        for name, origin, extent in zip(names, origins, shape, strict=True):
            if origin is not None and origin.input == key:
                at = origin.stride * np.arange(extent) + origin.offset
                if extent == 0 or (at.min() >= 0 and at.max() < array.shape[origin.dimension]):
                    taken.setdefault(array.dims[origin.dimension], (name, at))
        for label, coord in array.coords.items():
            own = taken[label][0] if label in coord.dims and label in taken else label
            if set(coord.dims) <= set(taken) and own not in coords:
                part = coord.variable.isel({d: taken[d][1] for d in coord.dims})
                coords[own] = (tuple(taken[d][0] for d in part.dims), part.data, part.attrs)
    return coords
