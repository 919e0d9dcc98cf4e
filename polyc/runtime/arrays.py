"""Single arrays: what a user may pass as one, its address, its strides, and whether two of them overlap."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyc.diagnostics import (
    ArgumentError,
    ArgumentOverflowError,
    ArgumentTypeError,
    Diagnostic,
    PolycError,
    Span,
    UnsupportedError,
)
from polyc.ir.halves import narrow, widen
from polyc.ir.types import BF16, DTYPES, DType, from_numpy
from polyc.runtime.weak import is_weak, weak_array

_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_word_at = ctypes.c_size_t.from_address
_RAW_BFLOAT16 = np.dtype("V2")
_DATA_OFFSET = 40 if ctypes.sizeof(ctypes.c_void_p) == 8 else 28
"""Offset of `data` in NumPy's documented `PyArrayInterface` structure: four ints and a char, then three pointers."""


def data_address(array: np.ndarray) -> int:
    """Address of element 0.  Four times faster than ``array.ctypes.data``; the capsule must outlive the read."""
    capsule = array.__array_struct__
    return _word_at(_capsule_pointer(capsule, None) + _DATA_OFFSET).value


def type_label(dtype: DType) -> str:
    """NumPy's name of an element type, which is the one that users know (``float32``)."""
    return dtype.label


def shape_label(shape: Sequence[int]) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def argument_error(code: str, message: str, span: Span | None = None, help: str | None = None) -> PolycError:
    """An `ArgumentTypeError` for codes ``argument-type-*``, else an `ArgumentError`."""
    cls = ArgumentTypeError if code.startswith("argument-type") else ArgumentError
    return cls(Diagnostic(code, message, span, help))


def convert_input(value: Any, name: str, dtype: DType | None, span: Span | None = None, takes_weak: bool = False) -> np.ndarray:
    """The array that `value` means: a NumPy array, a DLPack object, a Python scalar or nested list, a buffer.

    Arrays keep their element type, which must be `dtype` (None: any that polyc has).  Python numbers are converted
    where the declared type holds them exactly (a float may be rounded to a float type).  Never copies an array,
    except one whose elements are not aligned, which compiled code must not touch.  Where the input `takes_weak`, Python numbers
    become weak ones (`runtime/weak.py`).
    """
    if isinstance(value, np.ndarray):
        if takes_weak and is_weak(value):
            return value
        if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):  # np.ma takes long to import
            raise argument_error(
                "argument-type-masked",
                f"{name} is a masked array, and polyc would ignore its mask",
                span,
                f"pass {name}.filled(...), or the mask as an input of its own",
            )
        array = value.view(np.ndarray) if type(value) is not np.ndarray else value
    elif isinstance(value, np.generic):
        array = np.asarray(value)
    elif hasattr(value, "__dlpack__"):
        array = _import_dlpack(value, name, span)
    elif takes_weak and isinstance(value, (bool, int, float, complex)):
        return _make_weak(value, name, span)
    elif isinstance(value, (bool, int, float, complex, list, tuple, range)):
        array = _convert_numbers(value, name, dtype, span)
    elif hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        array = _export_array(value, name, span)
    else:
        array = _view_buffer(value, name, span)
    if dtype == BF16 and array.dtype == _RAW_BFLOAT16:
        array = array.view(BF16.numpy)  # as numpy.save writes them
    check_element_type(array, name, dtype, span, None if hasattr(value, "astype") else value)
    return array if array.flags.aligned else array.copy()


