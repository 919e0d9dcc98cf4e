"""Versions of one program for sizes of other magnitudes, behind one entry point."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from polyc.diagnostics import PolycError, Remark
from polyc.driver.lowered import Lowered
from polyc.ir.versions import format_choice, leaves, renumber
from polyc.scheduler.size_classes import Version


def add_versions(lowered: Lowered, lower_version: Callable[[Version], Lowered]) -> Lowered:
    """`lowered` with versions for sizes of other magnitudes, as far as they are called in the same way."""
    numbers, others = {0: 0}, []
    for n, version in enumerate(lowered.size_classes.versions[1:], 1):
        numbers[n] = 0
        try:
            other = lower_version(version)
        except PolycError as error:
            lowered.remarks += (
                Remark("missed", "sizes", f"no version for {_list_sizes(version.typical)}: {error.diagnostics[0].message}"),
            )
            continue
        made = other.signature, other.nest.parameters, other.preparations, other.panels
        if made != (lowered.signature, lowered.nest.parameters, lowered.preparations, lowered.panels):
            lowered.remarks += (
                Remark("missed", "sizes", f"no version for {_list_sizes(version.typical)}: it takes other constants"),
            )
        elif other.nest != lowered.nest:
            others.append(other)
            numbers[n] = len(others)
    choice = renumber(lowered.size_classes.tree, numbers)
    used = sorted({0, *leaves(choice)})
    lowered.others = tuple(others[n - 1] for n in used[1:])
    lowered.choice = renumber(choice, {n: k for k, n in enumerate(used)})
    if lowered.others:
        described = ", ".join(_list_sizes(other.ranges.typical) for other in (lowered, *lowered.others))
        message = f"{len(used)} versions, for sizes about {described}; {format_choice(lowered.choice)}"
        lowered.remarks += (Remark("passed", "sizes", message),)
        own, rest = lowered.alias_is_safe, [other.alias_is_safe for other in lowered.others]
        lowered.alias_is_safe = lambda out, source: own(out, source) and all(safe(out, source) for safe in rest)
        lowered.is_reproducible = all(each.is_reproducible for each in (lowered, *lowered.others))
    return lowered


def _list_sizes(sizes: Mapping[str, int]) -> str:
    return "/".join(f"{n}={v}" for n, v in sizes.items())
