"""The text of einops' patterns, ``b (h p) c -> b h (p c)``, read into a `Pattern`, with all that is wrong with it."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Literal

from polyc.diagnostics import ArgumentError, Diagnostic, SemanticError, Source, Span, suggest_name
from polyc.records import dataclass

Operation = Literal["rearrange", "reduce", "repeat"]


ELLIPSIS = "…"
_TOKEN = re.compile(r"(?P<skip>\s+)|(?P<dots>\.\.\.|…)|(?P<name>[^\W\d]\w*)|(?P<number>[0-9]+)|(?P<arrow>->)|(?P<bracket>[()])")
_MAX_LENGTH = 1 << 62


@dataclass(frozen=True, slots=True)
class Axis:
    """`name` is the user's name, the digits of an anonymous axis, or ``…``; `key` is one for each axis that is meant."""

    name: str
    key: str
    span: Span

    @property
    def is_named(self) -> bool:
        return not self.name.isdigit() and self.name != ELLIPSIS


@dataclass(frozen=True, slots=True)
class Group:
    """One dimension: an axis, or axes in parentheses.  `…` outside of parentheses stands for several dimensions."""

    axes: tuple[Axis, ...]
    span: Span
    is_composed: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """Both sides of a pattern; what is wrong with it as such has been reported."""

    operation: Operation
    left: tuple[Group, ...]
    right: tuple[Group, ...]
    source: Source

    @property
    def left_axes(self) -> dict[str, Axis]:
        return {a.key: a for g in self.left for a in g.axes}

    @property
    def right_axes(self) -> dict[str, Axis]:
        return {a.key: a for g in self.right for a in g.axes}


def read_pattern(operation: Operation, pattern: str) -> Pattern:
    """The two sides of `pattern`.  Raises SemanticError with everything that is wrong with it."""
    source = Source(pattern, "<pattern>")
    errors: list[Diagnostic] = []
    sides: list[list[Group]] = [[]]
    _read_groups(source, sides, errors)
    if not errors and len(sides) != 2:
        message = f"a pattern has one ->, and this has {len(sides) - 1 or 'none'}"
        errors.append(
            Diagnostic("semantic-einops-syntax", message, Span(source, 0, max(1, len(pattern))), "write left -> right")
        )
    if not errors:
        for side in sides:
            _check_side(side, errors)
    if errors:
        raise SemanticError(*errors)
    result = Pattern(operation, tuple(sides[0]), tuple(sides[1]), source)
    _check_sides(result, errors)
    if errors:
        raise SemanticError(*errors)
    return result


def check_lengths(pattern: Pattern, lengths: Mapping[str, int]) -> None:
    """Whether `lengths` give lengths to axes of the pattern, and to all that only they can tell.  Raises ArgumentError."""
    whole = Span(pattern.source, 0, max(1, len(pattern.source.text)))
    errors: list[Diagnostic] = []
    named = {a.name for a in (*pattern.left_axes.values(), *pattern.right_axes.values()) if a.is_named}
    for name, length in lengths.items():
        if name not in named:
            help = suggest_name(name, named) or "keyword arguments are the lengths of axes that the pattern names"
            errors.append(Diagnostic("argument-einops-axis", f"the pattern has no axis {name}", whole, help))
        elif length < 0 or length >= _MAX_LENGTH:
            message = f"the length of axis {name} is {length}"
            errors.append(Diagnostic("argument-einops-axis", message, whole, "lengths are numbers from 0 on"))
    for axis in pattern.right_axes.values():
        if axis.is_named and axis.key not in pattern.left_axes and axis.name not in lengths:
            help = f"give it as a keyword argument: {axis.name}=2"
            errors.append(Diagnostic("argument-einops-axis", f"the new axis {axis.name} has no length", axis.span, help))
    if errors:
        raise ArgumentError(*errors)