def has_chunks(value: Any) -> bool:
    """Whether it is a dask array, whose elements are made when they are asked for."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(value, module.Array)


def in_own_order(value: Any) -> Any:
    """`value`, or a copy of it where it is an array in the byte order of another machine: for functions that, as NumPy's, take
    those, too."""
    is_foreign = isinstance(value, np.ndarray) and not value.dtype.isnative
    return value.astype(value.dtype.newbyteorder("=")) if is_foreign else value


def check_element_type(array: np.ndarray, name: str, dtype: DType | None, span: Span | None, origin: Any = None) -> DType:
    """The polyc element type of `array`; an error where it has none or is not `dtype`.

    `origin` is what the array was made of, where that has no method ``astype``."""
    if not array.dtype.isnative:
        raise argument_error(
            "argument-type-byteorder",
            f"{name} has the byte order of another machine ({array.dtype.str})",
            span,
            "pass an array of this machine's byte order"
            if name.startswith("out for ")
            else f"convert it: {name}.astype({name}.dtype.newbyteorder('='))",
        )
    found = from_numpy(array.dtype)
    if found is None:
        expected = f": expected type {type_label(dtype)}" if dtype is not None else ""
        message = f"{name} has element type {array.dtype}, which polyc does not compute with{expected}"
        supported = ", ".join(type_label(t) for t in DTYPES.values())
        help = f"convert it, for example {name}.astype('float32') (element types are {supported})"
        raise argument_error("argument-type-dtype", message, span, help)
    if dtype is not None and found != dtype:
        message = f"{name}: expected type {type_label(dtype)} ({dtype}), but found {type_label(found)}"
        help = f"convert it: {name}.astype('{type_label(dtype)}')"
        if origin is not None:
            is_torch = type(origin).__module__.partition(".")[0] == "torch"
            label = type_label(dtype)
            help = (
                f"convert it: {name}.to(torch.{label})" if is_torch else f"convert it: numpy.asarray({name}).astype('{label}')"
            )
        if found.is_complex and not dtype.is_complex:
            help = f"pass its real or imaginary part: {name}.real"
        if name.startswith("out for "):
            help = f"pass an array of that type: numpy.empty({array.shape}, '{type_label(dtype)}')"
        raise argument_error("argument-type-dtype", message, span, help)
    return found


def _import_dlpack(value: Any, name: str, span: Span | None) -> np.ndarray:
    """A view of a DLPack object; NumPy's refusals (a GPU tensor, one that needs a gradient) in the user's names.

    NumPy imports no bf16: a PyTorch tensor of it is taken by its bits, any other converts itself."""
    try:
        if getattr(value, "is_neg", bool)():  # PyTorch exports such a view without a word about the sign
            raise BufferError("it is a view that negates (its negative bit is set)")
        match str(getattr(value, "dtype", "")):
            case "torch.bfloat16":
                return _import_bits(value)
            case "bfloat16":
                return np.asarray(value)
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as problem:
        raise argument_error(
            "argument-type-dlpack", f"{name} cannot be read through DLPack: {problem}", span, _how_to_export(value)
        ) from problem


def _how_to_export(value: Any) -> str:
    """What makes a plain tensor of one that NumPy cannot read, in PyTorch's words."""
    if getattr(value, "is_neg", bool)() or getattr(value, "is_conj", bool)():
        return "pass x.resolve_conj().resolve_neg()"
    if "strided" not in str(getattr(value, "layout", "strided")):
        return "pass x.to_dense()"
    if getattr(value, "is_quantized", False):
        return "pass x.dequantize()"
    if getattr(value, "is_meta", False):
        return "pass a tensor that has elements: one on the device meta has a shape only"
    if "float8" in str(getattr(value, "dtype", "")):
        return "convert it: x.to(torch.float32)"
    return "detach it from the gradient tape (x.detach()) and bring it to the CPU (x.cpu())"


def _view_buffer(value: Any, name: str, span: Span | None) -> np.ndarray:
    """The array in an object with the buffer protocol (a memoryview, an `array.array`)."""
    help = "pass a NumPy array, an object with DLPack support, or a number for a scalar"
    try:
        buffer = memoryview(value)
    except TypeError:
        message = f"{name} is a {type(value).__name__}, which is no array"
        raise argument_error("argument-type-array", message, span, help) from None
    try:
        return np.asarray(buffer)
    except (ValueError, NotImplementedError) as problem:
        message = f"{name} is a {type(value).__name__} that makes no array: {problem}"
        raise argument_error("argument-type-array", message, span, help) from problem


def _import_bits(tensor: Any) -> np.ndarray:
    integers = tensor.view(sys.modules["torch"].int16)
    return np.from_dlpack(integers).view(BF16.numpy)


