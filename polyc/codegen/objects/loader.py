"""Object code to callable addresses, without LLVM where that is simple.

Kernels are plain: read-only sections, relocations relative to the program counter, a few functions of the process.  For ELF on
x86-64 (System V ABI, AMD64 supplement, section 4.4) that is a copy and a subtraction for each place, so a process that finds
all it needs in the disk cache never maps LLVM, which takes 50 MiB and a tenth of a second.  `jit.load_object` links whatever
has more in it, and says what is wrong with code that cannot be linked.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from collections.abc import Mapping

from polyc.codegen.objects.elf import HEADER, SECTION, SYMBOL, X86_64, Flag, Place, Relocation, Section
from polyc.records import dataclass

OPENMP_SYMBOLS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
"""What generated code with parallel loops calls."""

_RELOCATION = struct.Struct("<QQq")
_STUB = struct.Struct("<6sQxx")
"""``jmp *[rip]``, and behind it the address, as functions of the process may be out of reach of 32 bits."""
_JUMP = bytes.fromhex("ff2500000000")


@dataclass(frozen=True, slots=True)
class LoadedCode:
    """Addresses of the entry points; they stay valid while `keepalive` is referenced.  `is_parallel`: it may start threads."""

    entry_address: int
    workspace_address: int
    keepalive: object
    is_parallel: bool = True


class _NotSimple(Exception):
    """Something that LLVM's linker knows more about."""


def load_object(obj: bytes, name: str, symbols: Mapping[str, int] | None = None) -> LoadedCode:
    """Link `obj` into the process: as `jit.load_object`, which does what is not done here."""
    found = map_object(obj, symbols or {})
    if found is not None and name in found.addresses and f"{name}_workspace" in found.addresses:
        is_parallel = b"GOMP_parallel" in obj
        return LoadedCode(found.addresses[name], found.addresses[f"{name}_workspace"], found, is_parallel)
    from polyc.codegen.objects import jit

    return jit.load_object(obj, name, symbols)


class Mapped:
    """Code in pages of its own, unmapped when nobody references this."""

    def __init__(self, pages: mmap.mmap, base: ctypes.c_char, addresses: dict[str, int]) -> None:
        self._pages, self._base = pages, base
        self.addresses = addresses


def map_object(obj: bytes, symbols: Mapping[str, int]) -> Mapped | None:
    """The global functions of an ELF object for x86-64, ready to be called; None for all that is not simple.

    `symbols` gives addresses of functions by name; the others are looked for in the process."""
    if sys.platform != "linux":
        return None
    try:
        return _map(obj, symbols)
    except (_NotSimple, struct.error, IndexError, ValueError, OSError):
        return None


def _map(obj: bytes, symbols: Mapping[str, int]) -> Mapped:
    if obj[:6] != b"\x7fELF\x02\x01" or os.uname().machine not in ("x86_64", "AMD64"):
        raise _NotSimple
    header = HEADER.unpack_from(obj)
    if header[2] != X86_64:
        raise _NotSimple
    table, entry_size, count = header[6], header[11], header[12]
    sections = [SECTION.unpack_from(obj, table + k * entry_size) for k in range(count)]
    places, size = _lay_out(sections)
    tables = [s for s in sections if s[1] == Section.SYMBOLS]
    if len(tables) != 1:
        raise _NotSimple
    names, values = _read_symbols(obj, sections, tables[0], places)
    outside = sorted({n for n, v in zip(names, values, strict=True) if v is None and n})
    stubs = {n: size + k * _STUB.size for k, n in enumerate(outside)}
    pages = mmap.mmap(
        -1,
        max(1, size + len(stubs) * _STUB.size),
        flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
        prot=mmap.PROT_READ | mmap.PROT_WRITE,
    )
    for k, place in places.items():
        section = sections[k]
        pages[place : place + section[5]] = obj[section[4] : section[4] + section[5]]
    for name, place in stubs.items():
        _STUB.pack_into(pages, place, _JUMP, _address_of(name, symbols))
    for section in sections:
        if section[1] == Section.RELOCATIONS and section[7] in places:
            _relocate(pages, obj, section, places[section[7]], names, values, stubs)
        elif section[1] == Section.SHORT_RELOCATIONS:
            raise _NotSimple
    base = ctypes.c_char.from_buffer(pages)
    start = ctypes.addressof(base)
    _protect(start, len(pages))
    addresses = {n: start + v for n, v in zip(names, values, strict=True) if n and v is not None and v >= 0}
    return Mapped(pages, base, addresses)


def _lay_out(sections: list[tuple[int, ...]]) -> tuple[dict[int, int], int]:
    """Where each section that is needed at run time goes, and the end of all."""
    places: dict[int, int] = {}
    end = 0
    for k, section in enumerate(sections):
        if not section[2] & Flag.ALLOCATE or not section[5]:
            continue
        if section[2] & Flag.WRITE or section[1] == Section.EMPTY:
            raise _NotSimple
        alignment = max(1, section[8])
        if alignment > mmap.PAGESIZE:
            raise _NotSimple
        places[k] = -(-end // alignment) * alignment
        end = places[k] + section[5]
    return places, -(-end // _STUB.size) * _STUB.size


def _read_symbols(
    obj: bytes, sections: list[tuple[int, ...]], table: tuple[int, ...], places: Mapping[int, int]
) -> tuple[list[str], list[int | None]]:
    """Names, and offsets in the mapping: None for what is outside, -1 for what has no place (files, empty sections)."""
    strings = sections[table[6]]
    text = obj[strings[4] : strings[4] + strings[5]]
    names: list[str] = []
    values: list[int | None] = []
    for place in range(table[4], table[4] + table[5], table[9]):
        symbol = SYMBOL.unpack_from(obj, place)
        names.append(text[symbol[0] : text.index(0, symbol[0])].decode())
        if symbol[3] == Place.OUTSIDE:
            values.append(None)
        elif symbol[3] >= Place.FIRST_SPECIAL or symbol[3] not in places:
            values.append(-1)
        else:
            values.append(places[symbol[3]] + symbol[4])
    return names, values


def _relocate(
    pages: mmap.mmap,
    obj: bytes,
    section: tuple[int, ...],
    origin: int,
    names: list[str],
    values: list[int | None],
    stubs: Mapping[str, int],
) -> None:
    for place in range(section[4], section[4] + section[5], _RELOCATION.size):
        offset, info, addend = _RELOCATION.unpack_from(obj, place)
        kind, number = info & 0xFFFFFFFF, info >> 32
        value = values[number]
        if value is None and kind == Relocation.PLT32:
            value = stubs[names[number]]
        elif value is None and kind in (Relocation.GOTPCREL, Relocation.GOTPCRELX, Relocation.REX_GOTPCRELX):
            value, kind = stubs[names[number]] + len(_JUMP), Relocation.PC32
        if value is None or value < 0 or kind not in (Relocation.PC32, Relocation.PLT32):
            raise _NotSimple
        struct.pack_into("<i", pages, origin + offset, value + addend - (origin + offset))


def _address_of(name: str, symbols: Mapping[str, int]) -> int:
    found = symbols.get(name)
    if found is None:
        try:
            found = ctypes.cast(getattr(_process(), name), ctypes.c_void_p).value
        except AttributeError:
            raise _NotSimple from None
    if not found:
        raise _NotSimple
    return found


def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _protect(address: int, size: int) -> None:
    """Make pages executable, and no longer writable."""
    protect = _process().mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if protect(address, size, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        raise OSError(ctypes.get_errno(), "pages cannot be made executable")