def _read_groups(source: Source, sides: list[list[Group]], errors: list[Diagnostic]) -> None:
    position, opened = 0, -1
    inside: list[Axis] = []
    while position < len(source.text):
        match = _TOKEN.match(source.text, position)
        place = Span(source, position, match.end() if match else position + 1)
        if match is None:
            help = "a pattern is made of names, numbers, ( ), ... and one ->"
            if source.text[position] == ",":
                help = "axes are separated by spaces; " + help
            errors.append(Diagnostic("semantic-einops-syntax", f"{source.text[position]!r} has no meaning here", place, help))
            return
        position = match.end()
        text = match.group()
        if match.lastgroup == "skip":
            continue
        if match.lastgroup == "arrow" or text == "(":
            if opened >= 0:
                message = f"{text!r} stands inside of parentheses"
                errors.append(Diagnostic("semantic-einops-syntax", message, place, "close the parenthesis before"))
                return
            if text == "(":
                opened, inside = place.start, []
            else:
                sides.append([])
        elif text == ")":
            if opened < 0:
                errors.append(
                    Diagnostic("semantic-einops-syntax", "nothing is open here", place, "remove it, or open a parenthesis")
                )
                return
            sides[-1].append(Group(tuple(inside), Span(source, opened, place.end), True))
            opened = -1
        else:
            axis = _make_axis(text, place, errors)
            if opened >= 0:
                inside.append(axis)
            else:
                sides[-1].append(Group((axis,), place))
    if opened >= 0:
        place = Span(source, opened, opened + 1)
        errors.append(
            Diagnostic("semantic-einops-syntax", "this parenthesis is never closed", place, "write ) behind its axes")
        )


def _make_axis(text: str, place: Span, errors: list[Diagnostic]) -> Axis:
    if text in ("...", ELLIPSIS):
        return Axis(ELLIPSIS, ELLIPSIS, place)
    if text[0].isdigit():
        length = int(text) if len(text) < 20 else _MAX_LENGTH
        if not 0 < length < _MAX_LENGTH:
            message = f"an axis cannot have the length {text[:40]}"
            errors.append(Diagnostic("semantic-einops-syntax", message, place, "lengths are numbers from 1 on"))
        return Axis(str(length), f"{length}@{place.start}", place)
    if text.startswith("_") or text.endswith("_") or keyword.iskeyword(text):
        help = "names of axes are Python's, without _ at their ends, as their lengths are keyword arguments"
        errors.append(Diagnostic("semantic-einops-syntax", f"{text} cannot be the name of an axis", place, help))
    return Axis(text, text, place)


def _check_side(side: list[Group], errors: list[Diagnostic]) -> None:
    seen: set[str] = set()
    for axis in (a for g in side for a in g.axes):
        if axis.key in seen:
            message = f"the axis {axis.name.replace(ELLIPSIS, '...')} stands twice on this side"
            errors.append(Diagnostic("semantic-einops-axis", message, axis.span, "name every axis once on each side"))
        seen.add(axis.key)


def _check_sides(pattern: Pattern, errors: list[Diagnostic]) -> None:
    left, right = pattern.left_axes, pattern.right_axes
    dots = right.get(ELLIPSIS)
    if dots is not None and ELLIPSIS not in left:
        errors.append(
            Diagnostic("semantic-einops-axis", "the left side has no ...", dots.span, "write ... on the left, or name the axes")
        )
    for group in pattern.left:
        if group.is_composed and any(a.name == ELLIPSIS for a in group.axes):
            message = "... stands inside of parentheses on the left side"
            errors.append(
                Diagnostic("semantic-einops-axis", message, group.span, "how a dimension splits into ... cannot be told")
            )
    for axis in left.values():
        is_number = axis.name.isdigit() and axis.name != "1"
        if pattern.operation != "reduce" and is_number:
            help = f"{pattern.operation} keeps every axis, and a number cannot say where: give the axis a name"
            errors.append(Diagnostic("semantic-einops-axis", f"a number as an axis of {pattern.operation}", axis.span, help))
        elif pattern.operation != "reduce" and axis.name != "1" and axis.key not in right:
            shown = axis.name.replace(ELLIPSIS, "...")
            help = suggest_name(shown, [a.name for k, a in right.items() if k not in left]) or "only reduce lets axes disappear"
            errors.append(Diagnostic("semantic-einops-axis", f"the axis {shown} is not on the right side", axis.span, help))
    for axis in right.values():
        if pattern.operation == "repeat" or axis.name == "1" or axis.key in left or axis.name == ELLIPSIS:
            continue
        shown = f"an axis of length {axis.name}" if axis.name.isdigit() else f"the axis {axis.name}"
        help = suggest_name(axis.name, [a.name for k, a in left.items() if k not in right]) or "only repeat makes new axes"
        errors.append(Diagnostic("semantic-einops-axis", f"{shown} is not on the left side", axis.span, help))