def _export_array(value: Any, name: str, span: Span | None) -> np.ndarray:
    """What an object's own conversion to an array gives; it may fail in any way."""
    try:
        return np.asarray(value)
    except Exception as problem:
        message = f"{name} is a {type(value).__name__} that makes no array: {problem}"
        raise argument_error("argument-type-array", message, span, "pass a NumPy array") from problem


def _make_weak(value: bool | int | float | complex, name: str, span: Span | None) -> np.ndarray:
    array = weak_array(value)
    if array is None:
        message = f"{name} is an integer beyond 64 bits"
        raise ArgumentOverflowError(Diagnostic("argument-number", message, span, f"pass a float: {name}=float(...)"))
    return array


def _convert_numbers(value: Any, name: str, dtype: DType | None, span: Span | None) -> np.ndarray:
    try:
        plain = np.asarray(value)
    except (ValueError, OverflowError) as problem:
        raise argument_error(
            "argument-type-array", f"{name} is a list that makes no array: {problem}", span, "give every row one length"
        ) from problem
    if plain.size == 0 and dtype is not None:
        return np.empty(plain.shape, dtype.numpy)
    if plain.dtype == object and dtype is not None and all(isinstance(x, (bool, int, float, complex)) for x in plain.ravel()):
        message = f"{name} holds a number that {type_label(dtype)} cannot hold"
        raise argument_error("argument-type-dtype", message, span, "pass a smaller number")
    if plain.dtype.kind not in "biufc":
        raise argument_error("argument-type-array", f"{name} does not hold numbers (but {plain.dtype})", span, "pass numbers")
    if dtype is None or plain.dtype == dtype.numpy:
        return plain
    if "biufc".index(plain.dtype.kind) > "biufc".index(dtype.kind):
        raise argument_error(
            "argument-type-dtype",
            f"{name}: expected type {type_label(dtype)} ({dtype}), but found a number of type {plain.dtype}",
            span,
            f"convert it: numpy.asarray({name}).astype('{type_label(dtype)}')",
        )
    with np.errstate(all="ignore"):
        if dtype.is_storage:
            rounded = narrow(plain, dtype)
            _check_finite(plain, widen(rounded), name, dtype, span)
            if plain.dtype.kind != "f" and not bool(np.all(widen(rounded) == plain)):
                message = f"{name} holds a number that {type_label(dtype)} cannot hold exactly"
                raise argument_error("argument-type-dtype", message, span, "pass an array of the declared type")
            return rounded
        converted = plain.astype(dtype.numpy)
        exact = plain.dtype.kind in "fc" or bool(np.all(_values(converted) == _values(plain)))
        _check_finite(plain, converted, name, dtype, span)
    if not exact:
        message = f"{name} holds a number that {type_label(dtype)} cannot hold exactly"
        raise argument_error("argument-type-dtype", message, span, "pass an array of the declared type")
    return converted


def _check_finite(plain: np.ndarray, converted: np.ndarray, name: str, dtype: DType, span: Span | None) -> None:
    if not np.array_equal(np.isfinite(converted), np.isfinite(plain)):
        message = f"{name} holds a number that {type_label(dtype)} cannot hold: it would be infinite"
        raise argument_error("argument-type-dtype", message, span, "pass a smaller number, or declare a wider type")


def _values(array: np.ndarray) -> np.ndarray:
    """Python numbers: NumPy compares int64 with float32 in float64, Python compares exactly."""
    return array.astype(object)


