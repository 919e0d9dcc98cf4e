"""ONNX's element types and polyc's."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import onnx.helper
from onnx import TensorProto

from polyc.ir.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType

BY_NUMBER: dict[int, DType] = {
    TensorProto.FLOAT: F32,
    TensorProto.DOUBLE: F64,
    TensorProto.FLOAT16: F16,
    TensorProto.BFLOAT16: BF16,
    TensorProto.INT8: I8,
    TensorProto.INT16: I16,
    TensorProto.INT32: I32,
    TensorProto.INT64: I64,
    TensorProto.UINT8: U8,
    TensorProto.UINT16: U16,
    TensorProto.UINT32: U32,
    TensorProto.UINT64: U64,
    TensorProto.BOOL: BOOL,
}
"""Types that compiled code works on, by the number that attributes such as `Cast`'s ``to`` hold."""

NUMBERS = {dtype: number for number, dtype in BY_NUMBER.items()}


def find_dtype(number: int) -> DType | None:
    """The element type of ``TensorProto.DataType`` `number`; None where compiled code has none."""
    return BY_NUMBER.get(number)


def onnx_name(dtype: DType) -> str:
    """ONNX's name of an element type in a type string: ``float``, ``double``, ``int64``."""
    return number_name(NUMBERS[dtype])


def number_name(number: int) -> str:
    """ONNX's name of a ``TensorProto.DataType``, as in ``tensor(float)``."""
    return str(TensorProto.DataType.Name(number)).lower() if number in TensorProto.DataType.values() else "undefined"


@functools.cache
def numpy_type(name: str) -> np.dtype | None:
    """The element type of arrays for ``tensor(float)``; None for what arrays do not hold as numbers."""
    label = name.removeprefix("tensor(").removesuffix(")")
    if label == name or label in ("string", "undefined") or label.upper() not in TensorProto.DataType.keys():  # noqa: SIM118
        return None
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(label.upper())))


def type_name(proto: onnx.TypeProto) -> str:
    """``tensor(float)``, ``seq(tensor(int64))``, ``map(int64,tensor(float))``."""
    kind = proto.WhichOneof("value")
    match kind:
        case "tensor_type":
            return f"tensor({number_name(proto.tensor_type.elem_type)})"
        case "sparse_tensor_type":
            return f"sparse_tensor({number_name(proto.sparse_tensor_type.elem_type)})"
        case "sequence_type":
            return f"seq({type_name(proto.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({type_name(proto.optional_type.elem_type)})"
        case "map_type":
            return f"map({number_name(proto.map_type.key_type)},{type_name(proto.map_type.value_type)})"
    return "undefined"
