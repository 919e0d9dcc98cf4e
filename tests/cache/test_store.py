"""Entries on disk: whole or not at all, within the cap, and never in the way."""

from __future__ import annotations

import os
import random
import stat
import time
import tracemalloc
from pathlib import Path

import pytest

from polyc.cache import Entry, Key, Store
from polyc.config import parse_bytes

KEY = Key("kernel", "f", "ab" * 32, (("sizes", "N=1"), ("options", "tile=True")))
ENTRY = Entry({"value": [1, "two", None]}, bytes(range(256)))


def numbered(n: int) -> Key:
    return Key("kernel", "f", "ab" * 32, (("sizes", f"N={n}"),))


@pytest.fixture
def store(cache_dir: Path) -> Store:
    return Store(cache_dir, 1 << 20)


def only_file(store: Store) -> Path:
    (path,) = store.directory.iterdir()
    return path


def test_entry_is_found_again(store: Store) -> None:
    assert store.read(KEY) is None
    store.write(KEY, ENTRY)
    found = Store(store.base, 1 << 20).read(KEY)
    assert found is not None
    assert found.payload == ENTRY.payload and found.header["value"] == ENTRY.header["value"]
    assert store.read(numbered(1)) is None


def test_only_the_owner_may_look(store: Store) -> None:
    store.write(KEY, ENTRY)
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(only_file(store).stat().st_mode) == 0o600


def test_directory_that_others_can_write_to_is_not_used(store: Store, log) -> None:
    store.write(KEY, ENTRY)
    store.directory.chmod(0o777)
    again = Store(store.base, 1 << 20)
    assert again.read(KEY) is None
    again.write(numbered(2), ENTRY)
    assert len(list(store.directory.iterdir())) == 1
    assert "others can write" in log.text


def test_truncated_entry_is_removed(store: Store, log) -> None:
    store.write(KEY, ENTRY)
    content = only_file(store).read_bytes()
    for length in [*range(0, len(content), 100), len(content) - 1]:
        path = store.directory / (KEY.file_name + ".entry")
        path.write_bytes(content[:length])
        assert store.read(KEY) is None
        assert not path.exists()
    assert "is damaged and is removed" in log.text


def test_every_flipped_bit_is_noticed(store: Store) -> None:
    store.write(KEY, ENTRY)
    path = only_file(store)
    content = path.read_bytes()
    draw = random.Random(0)
    positions = [*range(60), *(draw.randrange(len(content)) for _ in range(300))]
    for position in positions:
        damaged = bytearray(content)
        damaged[position] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        assert store.read(KEY) is None, position
    path.write_bytes(content)
    assert store.read(KEY) is not None


def test_foreign_file_in_place_of_an_entry_is_no_entry(store: Store) -> None:
    store.write(KEY, ENTRY)
    path = only_file(store)
    path.unlink()
    path.mkdir()
    assert store.read(KEY) is None
    store.write(KEY, ENTRY)  # cannot replace a directory, and says so in the log only
    assert store.read(KEY) is None


def test_longest_unused_go_first(cache_dir: Path) -> None:
    entry = Entry({}, b"x" * 1000)
    store = Store(cache_dir, 20_000)
    for n in range(10):
        store.write(numbered(n), entry)
        os.utime(store.directory / (numbered(n).file_name + ".entry"), (n, n))
    assert store.read(numbered(0)) is not None  # used now: the youngest of all
    for n in range(10, 20):
        store.write(numbered(n), entry)
        time.sleep(0.002)
    assert store.totals().size <= 20_000
    assert store.read(numbered(0)) is not None
    assert store.read(numbered(1)) is None
    assert store.read(numbered(19)) is not None


def test_entries_of_other_processes_count(cache_dir: Path) -> None:
    first, second = Store(cache_dir, 10_000), Store(cache_dir, 10_000)
    for n in range(8):
        first.write(numbered(n), Entry({}, b"x" * 1000))
    for n in range(8, 12):
        second.write(numbered(n), Entry({}, b"x" * 1000))
    assert second.totals().size <= 10_000


def test_entry_beyond_the_cap_is_not_stored(cache_dir: Path, log) -> None:
    store = Store(cache_dir, 500)
    store.write(KEY, Entry({}, b"x" * 1000))
    assert store.read(KEY) is None
    assert "larger than the whole cache" in log.text


def test_left_over_temporary_files_go(store: Store) -> None:
    store.write(KEY, ENTRY)
    old, new = store.directory / "dead.tmp", store.directory / "live.tmp"
    for path in (old, new):
        path.write_bytes(b"")
    os.utime(old, (1, 1))
    Store(store.base, 1 << 20).write(numbered(1), ENTRY)
    assert not old.exists() and new.exists()


def test_clear_removes_entries_and_nothing_else(store: Store) -> None:
    store.write(KEY, ENTRY)
    store.write(numbered(1), ENTRY)
    (store.directory / "notes.txt").write_text("mine")
    assert store.totals().entries == {"kernel": 2}
    assert store.clear() == 2
    assert store.totals().entries == {}
    assert [p.name for p in store.directory.iterdir()] == ["notes.txt"]


def test_place_that_cannot_be_made_is_no_error(tmp_path: Path, log) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "cache", 1 << 20)
    store.write(KEY, ENTRY)
    assert store.read(KEY) is None
    assert store.totals().size == 0 and store.clear() == 0
    assert "nothing can be stored" in log.text


def test_directory_may_vanish_between_two_stores(store: Store) -> None:
    store.write(KEY, ENTRY)
    only_file(store).unlink()
    store.directory.rmdir()
    store.write(KEY, ENTRY)
    assert store.read(KEY) is not None


def test_miss_names_the_part_that_differs(store: Store) -> None:
    other = (("sizes", "N=1"), ("options", "tile=True"), ("versions", "1"))
    for parts in (other, (*other[:2], ("versions", "0")), (("sizes", "N=7"), ("options", "tile=False"), ("versions", "1"))):
        store.write(Key("kernel", "f", "ab" * 32, parts), ENTRY)
    wanted = Key("kernel", "f", "ab" * 32, (("sizes", "N=2"), *other[1:]))
    assert store.explain_miss(wanted) == "the nearest of 3 differs in sizes N=2, there N=1"
    stranger = Key("kernel", "g", "cd" * 32, (("sizes", "N=2"),))
    assert store.explain_miss(stranger) == "nothing of it is stored; sizes: N=2"


@pytest.mark.parametrize(
    "text, size", [("100", 100), ("2K", 2048), (" 3 m ", 3 << 20), ("1GiB", 1 << 30), ("", None), ("-1", None), ("lots", None)]
)
def test_sizes_of_the_cap(text: str, size: int | None) -> None:
    assert parse_bytes(text) == size


def test_counting_a_full_directory_takes_little_memory(store: Store) -> None:
    store.write(KEY, ENTRY)
    for n in range(2000):
        (store.directory / f"kernel-f-{'ab' * 32}-{n}.entry").touch()
    tracemalloc.start()
    store.write(KEY, ENTRY)  # loads what it needs
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    Store(store.base, 1 << 20).write(numbered(1), ENTRY)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - before < 100 * 2000
