"""What an entry depends on, part by part: equal keys mean equal code, and a part that differs explains a miss."""

from __future__ import annotations

import importlib.util
import json
import os
from collections import OrderedDict
from functools import cache

from polyc.cache.places import ProgramPlaces
from polyc.digest import sha256
from polyc.ir.program import Program
from polyc.ir.text import format_program
from polyc.records import dataclass

SCHEMA = 3
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
        return f"{self.file_prefix}{digest_text(whole)}"

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
        identity = ProgramIdentity(digest_text(format_program(program)), ProgramPlaces(program))
        found = _identities[id(program)] = program, identity  # the program is kept, so that its id stays its own
        while len(_identities) > _MAX_IDENTITIES:
            _identities.popitem(last=False)
    return found[1]


def digest_text(text: str) -> str:
    """SHA-256, in hexadecimal."""
    return str(sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


@cache
def versions(*distributions: str) -> str:
    """``islpy 2026.2.2, highspy 1.15.1``, found without importing them."""
    return ", ".join(f"{name} {_find_version(name)}" for name in distributions)


_METADATA = ".dist-info"


@cache
def _list_distributions(directory: str) -> list[str]:
    return [entry for entry in os.listdir(directory) if entry.endswith(_METADATA)]


def _find_version(name: str) -> str:
    """From the name of the directory of metadata beside the package; the module that reads it takes long to import."""
    try:
        spec = importlib.util.find_spec(name)
        parents = {os.path.dirname(p) for p in (spec.submodule_search_locations or ())} if spec is not None else set()
        for parent in parents:
            for entry in _list_distributions(parent):
                if entry.startswith(f"{name}-"):
                    return entry[len(name) + 1 : -len(_METADATA)]
    except (OSError, ValueError, ImportError):
        pass
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
