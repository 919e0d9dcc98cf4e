"""What an entry depends on, part by part: equal keys mean equal code, and a part that differs explains a miss."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from polyc.cache.places import ProgramPlaces
from polyc.ir.program import Program
from polyc.ir.text import format_program

SCHEMA = 1
"""Number of the form of entries."""
_MAX_IDENTITIES = 256


@dataclass(frozen=True, slots=True)
class Key:
    """Of one entry: `kind` and `subject` (a program, a text: the digest of what was compiled), and everything else.

    `name` is for people."""

    kind: str
    name: str
    subject: str
    parts: tuple[tuple[str, str], ...]

    @property
    def file_name(self) -> str:
        """``<kind>-<16 digits of the subject>-<digest of everything>``."""
        whole = json.dumps([SCHEMA, self.kind, self.subject, self.parts])
        return f"{self.file_prefix}{_digest(whole)}"

    @property
    def file_prefix(self) -> str:
        """What the names of all entries of this kind and subject begin with."""
        return f"{self.kind}-{self.subject[:16]}-"


@dataclass(frozen=True, slots=True, eq=False)
class ProgramIdentity:
    """A program as keys see it: the digest of its text, that of its places, and the places themselves."""

    text: str
    places: ProgramPlaces


_identities: OrderedDict[int, tuple[Program, ProgramIdentity]] = OrderedDict()


def identify_program(program: Program) -> ProgramIdentity:
    """The identity of `program`; that of the last few hundred programs is kept."""
    found = _identities.get(id(program))
    if found is None:
        identity = ProgramIdentity(_digest(format_program(program)), ProgramPlaces(program))
        found = _identities[id(program)] = program, identity  # the program is kept, so that its id stays its own
        while len(_identities) > _MAX_IDENTITIES:
            _identities.popitem(last=False)
    return found[1]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@cache
def versions(*distributions: str) -> str:
    """``islpy 2026.2.2, highspy 1.15.1``, found without importing them."""
    return ", ".join(f"{name} {_find_version(name)}" for name in distributions)


def _find_version(name: str) -> str:
    """From the name of the directory of metadata beside the package; the module that reads it takes long to import."""
    try:
        spec = importlib.util.find_spec(name)
        parents = {Path(p).parent for p in (spec.submodule_search_locations or ())} if spec is not None else set()
        for parent in parents:
            for entry in os.listdir(parent):
                match = re.fullmatch(rf"{re.escape(name)}-(.+)\.dist-info", entry)
                if match is not None:
                    return match[1]
    except (OSError, ValueError, ImportError):
        pass
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"


def package_state() -> str:
    """A digest of the package's own files by path, size and time of change: code that is being worked on has no version."""
    root = Path(__file__).parents[1]
    found: list[tuple[str, int, int]] = []
    try:
        _list_files(str(root), found)
    except OSError:
        return "unknown"  # no files of its own: an archive
    return _digest(repr(sorted((path[len(str(root)) :], size, time) for path, size, time in found)))[:16]


def _list_files(directory: str, found: list[tuple[str, int, int]]) -> None:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".lark")):
                state = entry.stat()
                found.append((entry.path, state.st_size, state.st_mtime_ns))
            elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                _list_files(entry.path, found)
