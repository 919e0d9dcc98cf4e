"""Object code that belongs to no program: it runs kernels in turn, finds planned calls, and shares out threads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from polyc import driver
from polyc.codegen.objects import call_loader, pool
from polyc.recall.entries import is_unchanged, open_store, own_versions, read_entry, tell_miss
from polyc.recall.machine import knows_host, physical_host, recall_host

if TYPE_CHECKING:
    from polyc.cache import Key


@functools.cache
def load_sequence(name: str | None = None) -> Any:
    """A function of `codegen.objects.sequence` (the first one), ready to be called: its address, and what keeps that valid."""
    from polyc.codegen.objects.loader import load_object
    from polyc.codegen.objects.sequence import NAME

    with driver.compiling():
        return load_object(glue_code("sequence"), name or NAME)


def _make_call() -> bytes:
    from polyc.codegen.objects.calls import make_call

    return make_call()


def _make_sequence() -> bytes:
    from polyc.codegen.objects.sequence import make_sequence

    return make_sequence(physical_host())


def _make_pool() -> bytes:
    return pool.make_pool(physical_host())


_GLUE: Mapping[str, Callable[[], bytes]] = {"sequence": _make_sequence, "call": _make_call, "pool": _make_pool}
GLUE = tuple(_GLUE)
"""The kinds."""
_glue: dict[str, bytes] = {}
"""What is known of it; code for one machine, whatever its cores."""


def glue_code(kind: str) -> bytes:
    """Object code of one of `GLUE`."""
    if not knows_glue(kind):
        store = open_store()
        if store is not None:
            tell_miss(store, _glue_key(kind))
        adopt_glue(kind, _GLUE[kind]())
    return _glue[kind]


def knows_glue(kind: str) -> bool:
    """Whether `glue_code` needs no LLVM."""
    if kind not in _glue and knows_host():
        store = open_store()
        key = _glue_key(kind)
        entry = None if store is None else store.read(key)
        code = None if entry is None or store is None else read_entry(store, key, lambda entry: entry.payload, entry)
        if code is not None:
            _glue[kind] = code
    return kind in _glue


def adopt_glue(kind: str, code: bytes) -> None:
    """Take what a worker has made for what `glue_code` would give."""
    from polyc.cache import Entry

    _glue[kind] = code
    store = open_store()
    if store is not None and is_unchanged():
        store.write(_glue_key(kind), Entry({}, code))


call_loader.use_source(functools.partial(glue_code, "call"))
pool.use_source(functools.partial(glue_code, "pool"))


def _glue_key(kind: str) -> Key:
    from polyc.cache import Key, digest_text, versions
    from polyc.codegen.objects.host import describe_host

    recall_host()
    parts = (("versions", f"{own_versions()}, {versions('llvmlite')}"),)
    return Key(kind, "host", digest_text(describe_host()), parts)
