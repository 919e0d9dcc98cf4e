"""Sparse matrices as arguments: any object that holds compressed rows, by its attributes.

SciPy and pydata/sparse call the arrays ``data``, ``indices`` and ``indptr``, PyTorch has methods.  Nothing is copied, and no
package is imported.
"""

from __future__ import annotations

from operator import index
from typing import Any

from polyc.diagnostics import PolycError
from polyc.ir.program import CompressedRows
from polyc.ir.types import I32, I64, DType
from polyc.records import dataclass
from polyc.runtime.arrays import argument_error

Arrays = tuple[Any, Any, Any]
"""Entries, their columns, and the ends of rows, as `CompressedRows.parts` has them."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Compressed rows of three arrays: what a call takes where no package has made them."""

    data: Any
    indices: Any
    indptr: Any
    shape: tuple[int, int]


def read_matrix(value: Any, matrix: CompressedRows) -> tuple[Arrays, tuple[int, int]]:
    """The arrays behind a matrix, and its shape.  Errors: another format, no matrix at all."""
    layout = str(getattr(value, "layout", ""))
    if layout == "torch.sparse_csr":
        arrays = value.values(), value.col_indices(), value.crow_indices()
    elif layout.startswith("torch."):
        raise _other_format(value, matrix, f"a PyTorch tensor in the layout {layout}", ".to_sparse_csr()")
    else:
        wanted = getattr(value, "format", "csr")
        axes = getattr(value, "compressed_axes", None)
        if isinstance(wanted, str) and wanted not in ("csr", "gcxs"):
            raise _other_format(value, matrix, f"in the format {wanted}", ".tocsr()")
        if axes not in (None, (0,), [0]):
            raise _other_format(value, matrix, f"compressed along {axes}", ".change_compressed_axes((0,))")
        try:
            arrays = value.data, value.indices, value.indptr
        except AttributeError:
            raise _other_format(value, matrix, f"of type {type(value).__name__}", "") from None
    try:
        shape = tuple(map(index, value.shape))
    except (AttributeError, TypeError):
        found = f"of type {type(value).__name__}, whose shape is {getattr(value, 'shape', None)!r}"
        raise _other_format(value, matrix, found, "") from None
    if len(shape) != 2:
        message = f"{matrix.name} has {len(shape)} dimension{'s' * (len(shape) != 1)}, and a matrix in compressed rows has 2"
        raise argument_error("argument-rank", message, matrix.span, "give one matrix a call")
    if not all(0 <= n < 2**62 for n in shape):
        message = f"{matrix.name} has the shape {shape}, and sizes are at least 0 and less than 2**62"
        raise argument_error("argument-size", message, matrix.span, "give the numbers of its rows and columns")
    try:
        first = int(arrays[2][0])
    except (IndexError, TypeError, ValueError):
        first = 0  # no array of numbers: told where arrays are read
    if first:
        message = f"{matrix.indptr} begins with {first}, and the entries of the first row begin at 0"
        help = "give as its first element 0, and the entries of all rows"
        raise argument_error("argument-segments", message, matrix.span, help)
    return arrays, shape


def _other_format(value: Any, matrix: CompressedRows, found: str, convert: str) -> PolycError:
    name = matrix.name
    help = (
        f"pass {name}{convert}"
        if convert
        else f"pass scipy.sparse.csr_array({name}), or anything with data, indices and indptr"
    )
    return argument_error("argument-type-csr", f"{name} is to be in compressed rows (csr), and is {found}", matrix.span, help)


def check_subscripts(matrix: CompressedRows, name: str, dtype: DType) -> None:
    """Raise where an array of columns or of ends of rows holds anything else than signed integers of 32 or 64 bits."""
    if dtype not in (I32, I64):
        message = f"{name} is {dtype.label}, and subscripts in compressed rows are int32 or int64"
        help = f"convert it: {name} = {name}.astype('int32')"
        raise argument_error("argument-type-csr", message, matrix.span, help)
