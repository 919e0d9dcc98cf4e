"""A directory of entries: written in one step, checked when read, the longest unused removed first.

An entry is a file: `_MAGIC`, the length of its header (8 bytes), the SHA-256 of that length, header and payload, the header
(JSON), the payload (bytes).  Readers take no lock: a file is there whole or not at all, and one that is damaged is as good
as none.
Whoever can write here can make polyc run code, so a directory that others can write to is not used.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.cache.keys import Key
from polyc.config import cache_settings
from polyc.digest import sha256
from polyc.log import logger
from polyc.records import dataclass

if TYPE_CHECKING:
    from pathlib import Path

_MAGIC = b"polyc-entry\n"
_HEAD = len(_MAGIC) + 8 + 32
_SUFFIX, _TEMPORARY = ".entry", ".tmp"
_STALE_SECONDS = 3600
"""Temporary files older than that were left by a process that died."""
_STORES_BETWEEN_SCANS = 100
_KEEP = 0.9
"""Part of the cap that is kept when entries have to go, so that this is not needed at every store."""


@dataclass(frozen=True, slots=True)
class Entry:
    """`header` is plain data (JSON), `payload` bytes."""

    header: dict[str, Any]
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Totals:
    """What a directory holds: files of each kind, and bytes of all."""

    entries: dict[str, int]
    size: int


class Store:
    """Entries below `directory`, no more than `cap` bytes.  No method raises for what the file system does."""

    def __init__(self, directory: str | os.PathLike[str], cap: int) -> None:
        self._base = os.fspath(directory)
        self._place = os.path.join(self._base, "entries")
        self.cap = cap
        self._size = 0
        self._stores_until_scan = 0
        self._is_usable: bool | None = None
        self._can_write = True

    @property
    def base(self) -> Path:
        """What it was made for."""
        from pathlib import Path  # only now: it takes longer to import than a kernel to load

        return Path(self._base)

    @property
    def directory(self) -> Path:
        """Where the entries are."""
        return self.base / "entries"

    def _path(self, key: Key) -> str:
        return os.path.join(self._place, key.file_name + _SUFFIX)

    # --- Reading -----------------------------------------------------------------------------------------------------

    def read(self, key: Key) -> Entry | None:
        """The entry, or None.  A damaged one is removed."""
        path = self._path(key)
        try:
            if not self._check_directory():
                return None
            with open(path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.info("cache: %s cannot be read: %s", path, error.strerror or error)
            return None
        entry = _parse(content)
        if entry is None:
            logger.warning("cache: %s is damaged and is removed", path)
            self.remove(key)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the time of change is the time of last use
        return entry

    def remove(self, key: Key) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path(key))

    def explain_miss(self, key: Key) -> str:
        """Which part of the key differs from the nearest entry of the same subject."""
        nearest: tuple[list[tuple[str, str, str]], Any] | None = None
        own = dict(key.parts)
        count = 0
        for path in self._paths():
            if not path.name.startswith(key.file_prefix):
                continue
            with contextlib.suppress(OSError):
                entry = _parse(path.read_bytes())
                if entry is None or not isinstance(entry.header.get("parts"), list):
                    continue
                count += 1
                other = {str(n): str(v) for n, v in entry.header["parts"]}
                differs = [(n, v, other.get(n, "")) for n, v in own.items() if other.get(n) != v]
                if nearest is None or len(differs) < len(nearest[0]):
                    nearest = differs, entry
        if nearest is None:
            return "nothing of it is stored; " + "; ".join(f"{n}: {_shorten(v)}" for n, v in key.parts if v)
        differences = "; ".join(f"{n} {_shorten(v) or 'none'}, there {_shorten(w) or 'none'}" for n, v, w in nearest[0])
        return f"the nearest of {count} differs in {differences}"

    # --- Writing -----------------------------------------------------------------------------------------------------

    def write(self, key: Key, entry: Entry) -> None:
        """Keep `entry`; where that is impossible, say so in the log."""
        if not self._can_write:
            return
        header = json.dumps({**entry.header, "parts": key.parts}, separators=(",", ":")).encode()
        length, body = len(header).to_bytes(8, "little"), header + entry.payload
        content = b"".join((_MAGIC, length, sha256(length + body).digest(), body))
        if len(content) > self.cap:
            logger.info("cache: %s of %s is larger than the whole cache may be", key.kind, key.name)
            return
        try:
            self._write_file(key.file_name + _SUFFIX, content)
        except OSError as error:
            self._can_write = False
            logger.info("cache: nothing can be stored in %s: %s", self.directory, error.strerror or error)
            return
        self._size += len(content)
        self._stores_until_scan -= 1
        if self._stores_until_scan < 0 or self._size > self.cap:
            self._make_room()

    def _write_file(self, name: str, content: bytes) -> None:
        self.base.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.mkdir(mode=0o700, exist_ok=True)
        self._is_usable = None
        if not self._check_directory():
            raise PermissionError(0, "others can write there")
        import tempfile

        try:
            handle, temporary = tempfile.mkstemp(_TEMPORARY, dir=self.directory)
        except FileNotFoundError:  # cleared by another process a moment ago
            self.directory.mkdir(mode=0o700, exist_ok=True)
            handle, temporary = tempfile.mkstemp(_TEMPORARY, dir=self.directory)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, os.path.join(self._place, name))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _check_directory(self) -> bool:
        """Whether the directory is ours alone to write to.  Raises OSError where there is none."""
        if self._is_usable is None:
            state = os.stat(self._place)
            is_ours = not hasattr(os, "geteuid") or state.st_uid == os.geteuid()
            self._is_usable = is_ours and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if not self._is_usable:
                logger.warning("cache: %s is not used, since others can write to it", self._place)
        return self._is_usable

    def _make_room(self) -> None:
        """Count what is there, other processes' entries too; above the cap the longest unused go.

        There may be a hundred thousand files: of each, two numbers are kept meanwhile."""
        times, sizes = array("q"), array("q")
        oldest = time.time_ns() - _STALE_SECONDS * 1_000_000_000
        for file, state in self._scan():
            if file.name.endswith(_SUFFIX):
                times.append(state.st_mtime_ns)
                sizes.append(state.st_size)
            elif state.st_mtime_ns < oldest:
                _unlink(file)
        self._size = sum(sizes)
        self._stores_until_scan = _STORES_BETWEEN_SCANS
        if self._size <= self.cap:
            return
        order = np.argsort(np.array(times), kind="stable")
        gone = np.cumsum(np.array(sizes)[order])
        last = int(np.searchsorted(gone, self._size - int(self.cap * _KEEP)))
        limit = times[int(order[min(last, len(order) - 1)])]
        removed = 0
        for file, state in self._scan():
            if file.name.endswith(_SUFFIX) and state.st_mtime_ns <= limit:
                _unlink(file)
                self._size -= state.st_size
                removed += 1
        logger.info("cache: %d entries were removed, %d bytes remain", removed, self._size)

    def _scan(self) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
        """Files of the cache one by one, temporary ones too, and what the system says of each."""
        with contextlib.suppress(OSError), os.scandir(self._place) as found:
            for file in found:
                if file.name.endswith((_SUFFIX, _TEMPORARY)):
                    with contextlib.suppress(OSError):
                        yield file, file.stat(follow_symlinks=False)

    # --- The whole directory -----------------------------------------------------------------------------------------

    def totals(self) -> Totals:
        entries: dict[str, int] = {}
        size = 0
        for path in self._paths():
            with contextlib.suppress(OSError):
                size += path.stat().st_size
                kind = path.name.partition("-")[0]
                entries[kind] = entries.get(kind, 0) + 1
        return Totals(entries, size)

    def clear(self) -> int:
        """Remove all entries; how many went.  Raises OSError where one cannot be removed."""
        count = 0
        for path in self._paths(with_temporary=True):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                count += path.suffix == _SUFFIX
        self._size = 0
        return count

    def _paths(self, with_temporary: bool = False) -> Iterator[Path]:
        """Files of the cache; nothing else in the directory is touched."""
        suffixes = (_SUFFIX, _TEMPORARY) if with_temporary else (_SUFFIX,)
        with contextlib.suppress(OSError):
            names = sorted(os.listdir(self.directory))
            yield from (self.directory / n for n in names if n.endswith(suffixes))


def _parse(content: bytes) -> Entry | None:
    """The entry in a file, or None where it is damaged."""
    if len(content) < _HEAD or not content.startswith(_MAGIC):
        return None
    words, body = content[len(_MAGIC) : len(_MAGIC) + 8], content[_HEAD:]
    length = int.from_bytes(words, "little")
    if length > len(body) or sha256(words + body).digest() != content[_HEAD - 32 : _HEAD]:
        return None
    try:
        header = json.loads(body[:length])
    except (ValueError, RecursionError):
        return None
    return Entry(header, body[length:]) if isinstance(header, dict) else None


def _unlink(file: os.DirEntry[str]) -> None:
    with contextlib.suppress(OSError):
        os.unlink(file)


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:40]}…{text[-20:]}"


_opened: dict[tuple[str, int], Store] = {}


def open_store() -> Store | None:
    """The store that the environment names; None where it is switched off or there is no place for it."""
    settings = cache_settings()
    if settings is None:
        return None
    store = _opened.get(settings)
    if store is None:
        store = _opened[settings] = Store(*settings)
    return store
