"""One entry of the disk cache: read, or made and kept.

An entry depends on nothing but its key (`polyc.cache.keys`), so a hit gives what the driver would give.  Whatever is wrong with
an entry, the work is done again."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from polyc.config import VERSION, debugging
from polyc.digest import sha256
from polyc.environment import warn_of_environment
from polyc.log import logger

if TYPE_CHECKING:
    from polyc.cache import Entry, Key, Store

Made = TypeVar("Made")
Read = TypeVar("Read")


def package_state() -> str:
    """A digest of path, size and time of change of the package's own files: code that is being worked on has no version."""
    names: list[str] = []
    numbers = array("q")
    try:
        _list_files(os.path.dirname(os.path.dirname(__file__)), names, numbers)
    except OSError:
        return ""  # no files of its own: an archive
    return str(sha256("\n".join(names).encode("utf-8", "surrogatepass") + numbers.tobytes()).hexdigest())


def _list_files(directory: str, names: list[str], numbers: array[int]) -> None:
    with os.scandir(directory) as found:
        entries = sorted(found, key=attrgetter("name"))
    for entry in entries:
        name = entry.name
        if name.endswith((".py", ".lark")):
            state = entry.stat()
            names.append(name)
            numbers.append(state.st_size)
            numbers.append(state.st_mtime_ns)
        elif name != "__pycache__" and entry.is_dir(follow_symlinks=False):
            names.append(f"{name}/")
            _list_files(entry.path, names, numbers)
            names.append("")


_PACKAGE = package_state()
"""The state of polyc's files when this process began: what it compiles belongs to no later one."""


def is_unchanged() -> bool:
    """Whether polyc's files are those that this process has imported: only then is what they make kept."""
    return package_state() == _PACKAGE


def read_or_make(
    store: Store, key: Key, read: Callable[[Entry], Read | None], make: Callable[[], Made], write: Callable[[Made], Entry]
) -> Read | Made:
    """The value of the entry of `key`; where there is none, or it makes no sense, what `make` gives, which is kept."""
    from polyc.cache import Unstorable

    entry = store.read(key)
    if entry is not None:
        value = read_entry(store, key, read, entry)
        if value is not None:
            return value
    tell_miss(store, key)
    made = make()
    if not is_unchanged():
        logger.info("cache: %s of %s is not stored: polyc's files have changed since it was imported", key.kind, key.name)
        return made
    try:
        store.write(key, write(made))
    except (Unstorable, RecursionError) as error:
        logger.info("cache: %s of %s is not stored: %s", key.kind, key.name, error)
    return made


def tell_miss(store: Store, key: Key) -> None:
    """Log why nothing was found."""
    if logger.tells_info():
        logger.info("cache: miss: %s of %s: %s", key.kind, key.name, store.explain_miss(key))


def read_entry(store: Store, key: Key, read: Callable[[Entry], Read | None], entry: Entry) -> Read | None:
    """The value of an entry, None where `read` says that it does not count; one that makes no sense is removed."""
    try:
        value = read(entry)
    except Exception as error:
        # The entry is as it was written, but not by this version, or not for this key.
        logger.warning("cache: %s of %s makes no sense and is removed: %s", key.kind, key.name, error)
        store.remove(key)
        return None
    if value is not None:
        logger.debug("cache: hit: %s of %s", key.kind, key.name)
    return value


def own_versions() -> str:
    """What code depends on beside its program, options and machine: versions, and the state of polyc's own files."""
    from polyc.cache import versions

    return f"polyc {VERSION} ({_PACKAGE[:16]}), {versions('islpy', 'highspy')}"


def open_store() -> Store | None:
    """The store of the environment.  While faults should surface (`POLYC_DEBUG`), everything is compiled."""
    warn_of_environment()
    if debugging():
        return None
    from polyc.cache import open_store

    return open_store()


def format_sizes(sizes: Mapping[str, int]) -> str:
    """Sizes as a part of a key."""
    return ", ".join(f"{n}={v}" for n, v in sorted(sizes.items()))
