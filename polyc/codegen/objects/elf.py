"""Names in object files: two kernels of one program's name can stand in one library after one of them is renamed.

Only what that needs of the format (System V ABI, "Object Files"; ELF-64, little-endian) is here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from polyc.diagnostics import Diagnostic, UnsupportedError

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
X86_64 = 62
"""The processor, in the header."""


class Section:
    """Kinds of sections."""

    SYMBOLS = 2
    RELOCATIONS = 4
    EMPTY = 8
    SHORT_RELOCATIONS = 9
    """Without addends: other processors have them."""


class Place:
    """Numbers of sections in symbols that are none."""

    OUTSIDE = 0
    FIRST_SPECIAL = 0xFF00


class Relocation:
    """Of x86-64: an address relative to the place, by way of a stub where it is far, and that of a word which holds it."""

    PC32 = 2
    PLT32 = 4
    GOTPCREL = 9
    GOTPCRELX = 41
    REX_GOTPCRELX = 42


class Flag:
    """Of sections."""

    WRITE = 1
    ALLOCATE = 2


def rename_symbols(obj: bytes, names: Mapping[str, str]) -> bytes:
    """`obj` with symbols of other names; raises UnsupportedError (``unsupported-object-format``) for other formats.

    The table of strings is written again behind the file's end, with the new names added to it."""
    if obj[:6] != b"\x7fELF\x02\x01":
        message = "kernels can be put together in ELF-64 object files only, as Linux has them"
        raise UnsupportedError(Diagnostic("unsupported-object-format", message, None, "compile the model on Linux"))
    header = HEADER.unpack_from(obj)
    table, entry_size, count = header[6], header[11], header[12]
    data = bytearray(obj)
    sections = [list(SECTION.unpack_from(obj, table + k * entry_size)) for k in range(count)]
    for section in sections:
        if section[1] != Section.SYMBOLS:
            continue
        strings = sections[section[6]]
        text = bytearray(obj[strings[4] : strings[4] + strings[5]])
        for place in range(section[4], section[4] + section[5], section[9]):
            symbol = list(SYMBOL.unpack_from(obj, place))
            end = text.index(0, symbol[0])
            new = names.get(text[symbol[0] : end].decode())
            if new is not None:
                symbol[0] = len(text)
                text += new.encode() + b"\0"
                SYMBOL.pack_into(data, place, *symbol)
        strings[4], strings[5] = len(data), len(text)
        data += text
    for k, section in enumerate(sections):
        SECTION.pack_into(data, table + k * entry_size, *section)
    return bytes(data)
