"""The large tensors of a model file left where they are: what protobuf is given names their places instead.

protobuf copies every byte it parses, and Python's copy once more.  `cut_tensors` goes over the wire format (tag, length,
content) of a ``ModelProto`` and writes it again without the ``raw_data`` of large initializers; in their place stands a
reference, in the form of external data, that `tensors.read_tensor` follows into the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

PLACE = "polyc-place"
"""Key of the external data that names the first byte of a tensor in the model's own file."""
SMALLEST = 4096
"""Bytes from which on a tensor is left in the file."""

_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
_MODEL_GRAPH, _GRAPH_INITIALIZER = 7, 5
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14


class _Malformed(Exception):
    """Not a message: protobuf says what is wrong with it."""


class _Field(NamedTuple):
    number: int
    wire: int
    start: int
    """First byte of its tag."""
    content: int
    """First byte of its content."""
    end: int


def cut_tensors(data: memoryview) -> bytes | None:
    """The model without its large tensors; None where there are none, or where `data` is no message."""
    try:
        return _rewrite_model(data)
    except _Malformed:
        return None


def _rewrite_model(data: memoryview) -> bytes | None:
    pieces: list[bytes | memoryview] = []
    n_cut = 0
    for field in _fields(data, 0, len(data)):
        if field.number == _MODEL_GRAPH and field.wire == _LEN:
            graph, count = _rewrite_graph(data, field)
            n_cut += count
            pieces += (_head(_MODEL_GRAPH, len(graph)), graph)
        else:
            pieces.append(data[field.start : field.end])
    return b"".join(pieces) if n_cut else None


def _rewrite_graph(data: memoryview, graph: _Field) -> tuple[bytes, int]:
    pieces: list[bytes | memoryview] = []
    n_cut = 0
    for field in _fields(data, graph.content, graph.end):
        is_tensor = field.number == _GRAPH_INITIALIZER and field.wire == _LEN
        tensor = _rewrite_tensor(data, field) if is_tensor else None
        if tensor is None:
            pieces.append(data[field.start : field.end])
        else:
            n_cut += 1
            pieces += (_head(_GRAPH_INITIALIZER, len(tensor)), tensor)
    return b"".join(pieces), n_cut


def _rewrite_tensor(data: memoryview, tensor: _Field) -> bytes | None:
    """A tensor with a reference; None for one that is small, or that says anything else about where its contents are."""
    if tensor.end - tensor.content < SMALLEST:
        return None
    fields = list(_fields(data, tensor.content, tensor.end))
    raw = [f for f in fields if f.number == _RAW_DATA and f.wire == _LEN]
    if len(raw) != 1 or any(f.number in (_EXTERNAL_DATA, _DATA_LOCATION) for f in fields):
        return None
    (place,) = raw
    if place.end - place.content < SMALLEST:
        return None
    kept = [bytes(data[f.start : f.end]) for f in fields if f is not place]
    entries = ((PLACE, str(place.content)), ("length", str(place.end - place.content)))
    references = [_message(_EXTERNAL_DATA, _text(1, key) + _text(2, value)) for key, value in entries]
    return b"".join((*kept, *references, _varint(_DATA_LOCATION << 3 | _VARINT), b"\x01"))


def _fields(data: memoryview, start: int, end: int) -> Iterator[_Field]:
    """The fields of the message between two bytes."""
    position = start
    while position < end:
        tag, content = _read_varint(data, position, end)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            _, stop = _read_varint(data, content, end)
        elif wire == _LEN:
            length, content = _read_varint(data, content, end)
            stop = content + length
        elif wire in (_I64, _I32):
            stop = content + (8 if wire == _I64 else 4)
        else:
            raise _Malformed
        if stop > end or not number:
            raise _Malformed
        yield _Field(number, wire, position, content, stop)
        position = stop


def _read_varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise _Malformed


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _head(number: int, length: int) -> bytes:
    return _varint(number << 3 | _LEN) + _varint(length)


def _message(number: int, content: bytes) -> bytes:
    return _head(number, len(content)) + content


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode())