def view_output(value: Any, name: str, span: Span | None = None) -> np.ndarray | None:
    """The array behind an ``out`` argument, checked in nothing; None for what is no array that can be written to."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ndarray):
        return None if isinstance(value, np.ma.MaskedArray) else value.view(np.ndarray)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
        return _import_dlpack(value, f"out for {name}", span)
    return None


def check_output(value: Any, name: str, dtype: DType, shape: tuple[int, ...], span: Span | None = None) -> np.ndarray:
    """The writable view behind an ``out`` argument of the given element type and shape."""
    array = view_output(value, name, span)
    if array is None:
        message = f"out for {name} is a {type(value).__name__}, which is no array that can be written to"
        raise argument_error("argument-type-out", message, span, f"pass numpy.empty({shape}, '{type_label(dtype)}')")
    check_element_type(array, f"out for {name}", dtype, span)
    if array.shape != shape:
        raise argument_error(
            "argument-out-shape",
            f"out for {name} has shape {shape_label(array.shape)}, but the result has shape {shape_label(shape)}",
            span,
            f"pass numpy.empty({shape}, '{type_label(dtype)}')",
        )
    if not array.flags.writeable:
        raise argument_error("argument-out-readonly", f"out for {name} is read-only", span, "pass a writable array")
    if not array.flags.aligned:
        raise argument_error(
            "argument-out-alignment",
            f"out for {name} does not start at a multiple of its element size",
            span,
            f"pass numpy.empty({shape}, '{type_label(dtype)}')",
        )
    if has_internal_overlap(array.shape, array.strides, array.itemsize):
        raise argument_error(
            "argument-out-overlap",
            f"several elements of out for {name} share memory (strides {array.strides}), so it cannot hold the result",
            span,
            "pass an array of its own, for example numpy.empty_like(...)",
        )
    return array


def result_type(name: str, dtype: DType) -> np.dtype:
    """NumPy's type for a new result; an error for bf16 where `ml_dtypes`, which defines it, is not installed."""
    if dtype == BF16 and BF16.numpy == _RAW_BFLOAT16:
        message = f"{name} is bfloat16, and NumPy has no such type without the package ml_dtypes"
        help = "install ml_dtypes, pass a bfloat16 array (of PyTorch, for example) as out, or compute float32"
        raise argument_error("argument-type-bfloat16", message, None, help)
    return dtype.numpy


def has_internal_overlap(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether two elements may share bytes; sufficient for every layout that slicing and transposing can make."""
    if 0 in shape:
        return False
    reach = itemsize  # bytes spanned by the dimensions of smaller stride
    for stride, extent in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride < reach:
            return True
        reach += stride * (extent - 1)
    return False


def byte_bounds(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """First byte and one past the last, relative to element 0; equal for an array without elements."""
    if 0 in shape:
        return 0, 0
    low = sum(s * (n - 1) for s, n in zip(strides, shape, strict=True) if s < 0)
    high = sum(s * (n - 1) for s, n in zip(strides, shape, strict=True) if s > 0)
    return low, high + itemsize


def is_same_memory(a: np.ndarray, b: np.ndarray) -> bool:
    """Exact aliasing: the same elements in the same places."""
    same_layout = a.dtype == b.dtype and a.shape == b.shape
    return same_layout and a.size > 0 and data_address(a) == data_address(b) and _relevant(a) == _relevant(b)


def _relevant(array: np.ndarray) -> list[int]:
    return [s for s, n in zip(array.strides, array.shape, strict=True) if n > 1]


def overlaps(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays share a byte; where that is hard to decide, yes."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=10_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def contiguous_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """C-order byte strides.  Dimensions without extent count as one, so that no stride is 0."""
    strides = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def normalize_strides(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """`strides` with the meaningless ones (extent at most 1, or no elements) set as in a contiguous array."""
    contiguous = contiguous_strides(shape, itemsize)
    if 0 in shape:
        return contiguous
    return tuple(c if n <= 1 else s for s, n, c in zip(strides, shape, contiguous, strict=True))


def stride_class(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> str:
    """``"contiguous"`` (C order), ``"unit"`` (last stride is one element) or ``"general"`` (any other, 0 and negative)."""
    normal = normalize_strides(shape, strides, itemsize)
    if normal == contiguous_strides(shape, itemsize):
        return "contiguous"
    return "unit" if normal[-1] == itemsize else "general"


def unsupported_alias(output: str, source: str) -> UnsupportedError:
    """Exact aliasing of an input that the kernel was not proved for."""
    return UnsupportedError(
        Diagnostic(
            "unsupported-alias",
            f"out for {output} is the same memory as {source}, and elements of {source} are read after they are overwritten",
            None,
            f"pass an array of its own as out, or a copy of {source}",
        )
    )


def alias_pattern(addresses: Sequence[int], given: Sequence[int]) -> tuple[int, ...]:
    """For each result, the first input at the same address, or -1.  With the layouts it tells every exact alias."""
    return tuple([addresses.index(a) if a in addresses else -1 for a in given])
