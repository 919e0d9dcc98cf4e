"""Sparse matrices as arguments and results: any object that holds compressed rows (columns), by its attributes.

SciPy and pydata/sparse call the arrays ``data``, ``indices`` and ``indptr``, PyTorch has methods.  Nothing is copied, and no
package is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from polyc.diagnostics import PolycError
from polyc.ir.program import Compressed
from polyc.ir.ragged import Ragged
from polyc.ir.types import I32, I64, DType
from polyc.records import dataclass
from polyc.runtime.arrays import argument_error, is_same_memory
from polyc.runtime.sizes import check_size

Arrays = tuple[Any, Any, Any]
"""Entries, their columns (rows), and the ends of rows (columns), as `Compressed.parts` has them."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Compressed rows (columns) of three arrays: what a call takes and gives where no package has made them."""

    data: Any
    indices: Any
    indptr: Any
    shape: tuple[int, int]


def read_matrix(value: Any, matrix: Compressed) -> tuple[Arrays, tuple[int, int]]:
    """The arrays behind a matrix, and its shape.  Errors: another format, no matrix at all."""
    layout, format, axis = str(getattr(value, "layout", "")), matrix.format, matrix.axis
    if layout == f"torch.sparse_{format}":
        arrays = value.values(), *_torch_subscripts(value)
    elif layout.startswith("torch."):
        raise _other_format(value, matrix, f"a PyTorch tensor in the layout {layout}", f".to_sparse_{format}()")
    else:
        wanted = getattr(value, "format", format)
        axes = getattr(value, "compressed_axes", None)
        if isinstance(wanted, str) and wanted not in (format, "gcxs"):
            raise _other_format(value, matrix, f"in the format {wanted}", f".to{format}()")
        if axes not in (None, (axis,), [axis]):
            raise _other_format(value, matrix, f"compressed along {axes}", f".change_compressed_axes(({axis},))")
        if getattr(value, "fill_value", 0) != 0:
            message = f"{matrix.name} is {value.fill_value} beside its entries, and a sparse matrix is 0 there"
            help = f"pass {matrix.name} - {value.fill_value}, and add the difference to the result"
            raise argument_error("argument-type-csr", message, matrix.span, help)
        try:
            arrays = value.data, value.indices, value.indptr
        except AttributeError:
            raise _other_format(value, matrix, f"of type {type(value).__name__}", "") from None
    try:
        shape = tuple(value.shape)
    except (AttributeError, TypeError):
        found = f"of type {type(value).__name__}, whose shape is {getattr(value, 'shape', None)!r}"
        raise _other_format(value, matrix, found, "") from None
    if len(shape) != 2:
        message = f"{matrix.name} has {len(shape)} dimension{'s' * (len(shape) != 1)}, and a sparse matrix has 2"
        raise argument_error("argument-rank", message, matrix.span, "give one matrix a call")
    rows, columns = (check_size(f"{matrix.name}.shape[{d}]", n, matrix.span) for d, n in enumerate(shape))
    try:
        first = int(arrays[2][0])
    except (IndexError, TypeError, ValueError):
        first = 0  # no array of numbers: told where arrays are read
    if first:
        message = f"{matrix.indptr} begins with {first}, and the entries of the first {('row', 'column')[axis]} begin at 0"
        help = f"give as its first element 0, and the entries of all {('rows', 'columns')[axis]}"
        raise argument_error("argument-segments", message, matrix.span, help)
    return arrays, (rows, columns)


def _torch_subscripts(value: Any) -> tuple[Any, Any]:
    is_csr = str(value.layout) == "torch.sparse_csr"
    return (value.col_indices(), value.crow_indices()) if is_csr else (value.row_indices(), value.ccol_indices())


def with_entries(value: Any, data: np.ndarray, subscripts: tuple[Any, Any] | None = None) -> Any:
    """A matrix of the kind of `value`, with other entries: it shares the arrays of subscripts, or holds the given ones.

    Of PyTorch it is a tensor, of any other package a shallow copy; `Rows` where that cannot be changed."""
    torch = sys.modules.get("torch")
    layout = str(getattr(value, "layout", ""))
    if layout.startswith("torch.") and torch is not None:
        places, ends = _torch_subscripts(value)
        if subscripts is not None:  # which no tensor may write to
            data, places, ends = data.copy(), *(torch.from_numpy(a.copy()) for a in subscripts)
        is_bf16 = data.dtype.name == "bfloat16"
        entries = torch.from_numpy(data.view(np.int16)).view(torch.bfloat16) if is_bf16 else torch.from_numpy(data)
        make = torch.sparse_csr_tensor if layout == "torch.sparse_csr" else torch.sparse_csc_tensor
        return make(ends, places, entries, size=tuple(value.shape), check_invariants=False)
    if layout.startswith("torch."):
        return Rows(data, *(subscripts or _torch_subscripts(value)), tuple(value.shape))
    try:
        made = copy(value)
        made.data = data
        if subscripts is not None:
            made.indices, made.indptr = subscripts
    except AttributeError:
        return Rows(data, *(subscripts or (value.indices, value.indptr)), tuple(value.shape))
    return made


def take_entries(value: Any, name: str, matrix: Compressed, arrays: Mapping[str, np.ndarray], shape: Sequence[int]) -> Any:
    """The array behind what a call gives for the result `name`, which has the pattern of `matrix`: an array of entries, or a
    matrix of that one's `shape` with the same subscripts as that one has in `arrays`.  Errors: others."""
    if not hasattr(value, "indptr") and not str(getattr(value, "layout", "")).startswith("torch.sparse"):
        return value
    (data, *subscripts), given_shape = read_matrix(value, matrix)
    if given_shape != tuple(shape):
        message = (
            f"out for {name} is a matrix of shape {given_shape}, and {matrix.name}, whose entries it has, of {tuple(shape)}"
        )
        help = f"give a matrix with the shape, the indices and the indptr of {matrix.name}, or an array for its entries"
        raise argument_error("argument-out-csr", message, matrix.span, help)
    for part, given in zip(matrix.subscripts, map(np.asarray, subscripts), strict=True):
        if not is_same_memory(given, arrays[part]) and not np.array_equal(given, arrays[part]):
            message = f"out for {name} has its entries at other places than {matrix.name}"
            help = f"give a matrix with the indices and indptr of {matrix.name}, or an array for its entries"
            raise argument_error("argument-out-csr", message, matrix.span, help)
    return data


def _other_format(value: Any, matrix: Compressed, found: str, convert: str) -> PolycError:
    name, format = matrix.name, matrix.format
    help = (
        f"pass {name}{convert}"
        if convert
        else f"pass scipy.sparse.{format}_array({name}), or anything with data, indices and indptr"
    )
    message = f"{name} is to be in compressed {('rows', 'columns')[matrix.axis]} ({format}), and is {found}"
    return argument_error("argument-type-csr", message, matrix.span, help)


def check_subscripts(matrix: Compressed | Ragged, name: str, dtype: DType) -> None:
    """Raise where an array of columns or of ends of rows holds anything else than signed integers of 32 or 64 bits."""
    if dtype not in (I32, I64):
        what, kind = ("offsets", "ragged") if isinstance(matrix, Ragged) else ("subscripts of sparse matrices", "csr")
        message = f"{name} is {dtype.label}, and {what} are int32 or int64"
        help = f"convert it: {name} = {name}.astype('int32')"
        raise argument_error(f"argument-type-{kind}", message, matrix.span, help)
