"""Versions of one program for sizes of other magnitudes, behind one entry point."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from polyc.diagnostics import PolycError, Remark
from polyc.driver.lowered import Lowered
from polyc.ir.text import format_expr
from polyc.scheduler.size_classes import Version


def add_versions(lowered: Lowered, lower_version: Callable[[Version], Lowered]) -> Lowered:
    """`lowered` with versions for sizes of other magnitudes, as far as they are called in the same way."""
    (first, *rest), others = lowered.size_classes.costs, []
    costs = [first]
    for version, cost in zip(lowered.size_classes.versions[1:], rest, strict=True):
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
            costs.append(cost)
    lowered.others = tuple(others)
    if lowered.others:
        lowered.costs = tuple(costs)
        described = ", ".join(_list_sizes(other.ranges.typical) for other in (lowered, *lowered.others))
        message = f"{len(costs)} versions, for sizes about {described}; a call takes the one of least cost"
        lowered.remarks += (Remark("passed", "sizes", message),)
        for n, cost in enumerate(costs):
            lowered.remarks += (Remark("analysis", "sizes", f"version {n} costs {format_expr(cost)}"),)
        own, rest = lowered.alias_is_safe, [other.alias_is_safe for other in lowered.others]
        lowered.alias_is_safe = lambda out, source: own(out, source) and all(safe(out, source) for safe in rest)
        lowered.is_reproducible = all(each.is_reproducible for each in (lowered, *lowered.others))
    return lowered


def _list_sizes(sizes: Mapping[str, int]) -> str:
    return "/".join(f"{n}={v}" for n, v in sizes.items())
