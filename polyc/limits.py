"""How much memory this process may have: that of the machine, of its control groups (containers), and of its own limits."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator

Place = str | os.PathLike[str]

GROUPS = "/sys/fs/cgroup"
"""Where control groups are mounted."""

MEMBERSHIP = "/proc/self/cgroup"
"""Which of them this process is in."""


def available_memory() -> int:
    """Bytes that this process may use at most; where nobody tells, more than any machine has."""
    return min((_given_memory(), *_own_limits()))


@functools.cache
def _given_memory() -> int:
    return min((*_machine_memory(), *group_limits(GROUPS, MEMBERSHIP)), default=sys.maxsize)


def _machine_memory() -> Iterator[int]:
    try:
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return


def _own_limits() -> Iterator[int]:
    """Limits that ``ulimit`` sets, and that a program may change."""
    try:
        import resource
    except ImportError:  # not on every system
        return
    for name in ("RLIMIT_AS", "RLIMIT_DATA"):
        soft, _ = resource.getrlimit(getattr(resource, name))
        if soft != resource.RLIM_INFINITY:
            yield soft


def group_limits(groups: Place, membership: Place) -> Iterator[int]:
    """Limits of the control groups that a process is in, of versions 1 and 2, and of all groups around them."""
    try:
        lines = _read(membership).splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            places, file = ["", "unified"], "memory.max"
        elif "memory" in controllers.split(","):
            places, file = ["memory"], "memory.limit_in_bytes"
        else:
            continue
        # In a container the path may be that of the host, while the group itself is the root of what is mounted.
        parts = [part for part in path.split("/") if part]
        for place in places:
            for n in range(len(parts), -1, -1):
                yield from _read_limit(os.path.join(groups, place, *parts[:n], file))


def _read(file: Place) -> str:
    with open(file, encoding="utf-8", errors="replace") as opened:
        return opened.read()


def _read_limit(file: str) -> Iterator[int]:
    try:
        text = _read(file).strip()
    except OSError:
        return
    if text.isdigit() and 0 < int(text) < 1 << 62:  # "max", or the largest number of pages: none
        yield int(text)
